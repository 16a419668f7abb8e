"""A loop in a thread of its own: what its callers get, also when it is stopped under them."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from tacit_services.shared import cluster
from tacit_services.shared.cluster import LoopStoppedError, LoopThread

PATIENCE_S = 300.0


async def nothing() -> None:
    return


@pytest.fixture
def thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopThread]:
    """A loop in a thread, whose end is waited for however busy the machine is."""
    monkeypatch.setattr(cluster, "LAST_S", PATIENCE_S)
    monkeypatch.setattr(cluster, "STOP_S", PATIENCE_S)
    made = LoopThread("loop-of-a-test")
    yield made
    made.stop(nothing)


def named() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_results_and_exceptions_reach_the_caller(thread: LoopThread) -> None:
    async def where() -> str:
        return threading.current_thread().name

    async def fail() -> None:
        raise ZeroDivisionError

    assert thread.call(where()) == "loop-of-a-test"
    with pytest.raises(ZeroDivisionError):
        thread.call(fail())


def test_a_caller_that_waits_is_told_when_the_loop_is_stopped_and_so_is_a_later_one(
    thread: LoopThread,
) -> None:
    waiting, done = threading.Event(), list[str]()

    async def for_ever() -> None:
        waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            done.append("cancelled")

    async def last() -> None:
        done.append("last")

    threading.Thread(target=lambda: (waiting.wait(), thread.stop(last)), daemon=True).start()
    with pytest.raises(LoopStoppedError):
        thread.call(for_ever())
    thread.stop(last)
    assert "loop-of-a-test" not in named()
    assert done == ["cancelled", "last"]
    with pytest.raises(LoopStoppedError):
        thread.call(for_ever())
    thread.soon(lambda: done.append("never"))
    assert done == ["cancelled", "last"]


def test_a_coroutine_that_loses_a_cancellation_is_cancelled_again(
    thread: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "AGAIN_S", 0.05)
    lost = list[str]()

    async def loses_two() -> None:
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                if len(lost) == 2:
                    raise
                lost.append("cancellation")

    threading.Timer(0.2, lambda: thread.stop(nothing)).start()
    with pytest.raises(LoopStoppedError):
        thread.call(loses_two())
    assert len(lost) == 2
