"""Releases: one SQL transaction debits, draws noise, signs and stores, once the data have been read.

A crash before the commit has spent nothing and sent nothing, and one after it finds the release stored:
noise that could have been seen is drawn once.

What decides whether a release can be made is public, and is looked at before rows are read for the study:
the study, policy, schema, number of units, what is left of the budget, which is reserved. What fails after
that is an answer about the rows: it closes the study (readings.py). Trouble with the database, with a
cluster, or with reading is tried again, ``ATTEMPTS_MAX`` times in all.

How long a release takes to compute may depend on the data. An answer, release or decline alike, leaves at
the first of these moments by which it is ready, counted from the decision to run the study::

    r, 2r, 4r, ..., 64r, 128r, 192r, 256r, ...        r = the study's respond_after_s

Ready within r, it says nothing by its time. A later one tells its moment and no more.

A release for another owner's second round is sealed to it, or in the open. It is made once that owner, who
has its own cost reserved, has accepted: the signed acceptance is kept (mailbox.py) before anything is spent.

Where the policy asks that a steward look at each release, it is made, paid for and stored as ever, and held.
Looked at, sent or declined it is from the moment on at which it would have been sent, so that what the
steward does, and when, follows from what is private and from the schedule.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
import structlog

from tacit_protocol.domain import DataError, PooledTable, Workers, WorkersUnavailableError
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import (
    Receipt,
    Release,
    ReleaseMessage,
    SealedPackage,
    SealedRelease,
    ciphertext_digest,
    padded,
)
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import planned, units_declared
from tacit_protocol.procedures.masking import MaskingRoster, masked
from tacit_protocol.procedures.plan import Relay
from tacit_protocol.procedures.relay import check_own_release, combined
from tacit_protocol.signing import (
    RECEIPT_TYPE,
    RELEASE_TYPE,
    SEALED_RELEASE_TYPE,
    PrivateKey,
    SealError,
    seal_to,
    sign_envelope,
)
from tacit_protocol.strict import HOPELESS
from tacit_services.agent.data.reader import IN_THIS_THREAD, Computing
from tacit_services.agent.data.table import SourceTable
from tacit_services.agent.schema import State
from tacit_services.agent.study.intake import IntakeRefusedError, Job, StudyIntake, refuse
from tacit_services.agent.study.mailbox import Awaited, ReceivedReleases, seal_context
from tacit_services.agent.study.readings import (
    ATTEMPTS_MAX,
    KILLED,
    ReadingFailure,
    begin,
    close,
    forget_reading,
    take_back,
)
from tacit_services.agent.study.studies import (
    Kind,
    StudyRow,
    approvers_of,
    forget_mask_secrets,
    hold,
    mask_secret_of,
    move,
    put_finding,
    put_in_outbox,
    show_from,
    study_row,
)
from tacit_services.agent.study.tester_client import TesterClient
from tacit_services.ledger.accounts import (
    BudgetExceededError,
    LedgerConflictError,
    debit,
    debits_of_study,
    give_back,
    reserve,
)
from tacit_services.ledger.entries import LedgerEntry
from tacit_services.shared.clock import Clock
from tacit_services.shared.database import DatabaseError, run_transaction
from tacit_services.shared.failpoints import (
    AgentRelayStep,
    AgentStep,
    ClosingStep,
    HeldStep,
    MaskStep,
    reached,
)
from tacit_services.shared.logging import describe_exception

DOUBLINGS = 6
"""Moments double this often, then come every ``2**DOUBLINGS * r``: few of them, and never a wait that is
longer than the computation took, nor, after an agent was off for days, longer than that step."""

MARGIN_S = 0.25
"""An answer must be ready this long before its moment: storing and signing it take part of that."""


def send_time(decided_at: int, respond_after_s: int, now: float) -> int:
    """Return the Unix time at which an answer that is ready ``now`` is to be sent.

    Args:
        decided_at: when it was decided to run or to decline the study, Unix seconds.
        respond_after_s: the study's; with 0 the answer is due at once.
        now: Unix time, at or after ``decided_at``.
    """
    if respond_after_s == 0:
        return 0
    elapsed_s = now + MARGIN_S - decided_at
    moment_s, longest_s = respond_after_s, respond_after_s << DOUBLINGS
    while moment_s < min(elapsed_s, longest_s):
        moment_s *= 2
    if moment_s < elapsed_s:
        moment_s = longest_s * -int(-elapsed_s // longest_s)
    return decided_at + moment_s


@dataclass(frozen=True)
class Dependencies:
    """What whoever answers studies works with."""

    engine: sa.Engine
    """The database of ledger, studies and outbox."""
    client: TesterClient
    noise: NoiseSource
    """The only source of private noise."""
    clock: Clock
    computing: Computing = IN_THIS_THREAD
    """What reads and sums the data."""
    stopping: Callable[[], bool] = lambda: False
    """Whether the process is on its way out. Reading data then fails in ways that say nothing about the data,
    and must not decline a study."""


log = structlog.get_logger()


def seal_release(job: Job, relay: Relay, message: ReleaseMessage, key: PrivateKey) -> bytes:
    """Seal a release to the study's receiver; returns the exact bytes to send."""
    certificate = relay.receiver.sealing
    if certificate is None:
        refuse("study-refused", "the receiver's sealing certificate is missing")
    try:
        ciphertext = seal_to(certificate, relay.receiver.key, seal_context(job, relay), padded(message))
    except SealError as error:
        refuse("study-refused", str(error))
    statement = SealedRelease(
        study=job.digest,
        party=job.sender,
        receiver=relay.receiver.name,
        units=message.release.units,
        ciphertext_digest=ciphertext_digest(ciphertext),
        ciphertext_bytes=len(ciphertext),
    )
    envelope = sign_envelope(encode(statement), SEALED_RELEASE_TYPE, key)
    return encode(SealedPackage.of(envelope, ciphertext))


class StoppingError(Exception):
    """The agent is stopping; the study stays approved, and is run after the next start."""


LEFT = "left to a steward, as the policy approves no study that its procedure calls hopeless: "


def left_to_a_steward(hopeless: Sequence[str]) -> str:
    """Say why a study waits though the policy approves studies by itself."""
    return LEFT + "; ".join(words.removeprefix(HOPELESS) for words in hopeless)


class LeftToStewardError(Exception):
    """The study waits for a steward: it is hopeless at the numbers of units that were counted, ``units``."""

    def __init__(self, units: dict[str, int]) -> None:
        super().__init__("the study is hopeless")
        self.units = units


class UnfinishedError(Exception):
    """No release that may be sent came of the rows. Constant text."""


AGAIN = (DataError, WorkersUnavailableError, DatabaseError, LedgerConflictError, sa.exc.SQLAlchemyError)
"""After these a study is tried again, ``ATTEMPTS_MAX`` times in all."""

NO_MOMENT = "the study's schedule leaves no moment before its deadline"


def _echo(_: None, item: int) -> int:
    return item


def require_reachable(workers: Workers) -> None:
    """Raise WorkersUnavailableError where a cluster computes nothing now: no row has been read."""
    if not workers.in_process:
        list(workers.map(_echo, None, (0,)))


def debit_parts(connection: sa.Connection, job: Job, *, at: int) -> list[LedgerEntry]:
    """Debit a study's whole cost to every account: each unit lies in one of their data sets.

    Raises:
        BudgetExceededError: an account has too little left.
    """
    entries = []
    for part in sorted(job.parts, key=lambda part: part.account):  # one order: no two wait in a ring
        approvers = approvers_of(connection, job.digest, part.owner)
        entries.append(debit(connection, part.account, job.digest, job.cost, at=at, approved_by=approvers))
        reached(AgentStep.DEBITED)
    return entries


@dataclass
class Releaser:
    """Runs accepted studies: ``intake`` says what may be released, ``key`` signs it."""

    key: PrivateKey
    intake: StudyIntake
    uses: Dependencies

    def release(self, job: Job, awaited: Awaited) -> dict[str, int] | None:
        """Spend the study's budget and store its release; with another owner's, what was found with it.

        Returns the number of units of each data set. None where no release was made: the study is not
        approved any more, another is reading the account's rows, the account is locked, or the study has been
        closed.

        Raises:
            StudyRefusedError: the data cannot be opened or are too few, or an account has too little left.
            DataError: rows cannot be read now; try again later.
            DatabaseError: nothing can be written now; try again later.
            WorkersUnavailableError: nothing can be computed now; try again later.
            LeftToStewardError: it waits for a steward from now on.
        """
        try:
            may_read = run_transaction(self.uses.engine, lambda c: self._begin(c, job, awaited.at))
        except BudgetExceededError as error:
            raise IntakeRefusedError("budget-exceeded", str(error)) from None
        except UnfinishedError:
            self.close(job.digest, KILLED, job.study.respond_after_s)
            return None
        if not may_read:
            return None
        reached(AgentStep.READING_BEGUN)
        try:
            return self._make(job, awaited)
        except (*AGAIN, IntakeRefusedError, StoppingError, LeftToStewardError):
            raise  # a refusal for which the attempt is not taken back closes the study
        except Exception as error:
            if self.uses.stopping():
                raise StoppingError("stopped while the release was made") from error
            log.error("release_failed", study=job.digest, fault=describe_exception(error))
            self.close(job.digest, ReadingFailure.of(error), job.study.respond_after_s)
            return None

    def _make(self, job: Job, awaited: Awaited) -> dict[str, int] | None:
        received = awaited.received
        table = self._open(job, received)
        self._require_hope(job, table)
        units, summary = self._summarise(job, received, table)
        reached(AgentStep.DATA_SUMMARISED if received is None else AgentRelayStep.COMBINED)
        try:
            entries = run_transaction(self.uses.engine, lambda c: self._spend(c, job, summary, awaited))
        except (IntakeRefusedError, BudgetExceededError) as error:
            # The database alone says so: owners deleted or replaced rows, or lowered a cap.
            self._take_back(job)
            if isinstance(error, BudgetExceededError):
                raise IntakeRefusedError("budget-exceeded", str(error)) from None
            raise
        if entries is None:
            return None
        reached(AgentStep.RELEASE_COMMITTED)
        # The head hash, kept in another place with the log, shows a ledger that was put back to an old copy.
        for entry in entries:
            log.info(
                "released",
                study=job.digest,
                data_set=entry.data_set,
                ledger_sequence=entry.sequence,
                ledger_head=entry.entry_hash,
                epsilon_micro=entry.epsilon_micro,
            )
        return units

    def _begin(self, connection: sa.Connection, job: Job, waited_until: int) -> bool:
        """Count the attempt and reserve the cost before anything is opened; says whether rows may be read.

        Raises:
            UnfinishedError: so many attempts ended without an answer.
            StudyRefusedError: it is too late, or the data are held no more, or have changed.
            BudgetExceededError: an account has too little left.
        """
        now, row = int(self.uses.clock()), study_row(connection, job.digest)
        if row is None or row.state is not State.APPROVED:
            return False
        cost = job.cost if job.spends else None
        attempt = begin(connection, job.digest, [(part.account, part.owner) for part in job.parts], cost)
        if attempt is None:
            return False
        if attempt > ATTEMPTS_MAX:
            raise UnfinishedError(KILLED.kind)
        self.intake.require_current(connection, job)
        if self._send_at(job, row, waited_until) is None:
            raise IntakeRefusedError("study-expired", NO_MOMENT)
        is_paid = not job.spends or debits_of_study(connection, job.digest)
        for part in () if is_paid else job.parts:
            reserve(connection, part.account, job.digest, job.cost, at=now)
        return True

    def _open(self, job: Job, received: ReceivedReleases | None) -> SourceTable | PooledTable:
        """Open and count the data; what keeps any study from reading them is a refusal.

        Raises:
            StudyRefusedError: they cannot be opened or are too few.
            WorkersUnavailableError: nothing can be computed now.
        """
        try:
            require_reachable(self.uses.computing.workers)
            table = job.table(self.uses.computing)
            job.require_units(table)
            if received is not None and received.units != table.units:
                raise IntakeRefusedError("not-aligned", "the other owner counts another number of units")
            for part in [table] if isinstance(table, SourceTable) else table.parts.values():
                if isinstance(part, SourceTable):
                    part.require_readable()
        except DataError as error:
            if self.uses.stopping():
                raise StoppingError("stopped while the data were opened") from error
            self._take_back(job)
            raise IntakeRefusedError("data-unreadable", str(error)) from None
        except (IntakeRefusedError, WorkersUnavailableError):
            self._take_back(job)
            raise
        return table

    def _require_hope(self, job: Job, table: SourceTable | PooledTable) -> None:
        """Leave a study to a steward that nobody but the policy has approved, and that is hopeless.

        It looks at the study and at the numbers of units, before a row is read. Where other owners have been
        told that this one takes part, it takes part.

        Raises:
            LeftToStewardError: it waits from now on, and nothing is spent.
        """
        if job.waits or not isinstance(table, SourceTable):  # a curator knew the numbers before it approved
            return
        hopeless = job.hopeless(units_declared(job.study) | {job.sender: table.units})
        if not hopeless or job.approved(hopeless):
            return

        def leave(connection: sa.Connection) -> bool:
            if approvers_of(connection, job.digest, job.sender):
                return False
            take_back(connection, job.digest)
            give_back(connection, [job.digest])
            now, why = int(self.uses.clock()), left_to_a_steward(hopeless)
            return move(
                connection, job.digest, before=[State.APPROVED], after=State.WAITING, at=now, reason=why
            )

        if run_transaction(self.uses.engine, leave):
            log.info("left_to_a_steward", study=job.digest)
            raise LeftToStewardError(job.units_by_data_set(table))

    def _take_back(self, job: Job) -> None:
        run_transaction(self.uses.engine, lambda connection: take_back(connection, job.digest))

    def close(self, digest: str, fault: ReadingFailure, respond_after_s: int) -> bool:
        """Close a study whose rows have been read; returns False where they have not, or it has ended."""

        def end(connection: sa.Connection, pays: bool) -> bool:
            row = study_row(connection, digest)
            if row is None:
                return False
            now = int(self.uses.clock())
            shown_from = send_time(row.changed_at, respond_after_s, self.uses.clock())
            return close(connection, digest, fault, at=now, shown_from=shown_from, pays=pays)

        try:
            closed = run_transaction(self.uses.engine, lambda connection: end(connection, pays=True))
        except BudgetExceededError:
            closed = run_transaction(self.uses.engine, lambda connection: end(connection, pays=False))
        if closed:
            reached(ClosingStep.CLOSED)
            log.error("closed", study=digest, fault=fault.kind, place=fault.place)
        return closed

    def _send_at(self, job: Job, row: StudyRow, waited_until: int) -> int | None:
        """Return when an answer is to be sent that is ready now; None where that is too late."""
        # What was to be waited for says nothing about the data here: the schedule begins once it has come.
        since = max(row.changed_at, waited_until)
        send_at = send_time(since, job.study.respond_after_s, self.uses.clock())
        # Round two has a schedule of its own: what could not be answered any more is not released.
        # So has the answer to a steward's look.
        rounds_s = job.study.respond_after_s * (job.sends_on + job.is_held)
        leaves_at = max(send_at, int(self.uses.clock()))
        return None if leaves_at + rounds_s >= job.study.deadline else send_at

    def _summarise(
        self, job: Job, received: ReceivedReleases | None, table: SourceTable | PooledTable
    ) -> tuple[dict[str, int], Any]:
        """Read the rows and compute the exact summary.

        Raises:
            DataError: rows cannot be read.
            WorkersUnavailableError: nothing can be computed now.
        """
        units = job.units_by_data_set(table)
        if received is not None and job.relay is not None:
            return units, combined(job.procedure, job.study, received.releases, table)
        plan = planned(job.procedure, job.study)
        # Noise before the ledger's entry: nothing of it leaves until that is written.
        return units, plan.adapt(plan.summarise(table), self.uses.noise)

    def _spend(
        self, connection: sa.Connection, job: Job, summary: Any, awaited: Awaited
    ) -> list[LedgerEntry] | None:
        now, received = int(self.uses.clock()), awaited.received
        row = study_row(connection, job.digest)
        after = State.HELD if job.is_held else State.RELEASED
        moved = move(connection, job.digest, before=[State.APPROVED], after=after, at=now)
        if row is None or not moved:
            return None
        forget_reading(connection, job.digest)
        self.intake.require_current(connection, job)
        send_at = self._send_at(job, row, awaited.at)
        if send_at is None:
            raise UnfinishedError("the deadline passed while the rows were read")
        if received is not None and summary.finding is not None:
            put_finding(connection, job.digest, summary.finding, now)
            reached(AgentRelayStep.FINDING_STORED)
        # What was to be waited for says nothing about the data here: the schedule begins once it has come.
        since = max(row.changed_at, awaited.at)
        entries = self._debit(connection, job, since) if job.spends else []
        if received is None or job.spends:
            exact = summary if received is None else summary.summary
            secret = None if awaited.roster is None else mask_secret_of(connection, job.digest)
            release = self._release(job, exact, awaited.roster, secret)
            envelope = self._sign(job, release, awaited)
            if awaited.roster is not None:
                forget_mask_secrets(connection)
        else:
            release, envelope = None, self._acknowledge(job, received)
        reached(AgentStep.RELEASE_SIGNED)
        show_from(connection, job.digest, send_at)
        kind: Kind = "release" if job.spends else "receipt"
        if job.is_held and release is not None:
            hold(connection, job.digest, envelope, release, shown_from=send_at)
            reached(HeldStep.HELD)
        else:
            put_in_outbox(connection, job.digest, kind, envelope, at=now, send_at=send_at)
        reached(AgentStep.RELEASE_STORED)
        return entries

    def _release(self, job: Job, summary: Any, roster: MaskingRoster | None, secret: bytes | None) -> Release:
        """Draw the noise, and mask."""
        release = job.procedure.privatise(job.study, summary, self.uses.noise)
        reached(AgentStep.NOISE_DRAWN)
        if release.guarantee != job.cost:
            raise UnfinishedError("the release did not cost what the procedure stated")
        if job.masking is not None:
            if roster is None or secret is None:
                raise UnfinishedError("the release could not be masked")
            release = masked(release, roster, job.sender, secret)
            reached(MaskStep.MASKED)
        check_own_release(job.procedure, job.study, job.sender, release)
        return release

    def _sign(self, job: Job, release: Release, awaited: Awaited) -> bytes:
        """Return the release, signed, and sealed where it is for another owner."""
        statement = None
        if awaited.roster is not None:
            statement = awaited.roster.digest
        elif awaited.received is not None and job.relay is not None and not job.relay.sealed:
            statement = awaited.received.statement
        message = ReleaseMessage(study=job.digest, party=job.sender, release=release, received=statement)
        if job.relay is not None and job.relay.kind_of(job.sender) == "sealed release":
            return seal_release(job, job.relay, message, self.key)
        return sign_envelope(encode(message), RELEASE_TYPE, self.key)

    def _acknowledge(self, job: Job, received: ReceivedReleases) -> bytes:
        receipt = Receipt(
            study=job.digest, party=job.sender, units=received.units, received=received.statement
        )
        return sign_envelope(encode(receipt), RECEIPT_TYPE, self.key)

    def _debit(self, connection: sa.Connection, job: Job, since: int) -> list[LedgerEntry]:
        """Debit the study, unless its approval did; the entry is dated as the schedule begins."""
        entries = debits_of_study(connection, job.digest)
        return entries or debit_parts(connection, job, at=since)
