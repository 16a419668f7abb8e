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
has its own cost reserved, has accepted: the signed acceptance is kept before anything is spent. What was
fetched is kept as it came; what is sealed is opened in memory alone. The tester that carries it is not
trusted: what it could have changed is asked for again; what the sender signed and is wrong all the same ends
the study here. All this is looked at when it comes and again before data are read, so that nothing is spent
on what does not hold.

Where the policy asks that a steward look at each release, it is made, paid for and stored as ever, and held.
Looked at, sent or declined it is from the moment on at which it would have been sent, so that what the
steward does, and when, follows from what is private and from the schedule.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
import structlog

from tacit_protocol.domain import DataError, PooledTable, Workers, WorkersUnavailableError
from tacit_protocol.messages.encoding import MessageError, decode, encode, encode_json
from tacit_protocol.messages.study import (
    Owner,
    Receipt,
    Release,
    ReleaseMessage,
    SealedPackage,
    SealedRelease,
    Study,
    ciphertext_digest,
    padded,
    unpadded,
)
from tacit_protocol.preparation import HOPELESS
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import ReleaseError, StudyError, planned, units_declared
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.masking import MaskingRoster, masked, masks_of, read_roster
from tacit_protocol.procedures.plan import Relay
from tacit_protocol.procedures.relay import (
    check_acceptance,
    check_answer,
    check_own_release,
    combined,
    read_again,
    read_answer,
    statement_of,
)
from tacit_protocol.signing import (
    RECEIPT_TYPE,
    RELEASE_TYPE,
    SEALED_RELEASE_TYPE,
    EnvelopeError,
    PrivateKey,
    SealContext,
    SealError,
    open_sealed,
    seal_to,
    sign_envelope,
)
from tacit_services.agent.data.reader import IN_THIS_THREAD, Computing
from tacit_services.agent.data.table import SourceTable
from tacit_services.agent.intake import IntakeRefusedError, Job, StudyIntake, refuse
from tacit_services.agent.readings import (
    ATTEMPTS_MAX,
    KILLED,
    ReadingFailure,
    begin,
    close,
    forget_reading,
    take_back,
)
from tacit_services.agent.schema import RECEIVED, State
from tacit_services.agent.studies import (
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
from tacit_services.agent.tester_client import TesterClient
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
from tacit_services.shared.database import DatabaseError, read_from, run_transaction
from tacit_services.shared.failpoints import (
    AcceptanceStep,
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


ReadStudy = Callable[[str, bytes], Study]
"""Reads the study of a digest in its envelope; raises StudyRefusedError where it is not that study."""


class TamperedError(Exception):
    """What the tester handed out is not what the sender signed: to be asked for again. Constant text."""


NOT_AS_SIGNED = "what came is not what the sender signed"
ANOTHERS = "what came was sent for another study or by another owner"


@dataclass(frozen=True)
class FetchedRelease:
    """What the tester handed out of another owner's, as it came, and when.

    ``package`` is the sealed package, or the signed release where it is in the open; of several senders the
    JSON object of all their releases by name. ``source`` is the envelope of the earlier study that the
    release was made for, where it is read again.
    """

    package: bytes
    source: bytes | None
    at: int


@dataclass(frozen=True)
class ReceivedReleases:
    """Other owners' releases by name, opened; the digest of what was signed; and when they were fetched."""

    releases: Mapping[str, Release]
    statement: str
    at: int

    @property
    def units(self) -> int:
        """Number of units that the first sender counts."""
        return next(iter(self.releases.values())).units


def seal_release(job: Job, relay: Relay, message: ReleaseMessage, key: PrivateKey) -> bytes:
    """Seal a release to the study's receiver; returns the exact bytes to send."""
    certificate = relay.receiver.sealing
    if certificate is None:
        refuse("study-refused", "the receiver's sealing certificate is missing")
    try:
        ciphertext = seal_to(certificate, relay.receiver.key, _context(job, relay), padded(message))
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


def open_releases(job: Job, relay: Relay, handed: FetchedRelease, read: ReadStudy) -> ReceivedReleases:
    """Read the releases of all senders in the open, once everything about them holds.

    Raises as :func:`open_release` does, of each.
    """
    if not relay.more:
        return open_release(job, relay, relay.sender, handed, read)
    try:
        held = json.loads(handed.package)
        packages = {owner.name: str(held[owner.name]).encode("utf-8") for owner in relay.senders}
    except (ValueError, TypeError, KeyError):
        raise TamperedError(NOT_AS_SIGNED) from None
    opened = {
        owner.name: open_release(job, relay, owner, replace(handed, package=packages[owner.name]), read)
        for owner in relay.senders
    }
    releases = {name: found.releases[name] for name, found in opened.items()}
    if len({release.units for release in releases.values()}) > 1:
        refuse("not-aligned", "the other owners count different numbers of units")
    statement = statement_of(relay, {name: found.statement for name, found in opened.items()})
    return ReceivedReleases(releases, str(statement), handed.at)


def open_release(
    job: Job, relay: Relay, sender: Owner, handed: FetchedRelease, read: ReadStudy
) -> ReceivedReleases:
    """Read one sender's release in the open, once everything about it holds; ``read`` reads studies.

    Raises:
        TamperedError: the tester, or somebody between, changed it or handed out something else.
        StudyRefusedError: the sender's own release does not fit the study.
    """
    source = None
    try:
        answer = read_answer(relay, handed.package, sender.name, sender.key)
        if sender.reuses is not None:
            source = read(sender.reuses, handed.source or b"")
    except (MessageError, EnvelopeError, IntakeRefusedError):
        raise TamperedError(NOT_AS_SIGNED) from None
    if (answer.study, answer.party) != (sender.reuses or job.digest, sender.name) or answer.release is None:
        raise TamperedError(ANOTHERS)
    try:
        release = answer.release
        if source is None:
            check_answer(job.procedure, job.study, answer)
        else:
            lender = procedure_named(source.procedure)
            release = read_again(job.procedure, job.study, sender, source, answer, lender=lender)
    except (ReleaseError, StudyError) as error:
        refuse("release-refused", f"the other owner's release: {error}")
    return ReceivedReleases({sender.name: release}, answer.digest, handed.at)


def open_package(job: Job, relay: Relay, package: bytes, key: PrivateKey, at: int) -> ReceivedReleases:
    """Open what was sealed to this owner, once everything about it holds.

    Raises:
        TamperedError: the tester, or somebody between, changed it or handed out something else.
        StudyRefusedError: the sender's own release does not open or does not fit the study.
    """
    sender = relay.sender
    try:
        parts = decode(SealedPackage, package)
        answer = read_answer(relay, parts.statement.encode("utf-8"), sender.name, sender.key)
        ciphertext = parts.sealed
    except (MessageError, EnvelopeError):
        raise TamperedError(NOT_AS_SIGNED) from None
    sealed = answer.sealed
    if sealed is None or (answer.study, answer.party) != (job.digest, sender.name):
        raise TamperedError(ANOTHERS)
    if sealed.ciphertext_digest != ciphertext_digest(ciphertext):
        raise TamperedError("the ciphertext is not the one that the sender signed")
    release = _open(job, relay, sealed, ciphertext, key)
    return ReceivedReleases({sender.name: release}, answer.digest, at)


def _open(job: Job, relay: Relay, sealed: SealedRelease, ciphertext: bytes, key: PrivateKey) -> Release:
    try:
        message = unpadded(open_sealed(key, _context(job, relay), ciphertext))
        if (message.study, message.party) != (job.digest, relay.sender.name):
            raise ReleaseError("it was made for another study or owner")
        if (sealed.receiver, sealed.units) != (relay.receiver.name, message.release.units):
            raise ReleaseError("the statement about it says something else")
        check_own_release(job.procedure, job.study, message.party, message.release)
    except (SealError, MessageError, ReleaseError) as error:
        refuse("release-refused", f"the other owner's sealed release: {error}")
    return message.release


def _context(job: Job, relay: Relay) -> SealContext:
    return SealContext(job.digest, relay.sender.name, relay.receiver.name)


@dataclass(frozen=True)
class Masks:
    """All owners' keys for a study's masks, and when they were fetched."""

    roster: MaskingRoster
    at: int


def open_keys(job: Job, package: bytes) -> MaskingRoster:
    """Read all owners' keys for a study's masks, once everything about them holds.

    Raises:
        TamperedError: the tester, or somebody between, changed them or handed out others.
    """
    try:
        held = json.loads(package)
        envelopes = {str(name): str(text).encode("utf-8") for name, text in held.items()}
        return read_roster(job.study, job.digest, envelopes)
    except (ValueError, TypeError, AttributeError, RecursionError):  # what does not hold is a ValueError
        raise TamperedError(NOT_AS_SIGNED) from None


@dataclass
class Mailbox:
    """What other owners sign for this one's studies: fetched from the tester, kept, opened.

    To a receiver the sender's release comes, to a sender the receiver's acceptance.

    ``key`` opens what is sealed; ``read`` reads the earlier study of a release that is read again.
    """

    key: PrivateKey
    uses: Dependencies
    read: ReadStudy

    def fetch(self, job: Job, relay: Relay) -> bool:
        """Fetch the release for a study's second round unless it is kept; returns whether it has come now.

        Raises:
            StudyRefusedError: what the sender sent is of no use.
            TesterError: the tester could not be asked, or says that nothing will come.
        """
        if self._kept(job.digest) is not None:
            return False
        package = self._sent(job, relay)
        if package is None:
            return False
        reused = relay.sender.reuses
        source = None if reused is None else self.uses.client.study_envelope(reused)
        reached(AgentRelayStep.SEALED_FETCHED)
        handed = FetchedRelease(package, source, int(self.uses.clock()))
        try:
            self._open(job, relay, handed)
        except TamperedError as error:
            log.warning("sealed_not_taken", study=job.digest, reason=str(error))
            return False

        self._keep(job.digest, handed)
        reached(AgentRelayStep.SEALED_STORED)
        log.info("sealed_received", study=job.digest, sender=relay.sender.name)
        return True

    def _sent(self, job: Job, relay: Relay) -> bytes | None:
        """Return what was sent in round one; None while anything is missing."""
        found = {}
        for owner in relay.senders:
            package = self.uses.client.sealed_release(job.digest, owner.name)
            if package is None:
                return None
            found[owner.name] = package
        if not relay.more:
            return found[relay.sender.name]
        try:
            return encode_json({name: package.decode("utf-8") for name, package in found.items()})
        except UnicodeDecodeError:
            log.warning("sealed_not_taken", study=job.digest, reason=NOT_AS_SIGNED)
            return None

    def fetch_acceptance(self, job: Job, relay: Relay) -> bool:
        """Fetch the receiver's acceptance unless it is kept; returns whether it has come now.

        Raises:
            TesterError: the tester could not be asked, or says that none will come.
        """
        if self._kept(job.digest) is not None:
            return False
        envelope = self.uses.client.acceptance(job.digest, relay.receiver.name)
        if envelope is None:
            return False
        reached(AcceptanceStep.FETCHED)
        try:
            check_acceptance(relay, job.digest, envelope)
        except (EnvelopeError, MessageError, ReleaseError) as error:
            log.warning("acceptance_not_taken", study=job.digest, reason=str(error))
            return False
        self._keep(job.digest, FetchedRelease(envelope, None, int(self.uses.clock())))
        reached(AcceptanceStep.KEPT)
        log.info("accepted", study=job.digest, receiver=relay.receiver.name)
        return True

    def fetch_keys(self, job: Job) -> bool:
        """Fetch all owners' keys for a study's masks unless they are kept; returns whether they came now.

        Those that are kept are used for good: a tester that shows others later is not heard.

        Raises:
            TesterError: the tester could not be asked, or says that none will come.
        """
        if self._kept(job.digest) is not None:
            return False
        package = self.uses.client.mask_keys(job.digest)
        if package is None:
            return False
        reached(MaskStep.FETCHED)
        try:
            roster = open_keys(job, package)
            self._require_own(job, roster)
        except TamperedError as error:
            log.warning("mask_keys_not_taken", study=job.digest, reason=str(error))
            return False
        self._keep(job.digest, FetchedRelease(package, None, int(self.uses.clock())))
        reached(MaskStep.KEPT)
        log.info("mask_keys_received", study=job.digest, roster=roster.digest)
        return True

    def masks(self, job: Job) -> Masks | None:
        """Return the keys that are kept for a study's masks; None while they have not come.

        Raises:
            StudyRefusedError: what is kept does not hold.
        """
        kept = self._kept(job.digest)
        if kept is None:
            return None
        try:
            roster = open_keys(job, bytes(kept.package))
            self._require_own(job, roster)
        except TamperedError as error:
            refuse("release-refused", f"the owners' keys: {error}")
        return Masks(roster, int(kept.received_at))

    def _require_own(self, job: Job, roster: MaskingRoster) -> None:
        """Check that the roster shows the key that was drawn here, and keys with which masks can be made."""
        secret = read_from(self.uses.engine, mask_secret_of, job.digest)
        if secret is None:
            refuse("internal-error", "the secret of the study's masks is gone: the database was changed")
        try:
            masks_of(roster, job.sender, secret, "", 1)
        except ValueError as error:
            raise TamperedError(str(error)) from None

    def accepted_at(self, job: Job) -> int | None:
        """Return when the receiver's acceptance came, Unix seconds; None while it has not."""
        kept = self._kept(job.digest)
        return None if kept is None else int(kept.received_at)

    def _keep(self, study: str, handed: FetchedRelease) -> None:
        def store(connection: sa.Connection) -> None:
            if connection.execute(RECEIVED.select().where(RECEIVED.c.study == study)).first() is None:
                row = {"package": handed.package, "source": handed.source, "received_at": handed.at}
                connection.execute(RECEIVED.insert().values(study=study, **row))

        run_transaction(self.uses.engine, store)

    def open(self, job: Job, relay: Relay) -> ReceivedReleases | None:
        """Open what is kept for a study, in memory; None while nothing has come.

        Raises:
            StudyRefusedError: it does not open or fit.
        """
        kept = self._kept(job.digest)
        if kept is None:
            return None
        source = None if kept.source is None else bytes(kept.source)
        try:
            return self._open(job, relay, FetchedRelease(bytes(kept.package), source, int(kept.received_at)))
        except TamperedError as error:
            refuse("release-refused", f"the other owner's release: {error}")

    def _open(self, job: Job, relay: Relay, handed: FetchedRelease) -> ReceivedReleases:
        if relay.sealed:
            return open_package(job, relay, handed.package, self.key, handed.at)
        return open_releases(job, relay, handed, self.read)

    def _kept(self, digest: str) -> sa.Row[Any] | None:
        query = RECEIVED.select().where(RECEIVED.c.study == digest)
        return read_from(self.uses.engine, lambda connection: connection.execute(query).one_or_none())


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

    def release(
        self,
        job: Job,
        received: ReceivedReleases | None = None,
        *,
        waited_until: int = 0,
        masks: Masks | None = None,
    ) -> dict[str, int] | None:
        """Spend the study's budget and store its release; with another owner's, what was found with it.

        ``waited_until`` is when what this owner waited for has come, in Unix seconds; ``masks`` are what its
        numbers are masked with. Returns the number of units of each data set. None where no release was made:
        the study is not approved any more, another is reading the account's rows, the account is locked, or
        the study has been closed.

        Raises:
            StudyRefusedError: the data cannot be opened or are too few, or an account has too little left.
            DataError: rows cannot be read now; try again later.
            DatabaseError: nothing can be written now; try again later.
            WorkersUnavailableError: nothing can be computed now; try again later.
            LeftToStewardError: it waits for a steward from now on.
        """
        waited_until = waited_until if received is None else received.at
        try:
            may_read = run_transaction(self.uses.engine, lambda c: self._begin(c, job, waited_until))
        except BudgetExceededError as error:
            raise IntakeRefusedError("budget-exceeded", str(error)) from None
        except UnfinishedError:
            self.close(job.digest, KILLED, job.study.respond_after_s)
            return None
        if not may_read:
            return None
        reached(AgentStep.READING_BEGUN)
        try:
            return self._make(job, received, waited_until, masks)
        except (*AGAIN, IntakeRefusedError, StoppingError, LeftToStewardError):
            raise  # a refusal for which the attempt is not taken back closes the study
        except Exception as error:
            if self.uses.stopping():
                raise StoppingError("stopped while the release was made") from error
            log.error("release_failed", study=job.digest, fault=describe_exception(error))
            self.close(job.digest, ReadingFailure.of(error), job.study.respond_after_s)
            return None

    def _make(
        self, job: Job, received: ReceivedReleases | None, waited_until: int, masks: Masks | None
    ) -> dict[str, int] | None:
        table = self._open(job, received)
        self._require_hope(job, table)
        units, summary = self._summarise(job, received, table)
        reached(AgentStep.DATA_SUMMARISED if received is None else AgentRelayStep.COMBINED)
        try:
            entries = run_transaction(
                self.uses.engine,
                lambda connection: self._spend(
                    connection, job, summary, received, waited_until=waited_until, masks=masks
                ),
            )
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
        self,
        connection: sa.Connection,
        job: Job,
        summary: Any,
        received: ReceivedReleases | None = None,
        *,
        waited_until: int = 0,
        masks: Masks | None = None,
    ) -> list[LedgerEntry] | None:
        now = int(self.uses.clock())
        row = study_row(connection, job.digest)
        after = State.HELD if job.is_held else State.RELEASED
        moved = move(connection, job.digest, before=[State.APPROVED], after=after, at=now)
        if row is None or not moved:
            return None
        forget_reading(connection, job.digest)
        self.intake.require_current(connection, job)
        send_at = self._send_at(job, row, waited_until)
        if send_at is None:
            raise UnfinishedError("the deadline passed while the rows were read")
        if received is not None and summary.finding is not None:
            put_finding(connection, job.digest, summary.finding, now)
            reached(AgentRelayStep.FINDING_STORED)
        # What was to be waited for says nothing about the data here: the schedule begins once it has come.
        since = max(row.changed_at, waited_until)
        entries = self._debit(connection, job, since) if job.spends else []
        if received is None or job.spends:
            exact = summary if received is None else summary.summary
            secret = None if masks is None else mask_secret_of(connection, job.digest)
            release = self._release(job, exact, masks, secret)
            envelope = self._sign(job, release, received, masks)
            if masks is not None:
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

    def _release(self, job: Job, summary: Any, masks: Masks | None, secret: bytes | None) -> Release:
        """Draw the noise, and mask."""
        release = job.procedure.privatise(job.study, summary, self.uses.noise)
        reached(AgentStep.NOISE_DRAWN)
        if release.guarantee != job.cost:
            raise UnfinishedError("the release did not cost what the procedure stated")
        if job.masking is not None:
            if masks is None or secret is None:
                raise UnfinishedError("the release could not be masked")
            release = masked(release, masks.roster, job.sender, secret)
            reached(MaskStep.MASKED)
        check_own_release(job.procedure, job.study, job.sender, release)
        return release

    def _sign(
        self, job: Job, release: Release, received: ReceivedReleases | None, masks: Masks | None
    ) -> bytes:
        """Return the release, signed, and sealed where it is for another owner."""
        is_second = received is not None and job.relay is not None and not job.relay.sealed
        message = ReleaseMessage(
            study=job.digest,
            party=job.sender,
            release=release,
            received=masks.roster.digest
            if masks is not None
            else received.statement
            if received is not None and is_second
            else None,
        )
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
