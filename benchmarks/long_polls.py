"""Agents that wait by the thousand: what each costs one tester in memory, and what waking them all costs.

``python -m benchmarks.long_polls`` measures and writes docs/benchmarks/long-polls.md.

One tester process, and the agents' sockets in another (benchmarks/long_polls_client.py). In each round every
agent asks for its inbox over its own connection; once all wait, by the tester's own count, the tester's
resident memory is read. Then studies are created that name every agent, each of which is answered, and the
studies are cancelled again. Memory is the kernel's count of the whole process; nothing is subtracted but what
it held before the first agent came.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.load import fill, make_uploads
from benchmarks.load_servers import Served, serving, write_tester
from benchmarks.two_sample import study_of_columns
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import OWNERS_MAX, CancellationMessage, Owner, Party
from tacit_protocol.procedures.base import canonical
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.signing.envelope import CANCELLATION_TYPE, STUDY_TYPE, digest, seal
from tacit_protocol.signing.keys import PrivateKey
from tacit_protocol.signing.tokens import issue_token
from tacit_services.shared.database import create_engine, upgrade

WAIT_S = 60
"""How long each question waits: the most that a tester allows."""

SETTLE_S_MAX = 300

WAITING_MIN = 0.95
"""Part of the agents that wait when memory is read: some are just asking again. It is divided among those."""

ANSWER_S_MAX = 300

SPARE = 50
"""Connections beyond the agents': the analyst's, and the benchmark's own questions."""

KIB_EACH_MAX, GIB_MAX = 80.0, 1.0
"""The goals: memory of a waiting agent, and of the process."""


@dataclass
class Round:
    """One round: all waited, then all were answered."""

    waiting: int
    """Agents that waited when memory was read; the others were just asking again."""
    waiting_kib: float
    """The process's memory then."""
    settled_s: float
    cpu_ms_each: float
    woken_s: float
    woken_cpu_s: float
    answered_kib: float


@dataclass
class Measured:
    """What was measured, in KiB of resident memory and in seconds."""

    agents: int
    empty_kib: float
    threads: int = 0
    refused: int = 0
    """Connections beyond ``connections_max`` that were answered 503 with ``Retry-After``."""
    rounds: list[Round] = field(default_factory=list)

    @property
    def kib_each(self) -> float:
        """Memory of one agent that waits, the worst of all rounds."""
        return max((found.waiting_kib - self.empty_kib) / found.waiting for found in self.rounds)

    @property
    def growth_kib_each(self) -> float:
        """How much more the last round took than the first, of each agent."""
        return (self.rounds[-1].waiting_kib - self.rounds[0].waiting_kib) / self.agents


class Agents:
    """The agents' process."""

    def __init__(self, port: int, audience: str, keys: list[PrivateKey]) -> None:
        command = [sys.executable, "-m", "benchmarks.long_polls_client"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        plan = {"port": port, "audience": audience, "keys": [key.to_pem().decode() for key in keys]}
        self._write(json.dumps(plan))

    def do(self, command: str) -> dict[str, Any]:
        """Send one command and return its report."""
        self._write(command)
        assert self._process.stdout is not None
        report: dict[str, Any] = json.loads(self._process.stdout.readline())
        return report

    def close(self) -> None:
        """End the process."""
        self._write("close")
        self._process.communicate(timeout=60)

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


class Analyst:
    """Creates and cancels studies that name every agent."""

    def __init__(self, url: str, tester: PrivateKey, key: PrivateKey) -> None:
        self._url, self._tester, self._key = url, tester, key
        self._http = httpx.Client(base_url=url, trust_env=False, timeout=120)

    def create(self, agents: list[PrivateKey], title: str) -> list[str]:
        """Create as few studies as name all of them; returns the digests."""
        found, now = [], int(time.time())
        for first in range(0, len(agents), OWNERS_MAX):
            owners = tuple(
                Owner(name=f"idle-{first + i:05d}", key=key.public_hex, data_set="rows")
                for i, key in enumerate(agents[first : first + OWNERS_MAX])
            )
            study = study_of_columns(2, (0.0, 1.0), {}, epsilon=1.0, run=first).model_copy(
                update={
                    "owners": owners,
                    "tester": Party(name="tester", key=self._tester.public_hex),
                    "analyst": Party(name="analyst", key=self._key.public_hex),
                    "created_at": now,
                    "deadline": now + 86_400,
                    "title": f"{title}, {first}",
                }
            )
            payload = encode(canonical(procedure_named(study.procedure), study))
            self._put(f"/v1/studies/{digest(payload)}", seal(payload, STUDY_TYPE, self._key))
            found.append(digest(payload))
        return found

    def cancel(self, studies: list[str]) -> None:
        """Withdraw them, so that no inbox holds anything."""
        for study in studies:
            envelope = seal(encode(CancellationMessage(study=study)), CANCELLATION_TYPE, self._key)
            self._put(f"/v1/studies/{study}/cancellation", envelope)

    def waiting(self) -> int:
        """Return the tester's own count of those who wait."""
        lines = self._http.get("/metrics").raise_for_status().text.splitlines()
        return int(
            float(next(line.split()[1] for line in lines if line.startswith("tacit_tester_polls_waiting ")))
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _put(self, path: str, content: bytes) -> None:
        token = issue_token(self._key, self._url, int(time.time()))
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._http.put(path, content=content, headers=headers).raise_for_status()


@contextmanager
def polled_tester(folder: Path, agents: int) -> Iterator[tuple[Served, Agents, Analyst, list[PrivateKey]]]:
    """Run a tester that allows so many agents, and the agents' process, not yet connected."""
    made = make_uploads(1)
    database_url = f"sqlite:///{folder / 'polls.sqlite3'}"
    engine = create_engine(database_url)
    upgrade(engine, "tester")
    keys = fill(engine, made, agents)
    engine.dispose()
    file, port = write_tester(folder, made.tester, database_url)
    with file.open("a") as settings:
        settings.write(f'connections_max = {agents + SPARE}\nlog_level = "ERROR"\n')
    url = f"http://127.0.0.1:{port}"
    with serving(port, "tester", "--config", str(file)) as served:
        clients, analyst = Agents(port, url, keys), Analyst(url, made.tester, made.analyst)
        try:
            yield served, clients, analyst, keys
        finally:
            analyst.close()
            clients.close()


def measure(folder: Path, agents: int, rounds: int) -> Measured:
    """Measure so many agents for so many rounds.

    Raises:
        RuntimeError: not all of them waited at once, or not all were answered with their study.
    """
    with polled_tester(folder, agents) as (served, clients, analyst, keys):
        found = Measured(agents, 1024 * served.memory_mb)
        for number in range(rounds):
            found.rounds.append(_one_round(served, clients, analyst, keys, f"round {number}"))
            found.threads = max(found.threads, served.threads)
        found.refused = refusals(served.port, keys[: 2 * SPARE])
    return found


def _one_round(
    served: Served, clients: Agents, analyst: Analyst, keys: list[PrivateKey], title: str
) -> Round:
    before_s, started = served.cpu_s, time.monotonic()
    clients.do(f"ask {WAIT_S}")
    while (waiting := analyst.waiting()) < WAITING_MIN * len(keys):
        if time.monotonic() > started + SETTLE_S_MAX:
            raise RuntimeError("the agents did not come to wait: the machine is too slow or too busy")
        time.sleep(0.2)
    asked = clients.do("wait 0 0")["asked"]
    settled_s, settled_cpu_s = time.monotonic() - started, served.cpu_s
    waiting_kib = 1024 * served.memory_mb
    woken = time.monotonic()
    studies = analyst.create(keys, title)
    report = clients.do(f"wait {len(keys)} {ANSWER_S_MAX}")
    if report["with_study"] != len(keys) or report["closed"] or report["faults"]:
        raise RuntimeError(f"of {len(keys)} agents {report['with_study']} were answered: {report}")
    result = Round(
        waiting,
        waiting_kib,
        settled_s,
        1000 * (settled_cpu_s - before_s) / asked,
        report["last_s"] - woken,
        served.cpu_s - settled_cpu_s,
        1024 * served.memory_mb,
    )
    analyst.cancel(studies)
    print(title, result, flush=True)
    return result


def refusals(port: int, keys: list[PrivateKey]) -> int:
    """Open one more connection for each of these keys, and ask; return how many were told to come later.

    They ask as known callers do: others would give way to one another.
    """
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None)
    refused, clients = 0, []
    try:
        for key in keys:
            client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, limits=limits)
            clients.append(client)
            token = issue_token(key, f"http://127.0.0.1:{port}", int(time.time()))
            answer = client.get("/v1/parties", timeout=60, headers={"Authorization": f"Bearer {token}"})
            refused += answer.status_code == 503 and int(answer.headers["Retry-After"]) > 0
    finally:
        for client in clients:
            client.close()
    return refused


def page(found: Measured, command: str, loads: tuple[float, float]) -> str:
    """Return the page that is written; ``loads`` are the machine's load averages, before and after."""
    agents, total_gib = found.agents, max(r.waiting_kib for r in found.rounds) / 2**20
    met = "met" if found.kib_each <= KIB_EACH_MAX and total_gib <= GIB_MAX else "missed"
    rows = "\n".join(
        f"| {number} | {r.waiting} | {r.settled_s:.1f} | {r.cpu_ms_each:.2f} | {r.waiting_kib / 1024:.0f} "
        f"| {(r.waiting_kib - found.empty_kib) / r.waiting:.1f} | {r.woken_s:.1f} | {r.woken_cpu_s:.1f} "
        f"| {r.answered_kib / 1024:.0f} |"
        for number, r in enumerate(found.rounds, 1)
    )
    return f"""# Long polls

Written by `{command}` (`make bench` runs it), on {os.cpu_count()} processors whose
load average was {loads[0]:.1f} before it began and {loads[1]:.1f} at the end: times are those of a machine
that did other work as well; memory is not touched by that.

{agents} agents wait at one tester process, each over its own connection from another process. It holds
{found.empty_kib / 1024:.0f} MiB before they come. **A waiting agent takes {found.kib_each:.1f} KiB** of the
tester's memory; all of them and the tester together {total_gib:.2f} GiB.
The goal, at most {KIB_EACH_MAX:.0f} KiB each and {GIB_MAX:.0f} GiB in all, is {met}.
TLS in the tester itself would add to every connection
([how much](../security/attacks.md#denial-of-service)), and is not in these figures. The kernel's own
buffers of a socket are not the process's memory and not counted.

In each round all ask, and ask again after {WAIT_S} s as agents do; once {100 * WAITING_MIN:.0f} of 100
wait at one moment, memory is read and divided among those; then studies are created that name all of
them, a thousand agents each, and every agent is answered. "Woken" is from the first study's creation to
the last agent's answer, the creation of {-(-agents // OWNERS_MAX)} studies included.

| round | waiting | after, s | CPU ms each | memory, MiB | KiB each | woken, s | woken, CPU s | after, MiB |
|---|---|---|---|---|---|---|---|---|
{rows}

The last round took {found.growth_kib_each:+.2f} KiB an agent more than the first.
Each round's {-(-agents // OWNERS_MAX)} studies of a thousand owners stay in the tester's
cache of parsed studies, 1.2 MiB each and 128 at most: that is most of it.

The process had at most {found.threads} threads: waiting takes none, and no connection of the database
either. While they wait, one query a second looks for news; where there is some, one task looks into 500
inboxes a query, one query at a time. Agents that find nothing are not woken.

Of {2 * SPARE} more connections of known callers, {found.refused} were answered 503 with `Retry-After`; the
others were the first, for which there was still room.
"""


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks/long-polls.md"))
    chosen = parser.parse_args()
    options = [
        f"--{name} {value}"
        for name, value in vars(chosen).items()
        if name != "out" and value != parser.get_default(name)
    ]
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="tacit-polls-") as name:
        found = measure(Path(name), chosen.agents, chosen.rounds)
    command = " ".join(["python -m benchmarks.long_polls", *options])
    chosen.out.write_text(page(found, command, (before, os.getloadavg()[0])))
    print(chosen.out.read_text())


if __name__ == "__main__":
    main()
