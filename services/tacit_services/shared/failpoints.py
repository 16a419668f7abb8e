"""The points of the services' work at which a test may kill the process, as a power cut would.

Nothing happens unless ``TACIT_FAILPOINT`` names a point: ``name`` kills at the first passage, ``name@k`` at
the k-th. Each enumeration lists its points in the order in which a study passes them.
"""

import os
import signal
from collections import Counter
from enum import StrEnum

VARIABLE = "TACIT_FAILPOINT"

_passages: Counter[str] = Counter()


class AgentStep(StrEnum):
    """Points of an agent's work, and of a curator's."""

    STUDY_FETCHED = "agent.study-fetched"
    STUDY_STORED = "agent.study-stored"
    READING_BEGUN = "agent.reading-begun"
    """The attempt is counted and the cost reserved; nothing of the data has been opened."""
    DATA_SUMMARISED = "agent.data-summarised"
    DEBITED = "agent.debited"
    NOISE_DRAWN = "agent.noise-drawn"
    RELEASE_SIGNED = "agent.release-signed"
    RELEASE_STORED = "agent.release-stored"
    RELEASE_COMMITTED = "agent.release-committed"
    BEFORE_SEND = "agent.before-send"
    AFTER_SEND = "agent.after-send"
    ACKNOWLEDGED = "agent.acknowledged"


class AgentRelayStep(StrEnum):
    """Points that a study passes besides where this owner receives another's release."""

    SEALED_FETCHED = "agent.sealed-fetched"
    SEALED_STORED = "agent.sealed-stored"
    COMBINED = "agent.combined"
    FINDING_STORED = "agent.finding-stored"
    """Inside the transaction that stores the answer."""


class AcceptanceStep(StrEnum):
    """Points of a study whose sender waits for the receiver's acceptance, at both owners and the tester."""

    RESERVED = "agent.reserved"
    """Inside the transaction that approves: the cost is reserved, the acceptance not yet written."""
    INSERTED = "tester.acceptance.inserted"
    SERVED = "tester.acceptance.served"
    FETCHED = "agent.acceptance-fetched"
    """At the sender, who has not kept it yet."""
    KEPT = "agent.acceptance-kept"


class MaskStep(StrEnum):
    """Points that a study with masks passes besides, at an owner's agent and at the tester."""

    KEY_DRAWN = "agent.mask-key-drawn"
    """Inside the transaction that approves: the key is kept and not yet in the outbox."""
    INSERTED = "tester.mask-key.inserted"
    SERVED = "tester.mask-keys.served"
    FETCHED = "agent.mask-keys-fetched"
    KEPT = "agent.mask-keys-kept"
    MASKED = "agent.masked"
    """Inside the transaction that releases: the noisy numbers are masked, and not yet signed."""


class ApprovalStep(StrEnum):
    """Points of a person's approval of a study."""

    APPROVED_BY_ALL = "agent.approved-by-all"
    """Inside the transaction of the last approval: the study does not run yet."""
    APPROVAL_STORED = "agent.approval-stored"
    """An approval is stored, the first of two or the last; who approved does not know yet."""


class ClosingStep(StrEnum):
    """Points of the end of a study that failed after rows were read, and of the unlocking of its data set."""

    DEBITED = "agent.closing-debited"
    """Inside the transaction, once for each account."""
    LOCKED = "agent.closing-locked"
    """Inside the transaction, which has done everything."""
    CLOSED = "agent.closed"
    UNLOCKED = "agent.unlocked"
    """Inside the transaction that unlocks."""


class HeldStep(StrEnum):
    """Points of a release that is held until a steward has looked at it, each within its transaction."""

    HELD = "agent.held"
    SENDING = "agent.held-sending"
    WITHHELD = "agent.held-withheld"


class PolicyStep(StrEnum):
    """Points of a change of the policy, and of an added data set, on the agent's page."""

    RECORDED = "agent.policy-recorded"
    """The record has the change; the file is as it was."""
    WRITTEN = "agent.policy-written"


class CuratorStep(StrEnum):
    """Points of a curator's own work, beside those of an agent's."""

    DECISION_WRITTEN = "curator.decision-written"
    """Inside the transaction that records an owner's decision."""
    DECISION_STORED = "curator.decision-stored"


class StorageStep(StrEnum):
    """Points of an upload to a curator, and of a deletion."""

    FILE_BEGUN = "storage.file-begun"
    FILE_WRITTEN = "storage.file-written"
    """The new file is on disk, and nothing refers to it."""
    ROWS_SWAPPED = "storage.rows-swapped"
    """The database names the new file; the old one is still there."""
    ROWS_HELD = "storage.rows-held"
    """Everything is done, and the owner has not been told."""
    KEY_DELETED = "storage.key-deleted"
    """The data set is deleted; its file is still there."""


class TesterStep(StrEnum):
    """Points of a tester's work."""

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


class TesterRelayStep(StrEnum):
    """Points that a study passes besides where one owner's release goes to another."""

    SEALED_INSERTED = "tester.sealed.inserted"
    SEALED_SERVED = "tester.sealed.served"
    """A sealed release has been read for its receiver; the answer is not yet sent."""


class ArchiveStep(StrEnum):
    """Points that an ended study passes on its way into an archive."""

    PART_WRITTEN = "tester.archive.part-written"
    """The transcript is durable, under a name that nobody reads."""
    FILE_STORED = "tester.archive.file-stored"
    INDEXED = "tester.archive.indexed"
    VERIFIED = "tester.archive.verified"
    TOMBSTONE_INSERTED = "tester.archive.tombstone-inserted"
    """Inside the transaction that deletes."""
    DELETED = "tester.archive.deleted"


def reached(step: StrEnum) -> None:
    """Mark that a point has been reached; does nothing outside of tests."""
    failpoint(step.value)


def failpoint(name: str) -> None:
    """Kill this process with SIGKILL if the environment asks for it here."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    point, _, passage = wanted.partition("@")
    if point != name:
        return
    _passages[name] += 1
    if _passages[name] == int(passage or 1):
        os.kill(os.getpid(), signal.SIGKILL)
