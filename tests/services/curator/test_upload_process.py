"""Uploads to a real process: long ones, broken ones, and a process that is killed or stopped under them."""

import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pytest
from curator_process import PATH, CuratorProcess, load, prepare
from curator_world import ROWS, CuratorWorld
from long_runs import choose
from own_time import require_a_stop_in_time, stop

from tacit_services.agent.data.source import Columns
from tacit_services.shared.failpoints import StorageStep

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
