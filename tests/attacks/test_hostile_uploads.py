"""Uploads that are out to break a curator: refused, or taken within a memory limit, and it serves on."""

import dataclasses
import io
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from curator_process import CuratorProcess, prepare
from curator_world import COLUMNS, ROWS, CuratorWorld
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from long_runs import choose
from served import problem

from tacit_services.curator import parquet_upload, uploads
from tacit_services.curator.incoming import Encoded, RowShape
from tacit_services.curator.parquet_upload import Spool
from tacit_services.curator.uploads import CSV, PARQUET

GROWTH_BYTES_MAX = 400 * 10**6
"""Memory that any upload may take: twice what an honest one may, since a page is decompressed whole."""

CANARY = "Xc4nary7"


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream, **options)
    return stream.getvalue()


def repeated(text: str, rows: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, dtype=np.int32)), pa.array([text]))


def zeros(rows: int, **options: Any) -> bytes:
    columns = {"patient": np.zeros(rows, np.int64), "age": np.zeros(rows), "sex": repeated("f", rows)}
    return parquet(columns, compression="zstd", row_group_size=rows, **options)


def understated(rows: int) -> bytes:
    """A page of so many zeros, of whose size the footer says little."""
    options = {"use_dictionary": ["sex"], "data_page_size": 2**31 - 1, "max_rows_per_page": 2**31 - 1}
    columns = {"patient": np.zeros(rows, np.int8), "age": np.zeros(rows), "sex": repeated("f", rows)}
    content = parquet(columns, compression="zstd", row_group_size=rows, **options)
    group = pq.read_metadata(io.BytesIO(content)).row_group(0)
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    footer = content[start:]
    for index in range(3):
        size = group.column(index).total_uncompressed_size
        if size > 1000:
            footer = footer.replace(varint(size), varint(1000, len(varint(size))))
    return content[:start] + footer


def varint(number: int, length: int = 0) -> bytes:
    """A footer's whole number, lengthened to so many bytes."""
    left, groups = 2 * number, []
    while left or not groups or len(groups) < length:
        groups.append(left & 127)
        left >>= 7
    return bytes([*(group | 128 for group in groups[:-1]), groups[-1]])


def long_texts(length: int, rows: int, **options: Any) -> bytes:
    text = repeated("x" * length, rows)
    return parquet({"patient": text, "age": np.ones(rows), "sex": text}, compression="zstd", **options)


def many_row_groups(groups: int) -> bytes:
    columns = {"patient": np.arange(groups), "age": np.ones(groups), "sex": ["f"] * groups}
    return parquet(columns, row_group_size=1)


def many_columns() -> bytes:
    extra = {f"c{index}": [1.0] for index in range(20_000)}
    return parquet({"patient": [1], "age": [1.0], "sex": ["f"], **extra})


BOMBS: dict[str, Callable[[], bytes]] = {
    "20 million zeros": lambda: zeros(20_000_000),
    "20 million zeros in one page": lambda: zeros(20_000_000, use_dictionary=False, data_page_size=2**30),
    "100 million zeros in one page": lambda: zeros(100_000_000, use_dictionary=False, data_page_size=2**30),
    "a text of 5 MB in every row": lambda: long_texts(5 * 10**6, 100_000),
    "the same, plain": lambda: long_texts(5 * 10**6, 100_000, store_schema=False),
    "a page of 1.2 GB that is said to have 1 kB": lambda: understated(150_000_000),
    "texts of 100 MB": lambda: long_texts(10**8, 1000),
    "as many row groups as are taken": lambda: many_row_groups(10_000),
    "more row groups": lambda: many_row_groups(50_000),
    "many columns": many_columns,
}
REFUSED_BOMBS = {
    "a page of 1.2 GB that is said to have 1 kB",
    "100 million zeros in one page",
    "texts of 100 MB",
    "more row groups",
}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", BOMBS)
def test_parquet_bombs_are_refused_or_taken_within_the_memory_limit(tmp_path: Path, name: str) -> None:
    world = prepare(tmp_path)
    bomb = BOMBS[name]()
    assert len(bomb) < 40 * 10**6
    with CuratorProcess(tmp_path, world) as curator:
        assert curator.upload(ROWS).status_code == 201
        before, files = curator.peak_bytes(), curator.files()
        answer = curator.upload(bomb, PARQUET)
        assert curator.peak_bytes() - before < GROWTH_BYTES_MAX
        if name in REFUSED_BOMBS:
            assert problem(answer) == "upload-refused"
            assert curator.files() == files
        else:
            assert answer.status_code == 200, answer.text
        assert curator.upload(ROWS).status_code == 200


def lines_of_text() -> Iterator[bytes]:
    yield b"patient,age,sex\n"
    for index in range(150):
        yield f'{index},1,"{"y" * 10**6}"\n'.encode()


def test_huge_values_in_a_csv_are_taken_within_the_memory_limit(tmp_path: Path) -> None:
    world = prepare(tmp_path)
    with CuratorProcess(tmp_path, world) as curator:
        assert curator.upload(ROWS).status_code == 201
        before = curator.peak_bytes()
        answer = curator.upload(lines_of_text())
        assert (answer.status_code, answer.json()["rows"]) == (200, 150)
        assert curator.peak_bytes() - before < GROWTH_BYTES_MAX
        assert sum(path.stat().st_size for path in (tmp_path / "rows").iterdir()) < 10**5


# Damage.


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CuratorWorld]:
    folder = tmp_path_factory.mktemp("hostile")
    world = CuratorWorld(folder, f"sqlite:///{folder / 'c.sqlite3'}")
    assert world.register().status_code == 201
    assert world.upload().status_code == 201
    yield world
    world.close()


def small_parquet() -> bytes:
    draw = np.random.default_rng(0)
    columns = {
        "patient": draw.integers(0, 50, 300),
        "age": draw.normal(50, 20, 300),
        "sex": [CANARY] * 300,
    }
    return parquet(columns, row_group_size=100)


SMALL = small_parquet()


def require_refused_or_taken(world: CuratorWorld, content: bytes, media_type: str) -> None:
    files = world.files()
    answer = world.upload(content, media_type)
    assert CANARY not in answer.text
    if answer.status_code == 200:
        assert len(world.files()) == 1
        assert world.held().rows is not None
    else:
        assert (answer.status_code, problem(answer)) == (422, "upload-refused"), answer.text
        assert world.files() == files


def decoded_here(
    spool: Spool, shape: RowShape, rows_max: int, go_on: Callable[[], None]
) -> Iterator[Encoded]:
    """What the process does that decodes, in a thread: a process for each of many files takes a second."""
    handle = dataclasses.replace(spool.handle, descriptor=os.dup(spool.handle.descriptor))
    task = parquet_upload._Task(handle, shape.columns, shape.unit_column, rows_max)
    received, sent = os.pipe()

    def send() -> None:
        with suppress(BrokenPipeError), open(sent, "wb") as stream:
            parquet_upload.send(task, stream)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        with open(received, "rb") as stream:
            yield from parquet_upload._received(stream, shape, rows_max, go_on)
    finally:
        thread.join()


@pytest.mark.long
@settings(
    max_examples=choose(150, 3000), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(
    changes=st.lists(st.tuples(st.integers(0, len(SMALL) - 1), st.integers(0, 255)), min_size=1, max_size=8),
    cut=st.one_of(st.none(), st.integers(0, len(SMALL))),
)
def test_damaged_parquet_is_refused_or_taken_and_never_a_fault(
    world: CuratorWorld, changes: list[tuple[int, int]], cut: int | None
) -> None:
    content = bytearray(SMALL)
    for position, value in changes:
        content[position] = value
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uploads, "decoded", decoded_here)
        require_refused_or_taken(world, bytes(content[:cut]), PARQUET)


@settings(
    max_examples=choose(150, 3000), deadline=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
@given(
    rows=st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from(
                [b"1,2,f", b'"1",2,"f"', b"1,2", b",,", b'"', b"\x00,1,\xff", b"1,nan,NA", b"\r"]
            ),
        ),
        max_size=12,
    ),
    end=st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_any_bytes_as_csv_are_refused_or_taken_and_never_a_fault(
    world: CuratorWorld, rows: list[bytes], end: bytes
) -> None:
    require_refused_or_taken(world, b"patient,age,sex\n" + end.join(rows), CSV)


def test_formulas_paths_and_markup_are_values_like_any_other(world: CuratorWorld) -> None:
    odd = ["=cmd()", "../../etc/passwd", "<script>", "'; DROP TABLE x; --", "\u202e", "x" * 1000]
    lines = [f'"{text}",1,"{text}"' for text in odd]
    answer = world.upload(("patient,age,sex\n" + "\n".join(lines) + "\n").encode())
    assert (answer.json()["rows"], answer.json()["units"]) == (len(odd), len(odd))


@pytest.mark.parametrize("name", ["a/b", "..", "%2e%2e", "a%2fb", "A", "a" * 64, "rows"])
def test_names_never_become_paths(world: CuratorWorld, name: str) -> None:
    north = world.owners["north"]
    body = {
        "columns": COLUMNS,
        "epsilon": 1.0,
        "delta": 0.0,
        "policy": {"epsilon_per_study_max": 1.0, "delta_per_study_max": 0.0, "analysts": ["*"]},
    }
    registered = world.call("PUT", f"/v1/data-sets/north/{name}", north, json=body)
    if registered.status_code == 201:
        assert name == "rows"
        assert world.upload(name=name, content=b"age,sex\n1,f\n").status_code == 201
    assert all(path.suffix == ".rows" or path.name in {"lock", "id"} for path in world.folder.iterdir())
