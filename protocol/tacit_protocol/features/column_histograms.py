"""Histograms of every column over public cells, and public points that are drawn from noisy ones.

Replacing one unit moves the sums of all d columns' histograms by at most sqrt(2 d) in L2 and 2 d in L1,
exactly: a unit's shares in the cells of a column are never negative and add up to 1 (cell_counts.py), so
each column moves by at most sqrt 2 and 2. Points are computed from noisy integers in integers, so that
everyone draws the same ones. docs/mathematics/database-release.md.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, pairwise

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain import (
    CategoricalColumn,
    Domain,
    EncodedChunk,
    NumericColumn,
    Table,
    encode_numeric,
    reduce_table,
)
from tacit_protocol.features.cell_counts import chunk_steps
from tacit_protocol.features.kernels import FeatureMap, FloatMatrix, Rows
from tacit_protocol.features.mean_embedding import Locations
from tacit_protocol.features.moments import FeatureSums, UnitCountError, sum_features
from tacit_protocol.privacy.exact_sums import grid_bits
from tacit_protocol.privacy.guarantee import NoisyVector
from tacit_protocol.strict import StudyError

HISTOGRAMS = "histograms"
"""Name of their vector in a release."""

STRATUM_BITS = 32
"""Places within a stratum are multiples of 2**-32 of it."""

BIN_BITS = 24
"""Places within a bin are odd multiples of 2**-25 of it: never on an edge, and exact in float64."""

WHOLE_BINS_MAX = 200
"""Most bins of a column of whole numbers: up to so many of them have one each."""

WHOLE_MAX = 2**31
"""Largest whole number: float64 then tells scaled ones apart."""

Integers = npt.NDArray[np.int64]


class HistogramError(StudyError):
    """A column has no such cells. The message says what to change."""


@dataclass(frozen=True)
class HistogramCells:
    """The public cells of one column; ``place`` is its place among the columns of its kind.

    A categorical column has its categories. A numeric one has ``bins`` equal bins over its bounds, and a
    cell for each value where rows gather because they were moved there: the two bounds, to which values
    beyond them are clipped, and what stands for a missing value. Of a column of ``whole`` numbers a bin holds
    one whole number, or ``whole`` of them, and points stand on whole numbers; 0 says that it is none.
    """

    column: NumericColumn | CategoricalColumn
    place: int
    bins: int
    whole: int = 0

    @classmethod
    def of_whole_numbers(cls, column: NumericColumn, place: int) -> "HistogramCells":
        """Return the cells of a column of whole numbers: a bin each, or for several where they are many.

        Raises:
            HistogramError: its bounds are not whole numbers, or too large.
        """
        if not is_of_whole_numbers(column):
            raise HistogramError(
                f"a column of whole numbers needs bounds that are whole numbers, up to {WHOLE_MAX} in size"
            )
        numbers = int(column.upper) - int(column.lower) + 1
        size = -(-numbers // WHOLE_BINS_MAX)
        return cls(column, place, -(-numbers // size), size)

    @cached_property
    def edges(self) -> FloatMatrix:
        """Where the bins begin and end, (bins + 1,), in the column's own units.

        Of whole numbers half-way between them; the last bin may be less full.
        """
        if isinstance(self.column, CategoricalColumn):
            raise TypeError("categories have no edges")
        if not self.whole:
            return np.linspace(self.column.lower, self.column.upper, self.bins + 1)
        starts = self.column.lower + self.whole * np.arange(self.bins)
        return np.append(starts, self.column.upper + 1) - 0.5

    @cached_property
    def gathered(self) -> tuple[float, ...]:
        """The scaled values with a cell of their own, after the bins."""
        if isinstance(self.column, CategoricalColumn):
            return ()
        missing = float(encode_numeric(self.column, [math.nan])[0])
        return (0.0, 1.0) if missing in (0.0, 1.0) else (0.0, 1.0, missing)

    @property
    def _steps(self) -> int:
        """Whole numbers from bound to bound, less one."""
        if isinstance(self.column, CategoricalColumn):
            raise TypeError("categories are not counted in steps")
        return int(self.column.upper) - int(self.column.lower)

    @property
    def size(self) -> int:
        """Number of cells."""
        if isinstance(self.column, CategoricalColumn):
            return self.column.categories
        return self.bins + len(self.gathered)

    def codes(self, rows: Rows) -> Integers:
        """Return each row's cell, (rows,)."""
        if isinstance(self.column, CategoricalColumn):
            return rows.categorical[:, self.place].astype(np.int64)
        values = rows.numeric[:, self.place]
        if self.whole:
            codes = np.rint(values * self._steps).astype(np.int64) // self.whole
        else:
            codes = np.minimum((values * self.bins).astype(np.int64), self.bins - 1)
        for offset, value in enumerate(self.gathered):
            codes[values == value] = self.bins + offset
        return codes

    def value(self, cell: int, within: int) -> float:
        """Return the scaled value ``within`` 2**-24 of a numeric column's cell."""
        if cell >= self.bins:
            return self.gathered[cell - self.bins]
        # Two integers below 2**53, so that the division is rounded once, and alike everywhere.
        if self.whole:
            first = cell * self.whole
            return (first + (within * min(self.whole, self._steps + 1 - first) >> BIN_BITS)) / self._steps
        return ((cell << BIN_BITS + 1) + 2 * within + 1) / (self.bins << BIN_BITS + 1)


def is_of_whole_numbers(column: NumericColumn) -> bool:
    """Say whether a column's bounds allow cells of whole numbers."""
    bounds = (column.lower, column.upper)
    return all(bound.is_integer() and abs(bound) <= WHOLE_MAX for bound in bounds)


@dataclass
class _Cells:
    """Partial sums: one vector a column."""

    parts: list[Integers]
    units: int = 0


@dataclass(frozen=True)
class _HistogramSums:
    """Counts the units of every column's cells over a table."""

    columns: tuple[HistogramCells, ...]
    bits: int

    def start(self) -> _Cells:
        return _Cells([np.zeros(cells.size, dtype=np.int64) for cells in self.columns])

    def add(self, partial: _Cells, chunk: EncodedChunk) -> None:
        for counts, cells in zip(partial.parts, self.columns, strict=True):
            np.add(counts, chunk_steps(cells.codes(chunk), chunk, cells.size, self.bits), out=counts)
        partial.units += chunk.units

    def merge(self, partial: _Cells, other: _Cells) -> None:
        for counts, others in zip(partial.parts, other.parts, strict=True):
            np.add(counts, others, out=counts)
        partial.units += other.units


@dataclass(frozen=True)
class ColumnHistograms:
    """The histograms of all of a domain's columns, one after the other, in the domain's order.

    ``whole`` names the numeric columns that are publicly known to hold whole numbers.
    """

    domain: Domain
    bins: int
    whole: tuple[str, ...] = ()

    @cached_property
    def columns(self) -> tuple[HistogramCells, ...]:
        """Each column's cells; raises HistogramError where ``whole`` does not fit the columns."""
        kinds = {column.name: place for place, column in enumerate(self.domain.numeric)}
        if len(set(self.whole)) != len(self.whole) or not set(self.whole) <= set(kinds):
            raise HistogramError("columns of whole numbers must be distinct numeric columns of the study")
        kinds |= {column.name: place for place, column in enumerate(self.domain.categorical)}
        return tuple(
            HistogramCells.of_whole_numbers(column, kinds[column.name])
            if isinstance(column, NumericColumn) and column.name in self.whole
            else HistogramCells(column, kinds[column.name], self.bins)
            for column in self.domain.columns
        )

    @property
    def size(self) -> int:
        """Number of cells of all columns K."""
        return sum(cells.size for cells in self.columns)

    @property
    def l2_sensitivity(self) -> float:
        """Bound on what one unit replaced moves the sums of all histograms by, in L2: sqrt(2 d)."""
        return math.nextafter(math.sqrt(2 * len(self.columns)), math.inf)

    @property
    def l1_sensitivity(self) -> float:
        """The same in L1: 2 d."""
        return 2.0 * len(self.columns)

    def split(self, values: Sequence[int]) -> list[list[int]]:
        """Cut (K,) numbers into those of each column."""
        ends = [0, *accumulate(cells.size for cells in self.columns)]
        return [[int(v) for v in values[start:end]] for start, end in pairwise(ends)]

    def sum(self, table: Table, bits: int) -> Integers:
        """Return the units' shares of all cells, (K,) int64 in steps of 2**-bits: ``units`` a column.

        Raises UnitCountError where the units are not ``table.units``.
        """
        found = reduce_table(table, _HistogramSums(self.columns, bits))
        if found.units != table.units:
            raise UnitCountError("the data changed while they were read")
        return np.concatenate(found.parts)

    def indicators(self, rows: Rows) -> FloatMatrix:
        """Return which cells each row is in, (rows, K) of 0 and 1: the map whose mean the histograms are."""
        return np.hstack([np.eye(cells.size)[cells.codes(rows)] for cells in self.columns])

    def draw(self, noisy: Sequence[int], total: int, count: int, rng: np.random.Generator) -> Locations:
        """Draw ``count`` points from noisy histograms, (K,) integers of which a column should have ``total``.

        Each column's numbers are moved to the nearest that are non-negative with that sum, and every one of
        ``count`` equal parts of them gives a value (systematic draws); the columns are put together in
        random orders.
        """
        numeric = np.empty((count, len(self.domain.numeric)))
        categorical = np.empty((count, len(self.domain.categorical)), dtype=np.int32)
        for cells, values in zip(self.columns, self.split(noisy), strict=True):
            drawn = _systematic(nearest_counts(values, total), rng.integers(0, 1 << STRATUM_BITS, count))
            order = rng.permutation(count)
            if isinstance(cells.column, CategoricalColumn):
                categorical[order, cells.place] = [cell for cell, _ in drawn]
            else:
                numeric[order, cells.place] = [cells.value(*place) for place in drawn]
        return Locations(numeric, categorical)


def nearest_counts(values: Sequence[int], total: int) -> list[int]:
    """Return the non-negative integers nearest to ``values`` whose sum is ``total``, or up to k - 1 more.

    The Euclidean projection on a simplex, in integers: the same number is taken off all, and what falls
    below 0 becomes 0. ``total`` must be positive: one number at least is then positive.
    """
    ordered = sorted(values, reverse=True)
    excess = [reached - total for reached in accumulate(ordered)]
    kept = max(r for r, value in enumerate(ordered, 1) if r * value > excess[r - 1])
    taken = excess[kept - 1] // kept
    return [max(value - taken, 0) for value in values]


def _systematic(counts: Sequence[int], places: Integers) -> list[tuple[int, int]]:
    """Return a cell, and a place within it in steps of 2**-24, for each of as many equal parts as places."""
    ends = list(accumulate(counts))
    whole = len(places) << STRATUM_BITS
    found = []
    for stratum, place in enumerate(places.tolist()):
        reached = ((stratum << STRATUM_BITS) + place) * ends[-1] // whole
        cell = bisect_right(ends, reached)
        found.append((cell, ((reached - ends[cell] + counts[cell]) << BIN_BITS) // counts[cell]))
    return found


@dataclass(frozen=True)
class HistogramSums:
    """A sender's exact numbers, histograms and then sums. They never leave it; ``repr`` shows none.

    ``steps`` (K,) are the histograms' sums in steps of 2**-bits. ``noisy`` and ``then`` are there as soon as
    the histograms' noise was drawn, for the features depend on it; ``table`` is read again for them.
    """

    units: int
    bits: int
    steps: npt.NDArray[np.int64] = field(repr=False)
    table: Table = field(repr=False)
    noisy: NoisyVector | None = field(default=None, repr=False)
    then: FeatureSums | None = field(default=None, repr=False)

    @classmethod
    def of(cls, histograms: ColumnHistograms, table: Table) -> "HistogramSums":
        """Count a table's units by cell."""
        bits = grid_bits(table.units, products=False)
        return cls(table.units, bits, histograms.sum(table, bits), table)

    def followed(self, noisy: NoisyVector | None, features: FeatureMap) -> "HistogramSums":
        """Return them with the sums of ``features``, which follow from the noisy histograms, if any leave."""
        then = sum_features(features, self.table, products=False, bits=self.bits)
        return replace(self, noisy=noisy, then=then)
