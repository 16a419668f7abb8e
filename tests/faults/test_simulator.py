"""Random histories of a federation in memory: lost, repeated and late messages, restarts, kills, clock jumps.

Hypothesis writes the histories. One that fails is printed as a list of steps, after shrinking; it goes into
this file as a ``test_repro_...``.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fault_world import PROCEDURE
from histories import FAULTS, Histories, databases_of, run_histories
from hypothesis import Phase
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from long_runs import LONG, choose
from simulation import OWNERS, Fault, SimulatedKillError, Simulation
from sqlalchemy.engine import Engine

from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.accounting import Amounts
from tacit_protocol.procedures import discovery
from tacit_protocol.procedures.relay import OwnAnswer
from tacit_services.agent import participant
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


def kill_at(wanted: AgentStep) -> Callable[[AgentStep], None]:
    def reached(step: AgentStep) -> None:
        if step is wanted:
            raise SimulatedKillError

    return reached


class AgentHistories(Histories):
    """Agents and a tester, an analyst who cancels, and clocks that jump."""

    kind = Simulation

    @initialize(seed=st.integers(0, 2**16))
    def begin(self, seed: int) -> None:
        self.start(seed)
        self.simulation.create(OWNERS[1:3], "0.5", 2 * 3600)

    @rule(
        owners=st.lists(st.sampled_from(OWNERS), min_size=2, unique=True),
        epsilon=st.sampled_from(["0.25", "0.5", "1"]),
        deadline_in_s=st.sampled_from([600, 2 * 3600, 24 * 3600]),
        faults=FAULTS,
    )
    @precondition(lambda self: len(self.simulation.studies) < 6)
    def create(self, owners: list[str], epsilon: str, deadline_in_s: int, faults: list[Fault]) -> None:
        self.with_faults(faults, self.simulation.create, owners, epsilon, deadline_in_s)

    @rule(owner=st.sampled_from(OWNERS), action=st.sampled_from(["poll", "work", "fetch"]), faults=FAULTS)
    def act(self, owner: str, action: str, faults: list[Fault]) -> None:
        self.with_faults(faults, self.simulation.act, owner, action)

    @rule(owner=st.sampled_from(OWNERS), faults=FAULTS)
    def poll_and_work(self, owner: str, faults: list[Fault]) -> None:
        self.simulation.act(owner, "poll")
        self.act(owner, "work", faults)

    @rule(index=st.integers(0, 5))
    def cancel(self, index: int) -> None:
        self.simulation.cancel(self.study(index))

    @rule(party=st.sampled_from([*OWNERS, "tester", "ada"]), jump_s=st.integers(-3600, 3600))
    def one_clock_jumps(self, party: str, jump_s: int) -> None:
        self.simulation.skews[party] = float(jump_s)

    @rule()
    def clocks_agree(self) -> None:
        self.simulation.skews = dict.fromkeys(self.simulation.skews, 0.0)

    @rule(owner=st.sampled_from(OWNERS))
    def restart_agent(self, owner: str) -> None:
        self.simulation.restart_agent(owner)

    @rule(owner=st.sampled_from(OWNERS), step=st.sampled_from(list(AgentStep)))
    def kill_agent(self, owner: str, step: AgentStep) -> None:
        with pytest.MonkeyPatch.context() as patch:
            for module in (releases_module, participant):
                patch.setattr(module, "reached", kill_at(step))
            for action in ("poll", "work"):
                try:
                    self.simulation.act(owner, action)
                except SimulatedKillError:
                    break
        self.simulation.restart_agent(owner)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Databases for the histories, and their procedure."""
    monkeypatch.setitem(discovery.PROCEDURES, PROCEDURE.name, PROCEDURE)
    with databases_of(AgentHistories, tmp_path):
        yield


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
@pytest.mark.usefixtures("world")
def test_no_history_loses_or_repeats_anything() -> None:
    run_histories(AgentHistories, HISTORIES, STEPS_MAX)


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
    return answer.release.vectors["sum"].values[0]


@pytest.mark.parametrize(
    ("plant", "fault"),
    [
        (spend_without_looking, "spent is not what the debits took"),
        (encode_releases_again, "another release than the stored one was sent"),
        (exchange_releases, "the transcript does not hold"),
    ],
)
@pytest.mark.usefixtures("world")
def test_a_planted_mistake_is_caught(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], fault: str
) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=fault):
        run_histories(AgentHistories, 100, STEPS_MAX, phases=[Phase.generate], report_multiple_bugs=False)
