"""The joint independence statistic (dHSIC) of data and of many permutations of them, fast and exact.

T = |(1/n) sum_i a_i1 x .. x a_id - (mean of a_1) x .. x (mean of a_d)|, a_ij the feature of unit i in
variable j: the root of the V-statistic of Pfister, Buhlmann, Scholkopf and Peters (2018). A permutation
reorders the units of variables 2..d, each by itself. Four ways to the same number, all within
``evaluation_error``; which one is chosen from public numbers alone (the kernel, columns, codes and units), as
the time that it takes would tell of the data otherwise:

- explicit features of a fixed rank (features/fixed_rank.py): the norm of a tensor;
- sums over pairs of units, T^2 = mean of products - 2 (mean of row means' products) + product of means, of
  kernel matrices that are held, permuted rows and columns gathered;
- the same of tiles that are evaluated anew from the units' rows in the permuted order;
- the same of distances and Laplacian kernels of single columns, by knots and the bins between: markov.py.

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
from tacit_protocol.features.fixed_rank import Directions, Features
from tacit_protocol.procedures.permutation.markov import BINS, BinnedColumns, bins_for

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Permutations = Sequence[Integers | None]
"""For every variable the order of its units, (units,); None leaves it, and the first is always left."""

Progress = Callable[[float], None]

REPLICATES_AT_ONCE = 16
"""Replicates of an item of work: they share what does not depend on the permutation, and each takes a second
or so where there are many units, so that progress shows and little is lost with a worker."""

FACTOR_ERROR = 8e-14
"""Bound on what features of a fixed rank miss of a kernel value: LEFT_OUT and rounding; the rest of it is
enough for ``CELL_ERROR``."""

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


ITEM_ENTRIES = 2**25
"""Entries of an item of work: a tenth of a second or two, long beside sending it."""


class PermutableGram(Protocol):
    """A positive semidefinite matrix of kernel values between ``size`` units.

    It can be put in another order, and evaluated piece by piece.
    """

    @property
    def size(self) -> int:
        """Number of units."""

    def rows(self, start: int, stop: int) -> Floats:
        """Return rows ``start`` to ``stop`` - 1, (stop - start, size)."""

    def tile(self, start: int, stop: int, left: int, right: int) -> Floats:
        """Return rows [start, stop) and columns [left, right) in memory order, a new array."""

    def reordered(self, order: Integers) -> "PermutableGram":
        """Return the matrix with rows and columns in another order, (size,)."""

    @property
    def entry_ns(self) -> float:
        """Roughly how long an entry takes to evaluate."""

    @property
    def features(self) -> Features | None:
        """The kernel's features of a fixed rank, where it has any."""

    def factor(self) -> Floats:
        """Return the features of all units, (rank, size)."""

    @property
    def column(self) -> Floats | None:
        """The units' values, (size,), where there is one numeric column alone and a row of each; or None."""

    @property
    def markov(self) -> tuple[Floats, float | None] | None:
        """A column, and its kernel's bandwidth or None, as BinnedColumns takes it; otherwise None."""


def strips(first: int, last: int, columns: int, entries: int) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) of the rows in [first, last), ``entries`` together, but a row at least."""
    step = max(1, entries // columns)
    for start in range(first, last, step):
        yield start, min(start + step, last)


TENSOR_ENTRIES_MAX = 2**22
"""Largest tensor: 32 MiB for each worker."""

FEATURE_BYTES_MAX = 2**32
"""Memory for the features of all units."""

SPLIT_VARIABLES_MAX = 12
"""Most variables whose 2^(d-1) splits into two sides are looked through; more take another way."""

TENSOR_BLOCK_ENTRIES = 2**17
"""Entries of a side of the tensor's product worked on at once: 1 MiB, for the processor's cache."""

MULTIPLY_ADD_NS, OUTER_NS, CELL_NS = 0.1, 1.0, 10_000.0
"""Rough times of a multiplication and addition by BLAS, an entry of an outer product, all calls of a cell."""

CELLS, CELL_UNITS = (8, 32, 128), 50
"""Numbers of cells to choose from, and fewest units that each has on average."""

CELL_ERROR = 1e-8
"""Most that features in their cells' directions may miss, by norm: T is missed by no more."""


class FeatureCells(NamedTuple):
    """Features, (rank, units), cell by cell of units that are alike, each in few directions of its own."""

    order: Integers
    """The units, (units,), cell by cell."""

    ends: tuple[int, ...]
    """Where each cell ends in that order."""

    features: Floats
    """Every unit's features in its cell's directions, (directions, units), cell by cell."""

    directions: Floats | None
    """All cells' directions side by side, (rank, sum of directions); None of one cell, as it was."""

    @classmethod
    def whole(cls, features: Floats) -> "FeatureCells":
        """Leave features as they are."""
        units = features.shape[1]
        return cls(np.arange(units), (units,), features, None)

    @classmethod
    def cut(cls, features: Floats, column: Floats, directions: Directions) -> "FeatureCells":
        """Put features, (rank, units), of a column's values, (units,), into cells."""
        cell = directions.places(column)
        order = np.argsort(cell, kind="stable")
        ends = np.cumsum(np.bincount(cell, minlength=len(directions.each))).tolist()
        found = np.empty((directions.each.shape[2], len(column)))
        for own, start, stop in zip(directions.each, [0, *ends], ends, strict=False):
            found[:, start:stop] = own.T @ features[:, order[start:stop]]
        return cls(order, tuple(ends), found, np.hstack(list(directions.each)))

    def slices(self, step: int) -> Iterator[tuple[int, slice, bool]]:
        """Yield every cell's units a slice at a time: cell, slice, and whether it is the cell's first.

        As many slices, and as long together, however units lie in cells: some are empty.
        """
        start = 0
        for cell, end in enumerate(self.ends):
            inner = range(-(-max(start, 1) // step) * step, end, step)
            for index, (first, last) in enumerate(itertools.pairwise([start, *inner, end])):
                yield cell, slice(first, last), not index
            start = end


class TensorPlan(NamedTuple):
    """How a tensor is computed, from public numbers alone, and roughly how long a replicate takes."""

    left: tuple[int, ...]
    """The variables of the tensor's left side; the first is on it."""

    directions: Directions | None
    """Of the first variable's cells, where it is cut into some."""

    replicate_ns: float

    @classmethod
    def of(cls, ranks: Sequence[int], units: int, directions: Directions | None = None) -> "TensorPlan":
        """Plan features of so many coordinates; ``directions`` are the first ones'."""
        cells, rank = (
            (1, ranks[0]) if directions is None else (len(directions.each), directions.each.shape[2])
        )
        left = split([rank, *ranks[1:]])
        entries = math.prod(ranks)
        rows = math.prod(ranks[j] for j in left)
        other = entries // rows
        one = rank * rows // ranks[0]
        each = MULTIPLY_ADD_NS * one * other + OUTER_NS * (one + other)
        found = units * each + OUTER_NS * entries
        if directions is not None:
            found += MULTIPLY_ADD_NS * cells * rank * entries + CELL_NS * cells
        return cls(left, directions, float(found))

    @classmethod
    def fastest(cls, features: Sequence[Features], units: int, single: bool) -> "TensorPlan":
        """Plan cells of the first variable where they pay; ``single``: its units have one row each."""
        ranks = [each.dimension for each in features]
        found = [cls.of(ranks, units)]
        most = units // CELL_UNITS if len(features) > 2 and single else 0
        for number in (number for number in CELLS if number <= most):
            directions = features[0].cells(number, CELL_ERROR)
            if directions is None:
                continue
            kept = number * directions.each.shape[2]
            fitting = kept * math.prod(ranks[1:]) <= TENSOR_ENTRIES_MAX
            if fitting and kept * math.sqrt(directions.each.shape[2]) <= units:
                found.append(cls.of(ranks, units, directions))
        return min(found, key=lambda plan: plan.replicate_ns)


class TensorStatistic:
    """T as the norm of an explicit tensor, (entries of the left side, entries of the right side).

    ``factors`` are every variable's features, (rank, units) each, whose tensor fits: :func:`fits`. ``cells``
    are the first one's.
    """

    def __init__(
        self,
        factors: Sequence[Floats],
        left: tuple[int, ...] | None = None,
        cells: FeatureCells | None = None,
    ) -> None:
        self._cells = FeatureCells.whole(factors[0]) if cells is None else cells
        left = left if left is not None else split([len(self._cells.features), *map(len, factors[1:])])
        right = tuple(j for j in range(len(factors)) if j not in left)
        self._rank, self._units = factors[0].shape
        self._left = {j: factors[j] for j in left[1:]}
        self._right = {j: np.ascontiguousarray(factors[j].T) for j in right}
        means = [factor.mean(axis=1, keepdims=True) for factor in factors]
        one, other = (_products([means[j] for j in side]) for side in (left, right))
        self._mean: Floats = one @ other.T
        self._step = max(1, TENSOR_BLOCK_ENTRIES // max(self._mean.shape))

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of variables and of units."""
        return 1 + len(self._left) + len(self._right), self._units

    def __call__(self, permutations: Sequence[Permutations]) -> list[float]:
        """Return T under each of the permutations, which leave the first variable."""
        kept, rest = len(self._cells.features), self._mean.size // self._rank
        sums = np.empty((len(self._cells.ends) * kept, rest))
        return [self._norm(permuted, sums) for permuted in permutations]

    def _norm(self, permutations: Permutations, sums: Floats) -> float:
        cells = self._cells
        orders = [cells.order if order is None else order[cells.order] for order in permutations]
        left = [factor.take(orders[j], axis=1, mode="clip") for j, factor in self._left.items()]
        right = [factor.take(orders[j], axis=0, mode="clip") for j, factor in self._right.items()]
        kept = len(cells.features)
        for cell, units, first in cells.slices(self._step):
            into = sums[cell * kept : (cell + 1) * kept].reshape(-1, self._mean.shape[1])
            one = _products([cells.features[:, units], *(factor[:, units] for factor in left)])
            other = _row_products([factor[units] for factor in right])
            if first:
                np.matmul(one, other, out=into)
            else:
                into += one @ other
        total = (sums if cells.directions is None else cells.directions @ sums).reshape(self._mean.shape)
        total /= self._units
        total -= self._mean
        total *= total
        return math.sqrt(float(np.sum(total)))


def fits(ranks: Sequence[int], units: int) -> bool:
    """Return whether features of so many coordinates, and their tensor, are not too large."""
    small = 8 * units * sum(ranks) <= FEATURE_BYTES_MAX and math.prod(ranks) <= TENSOR_ENTRIES_MAX
    return small and len(ranks) <= SPLIT_VARIABLES_MAX


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
        product = (product[:, None, :] * factor).reshape(len(product) * len(factor), factor.shape[1])
    return product


def _row_products(factors: Sequence[Floats]) -> Floats:
    """Return all products of one column of each, (units, product of ranks)."""
    product = factors[0]
    for factor in factors[1:]:
        ranks = product.shape[1] * factor.shape[1]
        product = (product[:, :, None] * factor[:, None, :]).reshape(len(factor), ranks)
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
            matrices = self._matrices(ONE_WORKER)
            products = [math.fsum(self._gathered_rows(matrices, permuted)) for permuted in permutations]
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


class MarkovStatistic:
    """T of kernels of single columns as BinnedColumns takes them, of at most SUMMED_MAX units."""

    def __init__(self, columns: Sequence[tuple[Floats, float | None]], bins: int) -> None:
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
    if not fits([len(factor) for factor in factors], factors[0].shape[1]):
        raise ValueError("the variables' features have a tensor that is too large")
    with linear_algebra().limit(limits=1, user_api="blas"):
        return replicated(TensorStatistic(factors), permutations, seed, workers, progress or _silent)


def _statistic(grams: Sequence[PermutableGram], workers: Workers, report: Progress) -> PermutedStatistic:
    """Choose the fastest way, by public numbers alone."""
    units = grams[0].size
    columns = [found for found in (gram.markov for gram in grams) if found is not None]
    features = [found for found in (gram.features for gram in grams) if found is not None]
    bins, binned_ns = bins_for(units, len(grams)) if len(columns) == len(grams) else (1, math.inf)
    other_ns = min(replicate_ns(grams), binned_ns)
    if len(features) == len(grams) and fits([each.dimension for each in features], units):
        column = grams[0].column
        plan = TensorPlan.fastest(features, units, column is not None)
        if plan.replicate_ns <= other_ns:
            return _tensor(grams, plan, column, report)
    if binned_ns <= other_ns:
        return MarkovStatistic(columns, bins)
    return PairStatistic(grams, holding_pays(grams), workers)


def _tensor(
    grams: Sequence[PermutableGram], plan: TensorPlan, column: Floats | None, report: Progress
) -> TensorStatistic:
    factors = []
    for number, gram in enumerate(grams, start=1):
        factors.append(gram.factor())
        report(PREPARING * number / len(grams))
    if plan.directions is None or column is None:
        return TensorStatistic(factors, plan.left)
    return TensorStatistic(factors, plan.left, FeatureCells.cut(factors[0], column, plan.directions))


def _silent(part: float) -> None:
    """Report progress to nobody."""
