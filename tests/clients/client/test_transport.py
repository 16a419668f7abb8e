"""Requests are bounded and retried where that is harmless; answers are never believed beyond the protocol."""

import asyncio
from collections.abc import Callable, Iterator

import httpx
import pytest

from tacit.client.http import MESSAGE_SIZE_MAX, HttpRequest
from tacit.client.transport import ATTEMPTS_MAX, AsyncHttpTransport, HttpTransport
from tacit.errors import ResponseError, TransportError

GET = HttpRequest("GET", "/v1/identity", signed=False)


def transport(
    answer: Callable[[httpx.Request], httpx.Response], slept: list[float] | None = None
) -> HttpTransport:
    pauses = [] if slept is None else slept
    return HttpTransport("https://tester.example", inner=httpx.MockTransport(answer), sleep=pauses.append)


class Endless(httpx.SyncByteStream):
    """A body that never ends; counts what was read."""

    def __init__(self) -> None:
        self.sent = 0

    def __iter__(self) -> Iterator[bytes]:
        while True:
            self.sent += 65536
            yield b"x" * 65536


def test_a_body_without_end_is_read_no_further_than_the_cap() -> None:
    body = Endless()
    with pytest.raises(ResponseError, match="longer"):
        transport(lambda _: httpx.Response(200, stream=body)).send(GET)
    assert body.sent <= MESSAGE_SIZE_MAX + 2 * 65536


def test_a_compressed_answer_is_refused_before_it_unfolds() -> None:
    def bomb(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, headers={"content-encoding": "gzip"}, stream=Endless())

    with pytest.raises(ResponseError, match="compressed"):
        transport(bomb).send(GET)


def test_a_redirect_is_not_followed() -> None:
    hosts: list[str] = []

    def away(request: httpx.Request) -> httpx.Response:
        hosts.append(request.url.host)
        return httpx.Response(307, headers={"location": "https://elsewhere.example/"})

    assert transport(away).send(GET).status == 307
    assert hosts == ["tester.example"]


def test_a_repeatable_request_is_sent_again_with_a_fresh_token() -> None:
    tokens: list[str | None] = []

    def broken(request: httpx.Request) -> httpx.Response:
        tokens.append(request.headers.get("authorization"))
        raise httpx.ConnectError("refused")

    issued = iter("abcdefgh")
    sender = HttpTransport(
        "https://tester.example",
        lambda: next(issued),
        inner=httpx.MockTransport(broken),
        sleep=lambda _: None,
    )
    with pytest.raises(TransportError, match=r"https://tester\.example \(ConnectError\)"):
        sender.send(HttpRequest("PUT", "/v1/studies/1", body=b"{}"))
    assert tokens == ["Bearer a", "Bearer b", "Bearer c", "Bearer d"]
    assert len(tokens) == ATTEMPTS_MAX


def test_a_certificate_that_is_not_trusted_is_not_tried_again() -> None:
    sent: list[str] = []

    def distrusted(request: httpx.Request) -> httpx.Response:
        sent.append(str(request.url))
        raise httpx.ConnectError("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")

    with pytest.raises(TransportError, match="is not trusted here"):
        transport(distrusted).send(GET)
    assert len(sent) == 1


def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    sender = HttpTransport("https://tester.example")
    assert sender._http._mounts == {}
    sender.close()


def test_the_asynchronous_transport_is_bounded_too() -> None:
    async def send(answer: httpx.Response) -> int:
        sender = AsyncHttpTransport("https://t.example", inner=httpx.MockTransport(lambda _: answer))
        try:
            return (await sender.send(GET)).status
        finally:
            await sender.close()

    assert asyncio.run(send(httpx.Response(200))) == 200
    with pytest.raises(ResponseError, match="longer"):
        asyncio.run(send(httpx.Response(200, content=b"x" * (MESSAGE_SIZE_MAX + 1))))
    with pytest.raises(ResponseError, match="compressed"):
        asyncio.run(
            send(httpx.Response(200, headers={"content-encoding": "br"}, stream=httpx.ByteStream(b"")))
        )


def test_a_request_that_was_taken_and_not_answered_may_still_take_effect() -> None:
    def silent(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadTimeout("", request=request)

    with pytest.raises(TransportError, match=r"may still take effect\. Look before you ask again"):
        transport(silent).send(HttpRequest("POST", "/v1/studies", signed=False))
