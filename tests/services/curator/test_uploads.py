"""Uploads to a curator: parsed as they come, whole or not at all, in a process that may be killed."""

import asyncio
import io
import resource
import signal
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from curator_process import PATH, CuratorProcess, load, prepare
from curator_world import COLUMNS, ROWS, CuratorWorld
from long_runs import choose
from own_time import require_a_stop_in_time, stop
from served import problem

from tacit_protocol.domain import Domain
from tacit_protocol.signing import PrivateKey
from tacit_services.agent.data.csv_source import CsvSource
from tacit_services.agent.data.source import Columns
from tacit_services.agent.data.table import SourceTable
from tacit_services.curator import uploads
from tacit_services.curator.uploads import CSV, PARQUET
from tacit_services.shared.database import DatabaseUnavailableError
from tacit_services.shared.failpoints import StorageStep

CANARY = "Xc4nary7"


def parquet(table: pa.Table, **options: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream, **options)
    return stream.getvalue()


def stored_rows(world: CuratorWorld) -> list[dict[str, Any]]:
    wanted = Columns(("age",), ("sex", "patient"))
    rows: list[dict[str, Any]] = []
    for batch in world.held().source().batches(wanted, 1000):
        rows += batch.to_pylist()
    return rows


def random_csv(rows: int, seed: int = 0) -> bytes:
    draw = np.random.default_rng(seed)
    lines = [
        f"{unit},{age:.3f},{'fmx'[sex]}"
        for unit, age, sex in zip(
            draw.integers(0, rows // 2, rows),
            draw.normal(50, 30, rows),
            draw.integers(0, 3, rows),
            strict=True,
        )
    ]
    return ("patient,age,sex\n" + "\n".join(lines) + "\n").encode()


# What is taken.


def test_a_csv_upload_is_held_and_replaced_as_a_whole(curator: CuratorWorld) -> None:
    curator.register()
    answer = curator.upload()
    assert answer.status_code == 201
    assert (answer.json()["rows"], answer.json()["units"], answer.json()["ready"]) == (4, 3, True)
    (first,) = curator.files()
    rows = stored_rows(curator)
    assert [row["age"] for row in rows if row["age"] == row["age"]] == [40.0, 41.0, 77.0]
    assert [row["sex"] for row in rows] == ["f", "f", "m", ""]
    version = curator.held().version
    again = curator.upload(ROWS + b"p4,50,f,Dee\n")
    assert (again.status_code, again.json()["rows"]) == (200, 5)
    (second,) = curator.files()
    assert first != second
    assert curator.held().version > version


def test_parquet_and_csv_of_the_same_rows_are_held_alike(lone_curator: CuratorWorld) -> None:
    world = lone_curator
    world.register()
    ages = [40.0, None, 1e400, 3.5]
    table = pa.table(
        {"age": ages, "sex": ["f", None, "zz", "m"], "patient": [1, 1, 2, None], "name": ["a"] * 4}
    )
    assert world.upload(parquet(table), PARQUET).json()["units"] == 3
    from_parquet = [(row["age"], row["sex"]) for row in stored_rows(world)]
    csv = b"name,age,sex,patient\na,40.0,f,1\na,,NA,1\na,inf,zz,2\na,3.5,m,\n"
    assert world.upload(csv).json()["units"] == 3
    from_csv = [(row["age"], row["sex"]) for row in stored_rows(world)]
    assert str(from_parquet) == str(from_csv)


def test_a_study_reads_the_same_numbers_as_from_the_owners_own_file(
    lone_curator: CuratorWorld, tmp_path: Path
) -> None:
    world, data = lone_curator, random_csv(20_000)
    world.register()
    answer = world.upload(data).json()
    (tmp_path / "own.csv").write_bytes(data)
    domain = Domain(columns=world.held().columns)
    tables = [
        SourceTable(source, domain, "patient")
        for source in (world.held().source(), CsvSource(tmp_path / "own.csv"))
    ]
    assert [table.units for table in tables] == [answer["units"]] * 2
    for column in ("numeric", "categorical"):
        ours, theirs = (
            np.sort(np.concatenate([getattr(chunk, column) for chunk in table.chunks()]), axis=0)
            for table in tables
        )
        assert np.array_equal(ours, theirs)


def test_neither_units_nor_undeclared_text_are_stored(lone_curator: CuratorWorld) -> None:
    world = lone_curator
    world.register()
    world.upload(f"patient,age,sex,name\n{CANARY}1,4,{CANARY}2,{CANARY}3\n".encode())
    (row,) = stored_rows(world)
    assert CANARY not in str(row)
    assert row["sex"] == ""
    first = row["patient"]
    world.upload(f"patient,age,sex\n{CANARY}1,4,f\n".encode())
    assert stored_rows(world)[0]["patient"] != first, "another upload, another key"


@pytest.mark.parametrize("in_memory", [10, 700, 10_000])
def test_units_are_counted_exactly_however_many_fit_in_memory(
    lone_curator: CuratorWorld, monkeypatch: pytest.MonkeyPatch, in_memory: int
) -> None:
    monkeypatch.setattr(uploads, "HASHES_IN_MEMORY", in_memory)
    monkeypatch.setattr(uploads, "BATCH_ROWS_MAX", 300)
    data = random_csv(10_000)
    units = len({line.split(b",")[0] for line in data.splitlines()[1:]})
    lone_curator.register()
    assert lone_curator.upload(data).json()["units"] == units


# What is refused.

ROW = {"patient": [1], "age": [1], "sex": ["f"]}
REFUSED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", CSV),
    "a header alone": (b"patient,age,sex\n", CSV),
    "no unit column": (b"age,sex\n1,f\n", CSV),
    "a missing column": (b"patient,sex\n1,f\n", CSV),
    "a column twice": (b"patient,age,age,sex\n1,2,3,f\n", CSV),
    "no number at all": (b"patient,age,sex\n1,old,f\n", CSV),
    "a short row at the end": (b"patient,age,sex\n" + b"1,2,f\n" * 300_000 + b"1\n", CSV),
    "no UTF-8 at the end": (
        b"patient,age,sex\n" + b"1,2,f\n" * 300_000 + CANARY.encode() + b"\xff,2,f\n",
        CSV,
    ),
    "a line without end": (b"patient,age,sex\n" + b"1" * 6_000_000, CSV),
    "an open quote": (b'patient,age,sex\n"1,2,f\n' + b"1,2,f\n" * 1_000_000, CSV),
    "Parquet as CSV": (parquet(pa.table(ROW)), CSV),
    "CSV as Parquet": (ROWS, PARQUET),
    "Parquet without a column": (parquet(pa.table({"patient": [1], "age": [1]})), PARQUET),
    "Parquet without rows": (parquet(pa.table(ROW).slice(1)), PARQUET),
    "Parquet of lists": (parquet(pa.table(ROW | {"age": [[1]]})), PARQUET),
    "Parquet of dates": (parquet(pa.table(ROW | {"age": pa.array([1], pa.date32())})), PARQUET),
    "Parquet cut short": (parquet(pa.table(ROW))[:-9], PARQUET),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_upload_leaves_what_was_held(lone_curator: CuratorWorld, name: str) -> None:
    world = lone_curator
    world.register()
    world.upload()
    before, files = world.show().json(), world.files()
    content, media_type = REFUSED[name]
    answer = world.upload(content, media_type)
    assert (answer.status_code, problem(answer)) == (422, "upload-refused")
    assert CANARY not in answer.text
    assert world.show().json() == before
    assert world.files() == files
    assert world.context.uploads.under_way == 0
    assert world.upload().status_code == 200


def test_a_refusal_says_which_declared_column(lone_curator: CuratorWorld) -> None:
    lone_curator.register()
    answer = lone_curator.upload(b"patient,age\n1,2\n").json()
    assert (answer["path"], answer["detail"]) == ("$.columns[1]", "the file lacks a declared column")
    assert lone_curator.upload(b"sex,age\nf,2\n").json()["path"] == "$.unit_column"
    answer = lone_curator.upload(b"patient,age,sex\n1,old,f\n").json()
    assert (answer["path"], answer["detail"]) == ("$.columns[0]", "a column declared numeric holds no number")


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "application/json"},
        {"content-type": ""},
        {"content-type": CSV, "content-encoding": "gzip"},
    ],
)
def test_other_media_types_and_compressed_bodies_are_refused(
    lone_curator: CuratorWorld, headers: dict[str, str]
) -> None:
    lone_curator.register()
    assert problem(lone_curator.upload(headers=headers)) == "unsupported-media-type"


@pytest.mark.parametrize("media_type", [CSV, PARQUET])
@pytest.mark.parametrize("announced", [True, False])
def test_an_upload_past_the_limit_is_refused(tmp_path: Path, media_type: str, announced: bool) -> None:
    world = CuratorWorld(tmp_path, f"sqlite:///{tmp_path / 'c.sqlite3'}", upload_bytes_max=100_000)
    world.register()
    content = b"patient,age,sex\n" + b"1,2,f\n" * 20_000
    answer = world.upload(content if announced else iter([content]), media_type)
    assert (answer.status_code, problem(answer)) == (413, "upload-too-large")
    assert world.files() == set()
    assert world.upload(content[:60_000] + b"\n").status_code in {201, 422}
    world.close()


# Several at once.


async def paced(pieces: list[bytes], gate: asyncio.Event, reached: asyncio.Event) -> AsyncIterator[bytes]:
    yield pieces[0]
    reached.set()
    await gate.wait()
    for piece in pieces[1:]:
        yield piece


HALVES = [b"patient,age,sex\n", b"1,2,f\n" * 10]


def put_rows(name: str, content: Any) -> tuple[str, str, dict[str, Any]]:
    path = f"/v1/data-sets/north/{name}/rows"
    return "PUT", path, {"content": content, "headers": {"content-type": CSV}}


def test_one_upload_at_a_time_for_each_data_set_and_so_many_in_all(tmp_path: Path) -> None:
    world = CuratorWorld(tmp_path, f"sqlite:///{tmp_path / 'c.sqlite3'}", uploads_max=2)
    for name in ("a", "b", "c"):
        world.register(name=name)
    key = world.owners["north"]

    async def run() -> None:
        gate = asyncio.Event()
        under_way = []
        for name in ("a", "b"):
            reached = asyncio.Event()
            method, path, options = put_rows(name, paced(HALVES, gate, reached))
            under_way.append(asyncio.create_task(world.send(method, path, key, **options)))
            await reached.wait()
            again = await world.send(method, path, key, content=ROWS, headers={"content-type": CSV})
            assert problem(again) == "rate-limited"
            assert int(again.headers["retry-after"]) > 0
        method, path, options = put_rows("c", ROWS)
        assert problem(await world.send(method, path, key, **options)) == "rate-limited"
        gate.set()
        answers = await asyncio.gather(*under_way)
        assert [answer.json()["rows"] for answer in answers] == [10, 10]
        assert (await world.send(method, path, key, **options)).status_code == 201

    asyncio.run(run())
    assert len(world.files()) == 3
    world.close()


@pytest.mark.parametrize("change", ["delete", "register", "delete and register"])
def test_a_data_set_that_changes_meanwhile_keeps_out_the_rows(curator: CuratorWorld, change: str) -> None:
    curator.register()
    key, path = curator.owners["north"], "/v1/data-sets/north/patients"

    async def run() -> Any:
        gate, reached = asyncio.Event(), asyncio.Event()
        method, rows_path, options = put_rows("patients", paced(HALVES, gate, reached))
        upload = asyncio.create_task(curator.send(method, rows_path, key, **options))
        await reached.wait()
        if "delete" in change:
            assert (await curator.send("DELETE", path, key)).status_code == 204
        if "register" in change:
            body = {"columns": COLUMNS, "epsilon": 1.0, "delta": 0.0, "policy": curator_policy()}
            assert (await curator.send("PUT", path, key, json=body)).is_success
        gate.set()
        return await upload

    assert problem(asyncio.run(run())) == "conflicting-upload"
    assert curator.files() == set()


def curator_policy() -> dict[str, Any]:
    return {"epsilon_per_study_max": 1.0, "delta_per_study_max": 0.0, "analysts": ["*"]}


# What breaks underneath.


@contextmanager
def file_size_limit(size_bytes: int) -> Iterator[None]:
    """Let no file of this process grow further: what a full disk does, from within."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.long
@pytest.mark.parametrize("media_type", [CSV, PARQUET])
def test_a_full_disk_is_said_and_leaves_nothing(lone_curator: CuratorWorld, media_type: str) -> None:
    world = lone_curator
    world.register()
    world.upload()
    files = world.files()
    draw = np.random.default_rng(0)
    content = _wide(draw, media_type)
    with file_size_limit(1_000_000):
        answer = world.upload(content, media_type)
    assert (answer.status_code, problem(answer)) == (507, "storage-full")
    assert answer.headers["retry-after"]
    assert world.files() == files
    assert world.show().json()["rows"] == 4
    assert world.upload(content, media_type).status_code == 200


def _wide(draw: np.random.Generator, media_type: str) -> bytes:
    ages = draw.random(200_000)
    if media_type == PARQUET:
        return parquet(pa.table({"patient": np.arange(len(ages)), "age": ages, "sex": ["f"] * len(ages)}))
    lines = [f"{index},{age!r},f\n" for index, age in enumerate(ages.tolist())]
    return ("patient,age,sex\n" + "".join(lines)).encode()


def test_a_database_that_refuses_leaves_nothing_and_one_that_does_not_answer_leaves_it_to_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'c.sqlite3'}"
    world = CuratorWorld(tmp_path, url)
    world.register()
    genuine = world.data_sets.swap_rows

    def refuse(*arguments: Any, **named: Any) -> None:
        genuine(*arguments, **named)
        raise sa.exc.IntegrityError("x", None, Exception())

    def vanish(*arguments: Any, **named: Any) -> None:
        genuine(*arguments, **named)
        raise DatabaseUnavailableError("gone")

    with monkeypatch.context() as broken:
        broken.setattr(world.data_sets, "swap_rows", refuse)
        assert world.upload().status_code == 500
        assert world.files() == set()
        broken.setattr(world.data_sets, "swap_rows", vanish)
        assert problem(world.upload()) == "database-unavailable"
    assert len(world.files()) == 1
    world.close()
    world = CuratorWorld(tmp_path, url, owners=world.owners, operator=world.operator)
    assert world.files() == set()
    assert world.show().json()["ready"] is False
    world.close()


def test_a_service_that_stops_lets_go_of_an_upload(lone_curator: CuratorWorld) -> None:
    world = lone_curator
    world.register()

    async def run() -> Any:
        gate, reached = asyncio.Event(), asyncio.Event()
        method, path, options = put_rows("patients", paced(HALVES, gate, reached))
        upload = asyncio.create_task(world.send(method, path, world.owners["north"], **options))
        await reached.wait()
        world.stopping.requested = True
        answer = await upload
        gate.set()
        return answer

    assert problem(asyncio.run(run())) == "not-ready"
    assert world.files() == set()


def test_the_key_of_an_upload_is_checked_before_its_body(lone_curator: CuratorWorld) -> None:
    world = lone_curator
    world.register()
    pulled = []

    async def pieces() -> AsyncIterator[bytes]:
        pulled.append(1)
        yield ROWS

    method, path, options = put_rows("patients", pieces())
    assert problem(world.call(method, path, PrivateKey.generate(), **options)) == "unknown-party"
    assert problem(world.call(method, path, world.owners["south"], **options)) == "forbidden"
    assert pulled == []


LONG_BYTES = choose(100 * 10**6, 2 * 10**9)
"""How long the long upload is."""

GROWTH_BYTES_MAX = 200 * 10**6
"""Memory that an upload of any length may take."""


def long_csv(size_bytes: int) -> Iterator[bytes]:
    """Make a table of that size, piece by piece: two numbers, a level, and units that own a few rows each."""
    draw = np.random.default_rng(0)
    yield b"patient,age,sex,note\n"
    sent, unit = 0, 0
    block = "".join(
        f"%(u){index % 10},{age:.6f},{'fm'[index % 2]},text\n"
        for index, age in enumerate(draw.normal(50, 20, 20_000))
    )
    while sent < size_bytes:
        piece = block.replace("%(u)", f"p{unit}-").encode()
        unit += 1
        sent += len(piece)
        yield piece


@pytest.mark.long
def test_a_long_upload_streams_with_constant_memory(tmp_path: Path) -> None:
    world = prepare(tmp_path)
    with CuratorProcess(tmp_path, world) as curator:
        assert curator.upload(ROWS).status_code == 201
        before = curator.peak_bytes()
        answer = curator.upload(long_csv(LONG_BYTES))
        assert answer.status_code == 200, answer.text
        growth = curator.peak_bytes() - before
        blocks = answer.json()["rows"] // 20_000
        assert answer.json()["units"] == 10 * blocks
        assert growth < GROWTH_BYTES_MAX, growth


@pytest.mark.long
def test_a_reader_that_holds_the_body_would_be_caught(tmp_path: Path) -> None:
    world = prepare(tmp_path)
    with CuratorProcess(tmp_path, world, "gullible") as curator:
        assert curator.upload(ROWS).status_code == 201
        before = curator.peak_bytes()
        assert curator.upload(long_csv(250 * 10**6)).status_code == 200
        assert curator.peak_bytes() - before > GROWTH_BYTES_MAX


HALF = b"patient,age,sex\n" + b"1,2,f\n" * 100_000


@pytest.fixture
def prepared(tmp_path: Path) -> CuratorWorld:
    """A curator that holds four rows, and is not running."""
    return prepare(tmp_path, ROWS)


def require_first_rows(folder: Path) -> None:
    world = load(folder)
    source = world.held().source()
    assert (
        sum(batch.num_rows for batch in source.batches(Columns(("age",)), 10)) == len(ROWS.splitlines()) - 1
    )
    world.close()


@pytest.mark.long
def test_a_connection_that_breaks_leaves_what_was_held(tmp_path: Path, prepared: CuratorWorld) -> None:
    with CuratorProcess(tmp_path, prepared) as curator:
        curator.begin(10 * len(HALF), HALF).close()
        curator.wait_for(lambda: curator.files() == curator.files_at_start)
        assert curator.show()["rows"] == 4
        assert curator.upload_after_break(HALF).status_code == 200
    log = (tmp_path / "log").read_text()
    assert "internal_error" not in log


HELD_AFTER = {
    StorageStep.FILE_BEGUN: 4,
    StorageStep.FILE_WRITTEN: 4,
    StorageStep.ROWS_SWAPPED: 5,
    StorageStep.ROWS_HELD: 5,
    StorageStep.KEY_DELETED: None,
}


@pytest.mark.sweep(2)
@pytest.mark.parametrize("step", StorageStep)
def test_killed_at_any_step_it_holds_the_rows_of_before_or_after(
    tmp_path: Path, prepared: CuratorWorld, step: StorageStep
) -> None:
    with CuratorProcess(tmp_path, prepared, failpoint=step) as curator:
        upload = partial(curator.upload, ROWS + b"p4,50,f,Dee\n")
        request = curator.delete if step is StorageStep.KEY_DELETED else upload
        with pytest.raises(httpx.TransportError):
            request()
        assert curator.child.wait(120) == -signal.SIGKILL
    with CuratorProcess(tmp_path, prepared) as curator:
        held = HELD_AFTER[step]
        assert curator.files() == curator.files_at_start
        assert len(curator.files()) == (0 if held is None else 1)
        assert curator.show().get("rows") == held
        if held is not None:
            assert curator.upload(ROWS).status_code == 200


@pytest.mark.long
def test_asked_to_stop_in_mid_upload_it_stops_and_leaves_nothing(
    tmp_path: Path, prepared: CuratorWorld
) -> None:
    def stopped_s() -> float:
        with CuratorProcess(tmp_path, prepared) as curator:
            with curator.begin(10 * len(HALF), HALF) as connection:
                code, seconds = stop(curator.child)
                assert code == 0
                assert connection.recv(100).startswith(b"HTTP/1.1 503")
            assert curator.files() == curator.files_at_start
        return seconds

    require_a_stop_in_time(stopped_s)
    require_first_rows(tmp_path)


def test_who_waits_to_be_asked_for_its_rows_is_refused_without_sending_them(
    tmp_path: Path, prepared: CuratorWorld
) -> None:
    def answer_to(path: str, expected: bytes) -> None:
        lines = [
            f"PUT {path} HTTP/1.1",
            "host: curator",
            f"content-length: {len(ROWS)}",
            "expect: 100-continue",
        ]
        lines += [f"{name}: {value}" for name, value in curator.headers().items()]
        with socket.create_connection(("127.0.0.1", curator.port), timeout=120) as connection:
            connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
            assert connection.recv(2**16).startswith(b"HTTP/1.1 " + expected)

    with CuratorProcess(tmp_path, prepared) as curator:
        answer_to(PATH, b"100")
        answer_to(PATH.replace("north", "south"), b"403")


def contents(folder: Path) -> dict[Path, bytes]:
    """What is in every file; one that goes between being seen and being read holds nothing any more."""
    found = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError, IsADirectoryError):
            found[path] = path.read_bytes()
    return found


def test_nothing_that_was_uploaded_is_in_any_file_or_log(tmp_path: Path) -> None:
    canary = b"Xc4nary7"
    world = prepare(tmp_path)
    with CuratorProcess(tmp_path, world) as curator:
        rows = b"patient,age,sex,note\n" + b"".join(
            b"%s-%d,%d.%d,%s,%s\n" % (canary, i, 31, 4159265 + i, canary, canary) for i in range(5000)
        )
        assert curator.upload(rows).status_code == 201
        with curator.begin(10 * len(rows), rows):
            texts = contents(tmp_path)
        assert curator.upload_after_break(rows + canary + b"\xff\n").status_code == 422
    texts |= {tmp_path / "later" / path.name: text for path, text in contents(tmp_path).items()}
    assert any(path.suffix == ".rows" for path in texts)
    for path, text in texts.items():
        assert canary not in text, path
        assert b"4159265" not in text, path
