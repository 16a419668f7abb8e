"""Who is calling: the dependencies that turn a token into a party with a role."""

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends
from sqlalchemy.engine import Engine

from tacit_services.shared.database import run_transaction
from tacit_services.shared.http_app import BearerToken
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester.parties import role_of

EVERYONE = ("tester", "owner", "analyst")
"""Every role there is: who may read."""


class Access:
    """Makes the dependencies of the routes."""

    def __init__(self, engine: Engine, tester_key: str, bearer: BearerToken) -> None:
        self._engine = engine
        self._tester_key = tester_key
        self.signer = bearer
        """A dependency: the key of anyone whose token holds, enrolled or not."""

    def require(self, *roles: str) -> Callable[..., str]:
        """Make a dependency that returns the caller's key, which must be of one of these roles."""
        signer = self.signer

        def check(key: Annotated[str, Depends(signer)]) -> str:
            role = "tester" if key == self._tester_key else self._enrolled_role(key)
            if role is None:
                raise ProblemError("unknown-party")
            if role not in roles:
                raise ProblemError("forbidden")
            return key

        return check

    def _enrolled_role(self, key: str) -> str | None:
        return run_transaction(self._engine, lambda connection: role_of(connection, key), read_only=True)
