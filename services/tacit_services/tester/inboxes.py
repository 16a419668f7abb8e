"""Inboxes: which studies wait for whom; and those who wait for one, by the thousand.

Whoever waits holds a connection and a future: no thread and no connection of the database. One task looks for
all of them, one query for hundreds at a time, and only those for whom something is there are woken. A new
study thus costs the database a few queries, however many wait, and costs those whom it does not name nothing.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from anyio import CapacityLimiter, to_thread
from sqlalchemy.engine import Engine

from tacit_services.shared.clock import Clock
from tacit_services.shared.database import run_transaction
from tacit_services.shared.http_server import Stopping
from tacit_services.tester.gathered import KEYS_AT_ONCE, own_error
from tacit_services.tester.tables import DECLINES, RELEASES, STUDIES, STUDY_OWNERS
from tacit_services.tester.waiting import Bell

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
        rows = run_transaction(self._engine, lambda c: c.execute(_INBOXES, values).all(), read_only=True)
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
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line] = WeakKeyDictionary()

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
            line = self._lines[loop] = _Line(self._look, self._bell, self._stopping)
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
        """Answer with an error, one of its own."""
        if self.answer.done():
            return
        self.answer.set_exception(own_error(error))


@dataclass(eq=False)
class _Line:
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
