"""Sums over pairs of units of products of kernels of single columns, without looking at all pairs.

The kernels are covariances of Markov processes: exp(-|x - y| / h), and that of distances, 2 min(|x|, |y|) of
numbers on the same side of the middle and otherwise 0, a Brownian motion's to both sides. Given its values at
some knots, such a process has independent pieces between them. So the kernel is exactly A + R: A is
interpolated from the knots, two of them a unit, and R is 0 but for pairs between the same two knots, of which
it takes a part. Every column has knots at units that are equally many apart in its order. The product of the
columns' A is then a sum over a table of knots, a knot of every column each; pairs between the same two knots,
in any column, are looked at: as many whatever the values are.
docs/mathematics/joint-independence.md, "Laplacian kernels of single columns": the proof and the roundings.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Number = TypeVar("Number", bound=np.generic)
Permutations = Sequence[Integers | None]
"""For every column the order of its units, (units,); None leaves it."""

BINS = (4, 8, 15, 24, 31, 40, 48, 64, 80, 96, 128, 192, 256)
"""Numbers of bins, the units from one knot to the next, to choose from."""

CELLS_MAX = 2**20
"""Largest table of knots: its sum is pairwise, in 40 roundings."""

NEAR_PAIRS = 2**12
"""Pairs in the same bins, or so, that are looked at and added up at once: of 16 permutations 512 KiB."""

WIDTH_MAX = 128
"""Widest bin whose units are added up in a table one after the other; HIGH_BITS says how wider ones are."""

HIGH_BITS = 26
"""Where bins are wider, tables are sums of multiples of 2**-26, exactly, and of remainders below 2**-27:
however many units a cell has, they add no roundings."""

ROUNDINGS_MAX = 2880
"""Roundings of T^2, for every column, that features might take, and bins may: 4 FACTOR_ERROR."""

TINY = 1e-290
"""Distance of two knots, in bandwidths, below which they are one: parts of it would not be accurate."""

NEAR_NS, NEAR_COLUMN_NS, SHARED_NS, SHIFT_NS = 2.2, 0.8, 0.9, 1_000.0
"""Rough times of the value of a pair in the same bin, of what each further column adds, of each column
whose A is taken, and of the calls for all pairs that lie so many units apart in a column's order."""

UNIT_NS, CELL_NS, MULTIPLY_ADD_NS, CALLS_NS = 6.0, 1.5, 0.05, 50_000.0
"""Rough times of a unit and of a cell in a table, of a multiplication and addition by BLAS, of all calls."""


MIDDLE = 0.5
"""Where distances are measured from."""


class _Laplacian(NamedTuple):
    """The kernel exp(-|x - y| / bandwidth)."""

    rate: float
    """-1 / bandwidth."""

    def values(self, x: Floats, y: Floats) -> Floats:
        """Return kernel values."""
        difference = x - y
        np.abs(difference, out=difference)
        difference *= self.rate
        return np.asarray(np.exp(difference, out=difference))

    def parts(self, values: Floats, below: Floats, above: Floats) -> tuple[Floats, Floats, Floats]:
        """Return hats, low and high, as a column has them, of values between knots below and above."""
        up, down, gap = values - below, above - values, above - below
        apart = -self.rate * gap > TINY
        whole = np.where(apart, -np.expm1(2 * self.rate * gap), 1.0)
        high = np.where(apart, -np.expm1(2 * self.rate * down), 0.0)
        low = np.where(apart, -np.expm1(2 * self.rate * up) / whole, 0.0)
        to_below, to_above = np.exp(self.rate * up), np.exp(self.rate * down)
        return np.stack([to_below * np.where(apart, high / whole, 1.0), to_above * low]), low, high

    def from_others(self, values: Floats, knots: Floats, filled: npt.NDArray[np.bool_]) -> Floats:
        """Return, of values by bin, (bins, width), their sums of kernel values with all other bins' units."""
        up = np.exp((values - knots[:-1, None]) * self.rate)
        down = np.exp((knots[1:, None] - values) * self.rate)
        # The last bin lies below no other one, so all that are summed are there.
        between = self.values(knots[1:-1, None], knots[1:-1])
        below = (np.tril(between) * down[:-1].sum(axis=1)).sum(axis=1)
        above = (np.triu(between) * (up * filled)[1:].sum(axis=1)).sum(axis=1)
        return np.asarray(up * np.append(0.0, below)[:, None] + down * np.append(above, 0.0)[:, None])


class _Distance(NamedTuple):
    """The kernel |x| + |y| - |x - y| of numbers less MIDDLE."""

    def values(self, x: Floats, y: Floats) -> Floats:
        """Return kernel values."""
        shape = np.broadcast_shapes(x.shape, y.shape)
        found, scratch = np.empty((2, *shape))
        self.fill(x, y, found, scratch)
        return np.asarray(found)

    @staticmethod
    def fill(x: Floats, y: Floats, found: Floats, scratch: Floats) -> None:
        """Write kernel values: twice the distance of 0 from the interval between x and y."""
        np.minimum(x, y, out=found)
        np.maximum(x, y, out=scratch)
        np.maximum(found, 0.0, out=found)
        np.minimum(scratch, 0.0, out=scratch)
        found -= scratch
        found += found

    def parts(self, values: Floats, below: Floats, above: Floats) -> tuple[Floats, Floats, Floats]:
        """Return hats, low and high, as a column has them: 0 is a knot besides, at which the process is 0."""
        across = (below < 0) & (above > 0)
        left, right = across & (values >= 0), across & (values < 0)
        below, above = np.where(left, 0.0, below), np.where(right, 0.0, above)
        up, down, gap = values - below, above - values, above - below
        apart = gap > 0
        gap, size = np.where(apart, gap, 1.0), np.where(values == 0, 1.0, np.abs(values))
        farthest = np.where(apart, np.maximum(np.abs(below), np.abs(above)), 1.0)
        # R / kernel: of units above the middle (x - below)/x times (above - y)/(above - below), and mirrored.
        near, far = farthest / gap, 1 / farthest
        upper = values >= 0
        low = np.where(apart, np.where(upper, near * (up / size), far * up), 0.0)
        high = np.where(apart, np.where(upper, far * down, near * (down / size)), 0.0)
        hats = np.stack(
            [
                np.where(apart, np.where(left, 0.0, down / gap), 1.0),
                np.where(apart & ~right, up / gap, 0.0),
            ]
        )
        return hats, low, high

    def from_others(self, values: Floats, knots: Floats, filled: npt.NDArray[np.bool_]) -> Floats:
        """Return, of values by bin, (bins, width), their sums of kernel values with all other bins' units."""
        del knots
        earlier = np.tri(len(values), k=-1)
        counts = filled.sum(axis=1).astype(np.float64)
        positive, negative = np.maximum(values, 0.0), np.maximum(-values, 0.0)
        smaller, larger = (np.where(filled, side, 0.0).sum(axis=1) for side in (positive, negative))
        sums = positive * (earlier.T * counts).sum(axis=1)[:, None]
        sums += (earlier * smaller).sum(axis=1)[:, None]
        sums += negative * (earlier * counts).sum(axis=1)[:, None]
        sums += (earlier.T * larger).sum(axis=1)[:, None]
        return np.asarray(2 * sums)


class _Column(NamedTuple):
    """A column and its knots."""

    values: Floats
    kernel: "_Laplacian | _Distance"

    place: npt.NDArray[np.uint8]
    """Every unit's bin, of 256 at most."""

    hats: Floats
    """Every unit's weights of the knots below and above it, (2, units), none below 0 nor above 1."""

    low: Floats
    high: Floats
    """R / kernel of two units in a bin: ``low`` of that with the lesser value times ``high`` of the other."""

    between: Floats
    """The kernel between the knots, (bins + 1, bins + 1)."""

    slots: Integers
    """The units by their place in a bin and by bin, (width, bins); any unit where there is none."""

    filled: npt.NDArray[np.bool_]
    """Where there is one."""


class BinnedColumns:
    """Columns of one kind of kernel, (units,) each, with the bandwidth of each.

    Without a bandwidth the kernel is that of distances, of values in [0, 1].
    """

    def __init__(self, columns: Sequence[tuple[Floats, float | None]], bins: int) -> None:
        self._units = len(columns[0][0])
        self._width = -(-self._units // bins)
        """Units in a bin; the last may have fewer."""
        self._bins = -(-self._units // self._width)
        self._columns = [self._cut(*column) for column in columns]

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of columns and of units."""
        return len(self._columns), self._units

    def _cut(self, values: Floats, bandwidth: float | None) -> _Column:
        units, width, bins = self._units, self._width, self._bins
        kernel: _Laplacian | _Distance = _Distance() if bandwidth is None else _Laplacian(-1 / bandwidth)
        values = values if bandwidth is not None else values - MIDDLE
        order = np.argsort(values, kind="stable")
        place = np.empty(units, dtype=np.int64)
        place[order] = np.arange(units) // width
        knots = values[np.append(order[::width], order[-1])]
        hats, low, high = kernel.parts(values, knots[place], knots[place + 1])
        between = kernel.values(knots[:, None], knots)
        padded = np.append(order, np.full(bins * width - units, order[-1])).reshape(bins, width)
        filled = (np.arange(bins * width) < units).reshape(bins, width).T
        slots = np.ascontiguousarray(padded.T)
        return _Column(values, kernel, place.astype(np.uint8), hats, low, high, between, slots, filled)

    def row_means(self) -> Floats:
        """Return every unit's mean kernel value with all units, (columns, units)."""
        return np.stack([self._row_sums(column) for column in self._columns]) / self._units

    def _row_sums(self, column: _Column) -> Floats:
        """Sum the kernel over a unit's bin, and over all other bins."""
        slots, filled = np.ascontiguousarray(column.slots.T), column.filled.T
        values, knots = column.values[slots], column.values[np.append(slots[:, 0], slots[-1, -1])]
        sums = column.kernel.from_others(values, knots, filled)
        step = max(1, 16 * NEAR_PAIRS // self._width**2)
        for start in range(0, self._bins, step):
            bins = slice(start, start + step)
            near = column.kernel.values(values[bins, :, None], values[bins, None, :])
            near *= filled[bins, None, :]
            sums[bins] += near.sum(axis=2)
        placed = np.empty(self._units)
        placed[slots[filled]] = sums[filled]
        return placed

    def product_sums(self, permutations: Sequence[Permutations]) -> list[float]:
        """Return, of each, the sum over all ordered pairs of units of the product of the permuted kernels."""
        near = self._near_sums(permutations).tolist()
        return [found + self._far_sum(orders) for found, orders in zip(near, permutations, strict=True)]

    def _far_sum(self, orders: Permutations) -> float:
        """Return the sum over all pairs of the product of the columns' A, from a table of knots."""
        knots, units = self._bins + 1, self._units
        cells, corners, weights = np.zeros(units, np.int64), np.zeros(1, np.int64), np.ones((1, units))
        for column, order in zip(self._columns, orders, strict=True):
            cells = cells * knots + _permuted(column.place, order)
            corners = np.add.outer(corners * knots, (0, 1)).ravel()
            hats = column.hats if order is None else column.hats.take(order, axis=1)
            weights = (weights[:, None] * hats).reshape(-1, units)
        cells = np.add.outer(corners, cells)
        entries = knots ** len(self._columns)
        table = _sums(cells.ravel(), weights.ravel(), entries, exactly=self._width > WIDTH_MAX)
        other, products = table, np.empty((2, entries))
        for number, column in enumerate(self._columns):
            product = products[number % 2]
            if number == len(self._columns) - 1:
                np.matmul(other.reshape(-1, knots), column.between, out=product.reshape(-1, knots))
            else:
                axes = knots**number, knots, -1
                np.matmul(column.between, other.reshape(axes), out=product.reshape(axes))
            other = product
        table *= other
        return float(table.sum())

    def _near_sums(self, permutations: Sequence[Permutations]) -> Floats:
        """Return the sums over the pairs that share a bin of what A leaves of the kernels' product."""
        # A unit with itself: the product of its kernels less that of its A.
        whole = [column.kernel.values(column.values, column.values) for column in self._columns]
        left = [
            each * (1 - column.low * column.high) for each, column in zip(whole, self._columns, strict=True)
        ]
        sums = np.array([_own_sum(whole, orders) - _own_sum(left, orders) for orders in permutations])
        # The data as they are may have as many pairs in two common bins as there are pairs.
        observed = np.array([all(order is None for order in orders) for orders in permutations])
        for number in range(len(self._columns) if self._width > 2 else 0):
            rows = self._rows_beside(number, permutations)
            step = max(1, NEAR_PAIRS // self._width)
            for start in range(0, self._bins, step):
                sums += 2 * self._near_sum(number, rows, slice(start, start + step), observed)
        return sums

    def _rows_beside(self, number: int, permutations: Sequence[Permutations]) -> list[Integers]:
        """Return the units of every column that stand beside the units of one, (units, permutations)."""
        unmoved = np.arange(self._units)
        found = [np.empty((self._units, len(permutations)), np.int64) for _ in self._columns]
        for index, orders in enumerate(permutations):
            moved, place = orders[number], unmoved
            if moved is not None:
                place = np.empty_like(unmoved)
                place[moved] = unmoved
            for rows, order in zip(found, orders, strict=True):
                rows[:, index] = place if order is None else order[place]
        return found

    def _near_sum(
        self, number: int, rows: Sequence[Integers], bins: slice, observed: npt.NDArray[np.bool_]
    ) -> Floats:
        """Return what the pairs of some of a column's bins add, (permutations,).

        R of this column, times A of those before it, times the kernels of those after it. ``rows`` are those
        that stand beside it; ``observed`` says which of the permutations, (permutations,), is none.
        """
        column = self._columns[number]
        slots, filled = column.slots[1:, bins], column.filled[1:, bins]  # a knot has no R
        low, high, values = column.low[slots] * filled, column.high[slots] * filled, column.values[slots]
        width, replicates = len(slots), rows[0].shape[1]
        beside = [found[slots].reshape(width, -1) for found in rows]
        others = [(at, c) for at, c in enumerate(self._columns) if at != number]
        # One block of memory: pages of smaller ones would be cleared anew each time.
        arrays = np.empty((len(rows) + 2, *beside[0].shape))
        value, *parts = (array.ravel() for array in arrays[:3])
        kernels = [
            (c.values.take(beside[at], out=taken, mode="clip"), c.kernel)
            for (at, c), taken in zip(others, arrays[3:], strict=True)
        ]
        whole = np.tile(observed, value.size // replicates)
        parted = [(c, beside[at].ravel(), c.place[beside[at]].ravel()) for at, c in others if at < number]
        sums = np.zeros(replicates)
        for apart in range(1, width):
            shape, after = (width - apart, -1), apart * arrays.shape[2]
            product, *scratch = (array[: array.size - after].reshape(shape) for array in (value, *parts))
            pairs = [(found[apart:], found[:-apart], kernel) for found, kernel in kernels]
            _multiply(pairs, product, scratch)
            for c, units, place in parted:
                # Few share another bin under a random permutation, whatever the data; in the data all might.
                same = place[after:] == place[:-after]
                shared = np.flatnonzero(same | whole[after:])
                u, v = units[shared], units[shared + after]
                found = np.minimum(c.low[u] * c.high[v], c.high[u] * c.low[v])
                value[shared] *= 1 - np.where(same[shared], found, 0.0)
            weight = column.kernel.values(values[apart:], values[:-apart])
            weight *= low[:-apart]
            weight *= high[apart:]
            sums += weight.ravel() @ product.reshape(-1, replicates)
        return sums


def _own_sum(values: Sequence[Floats], orders: Permutations) -> float:
    """Sum the products of the permuted columns' values."""
    permuted = [_permuted(*found) for found in zip(values, orders, strict=True)]
    return float(np.prod(permuted, axis=0).sum())


def _multiply(
    pairs: Sequence[tuple[Floats, Floats, _Laplacian | _Distance]], product: Floats, scratch: Sequence[Floats]
) -> None:
    """Write the product of the kernels of some columns' pairs into ``product``."""
    lesser, greater = scratch
    for index, (x, y, kernel) in enumerate(pairs):
        into = lesser if index else product
        if isinstance(kernel, _Laplacian):
            np.subtract(x, y, out=into)
            np.abs(into, out=into)
            into *= kernel.rate
            if index:
                product += into
        else:
            kernel.fill(x, y, into, greater)
            if index:
                product *= into
    if isinstance(pairs[0][2], _Laplacian):
        np.exp(product, out=product)


def bins_for(units: int, columns: int) -> tuple[int, float]:
    """Return the number of bins that takes least time, and roughly how long a permutation takes, in ns.

    The time is infinite where all would take more roundings than ROUNDINGS_MAX, or too large a table.
    """
    fitting = [
        bins
        for bins in BINS
        if (bins + 1) ** columns <= CELLS_MAX and roundings(units, columns, bins) <= ROUNDINGS_MAX * columns
    ]
    if not fitting:
        return 1, math.inf
    found = min(fitting, key=lambda bins: _replicate_ns(units, columns, bins))
    return found, _replicate_ns(units, columns, found)


def roundings(units: int, columns: int, bins: int) -> float:
    """Bound the roundings of T^2, of 2^-53 each, beyond those that ``evaluation_error`` counts anyway."""
    width = math.ceil(units / bins)
    shared, summed = width / units, max(width, min(units, NEAR_PAIRS))
    values, means = 47 * columns, 135 * columns
    table = 2 * (columns - 1) + (4 * width if width <= WIDTH_MAX else 6) + columns * (bins + 1) + 41
    near = columns * (shared * (summed + 2 * width) + 2 * columns)
    return values + means + table + near


def _replicate_ns(units: int, columns: int, bins: int) -> float:
    width = math.ceil(units / bins)
    pair_ns = NEAR_NS + NEAR_COLUMN_NS * (columns - 1) + SHARED_NS * (columns - 1) / 2
    near = columns * (units * width / 2 * pair_ns + SHIFT_NS * width)
    table = 2.0**columns * UNIT_NS * units + CELL_NS * (bins + 1.0) ** columns
    return near + table + columns * MULTIPLY_ADD_NS * (bins + 1.0) ** (columns + 1) + CALLS_NS


def _permuted(values: npt.NDArray[Number], order: Integers | None) -> npt.NDArray[Number]:
    return values if order is None else values[order]


def _sums(cells: Integers, weights: Floats, entries: int, *, exactly: bool) -> Floats:
    """Return the sums of weights by cell."""
    if not exactly:
        return np.bincount(cells, weights, entries).astype(np.float64, copy=False)
    high = np.rint(np.ldexp(weights, HIGH_BITS))
    low = weights - np.ldexp(high, -HIGH_BITS)
    return np.ldexp(np.bincount(cells, high, entries), -HIGH_BITS) + np.bincount(cells, low, entries)
