"""How many units there are among rows that stream past, in constant memory.

Distinct hashes are kept in memory while they are few. Beyond that they are dealt into buckets on disk, sealed
as every spool is; equal hashes fall into one bucket, and each bucket is counted by itself.
"""

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

import numpy as np

from tacit_services.agent.data.units import UnitHashes
from tacit_services.curator.spool import Spool

HASHES_IN_MEMORY = 500_000
"""Distinct hashes kept before they are dealt out; merging takes a few times their 4 MB."""

BUCKETS = 64
"""A bucket of a billion units takes 125 MB when it is counted; each is an open file."""


class UnitCounter:
    """Counts distinct hashes; use it as a context manager, which removes its buckets."""

    def __init__(self, make_spool: Callable[[], Spool]) -> None:
        self._make_spool = make_spool
        self._merged: UnitHashes = np.empty(0, dtype=np.uint64)
        self._pending: list[UnitHashes] = []
        self._pending_count = 0
        self._buckets: list[Spool] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.close()

    def add(self, hashes: UnitHashes) -> None:
        """Take in one batch of hashes.

        Raises:
            OSError: there is no room for a bucket.
        """
        distinct = np.unique(hashes)
        self._pending.append(distinct)
        self._pending_count += len(distinct)
        if self._pending_count > HASHES_IN_MEMORY:
            self._merge()
            if len(self._merged) > HASHES_IN_MEMORY:
                self._deal()

    def count(self) -> int:
        """Return how many distinct hashes there were; nothing can be added afterwards."""
        self._merge()
        if not self._buckets:
            return len(self._merged)
        self._deal()
        return sum(_distinct(bucket) for bucket in self._buckets)

    def _merge(self) -> None:
        self._merged = np.unique(np.concatenate([self._merged, *self._pending]))
        self._pending, self._pending_count = [], 0

    def _deal(self) -> None:
        if not self._buckets:
            self._buckets = [self._open.enter_context(self._make_spool()) for _ in range(BUCKETS)]
        bucket_of = self._merged % np.uint64(BUCKETS)
        for index, bucket in enumerate(self._buckets):
            bucket.append(self._merged[bucket_of == index].tobytes())
        self._merged = self._merged[:0]


def _distinct(bucket: Spool) -> int:
    bucket.seal()
    return len(np.unique(np.frombuffer(bucket.read(), dtype=np.uint64)))
