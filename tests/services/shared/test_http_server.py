"""A real socket: slow, endless and oversized requests are ended by the server, and who keeps a connection."""

import asyncio
import contextlib
import gc
import json
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import served
from certificates import client_hello, write_certificate
from fastapi import Request
from starlette.responses import Response

from tacit_services.shared import http_server
from tacit_services.shared.http_app import PIECE_BYTES_MIN, PIECES_FREE, create_app, json_bytes, json_response
from tacit_services.shared.http_server import (
    FILES_SPARE,
    HEADER_BYTES_MAX,
    KEPT_PER_CALLER,
    REFUSED_MAX,
    ConnectionSlot,
    ConnectionSlots,
    ConnectionState,
    Server,
    TimedProtocol,
    Tls,
    make_room,
    recognise,
    tls_context,
    when_gone,
)
from tacit_services.shared.settings import SettingsError

PATIENCE_S = 120
"""Of a client that waits to be hung up on, and of a server where nothing is to be timed out."""


@dataclass(frozen=True)
class Limits:
    """How long a server waits for headers and for a body."""

    header_s: float = PATIENCE_S
    body_s: float = PATIENCE_S


HASTE_S = 0.3
"""A time in which nothing need arrive."""

NO_BODY_WAITED_FOR = pytest.mark.parametrize("limits", [Limits(body_s=HASTE_S)])


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

    @app.get("/hurry")
    async def hurry() -> Response:
        """Have no headers waited for from now on."""
        monkeypatch.setattr(http_server, "HEADER_TIMEOUT_S", HASTE_S)
        return json_response({})

    with served.running(app) as (server, _):
        yield served.address_of(server)


def _exchange(address: tuple[str, int], *pieces: bytes) -> bytes:
    """Send pieces and read until the server closes.

    A server that closes before it has read a piece resets the connection, which is a way of closing: what
    it had answered by then is still received.
    """
    with socket.create_connection(address, timeout=PATIENCE_S) as connection:
        with contextlib.suppress(ConnectionResetError, BrokenPipeError):
            for piece in pieces:
                connection.sendall(piece)
        return _read(connection)


def _read(connection: socket.socket, until: bytes = b"nothing that is ever sent") -> bytes:
    """Read until these bytes have come, or the server closes."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while until not in received and (data := connection.recv(2**16)):
            received += data
    return received


HEAD = b"PUT /echo HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"


@pytest.mark.parametrize("at_once", [True, False])
def test_slow_headers_after_a_first_request_are_dropped(address: tuple[str, int], at_once: bool) -> None:
    """They come with the first request, or after its answer."""
    first = b"GET /hurry HTTP/1.1\r\nhost: a\r\n\r\n"
    slow = b"GET /healthz HTTP/1.1\r\nhost: a\r\nx-slow: "
    with socket.create_connection(address, timeout=PATIENCE_S) as connection:
        connection.sendall(first + slow if at_once else first)
        received = _read(connection, b"{}")
        if not at_once:
            connection.sendall(slow)
        received += _read(connection)
    assert received.count(b"HTTP/1.1 200") == 1


@NO_BODY_WAITED_FOR
def test_a_body_that_never_ends_is_timed_out(address: tuple[str, int]) -> None:
    received = _exchange(address, HEAD + b"content-length: 100\r\n\r\n", b"{")
    assert received.startswith(b"HTTP/1.1 408")
    assert b"connection: close" in received.lower()


def test_a_burst_carries_no_more_header_bytes_than_a_slow_request(address: tuple[str, int]) -> None:
    """All of them arrive at once, their end included."""
    line = b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\nx-big: "
    largest = HEADER_BYTES_MAX - len(line) - 4
    assert _exchange(address, line + b"x" * largest + b"\r\n\r\n").startswith(b"HTTP/1.1 200")
    for size in (largest + 1, 65_000):
        assert _exchange(address, line + b"x" * size + b"\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_headers_sent_ahead_of_an_answer_have_the_same_limit(address: tuple[str, int]) -> None:
    ahead = b"GET /healthz HTTP/1.1\r\nhost: a\r\nx-big: " + b"x" * 65_000 + b"\r\n\r\n"
    received = _exchange(address, b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n" + ahead)
    assert received.count(b"HTTP/1.1 200") <= 1
    body = HEAD + b"content-length: 40000\r\n\r\n" + b"x" * 40_000
    assert _exchange(address, body + ahead).count(b"HTTP/1.1 200") <= 1


CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"


def test_a_body_of_one_byte_chunks_is_refused_after_a_thousand(
    address: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a million, no more are parsed than may be, whatever has arrived."""
    parsed = 0
    read = http_server.h11.Connection.next_event

    def counted(connection: http_server.h11.Connection) -> object:
        nonlocal parsed
        event = read(connection)
        parsed += isinstance(event, http_server.h11.Data)
        return event

    monkeypatch.setattr(http_server.h11.Connection, "next_event", counted)
    received = _exchange(address, CHUNKED, b"1\r\nx\r\n" * 10**6)
    assert parsed <= PIECES_FREE + PIECES_FREE // PIECE_BYTES_MIN + 1
    # A caller that goes on sending is reset, and may lose the answer.
    assert received == b"" or received.startswith(b"HTTP/1.1 400")


def test_a_caller_that_stops_reads_why_its_chunks_were_refused(address: tuple[str, int]) -> None:
    received = _exchange(address, CHUNKED, b"1\r\nx\r\n" * (PIECES_FREE + 100))
    assert received.startswith(b"HTTP/1.1 400")
    assert json.loads(received.partition(b"\r\n\r\n")[2])["detail"].startswith("the body came in too many")


def test_chunks_of_a_fair_size_are_taken(address: tuple[str, int]) -> None:
    for size, count in ((1, 500), (PIECE_BYTES_MIN, 8000), (2**14, 60)):
        chunk = f"{size:x}\r\n".encode() + b"x" * size + b"\r\n"
        with socket.create_connection(address, timeout=PATIENCE_S) as connection:
            connection.sendall(CHUNKED + chunk * count + b"0\r\n\r\n")
            assert f'"size":{size * count}'.encode() in _read(connection, b"}")


# More connections than there may be.


@contextlib.contextmanager
def running(connections_max: int, gone: list[str], tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    """A server of so few connections; ``/wait`` and ``/late`` wait until their caller has gone.

    ``/late`` asks to be told of it when it has happened already. ``/known`` takes its caller for a known one.
    """
    app = create_app(title="test", version="0", metrics_prefix="test", check_ready=lambda: None)

    @app.get("/wait")
    async def wait(request: Request) -> Response:
        lost = asyncio.Event()
        when_gone(request.scope, lost.set)
        await lost.wait()
        gone.append("gone")
        return json_response({})

    @app.get("/late")
    async def late(request: Request) -> Response:
        while not await request.is_disconnected():
            await asyncio.sleep(0.005)
        return await wait(request)

    @app.get("/known")
    async def known(request: Request) -> Response:
        recognise(request.scope, "a caller")
        return json_response({"status": "alive"})

    @app.put("/back")
    async def back(request: Request) -> Response:
        return Response(await request.body())

    with pytest.MonkeyPatch.context() as patch:
        # Connections are held before they are used.
        patch.setattr(http_server, "HEADER_TIMEOUT_S", PATIENCE_S)
        with served.running(app, connections_max=connections_max, tls=tls) as (server, _):
            yield server


def _ask(connection: socket.socket, path: str = "/healthz") -> None:
    connection.sendall(f"GET {path} HTTP/1.1\r\nhost: a\r\n\r\n".encode())


def _answer(connection: socket.socket) -> bytes:
    connection.settimeout(PATIENCE_S)
    received = b""
    while b"alive" not in received:
        piece = connection.recv(2**16)
        assert piece, received
        received += piece
    return received


def test_a_surplus_connection_is_told_to_come_later_and_those_that_hold_are_served() -> None:
    gone: list[str] = []
    with running(2, gone) as server, contextlib.ExitStack() as stack:
        address = served.address_of(server)
        held = [stack.enter_context(socket.create_connection(address)) for _ in range(2)]
        for connection in held:
            _ask(connection, "/known")
            assert _answer(connection).startswith(b"HTTP/1.1 200")
        refused = _exchange(address, b"PUT /wait HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n")
        head, _, body = refused.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 503")
        assert b"connection: close" in head.lower()
        document = json.loads(body)
        assert document["type"] == "urn:tacit:problem:at-capacity"
        assert f"retry-after: {document['retry_after_s']}\r\n".encode() in head.lower() + b"\r\n"
        assert 5 <= document["retry_after_s"] <= 15
        _ask(held[0])
        assert _answer(held[0]).startswith(b"HTTP/1.1 200"), "who was there stays"
        held.pop().close()
        until = time.monotonic() + PATIENCE_S
        once = b"GET /healthz HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        while not _exchange(address, once).startswith(b"HTTP/1.1 200"):
            assert time.monotonic() < until, "there is room again"
    assert gone == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate of its own, and its key beside it."""
    return write_certificate(tmp_path_factory.mktemp("tls"))


def _shaken(stack: contextlib.ExitStack, address: tuple[str, int], certificate: Path) -> ssl.SSLSocket:
    plain = socket.create_connection(address, timeout=PATIENCE_S)
    context = ssl.create_default_context(cafile=str(certificate))
    return stack.enter_context(context.wrap_socket(plain, server_hostname=address[0]))


@pytest.mark.parametrize("with_tls", [False, True])
def test_idle_callers_without_a_token_keep_nobody_out(with_tls: bool, certificate: Path) -> None:
    """They hold every connection there is, with TLS before their handshake, and never say a word."""
    tls = tls_context(certificate, certificate.with_suffix(".key")) if with_tls else None
    with running(10, [], tls) as server, contextlib.ExitStack() as stack:
        address = served.address_of(server)
        silent = [stack.enter_context(socket.create_connection(address)) for _ in range(40)]
        for _ in range(3):
            caller = (
                _shaken(stack, address, certificate)
                if with_tls
                else stack.enter_context(socket.create_connection(address))
            )
            _ask(caller, "/known")
            assert _answer(caller).startswith(b"HTTP/1.1 200")
        assert server.places.taken <= 10
        assert len(server.server_state.connections) <= 10
        for connection in silent[:30]:
            connection.settimeout(PATIENCE_S)
            with contextlib.suppress(ConnectionResetError):
                assert connection.recv(1) == b"", "it gave way"
        _ask(caller, "/known")
        assert _answer(caller).startswith(b"HTTP/1.1 200"), "who is known stays"


def test_handshakes_that_do_not_end_are_counted_and_dropped(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "HANDSHAKE_TIMEOUT_S", HASTE_S)
    told: list[str] = []
    monkeypatch.setattr(http_server.ConnectionSlots, "tell", lambda _, event: told.append(event))
    with running(10, [], tls_context(certificate, certificate.with_suffix(".key"))) as server:
        address = served.address_of(server)
        assert _exchange(address) == b""
        assert _exchange(address, b"\x16\x03\x01") == b"", "a handshake that has begun"
        assert told == ["handshake_failed"] * 2
        assert server.places.taken == 0


def _alive(*kinds: type) -> int:
    gc.collect()
    return sum(type(found) in kinds for found in gc.get_objects())


@contextlib.contextmanager
def holding(count: int, certificate: Path, depth: str) -> Iterator[Server]:
    """A server with TLS of 100 connections; so many are silent before, within or after their handshake."""
    tls = tls_context(certificate, certificate.with_suffix(".key"))
    with running(100, [], tls) as server, contextlib.ExitStack() as stack:
        address = served.address_of(server)
        for _ in range(count):
            if depth == "after":
                _shaken(stack, address, certificate)
            else:
                connection = stack.enter_context(socket.create_connection(address, timeout=PATIENCE_S))
                if depth == "within":
                    connection.sendall(client_hello())
                    assert connection.recv(1), "the handshake has begun"
        while server.places.taken < count:
            time.sleep(0.005)
        yield server


@pytest.mark.long
def test_nothing_is_made_for_a_connection_before_it_needs_it(certificate: Path) -> None:
    """No TLS before the first byte, no HTTP before the first one over TLS; who asks is served meanwhile."""
    for depth, tls, http in (("before", 0, 0), ("after", 40, 0)):
        made = _alive(Tls), _alive(TimedProtocol)
        with holding(40, certificate, depth) as server, contextlib.ExitStack() as stack:
            assert _alive(Tls) - made[0] == tls
            assert _alive(TimedProtocol) - made[1] == http
            caller = _shaken(stack, served.address_of(server), certificate)
            _ask(caller, "/known")
            assert _answer(caller).startswith(b"HTTP/1.1 200")
            assert server.places.taken == 41


@pytest.mark.long
def test_the_oldest_handshake_gives_way_where_there_are_as_many_as_may_be(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "HANDSHAKES_MAX", 8)
    before = _alive(Tls)
    with holding(8, certificate, "within") as server, contextlib.ExitStack() as stack:
        address = served.address_of(server)
        for _ in range(3):
            caller = _shaken(stack, address, certificate)
            _ask(caller, "/known")
            assert _answer(caller).startswith(b"HTTP/1.1 200")
        for _ in range(30):
            connection = stack.enter_context(socket.create_connection(address, timeout=PATIENCE_S))
            connection.sendall(client_hello())
            assert connection.recv(1), "newcomers are heard"
            assert len(server.places.handshakes) <= 8
        while server.places.taken > 8 + 3:
            time.sleep(0.005)
        assert _alive(Tls) - before <= 8 + 3
        _ask(caller, "/known")
        assert _answer(caller).startswith(b"HTTP/1.1 200"), "who has shaken hands stays"


@pytest.mark.long
def test_a_lost_connection_is_not_held_until_an_idle_one_would_be_closed(certificate: Path) -> None:
    """Nor does a kept one hold its last request."""
    tls = tls_context(certificate, certificate.with_suffix(".key"))
    with running(100, [], tls) as server, contextlib.ExitStack() as stack:
        address = served.address_of(server)
        before = _alive(Tls, TimedProtocol)
        caller = _shaken(stack, address, certificate)
        _ask(caller)
        assert b"200" in _answer(caller)
        _ask(caller)
        assert b"200" in _answer(caller), "the first answer's request is over"
        (kept,) = server.server_state.connections
        until = time.monotonic() + PATIENCE_S
        while kept.scope is not None or kept.cycle is not None:
            assert time.monotonic() < until
            time.sleep(0.005)
        del kept
        caller.close()  # without TLS's word of goodbye
        while _alive(Tls, TimedProtocol) > before:
            assert time.monotonic() < until
            time.sleep(0.05)


def test_tls_connections_share_their_buffers(certificate: Path) -> None:
    """asyncio's own hold a quarter of a mebibyte each, before anything was said."""
    with (
        running(10, [], tls_context(certificate, certificate.with_suffix(".key"))) as server,
        contextlib.ExitStack() as stack,
    ):
        address = served.address_of(server)
        for _ in range(3):
            caller = _shaken(stack, address, certificate)
            _ask(caller)
            assert b"200" in _answer(caller)
        found = [c.transport._ssl_protocol for c in server.server_state.connections]
        assert len(found) == 3
        held = {id(protocol._ssl_buffer): len(protocol._ssl_buffer) for protocol in found}
        assert list(held.values()) == [http_server.READ_BYTES]


def test_a_large_body_and_answer_pass_tls_whole(certificate: Path) -> None:
    tls = tls_context(certificate, certificate.with_suffix(".key"))
    with running(10, [], tls) as server, contextlib.ExitStack() as stack:
        caller = _shaken(stack, served.address_of(server), certificate)
        body = bytes(range(256)) * 2**12
        head = b"PUT /back HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 1048576\r\n\r\n"
        caller.sendall(head + body)
        assert _read(caller).partition(b"\r\n\r\n")[2] == body


def test_a_certificate_that_cannot_be_used_is_told_before_the_service_starts(
    certificate: Path, tmp_path: Path
) -> None:
    assert tls_context(None, None) is None
    with pytest.raises(SettingsError, match="need each other"):
        tls_context(certificate, None)
    with pytest.raises(SettingsError, match="cannot be used"):
        tls_context(certificate, tmp_path / "missing")


@pytest.mark.parametrize("path", ["/wait", "/late"])
def test_a_request_that_waits_hears_that_its_caller_has_gone(path: str) -> None:
    gone: list[str] = []
    with running(2, gone) as server:
        address = served.address_of(server)
        with socket.create_connection(address) as connection:
            _ask(connection, path)
            with socket.create_connection(address) as other:
                _ask(other)
                assert _answer(other), "by now the first one is being served"
        until = time.monotonic() + PATIENCE_S
        while not gone:
            assert time.monotonic() < until
            time.sleep(0.005)


def test_room_for_connections_is_made_up_to_what_the_system_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = (1024, 4096)
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(http_server.resource, "getrlimit", lambda _: limits)
    monkeypatch.setattr(http_server.resource, "setrlimit", lambda _, limit: raised.append(limit))
    make_room(500)
    assert raised == []
    make_room(3000)
    assert raised == [(3000 + FILES_SPARE, 4096)]
    with pytest.raises(SettingsError, match=f"Set connections_max to {4096 - FILES_SPARE} or less"):
        make_room(4000)
    limits = (1024, http_server.resource.RLIM_INFINITY)
    make_room(50_000)
    assert raised[1:] == [(50_000 + FILES_SPARE, http_server.resource.RLIM_INFINITY)]
    limits = (http_server.resource.RLIM_INFINITY, http_server.resource.RLIM_INFINITY)
    make_room(50_000)
    assert len(raised) == 2


class Wire(asyncio.Transport):
    """A connection that notes whether it was aborted."""

    def __init__(self) -> None:
        super().__init__()
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def take(places: ConnectionSlots) -> tuple[ConnectionSlot, Wire]:
    wire = Wire()
    place = places.take(wire)
    assert place is not None
    return place, wire


def test_a_newcomer_gets_the_place_of_whoever_has_been_idle_for_longest() -> None:
    places = ConnectionSlots(3)
    held = [take(places) for _ in range(3)]
    held[0][0].use()
    newcomer, wire = take(places)
    assert [found.aborted for _, found in held] == [False, True, False]
    assert (newcomer.standing, wire.aborted, places.taken) == (ConnectionState.ASKING, False, 3)
    held[1][0].leave()  # its connection is lost only now: the place is not freed twice
    assert places.taken == 3


def test_a_known_caller_never_gives_way() -> None:
    places = ConnectionSlots(2)
    known, wire = take(places)
    known.recognise("agent")
    for _ in range(10):
        take(places)
    assert not wire.aborted
    assert (places.taken, places.strangers) == (2, 1)


def test_where_everyone_is_known_newcomers_are_told_and_then_closed_unheard() -> None:
    places = ConnectionSlots(2)
    for key in ("one", "two"):
        take(places)[0].recognise(key)
    told = [take(places) for _ in range(REFUSED_MAX)]
    assert {place.standing for place, _ in told} == {ConnectionState.SURPLUS}
    unheard = Wire()
    assert places.take(unheard) is None
    assert unheard.aborted
    told[0][0].leave()
    assert take(places)[0].standing is ConnectionState.SURPLUS


def test_one_caller_cannot_keep_every_place_for_itself() -> None:
    places = ConnectionSlots(2 * KEPT_PER_CALLER)
    for _ in range(2 * KEPT_PER_CALLER):
        take(places)[0].recognise("greedy")
    assert places.strangers == KEPT_PER_CALLER
    other, _ = take(places)
    other.recognise("modest")
    assert places.strangers == KEPT_PER_CALLER - 1


def test_what_callers_cause_is_logged_once_in_a_while_with_its_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr(
        http_server.log, "warning", lambda event, **said: lines.append({"event": event, **said})
    )
    now_s = 1000.0
    monkeypatch.setattr(http_server.time, "monotonic", lambda: now_s)
    places = ConnectionSlots(1)
    for _ in range(5000):
        take(places)
    now_s += http_server.LOG_PERIOD_S
    take(places)
    assert [line["times"] for line in lines] == [1, 4999], json.dumps(lines)
