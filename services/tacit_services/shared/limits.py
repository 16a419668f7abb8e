"""What a request's body may cost: its size, its time, and no compression. Pure ASGI, around everything."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tacit_protocol.messages.encoding import MESSAGE_BYTES_MAX
from tacit_services.shared.problem_responses import ProblemError, problem_response

BODY_TIMEOUT_S = 10.0
"""How long a body may take to arrive: one mebibyte at 840 kbit/s."""

DRAINED_BYTES_MAX = 2**24
"""How much of an oversized body is read and dropped, so that its sender gets to read the refusal."""


class BodyLimits:
    """Refuses encoded bodies at once, and bodies that are too large or too slow while they arrive."""

    def __init__(
        self, app: ASGIApp, size_bytes_max: int = MESSAGE_BYTES_MAX, timeout_s: float = BODY_TIMEOUT_S
    ) -> None:
        self._app = app
        self._size_bytes_max = size_bytes_max
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        encodings = [value for name, value in scope["headers"] if name == b"content-encoding"]
        if any(value.strip().lower() not in {b"", b"identity"} for value in encodings):
            refusal = problem_response(ProblemError("unsupported-media-type"), scope.get("tacit_request_id"))
            await refusal(scope, receive, send)
            return
        await self._app(scope, _Body(receive, self._size_bytes_max, self._timeout_s).receive, send)


class _Body:
    """One request's body, counted and timed as it arrives."""

    def __init__(self, receive: Receive, size_bytes_max: int, timeout_s: float) -> None:
        self._receive = receive
        self._size_bytes_max = size_bytes_max
        self._deadline = asyncio.get_running_loop().time() + timeout_s
        self._size_bytes = 0
        self._complete = False

    async def receive(self) -> Message:
        """Pass one piece on; raises ProblemError once the body is too large or too late."""
        if self._complete:
            return await self._receive()  # waits for the caller to go away: no time limit
        message = await self._next()
        if self._size_bytes > self._size_bytes_max:
            while not self._complete and self._size_bytes <= self._size_bytes_max + DRAINED_BYTES_MAX:
                await self._next()
            raise ProblemError("message-too-large")
        return message

    async def _next(self) -> Message:
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise ProblemError("request-timeout") from None
        self._size_bytes += len(message.get("body", b""))
        self._complete = message["type"] != "http.request" or not message.get("more_body", False)
        return message
