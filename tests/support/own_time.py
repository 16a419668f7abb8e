"""How long something took by itself: without the time that other processes had the processors.

Machines are shared, and promises of seconds are for a process that may run.
"""

import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from forked_python import ForkedProcess

STOP_S_MAX = 5.0
"""What a service may take to stop, of its own time."""

PATIENCE_S = 300.0

STOPS_MAX = 5
"""How often a service is stopped until it was in time: a machine may stand still for a while."""

LOOK_S = 0.01
"""Between two looks at a process."""


def wait_until(holds: Callable[[], object], what: str = "what was waited for did not happen") -> Any:
    """Return what ``holds`` finds once it finds something; fails after a time that no healthy run needs."""
    until = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < until, what
        time.sleep(0.05)  # between two looks, not for luck
    return found


def kept_waiting_s(thread: Path) -> float:
    """How long a thread, a folder of ``/proc/.../task``, was ready to run and others had the processors."""
    try:
        return int((thread / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0  # it has ended, or the kernel does not tell


class HeldUp:
    """Watches a process's threads: between two looks it was held up for as long as the worst of them was."""

    def __init__(self, pid: int) -> None:
        self._tasks, self._started_s = Path(f"/proc/{pid}/task"), time.monotonic()
        self._waited_s = {thread: kept_waiting_s(thread) for thread in self._threads()}
        self.seconds = 0.0

    def look(self) -> None:
        """Add what has happened since the last look; never more than has passed since the start."""
        now_s = {thread: kept_waiting_s(thread) for thread in self._threads()}
        more = [waited_s - self._waited_s.get(thread, 0.0) for thread, waited_s in now_s.items()]
        passed_s = time.monotonic() - self._started_s
        self.seconds = min(self.seconds + max([0.0, *more]), passed_s)
        self._waited_s |= now_s

    def _threads(self) -> list[Path]:
        try:
            return list(self._tasks.iterdir())
        except OSError:
            return []


class OwnTime:
    """What the calling thread, and ``others`` of its process that it waits for, take by themselves."""

    def __init__(self, *others: threading.Thread) -> None:
        self._threads = [threading.get_native_id(), *(other.native_id for other in others)]
        self._started_s, self._waited_s = time.monotonic(), self._kept_waiting_s()

    def held_up_s(self) -> float:
        """Return for how long others have had the processors since the start."""
        return self._kept_waiting_s() - self._waited_s

    def passed_s(self) -> float:
        """Return the seconds since the start, without those."""
        return time.monotonic() - self._started_s - self.held_up_s()

    def _kept_waiting_s(self) -> float:
        return sum(kept_waiting_s(Path(f"/proc/{os.getpid()}/task/{thread}")) for thread in self._threads)


def stop(
    process: "subprocess.Popen[bytes] | subprocess.Popen[str] | ForkedProcess", enough_s: float = math.inf
) -> tuple[int, float]:
    """Ask a process to stop; returns its exit code and how long it took, without what others held it up.

    It is killed, and that is how long it took, once it has taken longer than ``enough_s``.
    """
    started_s, held_up = time.monotonic(), HeldUp(process.pid)
    process.send_signal(signal.SIGTERM)
    while process.poll() is None:
        held_up.look()
        passed_s = time.monotonic() - started_s
        if passed_s - held_up.seconds > enough_s:
            process.kill()
            return process.wait(PATIENCE_S), passed_s - held_up.seconds
        assert passed_s < PATIENCE_S, "it does not stop"
        time.sleep(LOOK_S)
    return process.returncode, time.monotonic() - started_s - held_up.seconds


def require_a_stop_in_time(stopped_s: Callable[[], float]) -> None:
    """Have a service started and stopped, and again where that took too long.

    ``stopped_s`` does it once, and returns what the stop took.
    """
    took_s: list[float] = []
    while not took_s or took_s[-1] >= STOP_S_MAX:
        assert len(took_s) < STOPS_MAX, f"stopping took {took_s} seconds"
        took_s.append(stopped_s())
