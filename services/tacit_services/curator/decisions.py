"""Who has decided on a study: one row for each owner whose data it uses.

All functions work inside the caller's transaction. A row begins as ``waiting``, or as ``approved`` where the
owner's policy approves by itself; it becomes ``approved`` or ``declined`` once. The study runs when no row
waits, and never once a row is ``declined``.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import sqlalchemy as sa

from tacit_services.agent.intake import Job
from tacit_services.agent.schema import STUDIES, State
from tacit_services.agent.studies import StudyRow, study_of_row
from tacit_services.curator.tables import METADATA, NAME_LENGTH
from tacit_services.ledger.schema import DIGEST_LENGTH

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
)


@dataclass(frozen=True)
class OwnerDecision:
    """One owner's decision on one study; ``decided_by`` is ``owner`` or ``policy``."""

    study: str
    owner: str
    account: str
    decision: Decision
    decided_by: str | None
    decided_at: int | None


def record_parts(connection: sa.Connection, job: Job, now: int) -> None:
    """Write the rows of a study that may be run: waiting, or approved by the owner's policy."""
    for part in job.parts:
        automatic = part.rules.approval == "automatic"
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


def waits_for_someone(connection: sa.Connection, study: str) -> bool:
    """Return whether an owner has yet to approve."""
    query = sa.select(DECISIONS.c.owner).where(
        DECISIONS.c.study == study, DECISIONS.c.decision != Decision.APPROVED.value
    )
    return connection.execute(query.limit(1)).first() is not None


def decisions_on(connection: sa.Connection, studies: Iterable[str]) -> dict[str, list[OwnerDecision]]:
    """Return every owner's decision on these studies, by study and in the order of the owners' names."""
    found: dict[str, list[OwnerDecision]] = {study: [] for study in studies}
    query = DECISIONS.select().where(DECISIONS.c.study.in_(list(found)))
    for row in connection.execute(query.order_by(DECISIONS.c.study, DECISIONS.c.owner)):
        values = {**row._mapping, "decision": Decision(row.decision)}
        found[row.study].append(OwnerDecision(**values))
    return found


def newest_studies_for(connection: sa.Connection, owner: str | None, size: int) -> list[StudyRow]:
    """Return the studies that changed last: those that ask for an owner's data, or all."""
    query = STUDIES.select().order_by(STUDIES.c.changed_at.desc(), STUDIES.c.digest).limit(size)
    if owner is not None:
        query = query.where(_asked_of(owner))
    return [study_of_row(row) for row in connection.execute(query)]


def _asked_of(owner: str) -> sa.ColumnElement[bool]:
    return STUDIES.c.digest.in_(sa.select(DECISIONS.c.study).where(DECISIONS.c.owner == owner))


def page_of_studies_for(
    connection: sa.Connection, owner: str | None, state: State | None, after: str | None, size: int
) -> list[StudyRow]:
    """Return studies in the order of their digests: those that ask for an owner's data, or all."""
    query = STUDIES.select().order_by(STUDIES.c.digest).limit(size)
    if owner is not None:
        query = query.where(_asked_of(owner))
    if state is not None:
        query = query.where(STUDIES.c.state == state.value)
    if after is not None:
        query = query.where(STUDIES.c.digest > after)
    return [study_of_row(row) for row in connection.execute(query)]
