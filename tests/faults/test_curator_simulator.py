"""Random histories of a curator and a tester in memory, as test_simulator.py has them of agents.

Owners approve, decline, delete their data sets and register them again, while messages are lost, repeated
and late, and processes are killed and started again. A failing history goes into this file as a
``test_repro_...``.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from curated_world import CURATOR, HELD, PROCEDURES, CuratedSimulation
from histories import FAULTS, Histories, databases_of, run_histories
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from long_runs import choose
from simulation import Fault, SimulatedKillError

from tacit_protocol.procedures import discovery
from tacit_services.agent import participant
from tacit_services.agent import releases as releases_module
from tacit_services.agent.releases import Releaser
from tacit_services.curator import curator as curator_module
from tacit_services.shared.failpoints import AgentStep, CuratorStep

pytestmark = pytest.mark.long

HISTORIES = choose(40, 1_000)
STEPS_MAX = choose(8, 30)

STEPS: list[AgentStep | CuratorStep] = [*AgentStep, *CuratorStep]
HOLDER = st.sampled_from(HELD)


class CuratorHistories(Histories):
    """A curator and a tester, and owners who come and go."""

    kind = CuratedSimulation

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.start(seed)
        self.simulation.create(HELD[:2], "0.5", 2 * 3600)

    @rule(
        owners=st.lists(HOLDER, min_size=1, unique=True),
        epsilon=st.sampled_from(["0.25", "0.5", "1"]),
        deadline_in_s=st.sampled_from([600, 2 * 3600, 24 * 3600]),
        faults=FAULTS,
    )
    @precondition(lambda self: len(self.simulation.studies) < 6)
    def create(self, owners: list[str], epsilon: str, deadline_in_s: int, faults: list[Fault]) -> None:
        self.with_faults(faults, self.simulation.create, owners, epsilon, deadline_in_s)

    @rule(action=st.sampled_from(["poll", "work", "fetch"]), faults=FAULTS)
    def act(self, action: str, faults: list[Fault]) -> None:
        self.with_faults(faults, self.simulation.act, CURATOR, action)

    @rule(faults=FAULTS)
    def poll_and_work(self, faults: list[Fault]) -> None:
        self.simulation.act(CURATOR, "poll")
        self.act("work", faults)

    @rule(owner=HOLDER)
    def delete(self, owner: str) -> None:
        self.simulation.delete_data_set(owner)

    @rule(owner=HOLDER)
    def register(self, owner: str) -> None:
        self.simulation.register_data_set(owner)

    @rule(party=st.sampled_from([CURATOR, "tester"]), jump_s=st.integers(-3600, 3600))
    def one_clock_jumps(self, party: str, jump_s: int) -> None:
        self.simulation.skews[party] = float(jump_s)

    @rule()
    def restart_curator(self) -> None:
        self.simulation.restart_agent(CURATOR)

    @rule(step=st.sampled_from(STEPS), passage=st.integers(1, 2), index=st.integers(0, 5))
    def kill(self, step: AgentStep | CuratorStep, passage: int, index: int) -> None:
        passages = 0

        def reached(now: AgentStep | CuratorStep) -> None:
            nonlocal passages
            passages += now is step
            if now is step and passages == passage:
                raise SimulatedKillError

        with pytest.MonkeyPatch.context() as patch:
            for module in (participant, releases_module, curator_module):
                patch.setattr(module, "reached", reached)
            try:
                self.simulation.act(CURATOR, "poll")
                self.simulation.decide(self.study(index), True)
                self.simulation.act(CURATOR, "work")
            except SimulatedKillError:
                self.simulation.restart_agent(CURATOR)


@pytest.fixture(autouse=True)
def _world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, procedure in PROCEDURES.items():
        monkeypatch.setitem(discovery.PROCEDURES, name, procedure)
    with databases_of(CuratorHistories, tmp_path):
        yield


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
def test_no_history_loses_or_repeats_anything() -> None:
    run_histories(CuratorHistories, HISTORIES, STEPS_MAX)


def test_a_planted_mistake_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = Releaser._debit

    def first_alone(self: Releaser, connection: Any, job: Any, now: int) -> Any:
        return genuine(self, connection, type(job)(**{**vars(job), "parts": job.parts[:1]}), now)

    monkeypatch.setattr(Releaser, "_debit", first_alone)
    with pytest.raises(AssertionError, match="debits and releases differ"):
        run_histories(CuratorHistories, 100, STEPS_MAX, phases=[Phase.generate], report_multiple_bugs=False)
