"""Python processes that begin with their imports done.

A service takes two seconds of a processor to start, nearly all of it imports. Tests that are about what a
service does, and not about how it starts, fork it from a process that has imported it once. It is a process
like any other: with its own memory, environment, folder and streams, killed by signals.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, Protocol

import pytest

from tacit.setup.processes import ServiceProcess, service_environment

SERVER = Path(__file__).parent / "fork_server.py"
START_S_MAX = 300.0

MODULES: dict[str, tuple[str, ...]] = {
    **{
        f"tacit_services.{kind}": (f"tacit_services.{kind}.__main__",)
        for kind in ("agent", "tester", "curator")
    },
    **{f"{kind}_process.py": (f"{kind}_process",) for kind in ("agent", "tester", "curator")},
    **{f"{name}.py": (name,) for name in ("hostile_child", "debit_process")},
    "distributed.cli": (
        "distributed.cli.dask_scheduler",
        "distributed.cli.dask_worker",
        "tacit_services.agent.data.table",
        "tacit_services.shared.cluster",
    ),
    "tacit.command": ("tacit.command.app", "tacit.client.transcripts", "tacit.results", "tacit.client.agent"),
}
"""What is imported before a command is run, by a word of it."""


class HasDescriptor(Protocol):
    """A file, or what is as good as one."""

    def fileno(self) -> int: ...


class ForkedProcess:
    """A forked process, with the part of ``subprocess.Popen``'s interface that the tests use."""

    def __init__(self, pid: int, told: int) -> None:
        self.pid, self.returncode = pid, None
        self._told = told

    returncode: int | None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal's number, or None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended; returns its exit code.

        Raises:
            subprocess.TimeoutExpired: it has not.
        """
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout_s: float | None) -> int | None:
        if self.returncode is None and select.select([self._told], [], [], timeout_s)[0]:
            content = os.read(self._told, 16)
            assert content, "the process that forks has ended"
            os.close(self._told)
            self.returncode = int(content)
        return self.returncode


class ForkedPython:
    """The process that has imported everything, and forks."""

    def __init__(self) -> None:
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._requests.settimeout(START_S_MAX)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, str(SERVER), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                # A fork must not lose a library's threads.
                env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def start(
        self,
        command: Sequence[str],
        *,
        stdout: HasDescriptor,
        stderr: HasDescriptor,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        new_session: bool = False,
    ) -> ForkedProcess:
        """Start what ``python COMMAND`` runs: ``-m MODULE …``, ``-c CODE …`` or ``SCRIPT …``."""
        request = {
            "command": list(command),
            "modules": [
                name for word, names in MODULES.items() if word in " ".join(command[:2]) for name in names
            ],
            "environment": dict(os.environ if environment is None else environment),
            "folder": str(folder or Path.cwd()),
            "new_session": new_session,
        }
        ours, told = os.pipe()
        with Path(os.devnull).open("rb") as nothing:
            descriptors = [told, nothing.fileno(), stdout.fileno(), stderr.fileno()]
            socket.send_fds(self._requests, [json.dumps(request).encode()], descriptors)
        os.close(told)
        answer = self._requests.recv(64)
        assert answer, f"the process that forks has ended: {self._server.poll()}"
        return ForkedProcess(int(answer), ours)

    def run(
        self,
        command: Sequence[str],
        folder: Path | None = None,
        timeout_s: float | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> "subprocess.CompletedProcess[str]":
        """Run a command to its end; returns its exit code and what it printed."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
            process = self.start(command, stdout=out, stderr=errors, environment=environment, folder=folder)
            try:
                code = process.wait(timeout_s)
            finally:
                process.kill()
            out.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(list(command), code, out.read(), errors.read())


@contextmanager
def process_of(log: Path, *command: str, **options: Any) -> Iterator[ForkedProcess]:
    """Run a command, and kill it in the end."""
    with log.open("ab") as output:
        process = forked_python().start(command, stdout=output, stderr=output, **options)
    try:
        yield process
    finally:
        process.kill()
        process.wait(START_S_MAX)


@contextmanager
def services_forked() -> Iterator[None]:
    """Fork the services that a ``LocalFederation`` of this process starts."""

    def start(cls: type[ServiceProcess], name: str, command: Sequence[str], log: Path) -> ServiceProcess:
        with log.open("ab") as output:
            process: Any = forked_python().start(
                command[1:],
                stdout=output,
                stderr=output,
                environment=service_environment(),
                new_session=True,
            )
        return cls(name, process, log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServiceProcess, "start", classmethod(start))
        yield


@contextmanager
def commands_forked(module: ModuleType) -> Iterator[None]:
    """Fork the services' own commands that a module of the SDK runs by ``subprocess.run``."""

    def run(command: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        return forked_python().run(command[1:], timeout_s=options["timeout"])

    with pytest.MonkeyPatch.context() as patch:
        forking = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)
        patch.setattr(module, "subprocess", forking)
        yield


@cache
def forked_python() -> ForkedPython:
    """The one of this process; it ends when this process does."""
    return ForkedPython()
