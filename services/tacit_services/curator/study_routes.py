"""The curator's interface to studies and ledger, for the owners and for the operator."""

from collections.abc import Callable
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import Depends, FastAPI, Path, Query
from fastapi.responses import Response

from tacit_services.agent.api import PAGE_SIZE, Decline, HashList
from tacit_services.agent.participant import AlreadyDecidedError
from tacit_services.agent.schema import State
from tacit_services.agent.studies import StudyRow, study_row
from tacit_services.curator import views
from tacit_services.curator.curator import Curator
from tacit_services.curator.decisions import OwnerDecision, decisions_on, page_of_studies_for
from tacit_services.curator.owners import Access, Caller
from tacit_services.ledger.verification import inspect
from tacit_services.shared.database import run_transaction
from tacit_services.shared.http_app import body_schema, json_body, json_response
from tacit_services.shared.pages.site import Empty
from tacit_services.shared.problem_responses import ProblemError

DigestPath = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]
DataSetQuery = Annotated[
    str | None, Query(pattern="^[a-z0-9][a-z0-9._-]{0,62}(/[a-z0-9][a-z0-9._-]{0,62})?$")
]


def add_study_routes(app: FastAPI, curator: Curator, access: Access, ring: Callable[[], None]) -> None:
    """Add the routes; ``ring`` wakes the loop that runs studies."""
    _add_reading(app, curator, access)
    _add_deciding(app, curator, access, ring)
    _add_ledger(app, curator, access)


def _add_reading(app: FastAPI, curator: Curator, access: Access) -> None:
    @app.get("/v1/studies")
    def list_studies(
        caller: Annotated[Caller, Depends(access.caller)],
        state: State | None = None,
        cursor: Annotated[str | None, Query(pattern="^[0-9a-f]{64}$")] = None,
    ) -> Response:
        """List the studies that ask for an owner's data; the operator sees all."""

        def read(connection: sa.Connection) -> dict[str, Any]:
            rows = page_of_studies_for(connection, caller.owner, state, cursor, PAGE_SIZE)
            decisions = decisions_on(connection, [row.digest for row in rows])
            items = [views.summary(curator, row, decisions[row.digest], caller.owner) for row in rows]
            return {"items": items, "next": rows[-1].digest if len(rows) == PAGE_SIZE else None}

        return json_response(run_transaction(curator.engine, read, read_only=True))

    @app.get("/v1/studies/{digest}")
    def show_study(digest: DigestPath, caller: Annotated[Caller, Depends(access.caller)]) -> Response:
        """Show one study: what it asks, what would leave, what it costs, who has approved, its verdict."""

        def read(connection: sa.Connection) -> dict[str, Any]:
            row, decisions = require_study(connection, digest, caller.owner)
            return views.detail(connection, curator, row, decisions, caller.owner)

        return json_response(run_transaction(curator.engine, read, read_only=True))


def _add_deciding(app: FastAPI, curator: Curator, access: Access, ring: Callable[[], None]) -> None:
    @app.post("/v1/studies/{digest}/approval", openapi_extra=body_schema(Empty))
    def approve(
        digest: DigestPath,
        owner: Annotated[str, Depends(access.owner)],
        body: Annotated[Empty, Depends(json_body(Empty))],  # noqa: ARG001
    ) -> Response:
        """Approve a study for the caller's own data; it runs once every owner has."""
        return answer(digest, owner, lambda: curator.approve(digest, owner))

    @app.post("/v1/studies/{digest}/decline", openapi_extra=body_schema(Decline))
    def decline(
        digest: DigestPath,
        owner: Annotated[str, Depends(access.owner)],
        body: Annotated[Decline, Depends(json_body(Decline))],
    ) -> Response:
        """Decline a study that uses the caller's data, for everyone; the tester is told only that much."""
        return answer(digest, owner, lambda: curator.decline(digest, owner, body.reason))

    def answer(digest: str, owner: str, decision: Callable[[], None]) -> Response:
        row, decisions = decide(curator, digest, owner, decision)
        ring()
        return json_response(views.summary(curator, row, decisions, owner))


def decide(
    curator: Curator, digest: str, owner: str, decision: Callable[[], None]
) -> tuple[StudyRow, list[OwnerDecision]]:
    """Carry an owner's decision out; returns what the study is then, and everyone's decisions.

    Raises:
        ProblemError: ``unknown-study``, ``study-expired`` or ``already-decided``.
    """

    def read(connection: sa.Connection) -> tuple[StudyRow, list[OwnerDecision]]:
        return require_study(connection, digest, owner)

    run_transaction(curator.engine, read, read_only=True)
    try:
        decision()
    except AlreadyDecidedError:
        row, _ = run_transaction(curator.engine, read, read_only=True)
        raise ProblemError("study-expired" if row.state is State.EXPIRED else "already-decided") from None
    return run_transaction(curator.engine, read, read_only=True)


def _add_ledger(app: FastAPI, curator: Curator, access: Access) -> None:
    @app.get("/v1/ledger")
    def show_ledger(
        caller: Annotated[Caller, Depends(access.caller)], data_set: DataSetQuery = None
    ) -> Response:
        """Show the ledger's entries, oldest first: an owner its own, the operator all.

        ``data_set`` is an account, ``owner/data-set``; an owner may leave its own name out.
        """

        def read(connection: sa.Connection) -> dict[str, Any]:
            return {
                "entries": views.ledger(connection, _accounts(connection, caller, data_set)),
                "next": None,
            }

        return json_response(run_transaction(curator.engine, read, read_only=True))

    @app.get("/v1/ledger/verification")
    def verify_ledger(
        caller: Annotated[Caller, Depends(access.caller)], kept: HashList | None = None
    ) -> Response:
        """Check the ledger, and that each of the kept hashes (comma between) is still an entry's."""
        hashes = kept.split(",") if kept else []

        def read(connection: sa.Connection) -> dict[str, Any]:
            inspection = inspect(connection, kept_hashes=hashes)
            return views.ledger_verification(inspection, views.accounts_of(connection, caller.owner))

        return json_response(run_transaction(curator.engine, read, read_only=True))


def _accounts(connection: sa.Connection, caller: Caller, data_set: str | None) -> list[str]:
    accounts = views.accounts_of(connection, caller.owner)
    if data_set is None:
        return accounts
    account = data_set if "/" in data_set or caller.owner is None else f"{caller.owner}/{data_set}"
    caller.require_may_see(account.partition("/")[0])
    if account not in accounts:
        raise ProblemError("unknown-data-set")
    return [account]


def require_study(
    connection: sa.Connection, digest: str, owner: str | None
) -> tuple[StudyRow, list[OwnerDecision]]:
    """Return a study and its decisions; raises ``unknown-study``, also where it asks nothing of the owner."""
    row = study_row(connection, digest)
    decisions = decisions_on(connection, [digest])[digest]
    if row is None or (owner is not None and all(item.owner != owner for item in decisions)):
        raise ProblemError("unknown-study")
    return row, decisions
