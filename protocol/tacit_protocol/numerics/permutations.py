"""Replicates of a permutation test of several variables: drawn one by one, computed in blocks by workers.

Replicate b depends on the seed and on b alone, so that the values are the same bits for any number of
workers, wherever they are, in blocks of any size, and however often a block is computed again.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tacit_protocol.workers import Workers

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Permutations = Sequence[Integers | None]
"""For every variable the order of its units, (units,); None leaves it, and the first is always left."""

Progress = Callable[[float], None]

REPLICATES_AT_ONCE = 8
"""Replicates of an item of work: they share what does not depend on the permutation, and each takes a second
or so where there are many units, so that progress shows and little is lost with a worker."""


class PermutedStatistic(Protocol):
    """A statistic of data that are at hand; picklable, for workers elsewhere."""

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of variables and of units."""

    def __call__(self, permutations: Sequence[Permutations]) -> list[float]:
        """Return the statistic under each of the permutations."""


class _Shared(NamedTuple):
    statistic: PermutedStatistic
    seed: np.random.SeedSequence


def draw_permutations(
    seed: np.random.SeedSequence, replicate: int, variables: int, units: int
) -> Permutations:
    """Return a replicate's permutations, from a child of ``seed``; replicate 0 is the data as they are."""
    if replicate == 0:
        return [None] * variables
    child = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, replicate))
    generator = np.random.default_rng(child)
    return [None, *(generator.permutation(units) for _ in range(variables - 1))]


def replicated(
    statistic: PermutedStatistic,
    permutations: int,
    seed: np.random.SeedSequence,
    workers: Workers,
    progress: Progress,
) -> Floats:
    """Return the statistic of the data and of ``permutations`` random permutations, (permutations + 1,).

    ``progress`` is called with the part done after every block of REPLICATES_AT_ONCE.
    """
    total = permutations + 1
    blocks = [
        range(start, min(start + REPLICATES_AT_ONCE, total)) for start in range(0, total, REPLICATES_AT_ONCE)
    ]
    values = np.empty(total)
    for block, found in zip(blocks, workers.map(_block, _Shared(statistic, seed), blocks), strict=True):
        values[block.start : block.stop] = found
        progress(block.stop / total)
    return values


def _block(shared: _Shared, replicates: range) -> list[float]:
    shape = shared.statistic.shape
    return shared.statistic([draw_permutations(shared.seed, index, *shape) for index in replicates])
