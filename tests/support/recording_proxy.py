"""A proxy that stands before a service's port and keeps every request and answer whole."""

import http.client
import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from served import listening

from tacit.setup.processes import free_ports

FORWARD_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Recorded:
    """One request with its answer, as they were on the wire; header names are in lower case."""

    method: str
    path: str
    request_headers: dict[str, str]
    request: bytes
    status: int
    answer_headers: dict[str, str]
    answer: bytes


@dataclass
class Recording:
    """What went through a proxy, in the order of its ends."""

    exchanges: list[Recorded] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def keep(self, exchange: Recorded) -> None:
        with self.lock:
            self.exchanges.append(exchange)

    def seen(self) -> list[Recorded]:
        with self.lock:
            return list(self.exchanges)


@contextmanager
def recording_proxy(port: int, upstream: int) -> Iterator[Recording]:
    """Listen on ``port``, carry everything to ``upstream`` on this machine, and keep it."""
    recording = Recording()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def carry(self) -> None:
            request = self.rfile.read(int(self.headers.get("content-length", "0")))
            if "transfer-encoding" in self.headers:
                raise AssertionError("every client states its body's length")
            connection = http.client.HTTPConnection("127.0.0.1", upstream, timeout=FORWARD_TIMEOUT_S)
            try:
                connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    connection.putheader(name, value)
                connection.endheaders(request)
                answered = connection.getresponse()
                answer = answered.read()
            except OSError:
                self.close_connection = True  # the service is not there yet, or no longer
                return
            finally:
                connection.close()
            answer_headers = {name.lower(): value for name, value in answered.getheaders()}
            request_headers = {name.lower(): value for name, value in self.headers.items()}
            asked = (self.command, self.path, request_headers, request)
            recording.keep(Recorded(*asked, answered.status, answer_headers, answer))
            self.send_response_only(answered.status)
            for name, value in answered.getheaders():
                if name.lower() not in {"transfer-encoding", "content-length", "connection"}:
                    self.send_header(name, value)
            if answered.status != 204:
                self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_PUT = do_POST = do_DELETE = carry  # noqa: N815 (the base class's names)

        def handle(self) -> None:
            with suppress(OSError):  # the client has gone
                super().handle()

    with listening(Handler, port):
        yield recording


def behind_a_proxy(stack: ExitStack, configuration: Path) -> Recording:
    """Move a service to another port, and put a proxy on the one that everybody knows."""
    text = configuration.read_text()
    (found,) = re.findall(r"^port = (\d+)$", text, re.MULTILINE)
    (moved,) = free_ports(1)
    configuration.write_text(text.replace(f"port = {found}", f"port = {moved}"))
    return stack.enter_context(recording_proxy(int(found), moved))
