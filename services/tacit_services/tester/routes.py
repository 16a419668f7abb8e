"""The tester's HTTP API under ``/v1``."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import structlog
from fastapi import APIRouter, Depends, Path, Query, Request
from sqlalchemy.engine import Engine
from starlette.responses import Response

from tacit_protocol.messages.study import Digest, PartyName
from tacit_services.shared.clock import Clock
from tacit_services.shared.database import run_transaction
from tacit_services.shared.http_app import body_schema, json_body, json_bytes, json_response
from tacit_services.shared.http_server import Stopping, when_gone
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester.access import EVERYONE, Access
from tacit_services.tester.answers import Answers
from tacit_services.tester.checks import Checks
from tacit_services.tester.endings import Signer
from tacit_services.tester.inboxes import Inboxes
from tacit_services.tester.parties import (
    Enrolment,
    InvitationRequest,
    enrol,
    invite,
    list_invitations,
    list_parties,
    revoke,
    revoke_invitations,
)
from tacit_services.tester.relaying import sealed_package
from tacit_services.tester.steps import Step, reached
from tacit_services.tester.storing import Taken
from tacit_services.tester.studies import Identity, State, Studies, verdict_of
from tacit_services.tester.transcripts import transcript_of
from tacit_services.tester.waiting import WAIT_S_MAX, Bell, Watch, poll

VERDICT_RETRY_S = 2
"""When a pending verdict is worth asking for again."""

INBOX_WAIT_S = 20
"""How long an empty inbox waits unless told otherwise."""

StudyDigest = Annotated[Digest, Path()]
Owner = Annotated[PartyName, Path()]
Wait = Annotated[float, Query(ge=0, le=WAIT_S_MAX, allow_inf_nan=False)]
Body = Annotated[bytes, Depends(json_bytes)]


log = structlog.get_logger()


@dataclass(frozen=True)
class Tester:
    """What the routes work with."""

    engine: Engine
    identity: Identity
    audience: str
    software: str
    studies: Studies
    signer: Signer
    answers: Answers
    access: Access
    checks: Checks
    inboxes: Inboxes
    bell: Bell
    watch: Watch
    stopping: Stopping
    clock: Clock

    def now(self) -> int:
        """Unix time in whole seconds."""
        return int(self.clock())

    def taken(self, taken: Taken, study: str) -> Response:
        """Answer an owner's or an analyst's answer; wakes who waits where it was the study's last."""
        return self.stored(study, is_new=taken is not Taken.BEFORE, is_news=taken is Taken.LAST)

    def stored(self, study: str, *, is_new: bool, is_news: bool) -> Response:
        """Answer an upload: 201 for new bytes, 200 for the same bytes again."""
        if is_news:
            self.watch.check()
        reached(Step.ANSWERING)
        return json_response({"study": study}, 201 if is_new else 200)


def make_router(tester: Tester) -> APIRouter:
    """Make the router of the whole API."""
    router = APIRouter(prefix="/v1")
    # A request is compared with one route after another: those asked for most come first.
    _add_answers(router, tester)
    _add_inbox(router, tester)
    _add_verdicts(router, tester)
    _add_studies(router, tester)
    _add_parties(router, tester)
    return router


def _add_parties(router: APIRouter, tester: Tester) -> None:
    @router.get("/identity")
    def identity() -> Response:
        return json_response(
            {
                "name": tester.identity.name,
                "key": tester.identity.key,
                "audience": tester.audience,
                "software": tester.software,
            }
        )

    @router.post("/invitations", status_code=201, openapi_extra=body_schema(InvitationRequest))
    def create_invitation(
        _: Annotated[str, Depends(tester.access.require("tester"))],
        request: Annotated[InvitationRequest, Depends(json_body(InvitationRequest))],
    ) -> Response:
        now = tester.now()
        return json_response(run_transaction(tester.engine, lambda c: invite(c, request, now)), 201)

    @router.get("/invitations", dependencies=[Depends(tester.access.require("tester"))])
    def invitations(cursor: Annotated[Digest | None, Query()] = None) -> Response:
        now = tester.now()
        return json_response(
            run_transaction(tester.engine, lambda c: list_invitations(c, cursor, now), read_only=True)
        )

    @router.delete("/invitations/{name}", dependencies=[Depends(tester.access.require("tester"))])
    def revoke_invitation(name: Owner) -> Response:
        now = tester.now()
        found = run_transaction(tester.engine, lambda c: revoke_invitations(c, name, now))
        log.info("invitations_revoked", party=name, revoked=found["revoked"])
        return json_response(found)

    @router.put(
        "/parties/{name}/revocation",
        status_code=201,
        dependencies=[Depends(tester.access.require("tester"))],
    )
    def revoke_key(name: Owner) -> Response:
        now = tester.now()
        party, is_new = run_transaction(tester.engine, lambda c: revoke(c, name, tester.signer, now))
        tester.watch.check()
        log.info("key_revoked", party=name, revoked_at=party["revoked_at"])
        return json_response(party, 201 if is_new else 200)

    @router.post("/enrolments", status_code=201, openapi_extra=body_schema(Enrolment))
    def create_enrolment(
        key: Annotated[str, Depends(tester.access.signer)],
        enrolment: Annotated[Enrolment, Depends(json_body(Enrolment))],
    ) -> Response:
        if key != enrolment.key:
            raise ProblemError("forbidden", detail="sign the request with the key that is to be enrolled")
        if key == tester.identity.key or enrolment.name == tester.identity.name:
            raise ProblemError("party-exists")
        now = tester.now()
        party, is_new = run_transaction(tester.engine, lambda c: enrol(c, enrolment, now))
        return json_response(party, 201 if is_new else 200)

    @router.get("/parties")
    def parties(
        _: Annotated[str, Depends(tester.access.require(*EVERYONE))],
        cursor: Annotated[PartyName | None, Query()] = None,
    ) -> Response:
        return json_response(
            run_transaction(tester.engine, lambda c: list_parties(c, cursor), read_only=True)
        )


def _add_studies(router: APIRouter, tester: Tester) -> None:
    reader = tester.access.require(*EVERYONE)

    @router.put("/studies/{digest}", status_code=201, openapi_extra=body_schema())
    async def create_study(
        request: Request,
        digest: StudyDigest,
        key: Annotated[str, Depends(tester.access.require("analyst"))],
        envelope: Body,
    ) -> Response:
        def create() -> Response:
            is_new = tester.studies.create(digest, envelope, key, tester.now())
            return tester.stored(digest, is_new=is_new, is_news=is_new)

        return await tester.checks.run(key, len(envelope), create, partial(when_gone, request.scope))

    @router.get("/studies")
    def studies(
        _: Annotated[str, Depends(reader)],
        cursor: Annotated[int | None, Query(ge=1, le=2**53)] = None,
        state: Annotated[State | None, Query()] = None,
    ) -> Response:
        return json_response(tester.studies.listing(cursor, state))

    @router.get("/studies/{digest}")
    def study(digest: StudyDigest, _: Annotated[str, Depends(reader)]) -> Response:
        return json_response(tester.studies.summary(digest))

    @router.get("/studies/{digest}/envelope")
    def study_envelope(digest: StudyDigest, _: Annotated[str, Depends(reader)]) -> Response:
        return json_response(tester.studies.envelope(digest))


def _add_inbox(router: APIRouter, tester: Tester) -> None:
    @router.get("/inbox")
    async def inbox(
        request: Request,
        key: Annotated[str, Depends(tester.access.require("owner", "curator"))],
        wait_s: Wait = INBOX_WAIT_S,
    ) -> Response:
        found = await tester.inboxes.poll(key, wait_s, partial(when_gone, request.scope))
        return json_response({"items": list(found)})


def _add_answers(router: APIRouter, tester: Tester) -> None:
    sender_key = tester.access.require("owner", "curator")

    @router.put("/studies/{digest}/releases/{owner}", status_code=201, openapi_extra=body_schema())
    def upload_release(
        digest: StudyDigest, owner: Owner, key: Annotated[str, Depends(sender_key)], envelope: Body
    ) -> Response:
        return tester.taken(tester.answers.take_release(digest, owner, envelope, key), digest)

    @router.get("/studies/{digest}/sealed/{owner}")
    def sealed_release(
        digest: StudyDigest, owner: Owner, key: Annotated[str, Depends(tester.access.require("owner"))]
    ) -> Response:
        return json_response(sealed_package(tester.engine, tester.studies, digest, owner, key))

    @router.put("/studies/{digest}/declines/{owner}", status_code=201, openapi_extra=body_schema())
    def decline(
        digest: StudyDigest, owner: Owner, key: Annotated[str, Depends(sender_key)], envelope: Body
    ) -> Response:
        return tester.taken(tester.answers.take_decline(digest, owner, envelope, key), digest)

    @router.put("/studies/{digest}/cancellation", status_code=201, openapi_extra=body_schema())
    def cancel(
        digest: StudyDigest, key: Annotated[str, Depends(tester.access.require("analyst"))], envelope: Body
    ) -> Response:
        return tester.taken(tester.answers.take_cancellation(digest, envelope, key), digest)


def _add_verdicts(router: APIRouter, tester: Tester) -> None:
    reader = tester.access.require(*EVERYONE)

    @router.get("/studies/{digest}/verdict")
    async def verdict(
        digest: StudyDigest,
        _: Annotated[str, Depends(reader)],
        wait_s: Wait = 0,
    ) -> Response:
        def look() -> bytes | None:
            return run_transaction(tester.engine, lambda c: verdict_of(c, digest), read_only=True)

        return _verdict_response(await poll(look, wait_s, tester.bell, tester.stopping))

    @router.get("/studies/{digest}/transcript")
    def transcript(digest: StudyDigest, _: Annotated[str, Depends(reader)]) -> Response:
        return _verdict_response(
            run_transaction(tester.engine, lambda c: transcript_of(c, digest), read_only=True)
        )


def _verdict_response(content: bytes | None) -> Response:
    if content is None:
        raise ProblemError("verdict-pending", retry_after_s=VERDICT_RETRY_S)
    reached(Step.VERDICT_SERVED)
    return json_response(content)
