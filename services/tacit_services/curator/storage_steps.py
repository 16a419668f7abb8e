"""The points of the curator's storage at which a power cut is tested."""

from enum import StrEnum

from tacit_services.shared.failpoints import failpoint


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
