"""The joint independence statistic (dHSIC) of data and of many permutations of them, fast and exact.

T = |(1/n) sum_i a_i1 x .. x a_id - (mean of a_1) x .. x (mean of a_d)|, a_ij the feature of unit i in
variable j: the root of the V-statistic of Pfister, Buhlmann, Scholkopf and Peters (2018). A permutation
reorders the units of variables 2..d, each by itself. Four ways to the same number, all within
``evaluation_error``; which one may depend on the data, and not on the workers:

- explicit features, by a pivoted Cholesky factor that is checked entry by entry: the norm of a tensor;
- sums over pairs of units, T^2 = mean of products - 2 (mean of row means' products) + product of means, of
  kernel matrices that are held, permuted rows and columns gathered;
- the same of tiles that are evaluated anew from the units' rows in the permuted order;
- the same of Laplacian kernels of single columns, by knots and the bins between them: laplacian.py.

What is summed in floating point is summed pairwise, over SUMMED_MAX values at most, and such sums exactly:
``SUMMATION_ROUNDINGS`` counts on it.

How far one unit can move T: every variable's features have norm at most 1 and inner products of at least 0.
Replacing a unit replaces one row of the data as they are, and one value of each variable, usually in
different rows, of permuted data: the two have different bounds (docs/mathematics/joint-independence.md).
"""

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain import ONE_WORKER, Workers, linear_algebra
from tacit_protocol.procedures.joint_independence.laplacian import BINS, BinnedColumns, bins_for

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Permutations = Sequence[Integers | None]
"""For every variable the order of its units, (units,); None leaves it, and the first is always left."""

Progress = Callable[[float], None]

REPLICATES_AT_ONCE = 16
"""Replicates of an item of work: they share what does not depend on the permutation, and each takes a second
or so where there are many units, so that progress shows and little is lost with a worker."""

FACTOR_ERROR = 8e-14
"""Bound on what a low-rank factor leaves out of a kernel value, on average; ``factorise`` looks at every
entry. It takes less than that, and what is left is enough for ``CELL_ERROR``."""

SUMMATION_ROUNDINGS = 60, 130
"""Roundings, of 2^-53 each, of T^2 as it is put together from kernel values: so many, and so many for every
variable. Values are summed pairwise, in 40 roundings, and such sums exactly."""

ROUNDING = 1e-12
"""Relative slack for the few roundings of these formulas."""


def observed_sensitivity(units: int, variables: int) -> float:
    """Bound |T - T'| on the data as they are, for ``units`` >= 2 and ``variables`` >= 2.

    sqrt(6) (n - 1)/n^2 for two variables; never more than the bound for permuted data.

    >>> [round(1e4 * observed_sensitivity(10_000, d), 3) for d in (2, 3, 4)]
    [2.449, 2.828, 3.742]
    """
    _require_several(units, variables)
    p, d = 1 / units, variables
    x, y = 1 - math.pow(p, d - 1), math.pow(1 - p, d - 1)
    spread = max(2 + 2 * d, d * d - d + 2)
    several = math.fsum(math.comb(d, m) * math.pow(p, m) * math.pow(1 - p, d - m) for m in range(2, d))
    bound = p * math.sqrt(2 * x * x + y * y * (spread - 2)) + math.sqrt(2) * several
    return min(bound * (1 + ROUNDING), permuted_sensitivity(units, variables))


def permuted_sensitivity(units: int, variables: int) -> float:
    """Bound |T - T'| under permutations that are the same on both sides: (2d/n)(1 - n^(1-d)).

    It holds for any permutations of the variables' values, and for two variables it is reached.

    >>> round(1e4 * permuted_sensitivity(10_000, 2), 3)
    4.0
    """
    _require_several(units, variables)
    return 2 * variables / units * (1 - math.pow(units, 1 - variables)) * (1 + ROUNDING)


def evaluation_error(units: int, variables: int, kernel_error: float) -> float:
    """Bound |computed T - T| for any data, where kernel values are within ``kernel_error`` of exact ones.

    The square root of the error of T^2, at most 4 ((1 + E)^d - 1) and the summation's, E an entry's: a T of 0
    may be computed as that. The rounding of an explicit tensor adds less than 4 (n + 16 d) units of 2^-53.
    """
    _require_several(units, variables)
    entry = kernel_error + FACTOR_ERROR
    fixed, each = SUMMATION_ROUNDINGS
    summation = (fixed + each * variables) * 2.0**-53
    squared = 4 * math.expm1(variables * math.log1p(entry)) + summation
    return math.sqrt(squared) + 4 * (units + 16 * variables) * 2.0**-53


def statistic_max(variables: int) -> float:
    """Bound T itself: (d - 1)/2, by a telescoping sum of covariances of norm at most 1/2; and sqrt 2."""
    return min((variables - 1) / 2, math.sqrt(2))


def _require_several(units: int, variables: int) -> None:
    if units < 2 or variables < 2:
        raise ValueError("a joint independence test needs at least two units and two variables")


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


RESIDUAL_MAX = 1e-14
"""Diagonal residual at which factorising stops: entries are then as good as their evaluation."""

LEFT_OUT_MAX = 2.5e-14
"""Mean square of the features' last principal components, which a factor leaves out."""

MISMATCH_MAX, ENTRY_MISMATCH_MAX = 4e-14, 1e-9
"""Mean absolute difference between the entries and their factors' product, as computed, and the largest one;
the product's own rounding adds (rank + 1) 2**-53, below 3e-14 up to RANK_MAX."""

RANK_MAX, BINNED_RANK_MAX = 256, 32
"""Highest rank: beyond, sums over pairs of units take less time; and that where they are summed in bins."""

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


class PermutableGram(GramMatrix, Protocol):
    """A kernel matrix between units that can be put in another order and evaluated piece by piece."""

    def tile(self, start: int, stop: int, left: int, right: int) -> Floats:
        """Return rows [start, stop) and columns [left, right) in memory order, a new array."""

    def reordered(self, order: Integers) -> "PermutableGram":
        """Return the matrix with rows and columns in another order, (size,)."""

    @property
    def entry_ns(self) -> float:
        """Roughly how long an entry takes to evaluate."""

    @property
    def laplacian(self) -> tuple[Floats, float] | None:
        """A column and a bandwidth where entries are exp(-|x - y| / bandwidth) of it; otherwise None."""


def factorise(gram: PermutableGram, rank_max: int = RANK_MAX, workers: Workers = ONE_WORKER) -> Floats | None:
    """Return L, (rank, size), with the entries of L'L within MISMATCH_MAX of the matrix on average.

    None where that takes more than ``rank_max`` rows (at most RANK_MAX), or more accuracy than there is.
    ``workers`` compare the entries.
    """
    whole = _pivoted_cholesky(gram, min(rank_max, RANK_MAX))
    if whole is None:
        return None
    _, factor = _principal(whole, LEFT_OUT_MAX)
    return factor if _mismatch(gram, factor, workers) <= MISMATCH_MAX else None


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


def _principal(features: Floats, left_out: float) -> tuple[Floats, Floats]:
    """Return principal directions of features, (rank, kept), and the features in them, (kept, units).

    The others' mean square is at most ``left_out``.
    """
    directions, sizes, coordinates = np.linalg.svd(features, full_matrices=False)
    rest = np.cumsum(sizes[::-1] ** 2)[::-1] / features.shape[1]
    kept = max(1, int(np.sum(rest > left_out)))
    return directions[:, :kept], sizes[:kept, None] * coordinates[:kept]


def _mismatch(gram: PermutableGram, factor: Floats, workers: Workers) -> float:
    """Return the mean absolute difference of the matrix's entries; infinite where one is too large."""
    pieces = strips(0, gram.size, gram.size, ITEM_ENTRIES)
    return math.fsum(workers.map(_strip_mismatch, (gram, factor), pieces)) / gram.size**2


def _strip_mismatch(compared: tuple[PermutableGram, Floats], strip: tuple[int, int]) -> float:
    gram, factor = compared
    total = 0.0
    for (start, stop, left, right), times in _tiles(*strip, gram.size):
        difference = gram.tile(start, stop, left, right)
        difference -= factor[:, start:stop].T @ factor[:, left:right]
        np.abs(difference, out=difference)
        if not float(difference.max()) <= ENTRY_MISMATCH_MAX:
            return math.inf
        total += times * float(difference.sum())
    return total


def strips(first: int, last: int, columns: int, entries: int) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) of the rows in [first, last), ``entries`` together, but a row at least."""
    step = max(1, entries // columns)
    for start in range(first, last, step):
        yield start, min(start + step, last)


TENSOR_ENTRIES_MAX = 2**22
"""Largest tensor: 32 MiB for each worker."""

SPLIT_VARIABLES_MAX = 12
"""Most variables whose 2^(d-1) splits into two sides are looked through; more take another way."""

TENSOR_BLOCK_ENTRIES = 2**17
"""Entries of a side of the tensor's product worked on at once: 1 MiB, for the processor's cache."""

MULTIPLY_ADD_NS, OUTER_NS, CELL_NS = 0.1, 1.0, 10_000.0
"""Rough times of a multiplication and addition by BLAS, an entry of an outer product, all calls of a cell."""

CELLS, CELL_UNITS = (8, 32, 128), 50
"""Numbers of cells to choose from, and fewest units that each has on average."""

CELL_ERROR = 1e-8
"""Most that features in their cells' directions may miss, by norm, on average: T is missed by no more."""


class Cells(NamedTuple):
    """Features, (rank, units), cell by cell of units that are alike, each in few directions of its own."""

    order: Integers
    """The units, (units,), cell by cell."""

    features: tuple[Floats, ...]
    """Of every cell its units' features in its directions, (kept, units of the cell)."""

    directions: Floats | None
    """All cells' directions side by side, (rank, sum of kept); None where there is one cell, as it was."""

    @classmethod
    def whole(cls, features: Floats) -> "Cells":
        """Leave features as they are."""
        return cls(np.arange(features.shape[1]), (features,), None)

    @classmethod
    def cut(cls, features: Floats, number: int) -> "Cells | None":
        """Make cells around ``number`` units far apart; None where that errs, or might round, too much."""
        units = features.shape[1]
        nearest, cell, centre = np.full(units, -np.inf), np.zeros(units, dtype=np.int64), 0
        for index in range(number):
            likeness = features[:, centre] @ features
            cell[likeness > nearest] = index
            np.maximum(nearest, likeness, out=nearest)
            centre = int(np.argmin(nearest))
        kept, directions, missed = [], [], 0.0
        for index in np.unique(cell).tolist():
            own = features[:, cell == index]
            found, coordinates = _principal(own, CELL_ERROR**2 / 2)
            missed += float(np.linalg.norm(own - found @ coordinates, axis=0).sum())
            kept.append(coordinates)
            directions.append(found)
        made = cls(np.argsort(cell, kind="stable"), tuple(kept), np.hstack(directions))
        rounded = made.kept * math.sqrt(max(map(len, kept)))
        return made if missed <= CELL_ERROR * units and rounded <= units else None

    @property
    def kept(self) -> int:
        """Directions of all cells."""
        return sum(map(len, self.features))

    @property
    def rank(self) -> float:
        """Directions of a unit, on average."""
        return sum(features.size for features in self.features) / len(self.order)


class TensorStatistic:
    """T as the norm of an explicit tensor, (entries of the left side, entries of the right side).

    ``factors`` are every variable's features, (rank, units) each, whose tensor fits: :func:`fits`. ``cells``
    are the first one's.
    """

    def __init__(
        self, factors: Sequence[Floats], left: tuple[int, ...] | None = None, cells: Cells | None = None
    ) -> None:
        self._cells = Cells.whole(factors[0]) if cells is None else cells
        left = left if left is not None else split([self._cells.rank, *map(len, factors[1:])])
        right = tuple(j for j in range(len(factors)) if j not in left)
        self._rank, self._units = factors[0].shape
        self._left = {j: factors[j] for j in left[1:]}
        self._right = {j: np.ascontiguousarray(factors[j].T) for j in right}
        means = [factor.mean(axis=1, keepdims=True) for factor in factors]
        one, other = (_products([means[j] for j in side]) for side in (left, right))
        self._mean: Floats = one @ other.T
        self._step = max(1, TENSOR_BLOCK_ENTRIES // max(self._mean.shape))

    @classmethod
    def fastest(cls, factors: Sequence[Floats]) -> "TensorStatistic":
        """Cut the first variable's units into cells where that pays."""
        found = [cls(factors)]
        rest = math.prod(len(factor) for factor in factors[1:])
        most = factors[0].shape[1] // CELL_UNITS if len(factors) > 2 else 0
        for number in (number for number in CELLS if number <= most):
            cells = Cells.cut(factors[0], number)
            if cells is not None and cells.kept * rest <= TENSOR_ENTRIES_MAX:
                found.append(cls(factors, cells=cells))
        return min(found, key=lambda statistic: statistic.replicate_ns)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of variables and of units."""
        return 1 + len(self._left) + len(self._right), self._units

    @property
    def replicate_ns(self) -> float:
        """Roughly how long a replicate takes."""
        cells, entries, other = self._cells, self._mean.size, self._mean.shape[1]
        one = cells.rank * self._mean.shape[0] / self._rank
        each = MULTIPLY_ADD_NS * one * other + OUTER_NS * (one + other)
        found = self._units * each + OUTER_NS * entries
        if cells.directions is not None:
            found += MULTIPLY_ADD_NS * cells.kept * entries + CELL_NS * len(cells.features)
        return float(found)

    def __call__(self, permutations: Sequence[Permutations]) -> list[float]:
        """Return T under each of the permutations, which leave the first variable."""
        sums = np.empty((self._cells.kept, self._mean.size // self._rank))
        return [self._norm(permuted, sums) for permuted in permutations]

    def _norm(self, permutations: Permutations, sums: Floats) -> float:
        cells = self._cells
        orders = [cells.order if order is None else order[cells.order] for order in permutations]
        left = [factor.take(orders[j], axis=1, mode="clip") for j, factor in self._left.items()]
        right = [factor.take(orders[j], axis=0, mode="clip") for j, factor in self._right.items()]
        start = row = 0
        for features in cells.features:
            kept, units = features.shape
            into = sums[row : row + kept].reshape(-1, self._mean.shape[1])
            for first in range(0, units, self._step):
                own = features[:, first : first + self._step]
                block = slice(start + first, start + first + own.shape[1])
                one = _products([own, *(factor[:, block] for factor in left)])
                other = _row_products([factor[block] for factor in right])
                if first:
                    into += one @ other
                else:
                    np.matmul(one, other, out=into)
            start, row = start + units, row + kept
        total = (sums if cells.directions is None else cells.directions @ sums).reshape(self._mean.shape)
        total /= self._units
        total -= self._mean
        total *= total
        return math.sqrt(float(np.sum(total)))


def fits(ranks: Sequence[int]) -> bool:
    """Return whether features of so many coordinates have a tensor that is not too large."""
    return len(ranks) <= SPLIT_VARIABLES_MAX and math.prod(ranks) <= TENSOR_ENTRIES_MAX


def split(ranks: Sequence[float]) -> tuple[int, ...]:
    """Return the variables of the left side: the split with the smallest sides; the first is on the left."""
    others = range(1, len(ranks))
    sides = itertools.chain.from_iterable(itertools.combinations(others, m) for m in range(len(ranks) - 1))
    total = math.prod(ranks)

    def cost(side: tuple[int, ...]) -> float:
        left = math.prod(ranks[j] for j in (0, *side))
        return left + total / left

    return (0, *min(sides, key=cost))


def _products(factors: Sequence[Floats]) -> Floats:
    """Return all products of one row of each, (product of ranks, units): column-wise Kronecker products."""
    product = factors[0]
    for factor in factors[1:]:
        product = (product[:, None, :] * factor[None, :, :]).reshape(-1, factor.shape[1])
    return product


def _row_products(factors: Sequence[Floats]) -> Floats:
    """Return all products of one column of each, (units, product of ranks)."""
    product = factors[0]
    for factor in factors[1:]:
        product = (product[:, :, None] * factor[:, None, :]).reshape(len(factor), -1)
    return product


GRAM_BYTES_MAX = 2**32
"""Memory for the kernel matrices of all variables, where they are held."""

WORKER_BYTES_MAX = 2**31
"""Memory for kernel matrices in a process elsewhere; larger ones are held by the calling process alone."""

TILE_ROWS, TILE_COLUMNS = 64, 512
"""Units of a tile: 256 KiB a variable, so that what is multiplied stays in the processor's cache."""

STRIP_ENTRIES = 2**15
"""Kernel values gathered and multiplied at once: 256 KiB, for the processor's cache."""

FILL_ENTRIES = 2**20
"""Kernel values of whole rows that are evaluated at once: 8 MiB."""

SUMMED_MAX = 2**20
"""Most units, hence most values summed in floating point: a pairwise sum's error then stays below 40
roundings (8 sums of 16 values, 7 left over, 3 + 14 levels)."""

GATHER_NS, MULTIPLY_NS, TILE_NS = 4.0, 0.6, 20_000.0
"""Rough times of a gathered kernel value, of a multiplied and added one, and of a tile besides its values."""


def holding_pays(grams: Sequence[PermutableGram]) -> bool:
    """Return whether gathering entries of matrices that fit GRAM_BYTES_MAX is faster than evaluating anew."""
    fitting = 8 * len(grams) * grams[0].size ** 2 <= GRAM_BYTES_MAX
    return fitting and _gathering_ns(grams) < _evaluating_ns(grams)


def replicate_ns(grams: Sequence[PermutableGram]) -> float:
    """Return roughly how long a replicate takes, in the way of the two that is chosen."""
    found = _gathering_ns(grams) if holding_pays(grams) else _evaluating_ns(grams)
    return found + MULTIPLY_NS * (len(grams) - 1) * grams[0].size ** 2 / 2


def _gathering_ns(grams: Sequence[PermutableGram]) -> float:
    return GATHER_NS * (len(grams) - 1) * grams[0].size ** 2 / 2


def _evaluating_ns(grams: Sequence[PermutableGram]) -> float:
    units = grams[0].size
    tiles = units / TILE_ROWS * (2 + units / TILE_COLUMNS / 2)
    return sum(TILE_NS * tiles + gram.entry_ns * units**2 / 2 for gram in grams[1:])


class _Means(NamedTuple):
    """Mean kernel values, (variables, units), and the product of the variables' means of them."""

    rows: Floats
    product: float

    @classmethod
    def of(cls, rows: Floats) -> "_Means":
        """Put them together; ValueError where there are more units than SUMMED_MAX."""
        if rows.shape[1] > SUMMED_MAX:
            raise ValueError("there are too many units to sum over their pairs")
        return cls(rows, math.prod(math.fsum(means) / len(means) for means in rows.tolist()))

    def root(self, products: float, permutations: Permutations) -> float:
        """Return T of the sum, over all pairs of units, of the products of the permuted kernels."""
        units = self.rows.shape[1]
        crossed = np.ones(units)
        for means, permutation in zip(self.rows, permutations, strict=True):
            crossed *= means if permutation is None else means[permutation]
        squared = products / units**2 - 2 * (math.fsum(crossed.tolist()) / units) + self.product
        return math.sqrt(max(0.0, squared))


class PairStatistic:
    """T from sums over pairs of units, at most SUMMED_MAX. ``held``: matrices are in memory where it works.

    Workers elsewhere are sent the units' rows, never a matrix: a process makes its own, once. ``travels`` is
    whether they have the memory for it.
    """

    def __init__(self, grams: Sequence[PermutableGram], held: bool, workers: Workers = ONE_WORKER) -> None:
        units = grams[0].size
        self._grams, self._held = tuple(grams), held
        items = strips(0, units, units, ITEM_ENTRIES)
        pieces = itertools.product(range(len(grams)), items)
        found = np.concatenate(list(workers.map(_row_means, self._grams, pieces)))
        self._means = _Means.of(found.reshape(len(grams), units))
        self.travels = not held or 8 * len(grams) * units**2 <= WORKER_BYTES_MAX
        if held and (workers.in_process or not self.travels):
            self._matrices(workers)

    def __getstate__(self) -> dict[str, object]:
        """Leave the matrices out."""
        return {name: value for name, value in vars(self).items() if name != "_making"}

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of variables and of units."""
        return len(self._grams), self._grams[0].size

    def __call__(self, permutations: Sequence[Permutations]) -> list[float]:
        """Return T under each of the permutations, which leave the first variable."""
        if self._held:
            products = [self._gathered_sum(permuted) for permuted in permutations]
        else:
            products = self._evaluated_sums(permutations)
        return [self._means.root(*found) for found in zip(products, permutations, strict=True)]

    def _evaluated_sums(self, permutations: Sequence[Permutations]) -> list[float]:
        """Return the sum over all pairs of the products of kernel values, tile by tile for all replicates."""
        units, (first, *others) = self.shape[1], self._grams
        reordered = [
            [
                gram if order is None else gram.reordered(order)
                for gram, order in zip(others, permuted[1:], strict=True)
            ]
            for permuted in permutations
        ]
        sums: list[list[float]] = [[] for _ in permutations]
        for piece in _tiles(0, units, units):
            shared = first.tile(*piece.place)
            for found, grams in zip(sums, reordered, strict=True):
                product = grams[0].tile(*piece.place)
                product *= shared
                for gram in grams[1:]:
                    product *= gram.tile(*piece.place)
                found.append(piece.times * float(product.sum()))
        return [math.fsum(found) for found in sums]

    def _gathered_sum(self, permutations: Permutations) -> float:
        return math.fsum(self._gathered_rows(self._matrices(ONE_WORKER), permutations))

    def _gathered_rows(self, matrices: Sequence[Floats], permutations: Permutations) -> Iterator[float]:
        """Yield what each unit's row adds."""
        units = self.shape[1]
        step = max(1, STRIP_ENTRIES // units)
        for start in range(0, units, step):
            stop = min(start + step, units)
            product = _gathered(matrices[-1], permutations[-1], start, stop).copy()
            for matrix, permutation in zip(matrices[-2::-1], permutations[-2::-1], strict=True):
                product *= _gathered(matrix, permutation, start, stop)
            square = stop - start
            yield from (product[:, :square].sum(axis=1) + 2 * product[:, square:].sum(axis=1)).tolist()

    def _matrices(self, workers: Workers) -> list[Floats]:
        """Return the matrices; the first thread that asks makes them, the others wait."""
        own: Future[list[Floats]] = Future()
        making: Future[list[Floats]] = vars(self).setdefault("_making", own)
        if making is own:
            try:
                own.set_result([_matrix(gram, workers) for gram in self._grams])
            except BaseException as error:
                own.set_exception(error)
        return making.result()


class LaplacianStatistic:
    """T of Laplacian kernels of single columns, each with its bandwidth, at most SUMMED_MAX units."""

    def __init__(self, columns: Sequence[tuple[Floats, float]], bins: int) -> None:
        self._binned = BinnedColumns(columns, bins)
        self._means = _Means.of(BinnedColumns(columns, BINS[-1]).row_means())

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of variables and of units."""
        return self._binned.shape

    def __call__(self, permutations: Sequence[Permutations]) -> list[float]:
        """Return T under each of the permutations, which leave the first variable."""
        products = self._binned.product_sums(permutations)
        return [self._means.root(*found) for found in zip(products, permutations, strict=True)]


class _Tile(NamedTuple):
    """Rows and columns, and how often the tile counts."""

    place: tuple[int, int, int, int]
    times: int


def _tiles(first: int, last: int, units: int) -> Iterator[_Tile]:
    """Yield squares on the diagonal, in rows [first, last), and tiles above it, for both triangles."""
    for start in range(first, last, TILE_ROWS):
        stop = min(start + TILE_ROWS, last)
        yield _Tile((start, stop, start, stop), 1)
        for left in range(stop, units, TILE_COLUMNS):
            yield _Tile((start, stop, left, min(left + TILE_COLUMNS, units)), 2)


def _row_means(grams: Sequence[PermutableGram], piece: tuple[int, tuple[int, int]]) -> Floats:
    variable, strip = piece
    gram = grams[variable]
    means = [
        gram.tile(start, stop, 0, gram.size).mean(axis=1)
        for start, stop in strips(*strip, gram.size, FILL_ENTRIES)
    ]
    return np.concatenate(means)


def _matrix(gram: PermutableGram, workers: Workers) -> Floats:
    matrix = np.empty((gram.size, gram.size))
    items = list(strips(0, gram.size, gram.size, FILL_ENTRIES))
    for (start, stop), rows in zip(items, workers.map(_rows, gram, items), strict=True):
        matrix[start:stop] = rows
    return matrix


def _rows(gram: PermutableGram, strip: tuple[int, int]) -> Floats:
    return gram.tile(*strip, 0, gram.size)


def _gathered(matrix: Floats, permutation: Integers | None, start: int, stop: int) -> Floats:
    """Return rows [start, stop) of a permuted matrix, from column ``start`` on."""
    if permutation is None:
        return matrix[start:stop, start:]
    return np.take(matrix[permutation[start:stop]], permutation[start:], axis=1, mode="clip")


PAIRS_MAX = 10**13
"""Most pairs of units that are evaluated, over all replicates and permuted variables: half a day of one
processor core, at 3 to 4 ns a pair of rows of one column."""

PREPARING = 0.1
"""Part of the progress that is told of before the first replicate."""


def units_max(variables: int, permutations: int, several_rows: bool = False) -> int:
    """Return the most units that a test takes; public, whichever way is taken.

    The time grows with their square: (permutations + 1) (variables - 1) n^2 / 2 is at most PAIRS_MAX. Of
    units with ``several_rows``, of which a pair is a mean over pairs of rows, the kernel matrices must fit
    GRAM_BYTES_MAX besides, so that they are evaluated once.
    """
    worked = math.isqrt(2 * PAIRS_MAX // ((permutations + 1) * (variables - 1)))
    return min(worked, math.isqrt(GRAM_BYTES_MAX // (8 * variables))) if several_rows else worked


def permuted_statistics(
    grams: Sequence[PermutableGram],
    permutations: int,
    seed: np.random.SeedSequence,
    *,
    workers: Workers = ONE_WORKER,
    progress: Progress | None = None,
) -> Floats:
    """Return T of the data and of ``permutations`` random permutations, (permutations + 1,).

    ``grams`` are the kernel matrices of two or more variables between the same units; values in [0, 1].
    Permutation b is drawn from child b of ``seed``. The result is the same bits for any ``workers``.
    ``progress`` is called with the part done.

    Raises ValueError where there are fewer than two variables or they have different numbers of units.
    """
    if len(grams) < 2 or any(gram.size != grams[0].size for gram in grams):
        raise ValueError("permuting needs two or more variables of the same units")
    report = progress if progress is not None else _silent
    # One thread in linear algebra: its results may depend on its own.
    with linear_algebra().limit(limits=1, user_api="blas"):
        statistic = _statistic(grams, workers, report)
        here = isinstance(statistic, PairStatistic) and not (statistic.travels or workers.in_process)
        return replicated(
            statistic,
            permutations,
            seed,
            ONE_WORKER if here else workers,
            lambda part: report(PREPARING + (1 - PREPARING) * part),
        )


BATCH_UNITS_MAX = 200
"""Most units of a block whose kernel matrices are permuted all at once: 32 MiB."""


def squared_statistics(
    grams: Sequence[PermutableGram],
    permutations: int,
    seed: np.random.SeedSequence,
    workers: Workers = ONE_WORKER,
) -> Floats:
    """Return T^2 of a block and of its permutations, (permutations + 1,), the observed one first.

    Small blocks are permuted all at once, which takes a tenth of the time.
    """
    units = grams[0].size
    if units > BATCH_UNITS_MAX:
        return np.square(permuted_statistics(grams, permutations, seed, workers=workers))
    rng, unmoved = np.random.default_rng(seed), np.arange(units)
    product, crossed = np.ones((permutations + 1, units, units)), 1.0
    rows = np.ones((permutations + 1, units))
    for number, gram in enumerate(grams):
        orders = np.tile(unmoved, (permutations + 1, 1))
        if number:
            rng.permuted(orders[1:], axis=1, out=orders[1:])
        matrix = gram.rows(0, units)
        means = matrix.mean(axis=1)
        product *= matrix[orders[:, :, None], orders[:, None, :]]
        rows *= means[orders]
        crossed *= float(means.mean())
    return np.asarray(product.mean(axis=(1, 2)) - 2 * rows.mean(axis=1) + crossed)


def squared_statistic(grams: Sequence[PermutableGram]) -> float:
    """Return T^2 of a block as it is."""
    matrices = [gram.rows(0, gram.size) for gram in grams]
    means = [matrix.mean(axis=1) for matrix in matrices]
    crossed = math.prod(float(mean.mean()) for mean in means)
    return float(np.prod(matrices, axis=0).mean() - 2 * np.prod(means, axis=0).mean() + crossed)


def permuted_feature_statistics(
    factors: Sequence[Floats],
    permutations: int,
    seed: np.random.SeedSequence,
    *,
    workers: Workers = ONE_WORKER,
    progress: Progress | None = None,
) -> Floats:
    """Return T as :func:`permuted_statistics` does, of explicit features: (J, units) of every variable.

    Raises ValueError where there are fewer than two variables, they have different numbers of units, or
    their tensor has more than TENSOR_ENTRIES_MAX entries.
    """
    if len(factors) < 2 or any(factor.shape[1] != factors[0].shape[1] for factor in factors):
        raise ValueError("permuting needs two or more variables of the same units")
    if not fits([len(factor) for factor in factors]):
        raise ValueError("the variables' features have a tensor that is too large")
    with linear_algebra().limit(limits=1, user_api="blas"):
        return replicated(TensorStatistic(factors), permutations, seed, workers, progress or _silent)


def _statistic(grams: Sequence[PermutableGram], workers: Workers, report: Progress) -> PermutedStatistic:
    pairs_ns = replicate_ns(grams)
    columns = [found for found in (gram.laplacian for gram in grams) if found is not None]
    bins, binned_ns = bins_for(grams[0].size, len(grams))
    binned = len(columns) == len(grams) and binned_ns < pairs_ns
    factors = _factors(grams, BINNED_RANK_MAX if binned else RANK_MAX, workers, report)
    if factors is not None:
        tensor = TensorStatistic.fastest(factors)
        if tensor.replicate_ns <= (binned_ns if binned else pairs_ns):
            return tensor
    if binned:
        return LaplacianStatistic(columns, bins)
    return PairStatistic(grams, holding_pays(grams), workers)


def _factors(
    grams: Sequence[PermutableGram], rank_max: int, workers: Workers, report: Progress
) -> list[Floats] | None:
    """Return every variable's explicit features, (rank, units) each, or None where a tensor would not fit."""
    factors: list[Floats] = []
    for number, gram in enumerate(grams, start=1):
        factor = factorise(gram, rank_max, workers) if len(grams) <= SPLIT_VARIABLES_MAX else None
        if factor is None or not fits([len(found) for found in (*factors, factor)]):
            return None
        factors.append(factor)
        report(PREPARING * number / len(grams))
    return factors


def _silent(part: float) -> None:
    """Report progress to nobody."""
