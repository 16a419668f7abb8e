"""A deadline for a whole HTTP exchange, whatever the other side does with its bytes.

The HTTP library's timeouts are each for one read or write: an answer that drips, a byte at a time in its
header or body, or interim answers (1xx) without end, would hold an exchange for hours. Here every wait for
the network is cut to what is left of the deadline that the calling thread has set::

    with httpx.Client(transport=DeadlineTransport(context)) as http, exchange_deadline(30.0):
        http.get(url)
"""

import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import httpcore
import httpx

WRITE_BYTES_MAX = 2**14
"""Bytes handed to the network at once, so that a slow reader is noticed between two pieces."""

KEEP_ALIVE_S = 5.0
"""How long an idle connection is kept for the next exchange."""

_deadline_s: ContextVar[float | None] = ContextVar("deadline_s", default=None)


@contextmanager
def exchange_deadline(timeout_s: float) -> Iterator[None]:
    """Let every wait for the network below end within ``timeout_s`` seconds from now, together."""
    token = _deadline_s.set(time.monotonic() + timeout_s)
    try:
        yield
    finally:
        _deadline_s.reset(token)


class DeadlineTransport(httpx.HTTPTransport):
    """The library's own transport, on connections that keep the deadline.

    Waits end with the library's timeouts. Resolving a host's name is the resolver's, and not counted; each of
    the addresses that it gives may take what is left.
    """

    def __init__(self, context: ssl.SSLContext):
        super().__init__(verify=context, trust_env=False)
        self._pool = httpcore.ConnectionPool(
            ssl_context=context, keepalive_expiry=KEEP_ALIVE_S, network_backend=_Backend()
        )


class _Backend(httpcore.NetworkBackend):
    def __init__(self) -> None:
        self._network = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        cut = _cut(timeout, httpcore.ConnectTimeout)
        return _Stream(self._network.connect_tcp(host, port, cut, local_address, socket_options))


class _Stream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream):
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _cut(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), WRITE_BYTES_MAX):
            piece = buffer[start : start + WRITE_BYTES_MAX]
            self._stream.write(piece, _cut(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        cut = _cut(timeout, httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, cut))

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)


def _cut(timeout_s: float | None, expired: Callable[[str], Exception]) -> float | None:
    """Return the shorter of a wait and what is left of the deadline; raises ``expired`` if nothing is."""
    deadline_s = _deadline_s.get()
    if deadline_s is None:
        return timeout_s
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise expired("the exchange took too long")
    return left_s if timeout_s is None else min(timeout_s, left_s)
