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


class StorageStep(StrEnum):
    """A point between two steps; tests kill the process at each and start it again."""

    FILE_BEGUN = "storage.file-begun"
    FILE_WRITTEN = "storage.file-written"
    """The new file is on disk, and nothing refers to it."""
    ROWS_SWAPPED = "storage.rows-swapped"
    """The database names the new file; the old one is still there."""
    ROWS_HELD = "storage.rows-held"
    """Everything is done, and the owner has not been told."""
    KEY_DELETED = "storage.key-deleted"
    """The data set is deleted; its file is still there."""


def storage_reached(step: StorageStep) -> None:
    """Mark that the step has been reached; does nothing outside of tests."""
    failpoint(step.value)
