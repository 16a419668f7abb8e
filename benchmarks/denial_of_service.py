"""What one hostile caller takes from all others: a tester under each attack, and how honest callers fare.

``python -m benchmarks.denial_of_service`` makes every attack, or those that are named, against a tester
process of its own, on this machine alone and for seconds, and prints what it found. Honest callers, in a
process of their own, go on asking for the list of studies meanwhile: some over connections that they keep,
some over a new one each time. docs/security/attacks.md has the figures.
"""

import argparse
import asyncio
import multiprocessing
import resource
import socket
import ssl
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import numpy as np
from tests.support.certificates import client_hello, write_certificate

from benchmarks.problems import study_of_columns
from benchmarks.servers import (
    Served,
    Uploads,
    enrolled,
    exchange,
    make_uploads,
    request_bytes,
    serving,
    tester_command,
)
from tacit_protocol.messages.study import Owner
from tacit_protocol.signing import PrivateKey, issue_token

CHUNKS = 10**6
"""One-byte chunks of six bytes each."""

SILENT = 2500
IDLE = 2000
WARM, KEPT = 50, 500
"""Connections before memory is read the first time, and from then on."""

CHECKS = 44
POINTS = 1000
"""Points of a study whose check whitens them: the dearest study of three kilobytes."""

HEADER_BYTES = 65_000

FILES = 1024
"""Open files that a process may have on most systems, unless it asks for more."""

CALLERS = 4
"""Honest callers of each kind."""

BETWEEN_S = 0.05
"""Between two questions of one honest caller."""

ANSWER_S_MAX = 30.0
"""An honest question without an answer for so long has none."""

SETTLE_S, HELD_S, LONG_S = 2.0, 12.0, 180.0
STOP_S_MAX = 240.0


@dataclass(frozen=True)
class Tester:
    """A tester process, and who may ask it."""

    served: Served
    port: int
    made: Uploads
    log: Path
    certificate: Path | None

    def log_lines(self) -> int:
        """Count what was logged, requests answered left out."""
        return sum(b'"event": "request"' not in line for line in self.log.read_bytes().splitlines())

    def token(self, key: PrivateKey) -> str:
        """Return a token that serves for a minute."""
        return issue_token(key, f"http://127.0.0.1:{self.port}", int(time.time()))

    def connect(self) -> socket.socket:
        """Open a connection; nothing is sent."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_S_MAX)

    def stop_s(self) -> float:
        """Ask it to stop; return how long that took, or infinity where it had to be killed."""
        started = time.monotonic()
        self.served.process.terminate()
        try:
            self.served.process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self.served.process.kill()
            return float("inf")
        return time.monotonic() - started


@contextmanager
def running_tester(*, tls: bool) -> Iterator[Tester]:
    """Run a tester with an analyst and an owner enrolled, as it is by default."""
    with tempfile.TemporaryDirectory(prefix="tacit-dos-") as name:
        folder = Path(name)
        made, certificate, settings = make_uploads(1), None, ""
        if tls:
            certificate = write_certificate(folder)
            settings = 'tls_certificate_file = "certificate.pem"\ntls_key_file = "certificate.key"\n'
        file, port, _ = enrolled(folder, f"sqlite:///{folder / 'tester.sqlite3'}", made, settings=settings)
        command = ["sh", "-c", f'ulimit -Sn {FILES}; exec "$@"', "sh", *tester_command(file)]
        with serving(port, command, certificate, folder / "log") as served:
            yield Tester(served, port, made, folder / "log", certificate)


# Honest callers, in a process of their own.


async def _caller(
    port: int, key: PrivateKey, ca: str, kind: str, found: dict[str, list[float]], stop: asyncio.Event
) -> None:
    """Ask again and again: over one connection (``kept``), or over a new one each time."""
    context = ssl.create_default_context(cafile=ca) if ca else None
    connection: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    while not stop.is_set():
        token = issue_token(key, f"http://127.0.0.1:{port}", int(time.time()))
        started = time.perf_counter()
        try:
            async with asyncio.timeout(ANSWER_S_MAX):
                connection = connection or await asyncio.open_connection("127.0.0.1", port, ssl=context)
                if await exchange(*connection, request_bytes("GET", "/v1/studies", port, token)) != 200:
                    raise ConnectionError
            found[kind].append(time.perf_counter() - started)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            found[f"{kind}_failed"].append(time.perf_counter() - started)
            connection = None
        if connection and kind == "new":
            connection[1].close()
            connection = None
        await asyncio.sleep(BETWEEN_S)


async def _ask_on(port: int, pem: bytes, ca: str, ready: Event, ended: Event) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"kept": [], "new": [], "kept_failed": [], "new_failed": []}
    stop, key = asyncio.Event(), PrivateKey.from_pem(pem)
    kinds = ("kept", "new") * CALLERS
    callers = [asyncio.ensure_future(_caller(port, key, ca, kind, found, stop)) for kind in kinds]
    while not (found["kept"] and found["new"]):
        await asyncio.sleep(BETWEEN_S)
    for answers in found.values():
        answers.clear()
    ready.set()
    await asyncio.get_running_loop().run_in_executor(None, ended.wait)
    stop.set()
    await asyncio.gather(*callers)
    return found


def be_honest(port: int, pem: bytes, ca: str, ready: Event, ended: Event) -> dict[str, list[float]]:
    """Ask until the attack has ended; return seconds, by kind of caller, of questions answered and not."""
    return asyncio.run(_ask_on(port, pem, ca, ready, ended))


@contextmanager
def honest_callers(tester: Tester) -> Iterator[dict[str, list[float]]]:
    """Let honest callers ask until the block ends; what they found is there afterwards."""
    found: dict[str, list[float]] = {}
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(1, context) as pool:
        ready, ended = manager.Event(), manager.Event()
        pem, ca = tester.made.tester.to_pem(), str(tester.certificate or "")
        asking = pool.submit(be_honest, tester.port, pem, ca, ready, ended)
        ready.wait()
        try:
            yield found
        finally:
            ended.set()
            found.update(asking.result(180))


def told(found: dict[str, list[float]]) -> str:
    """Say how honest callers fared."""
    words = []
    for kind in ("kept", "new"):
        answers, failed = found[kind], found[f"{kind}_failed"]
        part = f"{len(answers)} answered"
        if answers:
            part += f", p99 {np.quantile(answers, 0.99):.2f} s, worst {max(answers):.2f} s"
        words.append(f"{kind}: {part}, {len(failed)} not")
    return "; ".join(words)


# The attacks. Each returns what it found, in words.


def chunks(path: str, content_type: str) -> str:
    """Send a body of one-byte chunks on one connection, without leave from anyone."""
    with running_tester(tls=False) as tester:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{tester.port}\r\nOrigin: http://127.0.0.1:{tester.port}\r\n"
            f"Authorization: Bearer {tester.token(PrivateKey.generate())}\r\nContent-Type: {content_type}\r\n"
            "Transfer-Encoding: chunked\r\n\r\n"
        )
        with honest_callers(tester) as honest, tester.connect() as connection:
            before_s, began = tester.served.cpu_s, time.monotonic()
            with suppress(OSError):
                connection.sendall(head.encode())
                connection.sendall(b"1\r\nx\r\n" * CHUNKS + b"0\r\n\r\n")
            answer = b""
            with suppress(OSError):
                answer = connection.recv(2**16)
            used_s = tester.served.cpu_s - before_s
            time.sleep(max(0.0, began + HELD_S - time.monotonic()))
        status = answer[9:12].decode() or "none"
        return f"answer {status} after {used_s:.1f} s of processor; honest {told(honest)}"


def silent(tester: Tester, depth: str, hello: bytes) -> socket.socket | None:
    """Connect to a tester with TLS; say nothing before, within or after the handshake, or once answered."""
    try:
        connection = tester.connect()
    except OSError:
        return None
    try:
        if depth == "within":
            connection.sendall(hello)
        elif depth in ("after", "asked"):
            context = ssl.create_default_context(cafile=str(tester.certificate))
            connection = context.wrap_socket(connection, server_hostname="127.0.0.1")
        if depth == "asked":
            connection.sendall(request_bytes("GET", "/healthz", tester.port, ""))
            connection.recv(2**14)
    except OSError:
        connection.close()
        return None
    connection.setblocking(False)
    return connection


def is_open(connection: socket.socket) -> bool:
    """Say whether the other side has left a connection open; what it sent is thrown away."""
    try:
        return connection.recv(2**14) != b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return True
    except OSError:
        return False


def silent_tls(depths: Sequence[str], held_s: float) -> str:
    """Hold silent connections of these kinds to a tester that serves TLS; open anew each that is closed."""
    with running_tester(tls=True) as tester:
        idle_mb, lines, opened, peak_mb = tester.served.memory_mb, tester.log_lines(), 0, 0.0
        hello = client_hello()
        held: list[socket.socket | None] = [None] * SILENT
        with honest_callers(tester) as honest:
            began = time.monotonic()
            while time.monotonic() < began + held_s:
                for place, connection in enumerate(held):
                    if connection is None or not is_open(connection):
                        if connection is not None:
                            connection.close()
                        held[place] = silent(tester, depths[place % len(depths)], hello)
                        opened += 1
                    if place % WARM == 0:
                        peak_mb = max(peak_mb, tester.served.memory_mb)
                time.sleep(0.1)
            rate = 60 * (tester.log_lines() - lines) / (time.monotonic() - began)
            memory_mb = tester.served.memory_mb
        for connection in held:
            if connection is not None:
                connection.close()
        times = f"{memory_mb / idle_mb:.2f} times that at the end, {peak_mb / idle_mb:.2f} at most"
        times += f"; {opened} opened in {held_s:.0f} s; {rate:.0f} log lines a minute"
        return f"{idle_mb:.0f} MB idle, {times}; honest {told(honest)}"


def closed_tls(held_s: float) -> str:
    """Ask a tester with TLS without a token, over connections that are closed as soon as it answers."""
    with running_tester(tls=True) as tester:
        idle_mb, opened = tester.served.memory_mb, 0
        with honest_callers(tester) as honest:
            until = time.monotonic() + held_s
            while time.monotonic() < until:
                connection = silent(tester, "asked", b"")
                if connection is not None:
                    connection.close()
                    opened += 1
            memory_mb = tester.served.memory_mb
        times = f"{memory_mb / idle_mb:.2f} times that after {opened} were closed"
        return f"{idle_mb:.0f} MB idle, {times}; honest {told(honest)}"


def memory_of_one(*, tls: bool) -> float:
    """Ask once with a token over each of many connections, and keep them; return what one takes, in KiB."""
    with running_tester(tls=tls) as tester, ExitStack() as stack:
        context = ssl.create_default_context(cafile=str(tester.certificate)) if tls else None
        request = request_bytes("GET", "/v1/studies?cursor=1", tester.port, tester.token(tester.made.tester))
        memory_mb = []
        for count in (WARM, KEPT):
            for _ in range(count):
                connection = tester.connect()
                if context is not None:
                    connection = context.wrap_socket(connection, server_hostname="127.0.0.1")
                stack.enter_context(connection).sendall(request)
                if not connection.recv(2**16).startswith(b"HTTP/1.1 200"):
                    raise RuntimeError("an honest question was not answered")
            memory_mb.append(tester.served.memory_mb)
        return 1024 * (memory_mb[1] - memory_mb[0]) / KEPT


def memory() -> str:
    """Say what idle connections take, with TLS and without."""
    return f"{memory_of_one(tls=True):.0f} KiB a connection with TLS, {memory_of_one(tls=False):.0f} without"


def idle_plain() -> str:
    """Hold as many connections as there may be, without a token; open anew each that is closed."""
    with running_tester(tls=False) as tester, ExitStack() as stack:
        held = [stack.enter_context(tester.connect()) for _ in range(IDLE)]
        with honest_callers(tester) as honest:
            until, opened = time.monotonic() + HELD_S, IDLE
            while time.monotonic() < until:
                for place, connection in enumerate(held):
                    connection.setblocking(False)
                    if not is_open(connection):
                        connection.close()
                        with suppress(OSError):
                            held[place] = stack.enter_context(tester.connect())
                            opened += 1
                time.sleep(0.01)
        return f"{opened} opened in {HELD_S:.0f} s; honest {told(honest)}"


def checks() -> str:
    """Send studies whose check is dear, all at once, as one analyst; then ask the tester to stop."""
    with running_tester(tls=False) as tester:
        made, requests = tester.made, []
        owner = Owner(name="owner-000", key=made.owners["owner-000"].public_hex, data_set="rows")
        for number in range(2 * CHECKS):
            parameters = {"n_points": POINTS, "placement": "uniform"}
            plain = study_of_columns(5, (0.0, 1.0), parameters, epsilon=1.0, run=number)
            study = made.dated(plain, (owner,), "benchmark").model_copy(
                update={"procedure": "embedding_release"}
            )
            requests.append(made.sealed(study))
        started_mb, statuses = tester.served.memory_mb, []

        def put(study: str, envelope: bytes) -> None:
            path, token = f"/v1/studies/{study}", tester.token(made.analyst)
            with tester.connect() as connection, suppress(OSError):
                connection.settimeout(STOP_S_MAX)
                connection.sendall(request_bytes("PUT", path, tester.port, token, envelope))
                statuses.append(connection.recv(2**16)[9:12].decode())

        with ThreadPoolExecutor(2 * CHECKS) as pool:
            with honest_callers(tester) as honest:
                started = time.monotonic()
                first = [pool.submit(put, *request) for request in requests[:CHECKS]]
                for sent in first:
                    sent.result()
                took = time.monotonic() - started
            memory, answered = tester.served.memory_mb, dict(Counter(statuses))
            for request in requests[CHECKS:]:
                pool.submit(put, *request)
            time.sleep(SETTLE_S)
            stopped = tester.stop_s()
        return (
            f"answers {answered} within {took:.1f} s; memory {started_mb:.0f} to {memory:.0f} MB; "
            f"SIGTERM {stopped:.1f} s; honest {told(honest)}"
        )


def burst_headers() -> str:
    """Send a request with far more header bytes than are allowed, at once."""
    with running_tester(tls=False) as tester, tester.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Big: " + b"x" * HEADER_BYTES + b"\r\n\r\n")
        return f"{HEADER_BYTES} bytes: answer {connection.recv(2**16)[9:12].decode()}"


def nothing(held_s: float) -> str:
    """Attack nothing: how honest callers fare on this machine now, and what a tester takes for them."""
    with running_tester(tls=True) as tester:
        idle_mb = tester.served.memory_mb
        with honest_callers(tester) as honest:
            time.sleep(held_s)
            memory_mb = tester.served.memory_mb
        return f"{idle_mb:.0f} MB idle, {memory_mb / idle_mb:.2f} times that; honest {told(honest)}"


ATTACKS: dict[str, Callable[[float], str]] = {
    "nothing": nothing,
    "chunks": lambda _: chunks("/v1/enrolments", "application/json"),
    "chunks-sign-in": lambda _: chunks("/sign-in", "application/x-www-form-urlencoded"),
    "headers": lambda _: burst_headers(),
    "before-tls": lambda held_s: silent_tls(["before"], held_s),
    "within-tls": lambda held_s: silent_tls(["within"], held_s),
    "after-tls": lambda held_s: silent_tls(["after"], held_s),
    "asked-tls": lambda held_s: silent_tls(["asked"], held_s),
    "mixed-tls": lambda held_s: silent_tls(["before", "within", "after", "asked"], held_s),
    "closed-tls": closed_tls,
    "memory": lambda _: memory(),
    "idle-plain": lambda _: idle_plain(),
    "checks": lambda _: checks(),
}


def main() -> None:
    """Make the attacks, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("attacks", nargs="*", choices=[*ATTACKS, []])
    parser.add_argument("--held-s", type=float, default=LONG_S, help="how long the attacks around TLS last")
    chosen = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * SILENT + 1000), hard))
    for name in chosen.attacks or ATTACKS:
        print(f"{name}: {ATTACKS[name](chosen.held_s)}", flush=True)


if __name__ == "__main__":
    main()
