"""Serves a curator's owners' interface: ``python curator_process.py FOLDER PORT [gullible]``.

The folder holds the database, the rows and a PEM file of the operator and of each enrolled owner, as
:func:`prepare` leaves them. ``gullible`` plants the mistake of holding a whole body in memory.
"""

import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx
from curator_world import URL, CuratorWorld
from forked_python import forked_python

from tacit.setup.processes import free_ports
from tacit_protocol.signing import PrivateKey, issue_token
from tacit_services.curator import uploads
from tacit_services.shared.failpoints import VARIABLE
from tacit_services.shared.http_server import serve
from tacit_services.shared.logging import configure_logging


def database_url(folder: Path) -> str:
    return f"sqlite:///{folder / 'curator.sqlite3'}"


def prepare(folder: Path, rows: bytes | None = None) -> CuratorWorld:
    """Enrol the owners, register ``north``'s data set, with these rows if any, and close."""
    world = CuratorWorld(folder, database_url(folder))
    assert world.register().status_code == 201
    assert rows is None or world.upload(rows).status_code == 201
    for name, key in {"operator": world.operator, **world.owners}.items():
        (folder / f"{name}.pem").write_bytes(key.to_pem())
    world.close()
    return world


def load(folder: Path) -> CuratorWorld:
    keys = {path.stem: PrivateKey.from_pem(path.read_bytes()) for path in sorted(folder.glob("*.pem"))}
    operator = keys.pop("operator")
    return CuratorWorld(folder, database_url(folder), owners=keys, operator=operator)


class Hoarder(uploads.IncomingBody):
    """Plant: nothing is parsed before everything has arrived."""

    def read(self, size: int = -1) -> bytes:
        while not self._ended:
            self._pull()
        return super().read(size)


START_S_MAX = 300.0
ANSWER_S_MAX = 300.0

PATH = "/v1/data-sets/north/patients/rows"


class CuratorProcess:
    """The process, and requests to it by the owner ``north``."""

    def __init__(self, folder: Path, world: CuratorWorld, *planted: str, failpoint: str = "") -> None:
        self._environment = os.environ | {VARIABLE: failpoint}
        self._key, self._folder, self._planted = world.owners["north"], folder, planted
        (self.port,) = free_ports(1)

    def __enter__(self) -> Self:
        told, written = os.pipe()
        with (self._folder / "log").open("ab") as log, open(told) as answers:
            with open(written, "wb") as output:
                self.child = forked_python().start(
                    [__file__, str(self._folder), str(self.port), *self._planted],
                    environment=self._environment,
                    stdout=output,
                    stderr=log,
                )
            line = answers.readline()
        assert line, (self._folder / "log").read_text()
        self.files_at_start: list[str] = json.loads(line)["files"]
        self._wait_until_it_answers()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.child.kill()
        self.child.wait()

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
        return httpx.put(url, content=content, headers=self.headers(media_type), timeout=600, trust_env=False)

    def upload_after_break(self, content: bytes) -> httpx.Response:
        """Upload once the curator has noticed that the upload before it broke: until then it is refused."""
        deadline = time.monotonic() + ANSWER_S_MAX
        while (answer := self.upload(content)).status_code == httpx.codes.TOO_MANY_REQUESTS:
            assert time.monotonic() < deadline, (self._folder / "log").read_text()[-3000:]
            time.sleep(0.01)
        return answer

    def show(self) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.port}{PATH.removesuffix('/rows')}"
        shown: dict[str, Any] = httpx.get(
            url, headers=self.headers(), timeout=ANSWER_S_MAX, trust_env=False
        ).json()
        return shown

    def delete(self) -> httpx.Response:
        url = f"http://127.0.0.1:{self.port}{PATH.removesuffix('/rows')}"
        return httpx.delete(url, headers=self.headers(), timeout=ANSWER_S_MAX, trust_env=False)

    def begin(self, size_bytes: int, sent: bytes) -> socket.socket:
        """Begin an upload of that size; returns its connection once the curator has begun a file."""
        lines = [f"PUT {PATH} HTTP/1.1", "host: curator", f"content-length: {size_bytes}"]
        lines += [f"{name}: {value}" for name, value in self.headers().items()]
        before = set(self.files())
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_S_MAX)
        connection.sendall(("\r\n".join(lines) + "\r\n\r\n").encode() + sent)
        self.wait_for(lambda: bool(set(self.files()) - before))
        return connection

    def files(self) -> list[str]:
        return sorted(path.name for path in (self._folder / "rows").glob("*.rows"))

    def wait_for(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + ANSWER_S_MAX
        while not holds():
            assert time.monotonic() < deadline, (self._folder / "log").read_text()[-3000:]
            time.sleep(0.01)

    def peak_bytes(self) -> int:
        for line in Path(f"/proc/{self.child.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the kernel does not tell the peak of memory")


def main(folder: Path, port: int, planted: bool) -> None:
    configure_logging("INFO")
    world = load(folder)
    world.clock = time.time
    if planted:
        from tacit_services.curator import uploads  # noqa: PLC0415 (planted)

        uploads.IncomingBody = Hoarder  # type: ignore[misc]
    sys.stdout.write(json.dumps({"files": sorted(world.files())}) + "\n")
    sys.stdout.flush()
    serve(world.app, "127.0.0.1", port, world.stopping)
    world.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), len(sys.argv) > 3)
