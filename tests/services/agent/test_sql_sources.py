"""Queries are read in bounded memory, in one state of the database, and in parts that hold every row once."""

import gc
import json
import math
import pickle
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from columns_read import numbers_of, texts_of
from long_runs import LONG

from tacit_protocol.arrow_columns import numbers, text_of
from tacit_protocol.domain import DataError, Domain, NumericColumn
from tacit_services.agent.data.source import Columns, Splits
from tacit_services.agent.data.sql_source import Ranges, SqlSource
from tacit_services.agent.data.table import SourceTable

CHILD = Path(__file__).parents[2] / "support" / "hostile_child.py"
CANARY = "Xc4nary7"
PATIENCE_S = 300.0

LIBRARIES_BYTES = 80 * 10**6
"""What Arrow and the driver take for themselves, however little is read."""

ODD = """
    CREATE TABLE odd (i bigint, f float8, r real, n numeric, b bool, t text, c char(3), v varchar, d date);
    INSERT INTO odd VALUES
        (1, 1.0, 0.1, 1.00, true, 'a', 'a', '5', '2024-02-29'),
        (-9223372036854775808, 1e300, 3.4e38, 1e400, false, '', '', ' 2 ', '0001-01-01'),
        (9007199254740993, 'NaN', 'NaN', 'NaN', NULL, 'NA', 'xyz', 'NaN', NULL),
        (NULL, 'Infinity', '-Infinity', 0.0000001, true, E'line\\nbreak', NULL, '1e3', '9999-12-31'),
        (0, -0.0, 1e-45, 123456789012345678901234567890.5, false, 'quo"te,comma', 'x,y', 'x', '1999-12-31'),
        (7, 0.1, 1.5, -0, true, E'\\\\.', '"', NULL, '2024-01-01'),
        (8, 1e-7, 16777217, NULL, NULL, NULL, 'é', '', '2024-01-01'),
        (9, 5e-324, NULL, 3, true, E'\\r', 'NA', '\\N', '2024-01-01'),
        (10, NULL, 2, 4, true, ' f ', 'f', '0x10', '2024-01-01');
"""


def execute(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement.encode())


def connections(url: str) -> int:
    others = b"datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
    query = b"SELECT count(*) FROM pg_stat_activity WHERE " + others
    with psycopg.connect(url) as connection:
        ((count,),) = connection.execute(query).fetchall()
    return int(count)


def wait_for_connections(url: str, count: int) -> None:
    """Wait until there are so many: a server notices a while later that a connection was closed."""
    until = time.monotonic() + PATIENCE_S
    while (found := connections(url)) != count:
        assert time.monotonic() < until, f"there are {found} connections, and not {count}"
        time.sleep(0.02)


def of_cursor(name: str, value: Any) -> tuple[float | None, str | None]:
    """A value that the driver made, as a number and as a category."""
    number = float(value) if isinstance(value, int | float | Decimal) else math.nan
    if isinstance(value, str):
        number = numbers(name, pa.array([value]))[0]
    return number if math.isfinite(number) else None, text_of(value)


def test_copy_reads_exactly_what_a_cursor_reads(postgres_url: str) -> None:
    execute(postgres_url, ODD)
    query = "SELECT * FROM odd WHERE 'x%y' <> '12:30' ORDER BY t, i"
    source = SqlSource(postgres_url, query + ";")
    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute(query.encode()).fetchall()
    for place, name in enumerate("ifrnbtcvd"):
        expected = [of_cursor(name, row[place]) for row in rows]
        assert list(zip(numbers_of(source, name), texts_of(source, name), strict=True)) == expected, name
    kept = {"a", "", "NA", "line\nbreak", 'quo"te,comma', "\\.", None, "\r", " f "}
    assert set(texts_of(source, "t")) == kept


def test_all_reads_see_the_state_that_the_first_one_saw(postgres_url: str) -> None:
    execute(postgres_url, "CREATE TABLE t AS SELECT i AS x FROM generate_series(0, 99) AS i")
    source = SqlSource(postgres_url, "SELECT x FROM t", Ranges("x", (10, 50, 90)))
    domain = Domain(columns=(NumericColumn(name="x", lower=0, upper=100),))
    table = SourceTable(source, domain)
    assert table.units == 100
    execute(postgres_url, "UPDATE t SET x = 0", "INSERT INTO t SELECT 7 FROM generate_series(1, 50)")
    assert sorted(numbers_of(source, "x")) == list(range(100))
    parts = list(map(pickle.loads, map(pickle.dumps, source.split(4))))
    execute(postgres_url, "DELETE FROM t")
    assert [part.rows() for part in parts] == [10, 40, 40, 10]
    assert sorted(value for part in parts for value in numbers_of(part, "x")) == list(range(100))
    assert sum(chunk.rows for chunk in table.chunks()) == 100
    grouped = source.grouped(["x"], 1000)
    assert sum(sum(repeats) for _, repeats in grouped) == 100
    assert SqlSource(postgres_url, "SELECT x FROM t").rows() == 0, "another source sees what is there now"


def test_the_state_is_let_go_with_the_last_source_that_reads_it(postgres_url: str) -> None:
    execute(postgres_url, "CREATE TABLE t AS SELECT i AS x FROM generate_series(0, 99) AS i")
    gc.disable()
    try:
        source = SqlSource(postgres_url, "SELECT x FROM t", Ranges("x", (50,)))
        table = SourceTable(source, Domain(columns=(NumericColumn(name="x", lower=0, upper=100),)))
        assert sum(chunk.rows for chunk in table.chunks()) == 100
        early = source.batches(Columns(numbers=("x",)), 10)
        assert next(iter(early)).num_rows == 10
        early.close()  # type: ignore[attr-defined]
        wait_for_connections(postgres_url, 1)
        parts = source.split(2)
        del source, table, early
        assert len(numbers_of(parts[1], "x")) == 50
        del parts
        wait_for_connections(postgres_url, 0)
    finally:
        gc.enable()


def test_a_state_that_the_database_let_go_is_a_clear_error(postgres_url: str) -> None:
    source = SqlSource(postgres_url, "SELECT 1 AS x")
    assert source.rows() == 1
    terminate = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
    execute(postgres_url, f"{terminate} AND datname = current_database()")
    wait_for_connections(postgres_url, 0)
    with pytest.raises(DataError, match="no longer holds the state"):
        numbers_of(source, "x")


def rows_read_with_a_pause(url: str, idle_ms: int) -> int:
    """Let the server close transactions that are idle for so long, and read with a longer pause."""
    setting = f"idle_in_transaction_session_timeout = {idle_ms}"
    execute(
        url,
        f"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET {setting}', current_database()); END $$",
    )
    source = SqlSource(url, "SELECT i AS x, DATE '2024-01-01' AS d FROM generate_series(1, 5000) AS i")
    batches = source.batches(Columns(("x",), ("d",)), 10)
    first = next(iter(batches)).num_rows
    execute(url, f"SELECT pg_sleep({8 * idle_ms / 1000})")
    read = first + sum(batch.num_rows for batch in batches)
    assert source.rows() == read
    return read


def test_a_server_that_closes_idle_transactions_closes_no_study(postgres_url: str) -> None:
    for idle_ms in (50, 500, 5000):
        try:
            assert rows_read_with_a_pause(postgres_url, idle_ms) == 5000
        except DataError:  # this process was held up before it could tell the server to wait
            continue
        return
    pytest.fail("the server closed what was read")


def test_rows_come_in_the_same_order_each_time(postgres_url: str) -> None:
    """The settings of the database that would let them come otherwise, as a read sees them."""
    names = "synchronize_seqscans", "max_parallel_workers_per_gather"
    query = ", ".join(f"current_setting('{name}') AS s{place}" for place, name in enumerate(names))
    source = SqlSource(postgres_url, f"SELECT {query}")
    assert [texts_of(source, "s0"), texts_of(source, "s1")] == [["off"], ["0"]]


def test_an_error_in_the_middle_of_the_rows_quotes_nothing(postgres_url: str) -> None:
    query = "SELECT 1 / (5000 - i) AS x, 'Xc4nary7' AS s FROM generate_series(0, 9999) AS i"
    source = SqlSource(postgres_url, query)
    with pytest.raises(DataError, match="cannot be read") as caught:
        numbers_of(source, "x", 100)
    assert CANARY not in str(caught.value)
    assert "division" not in str(caught.value)


def sqlite_source(folder: Path, values: Sequence[object], ranges: Ranges) -> SqlSource:
    with sqlite3.connect(folder / "t.sqlite3") as connection:
        connection.execute("CREATE TABLE t (x, y)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(value, i) for i, value in enumerate(values)])
    connection.close()
    return SqlSource(f"sqlite:///{folder / 't.sqlite3'}", "SELECT x, y FROM t", ranges)


def postgres_source(url: str, values: Sequence[object], ranges: Ranges) -> SqlSource:
    execute(url, "CREATE TABLE t (x float8, y int)")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.cursor().executemany(
            "INSERT INTO t VALUES (%s, %s)", [(v, i) for i, v in enumerate(values)]
        )
    return SqlSource(url, "SELECT x, y FROM t", ranges)


@pytest.fixture(params=["sqlite", "postgresql"])
def cut_source(request: pytest.FixtureRequest, tmp_path: Path) -> SqlSource:
    """Values around, on and between the bounds, beyond them, missing, and no number."""
    values: list[object] = [None, -1e18, -5, 0, 0.5, 9.999, 10, 10, 15, 19, 20, 1e18, math.inf, None, 12]
    ranges = Ranges("x", (0, 10, 20, 1000))
    if request.param == "sqlite":
        return sqlite_source(tmp_path, [*values, "text", b"bytes"], ranges)
    return postgres_source(request.getfixturevalue("postgres_url"), [*values, math.nan, -math.inf], ranges)


@pytest.mark.parametrize("parts", [1, 2, 3, 100])
def test_parts_of_a_query_hold_every_row_once(cut_source: SqlSource, parts: int) -> None:
    assert isinstance(cut_source, Splits)
    cut = list(map(pickle.loads, map(pickle.dumps, cut_source.split(parts))))
    assert len(cut) <= parts
    read = [numbers_of(part, "y") for part in cut]
    assert sorted(value for values in read for value in values) == list(range(17))
    assert [value for values in read for value in values] == numbers_of(cut_source, "y"), "in one order"
    assert [part.rows() for part in cut] == list(map(len, read))
    if parts == 100:
        assert [part.rows() for part in cut][1:-1] == [3, 5, 1]
        assert 0 in read[-1], "what is missing is in the last range"
    assert cut[0].column_names() == ("x", "y")
    assert list(cut[0].split(5)) == [cut[0]]


def test_the_ranges_of_one_read_are_of_one_state_of_sqlite(tmp_path: Path) -> None:
    """A row that moves from a range not yet read to one that was would be missed, and no count show it."""
    source = sqlite_source(tmp_path, range(100), Ranges("x", (50,)))
    with sqlite3.connect(tmp_path / "t.sqlite3") as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    connection.close()
    batches = source.batches(Columns(("y",)), 10)
    read = next(iter(batches)).num_rows
    with sqlite3.connect(tmp_path / "t.sqlite3") as connection:
        connection.execute("UPDATE t SET x = 0 WHERE x >= 50")
    connection.close()
    assert read + sum(batch.num_rows for batch in batches) == 100
    assert [part.rows() for part in source.split(2)] == [100]


def test_a_column_that_cannot_be_cut_is_a_clear_error(postgres_url: str) -> None:
    execute(postgres_url, f"CREATE TABLE t AS SELECT '{CANARY}' AS s")
    for column in ("s", "absent"):
        source = SqlSource(postgres_url, "SELECT s FROM t", Ranges(column, (1, 2)))
        with pytest.raises(DataError, match="partition_column") as caught:
            source.split(2)
        assert CANARY not in str(caught.value)


def test_a_part_that_grew_since_it_was_counted_is_refused(tmp_path: Path) -> None:
    parts = sqlite_source(tmp_path, range(100), Ranges("x", (50,))).split(2)
    with sqlite3.connect(tmp_path / "t.sqlite3") as connection:
        connection.execute("INSERT INTO t VALUES (3, 3)")
    connection.close()
    assert len(numbers_of(parts[1], "y")) == 50
    with pytest.raises(DataError, match="changed"):
        numbers_of(parts[0], "y")


@pytest.mark.long
def test_a_large_result_is_read_within_the_bound_on_memory(postgres_url: str) -> None:
    """What it takes to hold everything shows that more would be seen."""
    rows, read_bytes = 2_000_000 if LONG else 160_000, 2**24
    series = f"generate_series(1, {rows}) AS i"
    query = f"SELECT i AS x, i / 7.0::float8 AS y, 'patient ' || i AS s FROM {series}"  # noqa: S608
    command = [sys.executable, str(CHILD), "sql", postgres_url, query, str(read_bytes)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert child.returncode == 0, child.stderr
    report = json.loads(child.stdout)
    assert [way["rows"] for way in report.values()] == [rows] * 2
    assert report["copy"]["growth_bytes"] < read_bytes + LIBRARIES_BYTES
    assert report["all at once"]["growth_bytes"] > read_bytes + LIBRARIES_BYTES
