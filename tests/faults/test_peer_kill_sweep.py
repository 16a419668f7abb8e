"""Kill both agents and the tester at every step of peer mode, and start them again.

As test_kill_sweep.py, with one owner's release sealed to the other (support/kill_sweep_process.py).
Afterwards: one debit at whoever spends, one finding, one sealed release whose bytes alone were ever sent, no
ciphertext left at the tester, the verdict reached, and a transcript that verifies.
"""

from itertools import combinations

import pytest
from long_runs import LONG
from sweeps import Sweep

from tacit_services.shared.failpoints import AgentRelayStep, AgentStep, TesterRelayStep, TesterStep

SUPERVISOR = "peer"

pytestmark = pytest.mark.long

SENDER = [step.value for step in AgentStep]
SENDER_ALONE = {AgentStep.DATA_SUMMARISED, AgentStep.DEBITED, AgentStep.NOISE_DRAWN}
BOTH_PASS = [step for step in AgentStep if step not in SENDER_ALONE]
RECEIVER = [*(step.value for step in AgentRelayStep), *(f"{step}@2" for step in BOTH_PASS)]
"""The second passage of a step is the receiver's: the sender is always before it."""

PUBLISHING = [f"{AgentStep.DEBITED}@2", f"{AgentStep.NOISE_DRAWN}@2"]
TESTER = [step.value for step in (*TesterStep, *TesterRelayStep)]
"""The tester's."""

ALL = [*SENDER, *RECEIVER, *TESTER]
STEPS = {"sqlite": [*SENDER[::2], *RECEIVER, *TESTER[::3]], "postgresql": [*RECEIVER[::2], *TESTER[-2:]]}
"""What the usual run kills at. The steps that are not peer mode's own are tried by test_kill_sweep.py."""

PAIRS_SAMPLED = 10
"""One in so many pairs of the receiver's steps, on SQLite; the long run takes every one, on both."""


def steps_of(engine: str) -> list[str]:
    return ALL if LONG else STEPS[engine]


ENGINES = pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
ONCE = {"kills": 1, "faults": []}


@ENGINES
def test_killed_at_every_step(sweep: Sweep, engine: str) -> None:
    wrong = {step: outcome for step in steps_of(engine) if (outcome := sweep.run(step)) != ONCE}
    assert wrong == {}, sweep.log.read_text()


@ENGINES
def test_killed_while_the_receiver_publishes(sweep: Sweep, engine: str) -> None:
    steps = [*PUBLISHING, *(ALL if LONG else RECEIVER[2::3])] if engine == "sqlite" or LONG else PUBLISHING
    wrong = {step: outcome for step in steps if (outcome := sweep.run(step, planted="publish")) != ONCE}
    assert wrong == {}, sweep.log.read_text()


@ENGINES
@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_killed_at_pairs_of_steps(sweep: Sweep, engine: str) -> None:
    own = [step for step in RECEIVER if "@" not in step] + SENDER
    pairs = list(combinations([*own, *TESTER], 2)) if LONG else list(combinations(own, 2))[::PAIRS_SAMPLED]
    wrong = {}
    for pair in pairs if LONG or engine == "sqlite" else []:
        outcome = sweep.run(*pair)
        if outcome["faults"] or outcome["kills"] < 1:
            wrong[pair] = outcome
    assert wrong == {}, sweep.log.read_text()


def test_a_finding_stored_outside_the_transaction_would_be_caught(sqlite_sweep: Sweep) -> None:
    outcome = sqlite_sweep.run(f"{AgentStep.RELEASE_SIGNED}@2", planted="finding-outside")
    assert "the agent did not get its verdict" in outcome["faults"]
