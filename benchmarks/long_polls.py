"""Agents that wait by the thousand: what each costs one tester in memory, and what waking them all costs.

``python -m benchmarks.long_polls`` measures and writes docs/benchmarks/long-polls.md.

One tester process, and the agents' sockets in another (benchmarks/long_polls_client.py). In each round every
agent asks for its inbox over its own connection; once all wait, by the tester's own count, the tester's
resident memory is read. Then studies are created that name every agent, each of which is answered, and the
studies are cancelled again. Memory is the kernel's count of the whole process; nothing is subtracted but what
it held before the first agent came.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.harness import options, table, write_page
from benchmarks.load import Uploads, enrolled, make_uploads
from benchmarks.load_servers import Served, serving
from benchmarks.problems import study_of_columns
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import OWNERS_MAX, CancellationMessage, Owner
from tacit_protocol.signing.envelope import CANCELLATION_TYPE, seal
from tacit_protocol.signing.keys import PrivateKey
from tacit_protocol.signing.tokens import issue_token

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

    def __init__(self, url: str, made: Uploads) -> None:
        self._url, self._made, self._key = url, made, made.analyst
        self._http = httpx.Client(base_url=url, trust_env=False, timeout=120)

    def create(self, agents: list[PrivateKey], title: str) -> list[str]:
        """Create as few studies as name all of them; returns the digests."""
        found = []
        for first in range(0, len(agents), OWNERS_MAX):
            owners = tuple(
                Owner(name=f"idle-{first + i:05d}", key=key.public_hex, data_set="rows")
                for i, key in enumerate(agents[first : first + OWNERS_MAX])
            )
            plain = study_of_columns(2, (0.0, 1.0), {}, epsilon=1.0, run=first)
            study, envelope = self._made.sealed(self._made.dated(plain, owners, f"{title}, {first}"))
            self._put(f"/v1/studies/{study}", envelope)
            found.append(study)
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
    settings = f'connections_max = {agents + SPARE}\nlog_level = "ERROR"\n'
    file, port, keys = enrolled(folder, f"sqlite:///{folder / 'polls.sqlite3'}", made, agents, settings)
    url = f"http://127.0.0.1:{port}"
    with serving(port, "tester", "--config", str(file)) as served:
        clients, analyst = Agents(port, url, keys), Analyst(url, made)
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
    refused = 0
    with ExitStack() as stack:
        for key in keys:
            client = httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False)
            token = issue_token(key, f"http://127.0.0.1:{port}", int(time.time()))
            headers = {"Authorization": f"Bearer {token}"}
            answer = stack.enter_context(client).get("/v1/parties", timeout=60, headers=headers)
            refused += answer.status_code == 503 and int(answer.headers["Retry-After"]) > 0
    return refused


def parts(found: Measured) -> dict[str, str]:
    """Write the figures of the page."""
    total_gib = max(r.waiting_kib for r in found.rounds) / 2**20
    rows = {
        str(number): {
            "waiting": str(r.waiting),
            "after, s": f"{r.settled_s:.1f}",
            "CPU ms each": f"{r.cpu_ms_each:.2f}",
            "memory, MiB": f"{r.waiting_kib / 1024:.0f}",
            "KiB each": f"{(r.waiting_kib - found.empty_kib) / r.waiting:.1f}",
            "woken, s": f"{r.woken_s:.1f}",
            "woken, CPU s": f"{r.woken_cpu_s:.1f}",
            "after, MiB": f"{r.answered_kib / 1024:.0f}",
        }
        for number, r in enumerate(found.rounds, 1)
    }
    return {
        "processors": str(os.cpu_count()),
        "agents": str(found.agents),
        "empty MiB": f"{found.empty_kib / 1024:.0f}",
        "KiB each": f"{found.kib_each:.1f}",
        "GiB": f"{total_gib:.2f}",
        "goal": "met" if found.kib_each <= KIB_EACH_MAX and total_gib <= GIB_MAX else "missed",
        "rounds": table(rows, "round"),
        "growth": f"{found.growth_kib_each:+.2f}",
        "threads": str(found.threads),
        "refused": str(found.refused),
    }


def main() -> None:
    """Measure, and write the page."""
    chosen = options(__doc__, agents=10_000, rounds=3)
    loads = {"load before": f"{os.getloadavg()[0]:.1f}"}
    with tempfile.TemporaryDirectory(prefix="tacit-polls-") as name:
        found = measure(Path(name), chosen.agents, chosen.rounds)
    loads["load after"] = f"{os.getloadavg()[0]:.1f}"
    print(found)
    write_page("long-polls", parts(found) | loads, chosen.folder)


if __name__ == "__main__":
    main()
