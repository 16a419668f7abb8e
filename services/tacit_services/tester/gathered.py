"""Reads for many callers at once: those who come while one read is under way share the next."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

import anyio
import anyio.to_thread

KEYS_AT_ONCE = 500
"""Keys of one query, which then takes some ten milliseconds."""

Value = TypeVar("Value")


def own_error(error: Exception) -> Exception:
    """Return a copy of an error for one of those who share it: each raising adds to an error's trace."""
    own = type(error)(*error.args)
    own.__cause__ = error.__cause__
    return own


class Gathered(Generic[Value]):
    """Looks things up for requests, one query at a time, in a thread that never waits behind other requests'.

    Args:
        look: returns what it finds of these keys; blocking.
    """

    def __init__(self, look: Callable[[Collection[str]], Mapping[str, Value]]) -> None:
        self._look = look
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, _Line[Value]] = WeakKeyDictionary()

    async def find(self, key: str) -> Value | None:
        """Return what a look that begins after this call finds of a key, or None.

        Raises:
            Exception: as the look.
        """
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            line = self._lines[loop] = _Line(anyio.CapacityLimiter(1))
        answer: asyncio.Future[Value | None] = loop.create_future()
        line.waiting.append((key, answer))
        if line.task is None or line.task.done():
            line.task = loop.create_task(self._read(line))
        return await answer

    async def _read(self, line: "_Line[Value]") -> None:
        while line.waiting:
            group, line.waiting = line.waiting[:KEYS_AT_ONCE], line.waiting[KEYS_AT_ONCE:]
            keys = {key for key, answer in group if not answer.done()}
            try:
                found = await anyio.to_thread.run_sync(self._look, keys, limiter=line.limiter)
            except Exception as error:
                for _, answer in group:
                    if not answer.done():
                        answer.set_exception(own_error(error))
                continue
            for key, answer in group:
                if not answer.done():
                    answer.set_result(found.get(key))


@dataclass(eq=False)
class _Line(Generic[Value]):
    """Those who wait in one event loop, and the task that reads for them while there are any."""

    limiter: anyio.CapacityLimiter
    waiting: "list[tuple[str, asyncio.Future[Value | None]]]" = field(default_factory=list)
    task: "asyncio.Task[None] | None" = None
