"""CSV, Parquet and SQL yield the same table from the same rows, in chunks, and fail without quoting data."""

import gzip
import io
import math
import sqlite3
import threading
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tacit_protocol.arrow_columns import numbers, text
from tacit_protocol.domain import CategoricalColumn, DataError, Domain, NumericColumn
from tacit_services.agent.data.opening import SourceSettings, open_source
from tacit_services.agent.data.parquet_source import ParquetSource
from tacit_services.agent.data.reader import TableBounds
from tacit_services.agent.data.source import Columns, Source, Splits
from tacit_services.agent.data.table import SourceTable, read_ahead
from tacit_services.agent.settings import DataSetSettings
from tacit_services.curator.data_sets import ConfiguredDataSet

HEADER = "age,sex,cp,id\n"
ROWS = "63,m,1,p1\n,f,01,p2\nNA,NA,,p1\n67,x,4,p3\nhello,m,1,\n"
DOMAIN = Domain(
    columns=(
        NumericColumn(name="age", lower=0.0, upper=100.0, missing=10.0),
        CategoricalColumn(name="sex", levels=("f", "m")),
        CategoricalColumn(name="cp", levels=("1", "4")),
    )
)
Writer = Callable[[Path], Source]


def write_csv(folder: Path) -> Source:
    (folder / "t.csv").write_text(HEADER + ROWS)
    return open_source("t.csv", None, folder)


def write_parquet(folder: Path) -> Source:
    table = pa.table(
        {
            "age": pa.array(["63", None, None, "67", "hello"]),
            "sex": pa.array(["m", "f", None, "x", "m"]).dictionary_encode(),
            "cp": pa.array(["1", "01", None, "4", "1"]),
            "id": pa.array(["p1", "p2", "p1", "p3", None]),
            "unused": pa.array([b"\xff"] * 5),
        }
    )
    pq.write_table(table, folder / "t.parquet", row_group_size=2)
    return open_source("t.parquet", None, folder)


def write_sql(folder: Path) -> Source:
    with sqlite3.connect(folder / "t.sqlite3") as connection:
        connection.execute("CREATE TABLE t (age, sex TEXT, cp TEXT, id TEXT)")
        rows = [
            (63, "m", "1", "p1"),
            (None, "f", "01", "p2"),
            (None, None, None, "p1"),
            (67.0, "x", "4", "p3"),
            ("hello", "m", "1", None),
        ]
        connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    connection.close()
    query = "SELECT age, sex, cp, id FROM t WHERE 'at 12:30' IS NOT NULL;"
    return open_source("sqlite:///t.sqlite3", query, folder)


WRITERS = pytest.mark.parametrize("write", [write_csv, write_parquet, write_sql])


@WRITERS
@pytest.mark.parametrize("rows_max", [1, 2, 100])
def test_every_kind_of_source_encodes_the_same_rows(tmp_path: Path, write: Writer, rows_max: int) -> None:
    table = SourceTable(write(tmp_path), DOMAIN, bounds=TableBounds(chunk_rows_max=rows_max))
    for _ in range(2):
        chunks = list(table.chunks())
        assert all(chunk.rows <= rows_max for chunk in chunks)
        numeric = np.concatenate([chunk.numeric for chunk in chunks])
        categorical = np.concatenate([chunk.categorical for chunk in chunks])
        assert numeric[:, 0].tolist() == [0.63, 0.1, 0.1, 0.67, 0.1]
        assert categorical.tolist() == [[1, 0], [0, 2], [3, 3], [2, 1], [1, 0]]
    assert table.units == table.rows == 5


@WRITERS
def test_units_are_distinct_values_and_missing_ones_are_one_unit(tmp_path: Path, write: Writer) -> None:
    table = SourceTable(write(tmp_path), DOMAIN, "id")
    assert table.units == 4  # p1, p2, p3, and the missing one
    (chunk,) = table.chunks()
    assert (chunk.rows, chunk.units) == (5, 4)
    ages: dict[int, list[float]] = {}
    for unit, age in zip(chunk.unit.tolist(), chunk.numeric[:, 0].tolist(), strict=True):
        ages.setdefault(unit, []).append(age)
    assert sorted(ages.values()) == [[0.1], [0.1], [0.63, 0.1], [0.67]]


@WRITERS
def test_an_unknown_column_is_named_before_rows_are_read(tmp_path: Path, write: Writer) -> None:
    source = write(tmp_path)
    domain = Domain(columns=(NumericColumn(name="weight", lower=0.0, upper=1.0),))
    with pytest.raises(DataError, match="no column 'weight'"):
        SourceTable(source, domain)
    with pytest.raises(DataError, match="no column 'patient'"):
        SourceTable(source, DOMAIN, "patient")


@pytest.mark.parametrize("unit_type", [pa.int64(), pa.string(), pa.float64()])
@pytest.mark.parametrize("part_bytes", [2_000, 50_000, 10**9])
def test_whole_units_in_one_chunk_however_many_passes(
    tmp_path: Path, unit_type: pa.DataType, part_bytes: int
) -> None:
    rng = np.random.default_rng(5)
    unit = np.append(rng.integers(0, 300, 2_000), np.full(400, 7))  # unit 7 is larger than a chunk
    value = rng.integers(0, 100, len(unit)).astype(float)
    table = pa.table(
        {"u": pa.array(unit).cast(pa.string() if unit_type == pa.string() else unit_type), "v": value}
    )
    pq.write_table(table, tmp_path / "t.parquet", row_group_size=500)
    domain = Domain(columns=(NumericColumn(name="v", lower=0.0, upper=100.0),))
    bounds = TableBounds(chunk_rows_max=64, part_bytes=part_bytes)
    source = SourceTable(open_source("t.parquet", None, tmp_path), domain, "u", bounds)
    sums, counts = [], 0
    for chunk in source.chunks():
        assert sorted(set(chunk.unit.tolist())) == list(range(chunk.units))
        assert chunk.rows <= 64 or chunk.units == 1
        sums += np.bincount(chunk.unit, weights=chunk.numeric[:, 0]).round(9).tolist()
        counts += chunk.units
    expected = [round(value[unit == u].sum() / 100, 9) for u in np.unique(unit)]
    assert counts == source.units == len(expected)
    assert sorted(sums) == sorted(expected)


def test_a_category_keeps_the_spelling_of_the_file_and_whole_floats_read_as_integers() -> None:
    assert text(pa.array([1, 20, None])).distinct == ["1", "20"]
    assert text(pa.array([1.0, 2.5, math.nan, 1e3])).distinct == ["1", "2.5", None, "1000"]
    assert text(pa.array([True, False])).distinct == ["true", "false"]


@given(st.lists(st.text(alphabet="+-.eE0123456789nNaAiIfF xX_,\t", max_size=8), min_size=1, max_size=4))
def test_a_number_reads_the_same_whatever_stands_beside_it(values: list[str]) -> None:
    together = numbers("x", pa.array([*values, "not a number"]))
    alone = [numbers("x", pa.array([value]))[0] for value in values]
    expected = [value if math.isfinite(value) else None for value in alone]
    assert [value if math.isfinite(value) else None for value in together[:-1].tolist()] == expected


def test_a_file_replaced_between_reads_is_noticed(tmp_path: Path) -> None:
    source = write_csv(tmp_path)
    table = SourceTable(source, DOMAIN)
    assert table.units == 5
    (tmp_path / "t.csv").write_text(HEADER + ROWS + "1,m,1,p9\n")
    with pytest.raises(DataError, match="changed"):
        list(table.chunks())


def test_dates_are_not_numbers() -> None:
    with pytest.raises(DataError, match="'born'"):
        numbers("born", pc.cast(pa.array([1, 2], pa.int32()), pa.date32()))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"age,sex,cp,id\n", "no rows"),
        (b"age,sex,cp,id,secret\xff\n1,m,1,1,1\n", "cannot be read"),
        (b"age,sex,cp,age\n1,m,1,2\n", "more than one column 'age'"),
        (None, "missing"),
    ],
)
def test_a_broken_file_is_an_error_that_quotes_nothing(
    tmp_path: Path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        list(SourceTable(open_source("t.csv", None, tmp_path), DOMAIN).chunks())
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_compressed_file_with_a_byte_order_mark_reads_as_the_plain_one(tmp_path: Path) -> None:
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress(b"\xef\xbb\xbf" + (HEADER + ROWS).encode()))
    ours, theirs = open_source("t.csv.gz", None, tmp_path), write_csv(tmp_path)
    (one,), (other,) = SourceTable(ours, DOMAIN).chunks(), SourceTable(theirs, DOMAIN).chunks()
    assert np.array_equal(one.numeric, other.numeric)
    assert np.array_equal(one.categorical, other.categorical)


def test_a_database_whose_rows_grew_between_reads_is_noticed(tmp_path: Path) -> None:
    table = SourceTable(write_sql(tmp_path), DOMAIN)
    assert table.units == 5
    with sqlite3.connect(tmp_path / "t.sqlite3") as connection:
        connection.execute("INSERT INTO t VALUES (1, 'm', '1', 'p9')")
    connection.close()
    with pytest.raises(DataError, match="changed"):
        list(table.chunks())


def test_a_quoted_line_break_is_part_of_its_value(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text('age,sex,cp,id\n1,"m\nm",1,"a,b"\n2,f,1,c\n')
    lines, records = (
        SourceTable(open_source("t.csv", None, tmp_path, quoted_line_breaks=said), DOMAIN)
        for said in (False, True)
    )
    (chunk,) = records.chunks()
    assert chunk.categorical[:, 0].tolist() == [2, 0]
    (chunk,) = lines.chunks()
    assert chunk.categorical[:, 0].tolist() == [3, 3, 0], (
        "a line is a row, unless it is said that quotes count"
    )


def leads_out_of_its_dictionary(path: Path) -> bool:
    """Whether pyarrow reads the file and hands out places that its dictionary has not."""
    try:
        parts = [batch.column(0) for batch in pq.ParquetFile(path, read_dictionary=["sex"]).iter_batches()]
    except (OSError, KeyError, UnicodeDecodeError, pa.ArrowException):
        return False
    return any(pc.max(part.indices).as_py() >= len(part.dictionary) for part in parts)


def is_refused(path: Path) -> bool:
    try:
        for batch in ParquetSource(path).batches(Columns(text=("sex",)), 100):
            found = batch.column(0)
            assert pc.max(found.indices).as_py() < len(found.dictionary)
    except DataError:
        return True
    return False


def test_a_damaged_page_that_leads_out_of_its_dictionary_is_refused(tmp_path: Path) -> None:
    """Every byte set to 255 in turn: some of the files pyarrow reads, and hands out places that are none."""
    content = io.BytesIO()
    pq.write_table(pa.table({"sex": ["f"] * 300}), content)
    path, lead_out, refused = tmp_path / "rows.parquet", set(), set()
    for position in range(len(content.getvalue())):
        damaged = bytearray(content.getvalue())
        damaged[position] = 255
        path.write_bytes(bytes(damaged))
        if leads_out_of_its_dictionary(path):
            lead_out.add(position)
        if is_refused(path):
            refused.add(position)
    assert lead_out
    assert lead_out <= refused
    assert len(refused) < len(content.getvalue()), "what does no harm is read"


def test_the_same_items_in_the_same_order() -> None:
    assert list(read_ahead(item for item in range(100))) == list(range(100))
    assert list(read_ahead(item for item in ())) == []


def test_leaving_early_cleans_up_in_the_reading_thread() -> None:
    threads = []

    def watched() -> Generator[int, None, None]:
        try:
            for item in range(100):
                threads.append(threading.get_ident())
                yield item
        finally:
            threads.append(threading.get_ident())

    ahead = read_ahead(watched())
    assert next(ahead) == 0
    ahead.close()
    assert len(threads) <= 3  # the item taken, at most one more, and the clean-up
    assert set(threads) == {threads[0]}
    assert threads[0] != threading.get_ident()


QUERY = {"source": "sqlite:///t.sqlite3", "query": "SELECT x FROM t"}


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (QUERY | {"partition_column": "x"}, "need each other"),
        (QUERY | {"partition_bounds": [1]}, "need each other"),
        (QUERY | {"partition_column": "x", "partition_bounds": []}, "need each other"),
        (QUERY | {"partition_column": "x", "partition_bounds": [2, 1]}, "must increase"),
        (QUERY | {"partition_column": "x", "partition_bounds": [1, 1]}, "must increase"),
        (QUERY | {"partition_column": "x", "partition_bounds": [1.5]}, "integer"),
        (QUERY | {"partition_column": "x", "partition_bounds": ["1; DROP TABLE t"]}, "integer"),
        (QUERY | {"partition_column": "x", "partition_bounds": list(range(1001))}, "1000"),
        ({"source": "a.csv", "partition_column": "x", "partition_bounds": [1]}, "database sources"),
    ],
)
def test_ranges_that_cannot_be_are_refused(written: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        SourceSettings.model_validate(written)


def test_agents_and_curators_read_a_query_in_the_parts_that_are_declared(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "t.sqlite3") as connection:
        connection.execute("CREATE TABLE t (x)")
        connection.executemany("INSERT INTO t VALUES (?)", [(i,) for i in range(100)])
    connection.close()
    written = QUERY | {"name": "t", "folder": tmp_path, "partition_column": "x", "partition_bounds": [30, 60]}
    agent = DataSetSettings.model_validate(written | {"epsilon": 1.0, "delta": 0.0})
    curator = ConfiguredDataSet.model_validate(written | {"owner": "north"})
    for settings in (agent, curator):
        source = settings.open()
        assert isinstance(source, Splits)
        assert [part.rows() for part in source.split(3)] == [30, 30, 40]
