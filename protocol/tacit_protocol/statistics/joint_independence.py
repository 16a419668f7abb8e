"""The joint independence statistic (dHSIC) of data and of many permutations of them, fast and exact.

T = |(1/n) sum_i a_i1 x .. x a_id  -  (mean of a_1) x .. x (mean of a_d)|, with a_ij the feature of unit i in
variable j: the square root of the V-statistic of Pfister, Buhlmann, Scholkopf and Peters (2018). A
permutation reorders the units of variables 2..d, each by itself.

Two ways to the same number. Where all variables have explicit features of low rank (low_rank.py), the tensor
above is formed by matrix products and its norm taken, without cancellation. Otherwise products of kernel
matrices are summed in blocks of rows. Both are within joint_sensitivity.evaluation_error of T.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from tacit_protocol.statistics.low_rank import GramMatrix, factorise

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Permutations = Sequence[Integers | None]
"""For every variable the order of its units, (units,); None leaves it."""

TENSOR_ENTRIES_MAX = 2**22
"""Largest tensor: 32 MiB for each worker."""

SPLIT_VARIABLES_MAX = 12
"""Most variables whose 2^(d-1) splits into two sides are looked through; more take the other path."""

TENSOR_BLOCK_ENTRIES = 2**17
"""Entries of a side of the tensor's product worked on at once: 1 MiB, for the processor's cache."""

MATRIX_BLOCK_ENTRIES = 2**15
"""Kernel values multiplied at once: 256 KiB, for the processor's cache."""

GRAM_BYTES_MAX = 2**32
"""Memory for the kernel matrices of all variables."""

MULTIPLY_ADD_NS, OUTER_NS, GATHER_NS, MULTIPLY_NS = 0.1, 1.0, 2.5, 1.2
"""Rough times of a multiplication and addition by BLAS, of an entry of an outer product, of a gathered kernel
value and of a multiplied one; they choose the path and nothing else."""

FILL_ROWS = 512
"""Rows of a kernel matrix filled in at once."""


def units_max(variables: int) -> int:
    """Return the most units whose kernel matrices fit GRAM_BYTES_MAX; public, whichever path is taken."""
    return math.isqrt(GRAM_BYTES_MAX // (8 * variables))


def permuted_statistics(
    grams: Sequence[GramMatrix],
    permutations: int,
    seed: np.random.SeedSequence,
    *,
    workers: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Floats:
    """Return T of the data and of ``permutations`` random permutations, (permutations + 1,).

    ``grams`` are the kernel matrices of two or more variables between the same units; values in [0, 1].
    Permutation b is drawn from child b of ``seed``. The result is the same bits for any number of ``workers``
    (threads; None: as many as the standard library thinks fit). ``progress`` is called with the part done.

    Raises ValueError where there are fewer than two variables or they have different numbers of units.
    """
    units = grams[0].size
    if len(grams) < 2 or any(gram.size != units for gram in grams):
        raise ValueError("permuting needs two or more variables of the same units")
    shape = (len(grams), units)
    statistic = partial(_statistic, grams)
    return _replicated(statistic, shape, permutations, seed, workers=workers, progress=progress)


def permuted_feature_statistics(
    factors: Sequence[Floats],
    permutations: int,
    seed: np.random.SeedSequence,
    *,
    workers: int | None = None,
    progress: Callable[[float], None] | None = None,
) -> Floats:
    """Return T as :func:`permuted_statistics` does, of explicit features: (J, units) of every variable.

    Raises ValueError where there are fewer than two variables, they have different numbers of units, or
    their tensor has more than TENSOR_ENTRIES_MAX entries.
    """
    units = factors[0].shape[1]
    ranks = [len(factor) for factor in factors]
    if len(factors) < 2 or any(factor.shape[1] != units for factor in factors):
        raise ValueError("permuting needs two or more variables of the same units")
    if len(factors) > SPLIT_VARIABLES_MAX or math.prod(ranks) > TENSOR_ENTRIES_MAX:
        raise ValueError("the variables' features have a tensor that is too large")
    shape = (len(factors), units)
    tensor = partial(_ByTensor, factors, _split(ranks))
    return _replicated(tensor, shape, permutations, seed, workers=workers, progress=progress)


def _replicated(
    build: Callable[[], "_Statistic"],
    shape: tuple[int, int],
    permutations: int,
    seed: np.random.SeedSequence,
    *,
    workers: int | None,
    progress: Callable[[float], None] | None,
) -> Floats:
    """Compute T of the data and of permutations of ``shape``, (variables, units)."""
    report = progress if progress is not None else _silent
    values = np.empty(permutations + 1)
    # One thread in linear algebra: the workers are the threads, and its results may depend on its own.
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(workers) as pool:
        statistic = build()

        def replicate(index: int) -> float:
            return statistic(_permutations(seed, index, *shape))

        for index, value in enumerate(pool.map(replicate, range(permutations + 1))):
            values[index] = value
            report((index + 1) / (permutations + 1))
    return values


def _permutations(seed: np.random.SeedSequence, index: int, variables: int, units: int) -> Permutations:
    """Return the permutations of replicate ``index``; replicate 0 is the data as they are."""
    if index == 0:
        return [None] * variables
    child = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, index))
    generator = np.random.default_rng(child)
    return [None, *(generator.permutation(units) for _ in range(variables - 1))]


class _Statistic(Protocol):
    def __call__(self, permutations: Permutations) -> float: ...


def _statistic(grams: Sequence[GramMatrix]) -> _Statistic:
    factors = _factors(grams)
    if factors is not None:
        split = _split([len(factor) for factor in factors])
        if _tensor_ns(factors, split) <= _matrices_ns(grams):
            return _ByTensor(factors, split)
    return _ByMatrices(grams)


def _factors(grams: Sequence[GramMatrix]) -> list[Floats] | None:
    """Return every variable's explicit features, (rank, units) each, or None where a tensor would not fit."""
    if len(grams) > SPLIT_VARIABLES_MAX:
        return None
    factors: list[Floats] = []
    for gram in grams:
        factor = factorise(gram)
        if factor is None:
            return None
        factors.append(factor)
        if math.prod(len(found) for found in factors) > TENSOR_ENTRIES_MAX:
            return None
    return factors


def _split(ranks: Sequence[int]) -> tuple[int, ...]:
    """Return the variables of the left side: the split with the smallest sides; the first is on the left."""
    others = range(1, len(ranks))
    sides = itertools.chain.from_iterable(itertools.combinations(others, m) for m in range(len(ranks) - 1))
    total = math.prod(ranks)

    def cost(side: tuple[int, ...]) -> int:
        left: int = math.prod(ranks[j] for j in (0, *side))
        return left + total // left

    return (0, *min(sides, key=cost))


def _tensor_ns(factors: Sequence[Floats], left: tuple[int, ...]) -> float:
    ranks = [len(factor) for factor in factors]
    units = int(factors[0].shape[1])
    total, one = float(math.prod(ranks)), float(math.prod(ranks[j] for j in left))
    return units * (MULTIPLY_ADD_NS * total + OUTER_NS * (one + total / one)) + OUTER_NS * total


def _matrices_ns(grams: Sequence[GramMatrix]) -> float:
    variables, pairs = len(grams), grams[0].size ** 2 / 2
    return pairs * (GATHER_NS * (variables - 1) + MULTIPLY_NS * variables)


class _ByTensor:
    """T as the norm of an explicit tensor, (entries of the left side, entries of the right side)."""

    def __init__(self, factors: Sequence[Floats], left: tuple[int, ...]) -> None:
        self._factors = factors
        self._sides = left, tuple(j for j in range(len(factors)) if j not in left)
        means = [factor.mean(axis=1, keepdims=True) for factor in factors]
        one, other = (_products([means[j] for j in side]) for side in self._sides)
        self._mean: Floats = one @ other.T
        self._step = max(1, TENSOR_BLOCK_ENTRIES // max(self._mean.shape))

    def __call__(self, permutations: Permutations) -> float:
        units = self._factors[0].shape[1]
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


class _ByMatrices:
    """T from sums over pairs of units: T^2 = mean of products - 2 (mean of row means' products) + means."""

    def __init__(self, grams: Sequence[GramMatrix]) -> None:
        self._matrices = [_matrix(gram) for gram in grams]
        self._row_means = [matrix.mean(axis=1) for matrix in self._matrices]
        self._mean = math.prod(float(np.mean(means)) for means in self._row_means)

    def __call__(self, permutations: Permutations) -> float:
        units = len(self._row_means[0])
        products = math.fsum(self._row_sums(permutations)) / units**2
        crossed = np.ones(units)
        for means, permutation in zip(self._row_means, permutations, strict=True):
            crossed *= means if permutation is None else means[permutation]
        return math.sqrt(max(0.0, products - 2 * float(np.mean(crossed)) + self._mean))

    def _row_sums(self, permutations: Permutations) -> Iterator[float]:
        """Yield what each unit's row adds; entries above the diagonal stand for those below it."""
        units = len(self._row_means[0])
        step = max(1, MATRIX_BLOCK_ENTRIES // units)
        for start in range(0, units, step):
            stop = min(start + step, units)
            product = _block(self._matrices[-1], permutations[-1], start, stop).copy()
            for matrix, permutation in zip(self._matrices[-2::-1], permutations[-2::-1], strict=True):
                product *= _block(matrix, permutation, start, stop)
            square = stop - start
            yield from (product[:, :square].sum(axis=1) + 2 * product[:, square:].sum(axis=1)).tolist()


def _block(matrix: Floats, permutation: Integers | None, start: int, stop: int) -> Floats:
    """Return rows [start, stop) of a permuted matrix, from column ``start`` on."""
    if permutation is None:
        return matrix[start:stop, start:]
    return np.take(matrix[permutation[start:stop]], permutation[start:], axis=1, mode="clip")


def _matrix(gram: GramMatrix) -> Floats:
    matrix = np.empty((gram.size, gram.size))
    for start in range(0, gram.size, FILL_ROWS):
        stop = min(start + FILL_ROWS, gram.size)
        matrix[start:stop] = gram.rows(start, stop)
    return matrix


def _silent(part: float) -> None:
    """Report progress to nobody."""
