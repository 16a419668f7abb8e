"""Limits of a route whose body is a stream: its own size, and a pace instead of one time limit."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace

import httpx
import pytest
from fastapi import FastAPI, Request
from hurried_loop import run_hurried
from starlette.types import Message, Receive, Scope, Send

from tacit_services.shared.http_app import (
    BodyLimit,
    BodyLimits,
    StreamedBodies,
    create_app,
)
from tacit_services.shared.problem_responses import ProblemError

SIZE_BYTES_MAX = 10_000
TIMEOUT_S = 0.3
PACE = BodyLimit(SIZE_BYTES_MAX, TIMEOUT_S, bytes_per_s_min=1000.0, too_large="upload-too-large")


def app() -> FastAPI:
    unhurried = replace(PACE, timeout_s=600.0)
    streamed = StreamedBodies("PUT", re.compile("/files/[^/]+"), unhurried)
    app = create_app(
        title="test", version="0", metrics_prefix="test", check_ready=lambda: None, streamed=streamed
    )

    @app.put("/files/{name}")
    @app.put("/others/{name}")
    async def take(request: Request) -> dict[str, int]:
        return {"size": sum([len(piece) async for piece in request.stream()])}

    return app


def put(path: str, content: bytes | Iterable[bytes]) -> httpx.Response:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in content:
            yield piece

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(app=app())
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            body = content if isinstance(content, bytes) else pieces()
            return await client.put(path, content=body)

    return asyncio.run(send())


@pytest.mark.parametrize("announced", [True, False])
def test_a_streamed_route_has_a_size_of_its_own(announced: bool) -> None:
    def body(size: int) -> bytes | list[bytes]:
        return bytes(size) if announced else [bytes(1000)] * (size // 1000)

    assert put("/files/a", body(SIZE_BYTES_MAX)).json() == {"size": SIZE_BYTES_MAX}
    refused = put("/files/a", body(SIZE_BYTES_MAX + 1000))
    assert (refused.status_code, refused.json()["type"]) == (413, "urn:tacit:problem:upload-too-large")
    assert put("/others/a", body(SIZE_BYTES_MAX + 1000)).status_code == 200, "other routes have their own"


def pieces_taken(size_bytes: int, pause_s: float, pieces: int, thinks_s: float = 0.0) -> int:
    """Let a sender send pieces with pauses to a reader that thinks; return how many were taken."""
    taken = 0

    async def receive() -> Message:
        await asyncio.sleep(pause_s)
        return {"type": "http.request", "body": bytes(size_bytes), "more_body": taken + 1 < pieces}

    async def read(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal taken
        while taken < pieces:
            await receive()
            taken += 1
            await asyncio.sleep(thinks_s)

    scope = {"type": "http", "method": "PUT", "path": "/files/a", "headers": []}
    limits = BodyLimits(read, streamed=StreamedBodies("PUT", re.compile("/files/[^/]+"), PACE))
    run_hurried(limits(scope, receive, _ignore))
    return taken


async def _ignore(_: Message) -> None:
    return None


def test_a_steady_sender_may_take_longer_than_the_time_limit() -> None:
    assert pieces_taken(size_bytes=500, pause_s=0.05, pieces=12) == 12  # 0.6 s, at 10 kB/s


def test_a_sender_that_drips_is_timed_out_though_it_never_stands_still() -> None:
    with pytest.raises(ProblemError) as refused:
        pieces_taken(size_bytes=1, pause_s=0.05, pieces=100)  # 5 s, at 20 B/s
    assert refused.value.problem.slug == "request-timeout"


def test_a_sender_that_stands_still_is_timed_out() -> None:
    with pytest.raises(ProblemError) as refused:
        pieces_taken(size_bytes=1, pause_s=60, pieces=1)
    assert refused.value.problem.slug == "request-timeout"


def test_the_readers_own_time_does_not_count() -> None:
    assert pieces_taken(size_bytes=1, pause_s=0, pieces=4, thinks_s=0.2) == 4
