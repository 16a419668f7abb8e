"""Runs an app: slow, idle and surplus connections are dropped, and SIGTERM stops it within five seconds."""

import asyncio
import signal
from dataclasses import dataclass
from types import FrameType
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

HEADER_TIMEOUT_S = 10
"""How long a request's headers may take to arrive."""

KEEP_ALIVE_S = 65
"""How long an idle connection is kept: above the 60 s after which proxies usually drop theirs."""

HEADER_BYTES_MAX = 2**14
"""Largest request line and headers: a token takes 400 bytes, a proxy's own headers a few hundred."""

CONNECTIONS_MAX = 2000
"""Most connections at once: a thousand owners' long polls and as many short requests."""

STOP_S = 3
"""How long requests under way may take to end once the service is asked to stop."""


@dataclass
class Stopping:
    """Whether the service has been asked to stop. A signal handler sets it, so it takes no lock."""

    requested: bool = False


class TimedProtocol(H11Protocol):
    """uvicorn's protocol, which itself waits for headers and for an unread body for ever."""

    _header_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first request's headers."""
        super().connection_made(transport)
        self._start_header_timer()

    def data_received(self, data: bytes) -> None:
        """Take what arrived; once a request's headers are whole, its time limit ends."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_header_timer()
        elif self._header_timer is None:
            self._start_header_timer()  # part of a later request's headers on a connection kept alive

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_header_timer()
        super().connection_lost(exc)

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


def make_server(app: FastAPI, host: str, port: int, stopping: Stopping, **tls: Any) -> Server:
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
        limit_concurrency=CONNECTIONS_MAX,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=STOP_S,
        **tls,
    )
    return Server(config, stopping)


def serve(app: FastAPI, host: str, port: int, stopping: Stopping, **tls: Any) -> None:
    """Serve until SIGTERM or SIGINT; returns when the service has stopped.

    ``tls`` takes uvicorn's ``ssl_certfile``, ``ssl_keyfile`` and ``ssl_ca_certs``.
    """
    # uvicorn raises the signal again once it has stopped; a service that was asked to stop exits with 0.
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, lambda *_: None)
    make_server(app, host, port, stopping, **tls).run()
