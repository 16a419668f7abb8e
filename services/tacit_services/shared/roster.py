"""Who is known to a service: by a one-time invitation, answered with a key, until that key is revoked.

No row is ever deleted: a party whose key was revoked keeps its name and its key, so that neither can become
another's, and every signature can be traced to who it was.
"""

import hashlib
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
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
        sa.Column("revoked_at", sa.BigInteger, nullable=True),
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
        sa.Column("revoked_at", sa.BigInteger, nullable=True),
    )


@dataclass(frozen=True)
class Member:
    """A party as it is known here: its name, its public key (hexadecimal) and its role.

    ``revoked_at`` (Unix seconds) is when its key was revoked, None while it holds.
    """

    name: str
    key: str
    role: str
    revoked_at: int | None = None


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
            ProblemError: ``invitation-invalid``, ``key-revoked`` or ``party-exists``.
        """
        known = self.invitations.c.token_digest == _digest(invitation)
        row = connection.execute(self.invitations.select().where(known)).one_or_none()
        if row is None or (row.name, row.role) != (party.name, party.role):
            raise ProblemError("invitation-invalid")
        if row.used_by is not None:
            if row.used_by == party.key:
                self.require_member(connection, party.key)
                return False
            raise ProblemError("invitation-invalid")
        if now >= row.expires_at or row.revoked_at is not None:
            raise ProblemError("invitation-invalid")
        if self._is_named(connection, party.name) or self.member(connection, party.key) is not None:
            raise ProblemError("party-exists")
        connection.execute(self.parties.insert().values(**asdict(party), enrolled_at=now))
        connection.execute(self.invitations.update().where(known).values(used_by=party.key))
        return True

    def member(self, connection: Connection, key: str) -> Member | None:
        """Return the party that is known by this key, also where the key was revoked, or None."""
        row = connection.execute(self._members().where(self.parties.c.key == key)).one_or_none()
        return None if row is None else Member(*row)

    def require_member(self, connection: Connection, key: str) -> Member:
        """Return the party whose key it is.

        Raises:
            ProblemError: ``unknown-party`` or ``key-revoked``.
        """
        member = self.member(connection, key)
        if member is None:
            raise ProblemError("unknown-party")
        if member.revoked_at is not None:
            raise ProblemError("key-revoked")
        return member

    def revoke(self, connection: Connection, name: str, now: int) -> tuple[Member, bool]:
        """Revoke a party's key for good; returns the party, and whether its key held until now.

        Raises:
            ProblemError: ``unknown-party``: nobody of that name is enrolled.
        """
        named = self.parties.c.name == name
        row = connection.execute(self._members().where(named)).one_or_none()
        if row is None:
            raise ProblemError("unknown-party")
        if row.revoked_at is not None:
            return Member(*row), False
        connection.execute(self.parties.update().where(named).values(revoked_at=now))
        return Member(row.name, row.key, row.role, now), True

    def revoke_invitations(self, connection: Connection, name: str, now: int) -> int:
        """Revoke every invitation of that name that could still be used; returns how many there were."""
        table = self.invitations.c
        usable = (
            table.name == name,
            table.used_by.is_(None),
            table.revoked_at.is_(None),
            table.expires_at > now,
        )
        return int(
            connection.execute(self.invitations.update().where(*usable).values(revoked_at=now)).rowcount
        )

    def invited(self, connection: Connection, cursor: str | None, size: int, now: int) -> dict[str, Any]:
        """Return one page of all invitations ever made, in no telling order, as :meth:`page` does."""
        table = self.invitations.c
        query = self.invitations.select().order_by(table.token_digest)
        if cursor is not None:
            query = query.where(table.token_digest > cursor)
        rows = connection.execute(query.limit(size + 1)).all()
        items = [
            {
                "name": row.name,
                "role": row.role,
                "expires_at": row.expires_at,
                "state": _invitation_state(row, now),
                "used_by": row.used_by,
                "revoked_at": row.revoked_at,
            }
            for row in rows[:size]
        ]
        return {"items": items, "next": rows[size - 1].token_digest if len(rows) > size else None}

    def keys_by_name(self, connection: Connection, names: list[str], role: str) -> Mapping[str, str]:
        """Return the keys of those of the names that are enrolled in that role and not revoked."""
        query = self._members().where(
            self.parties.c.name.in_(names), self.parties.c.role == role, self.parties.c.revoked_at.is_(None)
        )
        return {row.name: row.key for row in connection.execute(query)}

    def page(self, connection: Connection, cursor: str | None, size: int) -> dict[str, Any]:
        """Return one page of the parties, by name; ``next`` is the following page's cursor, or None."""
        query = self._members().order_by(self.parties.c.name)
        if cursor is not None:
            query = query.where(self.parties.c.name > cursor)
        rows = connection.execute(query.limit(size + 1)).all()
        items = [asdict(Member(*row)) for row in rows[:size]]
        return {"items": items, "next": items[-1]["name"] if len(rows) > size else None}

    def _members(self) -> sa.Select[Any]:
        table = self.parties.c
        return sa.select(table.name, table.key, table.role, table.revoked_at)

    def _is_named(self, connection: Connection, name: str) -> bool:
        query = sa.select(self.parties.c.key).where(self.parties.c.name == name)
        return connection.execute(query).one_or_none() is not None


def _invitation_state(row: sa.Row[Any], now: int) -> str:
    if row.used_by is not None:
        return "used"
    if row.revoked_at is not None:
        return "revoked"
    return "expired" if now >= row.expires_at else "open"


def _digest(invitation: str) -> str:
    return hashlib.sha256(invitation.encode("utf-8", "surrogatepass")).hexdigest()
