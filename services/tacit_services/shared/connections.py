"""Who may hold a connection: known callers keep theirs, others give way to newcomers; TLS in little memory.

A service has so many places. A connection takes one when it is accepted, before TLS and before it has said
anything. It is a stranger's until the service has recognised a caller's token or session on it. While all
places are taken, a newcomer gets that of the stranger who has been idle for longest; where every place is a
known caller's, the newcomer is told to come again. So callers without a token, however many connections they
hold, keep nobody out who asks at once, and no network address is looked at: behind a proxy all callers have
the same one.
"""

import asyncio
import ssl
import time
from asyncio import sslproto
from collections import Counter
from enum import Enum
from typing import Any, cast

import structlog

READ_BYTES = 2**16
"""Bytes taken from one connection at once: what their parsing takes, others wait for."""

REFUSED_MAX = 128
"""Most connections beyond the places that are told to come again later; further ones are closed unheard."""

KEPT_PER_CALLER = 32
"""Connections of one caller that do not give way. An agent has two or three; nobody fills a service alone."""

HANDSHAKE_TIMEOUT_S = 10
"""How long a TLS handshake may take: three round trips on the slowest of links."""

LOG_PERIOD_S = 10.0
"""Least time between two log lines about one kind of refused connection; each says how many there were."""

log = structlog.get_logger()


class Standing(Enum):
    """What a connection may do."""

    ASKING = "served"
    SURPLUS = "told to come again, and closed"
    LEFT = "closed"


class Place:
    """One connection's place."""

    __slots__ = ("_places", "is_used", "key", "standing", "transport")

    def __init__(self, places: "Places", transport: asyncio.Transport, standing: Standing) -> None:
        self._places, self.transport, self.standing = places, transport, standing
        self.is_used = False
        """Whether a request has come over it."""
        self.key: str | None = None
        """Whose it is, once it does not give way any more."""

    def recognise(self, key: str) -> None:
        """Note that a known caller asks over this connection: it keeps its place, unless it has many."""
        self._places.recognise(self, key)

    def use(self) -> None:
        """Note that a request has come or was answered: others give way before it."""
        self._places.use(self)

    def leave(self) -> None:
        """Give the place up; the connection is lost."""
        self._places.leave(self)


class Places:
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
        self._strangers: dict[Place, None] = {}
        """Who gives way, the longest idle first."""
        self._kept: Counter[str] = Counter()
        self._told: Counter[str] = Counter()
        self._told_s: dict[str, float] = {}
        self.received, self.decrypted = memoryview(bytearray(READ_BYTES)), memoryview(bytearray(READ_BYTES))
        """Where every connection's bytes arrive: each is read out before the next one's come."""

    @property
    def strangers(self) -> int:
        """How many connections would give way."""
        return len(self._strangers)

    def take(self, transport: asyncio.Transport) -> Place | None:
        """Return a place for a connection that was accepted; None where it was closed unheard."""
        if self.taken >= self.most and self._strangers:
            self._displace(next(iter(self._strangers)))
        if self.taken < self.most:
            self.taken += 1
            place = Place(self, transport, Standing.ASKING)
            self._strangers[place] = None
            return place
        if self.surplus >= REFUSED_MAX:
            self.tell("connection_closed_unheard")
            transport.abort()
            return None
        self.surplus += 1
        return Place(self, transport, Standing.SURPLUS)

    def recognise(self, place: Place, key: str) -> None:
        """Let a place be kept for this caller; as :meth:`Place.recognise`."""
        if place in self._strangers and self._kept[key] < KEPT_PER_CALLER:
            del self._strangers[place]
            self._kept[key] += 1
            place.key = key

    def use(self, place: Place) -> None:
        """Let other strangers give way first; as :meth:`Place.use`."""
        place.is_used = True
        if place in self._strangers:
            del self._strangers[place]
            self._strangers[place] = None

    def leave(self, place: Place) -> None:
        """Free a place; as :meth:`Place.leave`."""
        if place.standing is Standing.ASKING:
            self.taken -= 1
            self._strangers.pop(place, None)
        elif place.standing is Standing.SURPLUS:
            self.surplus -= 1
        if place.key is not None:
            self._kept[place.key] -= 1
            if not self._kept[place.key]:
                del self._kept[place.key]
        place.standing, place.key = Standing.LEFT, None

    def drop_silent(self) -> None:
        """Close every connection on which nothing has been asked."""
        for place in list(self._strangers):
            if not place.is_used:
                place.transport.abort()

    def tell(self, event: str) -> None:
        """Log what happens to connections, not more often than once in LOG_PERIOD_S: callers cause it."""
        self._told[event] += 1
        now_s = time.monotonic()
        if now_s - self._told_s.get(event, -LOG_PERIOD_S) >= LOG_PERIOD_S:
            self._told_s[event] = now_s
            log.warning(event, times=self._told.pop(event), taken=self.taken, strangers=self.strangers)

    def _displace(self, place: Place) -> None:
        self.tell("connection_displaced")
        self.leave(place)
        place.transport.abort()


class Tls(sslproto.SSLProtocol):
    """asyncio's TLS at a server, whose connections have a place from the start and share their buffers.

    asyncio's own holds a quarter of a mebibyte each, and tells of none before it has shaken hands.

    Args:
        loop: the running loop.
        protocol: what speaks over it; it gets the connection's ``place``.
        context: the service's certificate.
        places: the server's.
    """

    max_size = READ_BYTES

    def __init__(
        self, loop: asyncio.AbstractEventLoop, protocol: Any, context: ssl.SSLContext, places: Places
    ) -> None:
        super().__init__(
            cast(Any, loop),
            protocol,
            context,
            cast(Any, None),
            server_side=True,
            ssl_handshake_timeout=cast(Any, HANDSHAKE_TIMEOUT_S),
        )
        self._ssl_buffer, self._ssl_buffer_view = cast(Any, places.received.obj), places.received
        self._places, self._protocol = places, protocol
        self._place: Place | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin the handshake, where there is a place."""
        self._place = self._protocol.place = self._places.take(transport)
        if self._place is None:
            self._transport = transport
            return
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Free the place."""
        if self._place is not None:
            if not self._protocol.is_connected and self._place.standing is not Standing.LEFT:
                self._places.tell("handshake_failed")
            self._place.leave()
        super().connection_lost(exc)
