"""Kill the agent and the tester at every step, and at every pair of steps, and start them again.

SIGKILL to real processes, on SQLite and PostgreSQL (support/kill_sweep_process.py). Afterwards: one debit,
one release whose bytes alone were ever sent, the verdict reached, and a transcript that verifies.
"""

from collections.abc import Sequence
from itertools import combinations_with_replacement, product

import pytest
from long_runs import LONG
from sweeps import Sweep

from tacit_services.shared.failpoints import AgentStep, TesterStep

SUPERVISOR = "agent"

AGENT, TESTER = [step.value for step in AgentStep], [step.value for step in TesterStep]
STEPS = [*TESTER[:7], *AGENT, *TESTER[7:]]
"""In the order of a study, as nearly as two parties have one."""

SAMPLED = {"sqlite": (2, 7), "postgresql": (7, 19)}
"""One in so many of the pairs of the agent's steps, and of the other pairs, in the usual run: on SQLite every
step of either party is in some of them. The long run takes every ordered pair."""


def pairs_of(engine: str) -> list[tuple[str, str]]:
    """Return the pairs of steps to kill at."""
    if LONG:
        return list(product(STEPS, STEPS))
    pairs = list(combinations_with_replacement(STEPS, 2))
    agents = [pair for pair in pairs if set(pair) <= set(AGENT)]
    others = [pair for pair in pairs if not set(pair) <= set(AGENT)]
    of_agents, of_others = SAMPLED[engine]
    return agents[::of_agents] + others[1::of_others]


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


@pytest.mark.long
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
