"""The agent's record of studies: rows of ``agent_studies`` and ``agent_outbox``.

All functions work inside the caller's transaction.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa
from pydantic import BaseModel

from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import Release
from tacit_services.agent.schema import (
    FINDINGS,
    HELD,
    MASK_SECRETS,
    OUTBOX,
    PERSONAL_DECISIONS,
    READINGS,
    REASON_LENGTH,
    STUDIES,
    State,
)
from tacit_services.ledger.accounts import give_back
from tacit_services.ledger.entries import ENTRIES
from tacit_services.shared.people import DECIDING, KEY_HOLDER, PeopleTables, Person, demotions_of

Kind = Literal["release", "receipt", "decline", "accept", "mask-key"]
"""A receipt is a release that says nothing: that another owner's has arrived. To accept, or to show a key for
masks, is no answer: one follows."""

FOLLOWED: tuple[Kind, ...] = ("accept", "mask-key")
"""What an answer takes the place of."""


@dataclass(frozen=True)
class StudyRow:
    """What is recorded of one study. ``envelope`` is None where it could not be trusted enough to keep."""

    digest: str
    state: State
    data_set: str | None
    envelope: bytes | None
    deadline: int
    received_at: int
    changed_at: int
    problem: str | None
    reason: str | None
    verdict: bytes | None
    approved_at: int = 0
    shown_from: int = 0


@dataclass(frozen=True)
class OutboxRow:
    """What is to be sent for one study: the exact bytes."""

    study: str
    kind: Kind
    envelope: bytes
    created_at: int
    send_at: int
    closed_at: int | None
    outcome: str | None


def study_of_row(row: Any) -> StudyRow:
    """Return the study that a row of the table holds."""
    return StudyRow(**{**row._mapping, "state": State(row.state)})


def insert_study(connection: sa.Connection, row: StudyRow) -> None:
    """Record a study that has been looked at."""
    connection.execute(STUDIES.insert().values(**{**row.__dict__, "state": row.state.value}))


def as_shown(now: int) -> sa.Subquery:
    """Return the table of studies as it is shown to anybody but the owner's own steward.

    Nothing in it moves when a computation ends: a study that was approved is shown so until the moment of its
    answer, and as expired from its deadline on.
    """
    table = STUDIES.c
    untold = table.shown_from > now
    is_open = table.state.in_([State.WAITING.value, State.APPROVED.value, State.HELD.value])
    late = sa.and_(table.deadline <= now, sa.or_(untold, is_open))
    hidden = sa.or_(late, untold)
    shown = {
        "state": sa.case((late, State.EXPIRED.value), (untold, State.APPROVED.value), else_=table.state),
        "changed_at": sa.case(
            (late, table.deadline),
            (untold, table.approved_at),
            (table.changed_at < table.shown_from, table.shown_from),
            else_=table.changed_at,
        ),
        "problem": sa.case((hidden, None), else_=table.problem),
        "reason": sa.case((hidden, None), else_=table.reason),
        "shown_from": sa.literal(0),
    }
    columns = [
        column if column.name not in shown else shown[column.name].label(column.name) for column in table
    ]
    return sa.select(*columns).subquery()


def study_row(connection: sa.Connection, digest: str, studies: sa.FromClause = STUDIES) -> StudyRow | None:
    """Return what is recorded of a study, or None."""
    row = connection.execute(sa.select(studies).where(studies.c.digest == digest)).one_or_none()
    return None if row is None else study_of_row(row)


def studies_in(connection: sa.Connection, states: Collection[State]) -> list[StudyRow]:
    """Return the studies in any of these states, oldest first."""
    query = STUDIES.select().where(STUDIES.c.state.in_([state.value for state in states]))
    rows = connection.execute(query.order_by(STUDIES.c.received_at, STUDIES.c.digest))
    return [study_of_row(row) for row in rows]


def newest_studies(
    connection: sa.Connection,
    size: int,
    *where: sa.ColumnElement[bool],
    studies: sa.FromClause = STUDIES,
) -> list[StudyRow]:
    """Return the studies that changed last, the newest first, ``where`` the conditions hold."""
    query = sa.select(studies).where(*where).order_by(studies.c.changed_at.desc(), studies.c.digest)
    return [study_of_row(row) for row in connection.execute(query.limit(size))]


def move(
    connection: sa.Connection,
    digest: str,
    *,
    before: Collection[State],
    after: State,
    at: int,
    problem: str | None = None,
    reason: str | None = None,
    shown_from: int = 0,
) -> bool:
    """Change a study's state if it is still one of ``before``; returns whether it was.

    ``shown_from`` is the moment before which others are shown nothing of it, where it came of computing.
    """
    approved = {"approved_at": at} if after is State.APPROVED else {}
    moved = connection.execute(
        STUDIES.update()
        .where(STUDIES.c.digest == digest, STUDIES.c.state.in_([state.value for state in before]))
        .values(
            **approved,
            state=after.value,
            changed_at=at,
            shown_from=shown_from,
            problem=problem,
            reason=None if reason is None else reason[:REASON_LENGTH],
        )
    )
    return moved.rowcount == 1


def is_debited(study: str | sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Return the condition that a study was paid for."""
    return sa.exists().where(ENTRIES.c.study == study)


def show_from(connection: sa.Connection, digest: str, moment: int) -> None:
    """Keep what computing a study has come to from anybody but the owner's own steward until this moment."""
    connection.execute(STUDIES.update().where(STUDIES.c.digest == digest).values(shown_from=moment))


HELD_TOO_LONG = "nobody sent the release before the deadline; the budget is spent"


def expire(connection: sa.Connection, now: int) -> int:
    """Close the studies that nobody decided before their deadline, and give back what was reserved for them.

    A release that is held is not sent any more, and is forgotten. A study whose rows were being read is left:
    that it has no answer is of what it read (readings.py). Returns how many were closed.
    """
    late = connection.execute(
        STUDIES.update()
        .where(STUDIES.c.state == State.HELD.value, STUDIES.c.deadline <= now)
        .values(
            state=State.EXPIRED.value,
            changed_at=STUDIES.c.deadline,
            shown_from=0,
            problem="study-expired",
            reason=HELD_TOO_LONG,
        )
    )
    if late.rowcount:
        ended = sa.select(STUDIES.c.digest).where(STUDIES.c.state != State.HELD.value)
        connection.execute(HELD.delete().where(HELD.c.study.in_(ended)))
    undecided = [State.WAITING.value, State.APPROVED.value]
    begun = sa.select(READINGS.c.study).where(READINGS.c.closed_at.is_(None))
    expired = connection.execute(
        STUDIES.update()
        .where(STUDIES.c.state.in_(undecided), STUDIES.c.deadline <= now, STUDIES.c.digest.not_in(begun))
        .values(
            state=State.EXPIRED.value,
            changed_at=STUDIES.c.deadline,
            problem="study-expired",
            reason=sa.case(
                (is_debited(STUDIES.c.digest), "the deadline passed; the budget is spent"),
                else_="the deadline passed; nothing was spent",
            ),
        )
    )
    if expired.rowcount:
        give_back(connection, sa.select(STUDIES.c.digest).where(STUDIES.c.state == State.EXPIRED.value))
    return int(expired.rowcount + late.rowcount)


def count_by_state(connection: sa.Connection, studies: sa.FromClause = STUDIES) -> dict[str, int]:
    """Return how many studies are in each state."""
    counts = dict.fromkeys((state.value for state in State), 0)
    query = sa.select(studies.c.state, sa.func.count()).group_by(studies.c.state)
    counts.update({state: int(count) for state, count in connection.execute(query)})
    return counts


def page_of_studies(
    connection: sa.Connection,
    state: State | None,
    after: str | None,
    size: int,
    *where: sa.ColumnElement[bool],
    studies: sa.FromClause = STUDIES,
) -> list[StudyRow]:
    """Return studies in the order of their digests, those after ``after``, ``where`` the conditions hold."""
    query = sa.select(studies).where(*where).order_by(studies.c.digest).limit(size)
    if state is not None:
        query = query.where(studies.c.state == state.value)
    if after is not None:
        query = query.where(studies.c.digest > after)
    return [study_of_row(row) for row in connection.execute(query)]


def record_verdict(connection: sa.Connection, digest: str, envelope: bytes) -> None:
    """Keep a verdict whose signature has been checked."""
    connection.execute(STUDIES.update().where(STUDIES.c.digest == digest).values(verdict=envelope))


class ApprovedBeforeError(Exception):
    """The person has approved the study already; it waits for another."""


PersonalDecision = Literal["approved", "declined"]


def record_decision(
    connection: sa.Connection,
    people: PeopleTables,
    asked: tuple[str, str],
    by: Person,
    decision: PersonalDecision,
    *,
    at: int,
) -> bool:
    """Record what a person says to a study; returns False where it was said before.

    ``asked`` are the study's digest and the name of the owner whose person it is.
    """
    table, (study, owner) = PERSONAL_DECISIONS, asked
    said = (table.c.study == study, table.c.owner == owner, table.c.person == by.name)
    found = connection.execute(sa.select(table.c.decision).where(*said)).scalar_one_or_none()
    if found == decision:
        return False
    connection.execute(table.delete().where(*said))
    said_by = {"person": by.name, "key": by.key, "demotions": demotions_of(connection, people, by)}
    row = {"study": study, "owner": owner, "decision": decision, "decided_at": at, **said_by}
    connection.execute(table.insert().values(**row))
    return True


def approve_by(
    connection: sa.Connection,
    people: PeopleTables,
    asked: tuple[str, str],
    by: Person,
    *,
    needed: int,
    at: int,
) -> bool:
    """Record a person's approval; returns whether as many people as needed have approved.

    Approvals count of those who are the owner's people and might approve all the time since; the others are
    deleted.

    Raises:
        ApprovedBeforeError: this person has approved before, and more are needed.
    """
    table, (study, owner) = PERSONAL_DECISIONS, asked
    of_study = (table.c.study == study, table.c.owner == owner, table.c.decision == "approved")
    counts = sa.and_(table.c.key == by.key, _stands(people))
    connection.execute(table.delete().where(*of_study, sa.not_(counts)))
    is_new = record_decision(connection, people, asked, by, "approved", at=at)
    if len(approvers_of(connection, study, owner)) >= needed:
        return True
    if not is_new:
        raise ApprovedBeforeError("another person has to approve as well")
    return False


def _stands(people: PeopleTables) -> sa.ColumnElement[bool]:
    """Return the condition that whoever said something is still there, and never lost the right to since."""
    table, users = PERSONAL_DECISIONS, people.users
    still = sa.exists().where(
        users.c.key == table.c.key,
        users.c.name == table.c.person,
        users.c.removed_at.is_(None),
        users.c.role.in_(DECIDING),
        users.c.demotions == table.c.demotions,
    )
    return sa.or_(table.c.person == KEY_HOLDER, still)


def decisions_of(
    connection: sa.Connection, study: str, owner: str, people: PeopleTables | None = None
) -> list[sa.Row[Any]]:
    """Return what an owner's people said to a study, oldest first; with ``people`` only what still stands."""
    table = PERSONAL_DECISIONS
    query = sa.select(table.c.person, table.c.decision, table.c.decided_at)
    said = query.where(table.c.study == study, table.c.owner == owner)
    if people is not None:
        said = said.where(_stands(people))
    return list(connection.execute(said.order_by(table.c.decided_at, table.c.person)))


def approvers_of(connection: sa.Connection, study: str, owner: str) -> list[str]:
    """Return the people of an owner who approved a study; none where its policy alone did."""
    said = decisions_of(connection, study, owner)
    return [one.person for one in said if one.decision == "approved"]


def put_in_outbox(
    connection: sa.Connection, study: str, kind: Kind, envelope: bytes, *, at: int, send_at: int
) -> None:
    """Store what is sent for a study from ``send_at`` on, in the place of its acceptance or key, if any.

    Once only: a second answer breaks the table's key.
    """
    connection.execute(OUTBOX.delete().where(OUTBOX.c.study == study, OUTBOX.c.kind.in_(FOLLOWED)))
    row = {"study": study, "kind": kind, "envelope": envelope, "created_at": at, "send_at": send_at}
    connection.execute(OUTBOX.insert().values(**row))


def withdraw(connection: sa.Connection, study: str) -> None:
    """Delete an answer that was not sent, as another takes its place."""
    connection.execute(OUTBOX.delete().where(OUTBOX.c.study == study, OUTBOX.c.kind.not_in(FOLLOWED)))


def send_at_once(connection: sa.Connection, study: str) -> None:
    """Note that nothing more is asked before an answer is sent that is due."""
    connection.execute(OUTBOX.update().where(OUTBOX.c.study == study).values(send_at=0))


def due_outbox(connection: sa.Connection, now: int) -> list[OutboxRow]:
    """Return what is due and the tester has not yet answered for, in the order of sending."""
    query = OUTBOX.select().where(OUTBOX.c.closed_at.is_(None), OUTBOX.c.send_at <= now)
    rows = connection.execute(query.order_by(OUTBOX.c.send_at, OUTBOX.c.study))
    return [OutboxRow(**row._mapping) for row in rows]


def reopen_outbox(connection: sa.Connection, study: str) -> bool:
    """Offer an answer again that was closed, the same bytes; returns whether there was any."""
    reopened = connection.execute(
        OUTBOX.update()
        .where(OUTBOX.c.study == study, OUTBOX.c.kind.not_in(FOLLOWED), OUTBOX.c.closed_at.is_not(None))
        .values(closed_at=None, outcome=None)
    )
    return reopened.rowcount == 1


def close_outbox(connection: sa.Connection, study: str, kind: Kind, at: int, outcome: str) -> None:
    """Note that what is of this kind will not be sent again for a study, and why."""
    sent = (OUTBOX.c.study == study, OUTBOX.c.kind == kind)
    connection.execute(OUTBOX.update().where(*sent).values(closed_at=at, outcome=outcome))


def hold(connection: sa.Connection, study: str, envelope: bytes, release: Release, shown_from: int) -> None:
    """Store a release that a steward looks at before it is sent, once only."""
    row = {"study": study, "envelope": envelope, "release": encode(release), "shown_from": shown_from}
    connection.execute(HELD.insert().values(**row))


def held_release(connection: sa.Connection, study: str) -> sa.Row[Any] | None:
    """Return the row of a release that is held: ``envelope``, ``release``, ``shown_from``; or None."""
    return connection.execute(HELD.select().where(HELD.c.study == study)).one_or_none()


def forget_held(connection: sa.Connection, study: str) -> None:
    """Delete a release that was held: it is in the outbox now, or nobody will ever see it."""
    connection.execute(HELD.delete().where(HELD.c.study == study))


def put_mask_secret(connection: sa.Connection, study: str, secret: bytes, at: int) -> None:
    """Store the secret of a study's masks. Once only: a second one breaks the table's key."""
    connection.execute(MASK_SECRETS.insert().values(study=study, secret=secret, drawn_at=at))


def mask_secret_of(connection: sa.Connection, study: str) -> bytes | None:
    """Return the secret of a study's masks; None where it was never drawn, or is deleted."""
    query = sa.select(MASK_SECRETS.c.secret).where(MASK_SECRETS.c.study == study)
    found = connection.execute(query).scalar_one_or_none()
    return bytes(found) if found else None


def forget_mask_secrets(connection: sa.Connection) -> None:
    """Empty the secrets of studies that make no mask any more, in the transaction that decided so.

    The rows stay until the database's log has forgotten the secrets too: ``Participant.overwrite``.
    """
    undecided = sa.select(STUDIES.c.digest).where(
        STUDIES.c.state.in_([State.WAITING.value, State.APPROVED.value])
    )
    done = (MASK_SECRETS.c.study.not_in(undecided), MASK_SECRETS.c.secret != b"")
    connection.execute(MASK_SECRETS.update().where(*done).values(secret=b""))


def emptied_mask_secrets(connection: sa.Connection) -> list[str]:
    """Return the studies whose masks' secrets were emptied, and may still be in the database's log."""
    query = sa.select(MASK_SECRETS.c.study).where(MASK_SECRETS.c.secret == b"")
    return list(connection.execute(query).scalars())


def note_overwritten(connection: sa.Connection, studies: Collection[str]) -> None:
    """Delete the rows of secrets that nothing here holds any more."""
    connection.execute(MASK_SECRETS.delete().where(MASK_SECRETS.c.study.in_(list(studies))))


def put_finding(connection: sa.Connection, study: str, finding: BaseModel, at: int) -> None:
    """Store what was found, with the answer. Once only: a second one breaks the table's key."""
    connection.execute(FINDINGS.insert().values(study=study, finding=encode(finding), found_at=at))


def finding_of(connection: sa.Connection, study: str) -> sa.Row[Any] | None:
    """Return the row of what was found: ``finding``, JSON, and ``found_at``, Unix time; or None."""
    return connection.execute(FINDINGS.select().where(FINDINGS.c.study == study)).one_or_none()
