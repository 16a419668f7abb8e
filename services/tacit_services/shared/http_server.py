"""Runs an app: slow, idle and surplus connections are dropped, and SIGTERM stops it within five seconds."""

import asyncio
import resource
import secrets
import signal
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any, cast

import h11
import structlog
import uvicorn
from fastapi import FastAPI
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from tacit_services.shared.problem_responses import ProblemError, problem_response
from tacit_services.shared.settings import SettingsError

HEADER_TIMEOUT_S = 10
"""How long a request's headers may take to arrive."""

KEEP_ALIVE_S = 65
"""How long an idle connection is kept: above the 60 s after which proxies usually drop theirs."""

HEADER_BYTES_MAX = 2**14
"""Largest request line and headers: a token takes 400 bytes, a proxy's own headers a few hundred."""

CONNECTIONS_MAX = 2000
"""Most connections at once, unless set otherwise: a thousand owners' long polls, as many short requests."""

REFUSED_MAX = 128
"""Most connections beyond those that are told to come again later; further ones are closed unheard."""

FILES_SPARE = 256
"""File descriptors kept for the database, the logs and connections that are refused."""

CAPACITY_RETRY_S, CAPACITY_SPREAD_S = 5, 10
"""When a refused caller may come again: after the first, and as much of the second as chance says, so that
those who were refused together do not return together."""

STOP_S = 3
"""How long requests under way may take to end once the service is asked to stop."""


log = structlog.get_logger()


@dataclass
class Stopping:
    """Whether the service has been asked to stop. A signal handler sets it, so it takes no lock."""

    requested: bool = False


class TimedProtocol(H11Protocol):
    """uvicorn's protocol, which itself waits for headers and for an unread body for ever.

    A connection above ``limit_concurrency`` is answered with the problem ``at-capacity``, whatever it asks.
    """

    _header_timer: asyncio.TimerHandle | None = None

    def __init__(self, config: uvicorn.Config, *arguments: Any, **named: Any) -> None:
        super().__init__(config, *arguments, **named)
        self._connections_max = config.limit_concurrency or CONNECTIONS_MAX
        self.limit_concurrency = None  # uvicorn's own refusal says neither why nor when to come again

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first request's headers."""
        super().connection_made(transport)
        surplus = len(self.connections) - self._connections_max
        # A request may outlive its connection for as long as it waits, so requests are counted as well.
        if surplus > 0 or len(self.tasks) >= 2 * self._connections_max:
            self.app = refuse
        if surplus > REFUSED_MAX:
            transport.close()
            return
        self._start_header_timer()

    def data_received(self, data: bytes) -> None:
        """Take what arrived; once a request's headers are whole, its time limit ends."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_header_timer()
        elif self._header_timer is None:
            self._start_header_timer()  # part of a later request's headers on a connection kept alive

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection, and tell a request that waits on it (see :func:`when_gone`)."""
        self._stop_header_timer()
        super().connection_lost(exc)
        if self.scope is not None:
            _tell_gone(cast(Scope, self.scope))

    def on_response_complete(self) -> None:
        """Close if the answer came before the body ended: nobody will read the rest."""
        if self.conn.their_state is h11.SEND_BODY:
            self.transport.close()
        super().on_response_complete()
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
    """uvicorn's server, which tells long polls that it has been asked to stop."""

    def __init__(self, config: uvicorn.Config, stopping: Stopping) -> None:
        super().__init__(config)
        self._stopping = stopping

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take SIGTERM or SIGINT."""
        self._stopping.requested = True
        super().handle_exit(sig, frame)


async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer any request with ``at-capacity``, and close."""
    if scope["type"] != "http":
        return
    wait_s = CAPACITY_RETRY_S + secrets.randbelow(CAPACITY_SPREAD_S + 1)
    log.warning("connection_refused", retry_after_s=wait_s)
    error = ProblemError("at-capacity", retry_after_s=wait_s, headers={"Connection": "close"})
    await problem_response(error, None)(scope, receive, send)


_WHEN_GONE, _IS_GONE = "tacit_when_gone", "tacit_is_gone"


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


def make_server(
    app: FastAPI,
    host: str,
    port: int,
    stopping: Stopping,
    connections_max: int = CONNECTIONS_MAX,
    /,
    **tls: Any,
) -> Server:
    """Make a server with every limit of this module; ``tls`` is as in :func:`serve`."""
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=TimedProtocol,
        ws="none",
        loop="asyncio",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=connections_max,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S,
        **tls,
    )
    return Server(config, stopping)


def serve(
    app: FastAPI,
    host: str,
    port: int,
    stopping: Stopping,
    connections_max: int = CONNECTIONS_MAX,
    /,
    **tls: Any,
) -> None:
    """Serve until SIGTERM or SIGINT; returns when the service has stopped.

    ``connections_max`` is how many connections there may be at once. ``tls`` takes uvicorn's
    ``ssl_certfile``, ``ssl_keyfile`` and ``ssl_ca_certs``.
    """
    # uvicorn raises the signal again once it has stopped; a service that was asked to stop exits with 0.
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, lambda *_: None)
    make_server(app, host, port, stopping, connections_max, **tls).run()
