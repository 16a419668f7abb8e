"""Who is known to a service, and how one becomes known: a one-time invitation, answered with a key."""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tacit_services.shared.problem_responses import ProblemError

INVITATION_LIFE_S = 7 * 24 * 3600
"""An invitation travels by mail between institutions; a week lets a steward be away."""

_NAME = sa.String(63)


def parties_table(metadata: sa.MetaData, table: str) -> sa.Table:
    """Return the table of a service's parties."""
    return sa.Table(
        table,
        metadata,
        sa.Column("name", _NAME, primary_key=True),
        sa.Column("key", sa.String(64), nullable=False, unique=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("enrolled_at", sa.BigInteger, nullable=False),
    )


def invitations_table(metadata: sa.MetaData, table: str) -> sa.Table:
    """Return the table of a service's invitations; of each, only the digest is stored."""
    return sa.Table(
        table,
        metadata,
        sa.Column("token_digest", sa.String(64), primary_key=True),
        sa.Column("name", _NAME, nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("used_by", sa.String(64), nullable=True),
    )


@dataclass(frozen=True)
class Member:
    """A party as it is known here: its name, its public key (hexadecimal) and its role."""

    name: str
    key: str
    role: str


@dataclass(frozen=True)
class Roster:
    """The parties of one service; all methods work inside the caller's transaction."""

    parties: sa.Table
    invitations: sa.Table

    def invite(self, connection: Connection, name: str, role: str, now: int) -> dict[str, Any]:
        """Make a one-time invitation for that name and role.

        Raises:
            ProblemError: ``party-exists``.
        """
        if self._is_named(connection, name):
            raise ProblemError("party-exists")
        invitation = secrets.token_urlsafe(32)
        expires_at = now + INVITATION_LIFE_S
        connection.execute(
            self.invitations.insert().values(
                token_digest=_digest(invitation), name=name, role=role, expires_at=expires_at, used_by=None
            )
        )
        return {"invitation": invitation, "expires_at": expires_at}

    def enrol(self, connection: Connection, invitation: str, party: Member, now: int) -> bool:
        """Enrol an invited party; returns whether it is new. The same enrolment again changes nothing.

        Raises:
            ProblemError: ``invitation-invalid`` or ``party-exists``.
        """
        known = self.invitations.c.token_digest == _digest(invitation)
        row = connection.execute(self.invitations.select().where(known)).one_or_none()
        if row is None or (row.name, row.role) != (party.name, party.role):
            raise ProblemError("invitation-invalid")
        if row.used_by is not None:
            if row.used_by == party.key:
                return False
            raise ProblemError("invitation-invalid")
        if now >= row.expires_at:
            raise ProblemError("invitation-invalid")
        if self._is_named(connection, party.name) or self.member(connection, party.key) is not None:
            raise ProblemError("party-exists")
        connection.execute(self.parties.insert().values(**party.__dict__, enrolled_at=now))
        connection.execute(self.invitations.update().where(known).values(used_by=party.key))
        return True

    def member(self, connection: Connection, key: str) -> Member | None:
        """Return the party that is known by this key, or None."""
        row = connection.execute(self._members().where(self.parties.c.key == key)).one_or_none()
        return None if row is None else Member(row.name, row.key, row.role)

    def keys_by_name(self, connection: Connection, names: list[str], role: str) -> Mapping[str, str]:
        """Return the keys of those of the names that are enrolled in that role."""
        query = self._members().where(self.parties.c.name.in_(names), self.parties.c.role == role)
        return {row.name: row.key for row in connection.execute(query)}

    def page(self, connection: Connection, cursor: str | None, size: int) -> dict[str, Any]:
        """Return one page of the parties, by name; ``next`` is the following page's cursor, or None."""
        query = self._members().order_by(self.parties.c.name)
        if cursor is not None:
            query = query.where(self.parties.c.name > cursor)
        rows = connection.execute(query.limit(size + 1)).all()
        items = [{"name": row.name, "key": row.key, "role": row.role} for row in rows[:size]]
        return {"items": items, "next": items[-1]["name"] if len(rows) > size else None}

    def _members(self) -> sa.Select[Any]:
        return sa.select(self.parties.c.name, self.parties.c.key, self.parties.c.role)

    def _is_named(self, connection: Connection, name: str) -> bool:
        query = sa.select(self.parties.c.key).where(self.parties.c.name == name)
        return connection.execute(query).one_or_none() is not None


def _digest(invitation: str) -> str:
    return hashlib.sha256(invitation.encode("utf-8", "surrogatepass")).hexdigest()
