"""Kill the curator and the tester at every step, and at pairs of steps, and start them again.

As test_kill_sweep.py, with a curator that holds two owners' data (support/kill_sweep_process.py).
Afterwards: one debit for each owner, one release whose bytes alone were ever sent, the verdict reached, and a
transcript that verifies.
"""

from itertools import combinations_with_replacement, product

import pytest
from long_runs import LONG
from sweeps import Sweep

from tacit_services.shared.failpoints import AgentStep, CuratorStep, TesterStep

SUPERVISOR = "curator"

pytestmark = pytest.mark.long

OWN = [step.value for step in AgentStep]
OWN[2:2] = [step.value for step in CuratorStep]
"""The curator's steps in the order of a study."""
OWN.insert(OWN.index(AgentStep.DEBITED) + 1, f"{AgentStep.DEBITED}@2")
"""Once the first owner's account has been debited, and once the second's has."""

TESTER = [step.value for step in TesterStep]
ALL = [*OWN, *TESTER]

STEPS = {"sqlite": [*OWN, *TESTER[::3]], "postgresql": OWN[::2]}
"""What the usual run kills at; the long run does at every step on both. The steps that a curator shares with
an agent, and the tester's own, are all tried on both engines by test_kill_sweep.py."""

PAIRS_SAMPLED = 12
"""One in so many pairs of the curator's own steps, on SQLite; the long run takes every pair of all."""


def steps_of(engine: str) -> list[str]:
    return ALL if LONG else STEPS[engine]


def pairs_of(engine: str) -> list[tuple[str, str]]:
    if LONG:
        return list(product(ALL, ALL))
    pairs = [pair for pair in combinations_with_replacement(OWN, 2) if "@" not in pair[1]]
    return pairs[::PAIRS_SAMPLED] if engine == "sqlite" else []


ENGINES = pytest.mark.parametrize("engine", ["sqlite", "postgresql"])


@ENGINES
def test_killed_at_every_step(sweep: Sweep, engine: str) -> None:
    once = {"kills": 1, "faults": []}
    wrong = {step: outcome for step in steps_of(engine) if (outcome := sweep.run(step)) != once}
    assert wrong == {}, sweep.log.read_text()


@ENGINES
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_killed_at_pairs_of_steps(sweep: Sweep, engine: str) -> None:
    wrong = {}
    for first, second in pairs_of(engine):
        outcome = sweep.run(first, second)
        must_both = first in OWN and second in OWN and OWN.index(first) < OWN.index(second)
        if outcome["faults"] or outcome["kills"] < 1 + must_both:
            wrong[first, second] = outcome
    assert wrong == {}, sweep.log.read_text()


PLANTED = {
    "debit-outside": (AgentStep.NOISE_DRAWN.value, "the outbox does not hold exactly one delivered release"),
    "send-before-storing": (AgentStep.DEBITED.value, "other releases than the stored one were sent"),
    "one-owner-pays": (AgentStep.DEBITED.value, "1 debits"),
}


@pytest.mark.parametrize("mistake", PLANTED)
def test_a_planted_mistake_is_caught(sqlite_sweep: Sweep, mistake: str) -> None:
    step, fault = PLANTED[mistake]
    assert fault in sqlite_sweep.run(step, planted=mistake)["faults"]
