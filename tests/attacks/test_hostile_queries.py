"""Queries that are out to do more than read: on PostgreSQL, MariaDB, DuckDB and SQLite, as a page takes them.

A query is an admin's, and may read what its connection's user may read. It must not write, leave anything
behind in a session that another read sees, or be more than one query.
"""

# ruff: noqa: S608 (the tests' own queries)

import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

import duckdb
import psycopg
import pymysql
import pytest

from tacit_protocol.domain import DataError
from tacit_services.agent.data.source import Columns
from tacit_services.agent.data.sql_source import SqlSource, require_one_query

CANARY = "Xc4nary7"
X = Columns(numbers=("x",))


@dataclass
class Warehouse:
    """A database with a table ``t`` of one column ``x`` that holds 1.0; ``run`` asks it beside the agent."""

    kind: str
    url: str
    run: Callable[[str], list[tuple[object, ...]]]
    folder: Path

    def require_unchanged(self) -> None:
        assert self.run("SELECT x FROM t") == [(1.0,)]
        assert not (self.folder / "out").exists()


def asked_of_postgresql(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.fixture(params=["sqlite", "duckdb", "postgresql", "mariadb"])
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    kind = request.param
    if kind in ("sqlite", "duckdb"):
        file = tmp_path / f"w.{kind}"

        def run(statement: str) -> list[tuple[object, ...]]:
            connect = sqlite3.connect if kind == "sqlite" else duckdb.connect
            with closing(connect(str(file))) as connection:
                found = connection.execute(statement).fetchall()
                connection.commit()
                return found

        if kind == "duckdb":

            def run(statement: str) -> list[tuple[object, ...]]:  # its transactions commit by themselves
                with duckdb.connect(str(file)) as connection:
                    return connection.execute(statement).fetchall()

        url = f"{kind}:///{file}"
    elif kind == "postgresql":
        url = str(request.getfixturevalue("postgres_url"))

        def run(statement: str) -> list[tuple[object, ...]]:
            return asked_of_postgresql(url, statement)

    else:
        url = str(request.getfixturevalue("mariadb_url"))
        socket = url.partition("unix_socket=")[2]

        def run(statement: str) -> list[tuple[object, ...]]:
            with pymysql.connect(user="root", unix_socket=socket, autocommit=True) as connection:
                cursor = connection.cursor()
                cursor.execute("CREATE DATABASE IF NOT EXISTS test")
                cursor.execute("USE test")
                cursor.execute(statement)
                return list(cursor.fetchall())

        run("DROP TABLE IF EXISTS t")
    run("CREATE TABLE t (x DOUBLE PRECISION)")
    run("INSERT INTO t VALUES (1.0)")
    return Warehouse(kind, url, run, tmp_path)


NO_QUERIES = (
    "SELECT x FROM t; DELETE FROM t",
    "SELECT x FROM t) AS source; DELETE FROM t --",
    "SELECT x FROM t) AS source, (SELECT x FROM t",
    "SELECT x FROM t) AS a UNION ALL (SELECT 2.0",
    "DELETE FROM t",
    "WITH gone AS (SELECT 1) DELETE FROM t",
    "WITH gone AS (DELETE FROM t RETURNING x) SELECT x FROM gone",
    "SELECT x INTO copied FROM t",
    "SELECT x FROM t INTO OUTFILE '{folder}/out'",
    "SELECT x FROM t INTO DUMPFILE '{folder}/out'",
    "SELECT x INTO @taken FROM t",
    "COPY (SELECT x FROM t) TO '{folder}/out'",
    "COPY t TO PROGRAM 'touch {folder}/out'",
    "SELECT x FROM t) TO PROGRAM 'touch {folder}/out' --",
    "SELECT x FROM t) AS source; COMMIT; DROP TABLE t; --",
    "EXPLAIN ANALYZE DELETE FROM t",
    "ANALYZE",
    "SET transaction_read_only = off",
    "PRAGMA query_only = OFF",
    "ATTACH '{folder}/out' AS other",
    "CALL everything()",
    "SELECT x FROM t /* never closed",
    "SELECT 'never closed FROM t",
    "SELECT x FROM no_such_table_" + CANARY,
    "WITH",
    "\0",
    "SELECT x FROM t WHERE \0",
)

DEEP = "SELECT " + "(" * 2000 + "1" + ")" * 2000 + " AS x"
"""A query that is one, if the database takes it."""


def test_what_is_more_or_less_than_one_query_is_refused_and_does_nothing(warehouse: Warehouse) -> None:
    for written in (*NO_QUERIES, DEEP):
        query = written.format(folder=warehouse.folder)
        if written is not DEEP:
            with pytest.raises(DataError) as refused:
                require_one_query(warehouse.url, query)
            assert CANARY not in str(refused.value), query
            assert str(warehouse.folder) not in str(refused.value), query
        warehouse.require_unchanged()
        # Written into the file by hand it changes nothing either.
        with suppress(DataError):
            list(SqlSource(warehouse.url, query).batches(X, 10))
        warehouse.require_unchanged()


WRITES = {
    "postgresql": (
        "SELECT x, setval('s', 99) FROM t",
        "SELECT x, nextval('s') FROM t",
        "SELECT x, written() FROM t",
        "SELECT x, set_config('transaction_read_only', 'off', true), written() FROM t",
        "SELECT x, set_config('default_transaction_read_only', 'off', false) FROM t",
        "SELECT x, lo_create(4711) FROM t",
        "SELECT x, set_config('search_path', 'pg_temp', false) FROM t",
        "SELECT x, pg_notify('a', 'b') FROM t",
        "SELECT x FROM t FOR UPDATE",
    ),
    "mariadb": (
        "SELECT x, written() FROM t",
        "SELECT x, NEXTVAL(s) FROM t",
        "SELECT x, SETVAL(s, 99) FROM t",
        "SELECT x, @a := 5 FROM t",
        "SELECT x, LAST_INSERT_ID(77) FROM t",
        "SELECT x FROM t FOR UPDATE",
        "SELECT x, LOAD_FILE('{folder}/secret') AS s FROM t",
    ),
    "duckdb": (
        "SELECT x, nextval('s') FROM t",
        "SELECT x FROM t, read_csv('{folder}/secret')",
        "SELECT x FROM t, read_text('{folder}/secret')",
        "SELECT x, getenv('HOME') FROM t",
        "SELECT x FROM t, glob('/etc/*')",
        "SELECT x FROM t, '{folder}/secret.csv'",
        "SELECT x FROM t, sqlite_scan('{folder}/a', 't')",
    ),
    "sqlite": (
        "SELECT x, load_extension('{folder}/secret') FROM t",
        "SELECT x, writefile('{folder}/out', 'a') FROM t",
        "SELECT x, readfile('{folder}/secret') FROM t",
        "SELECT x FROM t, pragma_query_only(0)",
        "SELECT x FROM t, pragma_journal_mode('off')",
    ),
}


def test_a_query_changes_nothing_and_leaves_nothing_behind(warehouse: Warehouse) -> None:
    """What it calls may fail or not: rows, sequences, objects, files and later reads are as before."""
    (warehouse.folder / "secret").write_text(f"x\n{CANARY}\n")
    if warehouse.kind in ("postgresql", "duckdb"):
        warehouse.run("CREATE SEQUENCE s")
    if warehouse.kind == "mariadb":
        warehouse.run("CREATE OR REPLACE SEQUENCE s")
        warehouse.run("DROP FUNCTION IF EXISTS written")
        warehouse.run(
            "CREATE FUNCTION written() RETURNS INT MODIFIES SQL DATA "
            "BEGIN INSERT INTO t VALUES (9.0); RETURN 1; END"
        )
    if warehouse.kind == "postgresql":
        warehouse.run(
            "CREATE FUNCTION written() RETURNS int LANGUAGE sql VOLATILE AS "
            "$$ INSERT INTO t VALUES (9.0) RETURNING 1 $$"
        )
    for one in WRITES[warehouse.kind]:
        query = one.format(folder=warehouse.folder)
        words: list[str] = []
        for attempt in (
            lambda: require_one_query(warehouse.url, query),  # noqa: B023 (called at once)
            lambda: SqlSource(warehouse.url, query).column_names(),  # noqa: B023
            lambda: list(SqlSource(warehouse.url, query).batches(X, 10)),  # noqa: B023
            lambda: SqlSource(warehouse.url, query).rows(),  # noqa: B023
        ):
            try:
                attempt()
            except DataError as error:
                words.append(str(error))
        assert CANARY not in "".join(words)
        warehouse.require_unchanged()
    (batch,) = SqlSource(warehouse.url, "SELECT x FROM t").batches(X, 9)
    assert batch.column("x").cast("float64").to_pylist() == [1.0]
    if warehouse.kind == "postgresql":
        assert warehouse.run("SELECT is_called FROM s") == [(False,)]
        assert warehouse.run("SELECT count(*) FROM pg_largeobject_metadata") == [(0,)]
    if warehouse.kind == "mariadb":
        assert warehouse.run("SELECT next_not_cached_value FROM s") == [(1,)]
