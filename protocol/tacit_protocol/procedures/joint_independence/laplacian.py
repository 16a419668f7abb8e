"""Sums over pairs of units of products of Laplacian kernels of single columns, without looking at all pairs.

Every column is cut into bins of equally many units in its order. From a bin to a later one exp(-|x - y| / h)
is a product of three factors, none above 1: from x up to its bin's highest value, from there to the other
bin's lowest, and on to y. So pairs that share no bin in any column are summed by tables of cells, a
bin of every column each, and matrices between bins; pairs that share a bin are looked at.
docs/mathematics/joint-independence.md, "Laplacian kernels of single columns", counts the roundings.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Number = TypeVar("Number", bound=np.generic)

BINS = (4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256)
"""Numbers of bins to choose from. Sums over the bins of d columns take d times their number of roundings."""

CELLS_MAX = 2**20
"""Largest table: its sum is pairwise, in 40 roundings."""

NEAR_ENTRIES = 2**14
"""Kernel values of pairs in the same bin that are evaluated at once: 128 KiB, for the processor's cache."""

HIGH_BITS = 26
"""Cells are summed as multiples of 2**-26, exactly, and remainders below 2**-27: however many units a cell
has, they add no roundings."""

NEAR_NS, NEAR_COLUMN_NS = 3.5, 3.5
"""Rough times of the value of a pair in the same bin, and of what each column adds to it."""

UNIT_NS, CELL_NS, MULTIPLY_ADD_NS, CALLS_NS = 30.0, 6.0, 0.1, 200_000.0
"""Rough times of a unit and of a cell in a table, of a multiplication and addition by BLAS, of all calls."""


class BinnedColumns:
    """Columns, (units,) each, with the bandwidths of their kernels exp(-|x - y| / bandwidth)."""

    def __init__(self, columns: Sequence[tuple[Floats, float]], bins: int) -> None:
        units = len(columns[0][0])
        self._columns = tuple(columns)
        self._width = -(-units // bins)
        """Units in a bin; the last may have fewer."""
        self._bins = -(-units // self._width)
        self._orders = [np.argsort(column, kind="stable") for column, _ in columns]
        self._places: list[Integers] = []
        self._weights: list[tuple[Floats, Floats]] = []
        self._between: list[Floats] = []
        first = np.arange(self._bins) * self._width
        last = np.minimum(first + self._width, units) - 1
        for (column, bandwidth), order in zip(columns, self._orders, strict=True):
            place = np.empty(units, dtype=np.int64)
            place[order] = np.arange(units) // self._width
            lowest, highest = column[order[first]], column[order[last]]
            up, down = highest[place] - column, column - lowest[place]
            gaps = np.maximum(lowest[None, :] - highest[:, None], 0.0)
            self._places.append(place)
            self._weights.append((np.exp(up / -bandwidth), np.exp(down / -bandwidth)))
            self._between.append(np.triu(np.exp(gaps / -bandwidth), 1))

    def product_sum(self, permutations: Sequence[Integers | None]) -> float:
        """Return the sum over all ordered pairs of units of the product of the permuted columns' kernels."""
        return math.fsum((*self._near_sums(permutations), *self._far_sums(permutations)))

    def _far_sums(self, permutations: Sequence[Integers | None]) -> Iterator[float]:
        """Yield sums over the pairs that share no bin, by the columns in which the first unit comes first."""
        places = [_permuted(*found) for found in zip(self._places, permutations, strict=True)]
        weights = [
            [_permuted(side, order) for side in sides]
            for sides, order in zip(self._weights, permutations, strict=True)
        ]
        shape = (self._bins,) * len(places)
        cells = places[0]
        for place in places[1:]:
            cells = cells * self._bins + place
        for later in itertools.product((0, 1), repeat=len(places) - 1):
            sides = (0, *later)
            table = _table(cells, [pair[side] for pair, side in zip(weights, sides, strict=True)], shape)
            other = _table(cells, [pair[1 - side] for pair, side in zip(weights, sides, strict=True)], shape)
            for axis, (between, side) in enumerate(zip(self._between, sides, strict=True)):
                matrix = between.T if side else between
                other = np.moveaxis(np.tensordot(matrix, other, axes=(1, axis)), 0, axis)
            table *= other
            yield 2 * float(table.sum())

    def _near_sums(self, permutations: Sequence[Integers | None]) -> Iterator[float]:
        """Yield sums over the pairs that share a bin, each in the first column in which it does."""
        columns = [
            _permuted(column, order) for (column, _), order in zip(self._columns, permutations, strict=True)
        ]
        places = [
            _permuted(place.astype(np.int16), order)
            for place, order in zip(self._places, permutations, strict=True)
        ]
        for number, (order, permutation) in enumerate(zip(self._orders, permutations, strict=True)):
            units = order if permutation is None else np.argsort(permutation)[order]
            ordered, earlier = (
                [column[units] for column in columns],
                [place[units] for place in places[:number]],
            )
            for start, stop, width in self._runs():
                exponent = np.zeros(((stop - start) // width, width, width))
                for column, (_, bandwidth) in zip(ordered, self._columns, strict=True):
                    own = column[start:stop].reshape(-1, width)
                    distance = own[:, :, None] - own[:, None, :]
                    np.abs(distance, out=distance)
                    distance /= -bandwidth
                    exponent += distance
                np.exp(exponent, out=exponent)
                for place in earlier:
                    own_place = place[start:stop].reshape(-1, width)
                    exponent *= own_place[:, :, None] != own_place[:, None, :]
                yield float(exponent.sum())

    def _runs(self) -> Iterator[tuple[int, int, int]]:
        """Yield [start, stop) of some bins in a column's order, and the units in each of these bins."""
        units, width = len(self._orders[0]), self._width
        whole = units - units % width
        step = width * max(1, NEAR_ENTRIES // width**2)
        for start in range(0, whole, step):
            yield start, min(start + step, whole), width
        if whole < units:
            yield whole, units, units - whole


def bins_for(units: int, columns: int) -> tuple[int, float]:
    """Return the number of bins that takes least time, and roughly how long a permutation takes, in ns."""
    fitting = [bins for bins in BINS if bins**columns <= CELLS_MAX] or [1]
    found = min(fitting, key=lambda bins: _replicate_ns(units, columns, bins))
    return found, _replicate_ns(units, columns, found)


def _replicate_ns(units: int, columns: int, bins: int) -> float:
    near = columns * units * math.ceil(units / bins) * (NEAR_NS + NEAR_COLUMN_NS * columns)
    tables = 2.0**columns * (UNIT_NS * units + CELL_NS * float(bins) ** columns)
    products = 2.0 ** (columns - 1) * columns * MULTIPLY_ADD_NS * float(bins) ** (columns + 1)
    return near + tables + products + CALLS_NS


def _permuted(values: npt.NDArray[Number], order: Integers | None) -> npt.NDArray[Number]:
    return values if order is None else values[order]


def _table(cells: Integers, weights: Sequence[Floats], shape: tuple[int, ...]) -> Floats:
    """Return the sums of the products of the units' weights by cell."""
    product = math.prod(weights[1:], start=weights[0])
    high = np.rint(np.ldexp(product, HIGH_BITS))
    low = product - np.ldexp(high, -HIGH_BITS)
    entries = math.prod(shape)
    total = np.ldexp(np.bincount(cells, high, entries), -HIGH_BITS) + np.bincount(cells, low, entries)
    return np.asarray(total.reshape(shape))
