"""The tester's HTTP API under ``/v1``; the checks of new studies, which take their turns; and small plans.

What a study of three kilobytes fixes may take a second of processor time and tens of megabytes to compute.
Requests share some tens of threads, which must be there for everybody else: few studies are checked at once,
one for each analyst, in threads that the end of the process ends.

Plans: one for each person, two in all, each in a process of its own with a time limit. The process is the
SDK's: it simulates studies of synthetic rows, and has neither this service's settings nor its keys, nor a
connection (docs/decisions/0018-plans-in-a-process-of-their-own.md).
"""

import asyncio
import json
import os
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeVar

import structlog
from fastapi import APIRouter, Depends, Path, Query, Request
from sqlalchemy.engine import Engine
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from tacit_protocol.messages.answers import (
    EnrolledParty,
    Inbox,
    ListPage,
    PlanAnswer,
    Published,
    PublishedEntry,
    ServiceIdentity,
    Stored,
    StudySummary,
)
from tacit_protocol.messages.study import PartyName, SealedPackage, Study, Transcript, read_study
from tacit_protocol.signing import (
    ACCEPTANCE_TYPE,
    CANCELLATION_TYPE,
    CATALOGUE_TYPE,
    DECLINE_TYPE,
    MASK_KEY_TYPE,
    RECEIPT_TYPE,
    RELEASE_TYPE,
    STUDY_TYPE,
    Envelope,
)
from tacit_services.shared.clock import Clock
from tacit_services.shared.database import read_from
from tacit_services.shared.failpoints import TesterStep, reached
from tacit_services.shared.http_app import (
    BearerToken,
    DigestPath,
    answer_schema,
    body_schema,
    envelope_schema,
    json_bytes,
    json_response,
)
from tacit_services.shared.http_server import Stopping, recognise, when_gone
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.shared.roster import Enrolment, Member
from tacit_services.tester.answers import (
    AnswerIntake,
    UploadOutcome,
    acceptance_for,
    mask_keys_for,
    release_for,
)
from tacit_services.tester.inboxes import WAIT_S_MAX, Bell, Inboxes, Watch, poll
from tacit_services.tester.parties import (
    EVERYONE,
    ROSTER,
    EnrolmentRequest,
    InvitationRequest,
    entries,
    entry_of,
    take_entry,
)
from tacit_services.tester.studies import (
    State,
    Studies,
    StudyFilter,
    TesterIdentity,
    transcript_of,
    verdict_of,
)
from tacit_services.tester.tables import SIGN_IN
from tacit_services.tester.verdicts import Signer, end_all_of

AT_ONCE_MAX = 2
"""Checks at once: an analyst's dear study leaves room for another's."""

WAITING_MAX, WAITING_BYTES_MAX = 100, 2**22
"""Studies of one analyst that wait, and their bytes. Most have a few thousand and take milliseconds; a
hundred of the dearest take a minute or two."""

RETRY_S = 5
"""When an analyst with too many studies that wait may try again."""

LOOK_S = 0.5
"""How often it is looked whether the service is stopping."""

Result = TypeVar("Result")


@dataclass(eq=False)
class _QueuedCheck:
    """One check: who asked for it, what it takes, and what comes of it."""

    analyst: str
    size_bytes: int
    work: Callable[[], Any]
    outcome: "asyncio.Future[Any]"


class CheckQueue:
    """Runs the checks, each analyst's in their order and the analysts' in turn.

    Used in event loops, of which there may be several at once: each check ends in the one that asked for it.

    Args:
        stopping: whether the service has been asked to stop: then nobody waits for a check any more.
    """

    def __init__(self, stopping: Stopping) -> None:
        self._stopping = stopping
        self._waiting: dict[str, deque[_QueuedCheck]] = {}
        """By analyst; whose turn it is comes first."""
        self._checking: set[str] = set()
        self._changing = threading.Lock()

    async def run(
        self,
        analyst: str,
        size_bytes: int,
        work: Callable[[], Result],
        on_gone: Callable[[Callable[[], None] | None], None],
    ) -> Result:
        """Return what ``work`` (blocking) returns, once it has had its turn, or raise what it raises.

        Args:
            analyst: who asked.
            size_bytes: how much is held while it waits.
            work: the check; it is not begun once its caller has gone.
            on_gone: has what it is given called when the caller goes; None takes that back.

        Raises:
            ProblemError: ``rate-limited``: too much waits already; ``not-ready``: the service stops.
        """
        check = _QueuedCheck(analyst, size_bytes, work, asyncio.get_running_loop().create_future())
        with self._changing:
            mine = self._waiting.get(analyst, ())
            held_bytes = sum(check.size_bytes for check in mine)
            if len(mine) >= WAITING_MAX or held_bytes + size_bytes > WAITING_BYTES_MAX:
                raise RegisteredProblemError("rate-limited", retry_after_s=RETRY_S)
            self._waiting.setdefault(analyst, deque()).append(check)
        on_gone(check.outcome.cancel)  # type: ignore[arg-type]
        try:
            self._begin()
            while not (await asyncio.wait({check.outcome}, timeout=LOOK_S))[0]:
                if self._stopping.requested:
                    raise RegisteredProblemError("not-ready", retry_after_s=RETRY_S)
            if check.outcome.cancelled():
                raise RegisteredProblemError("not-ready", retry_after_s=RETRY_S)  # nobody is there to read it
            result: Result = check.outcome.result()
            return result
        finally:
            on_gone(None)
            check.outcome.cancel()
            self._begin()  # it may have been the first of those that wait

    def _begin(self) -> None:
        """Begin what may begin: of each analyst whose turn it is, the oldest check that is still wanted."""
        with self._changing:
            for analyst, checks in list(self._waiting.items()):
                wanted = deque(check for check in checks if not check.outcome.done())
                if wanted and analyst not in self._checking and len(self._checking) < AT_ONCE_MAX:
                    self._checking.add(analyst)
                    # Not one of the requests' threads: those keep a process that is to stop until they end.
                    begun = (wanted.popleft(),)
                    threading.Thread(target=self._check, args=begun, name="check", daemon=True).start()
                self._waiting[analyst] = wanted
                if not wanted:
                    del self._waiting[analyst]

    def _check(self, check: _QueuedCheck) -> None:
        try:
            ended = partial(check.outcome.set_result, check.work())
        except BaseException as error:
            ended = partial(check.outcome.set_exception, error)
        with self._changing:
            self._checking.discard(check.analyst)
            if check.analyst in self._waiting:  # the others' turn comes first
                self._waiting[check.analyst] = self._waiting.pop(check.analyst)
        with suppress(RuntimeError):  # the service has stopped, and nobody waits
            check.outcome.get_loop().call_soon_threadsafe(lambda: check.outcome.done() or ended())
        self._begin()


PLAN_COMMAND = (sys.executable, "-I", "-m", "tacit.planning.bounded")

PLANS_AT_ONCE_MAX = 2
"""Plans at once in all: a tester's processors are for verdicts."""

PLAN_LIMIT_S = 55.0
"""A plan still running then is killed; proxies commonly give up after sixty seconds."""

PLAN_LOOK_S = 0.2
"""How often it is looked whether the service is stopping."""

PLAN_RETRY_S = 20

PLAN_BYTES_MAX = 2**18

TOO_SLOW = "This took too long: ask for fewer units or columns, or use tacit plan on your own machine."
FAILED = "The simulation failed. Ask for fewer units or columns, or use tacit plan on your own machine."


OnGone = Callable[[Callable[[], None] | None], None]


class Planner:
    """Runs plans for whoever may sign in.

    Args:
        stopping: whether the service has been asked to stop: no plan outlives that.
        command: starts the process; PLAN_COMMAND by default.
        limit_s: how long one plan may take; PLAN_LIMIT_S by default.
    """

    def __init__(
        self, stopping: Stopping, command: tuple[str, ...] | None = None, limit_s: float | None = None
    ) -> None:
        self._stopping, self._command = stopping, command or PLAN_COMMAND
        self._limit_s = limit_s or PLAN_LIMIT_S
        self._planning: set[str] = set()

    async def plan(
        self, person: str, fields: Mapping[str, str], on_gone: OnGone = lambda _: None
    ) -> dict[str, Any]:
        """Return ``{"plan": ...}``, or ``{"refused": "what to change"}``.

        Args:
            person: whose plan, by key; a person has one at a time, at the page and by the API together.
            fields: the form's, or ``study``, its exact bytes as text, and ``effect``.
            on_gone: has what it is given called when the caller goes, which ends the plan; None takes that
                back.

        Raises:
            ProblemError: ``rate-limited``: the person has a plan under way, or too many others have.
        """
        # Nothing is awaited between the look and the entry, so that two requests cannot both get in.
        if person in self._planning or len(self._planning) >= PLANS_AT_ONCE_MAX:
            raise RegisteredProblemError("rate-limited", retry_after_s=PLAN_RETRY_S)
        self._planning.add(person)
        gone = asyncio.Event()
        on_gone(gone.set)
        try:
            return await self._run(json.dumps(dict(fields)).encode(), gone)
        finally:
            on_gone(None)
            self._planning.discard(person)

    async def _run(self, sent: bytes, gone: asyncio.Event) -> dict[str, Any]:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"PATH": os.defpath, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            cwd="/",
            start_new_session=True,
        )
        answering = asyncio.ensure_future(process.communicate(sent))
        try:
            if not await self._ended(answering, gone):
                return {"refused": TOO_SLOW}
            return _plan_of(process.returncode, (await answering)[0])
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            answering.cancel()
            with suppress(asyncio.CancelledError):
                await process.wait()

    async def _ended(self, answering: "asyncio.Future[Any]", gone: asyncio.Event) -> bool:
        """Wait for the process; False where its time is up, nobody waits for it, or the service stops."""
        loop = asyncio.get_running_loop()
        limit = loop.time() + self._limit_s
        while not answering.done():
            if self._stopping.requested or gone.is_set() or loop.time() > limit:
                return False
            await asyncio.wait({answering}, timeout=PLAN_LOOK_S)
        return True


def _plan_of(code: int | None, written: bytes) -> dict[str, Any]:
    """Read what the process wrote. Its memory or processor limits may have ended it."""
    if code != 0 or len(written) > PLAN_BYTES_MAX:
        return {"refused": FAILED}
    found = json.loads(written)
    return (
        found if isinstance(found, dict) and ("plan" in found or "refused" in found) else {"refused": FAILED}
    )


Caller = Callable[..., Awaitable[str]]
"""A dependency: returns the caller's key, or raises a problem."""


class TesterAccess:
    """Makes the dependencies of the routes."""

    def __init__(self, engine: Engine, tester_key: str, bearer: BearerToken, studies: Studies) -> None:
        self._engine, self._studies = engine, studies
        self.signer = bearer
        """A dependency: the key of anyone whose token holds, enrolled or not."""
        # A role never changes, but for a key that is revoked: then all are read again. Who is not found is
        # looked for again. There are no more entries than enrolled parties.
        self._own = {tester_key: "tester"}
        self._roles = dict(self._own)
        self._revoked = 0
        # One read at a time, never behind other requests: unknown callers are looked for again and again.
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="roles")

    def require(self, *roles: str) -> Caller:
        """Make a dependency that returns the caller's key, which must be of one of these roles."""

        async def check(request: Request, key: Annotated[str, Depends(self.signer)]) -> str:
            role = self._roles.get(key)
            if role is None:
                role = await asyncio.get_running_loop().run_in_executor(self._reader, self.role, key)
            recognise(request.scope, key)
            if role not in roles:
                raise RegisteredProblemError("forbidden")
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

    def look(self) -> tuple[int, ...]:
        """Return what changes with every change that is waited for (:meth:`Studies.fingerprint`).

        With one more key revoked, no role that was read before holds: a request that reads a role while this
        happens remembers it where nobody looks any more.
        """
        found = self._studies.fingerprint()
        if found[-1] != self._revoked:
            self._revoked, self._roles = found[-1], dict(self._own)
        return found


VERDICT_RETRY_S = 2
"""When a pending verdict is worth asking for again."""

INBOX_WAIT_S = 20
"""How long an empty inbox waits unless told otherwise."""

Owner = Annotated[PartyName, Path()]
Wait = Annotated[float, Query(ge=0, le=WAIT_S_MAX, allow_inf_nan=False)]
Body = Annotated[bytes, Depends(json_bytes)]

Take = Callable[[str, str, bytes, str], UploadOutcome]
"""Takes an answer: the study's digest, the owner, the bytes, and the caller's key."""

STORED = answer_schema(Stored, repeatable=True)


log = structlog.get_logger()


@dataclass(frozen=True)
class Tester:
    """What the routes work with."""

    engine: Engine
    identity: TesterIdentity
    audience: str
    software: str
    studies: Studies
    signer: Signer
    answers: AnswerIntake
    access: TesterAccess
    checks: CheckQueue
    inboxes: Inboxes
    bell: Bell
    watch: Watch
    planner: Planner
    stopping: Stopping
    clock: Clock

    def now(self) -> int:
        """Unix time in whole seconds."""
        return int(self.clock())

    def taken(self, taken: UploadOutcome, study: str) -> Response:
        """Answer an owner's or an analyst's answer; wakes who waits where it was the study's last."""
        return self.stored(
            study, is_new=taken is not UploadOutcome.BEFORE, is_news=taken is UploadOutcome.LAST
        )

    def stored(self, study: str, *, is_new: bool, is_news: bool) -> Response:
        """Answer an upload: 201 for new bytes, 200 for the same bytes again."""
        if is_news:
            self.watch.check()
        reached(TesterStep.ANSWERING)
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
    _add_catalogue(router, tester)
    _add_plans(router, tester)
    return router


def _add_catalogue(router: APIRouter, tester: Tester) -> None:
    reader = tester.access.require(*EVERYONE)

    @router.put(
        "/catalogue/{owner}",
        status_code=201,
        openapi_extra=envelope_schema(CATALOGUE_TYPE),
        **answer_schema(Published, repeatable=True),
    )
    def publish(
        owner: Owner, key: Annotated[str, Depends(tester.access.require("owner"))], envelope: Body
    ) -> Response:
        is_new = take_entry(tester.engine, tester.identity.key, owner, envelope, key)
        return json_response({"owner": owner}, 201 if is_new else 200)

    @router.get("/catalogue", **answer_schema(ListPage[PublishedEntry]))
    def catalogue(
        _: Annotated[str, Depends(reader)], cursor: Annotated[PartyName | None, Query()] = None
    ) -> Response:
        shown, following = entries(tester.engine, cursor)
        names = [{"owner": entry.owner, "version": entry.version} for entry in shown]
        return json_response({"items": names, "next": following})

    @router.get("/catalogue/{owner}", **answer_schema(Envelope))
    def catalogue_entry(owner: Owner, _: Annotated[str, Depends(reader)]) -> Response:
        return json_response(entry_of(tester.engine, owner))


def _add_parties(router: APIRouter, tester: Tester) -> None:
    @router.get("/identity", **answer_schema(ServiceIdentity))
    def identity() -> Response:
        return json_response(
            {
                "name": tester.identity.name,
                "key": tester.identity.key,
                "audience": tester.audience,
                "software": tester.software,
            }
        )

    Enrolment(
        engine=tester.engine,
        clock=tester.clock,
        roster=ROSTER,
        sign_in=SIGN_IN,
        service=Member(tester.identity.name, tester.identity.key, "tester"),
        parties="parties",
        fields=("name", "key", "role"),
        member=EnrolledParty,
        invitation=InvitationRequest,
        enrolment=EnrolmentRequest,
        operator=tester.access.require("tester"),
        reader=tester.access.require(*EVERYONE),
        signer=tester.access.signer,
        # Nothing that the key signs is taken any more: no owner need spend on what cannot be completed.
        on_revoked=partial(end_all_of, signer=tester.signer),
        after_revoked=tester.watch.check,
    ).add_to(router)


def _add_studies(router: APIRouter, tester: Tester) -> None:
    reader = tester.access.require(*EVERYONE)

    @router.put("/studies/{digest}", status_code=201, openapi_extra=envelope_schema(STUDY_TYPE), **STORED)
    async def create_study(
        request: Request,
        digest: DigestPath,
        key: Annotated[str, Depends(tester.access.require("analyst"))],
        envelope: Body,
    ) -> Response:
        def create() -> Response:
            is_new = tester.studies.create(digest, envelope, key, tester.now())
            return tester.stored(digest, is_new=is_new, is_news=is_new)

        return await tester.checks.run(key, len(envelope), create, partial(when_gone, request.scope))

    @router.get("/studies", **answer_schema(ListPage[StudySummary]))
    def studies(
        _: Annotated[str, Depends(reader)],
        cursor: Annotated[int | None, Query(ge=1, le=2**53)] = None,
        state: Annotated[State | None, Query()] = None,
    ) -> Response:
        return json_response(tester.studies.listing(cursor, StudyFilter(state)))

    @router.get("/studies/{digest}", **answer_schema(StudySummary))
    def study(digest: DigestPath, _: Annotated[str, Depends(reader)]) -> Response:
        return json_response(tester.studies.summary(digest))

    @router.get("/studies/{digest}/envelope", **answer_schema(Envelope))
    def study_envelope(digest: DigestPath, _: Annotated[str, Depends(reader)]) -> Response:
        return json_response(tester.studies.envelope(digest))


def _add_plans(router: APIRouter, tester: Tester) -> None:
    @router.post("/plans", openapi_extra=body_schema(Study), **answer_schema(PlanAnswer))
    async def plan(
        request: Request,
        key: Annotated[str, Depends(tester.access.require("analyst"))],
        study: Body,
        effect: Annotated[float | None, Query(allow_inf_nan=False)] = None,
    ) -> Response:
        await run_in_threadpool(read_study, study)  # no process for what is no study
        fields = {"study": study.decode(), "effect": "" if effect is None else repr(effect)}
        found = await tester.planner.plan(key, fields, partial(when_gone, request.scope))
        return json_response({"plan": found.get("plan"), "refused": found.get("refused")})


def _add_inbox(router: APIRouter, tester: Tester) -> None:
    @router.get("/inbox", **answer_schema(Inbox))
    async def inbox(
        request: Request,
        key: Annotated[str, Depends(tester.access.require("owner", "curator"))],
        wait_s: Wait = INBOX_WAIT_S,
    ) -> Response:
        found = await tester.inboxes.poll(key, wait_s, partial(when_gone, request.scope))
        return json_response({"items": list(found)})


def _add_answers(router: APIRouter, tester: Tester) -> None:
    # What is taken is signed by its sender: the analyst of a study may carry it.
    sender_key, owner_key = (
        tester.access.require("owner", "curator", "analyst"),
        tester.access.require("owner"),
    )

    def add_upload(kind: str, name: str, caller: Caller, take: Take, schema: dict[str, Any]) -> None:
        @router.put(
            f"/studies/{{digest}}/{kind}/{{owner}}",
            name=name,
            status_code=201,
            openapi_extra=schema,
            **STORED,
        )
        def upload(
            digest: DigestPath, owner: Owner, key: Annotated[str, Depends(caller)], envelope: Body
        ) -> Response:
            return tester.taken(take(digest, owner, envelope, key), digest)

    def add_download(kind: str, name: str, find: Callable[..., bytes], form: Any) -> None:
        @router.get(f"/studies/{{digest}}/{kind}/{{owner}}", name=name, **answer_schema(form))
        def download(digest: DigestPath, owner: Owner, key: Annotated[str, Depends(owner_key)]) -> Response:
            return json_response(find(tester.engine, tester.studies, digest, owner, key))

    answers = tester.answers
    release = envelope_schema(RELEASE_TYPE, RECEIPT_TYPE, package=SealedPackage)
    add_upload("releases", "upload_release", sender_key, answers.take_release, release)
    add_download("sealed", "sealed_release", release_for, Envelope | SealedPackage)
    acceptance = envelope_schema(ACCEPTANCE_TYPE)
    add_upload("acceptances", "accept", owner_key, answers.take_acceptance, acceptance)
    add_download("acceptances", "acceptance", acceptance_for, Envelope)
    add_upload("mask-keys", "mask_key", owner_key, answers.take_mask_key, envelope_schema(MASK_KEY_TYPE))

    @router.get("/studies/{digest}/mask-keys", **answer_schema(dict[str, str]))
    def mask_keys(digest: DigestPath, key: Annotated[str, Depends(owner_key)]) -> Response:
        return json_response(mask_keys_for(tester.engine, tester.studies, digest, key))

    add_upload("declines", "decline", sender_key, answers.take_decline, envelope_schema(DECLINE_TYPE))

    @router.put(
        "/studies/{digest}/cancellation",
        status_code=201,
        openapi_extra=envelope_schema(CANCELLATION_TYPE),
        **STORED,
    )
    def cancel(
        digest: DigestPath, key: Annotated[str, Depends(tester.access.require("analyst"))], envelope: Body
    ) -> Response:
        return tester.taken(answers.take_cancellation(digest, envelope, key), digest)


def _add_verdicts(router: APIRouter, tester: Tester) -> None:
    reader = tester.access.require(*EVERYONE)

    @router.get("/studies/{digest}/verdict", **answer_schema(Envelope))
    async def verdict(
        digest: DigestPath,
        _: Annotated[str, Depends(reader)],
        wait_s: Wait = 0,
    ) -> Response:
        def look() -> bytes | None:
            return read_from(tester.engine, verdict_of, digest)

        return _verdict_response(await poll(look, wait_s, tester.bell, tester.stopping))

    @router.get("/studies/{digest}/transcript", **answer_schema(Transcript))
    def transcript(digest: DigestPath, _: Annotated[str, Depends(reader)]) -> Response:
        return _verdict_response(read_from(tester.engine, transcript_of, digest))


def _verdict_response(content: bytes | None) -> Response:
    if content is None:
        raise RegisteredProblemError("verdict-pending", retry_after_s=VERDICT_RETRY_S)
    reached(TesterStep.VERDICT_SERVED)
    return json_response(content)
