"""Apps of this process, called without a network; and servers on loopback ports."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
from fastapi import FastAPI

from tacit_services.shared.http_server import Server, Stopping, make_server

STOP_S_MAX = 300.0


async def send(
    app: FastAPI, url: str, method: str, path: str, *, raises: bool = True, **sent: Any
) -> httpx.Response:
    """Send a request; an exception that escapes the app fails the test, unless ``raises`` is false."""
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=raises)
    async with httpx.AsyncClient(transport=transport, base_url=url) as client:
        return await client.request(method, path, **sent)


def call(app: FastAPI, url: str, method: str, path: str, **sent: Any) -> httpx.Response:
    return asyncio.run(send(app, url, method, path, **sent))


def problem(response: httpx.Response) -> str:
    """Return the slug of the problem that a service answered with."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    return str(response.json()["type"]).removeprefix("urn:tacit:problem:")


@contextmanager
def running(app: FastAPI, port: int = 0, **options: Any) -> Iterator[tuple[Server, threading.Thread]]:
    """Serve an app on a loopback port, in another thread."""
    server = make_server(app, "127.0.0.1", port, Stopping(), **options)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            thread.join(0.005)
        yield server, thread
    finally:
        server.should_exit = True
        thread.join(STOP_S_MAX)
        assert not thread.is_alive(), "the app does not stop"


def address_of(server: Server) -> tuple[str, int]:
    address: tuple[str, int] = server.servers[0].sockets[0].getsockname()
    return address


@contextmanager
def serving(app: FastAPI, port: int = 0) -> Iterator[str]:
    """Serve an app on a loopback port; yields its URL."""
    with running(app, port) as (server, _):
        yield f"http://127.0.0.1:{address_of(server)[1]}"


@contextmanager
def listening(handler: type[BaseHTTPRequestHandler], port: int = 0) -> Iterator[str]:
    """Answer by a handler on a loopback port, and log nothing; yields the URL."""

    class Silent(handler):  # type: ignore[valid-type, misc]
        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", port), Silent)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
