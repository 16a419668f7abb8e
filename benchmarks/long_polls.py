"""Agents that wait by the thousand: what each costs one tester in memory, and what waking them all costs.

``python -m benchmarks.long_polls`` measures and writes docs/benchmarks/long-polls.md.

One tester process, and the agents' sockets in another. In each round every
agent asks for its inbox over its own connection; once all wait, by the tester's own count, the tester's
resident memory is read. Then studies are created that name every agent, each of which is answered, and the
studies are cancelled again. Memory is the kernel's count of the whole process; nothing is subtracted but what
it held before the first agent came.
"""

import asyncio
import multiprocessing
import os
import resource
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import httpx

from benchmarks.harness import options, table, write_page
from benchmarks.problems import study_of_columns
from benchmarks.servers import (
    TIMEOUT_S,
    Served,
    Uploads,
    enrolled,
    make_uploads,
    put,
    request_bytes,
    serving,
    tester_command,
)
from tacit import Client
from tacit_protocol.messages.study import OWNERS_MAX, Owner
from tacit_protocol.signing import PrivateKey, issue_token

WAIT_S = 60
"""How long each question waits: the most that a tester allows."""

SETTLE_S_MAX = 300

WAITING_MIN = 0.95
"""Part of the agents that wait when memory is read: some are just asking again. It is divided among those."""

ANSWER_S_MAX = 300

ONSET_S = 0.0005
"""Between two questions: two thousand a second at most."""

FILES_SPARE = 64

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


@dataclass
class Answers:
    """What the agents asked and were answered, of one ``ask``."""

    asked: int = 0
    with_study: int = 0
    last_s: float = 0.0
    closed: int = 0
    faults: Counter[int] = field(default_factory=Counter)
    """Answers that were no inbox, by status."""


class Agent(asyncio.Protocol):
    """One agent's connection, read without the weight of streams."""

    def __init__(self, key: PrivateKey, port: int) -> None:
        self._key, self._port = key, port
        self._received, self._wait_s = b"", 0
        self._answers = Answers()
        self._transport: asyncio.Transport

    def ask(self, wait_s: int, answers: Answers) -> None:
        """Ask for the inbox, as often as it takes."""
        self._wait_s, self._answers = wait_s, answers
        token = issue_token(self._key, f"http://127.0.0.1:{self._port}", int(time.time()))
        path = f"/v1/inbox?wait_s={wait_s}"
        self._transport.write(request_bytes("GET", path, self._port, token))
        answers.asked += 1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Note an answer once it is whole; ask again where the inbox was empty."""
        self._received += data
        head, end, body = self._received.partition(b"\r\n\r\n")
        if not end:
            return
        lengths = [line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        if len(body) < int(lengths[0]):
            return
        self._received = b""
        if not head.startswith(b"HTTP/1.1 200"):
            self._answers.faults[int(head[9:12])] += 1
        elif b'"digest"' in body:
            self._answers.with_study += 1
            self._answers.last_s = time.monotonic()
        else:
            self.ask(self._wait_s, self._answers)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Note that it is gone."""
        self._answers.closed += 1

    def close(self) -> None:
        """Hang up."""
        self._transport.close()


async def serve_agents(port: int, pems: list[bytes], commands: Connection) -> None:
    """Do what is asked for, with so many sockets, until the command is None.

    ``ask, W``: every agent connects, unless it is, and asks for its inbox, to wait W seconds, and asks again
    whenever that is over, until a study is in it. ``wait, K, S``: up to S seconds, until K agents have had a
    study. Each is answered by how many have, how often they asked, and when the last one was answered.
    """
    loop, agents, answers = asyncio.get_running_loop(), list[Agent](), Answers()
    keys = [PrivateKey.from_pem(pem) for pem in pems]
    while (command := await loop.run_in_executor(None, commands.recv)) is not None:
        name, *values = command
        end_s = time.monotonic() + values[-1]
        if name == "ask":
            answers = Answers()
            for number, key in enumerate(keys):
                if number == len(agents):  # who connects and asks nothing is hung up on
                    made = await loop.create_connection(partial(Agent, key, port), "127.0.0.1", port)
                    agents.append(made[1])
                agents[number].ask(values[0], answers)
                await asyncio.sleep(ONSET_S)
        while name == "wait" and answers.with_study < values[0] and time.monotonic() < end_s:
            await asyncio.sleep(0.01)
        commands.send(answers)
    for agent in agents:
        agent.close()


def be_agents(port: int, pems: list[bytes], commands: Connection) -> None:
    """Serve the agents in a process of their own, with as many files as that takes."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = len(pems) + FILES_SPARE
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard) if hard >= 0 else wanted, hard))
    asyncio.run(serve_agents(port, pems, commands))


class Agents:
    """The agents' process."""

    def __init__(self, port: int, keys: list[PrivateKey]) -> None:
        context = multiprocessing.get_context("spawn")
        self._commands, theirs = context.Pipe()
        pems = [key.to_pem() for key in keys]
        self._process = context.Process(target=be_agents, args=(port, pems, theirs), daemon=True)
        self._process.start()

    def do(self, *command: object) -> Answers:
        """Send one command and return its report."""
        self._commands.send(command)
        report: Answers = self._commands.recv()
        return report

    def close(self) -> None:
        """End the process."""
        self._commands.send(None)
        self._process.join(60)


def create(url: str, made: Uploads, agents: list[PrivateKey], title: str) -> list[str]:
    """Create as few studies as name all of the agents; returns the digests."""
    found = []
    for first in range(0, len(agents), OWNERS_MAX):
        owners = tuple(
            Owner(name=f"idle-{first + i:05d}", key=key.public_hex, data_set="rows")
            for i, key in enumerate(agents[first : first + OWNERS_MAX])
        )
        plain = study_of_columns(2, (0.0, 1.0), {}, epsilon=1.0, run=first)
        study, envelope = made.sealed(made.dated(plain, owners, f"{title}, {first}"))
        put(url, made.analyst, f"/v1/studies/{study}", envelope)
        found.append(study)
    return found


def waiting_at(url: str) -> int:
    """Return the tester's own count of those who wait."""
    lines = (
        httpx.get(f"{url}/metrics", trust_env=False, timeout=TIMEOUT_S).raise_for_status().text.splitlines()
    )
    return int(
        float(next(line.split()[1] for line in lines if line.startswith("tacit_tester_polls_waiting ")))
    )


@contextmanager
def polled_tester(folder: Path, agents: int) -> Iterator[tuple[Served, Agents, Uploads, list[PrivateKey]]]:
    """Run a tester that allows so many agents, and the agents' process, not yet connected."""
    made = make_uploads(1)
    settings = f'connections_max = {agents + SPARE}\nlog_level = "ERROR"\n'
    file, port, keys = enrolled(folder, f"sqlite:///{folder / 'polls.sqlite3'}", made, agents, settings)
    with serving(port, tester_command(file)) as served:
        clients = Agents(port, keys)
        try:
            yield served, clients, made, keys
        finally:
            clients.close()


def measure(folder: Path, agents: int, rounds: int) -> Measured:
    """Measure so many agents for so many rounds.

    Raises:
        RuntimeError: not all of them waited at once, or not all were answered with their study.
    """
    with polled_tester(folder, agents) as (served, clients, made, keys):
        found = Measured(agents, 1024 * served.memory_mb)
        for number in range(rounds):
            found.rounds.append(_one_round(served, clients, made, keys, f"round {number}"))
            found.threads = max(found.threads, served.threads)
        found.refused = refusals(served.port, keys[: 2 * SPARE])
    return found


def _one_round(served: Served, clients: Agents, made: Uploads, keys: list[PrivateKey], title: str) -> Round:
    url, before_s, started = f"http://127.0.0.1:{served.port}", served.cpu_s, time.monotonic()
    clients.do("ask", WAIT_S)
    while (waiting := waiting_at(url)) < WAITING_MIN * len(keys):
        if time.monotonic() > started + SETTLE_S_MAX:
            raise RuntimeError("the agents did not come to wait: the machine is too slow or too busy")
        time.sleep(0.2)
    asked = clients.do("wait", 0, 0).asked
    settled_s, settled_cpu_s = time.monotonic() - started, served.cpu_s
    waiting_kib = 1024 * served.memory_mb
    woken = time.monotonic()
    studies = create(url, made, keys, title)
    report = clients.do("wait", len(keys), ANSWER_S_MAX)
    if report.with_study != len(keys) or report.closed or report.faults:
        raise RuntimeError(f"of {len(keys)} agents {report.with_study} were answered: {report}")
    result = Round(
        waiting,
        waiting_kib,
        settled_s,
        1000 * (settled_cpu_s - before_s) / asked,
        report.last_s - woken,
        served.cpu_s - settled_cpu_s,
        1024 * served.memory_mb,
    )
    with Client(url, made.analyst) as analyst:
        for study in studies:
            analyst.cancel(study)
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
