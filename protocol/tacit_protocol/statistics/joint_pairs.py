"""The joint independence statistic from sums over pairs of units, with kernel matrices in memory or in tiles.

T^2 = mean of products - 2 (mean of row means' products) + product of means. Entries above the diagonal stand
for those below it. Two ways to the products' sum, for any number of variables:

- tiles: a piece of every permuted matrix that fits the processor's cache is evaluated anew from the units'
  rows, put in the permuted order. Memory grows with the units alone, and nothing is gathered;
- held: whole matrices are in memory, and permuted rows and columns of them are gathered. For kernels that
  take longer to evaluate than a value takes to fetch: averages over bandwidths, units of several rows.

Whatever is summed in floating point is summed pairwise, ``numpy``'s way along memory, over SUMMED_MAX values
at most; such sums are added up exactly. joint_sensitivity.SUMMATION_ROUNDINGS counts on it.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from tacit_protocol.statistics.low_rank import ITEM_ENTRIES, GramMatrix, strips
from tacit_protocol.statistics.permutations import Integers, Permutations
from tacit_protocol.workers import ONE_WORKER, Workers

Floats = npt.NDArray[np.float64]

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


class PermutableGram(GramMatrix, Protocol):
    """A kernel matrix between units that can be put in another order and evaluated piece by piece."""

    def tile(self, start: int, stop: int, left: int, right: int) -> Floats:
        """Return rows [start, stop) and columns [left, right) in memory order, a new array."""

    def reordered(self, order: Integers) -> "PermutableGram":
        """Return the matrix with rows and columns in another order, (size,)."""

    @property
    def entry_ns(self) -> float:
        """Roughly how long an entry takes to evaluate."""


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


class PairStatistic:
    """T from sums over pairs of units, at most SUMMED_MAX. ``held``: matrices are in memory where it works.

    Workers elsewhere are sent the units' rows, never a matrix: a process makes its own, once. ``travels`` is
    whether they have the memory for it.
    """

    def __init__(self, grams: Sequence[PermutableGram], held: bool, workers: Workers = ONE_WORKER) -> None:
        units = grams[0].size
        if units > SUMMED_MAX:
            raise ValueError("there are too many units to sum over their pairs")
        self._grams, self._held = tuple(grams), held
        items = strips(0, units, units, ITEM_ENTRIES)
        pieces = itertools.product(range(len(grams)), items)
        found = np.concatenate(list(workers.map(_row_means, self._grams, pieces)))
        self._row_means = found.reshape(len(grams), units)
        self._mean = math.prod(math.fsum(means) / units for means in self._row_means.tolist())
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
        return [self._root(*found) for found in zip(products, permutations, strict=True)]

    def _root(self, products: float, permutations: Permutations) -> float:
        units = self.shape[1]
        crossed = np.ones(units)
        for means, permutation in zip(self._row_means, permutations, strict=True):
            crossed *= means if permutation is None else means[permutation]
        squared = products / units**2 - 2 * (math.fsum(crossed.tolist()) / units) + self._mean
        return math.sqrt(max(0.0, squared))

    def _evaluated_sums(self, permutations: Sequence[Permutations]) -> list[float]:
        """Return the sum over all pairs of the products of kernel values, tile by tile for all replicates."""
        first, *others = self._grams
        reordered = [
            [
                gram if order is None else gram.reordered(order)
                for gram, order in zip(others, permuted[1:], strict=True)
            ]
            for permuted in permutations
        ]
        sums: list[list[float]] = [[] for _ in permutations]
        for piece in _tiles(self.shape[1]):
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


class _Tile(NamedTuple):
    """Rows and columns, and how often the tile counts."""

    place: tuple[int, int, int, int]
    times: int


def _tiles(units: int) -> Iterator[_Tile]:
    """Yield squares on the diagonal and, for both triangles, tiles above it."""
    for start in range(0, units, TILE_ROWS):
        stop = min(start + TILE_ROWS, units)
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
