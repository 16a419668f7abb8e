"""Parties at the tester: their roles, and who is calling."""

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Literal

import sqlalchemy as sa
from fastapi import Request
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.messages.study import PartyName, PublicKeyHex
from tacit_protocol.strict import StrictModel
from tacit_services.shared.database import run_transaction
from tacit_services.shared.http_app import BearerToken
from tacit_services.shared.http_server import recognise
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.shared.roster import Roster
from tacit_services.tester.inboxes import Gathered
from tacit_services.tester.tables import INVITATIONS, PARTIES

Role = Literal["owner", "curator", "analyst"]

ROSTER = Roster(PARTIES, INVITATIONS)


class InvitationRequest(StrictModel):
    """Whom the tester invites."""

    role: Role
    name: PartyName


class EnrolmentRequest(StrictModel):
    """An invited party's answer: the key it will be known by."""

    invitation: str
    name: PartyName
    key: PublicKeyHex
    role: Role


REVOKED = "revoked"
"""Stands for the role of a key that was revoked; no route lets it pass."""

_ROLES = sa.select(PARTIES.c.key, PARTIES.c.role, PARTIES.c.revoked_at).where(
    PARTIES.c.key.in_(sa.bindparam("keys", expanding=True))
)


def roles_of(connection: Connection, keys: Collection[str]) -> dict[str, str]:
    """Return the roles of those of the keys that parties are known by; :data:`REVOKED` of a revoked one."""
    rows = connection.execute(_ROLES, {"keys": list(keys)})
    return {row.key: row.role if row.revoked_at is None else REVOKED for row in rows}


def require_party(connection: Connection, key: str, name: str, role: Role) -> None:
    """Require that a key is enrolled by that name in that role, and was not revoked.

    Raises:
        ProblemError: ``unknown-party``, ``key-revoked``, or ``study-refused``: the key is another party's.
    """
    member = ROSTER.require_member(connection, key)
    if (member.name, member.role) != (name, role):
        raise ProblemError(
            "study-refused", detail=f"the study gives its {role} another name than its key is enrolled by"
        )


def keys_by_name(connection: Connection, names: list[str], role: Role) -> Mapping[str, str]:
    """Return the keys of those of the names that are enrolled in that role."""
    return ROSTER.keys_by_name(connection, names, role)


EVERYONE = ("tester", "owner", "curator", "analyst")
"""Every role there is: who may read."""


class Access:
    """Makes the dependencies of the routes."""

    def __init__(self, engine: Engine, tester_key: str, bearer: BearerToken) -> None:
        self._engine = engine
        self.signer = bearer
        """A dependency: the key of anyone whose token holds, enrolled or not."""
        # A role never changes, but for a key that is revoked: then all are read again. Who is not found is
        # looked for again. There are no more entries than enrolled parties.
        self._own = {tester_key: "tester"}
        self._roles = dict(self._own)
        self._revoked = 0
        # Thousands of agents may come at once, after a restart.
        self._gathered = Gathered(self._read)

    def require(self, *roles: str) -> Callable[..., Awaitable[str]]:
        """Make a dependency that returns the caller's key, which must be of one of these roles."""

        async def check(request: Request) -> str:
            key = await self.signer(request)
            known, role = self._roles, self._roles.get(key)
            if role is None:
                role = _require_role(await self._gathered.find(key))
                known[key] = role
            recognise(request.scope, key)
            if role not in roles:
                raise ProblemError("forbidden")
            return key

        return check

    def role(self, key: str) -> str:
        """Return the role of a key, for whom a browser was signed in; blocking.

        Raises:
            ProblemError: ``unknown-party`` or ``key-revoked``.
        """
        known, role = self._roles, self._roles.get(key)
        if role is None:
            role = known[key] = _require_role(self._read([key]).get(key))
        return role

    def note_revoked(self, count: int) -> None:
        """Take note of how many keys are revoked by now: with one more, no role that was read before holds.

        A request that reads a role while this happens remembers it where nobody looks any more.
        """
        if count != self._revoked:
            self._revoked, self._roles = count, dict(self._own)

    def _read(self, keys: Collection[str]) -> Mapping[str, str]:
        return run_transaction(self._engine, lambda connection: roles_of(connection, keys), read_only=True)


def _require_role(role: str | None) -> str:
    if role is None:
        raise ProblemError("unknown-party")
    if role == REVOKED:
        raise ProblemError("key-revoked")
    return role
