"""Files of Parquet and folders of them: every row once, in order, in parts too, or a silent error."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit_protocol.arrow_columns import numbers, text
from tacit_protocol.domain import CategoricalColumn, DataError, Domain, NumericColumn
from tacit_services.agent.data import parquet_source as parquet_folder
from tacit_services.agent.data.opening import open_source
from tacit_services.agent.data.parquet_source import ParquetFolder, ParquetSource, balanced_runs
from tacit_services.agent.data.source import Columns, Source, Splits
from tacit_services.agent.data.table import SourceTable
from tacit_services.curator.store import RowStore, StorageKeys

CANARY = "Xc4nary7"
AGES = Columns(numbers=("age",))
ALL = Columns(("age", "year"), ("sex", "site"))


def write(folder: Path, where: str, table: pa.Table, **options: int) -> Path:
    path = folder / where
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, **options)
    return path


def visits(first: int, rows: int, **columns: pa.Array) -> pa.Table:
    sexes = pa.array(["f" if i % 3 else None for i in range(first, first + rows)], pa.string())
    return pa.table({"age": pa.array(range(first, first + rows), pa.int64()), "sex": sexes, **columns})


def folder_of_visits(folder: Path) -> Path:
    """A folder whose rows have the ages 0 to 99, in the order of its paths."""
    data = folder / "visits"
    write(data, "year=2023/site=A%2FB/0.parquet", visits(0, 30), row_group_size=7)
    write(data, "year=2023/site=A%2FB/1.parquet", visits(0, 0))
    dictionaries = visits(30, 20)
    dictionaries = dictionaries.set_column(1, "sex", dictionaries["sex"].dictionary_encode())
    write(data, "year=2024/site=__HIVE_DEFAULT_PARTITION__/a.parquet", dictionaries)
    write(data, "year=2024/site=caf%C3%A9/a.parquet", visits(50, 50), row_group_size=20)
    (data / "_SUCCESS").write_text("")
    (data / ".part.crc").write_text("")
    (data / "_old" / "year=1").mkdir(parents=True)
    return data


def values(source: Source, columns: Columns, rows_max: int = 8) -> dict[str, list[object]]:
    found: dict[str, list[object]] = {name: [] for name in columns.names}
    for batch in source.batches(columns, rows_max):
        assert batch.num_rows <= rows_max
        assert batch.schema.names == list(columns.names)
        for name in columns.numbers:
            found[name] += numbers(name, batch.column(name)).tolist()
        for name in columns.text:
            read = text(batch.column(name))
            found[name] += [read.distinct[place] if place >= 0 else None for place in read.indices]
    return found


def expected() -> dict[str, list[object]]:
    return {
        "age": [float(i) for i in range(100)],
        "year": [2023.0] * 30 + [2024.0] * 70,
        "sex": ["f" if i % 3 else None for i in range(100)],
        "site": ["A/B"] * 30 + [None] * 20 + ["café"] * 50,
    }


def refused(action: Callable[[], object]) -> str:
    with pytest.raises(DataError) as caught:
        action()
    assert CANARY not in str(caught.value)
    assert caught.value.__cause__ is None
    return str(caught.value)


@pytest.mark.parametrize("name", ["visits", "visits/"])
def test_files_and_the_names_of_their_folders_are_one_table(tmp_path: Path, name: str) -> None:
    folder_of_visits(tmp_path)
    source = open_source(name, None, tmp_path)
    assert source.column_names() == ("age", "sex", "year", "site")
    assert source.rows() == 100
    assert values(source, ALL) == expected()
    only_keys = Columns(text=("site",))
    assert values(source, only_keys) == {"site": expected()["site"]}
    assert sum(batch.num_rows for batch in source.batches(Columns(), 8)) == 100


@pytest.mark.parametrize("parts", [1, 2, 3, 5, 100])
def test_parts_hold_every_row_once_in_order_and_stand_alone(
    tmp_path: Path, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of_visits(tmp_path)
    monkeypatch.chdir(tmp_path)
    source = ParquetFolder(Path("visits"))
    assert isinstance(source, Splits)
    cut = source.split(parts)
    assert len(cut) <= parts
    assert len(cut) >= min(parts, 4)
    sent = [pickle.dumps(part) for part in cut]
    monkeypatch.chdir("/")
    joined: dict[str, list[object]] = {name: [] for name in ALL.names}
    for part in map(pickle.loads, sent):
        read = values(part, ALL)
        assert part.rows() == len(read["age"]) > 0
        assert part.fingerprint() == source.fingerprint()
        assert part.column_names() == source.column_names()
        for name, found in read.items():
            joined[name] += found
    assert joined == expected()


@pytest.mark.parametrize(
    "change",
    [
        lambda data: write(data, "year=2023/site=A%2FB/2.parquet", visits(0, 1)),
        lambda data: (data / "year=2023/site=A%2FB/1.parquet").unlink(),
        lambda data: write(data, "year=2023/site=A%2FB/0.parquet", visits(7, 30), row_group_size=7),
        lambda data: (data / "year=2023/site=A%2FB").rename(data / "year=2023/site=C"),
        lambda data: os.replace(
            write(data.parent, "n.parquet", visits(50, 50)), data / "year=2024/site=caf%C3%A9/a.parquet"
        ),
    ],
    ids=["added", "removed", "written over", "renamed folder", "replaced"],
)
def test_a_change_between_passes_is_noticed(tmp_path: Path, change: Callable[[Path], object]) -> None:
    data = folder_of_visits(tmp_path)
    domain = Domain(columns=(NumericColumn(name="age", lower=0, upper=100),))
    table = SourceTable(ParquetFolder(data), domain)
    assert table.units == 100
    change(data)
    assert "changed" in refused(lambda: list(table.chunks()))


def test_a_part_whose_file_was_replaced_is_refused_and_others_are_read(tmp_path: Path) -> None:
    source = ParquetFolder(folder_of_visits(tmp_path))
    first, second = source.split(2)
    whole = source.fingerprint()
    write(tmp_path, "visits/year=2023/site=A%2FB/0.parquet", visits(7, 30), row_group_size=7)
    assert "replaced" in refused(lambda: list(first.batches(AGES, 8)))
    assert first.fingerprint() != whole
    assert second.fingerprint() == whole
    assert len(values(second, AGES)["age"]) == second.rows()


def odd_folder(tmp_path: Path, table: pa.Table) -> Source:
    """Ten files under a key whose value is a person's, one of them odd."""
    for number in range(9):
        name = "odd" if number == 6 else f"{number}"
        write(tmp_path, f"t/patient={CANARY}{name}/0.parquet", table if number == 6 else visits(0, 3))
    return ParquetFolder(tmp_path / "t")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (visits(0, 3).drop_columns(["age"]), "no column 'age'"),
        (pa.table({"age": ["1"], "sex": ["f"]}), "column 'age' has different types"),
        (pa.Table.from_arrays([[1], [2]], names=["age", "age"]), "more than one column 'age'"),
    ],
    ids=["lacking", "text", "twice"],
)
@pytest.mark.parametrize("in_parts", [False, True])
def test_files_that_differ_in_a_used_column_are_refused_before_a_row_is_read(
    tmp_path: Path, table: pa.Table, message: str, in_parts: bool
) -> None:
    source = odd_folder(tmp_path, table)
    read = source.split(4)[0] if in_parts and isinstance(source, Splits) else source
    assert message in refused(lambda: next(iter(read.batches(AGES, 8))))


def test_files_may_differ_in_columns_that_are_not_used_and_in_how_they_store_the_same(tmp_path: Path) -> None:
    odd = pa.table(
        {"more": [1], "sex": pa.nulls(1), "age": pa.array([5], pa.int8())},
    )
    source = odd_folder(tmp_path, odd)
    read = values(source, Columns(("age",), ("sex", "patient")))
    assert (read["age"].count(5.0), read["sex"].count(None)) == (1, 8 + 1)
    assert read["patient"].count(f"{CANARY}odd") == 1


def test_a_key_that_is_a_column_of_the_files_too_is_refused_where_it_is_used(tmp_path: Path) -> None:
    write(tmp_path, "t/sex=f/0.parquet", visits(0, 3))
    source = ParquetFolder(tmp_path / "t")
    assert "'sex'" in refused(lambda: list(source.batches(Columns(text=("sex",)), 8)))
    assert values(source, AGES)["age"] == [0, 1, 2]
    domain = Domain(columns=(CategoricalColumn(name="sex", levels=("f",)),))
    assert "more than one column 'sex'" in refused(lambda: SourceTable(source, domain))


def add(where: str, content: str = "") -> Callable[[Path], object]:
    def make(data: Path) -> None:
        (data / where).parent.mkdir(parents=True, exist_ok=True)
        (data / where).write_text(content)

    return make


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (add(f"year=1/site=A/{CANARY}.csv"), "no .parquet file: remove it"),
        (add(f"{CANARY}/0.parquet"), "not named key=value"),
        (add("=1/0.parquet"), "not named key=value"),
        (add("%FF=1/site=A/0.parquet"), "not named key=value"),
        (add("year=1/0.parquet"), "the same keys"),
        (add("site=A/year=1/0.parquet"), "the same keys"),
        (add("year=1/year=1/0.parquet"), "the same keys"),
        (lambda data: (data / "year=2024" / "site=loop").symlink_to(data), "links are not followed"),
        (lambda data: (data / "year=2025").symlink_to(data / "year=2024"), "links are not followed"),
        (
            lambda data: (data / "year=2024/site=caf%C3%A9/b.parquet").hardlink_to(
                data / "year=2024/site=caf%C3%A9/a.parquet"
            ),
            "twice",
        ),
        (lambda data: (data / "year=2024/site=caf%C3%A9/b.parquet").symlink_to(CANARY), "links are"),
        (lambda data: os.mkfifo(data / "year=2024/site=caf%C3%A9/b.parquet"), "a pipe, a device or a socket"),
        (lambda data: os.mkfifo(data / "year=2025"), "a pipe, a device or a socket"),
    ],
    ids=[
        "another file", "a plain folder", "no key", "no UTF-8", "fewer keys", "other order", "a key twice",
        "a loop", "a folder linked", "a hard link", "a dangling link", "a pipe", "a pipe for a folder",
    ],
)  # fmt: skip
def test_what_cannot_be_told_from_data_is_refused(
    tmp_path: Path, make: Callable[[Path], object], message: str
) -> None:
    data = folder_of_visits(tmp_path)
    make(data)
    assert message in refused(ParquetFolder(data).fingerprint)


def test_an_empty_or_absent_folder_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "t" / "year=1").mkdir(parents=True)
    assert "no .parquet file" in refused(lambda: open_source("t/", None, tmp_path).column_names())
    assert "missing" in refused(lambda: open_source("absent/", None, tmp_path).column_names())
    assert "is it there" in refused(lambda: open_source("absent", None, tmp_path))
    write(tmp_path, "empty/0.parquet", visits(0, 0))
    source = ParquetFolder(tmp_path / "empty")
    domain = Domain(columns=(NumericColumn(name="age", lower=0, upper=1),))
    assert source.split(3) == []
    assert "no rows" in refused(lambda: SourceTable(source, domain).units)


def test_bounds_on_files_and_depth_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = folder_of_visits(tmp_path)
    monkeypatch.setattr(parquet_folder, "FILES_MAX", 3)
    assert "files: write fewer" in refused(ParquetFolder(data).rows)
    deep = tmp_path / "deep" / "/".join(f"k{i}=1" for i in range(40))
    deep.mkdir(parents=True)
    assert "deep" in refused(ParquetFolder(tmp_path / "deep").rows)


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
