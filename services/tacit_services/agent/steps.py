"""The points of an agent's work at which a power cut is tested, in the order a study passes them."""

from enum import StrEnum

from tacit_services.shared.failpoints import failpoint


class Step(StrEnum):
    """A point between two steps; tests kill the process at each and start it again."""

    STUDY_FETCHED = "agent.study-fetched"
    STUDY_STORED = "agent.study-stored"
    DATA_SUMMARISED = "agent.data-summarised"
    DEBITED = "agent.debited"
    NOISE_DRAWN = "agent.noise-drawn"
    RELEASE_SIGNED = "agent.release-signed"
    RELEASE_STORED = "agent.release-stored"
    RELEASE_COMMITTED = "agent.release-committed"
    BEFORE_SEND = "agent.before-send"
    AFTER_SEND = "agent.after-send"
    ACKNOWLEDGED = "agent.acknowledged"


class RelayStep(StrEnum):
    """The points that a study passes besides where this owner receives another's release."""

    SEALED_FETCHED = "agent.sealed-fetched"
    SEALED_STORED = "agent.sealed-stored"
    COMBINED = "agent.combined"
    FINDING_STORED = "agent.finding-stored"
    """Inside the transaction that stores the answer."""


def reached(step: Step | RelayStep) -> None:
    """Mark that the step has been reached; does nothing outside of tests."""
    failpoint(step.value)
