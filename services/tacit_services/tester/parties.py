"""Parties and invitations: who is known to the tester, and how one becomes known."""

import hashlib
import secrets
from collections.abc import Mapping
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tacit_protocol.messages.study import PartyName, PublicKeyHex
from tacit_protocol.strict import StrictModel
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester.tables import INVITATIONS, PARTIES

INVITATION_LIFE_S = 7 * 24 * 3600
"""An invitation travels by mail between institutions; a week lets a steward be away."""

PAGE_SIZE = 100
"""Items of one page."""

Role = Literal["owner", "analyst"]


class InvitationRequest(StrictModel):
    """Whom the tester invites."""

    role: Role
    name: PartyName


class Enrolment(StrictModel):
    """An invited party's answer: the key it will be known by."""

    invitation: str
    name: PartyName
    key: PublicKeyHex
    role: Role


def invite(connection: Connection, request: InvitationRequest, now: int) -> dict[str, Any]:
    """Make a one-time invitation. Only its digest is stored."""
    if _named(connection, request.name) is not None:
        raise ProblemError("party-exists")
    invitation = secrets.token_urlsafe(32)
    expires_at = now + INVITATION_LIFE_S
    connection.execute(
        INVITATIONS.insert().values(
            token_digest=_digest(invitation),
            name=request.name,
            role=request.role,
            expires_at=expires_at,
            used_by=None,
        )
    )
    return {"invitation": invitation, "expires_at": expires_at}


def enrol(connection: Connection, enrolment: Enrolment, now: int) -> tuple[dict[str, Any], bool]:
    """Enrol a party; returns it, and whether it is new. The same enrolment again changes nothing."""
    row = connection.execute(
        sa.select(INVITATIONS).where(INVITATIONS.c.token_digest == _digest(enrolment.invitation))
    ).one_or_none()
    if row is None or (row.name, row.role) != (enrolment.name, enrolment.role):
        raise ProblemError("invitation-invalid")
    party = {"name": enrolment.name, "key": enrolment.key, "role": enrolment.role}
    if row.used_by is not None:
        if row.used_by == enrolment.key:
            return party, False
        raise ProblemError("invitation-invalid")
    if now >= row.expires_at:
        raise ProblemError("invitation-invalid")
    if _named(connection, enrolment.name) is not None or role_of(connection, enrolment.key) is not None:
        raise ProblemError("party-exists")
    connection.execute(PARTIES.insert().values(**party, enrolled_at=now))
    connection.execute(
        INVITATIONS.update()
        .where(INVITATIONS.c.token_digest == row.token_digest)
        .values(used_by=enrolment.key)
    )
    return party, True


_ROLE = sa.select(PARTIES.c.role).where(PARTIES.c.key == sa.bindparam("key"))


def role_of(connection: Connection, key: str) -> str | None:
    """Return the role of the party that is known by this key, or None."""
    return connection.execute(_ROLE, {"key": key}).scalar_one_or_none()


def keys_by_name(connection: Connection, names: list[str], role: Role) -> Mapping[str, str]:
    """Return the keys of those of the names that are enrolled in that role."""
    rows = connection.execute(
        sa.select(PARTIES.c.name, PARTIES.c.key).where(PARTIES.c.name.in_(names), PARTIES.c.role == role)
    )
    return {row.name: row.key for row in rows}


def list_parties(connection: Connection, cursor: str | None) -> dict[str, Any]:
    """Return one page of the parties, by name; ``next`` is the cursor of the following page, or None."""
    query = sa.select(PARTIES.c.name, PARTIES.c.key, PARTIES.c.role).order_by(PARTIES.c.name)
    if cursor is not None:
        query = query.where(PARTIES.c.name > cursor)
    rows = connection.execute(query.limit(PAGE_SIZE + 1)).all()
    items = [{"name": row.name, "key": row.key, "role": row.role} for row in rows[:PAGE_SIZE]]
    return {"items": items, "next": items[-1]["name"] if len(rows) > PAGE_SIZE else None}


def _named(connection: Connection, name: str) -> str | None:
    return connection.execute(sa.select(PARTIES.c.key).where(PARTIES.c.name == name)).scalar_one_or_none()


def _digest(invitation: str) -> str:
    return hashlib.sha256(invitation.encode("utf-8", "surrogatepass")).hexdigest()
