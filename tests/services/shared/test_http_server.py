"""A real socket: slow, endless and oversized requests are ended by the server."""

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from fastapi import Request
from starlette.responses import Response

from tacit_services.shared import http_server
from tacit_services.shared.http_app import create_app, json_bytes, json_response
from tacit_services.shared.http_server import HEADER_BYTES_MAX, Stopping, make_server

PATIENCE_S = 120
"""Of a client that waits to be hung up on, and of a server where nothing is to be timed out."""


@dataclass(frozen=True)
class Limits:
    """How long a server waits for headers and for a body."""

    header_s: float = PATIENCE_S
    body_s: float = PATIENCE_S


NO_HEADERS_WAITED_FOR = pytest.mark.parametrize("limits", [Limits(header_s=2.0)])
NO_BODY_WAITED_FOR = pytest.mark.parametrize("limits", [Limits(body_s=0.3)])
"""Two seconds, in which a first request must arrive whole; and a time in which nothing need arrive."""


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch, limits: Limits) -> Iterator[tuple[str, int]]:
    """A server with these time limits, on a port of its own."""
    monkeypatch.setattr(http_server, "HEADER_TIMEOUT_S", limits.header_s)
    app = create_app(
        title="test",
        version="0",
        metrics_prefix="test",
        check_ready=lambda: None,
        body_timeout_s=limits.body_s,
    )

    @app.put("/echo")
    async def echo(request: Request) -> Response:
        return json_response({"size": len(await json_bytes(request))})

    server = make_server(app, "127.0.0.1", 0, Stopping())
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        thread.join(0.005)
    yield server.servers[0].sockets[0].getsockname()
    server.should_exit = True
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def _exchange(address: tuple[str, int], *pieces: bytes) -> bytes:
    """Send pieces and read until the server closes."""
    with socket.create_connection(address, timeout=PATIENCE_S) as connection:
        for piece in pieces:
            connection.sendall(piece)
        received = b""
        while data := connection.recv(2**16):
            received += data
    return received


HEAD = b"PUT /echo HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"


@NO_HEADERS_WAITED_FOR
def test_headers_that_never_end_are_dropped(address: tuple[str, int]) -> None:
    assert _exchange(address) == b""
    assert _exchange(address, b"GET /healthz HTTP/1.1\r\nhost: a\r\nx-slow: ") == b""


@NO_HEADERS_WAITED_FOR
def test_slow_headers_after_a_first_request_are_dropped(address: tuple[str, int]) -> None:
    first = b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n"
    received = _exchange(address, first, b"GET /healthz HTTP/1.1\r\nhost: a\r\nx-slow: ")
    assert received.count(b"HTTP/1.1 200") == 1


@NO_BODY_WAITED_FOR
def test_a_body_that_never_ends_is_timed_out(address: tuple[str, int]) -> None:
    received = _exchange(address, HEAD + b"content-length: 100\r\n\r\n", b"{")
    assert received.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in received.lower()


def test_a_body_that_nobody_reads_is_dropped(address: tuple[str, int]) -> None:
    request = b"GET /healthz HTTP/1.1\r\nhost: a\r\ncontent-length: 100\r\n\r\n"
    assert _exchange(address, request, b"{").startswith(b"HTTP/1.1 200")


def test_an_oversized_body_gets_its_refusal(address: tuple[str, int]) -> None:
    size = 10 * 2**20
    head = HEAD + f"content-length: {size}\r\n\r\n".encode()
    received = _exchange(address, head, b"x" * size)
    assert received.startswith(b"HTTP/1.1 413")
    document = json.loads(received.partition(b"\r\n\r\n")[2])
    assert document["type"] == "urn:tacit:problem:message-too-large"


def test_oversized_headers_are_refused(address: tuple[str, int]) -> None:
    request = b"GET /healthz HTTP/1.1\r\nhost: a\r\nx-big: " + b"x" * (HEADER_BYTES_MAX + 10)
    assert _exchange(address, request).startswith(b"HTTP/1.1 400")


def test_the_server_does_not_say_what_it_is(address: tuple[str, int]) -> None:
    request = b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
    assert b"uvicorn" not in _exchange(address, request).lower()
