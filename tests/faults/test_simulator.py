"""Random histories in memory: lost, repeated and late messages, restarts, kills, clock jumps.

They are of a federation of agents, of a curator whose owners approve, decline, delete their data sets and
register them again, and of two owners whose studies have two rounds: reserved, reused, declined, cancelled,
expired at every step. Hypothesis writes the histories. One that fails is printed as a list of steps, after
shrinking; it goes into this file as a ``test_repro_...``.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import curated_world
import pytest
import simulation
import world
from curated_world import CURATOR, HELD, CuratedSimulation
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
from simulation import EPSILONS, Fault, SimulatedKillError, Simulation, TwoRoundSimulation
from sqlalchemy.engine import Engine
from world import RECEIVER, SENDER

from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.accounting import Amounts, charge
from tacit_protocol.procedures import discovery
from tacit_protocol.procedures.relay import OwnAnswer
from tacit_services.agent.study import delivery, fetching, mailbox, participant
from tacit_services.agent.study import releases as releases_module
from tacit_services.agent.study import studies as agent_studies
from tacit_services.agent.study.tester_client import TesterClient
from tacit_services.curator import curator as curator_module
from tacit_services.ledger import accounts
from tacit_services.shared.failpoints import AcceptanceStep, AgentRelayStep, AgentStep, CuratorStep
from tacit_services.tester import studies

pytestmark = pytest.mark.long

HISTORIES = int(os.environ.get("TACIT_HISTORIES", "120"))
STEPS_MAX = choose(8, 15)
"""Operations of one history at most; healing it afterwards takes as long as ten of them."""

WORKERS, HISTORIES_OF_EACH = 2, 5_000
"""Processes of the long run, which make 10 000 histories of agents together."""

Step = AgentStep | AgentRelayStep | AcceptanceStep | CuratorStep

FAULTS = st.lists(st.sampled_from(["ok", "ok", "request lost", "answer lost", "twice", "late"]), max_size=6)


def one_of(name: str) -> st.SearchStrategy[Any]:
    """One of the values that the history's class has under this name."""
    return st.runner().flatmap(lambda histories: st.sampled_from(getattr(histories, name)))


class Histories(RuleBasedStateMachine):
    """The operations and faults of a history; the invariants are the simulation's."""

    kind: type[Simulation]
    parties: ClassVar[tuple[str, ...]]
    owners: ClassVar[tuple[str, ...]]
    first_owners: ClassVar[tuple[str, ...]]
    fewest_owners: ClassVar[int]
    first_epsilon: ClassVar[str] = "0.5"
    steps: ClassVar[tuple[Step, ...]]
    folder: Path
    simulation: Any

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.own_folder = Path(tempfile.mkdtemp(dir=self.folder))
        self.simulation = self.kind(self.own_folder, self.folder, seed)
        self.simulation.create(self.first_owners, self.first_epsilon, 2 * 3600)

    def with_faults(self, faults: list[Fault], work: Callable[..., object], *given: Any) -> None:
        """Do something while these faults befall its messages."""
        self.simulation.network.faults.extend(faults)
        work(*given)
        self.simulation.network.faults.clear()

    def study(self, index: int) -> str:
        names = sorted(self.simulation.studies)
        return names[index % len(names)]

    @rule(
        owners=st.runner().flatmap(
            lambda histories: st.lists(
                st.sampled_from(histories.owners), min_size=histories.fewest_owners, unique=True
            )
        ),
        epsilon=st.sampled_from(["0.25", "0.5", "1"]),
        deadline_in_s=st.sampled_from([600, 2 * 3600, 24 * 3600]),
        faults=FAULTS,
    )
    @precondition(lambda self: len(self.simulation.studies) < 6)
    def create(self, owners: list[str], epsilon: str, deadline_in_s: int, faults: list[Fault]) -> None:
        self.with_faults(faults, self.simulation.create, owners, epsilon, deadline_in_s)

    @rule(party=one_of("parties"), action=st.sampled_from(["poll", "work", "fetch"]), faults=FAULTS)
    def act(self, party: str, action: str, faults: list[Fault]) -> None:
        self.with_faults(faults, self.simulation.act, party, action)

    @rule(party=one_of("parties"), faults=FAULTS)
    def poll_and_work(self, party: str, faults: list[Fault]) -> None:
        self.simulation.act(party, "poll")
        self.act(party, "work", faults)

    @rule(index=st.integers(0, 5), approve=st.booleans())
    def decide(self, index: int, approve: bool) -> None:
        self.simulation.decide(self.study(index), approve)

    @rule()
    def work_at_tester(self) -> None:
        self.simulation.work_at_tester()

    @rule(index=st.integers(0, 20))
    @precondition(lambda self: self.simulation.network.late)
    def deliver_late(self, index: int) -> None:
        self.simulation.deliver_late(index)

    @rule(pass_s=st.integers(1, 3600))
    def time_passes(self, pass_s: int) -> None:
        self.simulation.now += pass_s

    @rule(
        clock=st.runner().flatmap(lambda histories: st.sampled_from([*histories.parties, "tester", "ada"])),
        jump_s=st.integers(-3600, 3600),
    )
    def one_clock_jumps(self, clock: str, jump_s: int) -> None:
        self.simulation.skews[clock] = float(jump_s)

    @rule()
    def clocks_agree(self) -> None:
        self.simulation.skews = dict.fromkeys(self.simulation.skews, 0.0)

    @rule()
    def restart_tester(self) -> None:
        self.simulation.restart_tester()

    @rule(party=one_of("parties"))
    def restart(self, party: str) -> None:
        self.simulation.restart_agent(party)

    @rule(
        party=one_of("parties"),
        step=one_of("steps"),
        passage=st.integers(1, 2),
        index=st.integers(0, 5),
    )
    def kill(self, party: str, step: Step, passage: int, index: int) -> None:
        passages = 0

        def reached(now: Step) -> None:
            nonlocal passages
            passages += now is step
            if now is step and passages == passage:
                raise SimulatedKillError

        with pytest.MonkeyPatch.context() as patch:
            for module in (fetching, mailbox, participant, releases_module, delivery, curator_module):
                patch.setattr(module, "reached", reached)
            try:
                self.simulation.act(party, "poll")
                self.say_yes(index)
                self.simulation.act(party, "work")
            except SimulatedKillError:
                self.simulation.restart_agent(party)

    def say_yes(self, index: int) -> None:
        """What a person does between the poll and the work of a party that is about to be killed."""

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
            shutil.rmtree(self.own_folder)


class AgentHistories(Histories):
    """Agents and a tester, and an analyst who cancels."""

    kind = Simulation
    parties = owners = simulation.OWNERS
    first_owners, fewest_owners = owners[1:3], 2
    steps = (*AgentStep,)

    @rule(index=st.integers(0, 5))
    def cancel(self, index: int) -> None:
        self.simulation.cancel(self.study(index))


class CuratorHistories(Histories):
    """A curator and a tester, and owners who come and go."""

    kind = CuratedSimulation
    parties, owners = (CURATOR,), HELD
    first_owners, fewest_owners = owners[:2], 1
    steps = (*AgentStep, *CuratorStep)

    def say_yes(self, index: int) -> None:
        self.simulation.decide(self.study(index), True)

    @rule(owner=st.sampled_from(HELD))
    def delete(self, owner: str) -> None:
        self.simulation.delete_data_set(owner)

    @rule(owner=st.sampled_from(HELD))
    def register(self, owner: str) -> None:
        self.simulation.register_data_set(owner)


class TwoRoundHistories(Histories):
    """Two owners who reserve what a study of two rounds costs, and an analyst who cancels, and reuses."""

    kind = TwoRoundSimulation
    parties = owners = (SENDER, RECEIVER)
    first_owners, fewest_owners = owners, 2
    first_epsilon = EPSILONS[-1]
    steps = (*AgentStep, *AgentRelayStep, *AcceptanceStep)

    @rule(
        index=st.integers(0, 5),
        reuses=st.booleans(),
        epsilon=st.sampled_from(EPSILONS),
        deadline_in_s=st.sampled_from([600, 2 * 3600, 24 * 3600]),
        faults=FAULTS,
    )
    @precondition(lambda self: len(self.simulation.studies) < 6)
    def create(self, index: int, reuses: bool, epsilon: str, deadline_in_s: int, faults: list[Fault]) -> None:
        earlier = self.study(index) if reuses else None
        self.with_faults(faults, self.simulation.ask_again, earlier, epsilon, deadline_in_s)

    @rule(rounds=st.integers(1, 2), faults=FAULTS)
    def both_go_on(self, rounds: int, faults: list[Fault]) -> None:
        for _ in range(rounds):
            self.with_faults(faults, self.simulation._round)

    @rule(index=st.integers(0, 5))
    def cancel(self, index: int) -> None:
        self.simulation.cancel(self.study(index))

    def say_yes(self, index: int) -> None:
        self.simulation.decide(self.study(index), True)


@pytest.fixture(autouse=True)
def _world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The histories' procedures and first databases, in memory where the system has a file system there."""
    for procedure in (
        world.POOLED.procedure,
        world.TWO_ROUNDS.procedure,
        *curated_world.PROCEDURES.values(),
    ):
        monkeypatch.setitem(discovery.PROCEDURES, procedure.name, procedure)
    memory = Path("/dev/shm")  # noqa: S108 (a folder of its own below)
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        for machine in (AgentHistories, CuratorHistories, TwoRoundHistories):
            (own := Path(folder, machine.__name__)).mkdir()
            machine.kind.make_templates(own)
            monkeypatch.setattr(machine, "folder", own, raising=False)
        yield


def run_histories(machine: type[Histories], histories: int, steps_max: int, **options: Any) -> None:
    """Run so many histories of at most so many operations."""
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=histories,
            stateful_step_count=steps_max,
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
@pytest.mark.parametrize(
    ("machine", "histories", "steps_max"),
    [
        pytest.param(AgentHistories, HISTORIES, STEPS_MAX, id="agents"),
        pytest.param(CuratorHistories, choose(40, 1_000), choose(8, 30), id="curator"),
        pytest.param(TwoRoundHistories, choose(40, 2_000), choose(10, 30), id="two rounds"),
    ],
)
def test_no_history_loses_or_repeats_anything(
    machine: type[Histories], histories: int, steps_max: int
) -> None:
    run_histories(machine, histories, steps_max)


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
@pytest.mark.skipif(not LONG or "TACIT_HISTORIES" in os.environ, reason="10 000 histories: make audit")
def test_none_of_ten_thousand_histories_loses_or_repeats_anything() -> None:
    """The test above of agents in processes of its own, each with other seeds; they show what failed."""
    test = f"{__file__}::{test_no_history_loses_or_repeats_anything.__name__}[agents]"
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
    genuine = studies._answers

    def exchanged(engine: Engine, digest: str, study: Study, progress: Any) -> dict[str, OwnAnswer]:
        answers = genuine(engine, digest, study, progress)
        order = sorted(answers, key=lambda owner: _sum_in(answers[owner]))
        return {owner.name: answers[other] for owner, other in zip(study.owners, order, strict=True)}

    patch.setattr(studies, "_answers", exchanged)


def _sum_in(answer: OwnAnswer) -> int:
    return answer.release.vectors["sum"].values[0]


def debit_the_first_alone(patch: pytest.MonkeyPatch) -> None:
    genuine = curator_module.debit_parts

    def first_alone(connection: Any, job: Any, *, at: int) -> Any:
        return genuine(connection, replace(job, parts=job.parts[:1]), at=at)

    patch.setattr(curator_module, "debit_parts", first_alone)


def give_nothing_back(patch: pytest.MonkeyPatch) -> None:
    for module in (participant, agent_studies):
        patch.setattr(module, "give_back", lambda *_: None)


def overlook_what_is_reserved(patch: pytest.MonkeyPatch) -> None:
    """And look at the account when a study is approved, not when it is debited."""
    patch.setattr(accounts, "_reserved", lambda *_: {})
    genuine = releases_module.debit

    def debit_unchecked(*given: Any, **named: Any) -> Any:
        with pytest.MonkeyPatch.context() as own:
            own.setattr(accounts, "_place", lambda account, cost: (account.share, charge(cost.events)))
            return genuine(*given, **named)

    patch.setattr(releases_module, "debit", debit_unchecked)


@pytest.mark.parametrize(
    ("machine", "plant", "fault"),
    [
        (AgentHistories, spend_without_looking, "spent is not what the debits took"),
        (AgentHistories, encode_releases_again, "another release than the stored one was sent"),
        (AgentHistories, exchange_releases, "the transcript does not hold"),
        (CuratorHistories, debit_the_first_alone, "a release was not paid for"),
        (TwoRoundHistories, give_nothing_back, "what is reserved is not what is approved"),
        (TwoRoundHistories, overlook_what_is_reserved, "spent more than a share|passes the cap"),
    ],
)
def test_a_planted_mistake_is_caught(
    monkeypatch: pytest.MonkeyPatch,
    machine: type[Histories],
    plant: Callable[[pytest.MonkeyPatch], None],
    fault: str,
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=fault):
        run_histories(machine, 100, choose(8, 15), phases=[Phase.generate], report_multiple_bugs=False)
