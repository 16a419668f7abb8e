"""Parties and invitations: who is known to the tester, and how one becomes known."""

from collections.abc import Collection, Mapping
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tacit_protocol.messages.study import PartyName, PublicKeyHex
from tacit_protocol.strict import StrictModel
from tacit_services.shared.roster import Member, Roster
from tacit_services.tester.tables import INVITATIONS, PARTIES

PAGE_SIZE = 100
"""Items of one page."""

Role = Literal["owner", "curator", "analyst"]

_ROSTER = Roster(PARTIES, INVITATIONS)


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
    return _ROSTER.invite(connection, request.name, request.role, now)


def enrol(connection: Connection, enrolment: Enrolment, now: int) -> tuple[dict[str, Any], bool]:
    """Enrol a party; returns it, and whether it is new. The same enrolment again changes nothing."""
    party = Member(enrolment.name, enrolment.key, enrolment.role)
    return dict(party.__dict__), _ROSTER.enrol(connection, enrolment.invitation, party, now)


_ROLES = sa.select(PARTIES.c.key, PARTIES.c.role).where(
    PARTIES.c.key.in_(sa.bindparam("keys", expanding=True))
)


def roles_of(connection: Connection, keys: Collection[str]) -> dict[str, str]:
    """Return the roles of those of the keys that parties are known by."""
    rows = connection.execute(_ROLES, {"keys": list(keys)})
    return {row.key: row.role for row in rows}


def keys_by_name(connection: Connection, names: list[str], role: Role) -> Mapping[str, str]:
    """Return the keys of those of the names that are enrolled in that role."""
    return _ROSTER.keys_by_name(connection, names, role)


def list_parties(connection: Connection, cursor: str | None) -> dict[str, Any]:
    """Return one page of the parties, by name; ``next`` is the cursor of the following page, or None."""
    return _ROSTER.page(connection, cursor, PAGE_SIZE)
