"""DuckDB and MariaDB, as they are, and the statements that SQL Server and Oracle would be sent."""

# ruff: noqa: S608 (the tests' own queries)

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import odd_rows
import pymysql
import pytest
import sqlalchemy as sa
from columns_read import numbers_of, texts_of
from sqlalchemy.dialects import mssql, oracle

from tacit_protocol.domain import DataError, Domain, NumericColumn
from tacit_services.agent.data import sql_source
from tacit_services.agent.data.opening import open_source
from tacit_services.agent.data.source import Columns
from tacit_services.agent.data.sql_source import Ranges, Snapshot, SqlSource
from tacit_services.agent.data.table import SourceTable

CANARY = "Xc4nary7"


def as_both(source: SqlSource, name: str) -> list[tuple[float | None, str | None]]:
    """Return a column's values as numbers and as categories."""
    return list(zip(numbers_of(source, name), texts_of(source, name), strict=True))


@pytest.fixture
def mariadb(mariadb_url: str) -> Iterator[pymysql.Connection]:
    """A connection to an empty database of the server."""
    socket = mariadb_url.partition("unix_socket=")[2]
    with pymysql.connect(user="root", unix_socket=socket, autocommit=True) as connection:
        cursor = connection.cursor()
        cursor.execute("CREATE OR REPLACE DATABASE test CHARACTER SET utf8mb4")
        cursor.execute("USE test")
        cursor.execute("SET sql_mode = ''")
        yield connection


def duckdb_file(folder: Path, *statements: str) -> None:
    with duckdb.connect(str(folder / "t.duckdb")) as connection:
        for statement in statements:
            connection.execute(statement)


DUCK: dict[str, tuple[str, float | None, str | None]] = {
    "integer": ("7", 7.0, "7"),
    "hugeint": ("170141183460469231731687303715884105727::HUGEINT", 2.0**127, str(2**127 - 1)),
    "double": ("7.0::DOUBLE", 7.0, "7"),
    "no number": ("'nan'::DOUBLE", None, None),
    "infinity": ("'-inf'::DOUBLE", None, "-inf"),
    "decimal": ("7.50::DECIMAL(9, 2)", 7.5, "7.50"),
    "text": ("' 7 '", 7.0, " 7 "),
    "a text of 3 MB": ("repeat('m', 3000000)", None, "m" * 4096),
    "boolean": ("true", 1.0, "true"),
    "a day": ("DATE '2024-02-29'", None, "2024-02-29"),
    "a day beyond all calendars": ("DATE 'infinity'", None, None),
    "a day before our era": ("DATE '4713-01-01 (BC)'", None, None),
    "a moment": ("TIMESTAMP '2024-02-29 03:04:05.25'", None, "2024-02-29T03:04:05.250000"),
    "a moment of a zone": ("TIMESTAMPTZ '2024-02-29 03:04:05+02'", None, "2024-02-29T01:04:05"),
    "a moment beyond all calendars": ("TIMESTAMP '-infinity'", None, None),
    "a time": ("TIME '24:00:00'", None, "24:00:00"),
    "an interval": ("INTERVAL 1 DAY", None, "1 day"),
    "a list": ("[1, 2]", None, "[1, 2]"),
    "a record": ("{'a': 1}", None, "{'a': 1}"),
    "a uuid": ("'00000000-0000-0000-0000-000000000000'::UUID", None, "00000000-0000-0000-0000-000000000000"),
    "bytes": ("'\\xFF\\x00'::BLOB", None, "\\xFF\\x00"),
    "bits": ("'101'::BIT", None, "101"),
    "a name of an enumeration": ("'a'::ENUM('a', 'b')", None, "a"),
    "null": ("NULL", None, None),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", DUCK)
def test_every_type_of_duckdb_is_read(tmp_path: Path, name: str) -> None:
    value, number, words = DUCK[name]
    duckdb_file(tmp_path, f"CREATE TABLE t AS SELECT 1 AS u, {value} AS c UNION ALL SELECT 2, NULL")
    source = open_source("duckdb:///t.duckdb", "SELECT u, c FROM t ORDER BY u;", tmp_path)
    assert isinstance(source, SqlSource)
    assert as_both(source, "c") == [(number, words), (None, None)]
    by_unit = SourceTable(source, Domain(columns=(odd_rows.NUMBER.model_copy(update={"name": "c"}),)), "u")
    assert (by_unit.rows, by_unit.units) == (2, 2)


def test_a_duckdb_file_is_counted_and_cut_as_any_query_is(tmp_path: Path) -> None:
    duckdb_file(tmp_path, "CREATE TABLE t AS SELECT i AS x, i % 7 AS y FROM range(10000) AS r(i)")
    url = f"duckdb:///{tmp_path}/t.duckdb"
    source = SqlSource(url, "SELECT x, y FROM t WHERE 'a:b%c' <> 'x'", Ranges("x", (10, 500, 9000)))
    assert source.column_names() == ("x", "y")
    parts = list(map(pickle.loads, map(pickle.dumps, source.split(9))))
    assert [part.rows() for part in parts] == [500, 8500, 1000]
    read = [value for part in parts for value, _ in as_both(part, "x")]
    assert read == list(map(float, range(10000)))
    assert source.grouped(["y"], 10) is None


def test_a_query_of_a_duckdb_file_reads_that_file_alone_and_writes_nothing(tmp_path: Path) -> None:
    duckdb_file(tmp_path, "CREATE TABLE t AS SELECT 1 AS x")
    (tmp_path / "other.csv").write_text("x\n1\n")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    for query in (
        f"SELECT * FROM read_csv('{tmp_path}/other.csv')",
        "CREATE TABLE z (x INT)",
        "SELECT 1 AS x); DROP TABLE t; SELECT (1",
    ):
        with pytest.raises(DataError, match="cannot be run"):
            open_source("duckdb:///t.duckdb", query, tmp_path).column_names()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_duckdb_file_that_changed_is_noticed(tmp_path: Path) -> None:
    duckdb_file(tmp_path, "CREATE TABLE t AS SELECT 1 AS x")
    source = open_source("duckdb:///t.duckdb", "SELECT x FROM t", tmp_path)
    table = SourceTable(source, Domain(columns=(NumericColumn(name="x", lower=0, upper=9),)))
    assert table.units == 1
    duckdb_file(tmp_path, "UPDATE t SET x = 2")
    with pytest.raises(DataError, match="changed while it was being read"):
        list(table.chunks())


@pytest.mark.sweep(1)
@pytest.mark.parametrize("content", [b"", CANARY.encode() * 9999, None])
def test_a_damaged_duckdb_file_is_refused_by_words_that_quote_nothing(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "t.duckdb"
    if content is None:
        duckdb_file(tmp_path, f"CREATE TABLE t AS SELECT '{CANARY}' || i AS x FROM range(9999) AS r(i)")
        path.write_bytes(path.read_bytes()[:20_000])
    else:
        path.write_bytes(content)
    with pytest.raises(DataError) as refused:
        list(open_source("duckdb:///t.duckdb", "SELECT x FROM t", tmp_path).batches(Columns(("x",)), 9))
    assert CANARY not in str(refused.value)
    assert str(tmp_path) not in str(refused.value)


def test_an_error_in_the_middle_of_duckdbs_rows_quotes_nothing(tmp_path: Path) -> None:
    duckdb_file(tmp_path, "CREATE TABLE t AS SELECT i AS x FROM range(9000) AS r(i)")
    query = f"SELECT if(x = 8000, error('{CANARY}'), x) AS x FROM t"
    with pytest.raises(DataError, match="cannot be read") as refused:
        list(open_source("duckdb:///t.duckdb", query, tmp_path).batches(Columns(("x",)), 100))
    assert CANARY not in str(refused.value)


MARIA: dict[str, tuple[str, str, float | None, str | None]] = {
    "integer": ("BIGINT UNSIGNED", "18446744073709551615", 2.0**64, "18446744073709551615"),
    "boolean": ("BOOLEAN", "true", 1.0, "1"),
    "float": ("FLOAT", "0.1", 0.1, "0.1"),
    "double": ("DOUBLE", "1e20", 1e20, "100000000000000000000"),
    "decimal": ("DECIMAL(9, 2)", "7.5", 7.5, "7.50"),
    "text": ("TEXT", "' 7 '", 7.0, " 7 "),
    "a text of 3 MB": ("LONGTEXT", "repeat('m', 3000000)", None, "m" * 4096),
    "text of another encoding": ("VARCHAR(9) CHARACTER SET latin1", "'Müller'", None, "Müller"),
    "half a character": (
        "TEXT CHARACTER SET utf8mb3",
        "convert(0xEDA080 USING utf8mb3)",
        None,
        "\udced\udca0\udc80",
    ),
    "bytes": ("VARBINARY(9)", "x'FF00'", None, "\udcff\0"),
    "bits": ("BIT(9)", "b'101'", 5.0, "5"),
    "a day": ("DATE", "'2024-02-29'", None, "2024-02-29"),
    "no day": ("DATE", "'0000-00-00'", None, None),
    "a day without a month": ("DATE", "'2024-00-01'", None, None),
    "a moment": ("DATETIME(3)", "'2024-02-29 03:04:05.25'", None, "2024-02-29T03:04:05.250000"),
    "a whole moment": ("DATETIME(6)", "'2024-02-29 03:04:00'", None, "2024-02-29T03:04:00"),
    "a time": ("TIME", "'-838:59:59'", None, "-838:59:59"),
    "a year": ("YEAR", "2024", 2024.0, "2024"),
    "json": ("JSON", "'{\"a\": 1e999}'", None, '{"a": 1e999}'),
    "a name of an enumeration": ("ENUM('a', 'b')", "'b'", None, "b"),
    "a value of no enumeration": ("ENUM('a', 'b')", "'zz'", None, ""),
    "null": ("INT", "NULL", None, None),
}


def test_every_type_of_mariadb_is_read_as_the_server_spells_it(
    mariadb: pymysql.Connection, mariadb_url: str
) -> None:
    cursor = mariadb.cursor()
    for kind, value, number, words in MARIA.values():
        cursor.execute(f"CREATE OR REPLACE TABLE t (u INT, c {kind})")
        cursor.execute(f"INSERT INTO t VALUES (1, {value}), (2, NULL)")
        source = SqlSource(mariadb_url, "SELECT u, c FROM t WHERE 'a:b%c' <> 'x' ORDER BY u;")
        assert as_both(source, "c") == [(number, words), (None, None)], kind
    both = odd_rows.NUMBER.model_copy(update={"name": "c"})
    by_unit = SourceTable(source, Domain(columns=(both,)), "c")
    assert (by_unit.rows, by_unit.units) == (2, 1), "both are missing"


@pytest.mark.long
def test_one_read_of_mariadb_sees_one_state_and_a_slow_reader_keeps_its_connection(
    mariadb: pymysql.Connection, mariadb_url: str
) -> None:
    """The server of this session closes the connection of whoever reads nothing for a second."""
    cursor = mariadb.cursor()
    cursor.execute("CREATE TABLE t (x INT PRIMARY KEY, s TEXT) ENGINE = InnoDB")
    cursor.execute("INSERT INTO t SELECT seq, repeat('m', 2000) FROM seq_0_to_19999")
    source = SqlSource(mariadb_url, "SELECT x, s FROM t", Ranges("x", (10_000,)))
    batches = source.batches(Columns(("x",), ("s",)), 100)
    read = next(iter(batches)).num_rows
    cursor.execute("UPDATE t SET x = x - 50000 WHERE x >= 10000")
    cursor.execute("SELECT sleep(3)")
    assert read + sum(batch.num_rows for batch in batches) == 20_000
    assert [part.rows() for part in source.split(2)] == [20_000]


@pytest.mark.long
def test_a_study_of_mariadb_cannot_write(mariadb: pymysql.Connection, mariadb_url: str) -> None:
    mariadb.cursor().execute("CREATE TABLE t (x INT)")
    with Snapshot(mariadb_url.replace("mariadb:", "mariadb+pymysql:")).connect() as connection:
        assert isinstance(connection, sa.Connection)
        with pytest.raises(sa.exc.DBAPIError, match="READ ONLY"):
            connection.exec_driver_sql("INSERT INTO t VALUES (1)")


@pytest.mark.long
def test_faults_of_mariadb_quote_nothing(mariadb: pymysql.Connection, mariadb_url: str) -> None:
    for query in (f"SELECT {CANARY} AS x", "SELECT x FROM absent", f"SELECT 1 AS x FROM (SELECT '{CANARY}'"):
        with pytest.raises(DataError, match="cannot be run") as refused:
            SqlSource(mariadb_url, query).column_names()
        assert CANARY not in str(refused.value)
    with pytest.raises(DataError, match="cannot be reached") as refused:
        SqlSource(f"mysql://u:{CANARY}@127.0.0.1:1/x", "SELECT 1 AS x").column_names()
    assert CANARY not in str(refused.value)


class SentError(Exception):
    """A statement was sent."""


class Recorder:
    """A connection of a dialect without a server: it keeps what it is sent, as that dialect spells it."""

    def __init__(self, dialect: Any, sent: list[str]):
        self.dialect, self.sent = dialect, sent

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execution_options(self, **_: object) -> "Recorder":
        return self

    def execute(self, statement: sa.Select[Any]) -> None:
        spelled = statement.compile(dialect=self.dialect, compile_kwargs={"literal_binds": True})
        self.sent.append(" ".join(str(spelled).split()))
        raise SentError


ASKED = {
    "oracle": (
        "SELECT * FROM (SELECT age, \"Sex\" FROM visits WHERE at < '10:30') source WHERE 1 = 0",
        "SELECT count(*) AS count_1 FROM (SELECT age, \"Sex\" FROM visits WHERE at < '10:30') source",
        "SELECT numbered.place, count(*) AS count_1 FROM (SELECT CASE WHEN (age < 40) THEN 0 ELSE 1 END AS "
        "place FROM (SELECT age, \"Sex\" FROM visits WHERE at < '10:30') source) numbered "
        "GROUP BY numbered.place",
        'SELECT part.age, part."Sex" FROM (SELECT source.age AS age, source."Sex" AS "Sex" FROM '
        "(SELECT age, \"Sex\" FROM visits WHERE at < '10:30') source WHERE age < 40) part",
    ),
    "mssql": (
        "SELECT * FROM (SELECT age, \"Sex\" FROM visits WHERE at < '10:30') AS source WHERE 1 = 0",
        "SELECT count(*) AS count_1 FROM (SELECT age, \"Sex\" FROM visits WHERE at < '10:30') AS source",
        "SELECT numbered.place, count(*) AS count_1 FROM (SELECT CASE WHEN (age < 40) THEN 0 ELSE 1 END AS "
        "place FROM (SELECT age, \"Sex\" FROM visits WHERE at < '10:30') AS source) AS numbered "
        "GROUP BY numbered.place",
        "SELECT part.age, part.[Sex] FROM (SELECT source.age AS age, source.[Sex] AS [Sex] FROM "
        "(SELECT age, \"Sex\" FROM visits WHERE at < '10:30') AS source WHERE age < 40) AS part",
    ),
}


@pytest.mark.parametrize("kind", ASKED)
def test_statements_for_servers_that_are_not_here(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that a source asks, compiled by SQLAlchemy's dialect. No server of the kind has run them."""
    dialect = {"oracle": oracle.dialect, "mssql": mssql.dialect}[kind]()
    sent: list[str] = []
    monkeypatch.setattr(Snapshot, "connect", lambda _: Recorder(dialect, sent))
    query = "SELECT age, \"Sex\" FROM visits WHERE at < '10:30'"
    source = SqlSource(f"{kind}://reader@db/hospital", query, Ranges("age", (40,)))
    for ask in (
        source.column_names,
        source.rows,
        lambda: source.split(2),
        lambda: list(source.batches(Columns(("age",), ("Sex",)), 10)),
    ):
        with pytest.raises(SentError):
            ask()
    assert tuple(sent) == ASKED[kind]
    assert source.grouped(["Sex"], 10) is None


def test_a_value_that_a_driver_stumbles_on_is_an_error_without_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pyodbc at half a character, by an error of Python's own."""

    def stumble(*_: object) -> None:
        raise UnicodeDecodeError("utf-16-le", CANARY.encode(), 0, 1, CANARY)

    monkeypatch.setattr(sql_source, "batch_of", stumble)
    (tmp_path / "t.sqlite3").touch()
    source = open_source("sqlite:///t.sqlite3", "SELECT 1 AS x", tmp_path)
    with pytest.raises(DataError, match="cannot be read") as refused:
        list(source.batches(Columns(("x",)), 10))
    assert CANARY not in str(refused.value)
