"""Cells of a column for one number a unit: levels, equal intervals, or intervals between private quantiles.

Private cuts are one draw of the exponential mechanism from all increasing lists of k - 1 places on a public
grid. The loss of a list is half the sum over its k intervals of |units in it - n/k|. Replacing a unit takes
one away from one interval and adds one to another, so that a loss moves by at most 1
(docs/mathematics/randomised-columns.md). A unit of several rows counts by one of them, drawn in public.
"""

from dataclasses import dataclass
from functools import cache
from itertools import combinations, pairwise

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain import CategoricalColumn, NumericColumn, Table
from tacit_protocol.features.cell_counts import MISSING, OTHER
from tacit_protocol.privacy.laplace_mechanism import ChoiceSource, ExponentialChoice
from tacit_protocol.privacy.randomised_response import NO_CELL
from tacit_protocol.strict import StudyError

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

QUANTILE_CELLS_MAX = 4
"""Most intervals between private cuts: of more there are too many lists of cuts to draw from."""

GRIDS = {2: 128, 3: 128, 4: 64}
"""Intervals of the public grid on which cuts lie, by the number of cells: 127, 8001 and 39711 lists."""

CUT_SENSITIVITY = 1.0
"""Of a list's loss, when one unit is replaced."""


@dataclass(frozen=True)
class ColumnCells:
    """The cells of one column: ``cells`` intervals of a numeric one, or a categorical one's first categories.

    ``place`` is the column's among the numeric or the categorical ones. Where not ``bought``, a numeric
    column's cuts divide its bounds evenly. A category beyond the first ``cells`` is in no cell.
    """

    column: NumericColumn | CategoricalColumn
    place: int
    cells: int
    bought: bool

    @property
    def ordered(self) -> bool:
        """Whether the cells have an order: those of numbers, and two of any kind."""
        return isinstance(self.column, NumericColumn) or self.cells == 2

    @property
    def grid(self) -> int:
        """Intervals of the public grid on which cuts lie."""
        return GRIDS[self.cells] if self.bought else self.cells

    def mechanism(self, units: int, epsilon: float) -> ExponentialChoice:
        """Return how cuts are drawn for so many units: all of it public."""
        return ExponentialChoice(CUT_SENSITIVITY, float(units), epsilon)

    def draw_cuts(self, values: Floats, epsilon: float, source: ChoiceSource) -> tuple[int, ...]:
        """Draw private cuts, in steps of the grid, of values (n,) in [0, 1]; NaN is in no interval."""
        lists = cut_lists(self.grid, self.cells)
        losses = cut_losses(values, self.grid, self.cells)
        return tuple(lists[self.mechanism(len(values), epsilon).choose(losses, source)].tolist())

    def even_cuts(self) -> tuple[int, ...]:
        """Return the public cuts of a numeric column, in steps of the grid."""
        return tuple(range(1, self.cells))

    def codes(self, numeric: Floats, categorical: npt.NDArray[np.int32], cuts: tuple[int, ...]) -> Integers:
        """Return the cell of each unit's row, (n,), or NO_CELL."""
        if isinstance(self.column, CategoricalColumn):
            own = categorical[:, self.place].astype(np.int64)
            return np.where(own < self.cells, own, NO_CELL)
        edges = np.array(cuts) / self.grid
        return np.searchsorted(edges, numeric[:, self.place], side="right").astype(np.int64)

    def check_cuts(self, cuts: tuple[int, ...] | None) -> None:
        """Raise StudyError where cuts are not such as the study asks for."""
        if not self.bought:
            if cuts is not None:
                raise StudyError("the release has cuts of a column that has none to be bought")
            return
        ends = (0, *(cuts or ()), self.grid)
        if len(ends) != self.cells + 1 or any(low >= high for low, high in pairwise(ends)):
            raise StudyError("the release has not the cuts that the study fixes")

    def labels(self, cuts: tuple[int, ...]) -> tuple[str, ...]:
        """Return one label a cell; an interval holds its lower end."""
        if isinstance(self.column, CategoricalColumn):
            return (*self.column.levels, OTHER, MISSING)[: self.cells]
        low, reach = self.column.lower, self.column.upper - self.column.lower
        ends = [low, *(low + reach * cut / self.grid for cut in cuts), self.column.upper]
        return tuple(f"{first:.4g} to {last:.4g}" for first, last in pairwise(ends))


def answered_categories(column: CategoricalColumn) -> int:
    """Return how many answers a randomised categorical column has: its levels, where it has several.

    What is not listed, or missing, answers blindly.
    """
    return len(column.levels) if len(column.levels) > 1 else column.categories


@cache
def cut_lists(grid: int, cells: int) -> Integers:
    """Return all increasing lists of ``cells`` - 1 inner places of the grid, (lists, cells - 1)."""
    return np.array(list(combinations(range(1, grid), cells - 1)), dtype=np.int64)


def cut_losses(values: Floats, grid: int, cells: int) -> Floats:
    """Return each list's loss: half the sum over its intervals of |units in it - n/cells|.

    A value is in the interval that begins at or below it; the grid is a power of two, so that this is exact.
    """
    held = values[np.isfinite(values)]
    steps = np.minimum((held * grid).astype(np.int64), grid - 1)
    below = np.concatenate([[0], np.cumsum(np.bincount(steps, minlength=grid))])
    lists = cut_lists(grid, cells)
    ends = np.concatenate(
        [np.zeros((len(lists), 1), np.int64), lists, np.full((len(lists), 1), grid)], axis=1
    )
    counts = np.diff(below[ends], axis=1)
    return np.asarray(np.abs(cells * counts - len(values)).sum(axis=1) / (2 * cells))


@dataclass(frozen=True)
class SingleRows:
    """One row of every unit, in the units' order: (n, numeric columns), (n, categorical columns)."""

    numeric: Floats
    categorical: npt.NDArray[np.int32]


def read_units(table: Table, rng: np.random.Generator) -> SingleRows:
    """Return one row of every unit at its place; of several rows the one that public numbers draw.

    Raises StudyError where the units are not as many as declared.
    """
    units = table.units
    numeric = np.empty((units, len(table.domain.numeric)))
    categorical = np.empty((units, len(table.domain.categorical)), dtype=np.int32)
    drawn, taken, done = rng.random(units), np.zeros(units, dtype=np.bool_), 0
    for chunk in table.chunks():
        order = np.arange(done, done + chunk.units)
        places = order if chunk.positions is None else chunk.positions
        if len(places) != chunk.units or places.min() < 0 or places.max() >= units or taken[places].any():
            raise StudyError("the data changed while they were read")
        taken[places] = True
        done += chunk.units
        rows = np.arange(chunk.rows)
        if chunk.unit is not None:
            sizes = np.bincount(chunk.unit, minlength=chunk.units)
            starts = np.cumsum(sizes) - sizes
            rows = np.argsort(chunk.unit, kind="stable")[starts + (drawn[places] * sizes).astype(np.int64)]
        numeric[places], categorical[places] = chunk.numeric[rows], chunk.categorical[rows]
    if not taken.all():
        raise StudyError("the data changed while they were read")
    return SingleRows(numeric, categorical)
