"""Kill the agent and the tester at every step, and at every pair of steps, and start them again.

SIGKILL to real processes, on SQLite and PostgreSQL (support/kill_sweep_process.py). Afterwards: one debit,
one release whose bytes alone were ever sent, the verdict reached, and a transcript that verifies.
"""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from itertools import combinations_with_replacement, product
from pathlib import Path
from typing import Any

import kill_sweep_process
import psycopg
import pytest
from long_runs import LONG

from tacit_services.agent.steps import Step as AgentStep
from tacit_services.tester.steps import Step as TesterStep

AGENT, TESTER = [step.value for step in AgentStep], [step.value for step in TesterStep]
STEPS = [*TESTER[:7], *AGENT, *TESTER[7:]]
"""In the order of a study, as nearly as two parties have one."""

SAMPLED = 4
"""One in so many of the pairs that are sampled in the usual run. The long run takes every ordered pair."""


def pairs_of(engine: str) -> list[tuple[str, str]]:
    """Return the pairs of steps to kill at: on SQLite every pair of the agent's steps, and a sample else."""
    if LONG:
        return list(product(STEPS, STEPS))
    pairs = list(combinations_with_replacement(STEPS, 2))
    agents = [pair for pair in pairs if set(pair) <= set(AGENT)]
    others = [pair for pair in pairs if not set(pair) <= set(AGENT)]
    if engine == "sqlite":
        return agents + others[::SAMPLED]
    return agents[1::SAMPLED] + others[1 :: 3 * SAMPLED]


class Sweep:
    """The supervisor, one case at a time."""

    def __init__(self, folder: Path, agent_url: str, tester_url: str) -> None:
        command = [sys.executable, str(Path(kill_sweep_process.__file__)), str(folder), agent_url, tester_url]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # a fork must not lose a library's threads
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def run(self, *plan: str, planted: str | None = None) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"plan": plan, "planted": planted}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, self.log.read_text()
        outcome: dict[str, Any] = json.loads(line)
        return outcome

    def close(self) -> None:
        self._process.communicate(timeout=60)


@pytest.fixture(scope="module")
def sqlite_sweep(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sweep]:
    folder = tmp_path_factory.mktemp("sweep")
    sweep = Sweep(folder, f"sqlite:///{folder / 'agent.sqlite3'}", f"sqlite:///{folder / 'tester.sqlite3'}")
    yield sweep
    sweep.close()


@pytest.fixture(scope="module")
def postgresql_sweep(tmp_path_factory: pytest.TempPathFactory, postgres_server: str) -> Iterator[Sweep]:
    names = [f"sweep_{uuid.uuid4().hex}" for _ in range(2)]
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE DATABASE {name}".encode())
    urls = [postgres_server.replace("/postgres?", f"/{name}?") for name in names]
    sweep = Sweep(tmp_path_factory.mktemp("sweep"), *urls)
    yield sweep
    sweep.close()
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@pytest.fixture
def sweep(request: pytest.FixtureRequest, engine: str) -> Sweep:
    found: Sweep = request.getfixturevalue(f"{engine}_sweep")
    return found


def must_both_kill(first: str, second: str) -> bool:
    """Whether both kills must have happened: steps of one party, the second after the first."""
    return any(
        first in order and second in order and order.index(first) < order.index(second)
        for order in (AGENT, TESTER)
    )


ENGINES = pytest.mark.parametrize("engine", ["sqlite", "postgresql"])


@ENGINES
@pytest.mark.parametrize("step", STEPS)
def test_killed_at_a_step(sweep: Sweep, step: str) -> None:
    assert sweep.run(step) == {"kills": 1, "faults": []}, sweep.log.read_text()


def run_pairs(sweep: Sweep, pairs: Sequence[tuple[str, str]]) -> None:
    wrong = {}
    for pair in pairs:
        outcome = sweep.run(*pair)
        if outcome["faults"] or outcome["kills"] < 1 + must_both_kill(*pair):
            wrong[pair] = outcome
    assert wrong == {}, sweep.log.read_text()


@ENGINES
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_killed_at_pairs_of_steps(sweep: Sweep, engine: str) -> None:
    run_pairs(sweep, pairs_of(engine))


PLANTED = {
    "debit-outside": (AgentStep.NOISE_DRAWN.value, "the outbox does not hold exactly one delivered release"),
    "send-before-storing": (AgentStep.DEBITED.value, "other releases than the stored one were sent"),
    "job-deleted-when-leased": (TesterStep.JOB_LEASED.value, "the agent did not get its verdict"),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_caught(sqlite_sweep: Sweep, mistake: str) -> None:
    step, fault = PLANTED[mistake]
    assert fault in sqlite_sweep.run(step, planted=mistake)["faults"]
