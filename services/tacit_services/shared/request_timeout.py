"""A deadline for a whole HTTP exchange, whatever the other side does with its bytes.

The HTTP library's timeouts are each for one read or write: an answer that drips, a byte at a time in its
header or body, or interim answers (1xx) without end, would hold an exchange for hours. Here every wait for
the network is cut to what is left of the deadline that the calling thread has set::

    with httpx.Client(transport=DeadlineTransport(context)) as http, exchange_deadline(30.0):
        http.get(url)

Nor does anything go where others could read it on the way: see :func:`require_private`.
"""

import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import httpcore
import httpx

from tacit_protocol.addresses import PLAIN_HTTP, is_private_channel

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


def require_private(url: httpx.URL | str, insecure_plain_http: bool) -> None:
    """Return if a URL is a service's and nobody else can read what is sent there.

    Raises:
        ValueError: it is not; or it names a user, whose password would take the place of the token.
    """
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        raise ValueError("it is no URL, such as https://tester.example") from None
    host = parsed.raw_host.decode("ascii")
    if parsed.scheme not in {"http", "https"} or not host or parsed.userinfo:
        raise ValueError("it is no URL of a service, such as https://tester.example")
    if not insecure_plain_http and not is_private_channel(parsed.scheme, host):
        raise ValueError(PLAIN_HTTP)


class DeadlineTransport(httpx.HTTPTransport):
    """The library's own transport, on connections that keep the deadline, to private addresses alone.

    Waits end with the library's timeouts. Resolving a host's name is the resolver's, and not counted; each of
    the addresses that it gives may take what is left.
    """

    def __init__(self, context: ssl.SSLContext, insecure_plain_http: bool = False):
        super().__init__(verify=context, trust_env=False)
        self._insecure_plain_http = insecure_plain_http
        self._pool = httpcore.ConnectionPool(
            ssl_context=context, keepalive_expiry=KEEP_ALIVE_S, network_backend=_Backend()
        )

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send, once the address has been looked at; raises ValueError as :func:`require_private` does."""
        require_private(request.url, self._insecure_plain_http)
        return super().handle_request(request)


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
