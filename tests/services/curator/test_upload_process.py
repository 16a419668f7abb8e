"""Uploads to a real process: long ones, broken ones, and a process that is killed or stopped under them."""

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
import numpy as np
import pytest
from curator_process import load, prepare
from curator_world import ROWS, URL, CuratorWorld, problem
from long_runs import choose

from tacit_protocol.signing.tokens import issue_token
from tacit_services.agent.data.source import Columns

CHILD = Path(__file__).parents[2] / "support" / "curator_process.py"
START_S_MAX = 60.0

LONG_BYTES = choose(100 * 10**6, 2 * 10**9)
"""How long the long upload is."""

GROWTH_BYTES_MAX = 200 * 10**6
"""Memory that an upload of any length may take."""

PATH = "/v1/data-sets/north/patients/rows"


class CuratorProcess:
    """The process, and requests to it by the owner ``north``."""

    def __init__(self, folder: Path, world: CuratorWorld, *planted: str) -> None:
        self._key, self._folder, self._planted = world.owners["north"], folder, planted
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port: int = probe.getsockname()[1]

    def __enter__(self) -> Self:
        self._log = (self._folder / "log").open("ab")
        self.child = subprocess.Popen(
            [sys.executable, str(CHILD), str(self._folder), str(self.port), *self._planted],
            stdout=subprocess.PIPE,
            stderr=self._log,
        )
        assert self.child.stdout is not None
        line = self.child.stdout.readline()
        assert line, (self._folder / "log").read_text()
        self.files_at_start: list[str] = json.loads(line)["files"]
        self._wait_until_it_answers()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.child.kill()
        self.child.wait()
        assert self.child.stdout is not None
        self.child.stdout.close()
        self._log.close()

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_S_MAX
        while time.monotonic() < deadline:
            try:
                with socket.create_connection(("127.0.0.1", self.port), 1):
                    return
            except OSError:
                time.sleep(0.02)
        raise AssertionError("the curator does not answer")

    def headers(self, media_type: str = "text/csv") -> dict[str, str]:
        token = issue_token(self._key, URL, int(time.time()))
        return {"authorization": f"Bearer {token}", "content-type": media_type}

    def upload(self, content: bytes | Iterator[bytes], media_type: str = "text/csv") -> httpx.Response:
        url = f"http://127.0.0.1:{self.port}{PATH}"
        return httpx.put(url, content=content, headers=self.headers(media_type), timeout=600)

    def show(self) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.port}{PATH.removesuffix('/rows')}"
        shown: dict[str, Any] = httpx.get(url, headers=self.headers()).json()
        return shown

    def begin(self, size_bytes: int, sent: bytes) -> socket.socket:
        """Begin an upload of that size; returns its connection once the curator has begun a file."""
        lines = [f"PUT {PATH} HTTP/1.1", "host: curator", f"content-length: {size_bytes}"]
        lines += [f"{name}: {value}" for name, value in self.headers().items()]
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + sent)
        before = set(self.files_at_start)
        self.wait_for(lambda: bool(set(self.files()) - before))
        return connection

    def files(self) -> list[str]:
        return sorted(path.name for path in (self._folder / "rows").glob("*.rows"))

    def wait_for(self, holds: Any) -> None:
        deadline = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < deadline, (self._folder / "log").read_text()[-3000:]
            time.sleep(0.01)

    def peak_bytes(self) -> int:
        for line in Path(f"/proc/{self.child.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the kernel does not tell the peak of memory")


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
    world = prepare(tmp_path)
    with CuratorProcess(tmp_path, world) as curator:
        assert curator.upload(ROWS).status_code == 201
    return world


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
        assert curator.upload(HALF).status_code == 200
    log = (tmp_path / "log").read_text()
    assert "internal_error" not in log


def test_killed_in_mid_upload_it_starts_with_what_it_held(tmp_path: Path, prepared: CuratorWorld) -> None:
    with CuratorProcess(tmp_path, prepared) as curator:
        held = curator.files_at_start
        with curator.begin(10 * len(HALF), HALF):
            curator.child.kill()
            curator.child.wait()
        assert len(curator.files()) == 2, "the file that was begun must be there to be removed"
    with CuratorProcess(tmp_path, prepared) as curator:
        assert curator.files_at_start == held == curator.files()
        assert curator.show()["rows"] == 4
    require_first_rows(tmp_path)


@pytest.mark.parametrize("media_type", ["text/csv"])
def test_asked_to_stop_in_mid_upload_it_stops_and_leaves_nothing(
    tmp_path: Path, prepared: CuratorWorld, media_type: str
) -> None:
    with CuratorProcess(tmp_path, prepared) as curator:
        with curator.begin(10 * len(HALF), HALF) as connection:
            started_s = time.monotonic()
            curator.child.send_signal(signal.SIGTERM)
            assert curator.child.wait(20) == 0
            assert time.monotonic() - started_s < 5
            assert connection.recv(100).startswith(b"HTTP/1.1 503")
        assert curator.files() == curator.files_at_start
    require_first_rows(tmp_path)


def test_a_refusal_in_mid_upload_reaches_its_sender(tmp_path: Path, prepared: CuratorWorld) -> None:
    broken = b"patient,age,sex\n" + b"1,2,f\n" * 100_000 + b"1\n" + b"1,2,f\n" * 500_000
    with CuratorProcess(tmp_path, prepared) as curator:
        answer = curator.upload(broken)
        assert (answer.status_code, problem(answer)) == (422, "upload-refused")
        assert curator.files() == curator.files_at_start


def test_nothing_that_was_uploaded_is_in_any_file_or_log(tmp_path: Path) -> None:
    canary = b"Xc4nary7"
    world = prepare(tmp_path)
    with CuratorProcess(tmp_path, world) as curator:
        rows = b"patient,age,sex,note\n" + b"".join(
            b"%s-%d,%d.%d,%s,%s\n" % (canary, i, 31, 4159265 + i, canary, canary) for i in range(5000)
        )
        assert curator.upload(rows).status_code == 201
        with curator.begin(10 * len(rows), rows):
            texts = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        assert curator.upload(rows + canary + b"\xff\n").status_code == 422
    texts |= {
        tmp_path / "later" / path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    }
    assert any(path.suffix == ".rows" for path in texts)
    for path, text in texts.items():
        assert canary not in text, path
        assert b"4159265" not in text, path
