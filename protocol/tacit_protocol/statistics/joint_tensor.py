"""The joint independence statistic of explicit features: the norm of a tensor, without cancellation.

The tensor (1/n) sum_i a_i1 x .. x a_id less the product of the means is formed as a matrix: the variables are
split into two sides, whose column-wise products are multiplied a block of units at a time.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tacit_protocol.statistics.permutations import Integers, Permutations

Floats = npt.NDArray[np.float64]

TENSOR_ENTRIES_MAX = 2**22
"""Largest tensor: 32 MiB for each worker."""

SPLIT_VARIABLES_MAX = 12
"""Most variables whose 2^(d-1) splits into two sides are looked through; more take another way."""

TENSOR_BLOCK_ENTRIES = 2**17
"""Entries of a side of the tensor's product worked on at once: 1 MiB, for the processor's cache."""

MULTIPLY_ADD_NS, OUTER_NS = 0.1, 1.0
"""Rough times of a multiplication and addition by BLAS and of an entry of an outer product."""


class TensorStatistic:
    """T as the norm of an explicit tensor, (entries of the left side, entries of the right side).

    ``factors`` are every variable's features, (rank, units) each, whose tensor fits: :func:`fits`.
    """

    def __init__(self, factors: Sequence[Floats], left: tuple[int, ...] | None = None) -> None:
        left = left if left is not None else split([len(factor) for factor in factors])
        self._factors = tuple(factors)
        self._sides = left, tuple(j for j in range(len(factors)) if j not in left)
        means = [factor.mean(axis=1, keepdims=True) for factor in factors]
        one, other = (_products([means[j] for j in side]) for side in self._sides)
        self._mean: Floats = one @ other.T
        self._step = max(1, TENSOR_BLOCK_ENTRIES // max(self._mean.shape))

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of variables and of units."""
        return len(self._factors), int(self._factors[0].shape[1])

    @property
    def replicate_ns(self) -> float:
        """Roughly how long a replicate takes."""
        one, other = self._mean.shape
        units = self._factors[0].shape[1]
        each = MULTIPLY_ADD_NS * one * other + OUTER_NS * (one + other)
        return float(units * each + OUTER_NS * one * other)

    def __call__(self, permutations: Sequence[Permutations]) -> list[float]:
        """Return T under each of the permutations."""
        return [self._norm(permuted) for permuted in permutations]

    def _norm(self, permutations: Permutations) -> float:
        units = self.shape[1]
        total = np.zeros_like(self._mean)
        for start in range(0, units, self._step):
            block = slice(start, min(start + self._step, units))
            one, other = (
                _products([_columns(self._factors[j], permutations[j], block) for j in side])
                for side in self._sides
            )
            total += one @ other.T
        total /= units
        total -= self._mean
        total *= total
        return math.sqrt(float(np.sum(total)))


def fits(ranks: Sequence[int]) -> bool:
    """Return whether features of so many coordinates have a tensor that is not too large."""
    return len(ranks) <= SPLIT_VARIABLES_MAX and math.prod(ranks) <= TENSOR_ENTRIES_MAX


def split(ranks: Sequence[int]) -> tuple[int, ...]:
    """Return the variables of the left side: the split with the smallest sides; the first is on the left."""
    others = range(1, len(ranks))
    sides = itertools.chain.from_iterable(itertools.combinations(others, m) for m in range(len(ranks) - 1))
    total = math.prod(ranks)

    def cost(side: tuple[int, ...]) -> int:
        left: int = math.prod(ranks[j] for j in (0, *side))
        return left + total // left

    return (0, *min(sides, key=cost))


def _columns(factor: Floats, permutation: Integers | None, block: slice) -> Floats:
    if permutation is None:
        return factor[:, block]
    return np.take(factor, permutation[block], axis=1, mode="clip")


def _products(factors: Sequence[Floats]) -> Floats:
    """Return all products of one row of each, (product of ranks, units): column-wise Kronecker products."""
    product = factors[0]
    for factor in factors[1:]:
        product = (product[:, None, :] * factor[None, :, :]).reshape(-1, factor.shape[1])
    return product
