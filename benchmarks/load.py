"""Load at the tester: uploads beside a bare handler, and agents that poll.

``python -m benchmarks.load`` measures and writes docs/benchmarks/load.md.

Uploads: distinct, signed releases of ``kernel_two_sample``; the tester checks token, party, signature,
digest, form, shape and noise, and stores each durably before it answers. The bare handler beside it
(benchmarks/load_servers.py) gets the same requests, checks nothing and writes one row, as durably, on the
same machine in the same run. The two take turns, ``--rounds`` times; the best round of each counts, as the
other work of a machine only ever slows one down.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sqlalchemy.engine import Engine

from benchmarks.load_client import Measured, hold_polls, request_bytes, upload
from benchmarks.load_servers import Served, free_port, postgres, serving, write_tester
from benchmarks.two_sample import study_of_columns
from tacit_protocol.domain.table import EncodedChunk
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.release import ReleaseMessage
from tacit_protocol.messages.study import Owner, Party
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import canonical
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

WAIT_S = 20
"""How long a poll waits: the agents' own setting."""

DEFAULTS: Mapping[str, float] = {
    "uploads": 1000,
    "rounds": 3,
    "connections": 16,
    "agents": 1000,
    "seconds": 40,
}
"""Three to four minutes in all; polling lasts twice as long as a poll waits."""


@dataclass(frozen=True)
class Uploads:
    """A number of signed releases, by study and owner, and who signed them."""

    tester: PrivateKey
    analyst: PrivateKey
    owners: dict[str, PrivateKey]
    studies: dict[str, bytes]
    releases: dict[tuple[str, str], bytes]


@dataclass(frozen=True)
class MemoryRows:
    """Rows in memory, as a procedure reads them."""

    rows: EncodedChunk

    @property
    def units(self) -> int:
        """One a row."""
        return self.rows.units

    @property
    def domain(self) -> None:
        """Not asked for."""

    def chunks(self) -> Iterator[EncodedChunk]:
        """All rows at once."""
        yield self.rows


def make_uploads(count: int) -> Uploads:
    """Make studies and releases until there are ``count`` releases; one release's numbers serve all."""
    tester, analyst = PrivateKey.generate(), PrivateKey.generate()
    owners = {f"owner-{i:03d}": PrivateKey.generate() for i in range(OWNERS + 1)}
    now, procedure = int(time.time()), KernelTwoSample()
    plain = study_of_columns(COLUMNS, (0.0, 1.0), {}, epsilon=1.0, run=0)
    values = np.random.default_rng(0).random((2000, COLUMNS))
    table = MemoryRows(EncodedChunk(values, np.zeros((2000, 0), dtype=np.int32), None, 2000))
    release = procedure.privatise(plain, procedure.summarise(plain, table), OpenDPNoise())
    studies: dict[str, bytes] = {}
    releases: dict[tuple[str, str], bytes] = {}
    for number in range(-(-count // OWNERS)):
        study = plain.model_copy(
            update={
                "owners": tuple(
                    Owner(name=name, key=key.public_hex, data_set="rows") for name, key in owners.items()
                ),
                "tester": Party(name="tester", key=tester.public_hex),
                "analyst": Party(name="analyst", key=analyst.public_hex),
                "created_at": now,
                "deadline": now + 86_400,
                "title": f"benchmark {number}",
            }
        )
        payload = encode(canonical(procedure, study))
        studies[digest(payload)] = seal(payload, STUDY_TYPE, analyst)
        for name in list(owners)[:OWNERS]:
            message = ReleaseMessage(study=digest(payload), party=name, release=release)
            releases[digest(payload), name] = seal(encode(message), RELEASE_TYPE, owners[name])
    return Uploads(tester, analyst, owners, studies, releases)


def fill(engine: Engine, made: Uploads, agents: int) -> list[PrivateKey]:
    """Enrol everyone, and as many idle owners as agents are to poll; take the studies."""
    now, idle = int(time.time()), [PrivateKey.generate() for _ in range(agents)]
    known = [("analyst", made.analyst, "analyst"), *((n, k, "owner") for n, k in made.owners.items())]
    known += [(f"idle-{i:05d}", key, "owner") for i, key in enumerate(idle)]
    rows = [{"name": n, "key": k.public_hex, "role": r, "enrolled_at": now} for n, k, r in known]
    run_transaction(engine, lambda connection: connection.execute(PARTIES.insert(), rows))
    studies = Studies(engine, Identity("tester", made.tester.public_hex))
    for study, envelope in made.studies.items():
        studies.create(study, envelope, made.analyst.public_hex, now)
    return idle


@contextmanager
def tester_of(folder: Path, database_url: str, made: Uploads) -> Iterator[tuple[Served, list[PrivateKey]]]:
    """A tester process on a database where everyone is enrolled; no one idle."""
    engine = create_engine(database_url)
    upgrade(engine, "tester")
    fill(engine, made, 0)
    engine.dispose()
    file, port = write_tester(folder, made.tester, database_url)
    with serving(port, "tester", "--config", str(file)) as served:
        yield served, []


def measure_uploads(
    folder: Path, database_urls: tuple[str, str], count: int, rounds: int, connections: int
) -> tuple[list[tuple[Measured, float]], list[tuple[Measured, float]]]:
    """Measure rounds of uploads at the tester and at the bare handler, each with the server's CPU s."""
    made = make_uploads(count * rounds)
    uploads = sorted(made.releases.items(), key=lambda item: item[0][1])  # by owner: studies are mixed
    port, found = free_port(), ([], [])
    with ExitStack() as stack:
        tester, _ = stack.enter_context(tester_of(folder, database_urls[0], made))
        bare = stack.enter_context(
            serving(port, "bare", "--port", str(port), "--database-url", database_urls[1])
        )
        for number in range(rounds):
            part = uploads[number * count : (number + 1) * count]
            for served, into in ((tester, found[0]), (bare, found[1])):
                requests = signed(part, made, served.port, f"http://127.0.0.1:{tester.port}")
                before = served.cpu_s
                measured = upload(served.port, requests, connections)
                into.append((measured, served.cpu_s - before))
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


def measure_polling(folder: Path, agents: int, seconds: float) -> dict[str, float]:
    """CPU and memory of a tester at which so many agents poll."""
    made = make_uploads(1)
    database_url = f"sqlite:///{folder / 'polling.sqlite3'}"
    engine = create_engine(database_url)
    upgrade(engine, "tester")
    idle = fill(engine, made, agents)
    engine.dispose()
    file, port = write_tester(folder, made.tester, database_url)
    audience = f"http://127.0.0.1:{port}"

    def request_for(number: int) -> bytes:
        token = issue_token(idle[number], audience, int(time.time()))
        return request_bytes("GET", f"/v1/inbox?wait_s={WAIT_S}", port, token)

    with serving(port, "tester", "--config", str(file)) as served:
        empty_mb = served.memory_mb

        async def run() -> tuple[int, float, float]:
            settled = asyncio.Event()
            polling = asyncio.create_task(hold_polls(port, request_for, agents, seconds, settled))
            await settled.wait()
            before, started = served.cpu_s, time.perf_counter()
            answers = await polling
            return answers, served.cpu_s - before, time.perf_counter() - started

        answers, cpu_s, lasted_s = asyncio.run(run())
        return {
            "agents": agents,
            "seconds": lasted_s,
            "answers": answers,
            "cpu_percent": 100 * cpu_s / lasted_s,
            "memory_mb": served.memory_mb,
            "empty_mb": empty_mb,
        }


def best(rounds: list[tuple[Measured, float]]) -> tuple[Measured, float]:
    """Return the quickest round, and the least CPU of the server in milliseconds a request."""
    measured = max((found for found, _ in rounds), key=lambda found: found.rate)
    return measured, 1000 * min(cpu / m.requests for m, cpu in rounds)


def upload_rows(
    name: str, rounds: tuple[list[tuple[Measured, float]], list[tuple[Measured, float]]]
) -> list[str]:
    """Lines of the table of uploads, and the ratio."""
    (tester, tester_cpu), (bare, bare_cpu) = best(rounds[0]), best(rounds[1])
    lines = [
        f"| {name} | {who} | {found.rate:.0f} | {found.quantile_ms(0.5):.1f} | {found.quantile_ms(0.99):.1f} "
        f"| {cpu:.2f} |"
        for who, found, cpu in (("tester", tester, tester_cpu), ("bare handler", bare, bare_cpu))
    ]
    return [*lines, f"| {name} | ratio | {tester.rate / bare.rate:.2f} | | | {bare_cpu / tester_cpu:.2f} |"]


def page(
    uploads: list[str],
    polling: dict[str, float],
    chosen: argparse.Namespace,
    loads: tuple[float, float],
) -> str:
    """Return the page that is written; ``loads`` are the machine's load averages, before and after."""
    command = f"python -m benchmarks.load {options_of(chosen)}".strip()
    rounds, connections = chosen.rounds, chosen.connections
    return f"""# Load at the tester

Written by `{command}` (`make bench` runs it), on {os.cpu_count()} processors
whose load average was {loads[0]:.1f} before it began and {loads[1]:.1f} at the end. With other work on
the machine, rates and latencies say little; ratios and CPU time say more.

## Uploads

Signed releases of some two hundred numbers, each checked (token, party, signature, digest, form, shape,
noise) and stored durably before the answer; {connections} clients at a time. Beside it, in the same run and
with the same releases, a bare FastAPI handler that writes one row as durably, and checks nothing. The goal is
half of its rate. Each row is the best of {rounds} rounds, in which the two took turns.

| database | server | uploads a second | p50, ms | p99, ms | server's CPU, ms each |
|---|---|---|---|---|---|
{chr(10).join(uploads)}

## Agents that poll

{polling["agents"]:.0f} agents, each with a connection and a question that waits {WAIT_S} s:
over {polling["seconds"]:.0f} s the tester answered {polling["answers"]:.0f} polls,
used {polling["cpu_percent"]:.1f} % of one processor, and held {polling["memory_mb"]:.0f} MB
({polling["empty_mb"]:.0f} MB before they came).

[Ten thousand agents](long-polls.md) are measured by themselves.
"""


def options_of(chosen: argparse.Namespace) -> str:
    """Return the options that differ from their defaults, as they are given."""
    given = vars(chosen)
    return " ".join(f"--{name} {given[name]:g}" for name in DEFAULTS if given[name] != DEFAULTS[name])


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in DEFAULTS.items():
        parser.add_argument(f"--{name}", type=type(default), default=default)
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks/load.md"))
    chosen = parser.parse_args()
    sizes = (chosen.uploads, chosen.rounds, chosen.connections)
    load_before = os.getloadavg()[0]
    rows: list[str] = []
    with tempfile.TemporaryDirectory(prefix="tacit-load-") as name:
        folder = Path(name)
        sqlite = tuple(f"sqlite:///{folder / file}" for file in ("tester.sqlite3", "bare.sqlite3"))
        rows += upload_rows("SQLite", measure_uploads(folder, (sqlite[0], sqlite[1]), *sizes))
        print("\n".join(rows), flush=True)
        with postgres(folder) as url:
            rows += upload_rows("PostgreSQL", measure_uploads(folder, (url, url), *sizes))
        print("\n".join(rows[3:]), flush=True)
        polling = measure_polling(folder, chosen.agents, chosen.seconds)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    loads = (load_before, os.getloadavg()[0])
    chosen.out.write_text(page(rows, polling, chosen, loads))
    print(chosen.out.read_text())


if __name__ == "__main__":
    main()
