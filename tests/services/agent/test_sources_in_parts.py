"""Folders and queries that several workers read give the same bits as those that one reads alone."""

import pickle
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit_protocol.domain.columns import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.features.brownian import BrownianFeatures
from tacit_protocol.features.moments import sum_features
from tacit_protocol.features.sketches import BucketDesign, SketchRelease
from tacit_protocol.workers import ONE_WORKER, ThreadWorkers, Workers
from tacit_services.agent.data.parquet_source import FolderPart
from tacit_services.agent.data.reader import TableBounds
from tacit_services.agent.data.source import Source
from tacit_services.agent.data.sql_source import Ranges, SqlSource
from tacit_services.agent.data.table import SourceTable
from tacit_services.agent.settings import open_source

ROWS = 600
DOMAIN = Domain(
    columns=(
        NumericColumn(name="x", lower=0, upper=1),
        NumericColumn(name="year", lower=2000, upper=2010),
        CategoricalColumn(name="site", levels=("a", "b")),
    )
)
WAVES = BrownianFeatures(np.eye(2), 3)


class PickledWorkers:
    """Workers elsewhere, but for the distance: all that goes to them, and comes back, is bytes."""

    count, in_process = 2, False

    def __init__(self) -> None:
        self.items: list[Any] = []

    def map(self, function: Callable[..., Any], shared: Any, items: Iterable[Any]) -> Iterator[Any]:
        for item in items:
            self.items.append(item)
            sent = pickle.loads(pickle.dumps((function, shared, item)))  # noqa: S301 (our own)
            yield pickle.loads(pickle.dumps(sent[0](*sent[1:])))  # noqa: S301


def rows() -> pa.Table:
    rng = np.random.default_rng(3)
    year = np.sort(rng.integers(2000, 2006, ROWS))
    site = np.array(["a", "b", "c"])[rng.integers(0, 3, ROWS)]
    order = np.lexsort((site, year))
    return pa.table(
        {
            "x": np.where(rng.random(ROWS) < 0.1, np.nan, rng.random(ROWS)),
            "year": year[order],
            "site": site[order],
            "id": rng.integers(0, 150, ROWS),
        }
    )


def folder(place: Path, _: str) -> Source:
    table = rows()
    for year in range(2000, 2006):
        for site in "abc":
            kept = table.filter((pa.compute.field("year") == year) & (pa.compute.field("site") == site))
            path = place / "t" / f"year={year}" / f"site={site}" / "0.parquet"
            path.parent.mkdir(parents=True)
            pq.write_table(kept.select(["x", "id"]), path, row_group_size=9)
    return open_source("t/", None, place)


def records() -> list[tuple[Any, ...]]:
    """The rows as a database holds them: in another order than that of the ranges."""
    found = [tuple(record.values()) for record in rows().to_pylist()]
    return [found[index] for index in np.random.default_rng(4).permutation(ROWS)]


def sqlite(place: Path, _: str) -> Source:
    with sqlite3.connect(place / "t.sqlite3") as connection:
        connection.execute("CREATE TABLE t (x REAL, year INT, site TEXT, id INT)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", records())
    connection.close()
    return SqlSource(
        f"sqlite:///{place / 't.sqlite3'}", "SELECT * FROM t", Ranges("year", (2001, 2003, 2005))
    )


def postgresql(_: Path, url: str) -> Source:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (x float8, year int, site text, id int)")
        with connection.cursor().copy("COPY t FROM STDIN") as copy:
            for record in records():
                copy.write_row(record)
    return SqlSource(url, "SELECT * FROM t", Ranges("year", (2001, 2003, 2005)))


MAKERS = [folder, sqlite, postgresql]


def sums(source: Source, workers: Workers, unit_column: str | None) -> list[bytes]:
    bounds = TableBounds(chunk_rows_max=70, part_bytes=5000)
    table = SourceTable(source, DOMAIN, unit_column, bounds, workers=workers)
    moments = sum_features(WAVES, table, products=True)
    assert moments.second is not None
    found = [np.array([table.rows, table.units]), moments.total, moments.second]
    if unit_column is None:  # which bucket a row falls into depends on its place among all
        design = BucketDesign.near(table.units, 30)
        sketch = SketchRelease(WAVES).sum(table, design, design.assign(np.random.default_rng(5)))
        found.append(sketch.sketch)
    return [array.tobytes() for array in found]


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: str(make.__name__))
def test_sums_are_the_same_bits_however_many_read(
    tmp_path: Path, make: Callable[[Path, str], Source], request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue("postgres_url") if make is postgresql else ""
    source = make(tmp_path, url)
    elsewhere = PickledWorkers()
    for unit_column in (None, "id"):
        alone = sums(source, ONE_WORKER, unit_column)
        assert sums(source, ThreadWorkers(3), unit_column) == alone
        assert sums(source, elsewhere, unit_column) == alone
    parts = [item.source for item in elsewhere.items if hasattr(item, "source")]
    assert len(parts) > 4, "several parts were read elsewhere"
    assert all(isinstance(part, FolderPart | SqlSource) for part in parts)
