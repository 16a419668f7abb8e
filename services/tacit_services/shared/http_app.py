"""The HTTP boundary of every service: problems for errors, bounded bodies, tokens, health and metrics."""

import re
from collections.abc import Awaitable, Callable, Collection
from contextlib import AbstractAsyncContextManager
from ipaddress import ip_address
from typing import Any

from fastapi import FastAPI, Request
from fastapi.openapi.constants import REF_PREFIX
from pydantic import BaseModel
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tacit_protocol.messages.encoding import Model, decode, encode_json
from tacit_protocol.messages.problems import MEDIA_TYPE
from tacit_protocol.signing.tokens import TokenError, verify_token
from tacit_services.shared.clock import Clock
from tacit_services.shared.limits import BODY_TIMEOUT_S, BodyLimits, StreamedBodies
from tacit_services.shared.observation import Gauges, Metrics, Observation
from tacit_services.shared.problem_responses import ProblemError, install_problem_handlers, problem_response

READY_RETRY_S = 2

Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


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
    """
    app = FastAPI(
        title=title,
        version=version,
        openapi_url="/v1/openapi.json",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses={"default": {"description": "A problem (RFC 9457)", "content": {MEDIA_TYPE: {}}}},
    )
    metrics = Metrics(metrics_prefix)
    install_problem_handlers(app)
    app.add_middleware(BodyLimits, timeout_s=body_timeout_s, streamed=streamed)
    if hosts is not None:
        app.add_middleware(AllowedHosts, hosts=hosts)
    app.add_middleware(Observation, metrics=metrics)  # the last one added is the outermost
    _add_health(app, check_ready, gauges, metrics)
    return app


def _add_health(app: FastAPI, check_ready: Callable[[], None], gauges: Gauges, metrics: Metrics) -> None:
    @app.get("/healthz", include_in_schema=False)
    async def healthz() -> Response:
        return JSONResponse({"status": "alive"})

    @app.get("/readyz", include_in_schema=False)
    def readyz() -> Response:
        try:
            check_ready()
        except Exception as error:
            raise ProblemError("not-ready", retry_after_s=READY_RETRY_S) from error
        return JSONResponse({"status": "ready"})

    @app.get("/metrics", include_in_schema=False)
    def show_metrics() -> Response:
        return PlainTextResponse(metrics.text(gauges()), media_type="text/plain; version=0.0.4")


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
            error = ProblemError("unknown-host")
            await problem_response(error, scope.get("tacit_request_id"))(scope, receive, send)
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


class BearerToken:
    """A dependency: the public key that signed the request's token. Whose key it is, the service decides."""

    def __init__(self, audience: str, clock: Clock) -> None:
        self._audience = audience
        self._clock = clock

    async def __call__(self, request: Request) -> str:
        """Return the signer's public key; raises the problem ``unauthenticated``."""
        values = request.headers.getlist("authorization")
        scheme, _, token = (values[0] if len(values) == 1 else "").partition(" ")
        if scheme.lower() != "bearer":
            raise ProblemError("unauthenticated")
        try:
            return verify_token(token, self._audience, int(self._clock()))
        except TokenError as error:
            raise ProblemError("unauthenticated", detail=str(error)) from None


async def json_bytes(request: Request) -> bytes:
    """Return a JSON body's exact bytes (a dependency); refuses other media types."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ProblemError("unsupported-media-type")
    return await request.body()


def json_body(model: type[Model]) -> Callable[[Request], Awaitable[Model]]:
    """Make a dependency that reads the body strictly as that model."""

    async def read(request: Request) -> Model:
        return decode(model, await json_bytes(request))

    return read


def body_schema(model: type[BaseModel] | None = None) -> dict[str, Any]:
    """Describe a body that is read by :func:`json_bytes` or :func:`json_body`, for ``openapi_extra``."""
    schema = (
        {"type": "object"} if model is None else model.model_json_schema(ref_template=REF_PREFIX + "{model}")
    )
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def json_response(content: Any, status: int = 200) -> Response:
    """Answer with JSON in the messages' own encoding, never kept by a cache."""
    data = content if isinstance(content, bytes) else encode_json(content)
    return Response(data, status, {"Cache-Control": "no-store"}, "application/json")
