"""Rows at rest: encrypted, bound to their place, and refused wherever a byte was changed."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit_services.agent.data.source import Columns, DataError
from tacit_services.curator.parquet_upload import BLOCK_BYTES, TAG_BYTES, Spool
from tacit_services.curator.store import RowStore, StorageKeyError, StorageKeys, StoredRows
from tacit_services.shared.settings import SettingsError

OLD, NEW = "0a" * 32, "0b" * 32
CANARY = b"Xc4nary7"
TABLE = pa.table(
    {
        "x": np.random.default_rng(0).normal(size=5000),
        "c": pa.array([CANARY.decode() if i % 3 else "b" for i in range(5000)]).dictionary_encode(),
    }
)


def make_store(folder: Path, keys: str = OLD) -> RowStore:
    folder.mkdir(exist_ok=True)
    return RowStore(folder, StorageKeys.parse(keys))


def put(store: RowStore, account: str = "north/patients", table: pa.Table = TABLE) -> StoredRows:
    writer = store.writer(account, table.schema)
    for batch in table.to_batches(max_chunksize=700):
        writer.write(batch)
    writer.finish()
    return writer.stored


def read(store: RowStore, stored: StoredRows) -> pa.Table:
    batches = store.source(stored).batches(Columns(("x",), ("c",)), 1000)
    return pa.Table.from_batches(list(batches))


def path_of(folder: Path, stored: StoredRows) -> Path:
    return folder / f"{stored.file}.rows"


def test_nothing_readable_is_on_the_disk(tmp_path: Path) -> None:
    stored = put(make_store(tmp_path))
    data = path_of(tmp_path, stored).read_bytes()
    assert CANARY not in data
    assert b"north" not in data
    pq.write_table(TABLE, tmp_path / "plain.parquet")
    assert CANARY in (tmp_path / "plain.parquet").read_bytes(), "the search must be able to find it"
    assert path_of(tmp_path, stored).stat().st_mode & 0o077 == 0


def flip(position: Callable[[int], int]) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[position(len(data))] ^= 1
        return bytes(changed)

    return change


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "cut short": lambda data: data[:-1000],
    "a piece taken out": lambda data: data[:1000] + data[1100:],
    "bytes added": lambda data: data + b"PARE",
    "emptied": lambda _: b"",
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_changed_file_is_refused(tmp_path: Path, name: str) -> None:
    store = make_store(tmp_path)
    stored = put(store)
    path = path_of(tmp_path, stored)
    path.write_bytes(DAMAGE[name](path.read_bytes()))
    with pytest.raises(DataError) as refused:
        read(store, stored)
    assert CANARY.decode() not in str(refused.value)
    assert str(tmp_path) not in str(refused.value)


def test_every_byte_of_a_small_file_is_protected(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    stored = put(store, table=TABLE.slice(0, 20))
    path = path_of(tmp_path, stored)
    data = path.read_bytes()
    for position in range(len(data)):
        path.write_bytes(flip(lambda _, position=position: position)(data))  # type: ignore[misc]
        try:
            table = read(store, stored)
        except DataError:
            continue
        assert table.equals(read_unchanged(store, stored, path, data)), f"byte {position}"


def read_unchanged(store: RowStore, stored: StoredRows, path: Path, data: bytes) -> pa.Table:
    path.write_bytes(data)
    return read(store, stored)


def test_a_file_put_in_anothers_place_is_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    ours, theirs, older = put(store), put(store, "south/patients"), put(store)
    for other in (theirs, older):
        path_of(tmp_path, ours).write_bytes(path_of(tmp_path, other).read_bytes())
        with pytest.raises(DataError):
            read(store, ours)
        with pytest.raises(DataError, match="data key was changed"):
            store.source(StoredRows(ours.account, ours.file, other.wrapped_key))
    # Even with key and name moved together, the account that they are for stays theirs.
    with pytest.raises(DataError, match="data key was changed"):
        store.source(StoredRows(ours.account, theirs.file, theirs.wrapped_key))


def test_a_plain_file_in_its_place_is_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    stored = put(store)
    pq.write_table(TABLE, path_of(tmp_path, stored))
    with pytest.raises(DataError):
        read(store, stored)


def test_another_storage_key_says_so_and_a_list_of_keys_reads_all(tmp_path: Path) -> None:
    stored = put(make_store(tmp_path, OLD))
    with pytest.raises(DataError, match="another storage key"):
        make_store(tmp_path, NEW).source(stored)
    both = make_store(tmp_path, f"{NEW}\n{OLD}\n")
    assert read(both, stored).num_rows == 5000
    rewrapped = both.rewrapped(stored)
    assert rewrapped is not None
    fresh = StoredRows(stored.account, stored.file, rewrapped)
    assert both.rewrapped(fresh) is None
    assert read(make_store(tmp_path, NEW), fresh).num_rows == 5000


@pytest.mark.parametrize("text", ["", "0a", "0a" * 31, "zz" * 32, "0a" * 32 + " x"])
def test_malformed_storage_keys_are_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(StorageKeyError) as refused:
        StorageKeys.parse(text)
    assert "zz" not in str(refused.value)


def test_data_keys_are_never_used_twice(tmp_path: Path) -> None:
    store, keys = make_store(tmp_path), StorageKeys.parse(OLD)
    seen = set()
    for _ in range(20):
        stored = put(store, table=TABLE.slice(0, 1))
        seen.add(
            keys.unwrap(stored.wrapped_key, f"tacit/curator/rows/1\0{stored.account}\0{stored.file}".encode())
        )
    assert len(seen) == 20


def test_one_process_has_the_folder(tmp_path: Path) -> None:
    first, second = make_store(tmp_path), make_store(tmp_path)
    first.acquire()
    with pytest.raises(SettingsError, match="another curator"):
        second.acquire()
    first.release()
    second.acquire()
    second.release()


def test_a_folder_belongs_to_one_database(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    store.bind("a" * 32)
    store.bind("a" * 32)
    stored = put(store)
    with pytest.raises(SettingsError, match="another database"):
        store.bind("b" * 32)
    (tmp_path / "id").unlink()
    with pytest.raises(SettingsError, match="does not say"):
        store.bind("a" * 32)
    assert path_of(tmp_path, stored).exists()


def test_the_sweep_keeps_what_is_named(tmp_path: Path) -> None:
    store = make_store(tmp_path)
    kept, debris = put(store), put(store)
    (tmp_path / "spool-x").touch()
    assert store.sweep([kept.file]) == 2
    assert path_of(tmp_path, kept).exists()
    assert not path_of(tmp_path, debris).exists()


# The spool.


def test_a_spool_reads_back_from_anywhere(tmp_path: Path) -> None:
    data = np.random.default_rng(1).bytes(3 * BLOCK_BYTES + 17)
    with Spool(tmp_path) as spool:
        for start in range(0, len(data), 10_007):
            spool.append(data[start : start + 10_007])
        spool.seal()
        assert spool.size_bytes == len(data)
        for start, size in [
            (0, 10),
            (BLOCK_BYTES - 3, 6),
            (5, 2 * BLOCK_BYTES),
            (len(data) - 4, 100),
            (0, -1),
        ]:
            spool.seek(start)
            assert spool.read(size) == data[start : len(data) if size < 0 else start + size]
        assert spool.seek(-4, 2) == len(data) - 4
        assert spool.read(100) == data[-4:]


def test_a_spool_has_no_name_and_nothing_readable(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        spool.append(CANARY * 100_000)
        spool.seal()
        assert list(tmp_path.iterdir()) == []
        on_disk = Path(f"/proc/self/fd/{spool._file.fileno()}").read_bytes()
        assert len(on_disk) > len(CANARY) * 100_000
        assert CANARY not in on_disk


def test_a_spool_that_was_changed_on_disk_is_refused(tmp_path: Path) -> None:
    with Spool(tmp_path) as spool:
        spool.append(bytes(3 * BLOCK_BYTES))
        spool.seal()
        spool._file.seek(BLOCK_BYTES + TAG_BYTES + 5)
        spool._file.write(b"x")
        spool.seek(0)
        assert spool.read(BLOCK_BYTES) == bytes(BLOCK_BYTES)
        with pytest.raises(OSError, match="changed on disk"):
            spool.read(1)
