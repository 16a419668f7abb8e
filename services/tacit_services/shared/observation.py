"""Each request's id, log line and metrics; and the last resort for errors. Pure ASGI, outermost."""

import re
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import structlog
from starlette.requests import ClientDisconnect

from tacit_services.shared.problem_responses import as_problem, problem_response

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = structlog.get_logger()

Gauges = Callable[[], Mapping[str, float]]
"""Returns a service's own figures, each a Prometheus sample: ``name`` or ``name{label="value"}``."""

CALLER_GONE = 499
"""The status that logs and metrics show where the caller went away before there was an answer. Nobody is sent
it; the number is the one that web servers use."""

_SAMPLE = re.compile(r'[a-z_]+(\{[a-z_]+="[a-z_-]+"\})?')


class Metrics:
    """Counts requests by method, route and status, in Prometheus text."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._seconds: Counter[tuple[str, str]] = Counter()

    def observe(self, method: str, route: str, status: int, duration_s: float) -> None:
        """Count one request. ``route`` is the template, never the path asked for."""
        with self._lock:
            self._requests[method, route, status] += 1
            self._seconds[method, route] += duration_s  # type: ignore[assignment]

    def text(self, gauges: Mapping[str, float]) -> str:
        """Write everything as Prometheus text, version 0.0.4."""
        with self._lock:
            requests, seconds = sorted(self._requests.items()), sorted(self._seconds.items())
        lines = [f"# TYPE {self._prefix}_requests_total counter"]
        lines += [
            f'{self._prefix}_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}'
            for (method, route, status), count in requests
        ]
        lines.append(f"# TYPE {self._prefix}_request_seconds_total counter")
        lines += [
            f'{self._prefix}_request_seconds_total{{method="{method}",route="{route}"}} {total:.6f}'
            for (method, route), total in seconds
        ]
        for name in sorted(gauges):
            if not _SAMPLE.fullmatch(name):
                raise ValueError("a gauge's name may not carry data")
            lines.append(f"{self._prefix}_{name} {gauges[name]:g}")
        return "\n".join(lines) + "\n"


class Observation:
    """Gives each request an id, logs and counts its end, and turns what nobody caught into a problem."""

    def __init__(self, app: "ASGIApp", metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

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
                message.setdefault("headers", []).append((b"x-request-id", request_id.encode()))
            await send(message)

        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self._app(scope, receive, watched_send)
            except ClientDisconnect:
                status = status or CALLER_GONE  # nothing here failed, and nobody is left to answer
            except Exception as error:
                response = problem_response(as_problem(error), request_id)
                if status != 0:
                    raise ConnectionAbortedError("the response had begun") from None
                await response(scope, receive, watched_send)
            finally:
                self._record(scope, status, time.monotonic() - started_s)

    def _record(self, scope: "Scope", status: int, duration_s: float) -> None:
        route = getattr(scope.get("route"), "path", "none")
        method = scope["method"] if scope["method"] in {"GET", "PUT", "POST", "HEAD", "DELETE"} else "other"
        self._metrics.observe(method, route, status, duration_s)
        if route not in {"/healthz", "/readyz", "/metrics"}:
            log.info("request", method=method, route=route, status=status, duration_s=round(duration_s, 4))
