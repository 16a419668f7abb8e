"""Long polls: wait for something to change, here or in another tester on the same database."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from tacit_services.shared.http_server import Stopping

WAIT_S_MAX = 60
"""Longest wait a caller may ask for: proxies often cut requests off after that."""

RECHECK_S = 1.0
"""How often a waiting request looks at the database, where another process may have written."""

Found = TypeVar("Found")


class Bell:
    """Rung when something was stored; wakes this process's waiting requests and its worker."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._rings = 0
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    @property
    def rings(self) -> int:
        """How often it has rung: hand it to ``wait`` so that no ring is missed in between."""
        return self._rings

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return len(self._waiting)

    def ring(self) -> None:
        """Wake everyone. May be called from any thread."""
        with self._lock:
            self._rings += 1
            self._lock.notify_all()
            for loop, event in self._waiting:
                loop.call_soon_threadsafe(event.set)

    def wait_blocking(self, seen: int, timeout_s: float) -> None:
        """Wait as :meth:`wait` does, blocking this thread."""
        with self._lock:
            self._lock.wait_for(lambda: self._rings != seen, timeout_s)

    async def wait(self, seen: int, timeout_s: float) -> None:
        """Return once it has rung more than ``seen`` times, or after ``timeout_s`` seconds."""
        entry = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            if self._rings != seen:
                return
            self._waiting.add(entry)
        try:
            await asyncio.wait_for(entry[1].wait(), timeout_s)
        except TimeoutError:
            return
        finally:
            with self._lock:
                self._waiting.discard(entry)


async def poll(
    look: Callable[[], Found | None], wait_s: float, bell: Bell, stopping: Stopping
) -> Found | None:
    """Return what ``look`` (blocking, run in a thread) finds, or None after ``wait_s`` seconds of nothing."""
    loop = asyncio.get_running_loop()
    end = loop.time() + wait_s
    while True:
        seen = bell.rings
        found = await run_in_threadpool(look)
        remaining_s = end - loop.time()
        if found is not None or remaining_s <= 0 or stopping.requested:
            return found
        await bell.wait(seen, min(remaining_s, RECHECK_S))
