"""Kill both agents and the tester at every step of a study of two rounds in the open, and start them again.

As test_peer_kill_sweep.py. Afterwards: one debit at either owner and nothing reserved any more, one release
of each whose bytes alone were ever sent, the sender's kept by the receiver as it was stored, the verdict
reached, and a transcript that verifies: so that no second answer was drawn, and the receiver's table is of
the answers that everyone sees.
"""

import pytest
from long_runs import LONG
from sweeps import Sweep

from tacit_services.shared.failpoints import (
    AcceptanceStep,
    AgentRelayStep,
    AgentStep,
    TesterRelayStep,
    TesterStep,
)

SUPERVISOR = "two rounds"

pytestmark = pytest.mark.long

SENDER = [step.value for step in AgentStep]
SENDING = (AgentStep.BEFORE_SEND, AgentStep.AFTER_SEND, AgentStep.ACKNOWLEDGED)
ACCEPTANCE = [
    AcceptanceStep.RESERVED.value,
    f"{AcceptanceStep.RESERVED}@2",
    *SENDING,
    AcceptanceStep.INSERTED.value,
    AcceptanceStep.SERVED.value,
    AcceptanceStep.FETCHED.value,
    AcceptanceStep.KEPT.value,
]
"""Both owners reserve; what is sent first is the receiver's acceptance."""

RECEIVER = [
    AgentRelayStep.SEALED_FETCHED.value,
    AgentRelayStep.SEALED_STORED.value,
    AgentRelayStep.COMBINED.value,
    *(f"{step}@2" for step in AgentStep if step is not AgentStep.DATA_SUMMARISED),
    *(f"{step}@3" for step in SENDING),
]
"""The second passage of a step is the receiver's: the sender is always before it. Of what is sent the second
is the sender's release, and the third the receiver's."""

TESTER = [*(step.value for step in TesterStep), TesterRelayStep.SEALED_SERVED.value]
ALL = [*SENDER, *ACCEPTANCE, *RECEIVER, *TESTER]
STEPS = {
    "sqlite": [*SENDER[3::2], *ACCEPTANCE, *RECEIVER, TESTER[-1]],
    "postgresql": [*ACCEPTANCE, *RECEIVER[::2]],
}
"""What the usual run kills at. The steps that are not two rounds' own are tried by test_kill_sweep.py."""


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_killed_at_every_step(sweep: Sweep, engine: str) -> None:
    once = {"kills": 1, "faults": []}
    steps = ALL if LONG else STEPS[engine]
    wrong = {step: outcome for step in steps if (outcome := sweep.run(step)) != once}
    assert wrong == {}, sweep.log.read_text()


@pytest.mark.parametrize("real", ["answers", "screening"])
@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_killed_while_randomised_answers_are_made(sweep: Sweep, engine: str, real: str) -> None:
    """The same of real procedures: answers are drawn once, and tables are of those."""
    own = [AgentStep.NOISE_DRAWN, AgentStep.RELEASE_STORED, AgentRelayStep.COMBINED]
    drawn_again = f"{AgentStep.NOISE_DRAWN}@2"
    steps = ALL if LONG else [*own, drawn_again] if engine == "sqlite" else [own[0], drawn_again]
    once = {"kills": 1, "faults": []}
    wrong = {step: outcome for step in steps if (outcome := sweep.run(step, planted=real)) != once}
    assert wrong == {}, sweep.log.read_text()


def test_a_second_answer_after_a_crash_would_be_caught(sqlite_sweep: Sweep) -> None:
    """Planted: the first round's is sent before it is stored, and drawn again after the crash."""
    outcome = sqlite_sweep.run(AgentStep.RELEASE_SIGNED.value, planted="send-before-storing")
    assert "other releases than the stored one were sent" in outcome["faults"]


def test_a_reservation_apart_from_the_approval_would_be_caught(sqlite_sweep: Sweep) -> None:
    """Planted: what a study costs is reserved before the transaction that approves it."""
    outcome = sqlite_sweep.run(AcceptanceStep.RESERVED.value, planted="reserve-outside")
    assert "the agent did not get its verdict" in outcome["faults"]
