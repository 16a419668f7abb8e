"""Owners at the curator: how they enrol, and who is calling."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from fastapi import Depends, Request
from sqlalchemy.engine import Engine
from starlette.concurrency import run_in_threadpool

from tacit_protocol.messages.study import PartyName, PublicKeyHex
from tacit_protocol.strict import StrictModel
from tacit_services.curator.tables import ROSTER
from tacit_services.shared.database import run_transaction
from tacit_services.shared.http_app import BearerToken
from tacit_services.shared.http_server import recognise
from tacit_services.shared.problem_responses import ProblemError


class InvitationRequest(StrictModel):
    """Whom the curator invites."""

    role: ClassVar[str] = "owner"
    name: PartyName


class EnrolmentRequest(StrictModel):
    """An invited owner's answer: the key it will be known by."""

    role: ClassVar[str] = "owner"
    invitation: str
    name: PartyName
    key: PublicKeyHex


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
