"""Rows counted where they are stored give the very counts that reading them gives, for every source."""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit_protocol.domain import CategoricalColumn, DataError, Domain, NumericColumn
from tacit_protocol.features.cell_counts import CellGrid, sum_cells
from tacit_services.agent.data import sql_source
from tacit_services.agent.data.opening import open_source
from tacit_services.agent.data.reader import TableBounds
from tacit_services.agent.data.source import Source
from tacit_services.agent.data.sql_source import SqlSource
from tacit_services.agent.data.table import SourceTable

DOMAIN = Domain(
    columns=(
        CategoricalColumn(name="sex", levels=("f", "m")),
        CategoricalColumn(name="cp", levels=("1", "4", "01")),
    )
)
VALUES: list[str | None] = ["f", "m", "F", "x", " f", "f ", None, "é", "1"]
CODES: list[str | None] = ["1", "4", "01", "1.0", None, "04"]


def random_rows() -> list[tuple[str | None, str | None, str]]:
    rng = np.random.default_rng(11)
    return [
        (VALUES[int(a)], CODES[int(b)], f"p{int(c)}")
        for a, b, c in zip(
            rng.integers(0, len(VALUES), 500),
            rng.integers(0, len(CODES), 500),
            rng.integers(0, 120, 500),
            strict=True,
        )
    ]


def csv_source(folder: Path) -> Source:
    lines = [",".join("NA" if value is None else f'"{value}"' for value in row) for row in random_rows()]
    (folder / "t.csv").write_text("\n".join(["sex,cp,id", *lines]) + "\n", encoding="utf-8")
    return open_source("t.csv", None, folder)


def parquet_source(folder: Path) -> Source:
    sex, cp, unit = zip(*random_rows(), strict=True)
    columns = {"sex": list(sex), "cp": list(cp), "id": list(unit)}
    pq.write_table(pa.table(columns), folder / "t.parquet", row_group_size=64)
    return open_source("t.parquet", None, folder)


def sqlite_source(folder: Path) -> Source:
    with sqlite3.connect(folder / "t.sqlite3") as connection:
        # A collation of its own, under which f and F are equal: groups must not follow it.
        connection.execute("CREATE TABLE t (sex TEXT COLLATE NOCASE, cp TEXT COLLATE RTRIM, id TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", random_rows())
    connection.close()
    return open_source("sqlite:///t.sqlite3", "SELECT sex, cp, id FROM t", folder)


def postgresql_source(url: str) -> Source:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (sex text, cp varchar(9), id text)")
        connection.cursor().executemany("INSERT INTO t VALUES (%s, %s, %s)", random_rows())
    return SqlSource(url, "SELECT sex, cp, id FROM t")


def table_of(source: Source, unit: str | None = None, domain: Domain = DOMAIN) -> SourceTable:
    return SourceTable(source, domain, unit, TableBounds(chunk_rows_max=37))


def expected(unit: str | None) -> np.typing.NDArray[np.float64]:
    """Counts by hand, from the rule: listed levels, all other values, missing ones."""
    counts = np.zeros((4, 5))
    rows = random_rows()
    sizes: dict[str, int] = {}
    for row in rows:
        sizes[row[2]] = sizes.get(row[2], 0) + 1
    sex = {"f": 0, "m": 1, None: 3}
    cp = {"1": 0, "4": 1, "01": 2, None: 4}
    for a, b, c in rows:
        counts[sex.get(a, 2), cp.get(b, 3)] += 1 if unit is None else 1 / sizes[c]
    return counts.ravel()


@pytest.mark.parametrize("unit", [None, "id"])
@pytest.mark.parametrize("make", [csv_source, parquet_source, sqlite_source, postgresql_source])
def test_every_source_gives_the_same_counts(
    tmp_path: Path, make: Callable[..., Source], unit: str | None, request: pytest.FixtureRequest
) -> None:
    place = request.getfixturevalue("postgres_url") if make is postgresql_source else tmp_path
    found = sum_cells(table_of(make(place), unit), CellGrid.of(DOMAIN))
    # A unit's fractions are rounded to 2**-20, over at most 120 units.
    assert np.abs(found.counts - expected(unit)).max() <= (0 if unit is None else 120 * 2.0**-20)


def test_the_database_counts_where_it_can_and_nowhere_else(tmp_path: Path) -> None:
    grid, source = CellGrid.of(DOMAIN), sqlite_source(tmp_path)
    assert table_of(source).counts(grid) is not None
    assert table_of(source, "id").counts(grid) is None
    assert table_of(csv_source(tmp_path)).counts(grid) is None
    cut = Domain(columns=(NumericColumn(name="cp", lower=0.0, upper=9.0),))
    assert table_of(source, domain=cut).counts(CellGrid.of(cut, cuts={"cp": (2.0,)})) is None


MIXED: list[Any] = [1, 1.0, "1", b"1", True, 0, -0.0, 1e20, 10**17, "1.0", "01", None, float("inf"), 2.5]


def test_values_of_any_type_are_told_apart_as_they_are_when_read(tmp_path: Path) -> None:
    """SQLite holds values of any type in one column, and takes 1 and 1.0 for equal."""
    with sqlite3.connect(tmp_path / "m.sqlite3") as connection:
        connection.execute("CREATE TABLE t (v)")
        connection.executemany("INSERT INTO t VALUES (?)", [(value,) for value in MIXED * 3])
    connection.close()
    source = open_source("sqlite:///m.sqlite3", "SELECT v FROM t", tmp_path)
    levels = ("1", "1.0", "01", "0", "2.5", "100000000000000000", "100000000000000000000")
    domain = Domain(columns=(CategoricalColumn(name="v", levels=levels),))
    _require_same_as_reading(source, domain)


def test_decimals_that_are_equal_are_told_apart_as_they_are_when_read(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (v numeric, b boolean, d date)")
        connection.execute(
            "INSERT INTO t VALUES (1, true, '2020-01-02'), (1.0, false, '2020-01-03'), (1.00, NULL, NULL), "
            "(1.0, true, '2020-01-02'), (NULL, false, NULL), ('NaN', true, '2020-01-02')"
        )
    source = SqlSource(postgres_url, "SELECT v, b, d FROM t")
    domain = Domain(
        columns=(
            CategoricalColumn(name="v", levels=("1", "1.0")),
            CategoricalColumn(name="b", levels=("true",)),
            CategoricalColumn(name="d", levels=("2020-01-02",)),
        )
    )
    _require_same_as_reading(source, domain)


def _require_same_as_reading(source: Source, domain: Domain) -> None:
    for folded in (False, True):
        _require_same_cells(table_of(source, domain=domain), CellGrid.of(domain, folded=folded))


def _require_same_cells(table: SourceTable, grid: CellGrid) -> None:
    pushed = table.counts(grid)
    read = np.zeros(grid.size, dtype=np.int64)
    for chunk in table.chunks():
        np.add.at(read, grid.index(chunk), 1)
    assert pushed.tolist() == read.tolist()


def test_grouping_by_value_alone_would_be_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mistake: a column's own collation decides which of f and F stands for both."""
    import sqlalchemy as sa  # noqa: PLC0415 (for this test alone)

    monkeypatch.setattr(sa, "collate", lambda expression, _: sa.func.length(expression))
    monkeypatch.setattr(sql_source, "shortened", lambda column: column)  # an expression has no collation
    found = sum_cells(table_of(sqlite_source(tmp_path)), CellGrid.of(DOMAIN))
    assert np.abs(found.counts - expected(None)).max() > 0


def test_a_table_that_cannot_be_counted_says_so_without_values(tmp_path: Path) -> None:
    table = table_of(sqlite_source(tmp_path))
    assert table.units == 500
    with sqlite3.connect(tmp_path / "t.sqlite3") as connection:
        connection.execute("DELETE FROM t WHERE sex = 'm'")
    connection.close()
    with pytest.raises(DataError, match="changed while it was being read") as caught:
        table.counts(CellGrid.of(DOMAIN))
    assert "500" not in str(caught.value)
    with sqlite3.connect(tmp_path / "t.sqlite3") as connection:
        connection.execute("DROP TABLE t")
    connection.close()
    with pytest.raises(DataError, match="cannot be counted"):
        table.counts(CellGrid.of(DOMAIN))
