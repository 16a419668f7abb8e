"""An agent in this process that a hostile tester talks to, and what the attacks look at afterwards."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from agent_fakes import FAKES, FakeTester, World

from tacit_protocol.privacy.noise import NoiseSource, OpenDPNoise
from tacit_protocol.procedures.base import Procedure
from tacit_services.agent.agent import Agent
from tacit_services.agent.policy import Policy
from tacit_services.agent.releases import Dependencies
from tacit_services.agent.settings import AgentSettings
from tacit_services.agent.studies import StudyRow, study_row
from tacit_services.agent.tester_client import TesterClient
from tacit_services.ledger.accounts import standing_of
from tacit_services.ledger.verification import export, verify
from tacit_services.shared.database import create_engine, run_transaction, upgrade

NOW = 10_000


@dataclass
class Clock:
    """A clock that a test turns by hand."""

    now: float = NOW

    def __call__(self) -> float:
        return self.now


class AttackedAgent:
    """One agent, its fake tester, its clock, and the names of the data sets that were touched, in order."""

    def __init__(
        self,
        folder: Path,
        world: World | None = None,
        procedures: Mapping[str, Procedure] = FAKES,
        transport: httpx.BaseTransport | None = None,
        noise: NoiseSource | None = None,
        **written: str,
    ) -> None:
        self.world = World(folder) if world is None else world
        self.world.folder = folder
        self.tester, self.clock, self.opened = FakeTester(), Clock(), list[str]()
        settings = AgentSettings.load(self.world.write("http://tester", **written))
        engine = create_engine(settings.database_url)
        upgrade(engine, "agent")
        client = TesterClient(
            "http://tester",
            "http://tester",
            self.world.agent,
            self.clock,
            lambda _: None,
            transport=transport or self.tester.transport(),
        )
        self.agent = Agent(
            settings,
            Policy.load(settings.policy_file),
            self.world.agent,
            procedures,
            Dependencies(engine, client, noise or OpenDPNoise(), self.clock),
        )
        self.agent.open_accounts()

    def turn(self) -> None:
        """Let the agent ask, run and send once."""
        self.agent.poll(0)
        self.agent.work()

    def row(self, study_digest: str) -> StudyRow:
        """Return what the agent recorded of a study."""
        row = run_transaction(self.agent.engine, lambda c: study_row(c, study_digest), read_only=True)
        assert row is not None
        return row

    def debits(self) -> list[dict[str, Any]]:
        """Return the debits of a ledger that verifies."""
        run_transaction(self.agent.engine, verify, read_only=True)
        entries = run_transaction(self.agent.engine, export, read_only=True)
        return [entry for entry in entries if entry["kind"] == "debit"]

    def spent(self) -> int:
        """Return the micro-epsilons that were spent, all of it pure."""
        found = run_transaction(self.agent.engine, lambda c: standing_of(c, "patients"), read_only=True)
        return found.pure_spent_micro


MakeAgent = Callable[..., AttackedAgent]
