"""The owners' part of the curator's HTTP API under ``/v1``: enrolment, data sets and rows."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import anyio.to_thread
import structlog
from fastapi import APIRouter, Depends, Path, Query
from sqlalchemy.engine import Connection
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from tacit_protocol.messages.study import DataSetName, Digest, PartyName
from tacit_services.curator.data_sets import Registration, view
from tacit_services.curator.incoming_body import NextPiece
from tacit_services.curator.owners import (
    Caller,
    Enrolment,
    InvitationRequest,
    enrol,
    invite,
    list_invitations,
    list_owners,
    revoke,
    revoke_invitations,
)
from tacit_services.curator.surroundings import CuratorSurroundings
from tacit_services.curator.uploads import MEDIA_TYPES
from tacit_services.shared.database import Result, run_transaction
from tacit_services.shared.http_app import body_schema, json_body, json_response
from tacit_services.shared.limits import DRAINED_BYTES_MAX
from tacit_services.shared.problem_responses import ProblemError

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

    def __init__(self, curator: CuratorSurroundings) -> None:
        self._curator = curator
        self._access = curator.access

    def router(self) -> APIRouter:
        """Return the routes."""
        router = APIRouter(prefix="/v1")
        self._add_enrolment(router)
        self._add_reading(router)
        self._add_writing(router)
        return router

    def _read(self, work: Callable[[Connection], Result]) -> Result:
        return run_transaction(self._curator.engine, work, read_only=True)

    def _add_enrolment(self, router: APIRouter) -> None:
        curator, access = self._curator, self._access

        @router.get("/identity")
        def identity() -> Response:
            """Show who the curator is: its name, its key, and whom tokens must be for."""
            return json_response(asdict(curator.identity))

        @router.post(
            "/invitations",
            status_code=201,
            dependencies=[Depends(access.operator)],
            openapi_extra=body_schema(InvitationRequest),
        )
        def create_invitation(
            request: Annotated[InvitationRequest, Depends(json_body(InvitationRequest))],
        ) -> Response:
            """Invite an owner (the operator). The invitation works once, for a week."""
            if request.name == curator.identity.name:
                raise ProblemError("party-exists")
            now = curator.now()
            return json_response(run_transaction(curator.engine, lambda c: invite(c, request, now)), 201)

        @router.get("/invitations", dependencies=[Depends(access.operator)])
        def invitations(cursor: Annotated[Digest | None, Query()] = None) -> Response:
            """List all invitations ever made, and what became of each (the operator)."""
            return json_response(self._read(lambda c: list_invitations(c, cursor, curator.now())))

        @router.delete("/invitations/{name}", dependencies=[Depends(access.operator)])
        def revoke_invitation(name: OwnerPath) -> Response:
            """Revoke the invitations of that name that were not used yet (the operator)."""
            now = curator.now()
            found = run_transaction(curator.engine, lambda c: revoke_invitations(c, name, now))
            log.info("invitations_revoked", party=name, revoked=found["revoked"])
            return json_response(found)

        @router.put("/owners/{name}/revocation", status_code=201, dependencies=[Depends(access.operator)])
        def revoke_key(name: OwnerPath) -> Response:
            """Revoke an owner's key (the operator): no study is answered from its data sets any more."""
            now = curator.now()
            owner, is_new = run_transaction(curator.engine, lambda c: revoke(c, name, now))
            log.info("key_revoked", party=name, revoked_at=owner["revoked_at"])
            return json_response(owner, 201 if is_new else 200)

        @router.post("/enrolments", status_code=201, openapi_extra=body_schema(Enrolment))
        def create_enrolment(
            key: Annotated[str, Depends(access.signer)],
            enrolment: Annotated[Enrolment, Depends(json_body(Enrolment))],
        ) -> Response:
            """Enrol with an invitation and the key that signs this request."""
            if key != enrolment.key:
                raise ProblemError("forbidden", detail="sign the request with the key that is to be enrolled")
            if key == curator.identity.key:
                raise ProblemError("party-exists")
            now = curator.now()
            owner, is_new = run_transaction(curator.engine, lambda c: enrol(c, enrolment, now))
            return json_response(owner, 201 if is_new else 200)

        @router.get("/owners", dependencies=[Depends(access.operator)])
        def owners(cursor: Annotated[PartyName | None, Query()] = None) -> Response:
            """List the owners (the operator)."""
            return json_response(self._read(lambda c: list_owners(c, cursor)))

    def _add_reading(self, router: APIRouter) -> None:
        curator, access = self._curator, self._access

        @router.get("/data-sets")
        def data_sets(
            caller: Annotated[Caller, Depends(access.caller)],
            owner: Annotated[PartyName | None, Query()] = None,
        ) -> Response:
            """List an owner's own data sets; all of them, or one owner's, to the operator."""
            if owner is not None:
                caller.require_may_see(owner)

            def read(connection: Connection) -> list[dict[str, Any]]:
                held = curator.data_sets.held_data_sets(connection, owner or caller.owner)
                return [view(connection, item, to_owner=caller.owner is not None) for item in held]

            return json_response({"items": self._read(read), "next": None})

        @router.get("/data-sets/{owner}/{name}")
        def data_set(
            owner: OwnerPath, name: NamePath, caller: Annotated[Caller, Depends(access.caller)]
        ) -> Response:
            """Show one data set, to its owner or the operator."""
            caller.require_may_see(owner)
            return json_response(self._read(partial(self._view, owner=owner, name=name, caller=caller)))

    def _view(self, connection: Connection, *, owner: str, name: str, caller: Caller) -> dict[str, Any]:
        held = self._curator.data_sets.held_data_set(connection, owner, name)
        if held is None:
            raise ProblemError("unknown-data-set")
        return view(connection, held, to_owner=caller.owner is not None)

    def _add_writing(self, router: APIRouter) -> None:
        curator, access = self._curator, self._access

        @router.put("/data-sets/{owner}/{name}", status_code=201, openapi_extra=body_schema(Registration))
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

        @router.put("/data-sets/{owner}/{name}/rows", status_code=201, openapi_extra=ROWS_SCHEMA)
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
            except ProblemError:
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
        raise ProblemError("forbidden")


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
    with suppress(ClientDisconnect, ProblemError, TimeoutError):
        async with asyncio.timeout(DRAIN_S):
            while drained < DRAINED_BYTES_MAX and (piece := await next_piece()) is not None:
                drained += len(piece)
