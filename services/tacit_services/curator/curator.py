"""The curator's part in studies: an agent's work, with several owners who decide.

Nothing is taken from the tester, and no data is touched before a study is accepted: signature, digest, form,
the tester and the curator that the roster names, deadline; for each owner its enrolment here, its data set
and its own policy; then procedure, cost and canonical bytes. Each owner then has one row that says what it
has decided; the study runs when no row waits, and never once one is ``declined``.

An owner sees its account and may change its data set at any time, and the study was computed from other
owners' rows as well. So nothing that an owner sees or does may tell when that was done: the study is paid
for when the last owner approves, before a row is read; and what comes of a decline, or of a data set that was
changed meanwhile, is the same until the moment of the answer, whether it was computed before or not.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import sqlalchemy as sa
import structlog

from tacit_protocol.messages.study import Owner, Study
from tacit_protocol.procedures.base import Procedure, units_declared
from tacit_services.agent.schema import State
from tacit_services.agent.study.intake import (
    DataSetUse,
    IntakeRefusedError,
    Job,
    Procedures,
    StudyIntake,
    refuse,
    require_allowed,
    require_public_rule,
)
from tacit_services.agent.study.participant import AlreadyDecidedError, Participant, ParticipantIdentity
from tacit_services.agent.study.policy import PolicyRefusedError
from tacit_services.agent.study.readings import lock_of
from tacit_services.agent.study.releases import debit_parts
from tacit_services.agent.study.studies import (
    StudyRow,
    approve_by,
    due_outbox,
    expire,
    move,
    record_decision,
    send_at_once,
    study_row,
    withdraw,
)
from tacit_services.curator.data_sets import (
    METADATA,
    NAME_LENGTH,
    SIGN_IN,
    DataSets,
    RegisteredDataSet,
    account_name,
)
from tacit_services.ledger.accounts import BudgetExceededError
from tacit_services.ledger.entries import DIGEST_LENGTH
from tacit_services.shared.database import read_from, run_transaction
from tacit_services.shared.failpoints import CuratorStep, reached
from tacit_services.shared.people import Person

ACCOUNT_LENGTH = 2 * NAME_LENGTH + 1
"""Longest name of an account, ``owner/data-set``."""


class Decision(StrEnum):
    """What an owner says to a study."""

    WAITING = "waiting"
    APPROVED = "approved"
    DECLINED = "declined"


DECISIONS = sa.Table(
    "curator_decisions",
    METADATA,
    # The foreign key to agent_studies is in the migration: that table has metadata of its own.
    sa.Column("study", sa.String(DIGEST_LENGTH), primary_key=True),
    sa.Column("owner", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("account", sa.String(ACCOUNT_LENGTH), nullable=False),
    sa.Column("decision", sa.String(16), nullable=False),
    sa.Column("decided_by", sa.String(16), nullable=True),
    sa.Column("decided_at", sa.BigInteger, nullable=True),
    sa.Column("version", sa.BigInteger, nullable=False, server_default="0"),
)
"""``version`` is that of the data set which the study was approved for."""


@dataclass(frozen=True)
class OwnerDecision:
    """One owner's decision on one study; ``decided_by`` is ``owner`` or ``policy``."""

    study: str
    owner: str
    account: str
    decision: Decision
    decided_by: str | None
    decided_at: int | None


def record_parts(connection: sa.Connection, job: Job, now: int, hopeless: tuple[str, ...] = ()) -> None:
    """Write the rows of a study that may be run: waiting, or approved by the owner's policy."""
    for part in job.parts:
        automatic = part.approved(hopeless)
        connection.execute(
            DECISIONS.insert().values(
                study=job.digest,
                owner=part.owner,
                account=part.account,
                decision=(Decision.APPROVED if automatic else Decision.WAITING).value,
                decided_by="policy" if automatic else None,
                decided_at=now if automatic else None,
            )
        )


def decide(connection: sa.Connection, study: str, owner: str, decision: Decision, now: int) -> bool:
    """Record an owner's word; returns False where there is nothing left to say.

    A study may be declined after it was approved, as long as it has not been released.
    """
    before = [Decision.WAITING.value]
    if decision is Decision.DECLINED:
        before.append(Decision.APPROVED.value)
    changed = connection.execute(
        DECISIONS.update()
        .where(DECISIONS.c.study == study, DECISIONS.c.owner == owner, DECISIONS.c.decision.in_(before))
        .values(decision=decision.value, decided_by="owner", decided_at=now)
    )
    return changed.rowcount == 1


def decisions_on(connection: sa.Connection, studies: Iterable[str]) -> dict[str, list[OwnerDecision]]:
    """Return every owner's decision on these studies, by study and in the order of the owners' names."""
    found: dict[str, list[OwnerDecision]] = {study: [] for study in studies}
    columns = [column for column in DECISIONS.c if column.name != "version"]
    query = sa.select(*columns).where(DECISIONS.c.study.in_(list(found)))
    for row in connection.execute(query.order_by(DECISIONS.c.study, DECISIONS.c.owner)):
        values = {**row._mapping, "decision": Decision(row.decision)}
        found[row.study].append(OwnerDecision(**values))
    return found


def approve_parts(connection: sa.Connection, job: Job) -> None:
    """Note of which data sets, as they are now, a study was approved."""
    for part in job.parts:
        own = (DECISIONS.c.study == job.digest, DECISIONS.c.owner == part.owner)
        connection.execute(DECISIONS.update().where(*own).values(version=part.version))


def approved_versions(connection: sa.Connection, study: str) -> dict[str, int]:
    """Return of which versions of the owners' data sets a study was approved, by owner."""
    query = sa.select(DECISIONS.c.owner, DECISIONS.c.version).where(DECISIONS.c.study == study)
    return {row.owner: int(row.version) for row in connection.execute(query)}


def asking(studies: sa.FromClause, owner: str | None) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the conditions for studies that ask for an owner's data; none, for all studies, without one."""
    asked = sa.select(DECISIONS.c.study).where(DECISIONS.c.owner == owner)
    return () if owner is None else (studies.c.digest.in_(asked),)


CHANGED = "a data set of the study was changed after it was approved"
NOT_HELD = "an owner of the study is not enrolled here with that key, or has no such data set here"


class CuratorIntake(StudyIntake):
    """Checks studies against what is held here, and against every owner's policy.

    Args:
        identity: who the curator is, and whose tester it listens to.
        engine: the database that says what is held.
        data_sets: the data sets held.
        procedures: the procedures by name.
        respond_after_s_min: when a study is declined that says nothing that could be believed.
    """

    def __init__(
        self,
        identity: ParticipantIdentity,
        engine: sa.Engine,
        data_sets: DataSets,
        procedures: Procedures,
        respond_after_s_min: int,
    ):
        super().__init__(procedures)
        self._identity, self._engine, self._data_sets = identity, engine, data_sets
        self._respond_after_s_min = respond_after_s_min

    def authenticate(self, study_digest: str, envelope: bytes) -> Study:
        """Check signature and digest: which analysts are answered, each owner says for itself."""
        return self.read(study_digest, envelope)

    def accept(self, study_digest: str, study: Study, now: int) -> Job:
        """Check the roster, and every owner's data set and policy."""
        self._require_roster(study)
        if now >= study.deadline:
            refuse("study-expired", "the study's deadline has passed")
        held = read_from(self._engine, self._held, study)
        parts = tuple(self._part(study, data_set) for data_set in held)
        procedure, cost = self.price(study, self._identity.name)
        self.require_canonical(study_digest, study, procedure)
        self._require_units(study, procedure, held)
        return Job(study_digest, study, self._identity.name, parts, procedure, cost)

    def _require_units(self, study: Study, procedure: Procedure, held: list[RegisteredDataSet]) -> None:
        """Refuse numbers of units before the study is paid for, where all were counted with the uploads."""
        units = {}
        for data_set in held:
            if data_set.units is None:
                continue
            units[data_set.owner] = data_set.units
            try:
                data_set.policy.require_units(data_set.units)
            except PolicyRefusedError as error:
                refuse("policy-refused", str(error))
        if len(units) == len(held):
            require_public_rule(procedure, study, units)

    def _require_roster(self, study: Study) -> None:
        if study.tester.key != self._identity.tester_key:
            refuse("forbidden", "the study names another tester than the one configured here")
        own = (self._identity.name, self._identity.key.public_hex)
        if study.curator is None or (study.curator.name, study.curator.key) != own:
            refuse("forbidden", "the study does not name this curator with its name and key")

    def _held(self, connection: sa.Connection, study: Study) -> list[RegisteredDataSet]:
        found = [self._data_sets.held_data_set(connection, o.name, o.data_set) for o in study.owners]
        held = [data_set for data_set in found if data_set is not None and data_set.owner_revoked_at is None]
        if [(data_set.owner, data_set.owner_key) for data_set in held] != [
            (owner.name, owner.key) for owner in study.owners
        ]:
            refuse("policy-refused", NOT_HELD)
        return held

    def _part(self, study: Study, held: RegisteredDataSet) -> DataSetUse:
        if not held.ready:
            refuse("data-unreadable", f"no rows are held of {held.account}")
        try:
            held.policy.require_analyst(study.analyst.key)
        except PolicyRefusedError as error:
            refuse("policy-refused", str(error))
        require_allowed(held.policy, self, study, study.owner_named(held.owner), held)
        return DataSetUse(held.owner, held.account, held.account, held.source, held.policy, held.version)

    def require_current(self, connection: sa.Connection, job: Job) -> None:
        """Refuse a study whose data sets were deleted or changed since it was approved."""
        self.require_unchanged(connection, job.digest, job.study)

    def require_unchanged(self, connection: sa.Connection, digest: str, study: Study) -> None:
        """Refuse a study whose data sets were deleted or changed since it was approved."""
        held = self._held(connection, study)
        if not all(data_set.ready for data_set in held):
            refuse("data-unreadable", NOT_HELD)
        if {data_set.owner: data_set.version for data_set in held} != approved_versions(connection, digest):
            refuse("data-unreadable", CHANGED)

    def require_held(self, connection: sa.Connection, study: Study) -> None:
        """Raise StudyRefusedError where an owner's data set is not held, or has no rows any more."""
        if not all(data_set.ready for data_set in self._held(connection, study)):
            refuse("data-unreadable", NOT_HELD)

    def approvals_needed(self, connection: sa.Connection, study: Study, owner: str) -> int:
        """Return how many people an owner's policy of today asks to approve a study of its data set."""
        data_set = self._data_sets.held_data_set(connection, owner, study.owner_named(owner).data_set)
        return 1 if data_set is None else data_set.policy.approvals

    def units_held(self, connection: sa.Connection, study: Study) -> dict[str, int]:
        """Return the number of units of each owner whose rows were uploaded."""
        found = (self._data_sets.held_data_set(connection, o.name, o.data_set) for o in study.owners)
        return {held.owner: held.units for held in found if held is not None and held.units is not None}

    @property
    def respond_after_s_min(self) -> int:
        """The setting's."""
        return self._respond_after_s_min

    def data_set_of(self, owner: Owner) -> str:
        """Return the name of an owner's data set, which is that of its account too."""
        return account_name(owner.name, owner.data_set)


log = structlog.get_logger()


class Curator(Participant):
    """Answers curated studies for the owners whose data it holds.

    The arguments are those of :class:`Participant`, with a :class:`CuratorIntake`.
    """

    intake: CuratorIntake

    def units_of(self, study: Study) -> dict[str, int]:
        """Return the number of units of each owner: counted when its rows were uploaded, or expected.

        What was counted when a study was computed would tell when that was.
        """
        return units_declared(study) | read_from(self.engine, self.intake.units_held, study)

    def waiting_for(self, owner: str | None) -> list[tuple[StudyRow, str]]:
        """Return the studies that wait for an owner's decision, or for anyone's, with the owner's name."""
        rows = self.rows(State.WAITING)
        decisions = read_from(self.engine, decisions_on, [row.digest for row in rows])
        return [
            (row, part.owner)
            for row in rows
            for part in decisions[row.digest]
            if part.decision is Decision.WAITING and owner in (None, part.owner)
        ]

    def _units_stated(self, study: Study) -> dict[str, int]:
        return self.units_of(study)

    def _record_job(self, connection: sa.Connection, job: Job, now: int, hopeless: tuple[str, ...]) -> None:
        record_parts(connection, job, now, hopeless)

    def _keep_cost(self, connection: sa.Connection, job: Job) -> None:
        """Spend a study's whole cost with its approval; one that an account cannot pay for is refused."""
        approve_parts(connection, job)
        try:
            with connection.begin_nested():
                debit_parts(connection, job, at=self.now())
        except BudgetExceededError as error:
            self._end_in(connection, job.digest, State.REFUSED, "budget-exceeded", str(error))

    def approve(self, digest: str, owner: str, by: Person) -> None:
        """Record the yes of an owner's person; the study runs once every owner has said yes.

        Where an owner's policy asks for two people, the owner has said yes with the second.

        Raises:
            AlreadyDecidedError: the owner has decided, or the study waits for nobody, or its deadline has
                passed.
            ApprovedBeforeError: the person has approved before, and another has to as well.
        """
        asked = read_from(self.engine, study_row, digest)
        job, refused = None, IntakeRefusedError("internal-error", "the study is not known")
        if asked is not None:
            try:
                job = self.job_of(asked)
            except IntakeRefusedError as error:
                refused = error

        def approve(connection: sa.Connection) -> bool:
            now = self.now()
            expire(connection, now)
            row = study_row(connection, digest)
            if row is None or row.state is not State.WAITING:
                return False
            decisions = decisions_on(connection, [digest])[digest]
            if (owner, Decision.WAITING) not in [(item.owner, item.decision) for item in decisions]:
                return False
            needed = self.approvals_needed(row, owner)
            if not approve_by(connection, SIGN_IN.people, (digest, owner), by, needed=needed, at=now):
                return True
            decide(connection, digest, owner, Decision.APPROVED, now)
            decisions = decisions_on(connection, [digest])[digest]
            if all(item.decision is Decision.APPROVED for item in decisions):
                self._start(connection, digest, job, refused)
            reached(CuratorStep.DECISION_WRITTEN)
            return True

        if not run_transaction(self.engine, approve):
            raise AlreadyDecidedError("the study is not waiting for this owner's approval")
        self.confirmed.discard(digest)  # long may have passed since it came in
        reached(CuratorStep.DECISION_STORED)
        log.info("approved", study=digest, owner=owner, person=by.name)

    def _start(
        self, connection: sa.Connection, digest: str, job: Job | None, refused: IntakeRefusedError
    ) -> None:
        """Let a study run that every owner has approved, if it still may."""
        move(connection, digest, before=[State.WAITING], after=State.APPROVED, at=self.now())
        if job is None:
            why = refused.problem, refused.reason
            self._end_in(connection, digest, State.REFUSED, *why, rule=refused.rule)
        else:
            self._keep_cost(connection, job)

    def approvals_needed(self, row: StudyRow, owner: str) -> int:
        """Return what the policy of the owner's data set says; 1 of a study that will be refused anyway."""
        if row.envelope is None:
            return 1
        with suppress(IntakeRefusedError):
            study = self.intake.read(row.digest, row.envelope)
            return read_from(self.engine, self.intake.approvals_needed, study, owner)
        return 1

    def decline(self, digest: str, owner: str, note: str | None, by: Person) -> None:
        """Decline a study for all of its owners, as a person of one decided; the note stays here.

        Raises:
            AlreadyDecidedError: it has been answered, refused or declined, or its deadline has passed.
        """

        def decline(connection: sa.Connection) -> bool:
            ended = self._end_in(connection, digest, State.DECLINED, None, note or f"declined by {owner}")
            if ended:
                decide(connection, digest, owner, Decision.DECLINED, self.now())
                record_decision(connection, SIGN_IN.people, (digest, owner), by, "declined", at=self.now())
                reached(CuratorStep.DECISION_WRITTEN)
            return ended

        if not run_transaction(self.engine, decline):
            raise AlreadyDecidedError("the study has been decided on already")
        reached(CuratorStep.DECISION_STORED)
        log.info("declined", study=digest, owner=owner, person=by.name)

    def unlock(self, account: str, by: Person, *, hides: bool) -> None:
        """Let a data set answer studies again, as a person of its owner or of the operator decided.

        Nothing where it is not locked, or where ``hides`` says that this person is not yet shown so.
        """
        lock = read_from(self.engine, lock_of, account)
        if lock is not None and (not hides or lock.shown_from <= self.now()):
            self.unlock_account(account, SIGN_IN.people, by)

    def close_ended(self) -> None:
        """Close what has expired, and decline what waits in vain: an owner has deleted its data set."""
        super().close_ended()
        for row in self.rows(State.WAITING):
            if row.envelope is None:
                continue
            try:
                study = self.intake.read(row.digest, row.envelope)
                read_from(self.engine, self.intake.require_held, study)
            except IntakeRefusedError as error:
                self.refuse(row, error.problem, error.reason)

    def settle_due(self) -> None:
        """Make certain that each release that is due may be offered."""
        for row in read_from(self.engine, due_outbox, self.now()):
            if row.kind == "release" and row.send_at:
                run_transaction(self.engine, partial(self._settle, digest=row.study))

    def _settle(self, connection: sa.Connection, digest: str) -> None:
        """Let a release go, once, or put a decline in its place where a data set was changed meanwhile.

        This is looked at when it is due, so that it cannot be told whether the release had been made before.
        """
        row = study_row(connection, digest)
        if row is None or row.state is not State.RELEASED or row.envelope is None:
            return
        try:
            study = self.intake.read(digest, row.envelope)
            self.intake.require_unchanged(connection, digest, study)
        except IntakeRefusedError as error:
            withdraw(connection, digest)
            move(
                connection,
                digest,
                before=[State.RELEASED],
                after=State.REFUSED,
                at=self.now(),
                problem=error.problem,
                reason=error.reason,
            )
            self._put_decline(connection, digest, 0)
        else:
            send_at_once(connection, digest)
