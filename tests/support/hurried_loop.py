"""An event loop whose clock runs as fast as nothing happens: what waits for a while waits for no time.

Code that asks the loop for the time, and sleeps or times out by it, behaves as it does over real seconds, and
never differently on a slow machine.
"""

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class HurriedLoop(asyncio.SelectorEventLoop):
    """A loop that turns its own clock on to the next timer whenever no socket is ready."""

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_Hurried(self))

    def time(self) -> float:
        """Return the seconds that have been waited for."""
        return self._now_s

    def pass_by(self, seconds: float) -> None:
        """Turn the clock on."""
        self._now_s += seconds


class _Hurried(selectors.DefaultSelector):
    def __init__(self, loop: HurriedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            return super().select(None)
        ready = super().select(0)
        if not ready:
            self._loop.pass_by(timeout)
        return ready


def run_hurried(work: Coroutine[Any, Any, Result]) -> Result:
    """Run as ``asyncio.run`` does, in no time. The work may not use threads, which the clock outruns."""
    with asyncio.Runner(loop_factory=HurriedLoop) as runner:
        return runner.run(work)
