"""Load at the tester: uploads beside a bare handler.

    python -m benchmarks.load                                  # some minutes; writes docs/benchmarks/load.md
    python -m benchmarks.load --uploads 40 --folder /tmp/glance

Uploads: distinct, signed releases of ``kernel_two_sample``; the tester checks token, party, signature,
digest, form, shape and noise, and stores each durably before it answers. The bare handler beside it gets the
same requests, checks nothing and writes one row, as durably, on the same machine in the same run: it is the
least that could store an upload, FastAPI and uvicorn with their defaults. The two take turns, ``--rounds``
times; the best round of each counts, as the other work of a machine only ever slows one down.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import sqlalchemy as sa
import uvicorn
from fastapi import FastAPI, Request, Response
from starlette.concurrency import run_in_threadpool

from benchmarks.harness import options, table, write_page
from benchmarks.servers import (
    Uploads,
    enrolled,
    exchange,
    free_port,
    make_uploads,
    postgres,
    request_bytes,
    serving,
    tester_command,
)
from tacit_protocol.signing import issue_token
from tacit_services.shared.database import create_engine

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


def serve_bare(port: int, database_url: str) -> None:
    """Serve the bare handler."""
    uvicorn.run(bare_app(database_url), port=port, log_level="warning", access_log=False)


@dataclass(frozen=True)
class Measured:
    """How a batch of requests went."""

    requests: int
    seconds: float
    latencies_s: tuple[float, ...]
    cpu_ms: float = 0.0
    """The server's processor time for a request."""

    @property
    def rate(self) -> float:
        """Requests answered per second."""
        return self.requests / self.seconds

    def quantile_ms(self, part: float) -> float:
        """Return a quantile of the time to an answer, in milliseconds."""
        return 1000 * float(np.quantile(self.latencies_s, part))


def upload(port: int, requests: Sequence[bytes], connections: int) -> Measured:
    """Send every request once, over so many connections; every answer must be 201."""
    waiting, latencies = list(reversed(requests)), []

    async def one_connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while waiting:
            request, started = waiting.pop(), time.perf_counter()
            status = await exchange(reader, writer, request)
            latencies.append(time.perf_counter() - started)
            if status != 201:
                raise RuntimeError(f"an upload was answered with {status}")
        writer.close()

    async def all_connections() -> None:
        await asyncio.gather(*(one_connection() for _ in range(connections)))

    started = time.perf_counter()
    asyncio.run(all_connections())
    return Measured(len(latencies), time.perf_counter() - started, tuple(latencies))


Rounds = dict[str, list[Measured]]
"""By who answered."""


def measure_uploads(
    folder: Path, database_urls: tuple[str, str], count: int, rounds: int, connections: int
) -> Rounds:
    """Measure rounds of uploads at the tester and at the bare handler."""
    made = make_uploads(count * rounds)
    uploads = sorted(made.releases.items(), key=lambda item: item[0][1])  # by owner: studies are mixed
    found: Rounds = {"tester": [], "bare handler": []}
    with ExitStack() as stack:
        file, port, _ = enrolled(folder, database_urls[0], made)
        tester = stack.enter_context(serving(port, tester_command(file)))
        port = free_port()
        serve = f"from benchmarks.load import serve_bare; serve_bare({port}, {database_urls[1]!r})"
        bare = stack.enter_context(serving(port, [sys.executable, "-c", serve]))
        for number in range(rounds):
            part = uploads[number * count : (number + 1) * count]
            for served, into in zip((tester, bare), found.values(), strict=True):
                requests = signed(part, made, served.port, f"http://127.0.0.1:{tester.port}")
                before = served.cpu_s
                measured = upload(served.port, requests, connections)
                cpu_ms = 1000 * (served.cpu_s - before) / measured.requests
                into.append(replace(measured, cpu_ms=cpu_ms))
    return found


def signed(
    uploads: list[tuple[tuple[str, str], bytes]], made: Uploads, port: int, audience: str
) -> list[bytes]:
    """Write requests with fresh tokens, one for each owner: a token may serve for a minute."""
    now = int(time.time())
    tokens = {name: issue_token(key, audience, now) for name, key in made.owners.items()}
    return [
        request_bytes("PUT", f"/v1/studies/{study}/releases/{owner}", port, tokens[owner], envelope)
        for (study, owner), envelope in uploads
    ]


def lines_of(database: str, rounds: Rounds) -> dict[str, dict[str, str]]:
    """Return lines of the table, and the ratio: of the quickest round, and the least CPU."""
    best = {who: max(found, key=lambda one: one.rate) for who, found in rounds.items()}
    cpu_ms = {who: min(one.cpu_ms for one in found) for who, found in rounds.items()}
    lines = {
        f"{database} | {who}": {
            "uploads a second": f"{found.rate:.0f}",
            "p50, ms": f"{found.quantile_ms(0.5):.1f}",
            "p99, ms": f"{found.quantile_ms(0.99):.1f}",
            "server's CPU, ms each": f"{cpu_ms[who]:.2f}",
        }
        for who, found in best.items()
    }
    (tester, bare), (own_ms, bare_ms) = best.values(), cpu_ms.values()
    lines[f"{database} | ratio"] = {
        "uploads a second": f"{tester.rate / bare.rate:.2f}",
        "server's CPU, ms each": f"{bare_ms / own_ms:.2f}",
    }
    return lines


def main() -> None:
    """Measure, and write the page."""
    chosen = options(__doc__, uploads=1000, rounds=3, connections=16)
    sizes = (chosen.uploads, chosen.rounds, chosen.connections)
    parts = {"load before": f"{os.getloadavg()[0]:.1f}"}
    with tempfile.TemporaryDirectory(prefix="tacit-load-") as name:
        folder = Path(name)
        sqlite = tuple(f"sqlite:///{folder / file}" for file in ("tester.sqlite3", "bare.sqlite3"))
        rows = lines_of("SQLite", measure_uploads(folder, (sqlite[0], sqlite[1]), *sizes))
        with postgres(folder) as url:
            rows |= lines_of("PostgreSQL", measure_uploads(folder, (url, url), *sizes))
    parts |= {"uploads": table(rows, "database | server"), "load after": f"{os.getloadavg()[0]:.1f}"}
    parts |= {
        "processors": str(os.cpu_count()),
        "rounds": str(chosen.rounds),
        "clients": str(chosen.connections),
    }
    print(parts["uploads"])
    write_page("load", parts, chosen.folder)


if __name__ == "__main__":
    main()
