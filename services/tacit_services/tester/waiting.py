"""Long polls: wait for something to change, in this process or in another tester on the same database."""

import asyncio
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import structlog
from starlette.concurrency import run_in_threadpool

from tacit_services.shared.database import DatabaseError
from tacit_services.shared.http_server import Stopping
from tacit_services.shared.logging import describe_exception

WAIT_S_MAX = 60
"""Longest wait a caller may ask for: proxies often cut requests off after that."""

RECHECK_S = 1.0
"""How often a tester looks whether another one has changed something in the database."""

Found = TypeVar("Found")

log = structlog.get_logger()


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
        """How many wait in an event loop: requests, and those who look for others."""
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
        event = asyncio.Event()
        with self.setting(event):
            if self._rings != seen:
                return
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), timeout_s)

    @contextmanager
    def setting(self, event: asyncio.Event) -> Iterator[None]:
        """Set this event, of the running loop, with every ring."""
        entry = (asyncio.get_running_loop(), event)
        with self._lock:
            self._waiting.add(entry)
        try:
            yield
        finally:
            with self._lock:
                self._waiting.discard(entry)


class Watch:
    """Rings when what it looks at has changed.

    One small query a second for the whole process, and one after each upload, in place of one for every
    waiting request: a thousand agents may be waiting.
    """

    def __init__(self, look: Callable[[], Hashable], bell: Bell) -> None:
        self._look = look
        self._bell = bell
        self._counting = threading.Lock()
        self._lock = threading.Lock()
        self._asked = 0
        self._served = 0
        self._seen: Hashable = None

    def check(self) -> None:
        """Return once a look that began after this call has ended; calls that wait together share one.

        Blocking; may be called from any thread.
        """
        with self._counting:
            self._asked += 1
            mine = self._asked
        with self._lock:
            if self._served >= mine:
                return
            with self._counting:
                serves = self._asked
            found = self._look()
            self._served = serves
            has_changed, self._seen = found != self._seen, found
        if has_changed:
            self._bell.ring()

    def run(self, stopping: Stopping) -> None:
        """Look once a second until the service stops; then let every waiting request go."""
        while not stopping.requested:
            try:
                self.check()
            except DatabaseError as error:
                log.warning("watch_waits_for_database", kind=type(error).__name__)
            except Exception as error:
                log.error("watch_failed", fault=describe_exception(error))
            time.sleep(RECHECK_S)
        self._bell.ring()


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
        await bell.wait(seen, remaining_s)
