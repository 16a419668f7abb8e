"""Who is calling: the dependencies that turn a token into a party with a role."""

from collections.abc import Awaitable, Callable, Collection, Mapping

from fastapi import Request
from sqlalchemy.engine import Engine

from tacit_services.shared.database import run_transaction
from tacit_services.shared.http_app import BearerToken
from tacit_services.shared.http_server import recognise
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester.gathered import Gathered
from tacit_services.tester.parties import roles_of

EVERYONE = ("tester", "owner", "curator", "analyst")
"""Every role there is: who may read."""


class Access:
    """Makes the dependencies of the routes."""

    def __init__(self, engine: Engine, tester_key: str, bearer: BearerToken) -> None:
        self._engine = engine
        self.signer = bearer
        """A dependency: the key of anyone whose token holds, enrolled or not."""
        # Nobody is ever dropped and no role ever changes, so what was once read holds; who is not found is
        # looked for again. There are no more entries than enrolled parties.
        self._roles = {tester_key: "tester"}
        # Thousands of agents may come at once, after a restart.
        self._gathered = Gathered(self._read)

    def require(self, *roles: str) -> Callable[..., Awaitable[str]]:
        """Make a dependency that returns the caller's key, which must be of one of these roles."""

        async def check(request: Request) -> str:
            key = await self.signer(request)
            if key not in self._roles:
                self._know(key, await self._gathered.find(key))
            recognise(request.scope, key)
            if self._roles[key] not in roles:
                raise ProblemError("forbidden")
            return key

        return check

    def role(self, key: str) -> str:
        """Return the role of a key, for whom a browser was signed in; blocking.

        Raises:
            ProblemError: ``unknown-party``.
        """
        if key not in self._roles:
            self._know(key, self._read([key]).get(key))
        return self._roles[key]

    def _read(self, keys: Collection[str]) -> Mapping[str, str]:
        return run_transaction(self._engine, lambda connection: roles_of(connection, keys), read_only=True)

    def _know(self, key: str, role: str | None) -> None:
        if role is None:
            raise ProblemError("unknown-party")
        self._roles[key] = role
