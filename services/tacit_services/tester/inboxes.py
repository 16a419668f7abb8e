"""Inboxes: the studies that wait for a party, and the parties that wait for one, by the thousand.

Whoever waits holds a connection and a future: no thread and no connection of the database. One task looks
for all of them, one query for hundreds at a time, and only those for whom something is there are woken. A
new study thus costs the database a few queries, however many wait, and costs those whom it does not name
nothing.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import sqlalchemy as sa
import structlog
from anyio import CapacityLimiter, to_thread
from sqlalchemy.engine import Engine
from starlette.concurrency import run_in_threadpool

from tacit_services.shared.clock import Clock
from tacit_services.shared.database import DatabaseError, read_from
from tacit_services.shared.http_server import Stopping
from tacit_services.shared.logging import describe_exception
from tacit_services.tester.tables import DECLINES, RELEASES, STUDIES, STUDY_OWNERS

KEYS_AT_ONCE = 500
"""Keys of one query, which then takes some ten milliseconds."""

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


INBOX_ITEMS_MAX = 1000
"""Studies in one inbox answer: one hundred kilobytes, and as many as an agent reads."""

ROWS_AT_ONCE = 5000
"""Most rows of one query, five full inboxes: what they do not hold, the next query looks for."""

Item = dict[str, Any]
"""A study's digest and deadline."""

Look = Callable[[Collection[str]], Mapping[str, Sequence[Item]]]
"""Blocking: returns all that waits for some of these keys, one at least; a key left out is asked again."""


class InboxQuery:
    """Reads many inboxes from the database at once."""

    def __init__(self, engine: Engine, clock: Clock, rows_max: int = ROWS_AT_ONCE) -> None:
        self._engine = engine
        self._clock = clock
        self._rows_max = rows_max

    def __call__(self, keys: Collection[str]) -> dict[str, list[Item]]:
        """Return the items that wait for an answer of the parties with these keys, oldest first.

        A key that is missing in what is returned has not been looked at: ask again.
        """
        values = {"keys": list(keys), "now": int(self._clock()), "rows": self._rows_max}
        rows = read_from(self._engine, lambda c: c.execute(_INBOXES, values).all())
        found = {
            key: [{"digest": row.digest, "deadline": row.deadline} for row in group][:INBOX_ITEMS_MAX]
            for key, group in groupby(rows, key=lambda row: str(row.key))
        }
        if len(rows) < self._rows_max:
            return {key: [] for key in keys} | found
        last = str(rows[-1].key)
        if len(found) > 1 and len(found[last]) < INBOX_ITEMS_MAX:
            del found[last]  # the query's end may have cut it short
        return found


class Inboxes:
    """Everyone who waits for something to arrive in their inbox."""

    def __init__(self, look: Look, bell: Bell, stopping: Stopping) -> None:
        self._look = look
        self._bell = bell
        self._stopping = stopping
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _LineInboxes] = WeakKeyDictionary()

    @property
    def waiting(self) -> int:
        """How many wait, having been looked for; may be asked in any thread, as what is counted is copied."""
        return sum(poll.is_looked for line in list(self._lines.values()) for poll in list(line.polls))

    async def poll(
        self, key: str, wait_s: float, when_gone: Callable[[Callable[[], None] | None], None]
    ) -> Sequence[Item]:
        """Return what is in a party's inbox, as soon as there is something; nothing after ``wait_s`` seconds.

        ``when_gone`` is told what to call once nobody waits for the answer any more, and None at the end.

        Raises:
            DatabaseError: as the look.
        """
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            line = self._lines[loop] = _LineInboxes(self._look, self._bell, self._stopping)
        poll = _Poll(key, loop.create_future())
        when_gone(poll.leave)
        timer = loop.call_later(wait_s, poll.expire)
        try:
            line.join(poll)
            return await poll.answer
        finally:
            timer.cancel()
            when_gone(None)
            line.leave(poll)


@dataclass(eq=False, slots=True)
class _Poll:
    """One who waits."""

    key: str
    answer: "asyncio.Future[Sequence[Item]]"
    is_looked: bool = False
    is_due: bool = False

    def tell(self, items: Sequence[Item]) -> None:
        """Answer with what was found; with nothing, only where the wait is over."""
        self.is_looked = True
        if (items or self.is_due) and not self.answer.done():
            self.answer.set_result(items)

    def expire(self) -> None:
        """End the wait, though not before the first look."""
        self.is_due = True
        if self.is_looked:
            self.tell(())

    def leave(self) -> None:
        """Wait no longer, looked for or not."""
        self.is_due = True
        self.tell(())

    def fail(self, error: Exception) -> None:
        """Answer with a copy of an error that others share: each raising adds to an error's trace."""
        if not self.answer.done():
            own = type(error)(*error.args)
            own.__cause__ = error.__cause__
            self.answer.set_exception(own)


@dataclass(eq=False)
class _LineInboxes:
    """Those who wait in one event loop, and the task that looks for them, which lives while anyone waits."""

    look: Look
    bell: Bell
    stopping: Stopping
    polls: dict[_Poll, None] = field(default_factory=dict)
    _new: deque[_Poll] = field(default_factory=deque)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _task: "asyncio.Task[None] | None" = None
    _limiter: CapacityLimiter = field(default_factory=lambda: CapacityLimiter(1))
    """A thread of its own, never behind other requests'."""

    def join(self, poll: _Poll) -> None:
        """Let one more wait."""
        self.polls[poll] = None
        self._new.append(poll)
        self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())

    def leave(self, poll: _Poll) -> None:
        """Let one go who was answered, or has gone away."""
        del self.polls[poll]
        if not self.polls:
            self._wake.set()

    async def _run(self) -> None:
        """Look for those who came, and for everyone whenever the bell rings."""
        seen = self.bell.rings
        with self.bell.setting(self._wake):
            while self.polls:
                self._wake.clear()
                has_rung, seen = seen != self.bell.rings, self.bell.rings
                await self._look_for(deque(self.polls) if has_rung else self._new)
                await self._wake.wait()

    async def _look_for(self, polls: deque[_Poll]) -> None:
        """Look for these, hundreds at a time; whoever comes meanwhile to ``polls`` is looked for as well."""
        if polls is not self._new:
            self._new.clear()
        while polls:
            group = [polls.popleft() for _ in range(min(KEYS_AT_ONCE, len(polls)))]
            if self.stopping.requested:
                for poll in group:
                    poll.leave()
                continue
            group = [poll for poll in group if not poll.answer.done()]
            try:
                keys = {poll.key for poll in group}
                found = await to_thread.run_sync(self.look, keys, limiter=self._limiter) if group else {}
            except Exception as error:
                for poll in group:
                    poll.fail(error)
                continue
            for poll in group:
                if poll.key in found:
                    poll.tell(found[poll.key])
                else:
                    polls.append(poll)


_ANSWERED = sa.union_all(
    *(
        sa.select(table.c.study).where(
            table.c.study == STUDY_OWNERS.c.study, table.c.owner == STUDY_OWNERS.c.owner
        )
        for table in (RELEASES, DECLINES)
    )
)

# Written once: to put a statement together takes longer than SQLite takes to run it.
_INBOXES = (
    sa.select(STUDY_OWNERS.c.key, STUDIES.c.digest, STUDIES.c.deadline)
    .join(STUDIES, STUDIES.c.digest == STUDY_OWNERS.c.study)
    .where(STUDY_OWNERS.c.key.in_(sa.bindparam("keys", expanding=True)), STUDIES.c.state == "collecting")
    .where(STUDIES.c.deadline > sa.bindparam("now"), ~sa.exists(_ANSWERED))
    .order_by(STUDY_OWNERS.c.key, STUDIES.c.sequence)
    .limit(sa.bindparam("rows"))
)
