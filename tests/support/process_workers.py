"""Workers in processes of their own, started afresh: what they are handed is pickled, as for a cluster."""

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

from tacit_protocol.domain import AHEAD, in_order

SharedT = TypeVar("SharedT")
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


class ProcessWorkers:
    """Implements :class:`tacit_protocol.domain.Workers`; use as a context."""

    in_process = False

    def __init__(self, count: int) -> None:
        self.count = count
        # Started afresh: a fork would share this process's objects, and its threads' locks.
        self._pool = ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"))

    def __enter__(self) -> "ProcessWorkers":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    def map(
        self, function: Callable[[SharedT, ItemT], ResultT], shared: SharedT, items: Iterable[ItemT]
    ) -> Iterator[ResultT]:
        """Yield ``function(shared, item)`` for every item, in the items' order."""
        yield from in_order((self._pool.submit(function, shared, item) for item in items), AHEAD * self.count)
