"""A process that computes verdicts, one after another, for the worker that started it.

Code inside a numerical library cannot be interrupted, and a process can be ended. The process reads no
database and has no key: a study and its releases go to it, the verdict's bytes come back.
``python -m tacit_services.tester.verdict_process FILE-DESCRIPTOR`` is the process; it ends when its standard
input does, and so with its parent.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe
from typing import Any

from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.discovery import PROCEDURES, procedure_named
from tacit_protocol.procedures.relay import conclude
from tacit_services.shared.compute import prepare_to_compute
from tacit_services.shared.logging import describe_exception
from tacit_services.tester.reuse import ReadReleases

VERDICT_LIMIT_S = 3600.0
"""Longest that a verdict is computed: four times what the largest study that ``check`` takes needs."""

START_S = 20.0
"""How long the process may take to start; leases last longer."""

BEAT_S = 10.0
"""How often a computation that says nothing is reported as under way."""

PROGRESS_PERIOD_S = 0.25
"""Least time between two reports of progress."""

COMMAND = (sys.executable, "-P", "-m", "tacit_services.tester.verdict_process")

Compute = Callable[[Study, ReadReleases, Progress], bytes]
"""Computes a verdict from what was received, reports its progress, and returns the verdict's bytes."""


class TooLongError(Exception):
    """The verdict took longer than VERDICT_LIMIT_S."""


class ComputationError(Exception):
    """The computation failed, or its process died; the text quotes no value."""


def compute(study: Study, read: ReadReleases, progress: Progress) -> bytes:
    """Compute a verdict in this process."""
    procedure = procedure_named(study.procedure)
    return encode(conclude(procedure, study, read.releases, read.units, progress))


class VerdictProcess:
    """Computes verdicts in a process of its own, started with the first, and again after it ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Connection[Any, Any] | None = None

    def __call__(self, study: Study, read: ReadReleases, progress: Progress) -> bytes:
        """Compute a verdict. What ``progress`` raises ends the computation.

        Raises:
            TooLongError: it took longer than VERDICT_LIMIT_S, and was ended.
            ComputationError: it failed, or its process died.
        """
        try:
            connection = self._started()
            until = time.monotonic() + VERDICT_LIMIT_S
            connection.send((study, read))
            reached = 0.0, "starting"
            while (left_s := until - time.monotonic()) > 0:
                if not connection.poll(min(left_s, BEAT_S)):
                    progress(*reached)
                    continue
                kind, said = connection.recv()
                if kind == "verdict":
                    return bytes(said)
                if kind == "failed":
                    raise ComputationError(said)
                reached = said
                progress(*reached)
            raise TooLongError
        except (EOFError, OSError):
            self.close()
            raise ComputationError("the process that computed the verdict died") from None
        except ComputationError:
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process, whatever it is doing. Any thread may call it."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if process is not None:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        if connection is not None:
            connection.close()

    def _started(self) -> "Connection[Any, Any]":
        if self._process is not None and self._connection is not None and self._process.poll() is None:
            return self._connection
        self.close()
        ours, theirs = Pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 (our own module)
                [*COMMAND, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        finally:
            theirs.close()
        self._connection = ours
        if not ours.poll(START_S):
            raise EOFError
        ours.recv()
        return ours


def main(descriptor: int) -> None:
    """Compute what is sent until the parent ends."""
    for number in (signal.SIGTERM, signal.SIGINT):  # the parent, which has them too, gives the job back
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    prepare_to_compute()
    PROCEDURES.loaded()
    connection: Connection[Any, Any] = Connection(descriptor)
    connection.send("ready")
    while True:
        study, read = connection.recv()
        try:
            verdict = compute(study, read, _reporter(connection))
        except Exception as error:
            connection.send(("failed", describe_exception(error)))
        else:
            connection.send(("verdict", verdict))


def _reporter(connection: "Connection[Any, Any]") -> Progress:
    sent_s = -PROGRESS_PERIOD_S

    def report(fraction: float, step: str) -> None:
        nonlocal sent_s
        now_s = time.monotonic()
        if now_s - sent_s >= PROGRESS_PERIOD_S:
            sent_s = now_s
            connection.send(("progress", (fraction, step)))

    return report


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main(int(sys.argv[1]))
