"""A tester that attacks its agents, over a real socket: the first part of the path names the attack."""

import contextlib
import gzip
import json
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

BOMB = gzip.compress(gzip.compress(bytes(2**30 // 4), 1), 1)
"""A quarter of a gigabyte of zeros, compressed twice."""

PIECE = b" " * 2**16

Body = Iterator[bytes]


def _endless(first: bytes) -> Body:
    yield first
    while True:
        yield PIECE


ATTACKS: dict[str, Callable[[], tuple[dict[str, str], Body]]] = {
    "endless": lambda: ({}, _endless(b'{"items":[')),
    "endless-text": lambda: ({}, _endless(b'{"items":"')),
    "compressed": lambda: ({"content-encoding": "gzip"}, iter([gzip.compress(BOMB)])),
    "compressed-twice": lambda: ({"content-encoding": "gzip, gzip"}, iter([BOMB])),
    "compressed-unlabelled": lambda: ({}, iter([BOMB])),
    "deep": lambda: ({}, iter([b"[" * (2**20 - 1)])),
    "deep-objects": lambda: ({}, iter([b'{"a":' * 100_000])),
    "wide": lambda: ({}, iter([b"[" + b"0," * (2**19 - 2) + b"0]"])),
    "long-number": lambda: ({}, iter([b"1" * (2**20 - 1)])),
    "many-keys": lambda: ({}, iter([_keys()])),
    "many-objects": lambda: ({}, iter([b"[" + b'{"a":{"b":0}},' * 70_000 + b"0]"])),
    "short-texts": lambda: ({}, iter([b'{"items":["a"' + b',"ab"' * 200_000 + b"]}"])),
    "wrong-items": lambda: ({}, iter([b'{"items":[0' + b",1.5" * 48_000 + b"]}"])),
    "odd-items": lambda: ({}, iter([b'{"items":[' + b'{"a":[],"b":{}},' * 4_000 + b"{}]}"])),
    "wide-characters": lambda: ({}, iter(['{"items":["\U0001f600'.encode() + b"a" * 1_048_500 + b'"]}'])),
    "quotes": lambda: ({}, iter([b'"\\' * (2**19 - 1)])),
    "too-many-items": lambda: ({}, iter([_items(7000)])),
    "long-headers": lambda: ({f"x-{i}": "y" * 60_000 for i in range(100)}, iter([b"{}"])),
    "wrong-length": lambda: ({"content-length": str(2**40)}, iter([b'{"items":[]}'])),
}


def _keys() -> bytes:
    return b"{" + b",".join(b'"%05x":0' % i for i in range(100_000)) + b"}"


def _items(count: int) -> bytes:
    return json.dumps({"items": [{"digest": f"{i:064x}", "deadline": 2**39} for i in range(count)]}).encode()


@contextlib.contextmanager
def hostile_tester() -> Iterator[str]:
    """Serve on a loopback port; yields the URL, to which the name of an attack is to be added."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            headers, body = ATTACKS[self.path.split("/")[1]]()
            self.send_response(200)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("connection", "close")
            with contextlib.suppress(OSError):  # the agent hangs up, as it should
                self.end_headers()
                for piece in body:
                    self.wfile.write(piece)
            self.close_connection = True

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
