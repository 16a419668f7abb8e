"""Two testers and two job workers on one PostgreSQL, of which one is killed at every step.

SIGKILL to real processes behind a load balancer (support/several_testers_process.py). Afterwards no study is
lost, no verdict was computed twice unless the worker that had it was killed or stopped, each study has one
verdict, and the transcripts verify.
"""

from itertools import product

import pytest
from long_runs import LONG, choose
from several_testers_process import DEAF, PAUSE, WAKE
from sweeps import Sweep

from tacit_services.shared.failpoints import TesterStep

SUPERVISOR = "several testers"

pytestmark = pytest.mark.long

STEPS = [step.value for step in TesterStep]
"""In the order of a study."""

LONG_ALONE = {
    TesterStep.STUDY_CHECKED,
    TesterStep.STUDY_INSERTED,
    TesterStep.STUDY_STORED,
    TesterStep.RELEASE_CHECKED,
    TesterStep.RELEASE_STORED,
}
"""Steps at which the usual run kills only in test_kill_sweep.py."""


@pytest.fixture
def sweep(postgresql_sweep: Sweep) -> Sweep:
    return postgresql_sweep


@pytest.mark.parametrize("step", [step for step in STEPS if LONG or step not in LONG_ALONE])
def test_one_is_killed_and_the_others_finish(sweep: Sweep, step: str) -> None:
    assert sweep.run(step) == {"kills": 1, "faults": []}, sweep.log.read_text()


@pytest.mark.parametrize(
    "step", choose([TesterStep.VERDICT_COMPUTED], [TesterStep.JOB_LEASED, TesterStep.VERDICT_COMPUTED])
)
def test_a_worker_that_wakes_after_its_lease_stores_nothing(sweep: Sweep, step: TesterStep) -> None:
    assert sweep.run(PAUSE + step.value) == {"kills": 1, "faults": []}, sweep.log.read_text()


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.skipif(not LONG, reason="144 pairs: for make audit")
def test_two_are_killed(sweep: Sweep) -> None:
    wrong = {}
    for pair in product(STEPS, STEPS):
        outcome = sweep.run(*pair)
        both = STEPS.index(pair[0]) <= STEPS.index(pair[1])
        if outcome["faults"] or outcome["kills"] < 1 + both:
            wrong[pair] = outcome
    assert wrong == {}, sweep.log.read_text()


def test_an_agent_waiting_at_one_tester_is_told_of_a_study_at_the_other(sweep: Sweep) -> None:
    assert sweep.run(WAKE) == {"kills": 0, "faults": []}, sweep.log.read_text()


PLANTED = {
    DEAF: ([WAKE], "is not told"),
    "take-what-others-have": ([], "computed again although"),
    "delete-what-is-leased": ([TesterStep.JOB_LEASED.value], "a study got no verdict"),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_caught(sweep: Sweep, mistake: str) -> None:
    plan, fault = PLANTED[mistake]
    faults = sweep.run(*plan, planted=mistake)["faults"]
    assert any(fault in found for found in faults), faults
