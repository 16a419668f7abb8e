"""The work of whoever answers studies, an agent or a curator: what is asked, decided, released and sent.

Every step reads the database and leaves it in a state from which the next step goes on, so a process that
dies anywhere is simply started again. Whatever the tester sees is done apart from the computing, in loops
that never wait for it: when they speak says nothing about data, and answers wait for their moment
(releases.py).
"""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace

import sqlalchemy as sa
import structlog

from tacit_protocol.domain import DataError, WorkersUnavailableError
from tacit_protocol.messages.encoding import MessageError, decode, encode
from tacit_protocol.messages.study import (
    AcceptanceMessage,
    DeclineMessage,
    MaskKeyMessage,
    PublicRule,
    Study,
    VerdictMessage,
)
from tacit_protocol.procedures.base import units_declared
from tacit_protocol.signing import (
    ACCEPTANCE_TYPE,
    DECLINE_TYPE,
    MASK_KEY_TYPE,
    VERDICT_TYPE,
    EnvelopeError,
    PrivateKey,
    draw_mask_secret,
    mask_public_hex,
    open_envelope,
    sign_envelope,
)
from tacit_services.agent.intake import IntakeRefusedError, Job, StudyIntake
from tacit_services.agent.readings import AccountLock, ReadingFailure, forget_reading, is_begun, unlock
from tacit_services.agent.releases import (
    Dependencies,
    LeftToStewardError,
    Mailbox,
    Masks,
    Releaser,
    left_to_a_steward,
    send_time,
)
from tacit_services.agent.schema import State
from tacit_services.agent.studies import (
    FOLLOWED,
    OutboxRow,
    StudyRow,
    as_shown,
    close_outbox,
    due_outbox,
    expire,
    forget_held,
    held_release,
    insert_study,
    is_debited,
    move,
    put_in_outbox,
    put_mask_secret,
    record_verdict,
    reopen_outbox,
    studies_in,
    study_row,
    withdraw,
)
from tacit_services.agent.tester_client import (
    InboxItem,
    TesterError,
    TesterRefusedError,
    TesterUnavailableError,
)
from tacit_services.ledger.accounts import BudgetExceededError, give_back, reserve
from tacit_services.shared.database import DatabaseError, read_from, run_transaction
from tacit_services.shared.failpoints import AcceptanceStep, AgentStep, ClosingStep, MaskStep, reached
from tacit_services.shared.logging import describe_exception
from tacit_services.shared.people import PeopleTables, Person, record_change

log = structlog.get_logger()

DELIVERED = "delivered"
TOO_LATE = "study-expired"

GRACE_S = 3600
"""How long after the deadline a release is still offered, in case the tester's clock is behind."""


VERDICT_AWAITED_S = 7 * 24 * 3600
"""How long after a study's deadline its verdict is still asked for."""

ROLLED_BACK = (
    "the tester holds a release of this owner that the ledger does not know: the ledger was put back to an "
    "older copy. Put the newest copy back, or lower the account's cap by this study"
)


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
    """One party that answers studies; ``intake`` says which, ``identity`` which tester's verdicts count."""

    def __init__(self, identity: ParticipantIdentity, intake: StudyIntake, dependencies: Dependencies):
        self.name, self.key, self.tester_key = identity.name, identity.key, identity.tester_key
        self.engine, self.clock = dependencies.engine, dependencies.clock
        self._client = dependencies.client
        self.intake = intake
        self.last_poll_at: int | None = None
        self.units: dict[str, int] = {}
        """Units of each data set, once it has been read. Public."""
        self._confirmed: set[str] = set()
        """Studies of which the tester held no release of ours when it was asked in this process's life."""
        self._releaser = Releaser(identity.key, intake, dependencies)
        self._mailbox = Mailbox(identity.key, dependencies, intake.read)

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

    def reused_by(self, digest: str) -> tuple[str, ...]:
        """Ask the tester which later studies read this party's release for a study again.

        They spend nothing here, so the ledger does not know of them; the tester's word is all there is.

        Raises:
            TesterError: the tester could not be asked, or does not know the study.
        """
        return self._client.reused_by(digest, self.name)

    def _now(self) -> int:
        return int(self.clock())

    def shown(self) -> sa.Subquery:
        """Return the table of studies as it is shown now to anybody but the owner's own steward."""
        return as_shown(self._now())

    def poll(self, wait_s: float) -> bool:
        """Ask the tester once and take in what is new; returns whether anything was.

        Raises:
            TesterError: the tester could not be asked.
        """
        items = self._client.inbox(wait_s)
        self.last_poll_at = self._now()
        taken_in = [self._take_in(item) for item in items]
        return any(taken_in)

    def _take_in(self, item: InboxItem) -> bool:
        known = read_from(self.engine, study_row, item.digest)
        if known is not None:
            # The tester asks again for what was answered: it gets the same bytes again.
            run_transaction(self.engine, lambda connection: reopen_outbox(connection, item.digest))
            return False
        try:
            envelope = self._client.study_envelope(item.digest)
            # Asked about studies that will be refused, too: requests must not tell one refusal from another.
            held = self._client.holds_release(item.digest, self.name)
        except TesterRefusedError as error:
            log.warning("study_not_given", study=item.digest, problem=error.slug)
            return False
        reached(AgentStep.STUDY_FETCHED)
        if not held:
            self._confirmed.add(item.digest)
        decided = self._decide(item, envelope)
        reached(AgentStep.STUDY_STORED)
        return decided

    def _decide(self, item: InboxItem, envelope: bytes) -> bool:
        """Store what becomes of a study; returns whether it was new to every process that is here."""
        now, trusted = self._now(), None
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
        now = self._now()
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
        put_in_outbox(connection, digest, "decline", envelope, at=self._now(), send_at=send_at)

    def _end(
        self, digest: str, state: State, problem: str | None, reason: str, rule: PublicRule | None = None
    ) -> bool:
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
        now = self._now()
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
                record_change(connection, people, by, "data set unlocked", detail, at=self._now())
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

    def work(self) -> None:
        """Do once, one after the other, what a running agent does in threads of their own.

        Raises:
            TesterError: the tester could not be reached; what is left stays for the next time.
        """
        try:
            self.confirm()
            self.collect()
        finally:  # neither other studies nor the outbox wait for one that the tester cannot be asked about
            self.close_ended()
            self.run_approved()
            self.deliver()
            self.overwrite()

    def confirm(self) -> bool:
        """Ask the tester about approved studies that it was not yet asked about; returns whether any may run.

        Raises:
            TesterUnavailableError: the tester could not be asked about some; the others have been.
        """
        before = len(self._confirmed)

        def ask(row: StudyRow) -> None:
            if row.digest in self._confirmed:
                return
            if self._client.holds_release(row.digest, self.name):
                self._refuse(row, "conflicting-upload", ROLLED_BACK)
            else:
                self._confirmed.add(row.digest)

        self._ask_about_approved(ask, "the tester no longer knows this study")
        return len(self._confirmed) > before

    def collect(self) -> bool:
        """Fetch what other owners sent for this one's approved studies; returns whether anything came.

        Raises:
            TesterUnavailableError: the tester could not be asked about some; the others have been.
        """
        came = []

        def fetch(row: StudyRow) -> None:
            job = self.job_of(row)
            if job.masking is not None and self._mailbox.fetch_keys(job):
                came.append(row.digest)
            if job.relay is None or (not job.waits and not job.receives):
                return
            fetch = self._mailbox.fetch if job.receives else self._mailbox.fetch_acceptance
            if fetch(job, job.relay):
                came.append(row.digest)

        self._ask_about_approved(fetch, "what was to come of the other owner will not come")
        return bool(came)

    def _ask_about_approved(self, ask: Callable[[StudyRow], None], refused: str) -> None:
        """Ask about each approved study; one that the tester refuses to speak of is ``refused``."""
        unavailable: TesterUnavailableError | None = None
        for row in self._rows(State.APPROVED):
            try:
                ask(row)
            except IntakeRefusedError as error:
                self._refuse(row, error.problem, error.reason)
            except TesterRefusedError as error:
                self._refuse(row, error.slug, refused)
            except TesterUnavailableError as error:
                unavailable = error
        if unavailable is not None:
            raise unavailable

    def close_ended(self) -> None:
        """Close what ends without being computed. Computing does not hold it up."""

        def close(connection: sa.Connection) -> None:
            expire(connection, self._now())
            self._forget(connection)

        run_transaction(self.engine, close)

    def overwrite(self) -> None:
        """Have the database's log forget secrets that were deleted. A curator has none."""

    def run_approved(self) -> None:
        """Compute and store the release of every approved study. Nothing here reaches the tester."""
        for row in self._rows(State.APPROVED):
            if row.digest in self._confirmed:
                self._run(row)

    def deliver(self) -> None:
        """Offer everything that is open and due once.

        Raises:
            TesterUnavailableError: the tester could not be reached; what is left stays for the next time.
        """
        unavailable: TesterUnavailableError | None = None
        for row in read_from(self.engine, due_outbox, self._now()):
            try:
                self._deliver_one(row)
            except TesterUnavailableError as error:
                unavailable = error  # one study that the tester cannot take must not hold up the others
        if unavailable is not None:
            raise unavailable

    def _deliver_one(self, row: OutboxRow) -> None:
        put = {
            "decline": self._client.put_decline,
            "accept": self._client.put_acceptance,
            "mask-key": self._client.put_mask_key,
        }.get(row.kind, self._client.put_release)
        reached(AgentStep.BEFORE_SEND)
        try:
            put(row.study, self.name, row.envelope)
        except TesterRefusedError as error:
            log.warning("not_taken", study=row.study, kind=row.kind, problem=error.slug)
            self._close(row, error.slug)
            if row.kind == "mask-key":  # without it no masks cancel: nobody need spend on this study
                reason = "the tester did not take this owner's key for the study's masks"
                self._end(row.study, State.REFUSED, error.slug, reason)
            return
        except TesterUnavailableError:
            study = read_from(self.engine, study_row, row.study)
            if study is not None and self.clock() <= study.deadline + GRACE_S:
                raise
            self._close(row, TOO_LATE)
            return
        reached(AgentStep.AFTER_SEND)
        self._close(row, DELIVERED)
        reached(AgentStep.ACKNOWLEDGED)
        log.info("delivered", study=row.study, kind=row.kind)

    def _close(self, row: OutboxRow, outcome: str) -> None:
        def close(connection: sa.Connection) -> None:
            now = self._now()
            close_outbox(connection, row.study, row.kind, now, outcome)
            if row.kind in {"decline", *FOLLOWED}:
                return
            before = [State.RELEASED, State.SENT]
            if outcome == DELIVERED:
                move(connection, row.study, before=before, after=State.SENT, at=now)
                return
            spent = "the budget is spent" if row.kind == "release" else "nothing was spent"
            reason = f"the tester did not take the {row.kind}; {spent}"
            expired = State.EXPIRED
            move(connection, row.study, before=before, after=expired, at=now, problem=outcome, reason=reason)

        run_transaction(self.engine, close)

    def waiting_for(self, owner: str | None) -> list[tuple[StudyRow, str]]:  # noqa: ARG002 (a curator's)
        """Return the studies that wait for an owner's decision, or for anyone's, with the owner's name."""
        return [(row, self.name) for row in self._rows(State.WAITING)]

    def title_of(self, digest: str, envelope: bytes) -> str | None:
        """Return a study's title; None where it cannot be read."""
        try:
            return self.intake.read(digest, envelope).title
        except IntakeRefusedError:
            return None

    def _rows(self, *states: State) -> list[StudyRow]:
        return read_from(self.engine, studies_in, states)

    def _run(self, row: StudyRow) -> None:
        try:
            job, received, accepted_at = self.job_of(row), None, None
            masks: Masks | None = None
            if job.masking is not None:
                masks = self._mailbox.masks(job)
                if masks is None:
                    return  # nothing is spent before every owner has shown its key
                accepted_at = masks.at
            elif job.relay is not None and job.receives:
                received = self._mailbox.open(job, job.relay)
                if received is None:
                    return  # it has not come yet
            elif job.waits:
                accepted_at = self._mailbox.accepted_at(job)
                if accepted_at is None:
                    return  # nothing is spent before the receiver has accepted
            units = self._releaser.release(job, received, waited_until=accepted_at or 0, masks=masks)
            if units is not None:
                self.units.update(units)
        except LeftToStewardError as error:
            self.units.update(error.units)
        except IntakeRefusedError as error:
            self._refuse(row, error.problem, error.reason, error.rule)
        except WorkersUnavailableError as error:
            log.warning("waits_for_workers", study=row.digest, reason=str(error))
        except DataError as error:
            log.warning("tries_again", study=row.digest, reason=str(error))

    def _refuse(self, row: StudyRow, problem: str, reason: str, rule: PublicRule | None = None) -> None:
        if not self._end(row.digest, State.REFUSED, problem, reason, rule):
            self._releaser.close(row.digest, ReadingFailure(problem), self._respond_after_s(row))
        log.warning("refused", study=row.digest, problem=problem, reason=reason, rule=rule)

    def job_of(self, row: StudyRow) -> Job:
        """Check a recorded study against today's policy; raises StudyRefusedError where it fails."""
        if row.envelope is None:
            raise IntakeRefusedError("invalid-signature", row.reason or "the study was not kept")
        study = self.intake.authenticate(row.digest, row.envelope)
        return self.intake.accept(row.digest, study, self._now())

    def publish(self) -> bool:
        """Publish what there is to publish; returns whether that is done. A curator has nothing."""
        return True

    def fetch_verdicts(self) -> None:
        """Ask for the verdicts of studies that were answered, and keep those that the tester signed."""
        for row in self._rows(State.SENT):
            if row.verdict is None and self._now() < row.deadline + VERDICT_AWAITED_S:
                self._fetch_verdict(row)

    def _fetch_verdict(self, row: StudyRow) -> None:
        try:
            envelope = self._client.verdict_envelope(row.digest)
            if envelope is None:
                return
            payload = open_envelope(envelope, VERDICT_TYPE, self.tester_key)
            matches = decode(VerdictMessage, payload).study == row.digest
        except (EnvelopeError, MessageError, TesterRefusedError) as error:
            log.warning("verdict_not_taken", study=row.digest, kind=type(error).__name__)
            return
        if not matches:
            log.warning("verdict_not_taken", study=row.digest, kind="other study")
            return
        run_transaction(self.engine, lambda connection: record_verdict(connection, row.digest, envelope))


PUBLISH_PAUSE_S = 10.0
"""Pause before a catalogue is offered again that the tester did not take; one that it took is not."""

KNOWN_PAUSE_S = 2.0
"""Pause after an inbox with nothing new: the tester answers at once while a study waits for a steward."""

WORK_PAUSE_S = 5.0
"""Longest time between two looks at what is to be run, when nobody rings, and at verdicts."""

SEND_PAUSE_S = 0.5
"""Time between two looks at what is to be sent; two short queries of the agent's own database."""

NOTICE_PAUSE_S = 15.0
"""Time between two looks at what stewards are to be told."""

END_S = 2.0
"""How long the loops together may take to end."""

FAILURE_PAUSE_S = (1.0, 10.0)
"""First and longest pause after a failure; doubled each time, with a random part so that agents spread. Once
a database or a tester is back after an outage, however long, nobody waits longer than the second."""


class Loops:
    """Runs an agent or a curator until it is stopped; the tester may hold a poll for ``poll_wait_s``."""

    def __init__(
        self,
        agent: Participant,
        stop: threading.Event,
        poll_wait_s: float,
        notify: Callable[[], None] | None = None,
    ):
        self._agent, self._stop, self._poll_wait_s, self._notify_stewards = agent, stop, poll_wait_s, notify
        self._bell, self._catalogue_bell = threading.Event(), threading.Event()
        steps = [self._poll, self._work, self._send, self._fetch, self._publish]
        self._threads = [
            threading.Thread(target=self._forever, args=(step,), name=step.__name__, daemon=True)
            for step in (steps if notify is None else [*steps, self._notify])
        ]

    def start(self) -> None:
        """Start the loops. They are daemons: an agent may be killed at any point, and so may be left."""
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        """Ask the loops to end and give them a moment; a long poll under way ends with the process."""
        self._stop.set()
        self.ring()
        self.republish()
        for thread in self._threads:
            thread.join(END_S / len(self._threads))

    def alive(self) -> bool:
        """Return whether every loop runs."""
        return all(thread.is_alive() for thread in self._threads)

    def ring(self) -> None:
        """Wake the loop that works."""
        self._bell.set()

    def republish(self) -> None:
        """Have what is published handed to the tester again."""
        self._catalogue_bell.set()

    def _poll(self) -> None:
        if self._agent.poll(self._poll_wait_s):
            self.ring()
        else:
            self._stop.wait(KNOWN_PAUSE_S)

    def _work(self) -> None:
        self._bell.clear()
        self._agent.run_approved()
        self._bell.wait(WORK_PAUSE_S)

    def _send(self) -> None:
        if self._agent.confirm():
            self.ring()
        self._agent.deliver()
        self._agent.overwrite()
        self._stop.wait(SEND_PAUSE_S)

    def _fetch(self) -> None:
        self._agent.close_ended()
        try:
            if self._agent.collect():
                self.ring()
        finally:  # verdicts do not wait for a release that the tester cannot be asked for
            self._agent.fetch_verdicts()
        self._stop.wait(WORK_PAUSE_S)

    def _publish(self) -> None:
        self._catalogue_bell.clear()
        is_done = self._agent.publish()
        if not self._stop.is_set():
            self._catalogue_bell.wait(None if is_done else PUBLISH_PAUSE_S)

    def _notify(self) -> None:
        if self._notify_stewards is not None:
            self._notify_stewards()
        self._stop.wait(NOTICE_PAUSE_S)

    def _forever(self, step: Callable[[], None]) -> None:
        shortest, longest = FAILURE_PAUSE_S
        pause_s = shortest
        while not self._stop.is_set():
            try:
                step()
                pause_s = shortest
                continue
            except (TesterError, DatabaseError) as error:
                log.warning("waiting", loop=step.__name__, kind=type(error).__name__, reason=str(error))
            except Exception as error:
                log.error("loop_failed", loop=step.__name__, fault=describe_exception(error))
            self._stop.wait(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 (a pause, not a secret)
            pause_s = min(longest, 2 * pause_s)
