"""Random histories of a federation in memory: lost, repeated and late messages, restarts, kills, clock jumps.

Hypothesis writes the histories. One that fails is printed as a list of steps, after shrinking; it goes into
this file as a ``test_repro_...``.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fault_world import PROCEDURE
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
from simulation import OWNERS, Fault, SimulatedKillError, Simulation
from sqlalchemy.engine import Engine

from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.accounting import Amounts
from tacit_protocol.procedures import discovery
from tacit_protocol.procedures.relay import OwnAnswer
from tacit_services.agent import participant
from tacit_services.agent import participant as agent_module
from tacit_services.agent import releases as releases_module
from tacit_services.agent.tester_client import TesterClient
from tacit_services.ledger import accounts
from tacit_services.shared.failpoints import AgentStep
from tacit_services.tester import reuse

pytestmark = pytest.mark.long

HISTORIES = int(os.environ.get("TACIT_HISTORIES", "120"))
STEPS_MAX = choose(8, 15)
"""Operations of one history at most; healing it afterwards takes as long as ten of them."""

WORKERS, HISTORIES_OF_EACH = 2, 5_000
"""Processes of the long run, which make 10 000 histories together."""

FAULTS = st.lists(st.sampled_from(["ok", "ok", "request lost", "answer lost", "twice", "late"]), max_size=6)


def kill_at(wanted: AgentStep) -> Callable[[AgentStep], None]:
    def reached(step: AgentStep) -> None:
        if step is wanted:
            raise SimulatedKillError

    return reached


class Histories(RuleBasedStateMachine):
    """The operations and faults of a history; the invariants are the simulation's."""

    templates: Path
    folders: Path

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=self.folders))
        self.simulation = Simulation(self.folder, self.templates, seed)
        self.simulation.create(OWNERS[1:3], "0.5", 2 * 3600)

    @rule(
        owners=st.lists(st.sampled_from(OWNERS), min_size=2, unique=True),
        epsilon=st.sampled_from(["0.25", "0.5", "1"]),
        deadline_in_s=st.sampled_from([600, 2 * 3600, 24 * 3600]),
        faults=FAULTS,
    )
    @precondition(lambda self: len(self.simulation.studies) < 6)
    def create(self, owners: list[str], epsilon: str, deadline_in_s: int, faults: list[Fault]) -> None:
        self.simulation.network.faults.extend(faults)
        self.simulation.create(owners, epsilon, deadline_in_s)

    @rule(owner=st.sampled_from(OWNERS), faults=FAULTS)
    def poll(self, owner: str, faults: list[Fault]) -> None:
        self._act(owner, "poll", faults)

    @rule(owner=st.sampled_from(OWNERS), faults=FAULTS)
    def work(self, owner: str, faults: list[Fault]) -> None:
        self._act(owner, "work", faults)

    @rule(owner=st.sampled_from(OWNERS), faults=FAULTS)
    def poll_and_work(self, owner: str, faults: list[Fault]) -> None:
        self._act(owner, "poll", [])
        self._act(owner, "work", faults)

    @rule(owner=st.sampled_from(OWNERS))
    def fetch(self, owner: str) -> None:
        self._act(owner, "fetch", [])

    def _act(self, owner: str, action: str, faults: list[Fault]) -> None:
        self.simulation.network.faults.clear()
        self.simulation.network.faults.extend(faults)
        self.simulation.act(owner, action)
        self.simulation.network.faults.clear()

    @rule(index=st.integers(0, 5), approve=st.booleans())
    def decide(self, index: int, approve: bool) -> None:
        names = sorted(self.simulation.studies)
        self.simulation.decide(names[index % len(names)], approve)

    @rule(index=st.integers(0, 5))
    def cancel(self, index: int) -> None:
        names = sorted(self.simulation.studies)
        self.simulation.cancel(names[index % len(names)])

    @rule()
    def work_at_tester(self) -> None:
        self.simulation.work_at_tester()

    @rule(index=st.integers(0, 20))
    @precondition(lambda self: self.simulation.network.late)
    def deliver_late(self, index: int) -> None:
        self.simulation.deliver_late(index)

    @rule(party=st.sampled_from([*OWNERS, "tester", "ada"]), jump_s=st.integers(-3600, 3600))
    def one_clock_jumps(self, party: str, jump_s: int) -> None:
        self.simulation.skews[party] = float(jump_s)

    @rule()
    def clocks_agree(self) -> None:
        self.simulation.skews = dict.fromkeys(self.simulation.skews, 0.0)

    @rule(pass_s=st.integers(1, 3600))
    def time_passes(self, pass_s: int) -> None:
        self.simulation.now += pass_s

    @rule()
    def restart_tester(self) -> None:
        self.simulation.restart_tester()

    @rule(owner=st.sampled_from(OWNERS))
    def restart_agent(self, owner: str) -> None:
        self.simulation.restart_agent(owner)

    @rule(owner=st.sampled_from(OWNERS), step=st.sampled_from(list(AgentStep)))
    def kill_agent(self, owner: str, step: AgentStep) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for module in (agent_module, releases_module, participant):
                patch.setattr(module, "reached", kill_at(step))
            for action in ("poll", "work"):
                try:
                    self.simulation.act(owner, action)
                except SimulatedKillError:
                    break
        self.simulation.restart_agent(owner)

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
    monkeypatch.setitem(discovery.PROCEDURES, PROCEDURE.name, PROCEDURE)
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        Simulation.make_templates(Path(folder))
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


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
@pytest.mark.skipif(not LONG or "TACIT_HISTORIES" in os.environ, reason="10 000 histories: make audit")
def test_none_of_ten_thousand_histories_loses_or_repeats_anything() -> None:
    """The test above in processes of its own, each with other seeds; their output shows what failed."""
    test = f"{__file__}::{test_no_history_loses_or_repeats_anything.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    environment = os.environ | {"TACIT_HISTORIES": str(HISTORIES_OF_EACH)}
    root = Path(__file__).parents[2]
    with ThreadPoolExecutor(WORKERS) as pool:
        runs = list(
            pool.map(
                lambda _: subprocess.run(
                    command, env=environment, cwd=root, capture_output=True, text=True, check=False
                ),
                range(WORKERS),
            )
        )
    assert [run.returncode for run in runs] == [0] * WORKERS, "\n".join(run.stdout for run in runs)


def spend_without_looking(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(accounts, "charge", lambda *_, **__: Amounts())


def encode_releases_again(patch: pytest.MonkeyPatch) -> None:
    genuine = TesterClient.put_release

    def encoded_again(self: TesterClient, study: str, party: str, envelope: bytes) -> None:
        genuine(self, study, party, json.dumps(json.loads(envelope)).encode())

    patch.setattr(TesterClient, "put_release", encoded_again)


def exchange_releases(patch: pytest.MonkeyPatch) -> None:
    genuine = reuse._answers

    def exchanged(engine: Engine, name: str, study: Study) -> dict[str, OwnAnswer]:
        answers = genuine(engine, name, study)
        order = sorted(answers, key=lambda owner: _sum_in(answers[owner]))
        return {owner.name: answers[other] for owner, other in zip(study.owners, order, strict=True)}

    patch.setattr(reuse, "_answers", exchanged)


def _sum_in(answer: OwnAnswer) -> int:
    assert answer.release is not None
    return answer.release.vectors["sum"].values[0]


@pytest.mark.parametrize(
    ("plant", "fault"),
    [
        (spend_without_looking, "spent is not what the debits took"),
        (encode_releases_again, "another release than the stored one was sent"),
        (exchange_releases, "the transcript does not hold"),
    ],
)
def test_a_planted_mistake_is_caught(
    world: type[Histories],
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    fault: str,
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=fault):
        run_histories(world, 100, phases=[Phase.generate], report_multiple_bugs=False)
