"""Parts of a Parquet file: every row once, in order, and no byte of what is not used is read."""

import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit_services.agent.data.parquet_source import ParquetSource, balanced_runs
from tacit_services.agent.data.source import Columns, DataError, Splits
from tacit_services.curator.store import RowStore, StorageKeys

NUMBERS = Columns(numbers=("x",))


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(-1, 12))
def test_runs_hold_every_item_of_some_size_once_and_are_about_equal(sizes: list[int], parts: int) -> None:
    runs = balanced_runs(sizes, parts)
    assert len(runs) <= max(1, parts)
    ends = [0] + [end for _, end in runs]
    for (start, end), before in zip(runs, ends, strict=False):
        assert start < end
        assert sum(sizes[before:start]) == 0, "what is left out is empty"
        # Items belong where their middle falls: a run exceeds its share by less than one item.
        assert 0 < sum(sizes[start:end]) <= sum(sizes) / max(1, parts) + max(sizes)
    assert sum(sizes[ends[-1] :]) == 0


def rows_of(source: ParquetSource, rows_max: int = 64) -> list[object]:
    return [value for batch in source.batches(NUMBERS, rows_max) for value in batch.column("x").to_pylist()]


@pytest.mark.parametrize("parts", [1, 3, 50])
def test_parts_of_a_file_hold_every_row_once_in_order(
    tmp_path: Path, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [None if i % 7 == 0 else i for i in range(1003)]
    pq.write_table(pa.table({"x": values, "s": ["a"] * 1003}), tmp_path / "t.parquet", row_group_size=100)
    monkeypatch.chdir(tmp_path)
    source = ParquetSource(Path("t.parquet"))
    assert isinstance(source, Splits)
    cut = [pickle.dumps(part) for part in source.split(parts)]
    assert len(cut) == min(parts, 11)
    monkeypatch.chdir("/")
    read = list(map(pickle.loads, cut))
    assert [value for part in read for value in rows_of(part)] == values
    assert [part.rows() for part in read] == [len(rows_of(part)) for part in read]
    again = [part for half in read for part in half.split(2)]
    assert [value for part in again for value in rows_of(part)] == values


def test_a_part_reads_no_byte_of_the_other_parts(tmp_path: Path) -> None:
    """Everything but one row group and the footer is overwritten: that part is read all the same."""
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": np.arange(1000.0)}), path, row_group_size=100)
    (*_, part) = ParquetSource(path).split(10)
    metadata = pq.read_metadata(path)
    start = metadata.row_group(9).column(0).dictionary_page_offset
    data = path.read_bytes()
    path.write_bytes(b"PAR1" + bytes(start - 4) + data[start:])
    assert rows_of(part) == list(map(float, range(900, 1000)))
    with pytest.raises(DataError):
        rows_of(ParquetSource(path))


def test_a_part_of_a_file_that_was_replaced_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"x": np.arange(1000.0)}), path, row_group_size=100)
    parts = ParquetSource(path).split(5)
    pq.write_table(pa.table({"x": np.arange(300.0)}), path, row_group_size=100)
    for part in parts[2:]:
        with pytest.raises(DataError, match="replaced"):
            rows_of(part)


def test_parts_of_encrypted_rows_are_decrypted_wherever_they_are_read(tmp_path: Path) -> None:
    store = RowStore(tmp_path / "rows", StorageKeys.parse("ab" * 32))
    store.folder.mkdir()
    table = pa.table({"x": np.arange(50_000.0)})
    writer = store.writer("north/heart", table.schema)
    writer._group_rows = 10_000
    for batch in table.to_batches(max_chunksize=10_000):
        writer.write(batch)
    writer.finish()
    source = store.source(writer.stored)
    parts = list(map(pickle.loads, map(pickle.dumps, source.split(3))))
    assert len(parts) == 3
    assert [value for part in parts for value in rows_of(part, 65_536)] == list(range(50_000))
    assert {part.fingerprint() for part in parts} == {source.fingerprint()}
