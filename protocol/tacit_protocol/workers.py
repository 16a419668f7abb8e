"""Where exact sums and permutation replicates are computed: threads of this process, or what is handed in.

What leaves an owner is made after everything computed here has come back, in the owner's own process: workers
see data, and never signing keys, budgets or noise, except what a release publishes of it.
"""

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import Protocol, TypeVar

from threadpoolctl import ThreadpoolController

SharedT = TypeVar("SharedT")
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

AHEAD = 2
"""Items under way or waiting, for each worker: no worker idles, and memory does not grow with the items."""


class WorkersUnavailableError(Exception):
    """Workers cannot be reached, or keep dying. Says nothing about the data; it may be tried again."""


class Workers(Protocol):
    """Applies a function to many items, possibly elsewhere, several at once."""

    @property
    def count(self) -> int:
        """How many items are computed at once, at least 1."""

    @property
    def in_process(self) -> bool:
        """Whether functions run in this process, and may share its objects."""

    def map(
        self, function: Callable[[SharedT, ItemT], ResultT], shared: SharedT, items: Iterable[ItemT]
    ) -> Iterator[ResultT]:
        """Yield ``function(shared, item)`` for every item, in the items' order.

        Elsewhere than in this process the function is pure and, like ``shared``, every item and every result,
        picklable: an item whose worker died is computed again. The function's own exception reaches the
        caller and ends the map.

        Raises:
            WorkersUnavailableError: the items cannot be computed now.
        """


class ThreadWorkers:
    """Threads of this process; one worker is the calling thread itself.

    NumPy lets go of the interpreter where it computes. Linear algebra uses one thread meanwhile: the workers
    are the threads, and its results may depend on its own.
    """

    in_process = True

    def __init__(self, count: int) -> None:
        if count < 1:
            raise ValueError("there must be at least one worker")
        self.count = count

    def map(
        self, function: Callable[[SharedT, ItemT], ResultT], shared: SharedT, items: Iterable[ItemT]
    ) -> Iterator[ResultT]:
        """Yield ``function(shared, item)`` for every item, in the items' order."""
        with linear_algebra().limit(limits=1, user_api="blas"):
            if self.count == 1:
                for item in items:
                    yield function(shared, item)
                return
            with ThreadPoolExecutor(self.count, thread_name_prefix="worker") as pool:
                yield from in_order(
                    (pool.submit(function, shared, item) for item in items), AHEAD * self.count
                )


ONE_WORKER = ThreadWorkers(1)
"""The calling thread."""


def workers_of(table: object) -> Workers:
    """Return the workers that a table brings along; the calling thread for one that has none."""
    found: Workers | None = getattr(table, "workers", None)
    return ONE_WORKER if found is None else found


def in_order(futures: Iterable[Future[ResultT]], ahead: int) -> Iterator[ResultT]:
    """Yield the results of futures in their order; at most ``ahead`` are made before the first one is done.

    Where one fails, or the caller stops, those not yet begun are cancelled.
    """
    upcoming = iter(futures)
    under_way = deque(itertools.islice(upcoming, ahead))
    try:
        while under_way:
            result = under_way.popleft().result()
            under_way.extend(itertools.islice(upcoming, 1))
            yield result
    finally:
        for future in under_way:
            future.cancel()


@cache
def linear_algebra() -> ThreadpoolController:
    """Return what limits its threads; looking for the libraries takes milliseconds."""
    return ThreadpoolController()
