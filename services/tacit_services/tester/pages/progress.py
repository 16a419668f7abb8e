"""Live progress: a stream of server-sent events, one whenever a study's page would look different."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from tacit_services.shared.database import DatabaseError
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester.routes import Tester

STREAMS_MAX = 100
"""Streams at once; beyond them pages ask every ten seconds."""

LOOK_S = 1.0
"""Time between two looks: one short query each."""

STREAM_S = 600.0
"""How long one stream lasts; the browser opens the next by itself, and is asked for its session again."""

KEEP_ALIVE_LOOKS = 15
"""Looks without news after which a comment is sent, so that proxies keep the connection."""

RETRY_S = 30

OPEN = ("collecting", "computing")
"""States that a study leaves again."""


def revision(summary: dict[str, Any]) -> str:
    """Return what differs whenever a study's page would."""
    seen = repr((summary["state"], summary["owners"], summary["progress"]))
    return hashlib.sha256(seen.encode()).hexdigest()[:16]


class Streams:
    """The streams of one tester."""

    def __init__(self, tester: Tester) -> None:
        self._tester = tester
        self._open = 0

    def response(self, study: str, seen: str) -> Response:
        """Answer with a stream that begins where the page's own ``revision`` ends.

        Raises:
            ProblemError: ``rate-limited``.
        """
        if self._open >= STREAMS_MAX:
            raise ProblemError("rate-limited", retry_after_s=RETRY_S)
        headers = {"X-Accel-Buffering": "no"}  # a proxy that gathers an answer would hold every event back
        return StreamingResponse(self._events(study, seen), 200, headers, "text/event-stream")

    async def _events(self, study: str, seen: str) -> AsyncIterator[str]:
        self._open += 1
        try:
            async for event in self._follow(study, seen):
                yield event
        finally:
            self._open -= 1

    async def _follow(self, study: str, seen: str) -> AsyncIterator[str]:
        loop, quiet = asyncio.get_running_loop(), 0
        ends_at = loop.time() + STREAM_S
        yield ": open\n\n"
        while loop.time() < ends_at and not self._tester.stopping.requested:
            rings = self._tester.bell.rings
            try:
                found = await run_in_threadpool(self._tester.studies.summary, study)
            except (DatabaseError, ProblemError):
                return  # the browser comes back, and is told of a study that is not here any more
            if found["state"] not in OPEN:
                yield "event: ended\ndata: \n\n"
                return
            now, quiet = revision(found), quiet + 1
            if now != seen:
                seen, quiet = now, 0
                yield "event: changed\ndata: \n\n"
            elif quiet % KEEP_ALIVE_LOOKS == 0:
                yield ": still\n\n"
            await self._tester.bell.wait(rings, LOOK_S)
