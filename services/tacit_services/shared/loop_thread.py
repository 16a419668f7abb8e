"""An event loop in a thread of its own, for callers that have none."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")

LAST_S, STOP_S = 1.0, 2.0
"""How long the last coroutine may take, and how long is waited for the end of the thread."""


AGAIN_S = 5.0
"""When a coroutine that was cancelled, and has not ended, is cancelled again."""


class LoopStoppedError(Exception):
    """The loop was stopped before a coroutine had ended."""


class LoopThread:
    """An event loop in a daemon thread, which runs until it is stopped."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._calls: set[asyncio.Task[Any]] = set()
        self._asking = threading.Lock()
        self._stopped = False
        """Whether the loop takes nothing more; what it took before is ended."""
        self._ending: list[asyncio.Task[None]] = []
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        with self._asking:
            self._stopped = True
        self._loop.run_until_complete(_cancel_others())
        self._loop.close()

    def call(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine in the loop and wait for it; only for other threads.

        Raises:
            LoopStoppedError: the loop was stopped.
        """
        with self._asking:
            running = None
            if not self._stopped:
                running = asyncio.run_coroutine_threadsafe(self._tracked(coroutine), self._loop)
        if running is None:
            coroutine.close()
            raise LoopStoppedError
        try:
            return running.result()
        except CancelledError:
            coroutine.close()  # it may not have begun
            raise LoopStoppedError from None
        except BaseException:
            running.cancel()
            raise

    async def _tracked(self, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 (narrows the type)
        self._calls.add(task)
        try:
            return await coroutine
        finally:
            self._calls.discard(task)

    def soon(self, function: Callable[[], object]) -> None:
        """Have a function called in the loop, unless that was stopped; nothing is waited for."""
        with suppress(RuntimeError):  # it is closed
            self._loop.call_soon_threadsafe(function)

    def stop(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancel the callers' coroutines, run a last one, and end the thread."""
        self.soon(lambda: self._begin_to_end(last))
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=STOP_S)

    def _begin_to_end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        if not self._ending:
            self._ending.append(self._loop.create_task(self._end(last)))

    async def _end(self, last: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await _cancel(self._calls)
        with suppress(Exception):
            async with asyncio.timeout(LAST_S):
                await last()
        self._loop.stop()


async def _cancel_others() -> None:
    await asyncio.sleep(0)  # what was asked for last becomes tasks
    await _cancel(asyncio.all_tasks() - {asyncio.current_task()})


async def _cancel(tasks: set[Any]) -> None:
    """Cancel tasks until they have ended.

    Once may not do: ``asyncio.wait_for`` swallows a cancellation that comes together with its result
    (Python 3.11), and Dask is full of it.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        left = (await asyncio.wait(left, timeout=AGAIN_S))[1]
    await asyncio.gather(*tasks, return_exceptions=True)
