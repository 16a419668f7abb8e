"""Service processes on this machine, started, watched and stopped. Services are never imported here."""

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tacit.errors import ServiceError

ServiceKind = Literal["tester", "agent", "curator"]

STOP_TIMEOUT_S = 5.0
"""How long a service may take to end once asked; then it is killed, which its state survives by design."""

PORTS = range(10_000, 30_000)
"""Where free ports are looked for: below those that systems give to whoever asks for any port, which would
give one away between the moment it was found and the moment its service listens."""

LOG_TAIL_LINES = 5
"""Lines of a log shown where a service ended early."""

SPREAD = 12_361
"""From where one process looks for ports to where the next one does: the golden section of all of them, so
that ten processes in a row have a thousand ports each before they come to another's."""

_places = itertools.count(os.getpid() * SPREAD)


def service_command(kind: ServiceKind, verb: str, configuration: Path | None) -> list[str]:
    """Return the command line that runs a service, or a command of its own that needs no configuration."""
    named = [] if configuration is None else ["--config", str(configuration)]
    return [sys.executable, "-m", f"tacit_services.{kind}", verb, *named]


def free_ports(count: int) -> list[int]:
    """Find ports that are free now, none of them twice in the life of a process.

    Each process looks from a place of its own, so that two that start services at once find others.

    Raises:
        ServiceError: there are not so many.
    """
    found: list[int] = []
    for place in itertools.islice(_places, len(PORTS)):
        port = PORTS[place % len(PORTS)]
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise ServiceError(f"{count} free ports were not found")


@dataclass
class ServiceProcess:
    """A running service; what it prints goes to ``log``."""

    name: str
    process: "subprocess.Popen[bytes]"
    log: Path

    @classmethod
    def start(cls, name: str, command: Sequence[str], log: Path) -> "ServiceProcess":
        """Start a service in a session of its own: Ctrl-C reaches the starter, which then stops it."""
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 (our own modules, by an argument list)
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=service_environment(),
                start_new_session=True,
            )
        return cls(name, process, log)

    @property
    def running(self) -> bool:
        """Whether the process is alive."""
        return self.process.poll() is None

    def check_running(self) -> None:
        """Raise ServiceError where the process has ended."""
        if self.running:
            return
        tail = "\n".join(self.log.read_text("utf-8", "replace").splitlines()[-LOG_TAIL_LINES:])
        raise ServiceError(
            f"{self.name} ended with code {self.process.returncode}; its log, {self.log}, ends:\n{tail}"
        )


@contextmanager
def interruptions_deferred() -> Iterator[None]:
    """Let SIGINT and SIGTERM wait until the block has ended.

    An interruption between a process's birth and its entry in a list would leave it behind for ever.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Python runs signal handlers in the main thread alone
        return
    received: list[int] = []
    previous = {
        number: signal.signal(number, lambda caught, _: received.append(caught))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    for caught in received[:1]:
        signal.raise_signal(caught)


def stop_all(services: Sequence[ServiceProcess]) -> None:
    """Ask every service to end, at once; kill what has not ended after :data:`STOP_TIMEOUT_S`."""
    for service in services:
        if service.running:
            service.process.terminate()
    for service in services:
        try:
            service.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            service.process.kill()
            service.process.wait()


def service_environment() -> dict[str, str]:
    """Return this environment without settings meant for another service, and with one thread for algebra.

    The processes of a local federation share a few cores: threads that spin for one another only slow them.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TACIT_")}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return threads | kept


ALIGN_TIMEOUT_S = 3600.0
"""How long reading every id of a data set may take."""


@dataclass(frozen=True)
class AlignmentOutcome:
    """What the agent's ``align`` printed, and whether it was done."""

    passed: bool
    output: str


def run_align(configuration: Path, arguments: Sequence[str]) -> AlignmentOutcome:
    """Run a step of the agent's ``align``: ``make`` or ``compare``, with what it takes.

    Raises:
        ServiceError: it could not be run.
    """
    command = [*service_command("agent", "align", configuration), *arguments]
    try:
        done = subprocess.run(  # noqa: S603 (our own module, by an argument list)
            command, capture_output=True, text=True, timeout=ALIGN_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ServiceError(f"reading the ids took longer than {ALIGN_TIMEOUT_S:g} s") from error
    if not done.stdout:
        said = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise ServiceError(said[0] if done.returncode == 1 else f"the ids could not be compared: {said[0]}")
    return AlignmentOutcome(done.returncode == 0, done.stdout.rstrip("\n"))
