"""Random histories of a curator and a tester in memory, as test_simulator.py has them of agents.

Owners approve, decline, delete their data sets and register them again, while messages are lost, repeated
and late, and processes are killed and started again. A failing history goes into this file as a
``test_repro_...``.
"""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from curated_world import CURATOR, HELD, PROCEDURES, CuratedSimulation
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from long_runs import LONG, choose
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

FAULTS = st.lists(st.sampled_from(["ok", "ok", "request lost", "answer lost", "twice", "late"]), max_size=6)
STEPS: list[AgentStep | CuratorStep] = [*AgentStep, *CuratorStep]
HOLDER = st.sampled_from(HELD)


class Histories(RuleBasedStateMachine):
    """The operations and faults of a history; the invariants are the simulation's."""

    templates: Path
    folders: Path

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=self.folders))
        self.simulation = CuratedSimulation(self.folder, self.templates, seed)
        self.simulation.create(HELD[:2], "0.5", 2 * 3600)

    @rule(
        owners=st.lists(HOLDER, min_size=1, unique=True),
        epsilon=st.sampled_from(["0.25", "0.5", "1"]),
        deadline_in_s=st.sampled_from([600, 2 * 3600, 24 * 3600]),
        faults=FAULTS,
    )
    @precondition(lambda self: len(self.simulation.studies) < 6)
    def create(self, owners: list[str], epsilon: str, deadline_in_s: int, faults: list[Fault]) -> None:
        self.simulation.network.faults.extend(faults)
        self.simulation.create(owners, epsilon, deadline_in_s)
        self.simulation.network.faults.clear()

    @rule(action=st.sampled_from(["poll", "work", "fetch"]), faults=FAULTS)
    def act(self, action: str, faults: list[Fault]) -> None:
        self.simulation.network.faults.extend(faults)
        self.simulation.act(CURATOR, action)
        self.simulation.network.faults.clear()

    @rule(faults=FAULTS)
    def poll_and_work(self, faults: list[Fault]) -> None:
        self.act("poll", [])
        self.act("work", faults)

    @rule(index=st.integers(0, 5), approve=st.booleans())
    def decide(self, index: int, approve: bool) -> None:
        names = sorted(self.simulation.studies)
        self.simulation.decide(names[index % len(names)], approve)

    @rule(owner=HOLDER)
    def delete(self, owner: str) -> None:
        self.simulation.delete_data_set(owner)

    @rule(owner=HOLDER)
    def register(self, owner: str) -> None:
        self.simulation.register_data_set(owner)

    @rule()
    def work_at_tester(self) -> None:
        self.simulation.work_at_tester()

    @rule(index=st.integers(0, 20))
    @precondition(lambda self: self.simulation.network.late)
    def deliver_late(self, index: int) -> None:
        self.simulation.deliver_late(index)

    @rule(party=st.sampled_from([CURATOR, "tester"]), jump_s=st.integers(-3600, 3600))
    def one_clock_jumps(self, party: str, jump_s: int) -> None:
        self.simulation.skews[party] = float(jump_s)

    @rule(pass_s=st.integers(1, 3600))
    def time_passes(self, pass_s: int) -> None:
        self.simulation.now += pass_s

    @rule(party=st.sampled_from([CURATOR, "tester"]))
    def restart(self, party: str) -> None:
        if party == CURATOR:
            self.simulation.restart_agent(CURATOR)
        else:
            self.simulation.restart_tester()

    @rule(step=st.sampled_from(STEPS), passage=st.integers(1, 2), index=st.integers(0, 5))
    def kill(self, step: AgentStep | CuratorStep, passage: int, index: int) -> None:
        passages = 0

        def reached(now: AgentStep | CuratorStep) -> None:
            nonlocal passages
            passages += now is step
            if now is step and passages == passage:
                raise SimulatedKillError

        with pytest.MonkeyPatch.context() as patch:
            for module in (participant, releases_module, participant, curator_module):
                patch.setattr(module, "reached", reached)
            try:
                self.simulation.act(CURATOR, "poll")
                self.decide(index, approve=True)
                self.simulation.act(CURATOR, "work")
            except SimulatedKillError:
                self.simulation.restart_agent(CURATOR)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "simulation"):
            self.simulation.check()

    def teardown(self) -> None:
        if not hasattr(self, "simulation"):
            return
        try:
            self.simulation.heal()
        finally:
            self.simulation.close()
            shutil.rmtree(self.folder)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Histories]]:
    """The state machine with its databases, in memory where the system has a file system there."""
    memory = Path("/dev/shm")  # noqa: S108 (a folder of its own below)
    for name, procedure in PROCEDURES.items():
        monkeypatch.setitem(discovery.PROCEDURES, name, procedure)
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        CuratedSimulation.make_templates(Path(folder))
        monkeypatch.setattr(Histories, "templates", Path(folder), raising=False)
        monkeypatch.setattr(Histories, "folders", Path(folder), raising=False)
        yield Histories


def run_histories(world: type[Histories], histories: int, **options: Any) -> None:
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        world,
        settings=settings(
            max_examples=histories,
            stateful_step_count=STEPS_MAX,
            deadline=None,
            derandomize=not LONG,
            database=None,
            print_blob=True,
            suppress_health_check=list(HealthCheck),
            **options,
        ),
    )


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
def test_no_history_loses_or_repeats_anything(world: type[Histories]) -> None:
    run_histories(world, HISTORIES)


def test_a_planted_mistake_is_caught(world: type[Histories], monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = Releaser._debit

    def first_alone(self: Releaser, connection: Any, job: Any, now: int) -> Any:
        return genuine(self, connection, type(job)(**{**vars(job), "parts": job.parts[:1]}), now)

    monkeypatch.setattr(Releaser, "_debit", first_alone)
    with pytest.raises(AssertionError, match="debits and releases differ"):
        run_histories(world, 100, phases=[Phase.generate], report_multiple_bugs=False)
