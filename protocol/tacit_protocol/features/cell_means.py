"""Cells of columns and of pairs, with means of numbers: few features, for K-norm noise of pure epsilon.

A numeric column scaled to t in [-1, 1] is divided evenly into m cells. Released are the cells' counts, of
each column or, where pairs are compared, of every two columns crossed; and of each numeric column the sum of
(t - c) / h, c the middle of the row's cell and h its width: a number in [-1/2, 1/2], which makes the column's
mean exact. From SQUARES_FROM cells on also that of (t^2 - c^2) / (2 h), which lies there too and makes the
mean of t^2 exact. A categorical column has its listed levels for cells; in a pair also one for all else.
Where every unit is in one of a table's cells, the last is not released: it is the number of units, which is
public, less the others.

What is read are sums of these: every column's mean, its cells, and orthogonal contrasts of them, waves of a
number's cells and polynomials of levels in their order, products of two in a pair. They span all differences
between tables. Where data lie close together, in a small part of their bounds, all of this is one cell's:
fine cells are the counts of FINE_CELLS even cells of each numeric column, in Laplace noise.
Derivations: docs/mathematics/kernel-two-sample.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt

from tacit_protocol.features.kernels import FloatMatrix, Rows
from tacit_protocol.features.moments import (
    COLUMN_MEANS,
    AdditiveChoice,
    AdditiveFeatures,
    AdditiveRelease,
    AdditiveSums,
    ColumnFeatures,
    Coordinate,
    DirectSum,
)
from tacit_protocol.privacy.gaussian_mechanism import SumPart
from tacit_protocol.privacy.guarantee import NoisyVector
from tacit_protocol.privacy.k_norm_mechanism import KNormLaw, ProductBody

SQUARES_FROM = 8
"""Cells of a numeric column from which on its squares are released."""

CELLS_DEFAULT, CELLS_MAX = 5, 64
"""Cells of a numeric column: where nothing says otherwise, and most."""

FINE_CELLS = 256
"""Fine cells of a numeric column, where they are released."""

PAIR_SHARE = 0.3
"""Part of the level that goes to pairs, where there are any."""

SHARES = (0.1, 0.45, 0.25)
"""Parts of a numeric column's level that go to its mean, and to the sine and the cosine of one turn, which
see shifts and spreads of what lies in the middle; the others share the rest."""

TREND_SHARE = 0.3
"""Part of a categorical column's level that goes to the trend over its levels in their order; the levels
themselves share the rest."""

PRODUCT_SHARE = 0.3
"""Part of a pair's level that goes to the product of both first contrasts, which sees correlation."""


@dataclass(frozen=True)
class Contrast:
    """A coordinate that is tested: the sum of ``coefficients`` times the cells at ``start`` and after.

    ``spread`` bounds the deviation of what it is within a cell, 0 but for a number's mean; ``square`` is the
    place of the mean of P2 where it tells that of the square. ``share`` is its part of its group's level;
    ``whole`` says that every unit is in one of the cells.
    """

    place: int
    start: int
    coefficients: tuple[float, ...]
    share: float
    spread: float = 0.0
    square: int | None = None
    whole: bool = True


@dataclass(frozen=True)
class Group:
    """A column, or a pair of columns, and what is tested of it."""

    columns: tuple[int, ...]
    contrasts: tuple[Contrast, ...]


def polynomials(cells: int) -> FloatMatrix:
    """Return orthonormal polynomials over so many equal steps, by degree from 0, (cells, cells)."""
    steps = (2 * np.arange(cells) + 1) / cells - 1
    found = np.linalg.qr(np.polynomial.legendre.legvander(steps, cells - 1))[0].T
    return np.asarray(found * np.sign(found[:, -1:]))


def waves(cells: int) -> FloatMatrix:
    """Return orthonormal waves over so many equal steps of [-1, 1]: 1, then sines and cosines by turns."""
    turns = np.pi * np.outer(np.arange(1, cells // 2 + 1), middles(cells))
    both = np.stack([np.sin(turns), np.cos(turns)], axis=1).reshape(-1, cells)
    found = np.vstack([np.ones(cells), both])
    # Of an even number of cells the last sine or cosine is 0 in the middle of each.
    found = found[np.linalg.norm(found, axis=1) > 1e-6][:cells]
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def middles(cells: int) -> npt.NDArray[np.float64]:
    """Return the middles of the cells of [-1, 1]."""
    return (2 * np.arange(cells) + 1) / cells - 1


class CellsOfColumns(ColumnFeatures):
    """The features that are summed, what is read from their means, and what is tested."""

    def __init__(
        self, numeric: int, levels: tuple[int, ...], cells: int, *, pairs: bool, fine: bool = False
    ) -> None:
        self.columns, self.pairs = numeric + len(levels), pairs
        self.fine = FINE_CELLS * numeric * fine
        self._numeric, self._levels, self.cells = numeric, levels, cells
        self.squares = cells >= SQUARES_FROM
        self._sizes = (cells,) * numeric + tuple(count + pairs for count in levels)
        columns = range(self.columns)
        self._tables = tuple(combinations(columns, 2)) if pairs else tuple((column,) for column in columns)
        sizes = [int(np.prod([self._sizes[column] for column in table])) for table in self._tables]
        self._starts = np.cumsum([0, *sizes])
        whole = [pairs or table[0] < numeric for table in self._tables]
        released = [size - left_out for size, left_out in zip(sizes, whole, strict=True)]
        self._summed = np.cumsum([0, *released])
        self.body = ProductBody((*released, *(1,) * (numeric * (1 + self.squares))))
        self._rows: list[npt.NDArray[np.float64]] = []
        self._found: list[tuple[int, str]] = []
        self.column_groups: list[tuple[int, int]] = []
        self.groups = tuple(self._column(column) for column in columns)
        if pairs:
            self.groups += tuple(self._pair(number) for number in range(len(self._tables)))
        self.rows, constants = self._without_last(np.array(self._rows), whole)
        deviations = self.body.deviations(self.rows)
        self._matrix, self._constants = self.rows / deviations[:, None], constants / deviations
        self._coordinates = tuple(
            Coordinate(column, part, 0.0, float(1 / deviation))
            for (column, part), deviation in zip(self._found, deviations, strict=True)
        )

    @cached_property
    def law(self) -> KNormLaw:
        """The law of the noise on what is read."""
        return self.body.law(self.rows)

    # What is read.

    def _without_last(
        self, rows: FloatMatrix, whole: list[bool]
    ) -> tuple[FloatMatrix, npt.NDArray[np.float64]]:
        """Write sums of all cells as sums of those that are summed, (K, J), and constants, (K,).

        The last cell of a table that holds every unit is 1 less the others.
        """
        lasts = self._starts[1:][whole] - 1
        constants = rows[:, lasts].sum(axis=1)
        for start, last in zip(self._starts[:-1][whole], lasts, strict=True):
            rows[:, start:last] -= rows[:, [last]]
        return np.delete(rows, lasts, axis=1), constants

    def read(self, means: FloatMatrix) -> FloatMatrix:
        """Return what is read, (..., K), of means of what is summed but for fine cells, (..., J)."""
        return np.asarray(means @ self._matrix.T + self._constants)

    @property
    def _tabled(self) -> int:
        """All cells, and numbers."""
        return int(self._starts[-1]) + self._numeric * (1 + self.squares)

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """What is read, scaled so that all have noise of one standard deviation."""
        return self._coordinates

    def _add(self, column: int, part: str, row: npt.NDArray[np.float64]) -> int:
        self._rows.append(row)
        self._found.append((column, part))
        return len(self._rows) - 1

    def _margin(self, column: int, coefficients: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the sum of a column's cells times coefficients: the average of it over its tables."""
        row = np.zeros(self._tabled)
        held = [number for number, table in enumerate(self._tables) if column in table]
        for number in held:
            table = self._tables[number]
            crossed: npt.NDArray[np.float64] = np.ones(1)
            for own in table:
                factor = coefficients if own == column else np.ones(self._sizes[own])
                crossed = np.asarray(np.outer(crossed, factor).ravel())
            row[self._starts[number] : self._starts[number + 1]] = crossed / len(held)
        return row

    def _column(self, column: int) -> Group:
        first, size = len(self._rows), self._sizes[column]
        contrasts = (self._numbers if column < self._numeric else self._categories)(column, size)
        self.column_groups.append((first, len(self._rows)))
        return Group((column,), tuple(contrasts))

    def _numbers(self, column: int, size: int) -> list[Contrast]:
        centres, width, place = middles(size), 2 / size, int(self._starts[-1]) + column
        mean = self._margin(column, centres)
        mean[place] = width
        at, square = self._add(column, "P1", mean), None
        if self.squares:
            row = self._margin(column, 1.5 * centres**2 - 0.5)
            row[place + self._numeric] = 3 * width
            square = self._add(column, "P2", row)
        start = len(self._rows)
        for cell in np.eye(size):
            self._add(column, "cell", self._margin(column, cell))
        weights = np.full(size, 1.0)
        weights[:3] = SHARES[:size]
        if size > len(SHARES):
            weights[3:] = (1 - sum(SHARES)) / (size - 3)
        weights = weights / weights.sum()
        found = [Contrast(at, start, tuple(centres), float(weights[0]), width / 2, square)]
        for degree, own in enumerate(waves(size)[1:], 1):
            where = self._add(column, "contrast", self._margin(column, own))
            found.append(Contrast(where, start, tuple(own), float(weights[degree])))
        return found

    def _categories(self, column: int, size: int) -> list[Contrast]:
        listed, start, found = self._levels[column - self._numeric], len(self._rows), []
        trend = TREND_SHARE if listed > 2 else 0.0
        for level in range(listed):
            own = np.zeros(size)
            own[level] = 1.0
            at = self._add(column, "category", self._margin(column, own))
            found.append(Contrast(at, at, (1.0,), (1 - trend) / listed, whole=False))
        if trend:
            slope = polynomials(listed)[1]
            row = self._margin(column, np.pad(slope, (0, size - listed)))
            at = self._add(column, "contrast", row)
            found.append(Contrast(at, start, tuple(slope), trend, whole=False))
        return found

    def _pair(self, number: int) -> Group:
        one, other = tuple(self._tables[number])
        start = len(self._rows)
        for place in range(self._starts[number], self._starts[number + 1]):
            row = np.zeros(self._tabled)
            row[place] = 1.0
            self._add(one, "cell", row)
        bases = [
            (waves if column < self._numeric else polynomials)(self._sizes[column])[1:]
            for column in (one, other)
        ]
        products, found = [(p, q) for p in range(len(bases[0])) for q in range(len(bases[1]))], []
        rest = (1 - PRODUCT_SHARE) / max(1, len(products) - 1)
        for p, q in products:
            own = np.outer(bases[0][p], bases[1][q]).ravel()
            row = np.zeros(self._tabled)
            row[self._starts[number] : self._starts[number + 1]] = own
            at = self._add(one, "contrast", row)
            share = 1.0 if len(products) == 1 else PRODUCT_SHARE if p == q == 0 else rest
            found.append(Contrast(at, start, tuple(own), share))
        return Group((one, other), tuple(found))

    # What is summed.

    @property
    def dimension(self) -> int:
        """Number of coordinates that are summed: the body's, then ``fine`` counts, column after column."""
        return self.body.dimension + self.fine

    @property
    def norm(self) -> float:
        """One cell of each table, every number within 1/2, and one fine cell of each column."""
        numbers = len(self.body.sizes) - len(self._tables)
        return float(np.sqrt(len(self._tables) + numbers / 4 + self.fine / FINE_CELLS))

    @property
    def diameter(self) -> float:
        """Two cells of each table and of each column's fine ones, numbers by 1; noise follows ``body``."""
        moved = 2 * len(self._tables) + len(self.body.sizes) - len(self._tables)
        return float(np.sqrt(moved + 2 * self.fine / FINE_CELLS))

    def fine_sensitivity(self, bits: int) -> float:
        """Bound the L1 change of the sums of fine cells when one unit is replaced, on the grid of 2**-bits.

        Two cells of each column; of a unit of several rows the averages, which lie in the hull, are each
        rounded by half a step at either neighbour. Rows' own 0 and 1 are on the grid.
        """
        moved = 2 * self.fine / FINE_CELLS + self.fine * 2.0**-bits
        return math.nextafter(moved, math.inf)

    def __call__(self, rows: Rows) -> FloatMatrix:
        count = len(rows.numeric)
        found = np.zeros((count, self.dimension))
        scaled = np.clip(rows.numeric, 0.0, 1.0)
        codes = np.minimum((scaled * self.cells).astype(np.int64), self.cells - 1)
        centres, width, place = middles(self.cells)[codes], 2 / self.cells, int(self._summed[-1])
        t = 2 * scaled - 1
        numbers = [(t - centres) / width]
        if self.squares:
            numbers.append((t * t - centres * centres) / (2 * width))
        for own in numbers:
            found[:, place : place + self._numeric] = np.clip(own, -0.5, 0.5)
            place += self._numeric
        cells = [codes[:, column] for column in range(self._numeric)]
        # What is not listed is in the last cell of a pair, and in none of a column alone.
        cells += [np.minimum(rows.categorical[:, at], count_of) for at, count_of in enumerate(self._levels)]
        for table, (start, stop) in zip(self._tables, pairwise(self._summed), strict=True):
            own = cells[table[0]]
            if len(table) > 1:
                own = own * self._sizes[table[1]] + cells[table[1]]
            held = np.flatnonzero(own < stop - start)
            found[held, start + own[held]] = 1.0
        if self.fine:
            own = np.minimum((scaled * FINE_CELLS).astype(np.int64), FINE_CELLS - 1)
            own += self.body.dimension + FINE_CELLS * np.arange(self._numeric)
            found[np.arange(count)[:, None], own] = 1.0
        return found


CELLS_KEPT = 64
"""Maps remembered, with the laws of their noise: a study's is asked for by every check."""


@lru_cache(CELLS_KEPT)
def cells_of_columns(
    numeric: int, levels: tuple[int, ...], cells: int, pairs: bool, fine: bool
) -> CellsOfColumns:
    """Return the cells of so many columns."""
    return CellsOfColumns(numeric, levels, cells, pairs=pairs, fine=fine)


class CellFeatures(AdditiveFeatures):
    """Cells of columns, and of pairs, as features of a release: see the module."""

    def __init__(
        self, numeric: int, levels: tuple[int, ...], cells: int, *, pairs: bool, fine: bool = False
    ) -> None:
        self.choice = AdditiveChoice((), (), (), 0.0, 0.0)
        self.numeric, self.pairwise = numeric, None
        self.column_wise = self.cells = cells_of_columns(numeric, levels, cells, pairs, fine)
        DirectSum.__init__(self, (self.cells,), (1.0,))

    @property
    def column_groups(self) -> tuple[tuple[int, int], ...]:
        """First coordinate that is read, and one past the last, of every column."""
        return tuple(self.cells.column_groups)


FINE_COUNTS = "fine_cells"
"""The vector of fine cells, after COLUMN_MEANS."""


class CellRelease(AdditiveRelease):
    """How cells and numbers are summed, laid out and read back, in K-norm noise; fine ones in Laplace."""

    features: CellFeatures

    @property
    def body(self) -> ProductBody:
        """What holds the differences that one unit can make."""
        return self.features.cells.body

    def parts(self, units: int, sums: AdditiveSums | None = None) -> tuple[SumPart, ...]:
        """Lay the release out, fine cells last; without ``sums`` the values are zeros."""
        bits, cells = self.bits(units), self.features.cells
        total = np.zeros(self.numbers, dtype=np.int64) if sums is None else sums.columns
        coarse = SumPart(COLUMN_MEANS, total[: cells.body.dimension], -bits, 0.0, 1.0)
        if not cells.fine:
            return (coarse,)
        moved = cells.fine_sensitivity(bits)
        return coarse, SumPart(FINE_COUNTS, total[cells.body.dimension :], -bits, moved, 1.0, l1=moved)

    def read(self, vectors: Mapping[str, NoisyVector], units: int) -> tuple[npt.NDArray[np.float64], float]:
        """Return what is read of the noisy means, (K,), and the standard deviation of its noise."""
        vector = vectors[COLUMN_MEANS]
        return self.features.cells.read(vector.mean(units)), vector.scale / units

    def read_fine(
        self, vectors: Mapping[str, NoisyVector], units: int
    ) -> tuple[npt.NDArray[np.float64], float]:
        """Return the noisy shares of fine cells, column after column, and their noise's deviation."""
        vector = vectors[FINE_COUNTS]
        return vector.mean(units), math.sqrt(2) * vector.scale / units
