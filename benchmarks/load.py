"""Load at the tester: uploads beside a bare handler.

    python -m benchmarks.load                                  # some minutes; writes docs/benchmarks/load.md
    python -m benchmarks.load --uploads 40 --folder /tmp/glance

Uploads: distinct, signed releases of ``kernel_two_sample``; the tester checks token, party, signature,
digest, form, shape and noise, and stores each durably before it answers. The bare handler beside it
(benchmarks/load_servers.py) gets the same requests, checks nothing and writes one row, as durably, on the
same machine in the same run. The two take turns, ``--rounds`` times; the best round of each counts, as the
other work of a machine only ever slows one down.
"""

import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.harness import options, table, write_page
from benchmarks.load_servers import free_port, postgres, request_bytes, serving, write_tester
from benchmarks.problems import MemoryTable, chunk_of, study_of_columns
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.release import ReleaseMessage
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import canonical
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample
from tacit_protocol.signing.envelope import RELEASE_TYPE, STUDY_TYPE, digest, seal
from tacit_protocol.signing.keys import PrivateKey
from tacit_protocol.signing.tokens import issue_token
from tacit_services.shared.database import create_engine, run_transaction, upgrade
from tacit_services.tester.studies import Identity, Studies
from tacit_services.tester.tables import PARTIES

OWNERS = 40
"""Owners of a study whose releases are uploaded; one more never answers, so that no verdict is computed."""

COLUMNS = 5
"""Columns of the study: a release of some two hundred numbers."""


@dataclass(frozen=True)
class Uploads:
    """A number of signed releases, by study and owner, and who signed them."""

    tester: PrivateKey
    analyst: PrivateKey
    owners: dict[str, PrivateKey]
    studies: dict[str, bytes]
    releases: dict[tuple[str, str], bytes]

    def dated(self, study: Study, owners: tuple[Owner, ...], title: str) -> Study:
        """Return a study as this analyst asks it of this tester today."""
        now = int(time.time())
        return study.model_copy(
            update={
                "owners": owners,
                "tester": Party(name="tester", key=self.tester.public_hex),
                "analyst": Party(name="analyst", key=self.analyst.public_hex),
                "created_at": now,
                "deadline": now + 86_400,
                "title": title,
            }
        )

    def sealed(self, study: Study) -> tuple[str, bytes]:
        """Return a study's digest and its envelope."""
        payload = encode(canonical(procedure_named(study.procedure), study))
        return digest(payload), seal(payload, STUDY_TYPE, self.analyst)


def make_uploads(count: int) -> Uploads:
    """Make studies and releases until there are ``count`` releases; one release's numbers serve all."""
    owners = {f"owner-{i:03d}": PrivateKey.generate() for i in range(OWNERS + 1)}
    made = Uploads(PrivateKey.generate(), PrivateKey.generate(), owners, {}, {})
    named = tuple(Owner(name=name, key=key.public_hex, data_set="rows") for name, key in owners.items())
    procedure, plain = KernelTwoSample(), study_of_columns(COLUMNS, (0.0, 1.0), {}, epsilon=1.0, run=0)
    rows = MemoryTable(plain.domain, chunk_of(np.random.default_rng(0).random((2000, COLUMNS))))
    release = procedure.privatise(plain, procedure.summarise(plain, rows), OpenDPNoise())
    for number in range(-(-count // OWNERS)):
        study, envelope = made.sealed(made.dated(plain, named, f"benchmark {number}"))
        made.studies[study] = envelope
        for name in list(owners)[:OWNERS]:
            message = ReleaseMessage(study=study, party=name, release=release)
            made.releases[study, name] = seal(encode(message), RELEASE_TYPE, owners[name])
    return made


def enrolled(
    folder: Path, database_url: str, made: Uploads, idle: int = 0, settings: str = ""
) -> tuple[Path, int, list[PrivateKey]]:
    """Write a tester's settings and its database, where everyone is enrolled, and its studies are taken.

    Returns the file of settings, the port, and the keys of so many further, idle owners.
    """
    now, keys, engine = (
        int(time.time()),
        [PrivateKey.generate() for _ in range(idle)],
        create_engine(database_url),
    )
    upgrade(engine, "tester")
    known = [("analyst", made.analyst, "analyst"), *((n, k, "owner") for n, k in made.owners.items())]
    known += [(f"idle-{i:05d}", key, "owner") for i, key in enumerate(keys)]
    rows = [{"name": n, "key": k.public_hex, "role": r, "enrolled_at": now} for n, k, r in known]
    run_transaction(engine, lambda connection: connection.execute(PARTIES.insert(), rows))
    studies = Studies(engine, Identity("tester", made.tester.public_hex))
    for study, envelope in made.studies.items():
        studies.create(study, envelope, made.analyst.public_hex, now)
    engine.dispose()
    file, port = write_tester(folder, made.tester, database_url)
    with file.open("a") as written:
        written.write(settings)
    return file, port, keys


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


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    """Send a request and read its answer; returns the status."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    status, length = int(head[9:12]), 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    await reader.readexactly(length)
    return status


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
        tester = stack.enter_context(serving(port, "tester", "--config", str(file)))
        port = free_port()
        bare = stack.enter_context(
            serving(port, "bare", "--port", str(port), "--database-url", database_urls[1])
        )
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
