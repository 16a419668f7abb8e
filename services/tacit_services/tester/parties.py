"""Parties at the tester: their roles, and who is calling."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Literal

from fastapi import Depends, Request
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.messages.study import PartyName, PublicKeyHex
from tacit_protocol.strict import StrictModel
from tacit_services.shared.database import read_from
from tacit_services.shared.http_app import BearerToken
from tacit_services.shared.http_server import recognise
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.shared.roster import Roster
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
        # One read at a time, never behind other requests: unknown callers are looked for again and again.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="roles")

    def require(self, *roles: str) -> Callable[..., Awaitable[str]]:
        """Make a dependency that returns the caller's key, which must be of one of these roles."""

        async def check(request: Request, key: Annotated[str, Depends(self.signer)]) -> str:
            role = self._roles.get(key)
            if role is None:
                role = await asyncio.get_running_loop().run_in_executor(self._reader, self.role, key)
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
            member = read_from(self._engine, ROSTER.require_member, key)
            role = known[key] = member.role
        return role

    def note_revoked(self, count: int) -> None:
        """Take note of how many keys are revoked by now: with one more, no role that was read before holds.

        A request that reads a role while this happens remembers it where nobody looks any more.
        """
        if count != self._revoked:
            self._revoked, self._roles = count, dict(self._own)
