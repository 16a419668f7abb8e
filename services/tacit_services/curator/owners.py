"""Owners at the curator: how they enrol, and who is calling."""

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request
from sqlalchemy.engine import Connection, Engine
from starlette.concurrency import run_in_threadpool

from tacit_protocol.messages.study import PartyName, PublicKeyHex
from tacit_protocol.strict import StrictModel
from tacit_services.curator.tables import ROSTER, SIGN_IN
from tacit_services.shared.database import run_transaction
from tacit_services.shared.http_app import BearerToken
from tacit_services.shared.http_server import recognise
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.shared.roster import Member

PAGE_SIZE = 100
"""Owners in one page."""

ROLE = "owner"
"""The one role that is enrolled; the operator is known by the curator's own key."""


class InvitationRequest(StrictModel):
    """Whom the curator invites."""

    name: PartyName


class Enrolment(StrictModel):
    """An invited owner's answer: the key it will be known by."""

    invitation: str
    name: PartyName
    key: PublicKeyHex


def invite(connection: Connection, request: InvitationRequest, now: int) -> dict[str, Any]:
    """Make a one-time invitation; only its digest is stored."""
    return ROSTER.invite(connection, request.name, ROLE, now)


def enrol(connection: Connection, enrolment: Enrolment, now: int) -> tuple[dict[str, Any], bool]:
    """Enrol an owner; returns it, and whether it is new. The same enrolment again changes nothing."""
    owner = Member(enrolment.name, enrolment.key, ROLE)
    is_new = ROSTER.enrol(connection, enrolment.invitation, owner, now)
    return {"name": owner.name, "key": owner.key}, is_new


def revoke(connection: Connection, name: str, now: int) -> tuple[dict[str, Any], bool]:
    """Revoke an owner's key; returns the owner, and whether its key held until now.

    Its browsers are signed out, and no study is answered from its data sets any more; its ledger stays.

    Raises:
        ProblemError: ``unknown-party``.
    """
    owner, is_new = ROSTER.revoke(connection, name, now)
    if is_new:
        for table in (SIGN_IN.links, SIGN_IN.sessions):
            connection.execute(table.delete().where(table.c.key == owner.key))
    return {"name": owner.name, "key": owner.key, "revoked_at": owner.revoked_at}, is_new


def revoke_invitations(connection: Connection, name: str, now: int) -> dict[str, Any]:
    """Revoke the invitations of that name that could still be used."""
    return {"name": name, "revoked": ROSTER.revoke_invitations(connection, name, now)}


def list_invitations(connection: Connection, cursor: str | None, now: int) -> dict[str, Any]:
    """Return one page of all invitations ever made, and what became of each."""
    return ROSTER.invited(connection, cursor, PAGE_SIZE, now)


def list_owners(connection: Connection, cursor: str | None) -> dict[str, Any]:
    """Return one page of the owners, by name."""
    page = ROSTER.page(connection, cursor, PAGE_SIZE)
    names = ("name", "key", "revoked_at")
    items = [{name: item[name] for name in names} for item in page["items"]]
    return {"items": items, "next": page["next"]}


@dataclass(frozen=True)
class Caller:
    """Who asks: ``owner`` is an enrolled owner's name, or None where the operator asks."""

    key: str
    owner: str | None

    def require_may_see(self, owner: str) -> None:
        """Raise ``forbidden`` where an owner asks for another's, whether or not there is such a thing."""
        if self.owner is not None and self.owner != owner:
            raise ProblemError("forbidden")


class Access:
    """Makes the dependencies of the routes. The curator's own key is the operator's."""

    def __init__(self, engine: Engine, operator_key: str, bearer: BearerToken) -> None:
        self._engine = engine
        self._operator_key = operator_key
        self.signer = bearer
        """A dependency: the key of anyone whose token holds, enrolled or not."""

        async def caller(request: Request, key: Annotated[str, Depends(bearer)]) -> Caller:
            found = await run_in_threadpool(self.caller_of, key)
            recognise(request.scope, key)
            return found

        def owner(caller: Annotated[Caller, Depends(caller)]) -> str:
            if caller.owner is None:
                raise ProblemError("forbidden")
            return caller.owner

        def operator(caller: Annotated[Caller, Depends(caller)]) -> None:
            if caller.owner is not None:
                raise ProblemError("forbidden")

        self.caller = caller
        """A dependency: the :class:`Caller`, an enrolled owner or the operator."""
        self.owner = owner
        """A dependency: the name of the owner who calls; the operator is refused."""
        self.operator = operator
        """A dependency that lets the operator alone pass."""

    def caller_of(self, key: str) -> Caller:
        """Return whose key it is; raises ``unknown-party`` or ``key-revoked``. Blocking."""
        if key == self._operator_key:
            return Caller(key, None)
        member = run_transaction(self._engine, lambda c: ROSTER.require_member(c, key), read_only=True)
        return Caller(key, member.name)
