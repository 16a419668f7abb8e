"""Ids of two systems: the same person has one place at both, whatever kind of column the id is."""

import datetime
import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit_protocol.domain import Domain, NumericColumn
from tacit_protocol.messages.alignment import UnitKey
from tacit_services.agent.data.reader import AlignedUnits, TableBounds
from tacit_services.agent.data.source import DataError, Source
from tacit_services.agent.data.table import SourceTable
from tacit_services.agent.settings import open_source

KEY = UnitKey(bytes(range(32)))
DOMAIN = Domain(columns=(NumericColumn(name="x", lower=0.0, upper=1000.0),))


def hashes(values: Any, kind: pa.DataType | None = None) -> list[int]:
    column = values if isinstance(values, pa.Array) else pa.array(values, kind)
    return [int(value) for value in AlignedUnits(KEY).hashes(column)]


def expected(*texts: str) -> list[int]:
    return [int(value) for value in KEY.hashes(texts)]


@pytest.mark.parametrize(
    "kind", [pa.int8(), pa.int64(), pa.uint64(), pa.float32(), pa.float64(), pa.decimal128(9, 2), pa.string()]
)
def test_a_whole_number_is_the_same_person_in_every_kind_of_column(kind: pa.DataType) -> None:
    values: list[Any] = [7, 70]
    if pa.types.is_decimal(kind):
        values = [Decimal(value) for value in values]
    elif pa.types.is_string(kind):
        values = ["7", " 70 "]
    assert hashes(values, kind) == expected("7", "70")
    assert hashes(pa.array([*values, values[0]], kind).dictionary_encode()) == expected("7", "70", "7")


def test_ids_are_the_same_person_where_their_text_is() -> None:
    assert len(set(hashes(["7", "07", "007", "a7", "A7"]))) == 5
    assert len(set(hashes(["Jose\u0301", "Jos\u00e9", " Jos\u00e9"]))) == 1
    large = [2**63 - 2, 2**63 - 1]
    assert hashes(large, pa.int64()) == expected(*map(str, large))
    assert hashes([datetime.date(2024, 2, 29)]) == expected("2024-02-29")
    unused = pa.DictionaryArray.from_arrays(pa.array([0, 0]), pa.array(["a", None]))
    assert hashes(unused) == expected("a", "a"), "a missing value that no row has"


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None]),
        pa.array(["a", ""]),
        pa.array(["a", "  "]),
        pa.array([1, None]),
        pa.array([1.0, float("nan")]),
        pa.array(["a", None]).dictionary_encode(),
        pa.array([None, None], pa.null()),
    ],
)
def test_a_row_without_an_id_is_refused(column: pa.Array) -> None:
    """It could be anybody, and would be matched with whatever stands at its place on the other side."""
    with pytest.raises(DataError, match="a row has no id"):
        hashes(column)


@pytest.mark.parametrize(
    "column",
    [
        pa.array([1.5]),
        pa.array([2.0**54]),
        pa.array([float("inf")]),
        pa.array([Decimal("1.50")]),
        pa.array([True]),
        pa.array([b"\xff\xfe"]),
        pa.array([[1]]),
        pa.array(["x" * 300]),
        pa.array(["caf\ufffd"]),
    ],
)
def test_what_is_no_id_is_refused_and_never_quoted(column: pa.Array) -> None:
    with pytest.raises(DataError) as refused:
        hashes(column)
    assert "caf" not in str(refused.value)
    assert "1.5" not in str(refused.value)


def csv_of(folder: Path, ids: list[str]) -> Source:
    (folder / "t.csv").write_text("id,x\n" + "".join(f"{name},{i}\n" for i, name in enumerate(ids)))
    return open_source("t.csv", None, folder)


def parquet_of(folder: Path, ids: list[Any]) -> Source:
    table = pa.table({"id": ids, "x": [float(i) for i in range(len(ids))]})
    pq.write_table(table, folder / "t.parquet", row_group_size=7)
    return open_source("t.parquet", None, folder)


def sql_of(folder: Path, ids: list[Any]) -> Source:
    with sqlite3.connect(folder / "t.sqlite3") as connection:
        connection.execute("CREATE TABLE t (id, x REAL)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(name, i) for i, name in enumerate(ids)])
    connection.close()
    return open_source("sqlite:///t.sqlite3", "SELECT id, x FROM t", folder)


def table_of(source: Source, **bounds: int) -> SourceTable:
    return SourceTable(
        source, DOMAIN, "id", TableBounds(**bounds) if bounds else None, AlignedUnits(KEY), ordered=True
    )


def test_three_kinds_of_source_have_one_digest(tmp_path: Path) -> None:
    ids = [int(i) for i in np.random.default_rng(1).permutation(500)]
    found = {
        KEY.digest(table_of(source).order)
        for source in (
            csv_of(tmp_path, [str(i) for i in ids]),
            parquet_of(tmp_path, ids[::-1]),
            parquet_of(tmp_path, [float(i) for i in sorted(ids)]),
            sql_of(tmp_path, [*ids, ids[0]]),
        )
    }
    assert len(found) == 1


@pytest.mark.parametrize("bounds", [{}, {"chunk_bytes": 64}, {"part_bytes": 256}, {"chunk_rows_max": 1}])
def test_places_are_those_of_the_ids_however_the_rows_are_cut(tmp_path: Path, bounds: dict[str, int]) -> None:
    ids = [str(i % 40) for i in range(100)]
    table = table_of(csv_of(tmp_path, ids), **bounds)
    places = {name: place for place, name in enumerate(sorted(set(ids), key=lambda i: expected(i)[0]))}
    seen = []
    for chunk in table.chunks():
        assert chunk.unit is not None
        assert chunk.positions is not None
        for row in range(chunk.rows):
            name = ids[round(float(chunk.numeric[row, 0]) * 1000)]
            assert chunk.positions[chunk.unit[row]] == places[name]
        seen += chunk.positions.tolist()
    assert sorted(seen) == list(range(40))


def test_ids_that_change_between_the_reads_of_a_database_are_noticed(tmp_path: Path) -> None:
    """As many rows and units as before, and no file whose time would tell."""
    table = table_of(sql_of(tmp_path, list(range(50))))
    assert table.units == 50
    with sqlite3.connect(tmp_path / "t.sqlite3") as connection:
        connection.execute("UPDATE t SET id = 1000 WHERE id = 3")
    connection.close()
    with pytest.raises(DataError, match="changed"):
        list(table.chunks())
