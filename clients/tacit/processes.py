"""Service processes on this machine: started, watched and stopped. Services are never imported here."""

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

LOG_TAIL_LINES = 5
"""Lines of a log shown where a service ended early."""


def service_command(kind: ServiceKind, verb: str, configuration: Path) -> list[str]:
    """Return the command line that runs a service."""
    return [sys.executable, "-m", f"tacit_services.{kind}", verb, "--config", str(configuration)]


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Find ports that are free now; all are held until the last is found, so that they are distinct."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for listener in sockets:
            listener.bind((host, 0))
        return [int(listener.getsockname()[1]) for listener in sockets]
    finally:
        for listener in sockets:
            listener.close()


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
                env=_environment(),
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


def _environment() -> dict[str, str]:
    """Return this environment without settings meant for another service, and with one thread for algebra.

    The processes of a local federation share a few cores: threads that spin for one another only slow them.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TACIT_")}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return threads | kept
