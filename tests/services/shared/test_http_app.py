"""The HTTP boundary: what strangers may send, and what they get to see."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI, Query
from pydantic import Field
from starlette.responses import Response

from tacit_protocol.messages.encoding import MESSAGE_BYTES_MAX
from tacit_protocol.signing import PrivateKey, issue_token
from tacit_protocol.strict import StrictModel
from tacit_services.shared.database import DatabaseUnavailableError, StorageFullError
from tacit_services.shared.http_app import BearerToken, create_app, json_body, json_response

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
    app = make_app()

    def send(method: str, path: str, **options: Any) -> httpx.Response:
        async def run() -> httpx.Response:
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
                return await client.request(method, path, **options)

        return asyncio.run(run())

    return send


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

    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(app=make_app(away))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get("/readyz")

    response = asyncio.run(run())
    assert response.status_code == 503
    assert problem(response)["type"] == "urn:tacit:problem:not-ready"
