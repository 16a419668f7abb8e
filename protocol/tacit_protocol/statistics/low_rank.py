"""Explicit features of a kernel matrix: a pivoted Cholesky factor, checked entry by entry.

A smooth kernel in one dimension has a matrix of numerical rank 20 to 60, whatever the number of units: with
K = L'L, units' features are the columns of L, and sums over pairs of units become sums over units.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tacit_protocol.workers import ONE_WORKER, Workers

Floats = npt.NDArray[np.float64]

RESIDUAL_MAX = 1e-14
"""Diagonal residual at which factorising stops: entries are then as good as their evaluation."""

MISMATCH_MAX = 5e-14
"""Largest difference between an entry and its factors' product, as computed; the product's own rounding adds
(rank + 1) 2**-53, below 3e-14 up to RANK_MAX."""

RANK_MAX = 256
"""Highest rank: beyond, sums over pairs of units take less time."""

CHECK_ENTRIES = 2**21
"""Entries compared at once: bounds the memory of the check, for every worker, to some 50 MiB."""

ITEM_ENTRIES = 2**25
"""Entries of an item of work: a tenth of a second or two, long beside sending it."""


class GramMatrix(Protocol):
    """A positive semidefinite matrix of kernel values between ``size`` units, given piece by piece."""

    @property
    def size(self) -> int:
        """Number of units."""

    def diagonal(self) -> Floats:
        """Return the diagonal, (size,)."""

    def rows(self, start: int, stop: int) -> Floats:
        """Return rows ``start`` to ``stop`` - 1, (stop - start, size)."""


def factorise(gram: GramMatrix, rank_max: int = RANK_MAX, workers: Workers = ONE_WORKER) -> Floats | None:
    """Return L, (rank, size), with every entry of L'L within MISMATCH_MAX of the matrix.

    None where that takes more than ``rank_max`` rows (at most RANK_MAX), or more accuracy than there is.
    ``workers`` compare the entries.
    """
    factor = _pivoted_cholesky(gram, min(rank_max, RANK_MAX))
    return factor if factor is not None and _matches(gram, factor, workers) else None


def _pivoted_cholesky(gram: GramMatrix, rank_max: int) -> Floats | None:
    residual = gram.diagonal().copy()
    rank_max = min(rank_max, gram.size)
    factor = np.empty((rank_max, gram.size))
    for rank in range(rank_max + 1):
        pivot = int(np.argmax(residual))
        if residual[pivot] <= RESIDUAL_MAX:
            return np.ascontiguousarray(factor[:rank])
        if rank == rank_max:
            break
        row = gram.rows(pivot, pivot + 1)[0] - factor[:rank, pivot] @ factor[:rank]
        row /= np.sqrt(residual[pivot])
        factor[rank] = row
        residual -= row * row
        residual[pivot] = 0.0
    return None


def _matches(gram: GramMatrix, factor: Floats, workers: Workers) -> bool:
    return all(workers.map(_strip_matches, (gram, factor), strips(0, gram.size, gram.size, ITEM_ENTRIES)))


def _strip_matches(compared: tuple[GramMatrix, Floats], strip: tuple[int, int]) -> bool:
    gram, factor = compared
    for start, stop in strips(*strip, gram.size, CHECK_ENTRIES):
        difference = gram.rows(start, stop)
        difference -= factor[:, start:stop].T @ factor
        if max(float(difference.max()), -float(difference.min())) > MISMATCH_MAX:
            return False
    return True


def strips(first: int, last: int, columns: int, entries: int) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) of the rows in [first, last), ``entries`` together, but a row at least."""
    step = max(1, entries // columns)
    for start in range(first, last, step):
        yield start, min(start + step, last)
