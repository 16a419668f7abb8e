"""Kill both agents and the tester at every step of a study of two rounds in the open, and start them again.

As test_peer_kill_sweep.py. Afterwards: one debit at either owner, one release of each whose bytes alone were
ever sent, the sender's kept by the receiver as it was stored, the verdict reached, and a transcript that
verifies: so that no second answer was drawn, and the receiver's table is of the answers that everyone sees.
"""

import pytest
from long_runs import LONG
from sweeps import Sweep

from tacit_services.shared.failpoints import AgentRelayStep, AgentStep, TesterRelayStep, TesterStep

SUPERVISOR = "two rounds"

pytestmark = pytest.mark.long

SENDER = [step.value for step in AgentStep]
RECEIVER = [
    AgentRelayStep.SEALED_FETCHED.value,
    AgentRelayStep.SEALED_STORED.value,
    AgentRelayStep.COMBINED.value,
    *(f"{step}@2" for step in AgentStep if step is not AgentStep.DATA_SUMMARISED),
]
"""The second passage of a step is the receiver's: the sender is always before it."""

TESTER = [*(step.value for step in TesterStep), TesterRelayStep.SEALED_SERVED.value]
ALL = [*SENDER, *RECEIVER, *TESTER]
STEPS = {"sqlite": [*SENDER[3::2], *RECEIVER, TESTER[-1]], "postgresql": RECEIVER[::2]}
"""What the usual run kills at. The steps that are not two rounds' own are tried by test_kill_sweep.py."""


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
def test_killed_at_every_step(sweep: Sweep, engine: str) -> None:
    once = {"kills": 1, "faults": []}
    steps = ALL if LONG else STEPS[engine]
    wrong = {step: outcome for step in steps if (outcome := sweep.run(step)) != once}
    assert wrong == {}, sweep.log.read_text()


def test_a_second_answer_after_a_crash_would_be_caught(sqlite_sweep: Sweep) -> None:
    """Planted: the first round's is sent before it is stored, and drawn again after the crash."""
    outcome = sqlite_sweep.run(AgentStep.RELEASE_SIGNED.value, planted="send-before-storing")
    assert "other releases than the stored one were sent" in outcome["faults"]
