"""Counts of privacy units over public cells: one column, or the cross product of several.

Replacing one unit moves the counts by at most 2 in L1 and sqrt 2 in L2. A unit with rows in several cells has
a fraction of its weight in each: multiples of 2**-bits, never negative, that add up to exactly 1, so that
both bounds hold for the computed counts without any allowance for rounding (docs/mathematics/categorical.md).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol, runtime_checkable

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
from tacit_protocol.privacy.exact_sums import GRID_BITS_MAX
from tacit_protocol.privacy.guarantee import COORDINATES_MAX
from tacit_protocol.strict import StudyError

CELLS_MAX = COORDINATES_MAX
"""Most cells: each is one number of an owner's release."""

COUNT_BITS = GRID_BITS_MAX
"""Counts are whole steps of 2**-20, on which those of as many units as a study may have stay exact."""

OTHER, MISSING = "(other)", "(missing)"
"""Labels of the two categories that every categorical column has beside its levels."""

AND_UNLISTED = "(and unlisted)"
"""Added to the last level's label where it stands for unlisted and missing values too."""

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class CellsError(StudyError):
    """The columns have no such cells. The message says what to change; the cells are public."""


@dataclass(frozen=True)
class Axis:
    """One column's cells: a categorical column's categories, or a numeric one's intervals between cuts.

    ``folded``: a value that is not listed, or missing, is counted in the last level's cell. ``answered``:
    cells are another owner's randomised answers, of its listed levels alone.
    """

    column: CategoricalColumn | NumericColumn
    place: int
    cuts: tuple[float, ...] = ()
    folded: bool = False
    answered: bool = False

    @property
    def size(self) -> int:
        """Number of cells."""
        if isinstance(self.column, CategoricalColumn) and not (self.folded or self.answered):
            return self.column.categories
        return self.listed

    @property
    def listed(self) -> int:
        """Number of listed levels, or of intervals."""
        return len(self.column.levels) if isinstance(self.column, CategoricalColumn) else len(self.cuts) + 1

    @property
    def compared(self) -> int:
        """Number of cells that tests compare: the listed ones; of one level alone, it and other values."""
        return min(self.size, max(self.listed, 2))

    @property
    def labels(self) -> tuple[str, ...]:
        """One label a cell; an interval holds its lower end."""
        if isinstance(self.column, CategoricalColumn):
            if self.answered:
                return self.column.levels
            if self.folded:
                return (*self.column.levels[:-1], f"{self.column.levels[-1]} {AND_UNLISTED}")
            return (*self.column.levels, OTHER, MISSING)
        ends = [self.column.lower, *self.cuts, self.column.upper]
        inner = [f"[{low:g}, {high:g})" for low, high in pairwise(ends[:-1])]
        return (*inner, f"[{ends[-2]:g}, {ends[-1]:g}]")

    def codes(self, chunk: EncodedChunk) -> Integers:
        """Return each row's cell, (rows,).

        A number is compared with the cuts after both were scaled: equal up to that rounding is on the cut.
        """
        if isinstance(self.column, CategoricalColumn):
            return self.fold(chunk.categorical[:, self.place])
        edges = encode_numeric(self.column, self.cuts)
        return np.searchsorted(edges, chunk.numeric[:, self.place], side="right").astype(np.int64)

    def fold(self, codes: npt.NDArray[np.int32]) -> Integers:
        """Return the cells of a categorical column's category codes."""
        return np.minimum(codes, self.size - 1).astype(np.int64)


@dataclass(frozen=True)
class CellGrid:
    """The public cells of one column, or of the cross product of several, the last one changing fastest."""

    axes: tuple[Axis, ...]

    @classmethod
    def of(
        cls,
        domain: Domain,
        columns: Sequence[str] | None = None,
        cuts: Mapping[str, Sequence[float]] | None = None,
        *,
        folded: bool = False,
        answered: str | None = None,
    ) -> "CellGrid":
        """Return the cells of the named columns, in that order; by default all of the domain's.

        ``cuts`` holds each numeric column's inner edges, increasing, strictly within its bounds.
        ``folded`` counts values that are not listed, and missing ones, with each column's last level;
        ``answered`` names a column whose cells are another owner's answers.

        Raises:
            CellsError: a column is unknown or repeated, cuts are missing or do not fit, or there are more
                than CELLS_MAX cells.
        """
        known = {column.name: column for column in domain.columns}
        names = list(known) if columns is None else list(columns)
        cuts = {} if cuts is None else cuts
        if not names or len(set(names)) != len(names) or not set(names) <= set(known):
            raise CellsError("cells need distinct columns of the study")
        if not set(cuts) <= {column.name for column in domain.numeric if column.name in names}:
            raise CellsError("cuts are for the numeric columns that are counted")
        axes = tuple(_axis(domain, known[name], cuts.get(name, ()), folded) for name in names)
        grid = cls(tuple(replace(axis, answered=axis.column.name == answered) for axis in axes))
        if grid.size > CELLS_MAX:
            raise CellsError(f"the columns have more than {CELLS_MAX} cells together: use fewer levels")
        return grid

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(axis.column.name for axis in self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of cells of each column."""
        return tuple(axis.size for axis in self.axes)

    @property
    def size(self) -> int:
        """Number of cells k."""
        return math.prod(self.shape)

    @property
    def labels(self) -> tuple[tuple[str, ...], ...]:
        """Each column's labels."""
        return tuple(axis.labels for axis in self.axes)

    @property
    def compared_shape(self) -> tuple[int, ...]:
        """Number of cells of each column that tests compare."""
        return tuple(axis.compared for axis in self.axes)

    @property
    def compared(self) -> Integers:
        """Places of the cells that tests compare, in row-major order of ``compared_shape``."""
        return compared_places(self.shape, self.compared_shape)

    def label(self, cell: int) -> tuple[str, ...]:
        """Return one cell's labels, column by column."""
        places = np.unravel_index(cell, self.shape)
        return tuple(labels[int(place)] for labels, place in zip(self.labels, places, strict=True))

    def index(self, chunk: EncodedChunk) -> Integers:
        """Return each row's cell, (rows,) in 0..k-1."""
        index = np.zeros(chunk.rows, dtype=np.int64)
        for axis in self.axes:
            index = index * axis.size + axis.codes(chunk)
        return index

    def within(self, finer: "CellGrid") -> Integers | None:
        """Return which cell of this grid holds each of a finer one's, (finer.size,), or None where none does.

        A finer grid has every column of this one with the same cells, and any further columns.
        """
        places = [finer.axes_named(axis) for axis in self.axes]
        if any(place is None for place in places):
            return None
        codes = np.indices(finer.shape).reshape(len(finer.axes), -1)
        index = np.zeros(finer.size, dtype=np.int64)
        for axis, place in zip(self.axes, places, strict=True):
            index = index * axis.size + codes[place]
        return index

    def axes_named(self, axis: Axis) -> int | None:
        """Return the place of an axis with the same column and cells; None where there is none."""
        for place, own in enumerate(self.axes):
            kinds = [(one.column, one.cuts, one.folded, one.answered) for one in (own, axis)]
            if kinds[0] == kinds[1]:
                return place
        return None


def compared_places(shape: tuple[int, ...], compared: tuple[int, ...]) -> Integers:
    """Return the places in a table of that shape of each column's first so many cells."""
    places = np.arange(math.prod(shape)).reshape(shape)
    return np.asarray(places[tuple(slice(size) for size in compared)].ravel())


def _axis(
    domain: Domain, column: CategoricalColumn | NumericColumn, cuts: Sequence[float], folded: bool
) -> Axis:
    if isinstance(column, CategoricalColumn):
        return Axis(column, domain.categorical.index(column), folded=folded)
    if not cuts:
        raise CellsError("a numeric column needs cuts to have cells")
    ends = [column.lower, *cuts, column.upper]
    if not all(low < high for low, high in pairwise(ends)):
        raise CellsError("cuts must increase strictly and lie within the column's bounds")
    return Axis(column, domain.numeric.index(column), tuple(float(cut) for cut in cuts))


@dataclass(frozen=True)
class CellCounts:
    """Exact counts of units by cell: ``steps`` (k,) int64 of 2**-COUNT_BITS, adding up to the units."""

    units: int
    steps: Integers = field(repr=False)

    @property
    def counts(self) -> Floats:
        """The counts, (k,) float64: exact where ``units`` is at most 2**33."""
        return np.asarray(np.ldexp(self.steps.astype(np.float64), -COUNT_BITS))


class CountError(StudyError):
    """The table did not hold what it declared. Quotes no value."""


@runtime_checkable
class CountsRows(Protocol):
    """A table that can count its rows by cell where they are stored, faster than by reading them."""

    def counts(self, grid: CellGrid) -> Integers | None:
        """Return the number of rows of each cell, (k,); None where rows have to be read, or own units."""


def count_cells(table: Table, grid: CellGrid) -> Floats:
    """Return each cell's count of units, (k,) float64, never negative, adding up to ``table.units``.

    A unit's rows are averaged: fractional counts where a unit owns several rows. Memory is one chunk and k
    numbers. Raises CountError where the table holds another number of units than it declared.
    """
    return sum_cells(table, grid).counts


def sum_cells(table: Table, grid: CellGrid) -> CellCounts:
    """Return the same counts as whole steps of 2**-COUNT_BITS: see count_cells."""
    if table.units < 1:
        raise CountError("counts need at least one unit")
    rows = table.counts(grid) if isinstance(table, CountsRows) else None
    if rows is not None:
        if int(rows.sum()) != table.units:
            raise CountError("the data changed while they were read")
        return CellCounts(table.units, rows << COUNT_BITS)
    found = reduce_table(table, _SumsOfCells(grid))
    if found.units != table.units or int(found.steps.sum()) != found.units << COUNT_BITS:
        raise CountError("the data changed while they were read")
    return CellCounts(found.units, found.steps)


@dataclass
class _Steps:
    """Partial counts, (k,)."""

    steps: Integers
    units: int = 0


@dataclass(frozen=True)
class _SumsOfCells:
    """Counts the units of every cell over a table."""

    grid: CellGrid

    def start(self) -> _Steps:
        return _Steps(np.zeros(self.grid.size, dtype=np.int64))

    def add(self, partial: _Steps, chunk: EncodedChunk) -> None:
        partial.steps += chunk_steps(self.grid.index(chunk), chunk, self.grid.size, COUNT_BITS)
        partial.units += chunk.units

    def merge(self, partial: _Steps, other: _Steps) -> None:
        partial.steps += other.steps
        partial.units += other.units


def chunk_steps(index: Integers, chunk: EncodedChunk, cells: int, bits: int) -> Integers:
    """Count a chunk's units by the cells of its rows, (cells,) in steps of 2**-bits that add up to its units.

    ``index`` is each row's cell, (rows,).
    """
    if chunk.unit is None:
        return np.bincount(index, minlength=cells).astype(np.int64) << bits
    steps = np.zeros(cells, dtype=np.int64)
    np.add.at(steps, *unit_steps(index, chunk.unit, bits))
    return steps


def unit_steps(index: Integers, unit: Integers, bits: int) -> tuple[Integers, Integers]:
    """Return (cell, steps) of every unit with rows there; a unit's steps add up to exactly 2**bits.

    With C_j of a unit's m rows in its cells up to the j-th, they get floor(2**bits C_j / m) steps together:
    integers that never decrease and end at 2**bits, whatever the order of the rows.
    """
    order = np.lexsort((index, unit))
    owner, cell = unit[order], index[order]
    first = np.flatnonzero(np.diff(owner, prepend=-1) | np.diff(cell, prepend=-1))
    owner, cell = owner[first], cell[first]
    ends = np.append(first[1:], len(order))
    starts = first[np.searchsorted(owner, owner)]
    rows = np.append(first, len(order))[np.searchsorted(owner, owner, side="right")] - starts
    whole = 1 << bits
    reached = (ends - starts) * whole // rows
    return cell, reached - (first - starts) * whole // rows
