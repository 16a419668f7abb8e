"""The HTTP boundary of every service: problems for errors, bounded bodies, tokens, health and metrics."""

import asyncio
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Annotated, Any, TypedDict

import structlog
from fastapi import FastAPI, Path, Request
from fastapi.openapi.constants import REF_PREFIX
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from prometheus_client import CollectorRegistry, Counter, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from pydantic import BaseModel
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tacit_protocol.messages.answers import Problem
from tacit_protocol.messages.encoding import MESSAGE_BYTES_MAX, Model, decode, encode_json
from tacit_protocol.messages.problems import MEDIA_TYPE
from tacit_protocol.messages.study import Digest
from tacit_protocol.signing import Envelope, TokenError, verify_token
from tacit_services.shared.clock import Clock
from tacit_services.shared.problem_responses import (
    RegisteredProblemError,
    answer_problem,
    as_problem,
    install_problem_handlers,
)

BODY_TIMEOUT_S = 10.0
"""How long a body is waited for in all: one mebibyte at 840 kbit/s."""

PIECES_FREE, PIECE_BYTES_MIN = 1024, 64
"""A body may come in as many pieces as the first, and one more for each so many bytes: a chunk of one byte
costs as much as one of sixteen thousand. Packets on the worst of links have 536."""

CRUMBLED = "tacit_crumbled"
"""In a request's scope once its body has come in too many pieces: no more of it will."""

DRAINED_BYTES_MAX = 2**24
"""How much of an oversized body is read and dropped, so that its sender gets to read the refusal."""


IN_CRUMBS = "the body came in too many small pieces: send it whole, with its Content-Length"


@dataclass(frozen=True)
class BodyLimit:
    """How large a body may be, and how long its sender is waited for.

    The time that the service itself takes does not count. ``bytes_per_s_min`` allows more time as bytes
    arrive, which keeps out a sender that only drips; None allows ``timeout_s`` in all.
    """

    size_bytes_max: int = MESSAGE_BYTES_MAX
    timeout_s: float = BODY_TIMEOUT_S
    bytes_per_s_min: float | None = None
    too_large: str = "message-too-large"

    def patience_s(self, size_bytes: int) -> float:
        """Return how long the sender of that many bytes may have been waited for."""
        earned_s = 0.0 if self.bytes_per_s_min is None else size_bytes / self.bytes_per_s_min
        return self.timeout_s + earned_s


@dataclass(frozen=True)
class StreamedBodies:
    """Requests whose handler takes the body piece by piece, so that it may be long: their own limit."""

    method: str
    path: re.Pattern[str]
    limit: BodyLimit

    def takes(self, scope: Scope) -> bool:
        """Say whether a request is one of these."""
        return scope["method"] == self.method and self.path.fullmatch(scope["path"]) is not None


class BodyLimits:
    """Refuses encoded bodies at once, and bodies that are too large or too slow while they arrive."""

    def __init__(
        self,
        app: ASGIApp,
        size_bytes_max: int = MESSAGE_BYTES_MAX,
        timeout_s: float = BODY_TIMEOUT_S,
        streamed: StreamedBodies | None = None,
    ) -> None:
        self._app = app
        self._limit = BodyLimit(size_bytes_max, timeout_s)
        self._streamed = streamed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._limit
        if self._streamed is not None and self._streamed.takes(scope):
            limit = self._streamed.limit
        refusal = _refusal(scope, limit)
        if refusal is not None:
            await (await answer_problem(refusal, scope))(scope, receive, send)
            return
        await self._app(scope, _Body(scope, receive, limit).receive, send)


def _refusal(scope: Scope, limit: BodyLimit) -> RegisteredProblemError | None:
    """Return what is wrong with a body that has not arrived yet, if anything is."""
    headers = scope["headers"]
    encodings = [value for name, value in headers if name == b"content-encoding"]
    if any(value.strip().lower() not in {b"", b"identity"} for value in encodings):
        return RegisteredProblemError("unsupported-media-type")
    lengths = [value for name, value in headers if name == b"content-length"]
    # A little too much is read and dropped below, so that its sender gets to read the refusal.
    if any(v.isdigit() and int(v) > limit.size_bytes_max + DRAINED_BYTES_MAX for v in lengths):
        return RegisteredProblemError(limit.too_large)
    return None


class _Body:
    """One request's body, counted and timed as it arrives."""

    def __init__(self, scope: Scope, receive: Receive, limit: BodyLimit) -> None:
        self._scope = scope
        self._receive = receive
        self._limit = limit
        self._waited_s = 0.0
        self._size_bytes = 0
        self._complete = False

    async def receive(self) -> Message:
        """Pass one piece on; raises ProblemError once the body is too large, too late, or in crumbs."""
        if self._complete:
            return await self._receive()  # waits for the caller to go away: no time limit
        message = await self._next()
        size_bytes_max = self._limit.size_bytes_max
        if self._size_bytes > size_bytes_max:
            while not self._complete and self._size_bytes <= size_bytes_max + DRAINED_BYTES_MAX:
                await self._next()
            raise RegisteredProblemError(self._limit.too_large)
        return message

    async def _next(self) -> Message:
        clock = asyncio.get_running_loop().time
        started_s = clock()
        try:
            async with asyncio.timeout(self._limit.patience_s(self._size_bytes) - self._waited_s):
                message = await self._receive()
        except TimeoutError:
            raise RegisteredProblemError("request-timeout") from None
        if CRUMBLED in self._scope:
            raise RegisteredProblemError("malformed-message", detail=IN_CRUMBS)
        self._waited_s += clock() - started_s
        self._size_bytes += len(message.get("body", b""))
        self._complete = message["type"] != "http.request" or not message.get("more_body", False)
        return message


log = structlog.get_logger()

Gauges = Callable[[], Mapping[str, float | Mapping[str, float]]]
"""Returns a service's own figures by name; one that is counted by state, as a figure for each state."""

CALLER_GONE = 499
"""The status that logs and metrics show where the caller went away before there was an answer. Nobody is sent
it; the number is the one that web servers use."""

NO_SNIFFING = (b"x-content-type-options", b"nosniff")
"""In every answer: a browser takes none for another kind of file than it says."""

INSISTING_ON_TLS = (b"strict-transport-security", b"max-age=31536000")
"""In every answer of a service that browsers reach by TLS: they come by https alone for a year."""

disable_created_metrics()  # type: ignore[no-untyped-call]


class Metrics(Collector):
    """One app's requests by method, route and status, their seconds, and the service's own figures."""

    def __init__(self, prefix: str, gauges: Gauges) -> None:
        self._prefix, self._gauges = prefix, gauges
        self._registry = CollectorRegistry()
        route = ("method", "route")
        self._requests = Counter(
            f"{prefix}_requests", "Requests", (*route, "status"), registry=self._registry
        )
        self._seconds = Counter(f"{prefix}_request_seconds", "Their time", route, registry=self._registry)
        self._registry.register(self)

    def observe(self, method: str, route: str, status: int, duration_s: float) -> None:
        """Count one request. ``route`` is the template, never the path asked for."""
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(method, route).inc(duration_s)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the service's own figures."""
        for name, found in self._gauges().items():
            if not isinstance(found, Mapping):
                yield GaugeMetricFamily(f"{self._prefix}_{name}", name, found)
                continue
            family = GaugeMetricFamily(f"{self._prefix}_{name}", name, labels=["state"])
            for state, value in found.items():
                family.add_metric([state], value)
            yield family

    def text(self) -> bytes:
        """Return everything as Prometheus text, version 0.0.4."""
        return generate_latest(self._registry)


class Observation:
    """Gives each request an id, logs and counts its end, and turns what nobody caught into a problem."""

    def __init__(self, app: "ASGIApp", metrics: Metrics, *, insists_on_tls: bool = False) -> None:
        self._app = app
        self._metrics = metrics
        self._insists_on_tls = insists_on_tls

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = secrets.token_hex(8)
        scope["tacit_request_id"] = request_id
        started_s, status = time.monotonic(), 0

        async def watched_send(message: "Message") -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
                message["headers"] += self._added(message["headers"])
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, receive, watched_send)
            except ClientDisconnect:
                status = status or CALLER_GONE  # nothing here failed, and nobody is left to answer
            except Exception as error:
                problem = as_problem(error)
                if status != 0:
                    raise ConnectionAbortedError("the response had begun") from None
                response = await answer_problem(problem, scope)
                await response(scope, receive, watched_send)
            finally:
                self._record(scope, status, time.monotonic() - started_s)

    def _added(self, headers: "Iterable[tuple[bytes, bytes]]") -> list[tuple[bytes, bytes]]:
        """Return what every answer carries and this one lacks."""
        wanted = [NO_SNIFFING, *([INSISTING_ON_TLS] if self._insists_on_tls else [])]
        there = {name.lower() for name, _ in headers}
        return [header for header in wanted if header[0] not in there]

    def _record(self, scope: "Scope", status: int, duration_s: float) -> None:
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in {"GET", "PUT", "POST", "HEAD", "DELETE"} else "other"
        self._metrics.observe(method, route, status, duration_s)
        if route not in {"/healthz", "/readyz", "/metrics"}:
            log.info("request", method=method, route=route, status=status, duration_s=round(duration_s, 4))


DigestPath = Annotated[Digest, Path()]
"""A study's digest in an address."""

READY_RETRY_S = 2

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


class _DescribedApp(FastAPI):
    """An app whose OpenAPI document also has the components that bodies and problems name."""

    def openapi(self) -> dict[str, Any]:
        """Return the document, made once."""
        if self.openapi_schema is None:
            document = super().openapi()
            known = document.setdefault("components", {}).setdefault("schemas", {})
            known |= _components(Problem)
            for operations in document["paths"].values():
                for operation in operations.values():
                    known |= operation.pop(COMPONENTS, {})
        found: dict[str, Any] = self.openapi_schema or {}
        return found


def create_app(
    *,
    title: str,
    version: str,
    metrics_prefix: str,
    check_ready: Callable[[], None],
    gauges: Gauges = dict,
    lifespan: Lifespan | None = None,
    hosts: Collection[str] | None = None,
    body_timeout_s: float = BODY_TIMEOUT_S,
    streamed: StreamedBodies | None = None,
    insists_on_tls: bool = False,
) -> FastAPI:
    """Create an app with the boundary in place and ``/healthz``, ``/readyz`` and ``/metrics``.

    Args:
        title: the service's name in its OpenAPI document (``/v1/openapi.json``).
        version: the software's version.
        metrics_prefix: first part of every metric's name.
        check_ready: returns if the service can do its work, raises otherwise; runs in a thread.
        gauges: the service's own figures; runs in a thread.
        lifespan: what runs beside the app.
        hosts: the names by which browsers may reach the pages (:class:`AllowedHosts`); None for any.
        body_timeout_s: how long a request's body is waited for.
        streamed: requests with limits of their own, whose handler reads the body as a stream.
        insists_on_tls: whether browsers are told to come by https alone.
    """
    app = _DescribedApp(
        title=title,
        version=version,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses={
            "default": {
                "description": "A problem (RFC 9457)",
                "content": {MEDIA_TYPE: {"schema": {"$ref": f"{REF_PREFIX}Problem"}}},
            }
        },
    )
    metrics = Metrics(metrics_prefix, gauges)
    install_problem_handlers(app)
    app.add_middleware(BodyLimits, timeout_s=body_timeout_s, streamed=streamed)
    if hosts is not None:
        app.add_middleware(AllowedHosts, hosts=hosts)
    app.add_middleware(
        Observation, metrics=metrics, insists_on_tls=insists_on_tls
    )  # the last one added is the outermost
    _add_health(app, check_ready, metrics)
    return app


def _add_health(app: FastAPI, check_ready: Callable[[], None], metrics: Metrics) -> None:
    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> Response:
        return JSONResponse({"status": "alive"})

    @app.get("/readyz", include_in_schema=False)
    def readyz() -> Response:
        try:
            check_ready()
        except Exception as error:
            raise RegisteredProblemError("not-ready", retry_after_s=READY_RETRY_S) from error
        return JSONResponse({"status": "ready"})

    @app.get("/metrics", include_in_schema=False)
    def show_metrics() -> Response:
        return PlainTextResponse(metrics.text(), media_type="text/plain; version=0.0.4")


class AllowedHosts:
    """Refuses what a browser asks for by a name that is not the service's own.

    A page of another site can have its own name resolve to this machine (DNS rebinding): its scripts then
    read what the service answers to that name. An address cannot be rebound, so a bare one passes, and so
    does a request without a name, which no browser sends. The interface below /v1 asks for a signed token,
    which such a page does not have, and proxies and agents may call it by names of their own.
    """

    _HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]]*))(?::[0-9]{0,5})?", re.ASCII)
    _OPEN = frozenset({"/healthz", "/readyz"})

    def __init__(self, app: ASGIApp, hosts: Collection[str]) -> None:
        self._app = app
        self._hosts = frozenset(hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http" and not self._allows(scope):
            error = RegisteredProblemError("unknown-host")
            await (await answer_problem(error, scope))(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _allows(self, scope: Scope) -> bool:
        if scope["path"].startswith("/v1/") or scope["path"] in self._OPEN:
            return True
        values = [value for name, value in scope["headers"] if name == b"host"]
        if len(values) != 1:
            return not values
        match = self._HOST.fullmatch(values[0].decode("latin-1").lower())
        if match is None:
            return False
        host = match[1] or match[2]
        return host in self._hosts or _is_address(host)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


class BearerToken(SecurityBase):
    """A dependency: the public key that signed the request's token. Whose key it is, the service decides."""

    scheme_name = "party"
    model = HTTPBearer(
        bearerFormat="JWT",
        description="Signed with the caller's own key (EdDSA), for this service's audience, for a minute.",
    )

    def __init__(self, audience: str, clock: Clock) -> None:
        self._audience = audience
        self._clock = clock

    async def __call__(self, request: Request) -> str:
        """Return the signer's public key; raises the problem ``unauthenticated``."""
        values = request.headers.getlist("authorization")
        scheme, _, token = (values[0] if len(values) == 1 else "").partition(" ")
        if scheme.lower() != "bearer":
            raise RegisteredProblemError("unauthenticated")
        try:
            return verify_token(token, self._audience, int(self._clock()))
        except TokenError as error:
            raise RegisteredProblemError("unauthenticated", detail=str(error)) from None


async def json_bytes(request: Request) -> bytes:
    """Return a JSON body's exact bytes (a dependency); refuses other media types."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise RegisteredProblemError("unsupported-media-type")
    return await request.body()


def json_body(model: type[Model]) -> Callable[[Request], Awaitable[Model]]:
    """Make a dependency that reads the body strictly as that model."""

    async def read(request: Request) -> Model:
        return decode(model, await json_bytes(request))

    return read


COMPONENTS = "x-components"
"""Where a route's own description keeps the schemas that its bodies name, until the document is made."""


def _components(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schemas of a model and of those inside, by name."""
    own = model.model_json_schema(ref_template=REF_PREFIX + "{model}")
    inner: dict[str, Any] = own.pop("$defs", {})
    return inner | {model.__name__: own}


def body_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Describe a body that is read by :func:`json_bytes` or :func:`json_body`, for ``openapi_extra``."""
    return _described({"$ref": REF_PREFIX + model.__name__}, model)


def envelope_schema(*payload_types: str, package: type[BaseModel] | None = None) -> dict[str, Any]:
    """Describe a body that is an envelope with one of these messages, or a package in its place.

    What the payload holds is in docs/reference/messages.schema.json, by its type.
    """
    envelope = {
        "allOf": [
            {"$ref": REF_PREFIX + Envelope.__name__},
            {"type": "object", "properties": {"payloadType": {"enum": list(payload_types)}}},
        ]
    }
    if package is None:
        return _described(envelope, Envelope)
    return _described({"anyOf": [envelope, {"$ref": REF_PREFIX + package.__name__}]}, Envelope, package)


def _described(schema: dict[str, Any], *models: type[BaseModel]) -> dict[str, Any]:
    known = {name: found for model in models for name, found in _components(model).items()}
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    return {"requestBody": body, COMPONENTS: known}


class Answered(TypedDict):
    """What a route's decorator is told of its answers."""

    response_model: Any
    responses: dict[int | str, dict[str, Any]]


def answer_schema(model: Any, *, repeatable: bool = False) -> Answered:
    """Describe a route's answer; of an upload that may be ``repeatable``, 200 for the same bytes again."""
    again = {"model": model, "description": "It was stored before: nothing has changed"}
    return Answered(response_model=model, responses={200: again} if repeatable else {})


def json_response(content: Any, status: int = 200) -> Response:
    """Answer with JSON in the messages' own encoding, never kept by a cache."""
    data = content if isinstance(content, bytes) else encode_json(content)
    return Response(data, status, {"Cache-Control": "no-store"}, "application/json")
