"""What a request's body may cost: its size, its time, and no compression. Pure ASGI, around everything."""

import asyncio
import re
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tacit_protocol.messages.encoding import MESSAGE_BYTES_MAX
from tacit_services.shared.problem_responses import ProblemError, problem_response

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
            await problem_response(refusal, scope.get("tacit_request_id"))(scope, receive, send)
            return
        await self._app(scope, _Body(scope, receive, limit).receive, send)


def _refusal(scope: Scope, limit: BodyLimit) -> ProblemError | None:
    """Return what is wrong with a body that has not arrived yet, if anything is."""
    headers = scope["headers"]
    encodings = [value for name, value in headers if name == b"content-encoding"]
    if any(value.strip().lower() not in {b"", b"identity"} for value in encodings):
        return ProblemError("unsupported-media-type")
    lengths = [value for name, value in headers if name == b"content-length"]
    # A little too much is read and dropped below, so that its sender gets to read the refusal.
    if any(v.isdigit() and int(v) > limit.size_bytes_max + DRAINED_BYTES_MAX for v in lengths):
        return ProblemError(limit.too_large)
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
            raise ProblemError(self._limit.too_large)
        return message

    async def _next(self) -> Message:
        clock = asyncio.get_running_loop().time
        started_s = clock()
        try:
            async with asyncio.timeout(self._limit.patience_s(self._size_bytes) - self._waited_s):
                message = await self._receive()
        except TimeoutError:
            raise ProblemError("request-timeout") from None
        if CRUMBLED in self._scope:
            raise ProblemError("malformed-message", detail=IN_CRUMBS)
        self._waited_s += clock() - started_s
        self._size_bytes += len(message.get("body", b""))
        self._complete = message["type"] != "http.request" or not message.get("more_body", False)
        return message
