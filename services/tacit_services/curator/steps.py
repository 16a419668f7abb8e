"""The points of a curator's own work at which a power cut is tested, beside those of an agent's."""

from enum import StrEnum

from tacit_services.shared.failpoints import failpoint


class Step(StrEnum):
    """A point between two steps; tests kill the process at each and start it again."""

    DECISION_WRITTEN = "curator.decision-written"
    """Inside the transaction that records an owner's decision."""
    DECISION_STORED = "curator.decision-stored"


def reached(step: Step) -> None:
    """Mark that the step has been reached; does nothing outside of tests."""
    failpoint(step.value)
