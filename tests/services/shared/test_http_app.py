"""The HTTP boundary: what strangers may send, how much and how slowly, and what they get to see."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import httpx
import pytest
import served
from fastapi import Depends, FastAPI, Query, Request
from hurried_loop import run_hurried
from pydantic import Field
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from tacit_protocol.messages.encoding import MESSAGE_BYTES_MAX
from tacit_protocol.signing import PrivateKey, issue_token
from tacit_protocol.strict import StrictModel
from tacit_services.shared.database import DatabaseUnavailableError, StorageFullError
from tacit_services.shared.http_app import (
    BearerToken,
    BodyLimit,
    BodyLimits,
    StreamedBodies,
    create_app,
    json_body,
    json_response,
)
from tacit_services.shared.problem_responses import RegisteredProblemError

CANARY = "canary-7391"
AUDIENCE = "https://service.example"
NOW = 1_800_000_000
KEY = PrivateKey.generate()


class Order(StrictModel):
    amount: float
    label: Annotated[str, Field(pattern="^[a-z]+$")] = "x"


def make_app(ready: Callable[[], None] = lambda: None) -> FastAPI:
    app = create_app(
        title="test",
        version="0",
        metrics_prefix="test",
        check_ready=ready,
        gauges=lambda: {"things": {"open": 3}},
    )

    @app.put("/orders/{name}")
    def order(body: Annotated[Order, Depends(json_body(Order))]) -> Response:
        return json_response({"amount": body.amount})

    @app.get("/slow")
    def slow(wait_s: Annotated[int, Query(ge=0, le=20)] = 0) -> Response:
        return json_response({"wait_s": wait_s})

    @app.get("/whoami")
    def whoami(key: Annotated[str, Depends(BearerToken(AUDIENCE, lambda: NOW))]) -> Response:
        return json_response({"key": key})

    @app.get("/broken")
    def broken() -> Response:
        raise RuntimeError(CANARY)

    @app.get("/away")
    def away() -> Response:
        raise DatabaseUnavailableError(CANARY)

    @app.get("/full")
    def full() -> Response:
        raise StorageFullError(CANARY)

    return app


@pytest.fixture
def call() -> Callable[..., httpx.Response]:
    return partial(served.call, make_app(), "http://test")


def put(call: Callable[..., httpx.Response], body: bytes, **headers: str) -> httpx.Response:
    defaults = {"content-type": "application/json"}
    return call("PUT", "/orders/a", content=body, headers=defaults | headers)


def problem(response: httpx.Response) -> dict[str, Any]:
    assert response.headers["content-type"] == "application/problem+json"
    assert CANARY not in response.text
    assert CANARY not in str(response.headers)
    document: dict[str, Any] = response.json()
    assert document["status"] == response.status_code
    return document


def test_what_is_wrong_is_a_problem_that_says_where(call: Callable[..., httpx.Response]) -> None:
    """That nothing is echoed, whatever is sent, is tried in tests/attacks/test_bad_input.py."""
    assert put(call, b'{"amount":1.5}').json() == {"amount": 1.5}
    answer = put(call, b'{"amount":"x"}')
    assert (answer.status_code, problem(answer)["path"]) == (400, "$.amount")
    answer = call("GET", "/slow", params={"wait_s": CANARY})
    assert (answer.status_code, problem(answer)["path"]) == (400, "query.wait_s")
    answer = call("DELETE", "/orders/a")
    assert problem(answer)["type"] == "urn:tacit:problem:method-not-allowed"
    assert answer.headers["allow"] == "PUT"
    for encoding in ("gzip", "identity, gzip", "GZIP"):
        answer = put(call, b'{"amount":1}', **{"content-encoding": encoding})
        assert (answer.status_code, problem(answer)["type"]) == (
            415,
            "urn:tacit:problem:unsupported-media-type",
        )


def test_a_body_past_the_cap_is_refused(call: Callable[..., httpx.Response]) -> None:
    for size in (MESSAGE_BYTES_MAX + 1, 10 * 2**20):
        response = put(call, b" " * size)
        assert response.status_code == 413
        assert problem(response)["type"] == "urn:tacit:problem:message-too-large"
        assert response.headers["connection"] == "close"
    assert put(call, b" " * (MESSAGE_BYTES_MAX - 12) + b'{"amount":1}').status_code == 200

    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 2**16

    response = call("PUT", "/orders/a", content=chunks(), headers={"content-type": "application/json"})
    assert response.status_code == 413


@pytest.mark.parametrize(
    ("path", "status", "slug"),
    [
        ("/broken", 500, "internal-error"),
        ("/away", 503, "database-unavailable"),
        ("/full", 507, "storage-full"),
    ],
)
def test_faults_are_problems_without_their_message(
    call: Callable[..., httpx.Response], path: str, status: int, slug: str, capsys: pytest.CaptureFixture[str]
) -> None:
    response = call("GET", path)
    assert response.status_code == status
    assert problem(response)["type"] == f"urn:tacit:problem:{slug}"
    assert problem(response)["instance"] == f"urn:tacit:request:{response.headers['x-request-id']}"
    assert ("retry-after" in response.headers) == (status in {503, 507})
    captured = capsys.readouterr()
    assert slug.replace("-", "_").split("_", maxsplit=1)[0] in captured.out + captured.err or status != 500
    assert CANARY not in captured.out + captured.err


def test_tokens_open_and_nothing_else_does(call: Callable[..., httpx.Response]) -> None:
    token = issue_token(KEY, AUDIENCE, NOW)
    good = call("GET", "/whoami", headers={"authorization": f"Bearer {token}"})
    assert good.json() == {"key": KEY.public_hex}
    foreign = issue_token(KEY, "https://other.example", NOW)
    for headers in (
        [],
        [("authorization", token)],
        [("authorization", f"Basic {token}")],
        [("authorization", f"Bearer {token}x")],
        [("authorization", f"Bearer {foreign}")],
        [("authorization", f"Bearer {token}")] * 2,
        [("authorization", "Bearer \xe9")],
    ):
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        response = call("GET", "/whoami", headers=raw)
        assert response.status_code == 401
        assert response.headers["www-authenticate"] == "Bearer"
        assert problem(response)["type"] == "urn:tacit:problem:unauthenticated"


def test_health_readiness_and_metrics(call: Callable[..., httpx.Response]) -> None:
    assert call("GET", "/healthz").json() == {"status": "alive"}
    assert call("GET", "/readyz").json() == {"status": "ready"}
    put(call, b'{"amount":1}')
    call("GET", f"/{CANARY}")
    text = call("GET", "/metrics").text
    assert 'test_requests_total{method="PUT",route="/orders/{name}",status="200"} 1' in text
    assert 'test_requests_total{method="GET",route="none",status="404"} 1' in text
    assert 'test_things{state="open"} 3' in text
    assert CANARY not in text


def test_not_ready_is_a_problem() -> None:
    def away() -> None:
        raise DatabaseUnavailableError(CANARY)

    response = served.call(make_app(away), "http://test", "GET", "/readyz")
    assert response.status_code == 503
    assert problem(response)["type"] == "urn:tacit:problem:not-ready"


SIZE_BYTES_MAX = 10_000
TIMEOUT_S = 0.3
PACE = BodyLimit(SIZE_BYTES_MAX, TIMEOUT_S, bytes_per_s_min=1000.0, too_large="upload-too-large")


def streaming_app() -> FastAPI:
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


def put_body(path: str, content: bytes | Iterable[bytes]) -> httpx.Response:
    async def pieces() -> AsyncIterator[bytes]:
        for piece in content:
            yield piece

    body = content if isinstance(content, bytes) else pieces()
    return served.call(streaming_app(), "http://test", "PUT", path, content=body)


@pytest.mark.parametrize("announced", [True, False])
def test_a_streamed_route_has_a_size_of_its_own(announced: bool) -> None:
    def body(size: int) -> bytes | list[bytes]:
        return bytes(size) if announced else [bytes(1000)] * (size // 1000)

    assert put_body("/files/a", body(SIZE_BYTES_MAX)).json() == {"size": SIZE_BYTES_MAX}
    refused = put_body("/files/a", body(SIZE_BYTES_MAX + 1000))
    assert (refused.status_code, refused.json()["type"]) == (413, "urn:tacit:problem:upload-too-large")
    assert put_body("/others/a", body(SIZE_BYTES_MAX + 1000)).status_code == 200, (
        "other routes have their own"
    )


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
    with pytest.raises(RegisteredProblemError) as refused:
        pieces_taken(size_bytes=1, pause_s=0.05, pieces=100)  # 5 s, at 20 B/s
    assert refused.value.problem.slug == "request-timeout"


def test_a_sender_that_stands_still_is_timed_out() -> None:
    with pytest.raises(RegisteredProblemError) as refused:
        pieces_taken(size_bytes=1, pause_s=60, pieces=1)
    assert refused.value.problem.slug == "request-timeout"


def test_the_readers_own_time_does_not_count() -> None:
    assert pieces_taken(size_bytes=1, pause_s=0, pieces=4, thinks_s=0.2) == 4
