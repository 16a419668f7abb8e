"""The curator's HTTP interface: to the operator all studies and accounts, to an owner its own.

An owner sees who has approved a study that uses its data, and no other owner's budget, note or reason. What
is computed from pooled rows moves nothing that is shown before the moment of its answer.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

import anyio.to_thread
import sqlalchemy as sa
import structlog
from fastapi import APIRouter, Depends, FastAPI, Path, Query
from sqlalchemy.engine import Connection, Engine
from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tacit_protocol.messages.answers import (
    AskedStudy,
    AskedStudyInFull,
    EnrolledOwner,
    HeldDataSet,
    LedgerEntries,
    LedgerVerification,
    ListPage,
    ServiceIdentity,
)
from tacit_protocol.messages.study import DataSetName, Digest, PartyName, PublicKeyHex
from tacit_protocol.strict import StrictModel
from tacit_services.agent.schema import State
from tacit_services.agent.study.participant import AlreadyDecidedError
from tacit_services.agent.study.studies import ApprovedBeforeError, StudyRow, page_of_studies, study_row
from tacit_services.agent.web import views as agent_views
from tacit_services.agent.web.routes import PAGE_SIZE, Decline, HashList
from tacit_services.curator.curator import Curator, Decision, OwnerDecision, asking, decisions_on
from tacit_services.curator.data_sets import ROSTER, SIGN_IN, DataSets, Registration, account_name, view
from tacit_services.curator.uploads import MEDIA_TYPES, NextPiece, Uploads
from tacit_services.ledger.accounts import standing_of
from tacit_services.ledger.entries import ACCOUNTS
from tacit_services.ledger.verification import Inspection, export, inspect
from tacit_services.shared.clock import Clock
from tacit_services.shared.database import read_from, run_transaction
from tacit_services.shared.http_app import (
    DRAINED_BYTES_MAX,
    BearerToken,
    DigestPath,
    answer_schema,
    body_schema,
    json_body,
    json_response,
)
from tacit_services.shared.http_server import recognise
from tacit_services.shared.pages.site import Empty
from tacit_services.shared.people import Person
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.shared.roster import Enrolment, Member


class OwnerInvitationRequest(StrictModel):
    """Whom the curator invites."""

    role: ClassVar[str] = "owner"
    name: PartyName


class OwnerEnrolmentRequest(StrictModel):
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
            raise RegisteredProblemError("forbidden")


class CuratorAccess:
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
                raise RegisteredProblemError("forbidden")
            return caller.owner

        def operator(caller: Annotated[Caller, Depends(caller)]) -> None:
            if caller.owner is not None:
                raise RegisteredProblemError("forbidden")

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
        member = read_from(self._engine, ROSTER.require_member, key)
        return Caller(key, member.name)


@dataclass(frozen=True)
class CuratorIdentity:
    """Who the curator is: what ``/v1/identity`` shows."""

    name: str
    key: str
    audience: str
    software: str


@dataclass(frozen=True)
class CuratorContext:
    """The database, who may call, and where rows go."""

    engine: Engine
    identity: CuratorIdentity
    access: CuratorAccess
    data_sets: DataSets
    uploads: Uploads
    clock: Clock

    @property
    def enrolment(self) -> Enrolment:
        """How owners enrol."""
        return Enrolment(
            engine=self.engine,
            clock=self.clock,
            roster=ROSTER,
            sign_in=SIGN_IN,
            service=Member(self.identity.name, self.identity.key, "curator"),
            parties="owners",
            fields=("name", "key"),
            member=EnrolledOwner,
            invitation=OwnerInvitationRequest,
            enrolment=OwnerEnrolmentRequest,
            operator=self.access.operator,
            reader=self.access.operator,
            signer=self.access.signer,
        )

    def now(self) -> int:
        """Unix time in whole seconds."""
        return int(self.clock())


log = structlog.get_logger()

DRAIN_S = 5.0
"""How long the rest of a refused upload is read and dropped, so that its sender gets to read the refusal."""

OwnerPath = Annotated[PartyName, Path()]
NamePath = Annotated[DataSetName, Path()]

ROWS_SCHEMA: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {kind: {"schema": {"type": "string", "format": "binary"}} for kind in MEDIA_TYPES},
    }
}


class OwnerRoutes:
    """Adds the routes to a router."""

    def __init__(self, curator: CuratorContext) -> None:
        self._curator = curator
        self._access = curator.access

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(prefix="/v1")
        self._add_enrolment(router)
        self._add_reading(router)
        self._add_writing(router)
        return router

    def _add_enrolment(self, router: APIRouter) -> None:
        curator = self._curator

        @router.get("/identity", **answer_schema(ServiceIdentity))
        def identity() -> Response:
            """Show who the curator is: its name, its key, and whom tokens must be for."""
            return json_response(asdict(curator.identity))

        curator.enrolment.add_to(router)

    def _add_reading(self, router: APIRouter) -> None:
        curator, access = self._curator, self._access

        @router.get("/data-sets", **answer_schema(ListPage[HeldDataSet]))
        def data_sets(
            caller: Annotated[Caller, Depends(access.caller)],
            owner: Annotated[PartyName | None, Query()] = None,
        ) -> Response:
            """List an owner's own data sets; all of them, or one owner's, to the operator."""
            if owner is not None:
                caller.require_may_see(owner)

            def read(connection: Connection) -> list[dict[str, Any]]:
                held = curator.data_sets.held_data_sets(connection, owner or caller.owner)
                now = curator.now()
                return [view(connection, item, to_owner=caller.owner is not None, now=now) for item in held]

            return json_response({"items": read_from(curator.engine, read), "next": None})

        @router.get("/data-sets/{owner}/{name}", **answer_schema(HeldDataSet))
        def data_set(
            owner: OwnerPath, name: NamePath, caller: Annotated[Caller, Depends(access.caller)]
        ) -> Response:
            """Show one data set, to its owner or the operator."""
            caller.require_may_see(owner)
            return json_response(read_from(curator.engine, self._view, owner=owner, name=name, caller=caller))

    def _view(self, connection: Connection, *, owner: str, name: str, caller: Caller) -> dict[str, Any]:
        held = self._curator.data_sets.held_data_set(connection, owner, name)
        if held is None:
            raise RegisteredProblemError("unknown-data-set")
        return view(connection, held, to_owner=caller.owner is not None, now=self._curator.now())

    def _add_writing(self, router: APIRouter) -> None:
        curator, access = self._curator, self._access

        @router.put(
            "/data-sets/{owner}/{name}",
            status_code=201,
            openapi_extra=body_schema(Registration),
            **answer_schema(HeldDataSet, repeatable=True),
        )
        def register(
            owner: OwnerPath,
            name: NamePath,
            caller: Annotated[Caller, Depends(access.caller)],
            registration: Annotated[Registration, Depends(json_body(Registration))],
        ) -> Response:
            """Register a data set, or change its policy and caps; its owner alone may."""
            _require_own(caller, owner)
            now = curator.now()

            def write(connection: Connection) -> tuple[bool, dict[str, Any]]:
                is_new = curator.data_sets.register(connection, owner, name, registration, now)
                return is_new, self._view(connection, owner=owner, name=name, caller=caller)

            is_new, shown = run_transaction(curator.engine, write)
            return json_response(shown, 201 if is_new else 200)

        @router.put(
            "/data-sets/{owner}/{name}/rows",
            status_code=201,
            openapi_extra=ROWS_SCHEMA,
            **answer_schema(HeldDataSet, repeatable=True),
        )
        async def upload(
            request: Request,
            owner: OwnerPath,
            name: NamePath,
            caller: Annotated[Caller, Depends(access.caller)],
        ) -> Response:
            """Upload the rows, CSV or Parquet, in place of those held before; its owner alone may."""
            _require_own(caller, owner)
            media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            next_piece = _pieces(request)
            try:
                shown, is_new = await curator.uploads.take(owner, name, media_type, next_piece)
            except RegisteredProblemError:
                await _drain(next_piece)
                raise
            return json_response(shown, 201 if is_new else 200)

        @router.delete("/data-sets/{owner}/{name}", status_code=204)
        async def delete(
            owner: OwnerPath, name: NamePath, caller: Annotated[Caller, Depends(access.caller)]
        ) -> Response:
            """Delete a data set's rows and the key that opens them; its account stays. Owner or operator."""
            caller.require_may_see(owner)
            await anyio.to_thread.run_sync(partial(curator.uploads.delete, owner, name))
            return Response(status_code=204, headers={"Cache-Control": "no-store"})


def _require_own(caller: Caller, owner: str) -> None:
    """Raise ``forbidden`` unless the owner itself asks: the operator registers and uploads for nobody."""
    if caller.owner != owner:
        raise RegisteredProblemError("forbidden")


def _pieces(request: Request) -> NextPiece:
    more = True

    async def next_piece() -> bytes | None:
        nonlocal more
        while more:
            more = False  # after a failure there is nothing more to ask for
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            more = message.get("more_body", False)
            if message.get("body"):
                return bytes(message["body"])
        return None

    return next_piece


async def _drain(next_piece: NextPiece) -> None:
    drained = 0
    with suppress(ClientDisconnect, RegisteredProblemError, TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            while drained < DRAINED_BYTES_MAX and (piece := await next_piece()) is not None:
                drained += len(piece)


def summary(
    curator: Curator, row: StudyRow, decisions: list[OwnerDecision], owner: str | None
) -> dict[str, Any]:
    """Return one line of the list of studies."""
    return agent_views.summary(curator, row) | _shared(decisions, owner)


def detail(
    connection: sa.Connection,
    curator: Curator,
    row: StudyRow,
    decisions: list[OwnerDecision],
    owner: str | None,
) -> dict[str, Any]:
    """Return everything about one study, for the owner who decides on its own data, or for the operator."""
    own = [item for item in decisions if owner in {None, item.owner}]
    asked = ", ".join(item.account for item in own) or None
    accounts = [
        {
            "account": item.account,
            **standing_of(connection, item.account).model_dump(),
            "payment": agent_views.payment(connection, curator, row, item.account),
        }
        for item in own
    ]
    shown = agent_views.detail(curator, row, SIGN_IN.people, owner, asked) | _shared(decisions, owner)
    return shown | {"accounts": accounts}


def _shared(decisions: list[OwnerDecision], owner: str | None) -> dict[str, Any]:
    owners = [
        {
            "owner": item.owner,
            "account": item.account,
            "decision": item.decision.value,
            "decided_by": item.decided_by,
            "decided_at": item.decided_at,
        }
        for item in decisions
    ]
    own_word = any(item.owner == owner and item.decision is Decision.DECLINED for item in decisions)
    may_see_why = owner is None or own_word or {item.owner for item in decisions} == {owner}
    return {"owners": owners} if may_see_why else {"owners": owners, "problem": None, "reason": None}


def accounts_of(connection: sa.Connection, owner: str | None) -> list[str]:
    """Return the names of an owner's accounts, of deleted data sets too; or of all accounts."""
    query = sa.select(ACCOUNTS.c.data_set).order_by(ACCOUNTS.c.data_set)
    names = connection.execute(query).scalars()
    return [name for name in names if owner is None or name.startswith(f"{owner}/")]


def ledger(connection: sa.Connection, accounts: list[str]) -> list[dict[str, Any]]:
    """Return the entries of these accounts, oldest first within each."""
    return [entry for account in accounts for entry in export(connection, account)]


def ledger_verification(inspection: Inspection, accounts: list[str]) -> dict[str, Any]:
    """Return whether the ledger is whole as far as these accounts go, and their head hashes."""
    seen = set(accounts)
    part = Inspection(
        tuple(account for account in inspection.accounts if account.data_set in seen), inspection.other_faults
    )
    return part.view()


DataSetQuery = Annotated[
    str | None, Query(pattern="^[a-z0-9][a-z0-9._-]{0,62}(/[a-z0-9][a-z0-9._-]{0,62})?$")
]


def add_study_routes(app: FastAPI, curator: Curator, access: CuratorAccess, ring: Callable[[], None]) -> None:
    """Add the routes; ``ring`` wakes the loop that runs studies."""
    _add_reading(app, curator, access)
    _add_deciding(app, curator, access, ring)
    _add_ledger(app, curator, access)


def _add_reading(app: FastAPI, curator: Curator, access: CuratorAccess) -> None:
    @app.get("/v1/studies", **answer_schema(ListPage[AskedStudy]))
    def list_studies(
        caller: Annotated[Caller, Depends(access.caller)],
        state: State | None = None,
        cursor: Annotated[Digest | None, Query()] = None,
    ) -> Response:
        """List the studies that ask for an owner's data; the operator sees all."""

        def read(connection: sa.Connection) -> dict[str, Any]:
            studies = curator.shown()
            where = asking(studies, caller.owner)
            rows = page_of_studies(connection, state, cursor, PAGE_SIZE, *where, studies=studies)
            decisions = decisions_on(connection, [row.digest for row in rows])
            items = [summary(curator, row, decisions[row.digest], caller.owner) for row in rows]
            return {"items": items, "next": rows[-1].digest if len(rows) == PAGE_SIZE else None}

        return json_response(read_from(curator.engine, read))

    @app.get("/v1/studies/{digest}", **answer_schema(AskedStudyInFull))
    def show_study(digest: DigestPath, caller: Annotated[Caller, Depends(access.caller)]) -> Response:
        """Show one study: what it asks, what would leave, what it costs, who has approved, its verdict."""

        def read(connection: sa.Connection) -> dict[str, Any]:
            row, decisions = require_study(connection, digest, caller.owner, curator.shown())
            return detail(connection, curator, row, decisions, caller.owner)

        return json_response(read_from(curator.engine, read))


def _add_deciding(app: FastAPI, curator: Curator, access: CuratorAccess, ring: Callable[[], None]) -> None:
    @app.post("/v1/studies/{digest}/approval", openapi_extra=body_schema(Empty), **answer_schema(AskedStudy))
    def approve(
        digest: DigestPath,
        owner: Annotated[str, Depends(access.owner)],
        caller: Annotated[Caller, Depends(access.caller)],
        body: Annotated[Empty, Depends(json_body(Empty))],  # noqa: ARG001
    ) -> Response:
        """Approve a study for the caller's own data; it runs once every owner has."""
        return answer(digest, owner, lambda: curator.approve(digest, owner, Person(caller.key)))

    @app.post("/v1/studies/{digest}/decline", openapi_extra=body_schema(Decline), **answer_schema(AskedStudy))
    def decline(
        digest: DigestPath,
        owner: Annotated[str, Depends(access.owner)],
        caller: Annotated[Caller, Depends(access.caller)],
        body: Annotated[Decline, Depends(json_body(Decline))],
    ) -> Response:
        """Decline a study that uses the caller's data, for everyone; the tester is told only that much."""
        return answer(digest, owner, lambda: curator.decline(digest, owner, body.reason, Person(caller.key)))

    @app.post("/v1/data-sets/{owner}/{name}/unlocking", status_code=204, openapi_extra=body_schema(Empty))
    def unlock(
        owner: OwnerPath,
        name: NamePath,
        caller: Annotated[Caller, Depends(access.caller)],
        body: Annotated[Empty, Depends(json_body(Empty))],  # noqa: ARG001
    ) -> Response:
        """Let a data set answer studies again that a failure has locked. Owner or operator."""
        caller.require_may_see(owner)
        curator.unlock(account_name(owner, name), Person(caller.key), hides=caller.owner is not None)
        ring()
        return Response(status_code=204, headers={"Cache-Control": "no-store"})

    def answer(digest: str, owner: str, decision: Callable[[], None]) -> Response:
        row, decisions = decide(curator, digest, owner, decision)
        ring()
        return json_response(summary(curator, row, decisions, owner))


def decide(
    curator: Curator, digest: str, owner: str, decision: Callable[[], None]
) -> tuple[StudyRow, list[OwnerDecision]]:
    """Carry an owner's decision out; returns what the study is then, and everyone's decisions.

    Raises:
        ProblemError: ``unknown-study``, ``study-expired``, ``already-decided`` or ``approved-before``.
    """
    read_from(curator.engine, require_study, digest, owner, curator.shown())
    try:
        decision()
    except ApprovedBeforeError:
        raise RegisteredProblemError("approved-before") from None
    except AlreadyDecidedError:
        row, _ = read_from(curator.engine, require_study, digest, owner, curator.shown())
        raise RegisteredProblemError(
            "study-expired" if row.state is State.EXPIRED else "already-decided"
        ) from None
    return read_from(curator.engine, require_study, digest, owner, curator.shown())


def _add_ledger(app: FastAPI, curator: Curator, access: CuratorAccess) -> None:
    @app.get("/v1/ledger", **answer_schema(LedgerEntries))
    def show_ledger(
        caller: Annotated[Caller, Depends(access.caller)], data_set: DataSetQuery = None
    ) -> Response:
        """Show the ledger's entries, oldest first: an owner its own, the operator all.

        ``data_set`` is an account, ``owner/data-set``; an owner may leave its own name out.
        """

        def read(connection: sa.Connection) -> dict[str, Any]:
            return {
                "entries": ledger(connection, _accounts(connection, caller, data_set)),
                "next": None,
            }

        return json_response(read_from(curator.engine, read))

    @app.get("/v1/ledger/verification", **answer_schema(LedgerVerification))
    def verify_ledger(
        caller: Annotated[Caller, Depends(access.caller)], kept: HashList | None = None
    ) -> Response:
        """Check the ledger, and that each of the kept hashes (comma between) is still an entry's."""
        hashes = kept.split(",") if kept else []

        def read(connection: sa.Connection) -> dict[str, Any]:
            inspection = inspect(connection, kept_hashes=hashes)
            return ledger_verification(inspection, accounts_of(connection, caller.owner))

        return json_response(read_from(curator.engine, read))


def _accounts(connection: sa.Connection, caller: Caller, data_set: str | None) -> list[str]:
    accounts = accounts_of(connection, caller.owner)
    if data_set is None:
        return accounts
    account = data_set if "/" in data_set or caller.owner is None else f"{caller.owner}/{data_set}"
    caller.require_may_see(account.partition("/")[0])
    if account not in accounts:
        raise RegisteredProblemError("unknown-data-set")
    return [account]


def require_study(
    connection: sa.Connection, digest: str, owner: str | None, studies: sa.FromClause
) -> tuple[StudyRow, list[OwnerDecision]]:
    """Return a study, as ``studies`` shows it, and its decisions.

    Raises ``unknown-study``, also where it asks nothing of the owner.
    """
    row = study_row(connection, digest, studies)
    decisions = decisions_on(connection, [digest])[digest]
    if row is None or (owner is not None and all(item.owner != owner for item in decisions)):
        raise RegisteredProblemError("unknown-study")
    return row, decisions
