"""Who is calling: the dependencies that turn a token into a party with a role."""

from collections.abc import Awaitable, Callable, Collection, Mapping

from fastapi import Request
from sqlalchemy.engine import Engine

from tacit_services.shared.database import run_transaction
from tacit_services.shared.http_app import BearerToken
from tacit_services.shared.http_server import recognise
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester.gathered import Gathered
from tacit_services.tester.parties import REVOKED, roles_of

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
