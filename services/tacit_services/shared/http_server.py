"""Running an app: slow, idle and surplus connections are dropped, and SIGTERM stops it within five seconds.

A service has so many places. A connection takes one when it is accepted, before TLS and before it has said
anything. It is a stranger's until the service has recognised a caller's token or session on it. While all
places are taken, a newcomer gets that of the stranger who has been idle for longest; where every place is a
known caller's, the newcomer is told to come again. So callers without a token, however many connections they
hold, keep nobody out who asks at once. No network address is looked at: behind a proxy all are the same.

Nothing is made for a connection before it needs it: TLS from its first byte on, HTTP from the first byte that
was sent over TLS. Of the connections that shake hands, the longest at it gives way to one more than may be.
"""

import asyncio
import errno
import resource
import secrets
import signal
import socket
import ssl
import time
from asyncio import sslproto
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any, cast

import h11
import structlog
import uvicorn
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tacit_services.shared.http_app import CRUMBLED, PIECE_BYTES_MIN, PIECES_FREE
from tacit_services.shared.problem_responses import RegisteredProblemError, problem_response
from tacit_services.shared.settings import SettingsError

READ_BYTES = 2**16
"""Bytes taken from one connection at once: what their parsing takes, others wait for."""

REFUSED_MAX = 128
"""Most connections beyond the places that are told to come again later; further ones are closed unheard."""

KEPT_PER_CALLER = 32
"""Connections of one caller that do not give way. An agent has two or three; nobody fills a service alone."""

HANDSHAKE_TIMEOUT_S = 10
"""How long a TLS handshake may take: three round trips on the slowest of links."""

HANDSHAKE_LAST_S = 0.001
"""What a handshake has at least, whose first byte came at the end of that time."""

HANDSHAKES_MAX = 384
"""Most TLS handshakes at once: each takes 50 KiB, twice what a connection takes that has shaken hands."""

LOG_PERIOD_S = 10.0
"""Least time between two log lines about one kind of refused connection; each says how many there were."""

log = structlog.get_logger()


class ConnectionState(Enum):
    """What a connection may do."""

    ASKING = "served"
    SURPLUS = "told to come again, and closed"
    LEFT = "closed"


class ConnectionSlot:
    """One connection's place."""

    __slots__ = ("_places", "is_used", "key", "standing", "transport")

    def __init__(
        self, places: "ConnectionSlots", transport: asyncio.Transport, standing: ConnectionState
    ) -> None:
        self._places, self.transport, self.standing = places, transport, standing
        self.is_used = False
        """Whether a request has come over it."""
        self.key: str | None = None
        """Whose it is, once it does not give way any more."""

    def recognise(self, key: str) -> None:
        """Note that a known caller asks over this connection: it keeps its place, unless it has many."""
        places = self._places
        if self in places.giving_way and places.kept[key] < KEPT_PER_CALLER:
            del places.giving_way[self]
            places.kept[key] += 1
            self.key = key

    def use(self) -> None:
        """Note that a request has come or was answered: others give way before it."""
        self.is_used = True
        if self in self._places.giving_way:
            del self._places.giving_way[self]
            self._places.giving_way[self] = None

    def leave(self) -> None:
        """Give the place up; the connection is lost."""
        places = self._places
        places.handshakes.pop(self, None)
        if self.standing is ConnectionState.ASKING:
            places.taken -= 1
            places.giving_way.pop(self, None)
        elif self.standing is ConnectionState.SURPLUS:
            places.surplus -= 1
        if self.key is not None:
            places.kept[self.key] -= 1
            if not places.kept[self.key]:
                del places.kept[self.key]
        self.standing, self.key = ConnectionState.LEFT, None


class ConnectionSlots:
    """The places of one server. Used in its event loop alone.

    Args:
        most: how many there are.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        """Connections that are served, or shake hands to be."""
        self.surplus = 0
        """Connections beyond those that are told so."""
        self.giving_way: dict[ConnectionSlot, None] = {}
        """Who gives way, the longest idle first."""
        self.handshakes: dict[ConnectionSlot, Tls] = {}
        """Handshakes that have begun and not ended, the oldest first."""
        self.kept: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._told_s: dict[str, float] = {}
        self.received, self.decrypted = memoryview(bytearray(READ_BYTES)), memoryview(bytearray(READ_BYTES))
        """Where every connection's bytes arrive: each is read out before the next one's come."""

    @property
    def strangers(self) -> int:
        """How many connections would give way."""
        return len(self.giving_way)

    def take(self, transport: asyncio.Transport) -> ConnectionSlot | None:
        """Return a place for a connection that was accepted; None where it was closed unheard."""
        if self.taken >= self.most and self.giving_way:
            self._displace(next(iter(self.giving_way)))
        if self.taken < self.most:
            self.taken += 1
            place = ConnectionSlot(self, transport, ConnectionState.ASKING)
            self.giving_way[place] = None
            return place
        if self.surplus >= REFUSED_MAX:
            self.tell("connection_closed_unheard")
            transport.abort()
            return None
        self.surplus += 1
        return ConnectionSlot(self, transport, ConnectionState.SURPLUS)

    def shake_hands(self, place: ConnectionSlot, tls: "Tls") -> None:
        """Note that a handshake begins; the oldest is given up where there are as many as may be."""
        if len(self.handshakes) >= HANDSHAKES_MAX:
            oldest, given_up = next(iter(self.handshakes.items()))
            given_up.give_up()
            self._displace(oldest)
        self.handshakes[place] = tls

    def drop_silent(self) -> None:
        """Close every connection on which nothing has been asked."""
        for place in list(self.giving_way):
            if not place.is_used:
                place.transport.abort()

    def tell(self, event: str) -> None:
        """Log what happens to connections, not more often than once in LOG_PERIOD_S: callers cause it."""
        self._told[event] += 1
        now_s = time.monotonic()
        if now_s - self._told_s.get(event, -LOG_PERIOD_S) >= LOG_PERIOD_S:
            self._told_s[event] = now_s
            log.warning(event, times=self._told.pop(event), taken=self.taken, strangers=self.strangers)

    def _displace(self, place: ConnectionSlot) -> None:
        self.tell("connection_displaced")
        place.leave()
        place.transport.abort()


class PendingConnection(asyncio.BufferedProtocol):
    """A connection on which nothing has come yet: it has a place and a time limit, and no more.

    Args:
        places: the server's.
        begin: makes what speaks from the first byte on.
        patience_s: how long the first byte may take.
        received: where it arrives; it stays there for what begins.
        place: the connection's, where it has one already.
    """

    __slots__ = ("_begin", "_patience_s", "_places", "_received", "place", "timer", "transport")

    place: ConnectionSlot | None
    timer: asyncio.TimerHandle
    """Closes the connection: whoever takes over may go on waiting for it, or cancels it."""
    transport: asyncio.Transport

    def __init__(
        self,
        places: ConnectionSlots,
        begin: Callable[["PendingConnection"], asyncio.BufferedProtocol],
        patience_s: float,
        received: memoryview,
        place: ConnectionSlot | None = None,
    ) -> None:
        self._places, self._begin, self._patience_s, self._received = places, begin, patience_s, received
        self.place = place

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place, where there is one; over TLS, the handshake has ended."""
        self.transport = transport
        if self.place is None:
            self.place = self._places.take(transport)
        else:
            self._places.handshakes.pop(self.place, None)
        self.timer = asyncio.get_running_loop().call_later(self._patience_s, self._end)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Return where the first bytes go."""
        return self._received

    def buffer_updated(self, nbytes: int) -> None:
        """Hand the connection over, with what arrived."""
        following = self._begin(self)
        self.transport.set_protocol(following)
        following.connection_made(self.transport)
        following.buffer_updated(nbytes)

    def _end(self) -> None:
        if self.transport.get_protocol() is self:
            self.transport.abort()  # over TLS, whoever never spoke need not confirm that it ends
        else:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Free the place."""
        self.timer.cancel()
        if self.place is not None:
            self.place.leave()


class ArrivalBeforeTls(PendingConnection):
    """A connection that has not begun a handshake; what is lost is told."""

    __slots__ = ()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.place is not None and self.place.standing is not ConnectionState.LEFT:
            self._places.tell("handshake_failed")
        super().connection_lost(exc)


class Tls(sslproto.SSLProtocol):
    """asyncio's TLS at a server, made at a connection's first byte; all connections share their buffers.

    asyncio's own holds a quarter of a mebibyte each.

    Args:
        arrival: the connection so far; its time limit becomes the handshake's.
        protocol: what speaks over it.
        context: the service's certificate.
        places: the server's.
    """

    max_size = READ_BYTES

    def __init__(
        self,
        arrival: PendingConnection,
        protocol: asyncio.BufferedProtocol,
        context: ssl.SSLContext,
        places: ConnectionSlots,
    ) -> None:
        arrival.timer.cancel()
        loop = asyncio.get_running_loop()
        super().__init__(
            cast(Any, loop),
            protocol,
            context,
            cast(Any, None),
            server_side=True,
            ssl_handshake_timeout=cast(Any, max(arrival.timer.when() - loop.time(), HANDSHAKE_LAST_S)),
        )
        self._ssl_buffer, self._ssl_buffer_view = cast(Any, places.received.obj), places.received
        self._places, self._place = places, cast(ConnectionSlot, arrival.place)

    def connection_made(self, transport: Any) -> None:
        """Begin the handshake."""
        self._places.shake_hands(self._place, self)
        super().connection_made(transport)

    def give_up(self) -> None:
        """Free what the handshake holds now, not when the connection is lost: others begin before that."""
        self._sslobj: Any = None

    def connection_lost(self, exc: BaseException | None) -> None:
        """Free the place."""
        if self._place in self._places.handshakes:
            self._places.tell("handshake_failed")
        self._place.leave()
        super().connection_lost(exc)


HEADER_TIMEOUT_S = 10
"""How long a request's headers may take to arrive."""

KEEP_ALIVE_S = 65
"""How long an idle connection is kept: above the 60 s after which proxies usually drop theirs."""

HEADER_BYTES_MAX = 2**14
"""Largest request line and headers: a token takes 400 bytes, a proxy's own headers a few hundred. Nobody may
send more than that ahead of an answer either."""

CONNECTIONS_MAX = 2000
"""Most connections at once, unless set otherwise: a thousand owners' long polls, as many short requests."""

ACCEPTED_AT_ONCE, QUEUED_MAX = 64, 2048
"""Connections that are accepted before those that are there get their turn, and those that the system holds
until then: ten thousand agents may come back at one moment."""

FILES_SPARE = 320
"""File descriptors kept for the database, the logs and connections that are refused or just accepted."""

CAPACITY_RETRY_S, CAPACITY_SPREAD_S = 5, 10
"""When a refused caller may come again: after the first, and as much of the second as chance says, so that
those who were refused together do not return together."""

STOP_S = 3
"""How long requests under way may take to end once the service is asked to stop."""


@dataclass
class Stopping:
    """Whether the service has been asked to stop. A signal handler sets it, so it takes no lock."""

    requested: bool = False


class _CountedConnection(h11.Connection):
    """h11's connection, which takes no more of a body in crumbs: each costs as much as a large piece."""

    def __init__(self) -> None:
        # A request is refused once so many bytes are there and its headers have not ended.
        super().__init__(h11.SERVER, HEADER_BYTES_MAX - 1)
        self.is_crumbled = False
        self._pieces = self._body_bytes = 0

    def next_event(self) -> Any:
        """Return the next event; NEED_DATA for ever, once a body has too many pieces for its size."""
        if self.is_crumbled:
            return h11.NEED_DATA
        event = super().next_event()
        if isinstance(event, h11.Data):
            self._pieces += 1
            self._body_bytes += len(event.data)
            self.is_crumbled = self._pieces > PIECES_FREE + self._body_bytes // PIECE_BYTES_MIN
            return h11.NEED_DATA if self.is_crumbled else event
        if isinstance(event, h11.Request):
            self._pieces = self._body_bytes = 0
        return event


class TimedProtocol(H11Protocol, asyncio.BufferedProtocol):
    """uvicorn's protocol, which itself waits for headers and for an unread body for ever.

    A connection for which there is no place is answered with the problem ``at-capacity``, whatever it asks.
    """

    def __init__(
        self, config: uvicorn.Config, *, arrival: PendingConnection, places: ConnectionSlots, **named: Any
    ) -> None:
        super().__init__(config, **named)
        self.conn = self._counted = _CountedConnection()
        self._places, self._place = places, cast(ConnectionSlot, arrival.place)
        self._header_timer: asyncio.TimerHandle | None = arrival.timer

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note who has the connection; the first request's headers are waited for since it arrived."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, _PLACE: self._place}
        # A request may outlive its connection for as long as it waits, so requests are counted as well.
        if self._place.standing is ConnectionState.SURPLUS or len(self.tasks) >= 2 * self._places.most:
            self._places.tell("connection_refused")
            self.app = refuse

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Return where the next bytes go."""
        return self._places.decrypted

    def buffer_updated(self, nbytes: int) -> None:
        """Take what arrived."""
        self.data_received(bytes(self._places.decrypted[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Take what arrived; once a request's headers are whole, its time limit ends."""
        while data and not (self.transport.is_closing() or self._counted.is_crumbled):
            room = len(data)
            if self.conn.their_state in (h11.IDLE, h11.DONE):
                room = HEADER_BYTES_MAX - len(self.conn.trailing_data[0])
                if room <= 0:  # sent ahead of an answer, and more than headers may be
                    self.transport.abort()
                    return
            piece, data = data[:room], data[room:]
            self._take(piece)
        if self.conn.their_state is h11.DONE and len(self.conn.trailing_data[0]) > HEADER_BYTES_MAX:
            self.transport.abort()  # likewise, behind a body

    def _take(self, data: bytes) -> None:
        was_idle = self.conn.their_state is h11.IDLE
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            if self._header_timer is None:
                self._start_header_timer()  # part of a later request's headers on a connection kept alive
            return
        self._stop_header_timer()
        if was_idle:
            self._place.use()

    def handle_events(self) -> None:
        """Handle what was parsed; whoever reads a body that is refused for its crumbs is told so."""
        super().handle_events()
        if self._counted.is_crumbled:
            cast(Scope, self.scope)[CRUMBLED] = True
            self.cycle.message_event.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and tell a request that waits on it (see :func:`when_gone`)."""
        self._stop_header_timer()
        self._place.leave()
        super().connection_lost(exc)
        # uvicorn lets this timer, which holds the connection, run where TLS ended without a word.
        self._unset_keepalive_if_required()
        if self.scope is not None:
            _tell_gone(cast(Scope, self.scope))

    def on_response_complete(self) -> None:
        """Close if the answer came before the body ended: nobody will read the rest."""
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.close()
        super().on_response_complete()
        self._place.use()
        if self.conn.their_state is h11.IDLE:  # nothing of the last request is kept with the connection
            self.scope, self.cycle, self.headers = cast(Any, None), cast(Any, None), cast(Any, None)
        # The next request's headers may have begun to arrive while this answer was being written.
        if self.conn.their_state is h11.IDLE and self.conn.trailing_data[0] and self._header_timer is None:
            self._start_header_timer()

    def _start_header_timer(self) -> None:
        self._header_timer = self.loop.call_later(HEADER_TIMEOUT_S, self.transport.close)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None


class Server(uvicorn.Server):
    """uvicorn's server, which tells long polls that it has been asked to stop.

    ``places`` is who has a connection.
    """

    def __init__(self, config: uvicorn.Config, stopping: Stopping, places: ConnectionSlots) -> None:
        super().__init__(config)
        self._stopping, self.places = stopping, places

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen. The system's queue of connections is longer than what is accepted at once."""
        await super().startup(sockets)
        for server in self.servers:
            for listening in server.sockets:
                with socket.fromfd(listening.fileno(), listening.family, listening.type) as same:
                    same.listen(QUEUED_MAX)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop; nobody waits for callers who have not said who they are."""
        self.places.drop_silent()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take SIGTERM or SIGINT."""
        self._stopping.requested = True
        super().handle_exit(sig, frame)


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer any request with ``at-capacity``, and close."""
    if scope["type"] != "http":
        return
    wait_s = CAPACITY_RETRY_S + secrets.randbelow(CAPACITY_SPREAD_S + 1)
    error = RegisteredProblemError("at-capacity", retry_after_s=wait_s, headers={"Connection": "close"})
    await problem_response(error, None)(scope, receive, send)


_PLACE, _WHEN_GONE, _IS_GONE = "tacit_place", "tacit_when_gone", "tacit_is_gone"


def recognise(scope: Scope, key: str) -> None:
    """Note that the service knows this request's caller by this key: the connection need not give way.

    Call it in the event loop.
    """
    place: ConnectionSlot | None = scope.get("state", {}).get(_PLACE)
    if place is not None:
        place.recognise(key)


def when_gone(scope: Scope, call: Callable[[], None] | None) -> None:
    """Have ``call`` called in the loop, once, if this request's connection is lost; None takes it back.

    It is called at once where the connection was lost before. Take it back before answering: a connection
    that is kept keeps its last request's scope.
    """
    scope[_WHEN_GONE] = call
    if _IS_GONE in scope:
        _tell_gone(scope)


def _tell_gone(scope: Scope) -> None:
    scope[_IS_GONE] = True
    call = scope.pop(_WHEN_GONE, None)
    if call is not None:
        call()


def make_room(connections_max: int) -> None:
    """Raise this process's limit of open files as far as so many connections need.

    Raises:
        SettingsError: the system does not allow that many.
    """
    needed = connections_max + FILES_SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if resource.RLIM_INFINITY != hard < needed:
        raise SettingsError(
            f"connections_max is {connections_max}, which takes {needed} open files; this process may have "
            f"{hard}. Set connections_max to {max(hard - FILES_SPARE, 1)} or less, or raise the hard limit "
            "(ulimit -Hn, LimitNOFILE of systemd)"
        )
    if resource.RLIM_INFINITY != soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def tls_context(
    certificate_file: Path | None, key_file: Path | None, client_ca_file: Path | None = None
) -> ssl.SSLContext | None:
    """Return what serves TLS with this certificate chain and key, PEM; None where there is none.

    With ``client_ca_file`` callers must show certificates that chain to its own.

    Raises:
        SettingsError: one is missing, or they cannot be used.
    """
    if certificate_file is None and key_file is None:
        return None
    if certificate_file is None or key_file is None:
        raise SettingsError("tls_certificate_file and tls_key_file need each other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate_file, key_file)
    except OSError as error:  # ssl.SSLError is one
        raise SettingsError(
            f"the TLS certificate {certificate_file} and key {key_file} cannot be used: {error.strerror}"
        ) from None
    if client_ca_file is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        try:
            context.load_verify_locations(client_ca_file)
        except OSError:
            raise SettingsError(
                f"tls_client_ca_file: cannot read certificates, in PEM, from {client_ca_file}"
            ) from None
    return context


def make_server(
    app: FastAPI,
    host: str,
    port: int,
    stopping: Stopping,
    connections_max: int = CONNECTIONS_MAX,
    *,
    tls: ssl.SSLContext | None = None,
) -> Server:
    """Make a server with every limit of this module."""
    places = ConnectionSlots(connections_max)

    def protocol(_loop: asyncio.AbstractEventLoop | None = None, **named: Any) -> asyncio.BaseProtocol:
        def http(arrival: PendingConnection) -> TimedProtocol:
            return TimedProtocol(_loop=_loop, arrival=arrival, places=places, **named)

        def shaken(place: ConnectionSlot | None) -> PendingConnection:
            return PendingConnection(places, http, HEADER_TIMEOUT_S, places.decrypted, place)

        if tls is None:
            return shaken(None)

        def begin(arrival: PendingConnection) -> Tls:
            return Tls(arrival, shaken(arrival.place), tls, places)

        return ArrivalBeforeTls(places, begin, HANDSHAKE_TIMEOUT_S, places.received)

    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=cast(Any, protocol),
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=ACCEPTED_AT_ONCE,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S,
    )
    return Server(config, stopping, places)


def require_port(host: str, port: int) -> None:
    """Raise SettingsError where another process listens at the address already."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise SettingsError(
                    f"port {port} of {host} is taken: this service, or another, listens there already; stop "
                    "it, or set another port"
                ) from None


def serve(
    app: FastAPI,
    host: str,
    port: int,
    stopping: Stopping,
    connections_max: int = CONNECTIONS_MAX,
    *,
    tls: ssl.SSLContext | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT; returns when the service has stopped.

    ``connections_max`` is how many connections there may be at once, ``tls`` as in :func:`tls_context`.

    Raises:
        SettingsError: the system does not allow so many connections.
    """
    make_room(connections_max)
    require_port(host, port)
    # uvicorn raises the signal again once it has stopped; a service that was asked to stop exits with 0.
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, lambda *_: None)
    make_server(app, host, port, stopping, connections_max, tls=tls).run()
