"""The points of a tester's work at which a power cut is tested, in the order a study passes them."""

from enum import StrEnum

from tacit_services.shared.failpoints import failpoint


class Step(StrEnum):
    """A point between two steps; tests kill the process at each and start it again."""

    STUDY_CHECKED = "tester.study.checked"
    STUDY_INSERTED = "tester.study.inserted"
    """Inside the transaction, as every step whose name ends in ``inserted``."""
    STUDY_STORED = "tester.study.stored"
    RELEASE_CHECKED = "tester.release.checked"
    RELEASE_INSERTED = "tester.release.inserted"
    RELEASE_STORED = "tester.release.stored"
    ANSWERING = "tester.answering"
    """An upload is stored and announced; its sender does not know yet."""
    JOB_LEASED = "tester.job.leased"
    VERDICT_COMPUTED = "tester.verdict.computed"
    VERDICT_INSERTED = "tester.verdict.inserted"
    VERDICT_STORED = "tester.verdict.stored"
    VERDICT_SERVED = "tester.verdict.served"
    """The verdict has been read for somebody who asked; the answer is not yet sent."""


class RelayStep(StrEnum):
    """The points that a study passes besides where one owner's release goes to another."""

    SEALED_INSERTED = "tester.sealed.inserted"
    SEALED_SERVED = "tester.sealed.served"
    """A sealed release has been read for its receiver; the answer is not yet sent."""


class ArchiveStep(StrEnum):
    """The points that an ended study passes on its way into an archive."""

    PART_WRITTEN = "tester.archive.part-written"
    """The transcript is durable, under a name that nobody reads."""
    FILE_STORED = "tester.archive.file-stored"
    INDEXED = "tester.archive.indexed"
    VERIFIED = "tester.archive.verified"
    TOMBSTONE_INSERTED = "tester.archive.tombstone-inserted"
    """Inside the transaction that deletes."""
    DELETED = "tester.archive.deleted"


def reached(step: Step | RelayStep | ArchiveStep) -> None:
    """Mark that the step has been reached; does nothing outside of tests."""
    failpoint(step.value)
