"""A table's sums are the same bits whoever adds them up: threads, processes, parts and chunks of any size."""

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from process_workers import ProcessWorkers

from tacit_protocol.domain import (
    ONE_WORKER,
    CategoricalColumn,
    DataError,
    Domain,
    NumericColumn,
    PooledTable,
    Table,
    ThreadWorkers,
    Workers,
)
from tacit_protocol.features.aligned_sums import ProjectionRelease, RowProjections
from tacit_protocol.features.brownian import BrownianFeatures
from tacit_protocol.features.cell_counts import CellGrid, sum_cells
from tacit_protocol.features.column_histograms import ColumnHistograms
from tacit_protocol.features.moments import (
    AdditiveFeatures,
    AdditiveRelease,
    UnitCountError,
    default_choice,
    sum_features,
)
from tacit_protocol.features.sketches import BucketDesign, SketchRelease
from tacit_protocol.messages.alignment import UnitKey
from tacit_services.agent.data.opening import open_source
from tacit_services.agent.data.reader import AlignedUnits, TableBounds, UnitHasher
from tacit_services.agent.data.source import Source, Splits
from tacit_services.agent.data.sql_source import Ranges, SqlSource
from tacit_services.agent.data.table import SourceTable

ROWS, UNITS, GROUP_ROWS, FILES = 3000, 700, 170, 5
RANGES = Ranges("part", (1, 2, 3, 4))
DOMAIN = Domain(
    columns=(
        NumericColumn(name="x", lower=-3, upper=3),
        NumericColumn(name="y", lower=-3, upper=3),
        CategoricalColumn(name="site", levels=("a", "b")),
    )
)
GRID = CellGrid.of(DOMAIN, cuts={"x": [-1.0, 0.5], "y": [0.0]})
FEATURES = AdditiveFeatures(2, (4,), default_choice(2, (4,), 0.3))
WAVES = BrownianFeatures(np.eye(2), 3)
KEY = UnitKey(bytes(range(32)))

Arrays = list[np.typing.NDArray[np.int64]]


def _sums(table: Table) -> Arrays:
    found = sum_features(WAVES, table, products=True)
    assert found.second is not None
    return [found.total, found.second]


def _additive(table: Table) -> Arrays:
    found = AdditiveRelease(FEATURES).sum(table)
    return [found.columns, found.pairs]


def _sketch(table: Table) -> Arrays:
    design = BucketDesign.near(table.units, 30)
    codes = design.assign(np.random.default_rng(5))
    found = SketchRelease(WAVES).sum(table, design, codes)
    assert found.moments[0].second is not None
    return [found.sketch, found.moments[0].total, found.moments[0].second]


def _projections(table: Table) -> Arrays:
    release = ProjectionRelease(RowProjections(np.eye(2)), disjoint=False)
    return [release.project(table, np.zeros(table.units, dtype=np.int64)).values]


REDUCTIONS: dict[str, Callable[[Table], Arrays]] = {
    "features": _sums,
    "additive": _additive,
    "cells": lambda table: [sum_cells(table, GRID).steps],
    "histograms": lambda table: [ColumnHistograms(DOMAIN, 8).sum(table, 12)],
    "sketch": _sketch,
    "projections": _projections,
}
PLACED = {"sketch", "projections"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows as a Parquet file of many row groups and as one of CSV."""
    rng = np.random.default_rng(8)
    folder = tmp_path_factory.mktemp("rows")
    x = rng.normal(size=ROWS)
    x[::97] = np.nan
    table = pa.table(
        {
            "x": x,
            "y": rng.normal(size=ROWS),
            "site": rng.choice(["a", "b", "c"], ROWS),
            "id": [f"p{unit}" for unit in rng.integers(0, UNITS, ROWS)],
        }
    )
    pq.write_table(table, folder / "t.parquet", row_group_size=GROUP_ROWS)
    pa_csv.write_csv(table, folder / "t.csv")
    for number in range(FILES):
        path = folder / "parts" / f"part={number}" / "0.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(table.slice(number * ROWS // FILES, ROWS // FILES), path, row_group_size=GROUP_ROWS)
    return folder


def folder(files: Path, _: str) -> Source:
    return open_source("parts/", None, files)


def records(files: Path) -> list[tuple[Any, ...]]:
    """The rows and their place, in another order: the ranges of places put them back."""
    rows = pq.read_table(files / "t.parquet").to_pylist()
    found = [(place // (ROWS // FILES), *row.values()) for place, row in enumerate(rows)]
    return [row for number in reversed(range(FILES)) for row in found if row[0] == number]


def sqlite(files: Path, _: str) -> Source:
    place = files / "t.sqlite3"
    if not place.exists():
        with sqlite3.connect(place) as connection:
            connection.execute("CREATE TABLE t (part INT, x REAL, y REAL, site TEXT, id TEXT)")
            connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", records(files))
        connection.close()
    return SqlSource(f"sqlite:///{place}", "SELECT * FROM t", RANGES)


def postgresql(files: Path, url: str) -> Source:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (part int, x float8, y float8, site text, id text)")
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            for record in records(files):
                copy.write_row(record)
    return SqlSource(url, "SELECT * FROM t", RANGES)


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessWorkers]:
    with ProcessWorkers(2) as workers:
        yield workers


def _table(
    files: Path,
    rows: str | Source,
    unit: str | None,
    workers: Workers,
    bounds: TableBounds,
    *,
    placed: bool = False,
) -> SourceTable:
    column = None if unit is None else "id"
    hasher = AlignedUnits(KEY) if placed else UnitHasher(bytes(16))
    source = open_source(rows, None, files) if isinstance(rows, str) else rows
    draw = 7 if unit == "one of id" else None
    ordered = placed and unit is not None
    return SourceTable(source, DOMAIN, column, bounds, hasher, ordered=ordered, workers=workers, draw=draw)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("unit", [None, "id", "one of id"])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_sums_are_the_same_bits_whoever_adds_them_up(
    files: Path, processes: ProcessWorkers, name: str, unit: str | None
) -> None:
    total, placed = REDUCTIONS[name], name in PLACED
    expected = total(_table(files, "t.parquet", unit, ONE_WORKER, TableBounds(), placed=placed))
    small = TableBounds(chunk_rows_max=61, part_bytes=20_000)
    for file, workers, bounds in (
        ("t.parquet", ThreadWorkers(3), small),
        ("t.parquet", ThreadWorkers(2), TableBounds()),
        ("t.csv", ThreadWorkers(3), small),
        ("t.parquet", processes, small),
        ("t.csv", processes, TableBounds()),
    ):
        found = total(_table(files, file, unit, workers, bounds, placed=placed))
        assert all(np.array_equal(one, other) for one, other in zip(expected, found, strict=True))


@pytest.mark.long
@pytest.mark.parametrize("unit", [None, "id"])
@pytest.mark.parametrize("make", [folder, sqlite, postgresql])
def test_folders_and_queries_have_the_sums_of_the_file_whoever_reads_them(
    files: Path,
    processes: ProcessWorkers,
    make: Callable[[Path, str], Source],
    unit: str | None,
    request: pytest.FixtureRequest,
) -> None:
    source = make(files, request.getfixturevalue("postgres_url") if make is postgresql else "")
    assert isinstance(source, Splits)
    assert len(source.split(4)) > 2
    small = TableBounds(chunk_rows_max=61, part_bytes=20_000)
    for name in ("features", "sketch"):
        total, placed = REDUCTIONS[name], name in PLACED
        expected = total(_table(files, "t.parquet", unit, ONE_WORKER, TableBounds(), placed=placed))
        for workers in (ONE_WORKER, ThreadWorkers(3), processes):
            found = total(_table(files, source, unit, workers, small, placed=placed))
            assert all(np.array_equal(one, other) for one, other in zip(expected, found, strict=True))


def test_a_part_that_is_added_twice_or_left_out_is_noticed(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = SourceTable._parts
    for wrong in (slice(1, None), slice(0, -1)):
        monkeypatch.setattr(SourceTable, "_parts", lambda self, wrong=wrong: genuine(self)[wrong])
        table = _table(files, "t.parquet", None, ThreadWorkers(2), TableBounds())
        with pytest.raises(DataError, match="changed"):
            _sums(table)
    monkeypatch.setattr(SourceTable, "_parts", lambda self: [*genuine(self)[:-1], genuine(self)[0]])
    with pytest.raises((DataError, UnitCountError), match="changed"):
        _sketch(_table(files, "t.parquet", None, ThreadWorkers(2), TableBounds()))


def test_a_pool_is_reduced_owner_by_owner(files: Path) -> None:
    tables = {
        str(number): _table(files, "t.parquet", None, ThreadWorkers(2), TableBounds()) for number in range(2)
    }
    pooled = _additive(PooledTable(DOMAIN, tables))
    assert PooledTable(DOMAIN, tables).workers.count == 2
    bits = AdditiveRelease(FEATURES).bits(2 * ROWS)
    single = AdditiveRelease(FEATURES).sum(tables["0"], bits)
    assert np.array_equal(pooled[0], 2 * single.columns)
    assert np.array_equal(pooled[1], 2 * single.pairs)


@pytest.mark.long
def test_what_a_worker_cannot_read_is_an_error_that_quotes_nothing(
    files: Path, tmp_path: Path, processes: ProcessWorkers
) -> None:
    whole = (files / "t.parquet").read_bytes()
    damaged = bytearray(whole)
    damaged[4000:9000] = bytes(5000)
    (tmp_path / "t.parquet").write_bytes(damaged)
    for workers in (ThreadWorkers(2), processes):
        with pytest.raises(DataError, match="damaged"):
            _sums(_table(tmp_path, "t.parquet", None, workers, TableBounds()))
