"""The agents of the long-poll benchmark, in a process of their own: so many sockets, one question on each.

It reads one command a line and answers each with one line of JSON:

``ask W``: every agent connects, unless it is, and asks for its inbox, to wait W seconds, and asks again
whenever that is over, until a study is in it. ``wait K S``: up to S seconds, until K agents
have had a study; says how many have, how often they asked, and when the last one was answered. ``close``:
ends the process.
"""

import asyncio
import json
import resource
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TypedDict

from benchmarks.load_servers import request_bytes
from tacit_protocol.signing.keys import PrivateKey
from tacit_protocol.signing.tokens import issue_token

ONSET_S = 0.0005
"""Between two questions: two thousand a second at most."""

FILES_SPARE = 64


class Plan(TypedDict):
    """Whom to call, as whom: the first line of standard input."""

    port: int
    audience: str
    keys: list[str]
    """Private keys, PEM."""


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

    def __init__(self, key: PrivateKey, plan: Plan) -> None:
        self._key, self._plan = key, plan
        self._received, self._wait_s = b"", ""
        self._answers = Answers()
        self._transport: asyncio.Transport

    def ask(self, wait_s: str, answers: Answers) -> None:
        """Ask for the inbox, as often as it takes."""
        self._wait_s, self._answers = wait_s, answers
        token = issue_token(self._key, self._plan["audience"], int(time.time()))
        path = f"/v1/inbox?wait_s={wait_s}"
        self._transport.write(request_bytes("GET", path, self._plan["port"], token))
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


async def serve_commands(plan: Plan) -> None:
    """Do what standard input says, line by line."""
    loop = asyncio.get_running_loop()
    keys = [PrivateKey.from_pem(pem.encode()) for pem in plan["keys"]]
    agents: list[Agent] = []
    answers = Answers()
    while line := (await loop.run_in_executor(None, sys.stdin.readline)).split():
        command, *values = line
        started_s = time.monotonic()
        if command == "ask":
            answers = Answers()
            for number, key in enumerate(keys):
                if number == len(agents):  # who connects and asks nothing is hung up on
                    made = await loop.create_connection(partial(Agent, key, plan), "127.0.0.1", plan["port"])
                    agents.append(made[1])
                agents[number].ask(values[0], answers)
                await asyncio.sleep(ONSET_S)
        elif command == "wait":
            while answers.with_study < int(values[0]) and time.monotonic() < started_s + float(values[1]):
                await asyncio.sleep(0.01)
        else:
            break
        sys.stdout.write(json.dumps(asdict(answers)) + "\n")
        sys.stdout.flush()
    for agent in agents:
        agent.close()


def main() -> None:
    """Read the plan, then commands."""
    plan: Plan = json.loads(sys.stdin.readline())
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = len(plan["keys"]) + FILES_SPARE
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard) if hard >= 0 else wanted, hard))
    asyncio.run(serve_commands(plan))


if __name__ == "__main__":
    main()
