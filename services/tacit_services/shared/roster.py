"""Parties of a tester or a curator: known by an invitation, answered with a key, until that is revoked.

No row is ever deleted: a party whose key was revoked keeps its name and its key, so that neither can become
another's, and every signature can be traced to who it was.
"""

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import sqlalchemy as sa
import structlog
from fastapi import APIRouter, Depends, Path, Query
from sqlalchemy.engine import Connection, Engine
from starlette.responses import Response

from tacit_protocol.messages.answers import (
    Invitation,
    InvitationRecord,
    ListPage,
    RevokedInvitations,
    ServiceAnswer,
)
from tacit_protocol.messages.study import Digest, PartyName
from tacit_protocol.strict import StrictModel
from tacit_services.shared.clock import Clock
from tacit_services.shared.database import Result, read_from, run_transaction
from tacit_services.shared.http_app import BearerToken, answer_schema, body_schema, json_body, json_response
from tacit_services.shared.pages.sessions import SignInTables
from tacit_services.shared.problem_responses import RegisteredProblemError

PAGE_SIZE = 100
"""Parties or invitations in one page."""

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
        """Make a one-time invitation for that name and role. Raises ProblemError: ``party-exists``."""
        if self._is_named(connection, name):
            raise RegisteredProblemError("party-exists")
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
            raise RegisteredProblemError("invitation-invalid")
        if row.used_by is not None:
            if row.used_by == party.key:
                self.require_member(connection, party.key)
                return False
            raise RegisteredProblemError("invitation-invalid")
        if now >= row.expires_at or row.revoked_at is not None:
            raise RegisteredProblemError("invitation-invalid")
        if self._is_named(connection, party.name) or self.member(connection, party.key) is not None:
            raise RegisteredProblemError("party-exists")
        connection.execute(self.parties.insert().values(**asdict(party), enrolled_at=now))
        connection.execute(self.invitations.update().where(known).values(used_by=party.key))
        return True

    def member(self, connection: Connection, key: str) -> Member | None:
        """Return the party that is known by this key, also where the key was revoked, or None."""
        row = connection.execute(self._members().where(self.parties.c.key == key)).one_or_none()
        return None if row is None else Member(*row)

    def require_member(self, connection: Connection, key: str) -> Member:
        """Return the party whose key it is. Raises ProblemError: ``unknown-party`` or ``key-revoked``."""
        member = self.member(connection, key)
        if member is None:
            raise RegisteredProblemError("unknown-party")
        if member.revoked_at is not None:
            raise RegisteredProblemError("key-revoked")
        return member

    def revoke(self, connection: Connection, name: str, now: int) -> tuple[Member, bool]:
        """Revoke a party's key for good; returns the party, and whether its key held until now.

        Raises:
            ProblemError: ``unknown-party``: nobody of that name is enrolled.
        """
        named = self.parties.c.name == name
        row = connection.execute(self._members().where(named)).one_or_none()
        if row is None:
            raise RegisteredProblemError("unknown-party")
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


log = structlog.get_logger()


@dataclass(frozen=True)
class Enrolment:
    """The routes by which a service's parties are invited, enrol, and have their keys revoked."""

    engine: Engine
    clock: Clock
    roster: Roster
    sign_in: SignInTables
    service: Member
    """The service itself: nobody else has its name or its key."""
    parties: str
    """What parties are called in addresses."""
    fields: tuple[str, ...]
    """What is told of a party that has enrolled."""
    invitation: type[StrictModel]
    """What the operator says of whom it invites: ``name`` and ``role``."""
    enrolment: type[StrictModel]
    """What an invited party answers: ``invitation``, ``name``, ``key`` and ``role``."""
    member: type[ServiceAnswer]
    """How a party that has enrolled is told."""
    operator: Callable[..., Any]
    """A dependency that lets the operator alone pass."""
    reader: Callable[..., Any]
    """The same for those who may list the parties."""
    signer: BearerToken
    on_revoked: Callable[[Connection, Member, int], None] = lambda *_: None
    """Called in the transaction that revokes a key."""
    after_revoked: Callable[[], None] = lambda: None

    def add_to(self, router: APIRouter) -> None:
        """Add the routes."""
        operator = [Depends(self.operator)]
        invited, enrolled = json_body(self.invitation), json_body(self.enrolment)
        Named = Annotated[PartyName, Path()]

        @router.post(
            "/invitations",
            status_code=201,
            dependencies=operator,
            openapi_extra=body_schema(self.invitation),
            **answer_schema(Invitation),
        )
        def create_invitation(request: Annotated[Any, Depends(invited)]) -> Response:
            """Invite a party (the operator). The invitation works once, for a week."""
            if request.name == self.service.name:
                raise RegisteredProblemError("party-exists")
            made = self._write(lambda c, now: self.roster.invite(c, request.name, request.role, now))
            return json_response(made, 201)

        @router.get("/invitations", dependencies=operator, **answer_schema(ListPage[InvitationRecord]))
        def invitations(cursor: Annotated[Digest | None, Query()] = None) -> Response:
            """List all invitations ever made, and what became of each (the operator)."""
            now = int(self.clock())
            return json_response(read_from(self.engine, self.roster.invited, cursor, PAGE_SIZE, now))

        @router.delete("/invitations/{name}", dependencies=operator, **answer_schema(RevokedInvitations))
        def revoke_invitation(name: Named) -> Response:
            """Revoke the invitations of that name that were not used yet (the operator)."""
            revoked = self._write(lambda c, now: self.roster.revoke_invitations(c, name, now))
            log.info("invitations_revoked", party=name, revoked=revoked)
            return json_response({"name": name, "revoked": revoked})

        @router.put(
            f"/{self.parties}/{{name}}/revocation",
            status_code=201,
            dependencies=operator,
            **answer_schema(self.member, repeatable=True),
        )
        def revoke_key(name: Named) -> Response:
            """Revoke a party's key (the operator): nothing that it signs is taken from then on."""
            party, is_new = self._write(lambda c, now: self._revoke(c, name, now))
            self.after_revoked()
            log.info("key_revoked", party=name, revoked_at=party.revoked_at)
            return json_response(self._shown(party, "revoked_at"), 201 if is_new else 200)

        @router.post(
            "/enrolments",
            status_code=201,
            openapi_extra=body_schema(self.enrolment),
            **answer_schema(self.member, repeatable=True),
        )
        def create_enrolment(
            key: Annotated[str, Depends(self.signer)], answer: Annotated[Any, Depends(enrolled)]
        ) -> Response:
            """Enrol with an invitation and the key that signs this request; again, it changes nothing."""
            if key != answer.key:
                raise RegisteredProblemError(
                    "forbidden", detail="sign the request with the key that is to be enrolled"
                )
            if key == self.service.key or answer.name == self.service.name:
                raise RegisteredProblemError("party-exists")
            party = Member(answer.name, answer.key, answer.role)
            is_new = self._write(lambda c, now: self.roster.enrol(c, answer.invitation, party, now))
            return json_response(self._shown(party), 201 if is_new else 200)

        listed = answer_schema(ListPage[self.member])  # type: ignore[name-defined]

        @router.get(f"/{self.parties}", dependencies=[Depends(self.reader)], **listed)
        def parties(cursor: Annotated[PartyName | None, Query()] = None) -> Response:
            """List one page of the parties, by name."""
            return json_response(read_from(self.engine, self.page, cursor))

    def page(self, connection: Connection, cursor: str | None) -> dict[str, Any]:
        """Return one page of the parties as the route answers it."""
        page = self.roster.page(connection, cursor, PAGE_SIZE)
        items = [{name: item[name] for name in (*self.fields, "revoked_at")} for item in page["items"]]
        return page | {"items": items}

    def _shown(self, party: Member, *more: str) -> dict[str, Any]:
        return {name: getattr(party, name) for name in (*self.fields, *more)}

    def _revoke(self, connection: Connection, name: str, now: int) -> tuple[Member, bool]:
        """Revoke a party's key; in the same transaction its browsers are signed out."""
        party, is_new = self.roster.revoke(connection, name, now)
        if is_new:
            self.on_revoked(connection, party, now)
            for table in (self.sign_in.links, self.sign_in.sessions):
                connection.execute(table.delete().where(table.c.key == party.key))
        return party, is_new

    def _write(self, work: Callable[[Connection, int], Result]) -> Result:
        now = int(self.clock())
        return run_transaction(self.engine, lambda connection: work(connection, now))
