"""Kill an agent at steps of its work and start it again: one debit, one release, the same bytes.

The agent is a real process on a real database, killed with SIGKILL; the tester is reached over HTTP and
remembers every body it was ever sent. The kill is asked for by the environment variable, as an operator's own
test would; test_kill_sweep.py kills agent and tester together, at every step alone and at pairs of steps.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import agent_process
import pytest
import sqlalchemy as sa
from agent_fakes import FakeTester, World
from forked_python import ForkedProcess, forked_python
from long_runs import choose

from tacit_services.agent.schema import OUTBOX, STUDIES
from tacit_services.ledger.verification import export, verify
from tacit_services.shared.database import create_engine, run_transaction
from tacit_services.shared.failpoints import VARIABLE, AgentStep

pytestmark = pytest.mark.long

Result = TypeVar("Result")

PATIENCE_S = 180.0
"""How long an agent may take for one study; it takes about two seconds on an idle machine."""

STEPS = choose(list(AgentStep)[::3], list(AgentStep))
"""Where a whole process is killed, one after the other: each start takes it seconds of imports. Forked ones
are killed at every step, in test_kill_sweep.py."""

SCRIPT = str(Path(agent_process.__file__))


@dataclass
class Case:
    """One agent, stopped; its configuration, database and tester."""

    config: Path
    database_url: str
    tester: FakeTester
    study: str
    log: Path

    @contextmanager
    def running(
        self, failpoint: str | None, planted: str | None = None
    ) -> "Iterator[subprocess.Popen[bytes] | ForkedProcess]":
        """Start the agent, forked where it has a mistake; it is killed on leaving if it still runs."""
        environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
        if failpoint is not None:
            environment[VARIABLE] = failpoint
        command = [SCRIPT, str(self.config), *([planted] if planted else [])]
        process: subprocess.Popen[bytes] | ForkedProcess
        with self.log.open("ab") as log:
            if planted:
                process = forked_python().start(command, environment=environment, stdout=log, stderr=log)
            else:
                process = subprocess.Popen([sys.executable, *command], env=environment, stderr=log)
            try:
                yield process
            finally:
                process.kill()
                process.wait(PATIENCE_S)

    def die_at(self, step: str, planted: str | None = None) -> None:
        """Start the agent and wait until it kills itself at that step."""
        with self.running(step, planted) as process:
            assert process.wait(PATIENCE_S) == -signal.SIGKILL, self.log.read_text()

    def finish(self, planted: str | None = None) -> None:
        """Start the agent and wait until nothing is left to do for the study."""
        with self.running(None, planted) as process:
            until = time.monotonic() + PATIENCE_S
            while not self.is_settled():
                assert process.poll() is None, self.log.read_text()
                assert time.monotonic() < until, self.log.read_text()
                time.sleep(0.05)

    def is_settled(self) -> bool:
        """Whether the study's outbox row exists and is closed."""

        def read(connection: sa.Connection) -> bool:
            query = OUTBOX.select().where(OUTBOX.c.closed_at.is_not(None))
            return connection.execute(query).first() is not None

        return self.read(read)

    def read(self, work: Callable[[sa.Connection], Result]) -> Result:
        engine = create_engine(self.database_url)
        try:
            return run_transaction(engine, work, read_only=True)
        finally:
            engine.dispose()

    def faults(self) -> list[str]:
        """Return what is wrong after the agent has finished: the one check of every test here."""
        found = []
        self.read(verify)
        debits = [entry for entry in self.read(export) if entry["kind"] == "debit"]
        if [entry["study"] for entry in debits] != [self.study]:
            found.append(f"{len(debits)} debits")
        outbox = self.read(lambda c: c.execute(OUTBOX.select()).all())
        if [row.kind for row in outbox] != ["release"]:
            found.append("the outbox does not hold exactly one release")
        bodies = {body for _, kind, body in self.tester.received if kind == "releases"}
        if bodies != {row.envelope for row in outbox if row.kind == "release"}:
            found.append(f"the tester saw {len(bodies)} different releases, or another than the outbox holds")
        states = self.read(lambda c: c.execute(sa.select(STUDIES.c.state)).scalars().all())
        if list(states) != ["sent"]:
            found.append("the study is not recorded as sent")
        return found


@contextmanager
def case(folder: Path, database_url: str | None = None) -> Iterator[Case]:
    world, tester = World(folder), FakeTester()
    study = world.ask(tester, world.study())
    url = database_url or f"sqlite:///{folder / 'agent.sqlite3'}"
    with tester.serving() as address:
        config = world.write(address, agent=f'database_url = "{url}"')
        yield Case(config, url, tester, study, folder / "log")


@pytest.mark.slow
def test_killed_at_one_step_after_the_other(tmp_path: Path) -> None:
    with case(tmp_path) as agent:
        for step in STEPS:
            agent.die_at(step.value)
        agent.finish()
        assert agent.faults() == []


@pytest.mark.slow
def test_a_debit_outside_the_transaction_would_be_caught(tmp_path: Path) -> None:
    with case(tmp_path) as agent:
        agent.die_at(AgentStep.NOISE_DRAWN.value, planted="debit-outside")
        agent.finish(planted="debit-outside")
        assert "the outbox does not hold exactly one release" in agent.faults()


@pytest.mark.slow
def test_sending_before_storing_would_be_caught(tmp_path: Path) -> None:
    with case(tmp_path) as agent:
        agent.die_at(AgentStep.DEBITED.value, planted="send-before-storing")
        agent.finish(planted="send-before-storing")
        assert any("different releases" in fault for fault in agent.faults())
