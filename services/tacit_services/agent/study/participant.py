"""What becomes of the studies that an agent or a curator is asked: taken in, decided, released or declined.

Every step reads the database and leaves it in a state from which the next step goes on, so a process that
dies anywhere is simply started again. Nothing here speaks to the tester: fetching.py asks it, delivery.py
sends to it, loops.py runs all of them.
"""

from dataclasses import dataclass, replace

import sqlalchemy as sa
import structlog

from tacit_protocol.domain import DataError, WorkersUnavailableError
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import (
    AcceptanceMessage,
    DeclineMessage,
    MaskKeyMessage,
    PublicRule,
    Study,
)
from tacit_protocol.procedures.base import units_declared
from tacit_protocol.signing import (
    ACCEPTANCE_TYPE,
    DECLINE_TYPE,
    MASK_KEY_TYPE,
    PrivateKey,
    draw_mask_secret,
    mask_public_hex,
    sign_envelope,
)
from tacit_services.agent.schema import State
from tacit_services.agent.study.intake import IntakeRefusedError, Job, StudyIntake
from tacit_services.agent.study.mailbox import Mailbox
from tacit_services.agent.study.readings import AccountLock, ReadingFailure, forget_reading, is_begun, unlock
from tacit_services.agent.study.releases import (
    Dependencies,
    LeftToStewardError,
    Releaser,
    left_to_a_steward,
    send_time,
)
from tacit_services.agent.study.studies import (
    StudyRow,
    as_shown,
    expire,
    forget_held,
    held_release,
    insert_study,
    is_debited,
    move,
    put_in_outbox,
    put_mask_secret,
    studies_in,
    study_row,
    withdraw,
)
from tacit_services.agent.study.tester_client import InboxItem
from tacit_services.ledger.accounts import BudgetExceededError, give_back, reserve
from tacit_services.shared.database import read_from, run_transaction
from tacit_services.shared.failpoints import AcceptanceStep, ClosingStep, MaskStep, reached
from tacit_services.shared.people import PeopleTables, Person, record_change

log = structlog.get_logger()


class AlreadyDecidedError(Exception):
    """The study is not waiting for a decision any more."""


class TooSoonError(Exception):
    """A release may not be looked at yet, and so not be sent or declined. The text says from when on."""


def require_shown(connection: sa.Connection, digest: str, now: int) -> None:
    """Raise TooSoonError where a release is held whose moment has not come."""
    held = held_release(connection, digest)
    if held is not None and now < held.shown_from:
        raise TooSoonError(
            f"the release may be looked at, sent or declined in {held.shown_from - now} s: sooner, what you "
            "do could tell how long it took to make"
        )


@dataclass(frozen=True)
class ParticipantIdentity:
    """Who answers studies, and whose studies: names and keys as the study's roster gives them."""

    name: str
    key: PrivateKey
    tester_key: str


class Participant:
    """One party that answers studies, and decides; ``intake`` says which, ``identity`` for which tester."""

    def __init__(self, identity: ParticipantIdentity, intake: StudyIntake, dependencies: Dependencies):
        self.name, self.key, self.tester_key = identity.name, identity.key, identity.tester_key
        self.engine, self.clock, self.client = dependencies.engine, dependencies.clock, dependencies.client
        self.intake = intake
        self.last_poll_at: int | None = None
        self.units: dict[str, int] = {}
        """Units of each data set, once it has been read. Public."""
        self.confirmed: set[str] = set()
        """Studies of which the tester held no release of ours when it was asked in this process's life."""
        self._releaser = Releaser(identity.key, intake, dependencies)
        self.mailbox = Mailbox(identity.key, self.engine, self.client, self.clock, intake.read)

    def units_of(self, study: Study) -> dict[str, int]:
        """Return the number of units of each owner of a study as far as it is known: read, or expected."""
        known = {owner.name: owner.units for owner in study.owners if owner.units is not None}
        for owner in study.owners:
            data_set = self.intake.data_set_of(owner)
            if data_set in self.units:
                known[owner.name] = self.units[data_set]
        return known

    def _units_stated(self, study: Study) -> dict[str, int]:
        """Return the numbers of units that are public before any computation, by owner.

        What was counted when a study was computed would tell when that was.
        """
        return units_declared(study)

    def use_intake(self, intake: StudyIntake) -> None:
        """Check studies by another intake from now on."""
        self.intake = self._releaser.intake = intake

    def approvals_needed(self, row: StudyRow, owner: str) -> int:
        """Return how many of an owner's people have to approve a study, by its policy of today."""
        raise NotImplementedError

    def now(self) -> int:
        """Return the Unix time in whole seconds."""
        return int(self.clock())

    def shown(self) -> sa.Subquery:
        """Return the table of studies as it is shown now to anybody but the owner's own steward."""
        return as_shown(self.now())

    def take_in(self, item: InboxItem, envelope: bytes) -> bool:
        """Decide on a study and store that; returns whether it was new to every process that is here."""
        now, trusted = self.now(), None
        job: Job | None = None
        hopeless: tuple[str, ...] = ()
        problem: str | None = None
        reason: str | None = None
        rule: PublicRule | None = None
        deadline, respond_after_s = item.deadline, self.intake.respond_after_s_min
        try:
            study = self.intake.authenticate(item.digest, envelope)
            trusted, deadline, respond_after_s = envelope, study.deadline, study.respond_after_s
            job = self.intake.accept(item.digest, study, now)
            hopeless = job.hopeless(self._units_stated(study)) if job.approved(()) else ()
            state = State.APPROVED if job.approved(hopeless) else State.WAITING
            reason = left_to_a_steward(hopeless) if hopeless and state is State.WAITING else None
        except IntakeRefusedError as error:
            state, problem, reason, rule = State.REFUSED, error.problem, error.reason, error.rule
        data_set = None if job is None else job.data_set
        row = StudyRow(
            item.digest,
            state,
            data_set,
            trusted,
            deadline,
            received_at=now,
            changed_at=now,
            problem=problem,
            reason=reason,
            verdict=None,
            approved_at=now if state is State.APPROVED else 0,
        )

        def store(connection: sa.Connection) -> bool:
            if study_row(connection, item.digest) is not None:
                return False
            insert_study(connection, row)
            if job is not None:
                self._record_job(connection, job, now, hopeless)
            if job is not None and row.state is State.APPROVED:
                self._keep_cost(connection, job)
            if row.state is State.REFUSED:
                send_at = send_time(now, respond_after_s, self.clock())
                self._put_decline(connection, item.digest, send_at, rule)
            return True

        try:
            stored = run_transaction(self.engine, store)
        except BudgetExceededError as error:
            job, row = None, replace(row, state=State.REFUSED, problem="budget-exceeded", reason=str(error))
            stored = run_transaction(self.engine, store)
        if stored:
            state, problem, reason = row.state, row.problem, row.reason
            log.info("study_taken_in", study=item.digest, state=state.value, problem=problem, reason=reason)
        return stored

    def _keep_cost(self, connection: sa.Connection, job: Job) -> None:
        """Reserve what a study costs that is approved now and debited later; write the acceptance of one.

        Raises:
            BudgetExceededError: an account has too little left.
        """
        if not job.waits:
            return
        now = self.now()
        for part in job.parts:
            reserve(connection, part.account, job.digest, job.cost, at=now)
        reached(AcceptanceStep.RESERVED)
        if job.masking is not None:
            secret = draw_mask_secret()
            put_mask_secret(connection, job.digest, secret, now)
            reached(MaskStep.KEY_DRAWN)
            shown = MaskKeyMessage(study=job.digest, party=job.sender, key=mask_public_hex(secret))
            envelope = sign_envelope(encode(shown), MASK_KEY_TYPE, self.key)
            # At once, as an acceptance.
            put_in_outbox(connection, job.digest, "mask-key", envelope, at=now, send_at=0)
        elif job.relay is not None and job.receives and job.relay.accepted_first:
            message = encode(AcceptanceMessage(study=job.digest, party=job.sender))
            envelope = sign_envelope(message, ACCEPTANCE_TYPE, self.key)
            # At once: when it is said tells when the owner decided, and no data have been looked at.
            put_in_outbox(connection, job.digest, "accept", envelope, at=now, send_at=0)

    def _record_job(self, connection: sa.Connection, job: Job, now: int, hopeless: tuple[str, ...]) -> None:
        """Record what else is to be known of a study that may be run."""

    def _put_decline(
        self, connection: sa.Connection, digest: str, send_at: int, rule: PublicRule | None = None
    ) -> None:
        message = encode(DeclineMessage(study=digest, party=self.name, rule=rule))
        envelope = sign_envelope(message, DECLINE_TYPE, self.key)
        put_in_outbox(connection, digest, "decline", envelope, at=self.now(), send_at=send_at)

    def end(
        self, digest: str, state: State, problem: str | None, reason: str, rule: PublicRule | None = None
    ) -> bool:
        """Refuse a study that has not been answered; returns whether it was undecided."""
        return run_transaction(
            self.engine, lambda c: self._end_in(c, digest, state, problem, reason, rule=rule)
        )

    def _end_in(
        self,
        connection: sa.Connection,
        digest: str,
        state: State,
        problem: str | None,
        reason: str,
        *,
        rule: PublicRule | None = None,
    ) -> bool:
        """Decline or refuse a study that has not been answered; returns whether it was undecided.

        A person may decline until the moment of the answer: could it be done only until the release was
        computed, trying would tell when that was.
        """
        now = self.now()
        expire(connection, now)
        row = study_row(connection, digest)
        if row is None:
            return False
        undecided = [State.WAITING, State.APPROVED]
        is_paid = connection.execute(sa.select(is_debited(digest))).scalar_one()
        if row.state is State.APPROVED and is_begun(connection, digest):
            if state is State.REFUSED or not is_paid:
                return False  # a decline that costs nothing would be of what was read
            forget_reading(connection, digest)
        if state is State.DECLINED and row.state is State.HELD:
            require_shown(connection, digest, now)
            undecided.append(row.state)
            forget_held(connection, digest)
        elif state is State.DECLINED and row.shown_from > now:
            undecided.append(row.state)
            withdraw(connection, digest)
        if state is State.DECLINED and is_paid:
            reason = f"{reason}; the budget is spent"
        decided_at = now if state is State.DECLINED else row.changed_at
        send_at = send_time(decided_at, self._respond_after_s(row), self.clock())
        if not move(
            connection,
            digest,
            before=undecided,
            after=state,
            at=now,
            problem=problem,
            reason=reason,
            # An approved study that is refused may have been computed, or have waited for another that was.
            shown_from=send_at if state is State.REFUSED and row.state is State.APPROVED else 0,
        ):
            return False
        give_back(connection, [digest])
        self._forget(connection)
        self._put_decline(connection, digest, send_at, rule)
        return True

    def unlock_account(self, account: str, people: PeopleTables, by: Person) -> AccountLock | None:
        """Let an account answer studies again that a failure has locked, as a person decided.

        Returns why it was locked; None where it was not, and nothing was changed.
        """

        def unlock_in(connection: sa.Connection) -> AccountLock | None:
            lock = unlock(connection, account)
            if lock is not None:
                detail = {"data_set": account, "study": lock.study}
                record_change(connection, people, by, "data set unlocked", detail, at=self.now())
                reached(ClosingStep.UNLOCKED)
            return lock

        lock = run_transaction(self.engine, unlock_in)
        if lock is not None:
            log.info("unlocked", data_set=account, study=lock.study, person=by.name)
        return lock

    def _forget(self, connection: sa.Connection) -> None:
        """Delete secrets of studies that are not undecided any more. A curator has none."""

    def _respond_after_s(self, row: StudyRow) -> int:
        try:
            if row.envelope is not None:
                return self.intake.read(row.digest, row.envelope).respond_after_s
        except IntakeRefusedError:
            log.warning("study_unreadable", study=row.digest)
        return self.intake.respond_after_s_min

    def close_ended(self) -> None:
        """Close what ends without being computed. Computing does not hold it up."""

        def close(connection: sa.Connection) -> None:
            expire(connection, self.now())
            self._forget(connection)

        run_transaction(self.engine, close)

    def overwrite(self) -> None:
        """Have the database's log forget secrets that were deleted. A curator has none."""

    def run_approved(self) -> None:
        """Compute and store the release of every approved study. Nothing here reaches the tester."""
        for row in self.rows(State.APPROVED):
            if row.digest in self.confirmed:
                self._run(row)

    def settle_due(self) -> None:
        """Look once more at releases that are due, before they are offered. An agent need not."""

    def waiting_for(self, owner: str | None) -> list[tuple[StudyRow, str]]:  # noqa: ARG002 (a curator's)
        """Return the studies that wait for an owner's decision, or for anyone's, with the owner's name."""
        return [(row, self.name) for row in self.rows(State.WAITING)]

    def title_of(self, digest: str, envelope: bytes) -> str | None:
        """Return a study's title; None where it cannot be read."""
        try:
            return self.intake.read(digest, envelope).title
        except IntakeRefusedError:
            return None

    def rows(self, *states: State) -> list[StudyRow]:
        """Return the studies in these states."""
        return read_from(self.engine, studies_in, states)

    def _run(self, row: StudyRow) -> None:
        try:
            job = self.job_of(row)
            awaited = self.mailbox.awaited(job)
            if awaited is None:
                return
            units = self._releaser.release(job, awaited)
            if units is not None:
                self.units.update(units)
        except LeftToStewardError as error:
            self.units.update(error.units)
        except IntakeRefusedError as error:
            self.refuse(row, error.problem, error.reason, error.rule)
        except WorkersUnavailableError as error:
            log.warning("waits_for_workers", study=row.digest, reason=str(error))
        except DataError as error:
            log.warning("tries_again", study=row.digest, reason=str(error))

    def refuse(self, row: StudyRow, problem: str, reason: str, rule: PublicRule | None = None) -> None:
        """Refuse a study, or close it where its rows have been read."""
        if not self.end(row.digest, State.REFUSED, problem, reason, rule):
            self._releaser.close(row.digest, ReadingFailure(problem), self._respond_after_s(row))
        log.warning("refused", study=row.digest, problem=problem, reason=reason, rule=rule)

    def job_of(self, row: StudyRow) -> Job:
        """Check a recorded study against today's policy; raises StudyRefusedError where it fails."""
        if row.envelope is None:
            raise IntakeRefusedError("invalid-signature", row.reason or "the study was not kept")
        study = self.intake.authenticate(row.digest, row.envelope)
        return self.intake.accept(row.digest, study, self.now())

    def publish(self) -> bool:
        """Publish what there is to publish; returns whether that is done. A curator has nothing."""
        return True
