"""What leaves the holder of all columns: private cuts of each number, and one noisy table of the cells.

A part of epsilon buys the cuts, in equal parts: each column's are one draw of the exponential mechanism. The
rest pays for discrete Laplace noise on the counts of the cells of all columns crossed. Given the cuts,
replacing one unit takes 1 from one count and adds 1 to another, 2 in L1, so that the whole is pure epsilon:
docs/mathematics/quantile-tables.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn, PooledTable, Table
from tacit_protocol.features.private_cells import (
    QUANTILE_CELLS_MAX,
    ColumnCells,
    SingleRows,
    answered_categories,
)
from tacit_protocol.features.unit_gram import gather_units
from tacit_protocol.messages.study import Release
from tacit_protocol.numerics.noisy_tables import PLAUSIBLE, CellNoise, NoisyTable
from tacit_protocol.privacy.exact_sums import grid_bits
from tacit_protocol.privacy.guarantee import (
    EPSILON_UNITS,
    ApproximateEvent,
    Budget,
    Guarantee,
    LaplaceEvent,
    MechanismEvent,
)
from tacit_protocol.privacy.laplace_mechanism import ChoiceSource
from tacit_protocol.privacy.noise import NoiseSource, laplace_multiplier
from tacit_protocol.procedures.base import CELL_WORK
from tacit_protocol.procedures.counts.release import COUNTS, check_counts, count_noise, laplace_counts
from tacit_protocol.strict import ReleaseError, StudyError

CUTS_PART = 0.36
"""Part of epsilon that buys all cuts together. With half of it cuts lie too far from the quantiles, above all
where bounds are wide, and what the counts gain is less (docs/benchmarks/quantile-tables.md)."""

NOISE_SHARES: Mapping[int, float] = {4: 0.8, 3: 2.0}
"""By the number of cells of a number, the largest variance of the noise on all counts together, over n times
the other columns, at which a default takes so many; otherwise two. Four cells lose next to nothing where a
trend is all there is, and find what three do not see: rings, and other shapes in a part of the units
(docs/benchmarks/quantile-tables.md)."""

TABLE_CELLS_MAX = 4096
"""Most cells of a table: what a verdict simulates grows with it."""

VARIABLE_CELLS_MAX = 64
"""Most cells of a variable, a column or several: its contrasts are made anew for every simulated table."""

COLUMNS_MAX = 8
"""Most columns of a table."""

UNITS_MIN = 20
"""Fewest units of a table."""


@dataclass(frozen=True)
class HeldUnits:
    """One row of every unit. They never leave the holder."""

    rows: SingleRows = field(repr=False)
    units_by_owner: Mapping[str, int]


@dataclass(frozen=True)
class TableLayout:
    """What a study by a table of cells fixes before any data.

    Attributes:
        domain: the columns.
        groups: the variables, each one column or several, by name.
        budget: what the study may cost; delta is not used.
        categories: cells of every number; None chooses by the number of units.
        units: units of an average sender, as the study declares them, where several senders must have the
            same cells; None where the sender's own number counts.
    """

    domain: Domain
    groups: tuple[tuple[str, ...], ...]
    budget: Budget
    categories: int | None = None
    units: int | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns in the order of the table's axes: a variable's stand together."""
        return tuple(name for group in self.groups for name in group)

    def cells(self, units: int) -> tuple[ColumnCells, ...]:
        """Return the cells of each column, in the order of ``names``, for so many units of a sender."""
        count = self.categories or self._default(self.units or units)
        return tuple(self._of(name, count) for name in self.names)

    def shape(self, units: int) -> tuple[int, ...]:
        """Return the columns' numbers of cells."""
        return tuple(each.cells for each in self.cells(units))

    def _of(self, name: str, count: int) -> ColumnCells:
        column = next(column for column in self.domain.columns if column.name == name)
        if isinstance(column, NumericColumn):
            return ColumnCells(column, self.domain.numeric.index(column), count, bought=True)
        return ColumnCells(column, self.domain.categorical.index(column), answered_categories(column), False)

    def _default(self, units: int) -> int:
        for count, most in NOISE_SHARES.items():
            cells = math.prod(self._of(name, count).cells for name in self.names)
            noise = self.noise.variance * cells * (len(self.names) - 1)
            if cells <= TABLE_CELLS_MAX and noise <= most * units:
                return count
        return 2

    # What it costs.

    @property
    def bought(self) -> tuple[str, ...]:
        """The columns whose cuts are bought."""
        numbers = {column.name for column in self.domain.numeric}
        return tuple(name for name in self.names if name in numbers)

    @property
    def _cuts_micro(self) -> int:
        """What each column's cuts cost, in micro-epsilons."""
        if not self.bought:
            return 0
        return max(1, int(self.budget.epsilon_micro * CUTS_PART) // len(self.bought))

    @property
    def guarantee(self) -> Guarantee:
        """What a sender spends: the whole of epsilon, and no delta."""
        spent = self._cuts_micro * len(self.bought)
        cuts: tuple[MechanismEvent, ...] = (ApproximateEvent(epsilon=spent / EPSILON_UNITS),) if spent else ()
        return Guarantee(budget=self.budget, events=(*cuts, *self._counts.events))

    @property
    def _counts(self) -> Guarantee:
        """What the noise on the counts is made for."""
        left = self.budget.epsilon_micro - self._cuts_micro * len(self.bought)
        if left <= 0:
            raise StudyError("the budget is too small to be shared out; give the study a larger epsilon")
        event = LaplaceEvent(noise_multiplier=laplace_multiplier(left / EPSILON_UNITS))
        return Guarantee(budget=self.budget, events=(event,))

    @property
    def noise(self) -> CellNoise:
        """The noise on every count."""
        return CellNoise("laplace", count_noise(self._counts)[1])

    def numbers(self, units: int) -> int:
        """Return how many noisy numbers a sender of so many units sends: counts and cuts."""
        cells = self.cells(units)
        return math.prod(self.shape(units)) + sum(each.cells - 1 for each in cells if each.bought)

    def check(self) -> None:
        """Raise StudyError where the columns make no such table."""
        if len(self.names) > COLUMNS_MAX:
            raise StudyError(f"a table has at most {COLUMNS_MAX} columns: ask for another method")
        if self.categories is not None and self.categories > QUANTILE_CELLS_MAX:
            raise StudyError(f"parameter categories: at most {QUANTILE_CELLS_MAX}")
        self._counts  # noqa: B018 (raises where epsilon is too small)
        fewest = self if self.categories else TableLayout(self.domain, self.groups, self.budget, 2)
        shape = fewest.shape(UNITS_MIN)
        widest = max(math.prod(fewest._of(name, shape[-1]).cells for name in group) for group in self.groups)
        if math.prod(shape) > TABLE_CELLS_MAX or widest > VARIABLE_CELLS_MAX:
            raise StudyError(
                f"the columns' cells make too large a table: {TABLE_CELLS_MAX} cells at most, and "
                f"{VARIABLE_CELLS_MAX} of a variable; use fewer columns or levels, or another method"
            )

    @property
    def work(self) -> int:
        """What one simulation of the table takes at most, in simulated numbers."""
        most = self if self.categories else replace(self, categories=QUANTILE_CELLS_MAX)
        return CELL_WORK * PLAUSIBLE * min(TABLE_CELLS_MAX, math.prod(most.shape(UNITS_MIN)))

    # What leaves.

    def read(self, table: Table, order: np.random.Generator) -> HeldUnits:
        """Gather one row of every unit: of several, one drawn in secret, so that no order of units counts."""
        gathered = gather_units(list(table.chunks()))
        if gathered.units != table.units:
            raise StudyError("the data changed while they were read")
        sizes = np.diff(gathered.starts)
        rows = gathered.starts[:-1] + (order.random(gathered.units) * sizes).astype(np.int64)
        by_owner = table.units_by_owner if isinstance(table, PooledTable) else {}
        return HeldUnits(SingleRows(gathered.numeric[rows], gathered.categorical[rows]), by_owner)

    def release(self, held: HeldUnits, noise: NoiseSource) -> Release:
        """Draw the cuts, then the noise of the table."""
        units = len(held.rows.numeric)
        cuts, cell = {}, np.zeros(units, dtype=np.int64)
        for own in self.cells(units):
            places: tuple[int, ...] = ()
            if own.bought:
                if not isinstance(noise, ChoiceSource):
                    raise TypeError("this noise source draws numbers alone, and the study asks for a choice")
                values = held.rows.numeric[:, own.place]
                places = own.draw_cuts(values, self._cuts_micro / EPSILON_UNITS, noise)
                cuts[own.column.name] = places
            codes = own.codes(held.rows.numeric, held.rows.categorical, places)
            cell = cell * own.cells + np.where(codes < 0, own.cells - 1, codes)
        counts = np.bincount(cell, minlength=math.prod(self.shape(units))).astype(np.int64)
        bits = grid_bits(units, products=False)
        vector = laplace_counts(counts << bits, bits, self._counts, noise)
        return Release(
            units=units,
            units_by_owner=dict(held.units_by_owner),
            guarantee=self.guarantee,
            vectors={COUNTS: vector},
            cuts=cuts,
        )

    def check_release(self, release: Release) -> None:
        """Raise ReleaseError where a release has not the shape and the noise that the study fixes."""
        if set(release.vectors) != {COUNTS} or release.decision is not None or release.answers:
            raise ReleaseError("the release must hold one table and its cuts, and nothing else")
        if release.guarantee != self.guarantee:
            raise ReleaseError("the release states another guarantee than the study")
        if not set(release.cuts) <= set(self.bought):
            raise ReleaseError("the release has cuts of columns that have none to be bought")
        try:
            for own in self.cells(release.units):
                own.check_cuts(release.cuts.get(own.column.name))
            cells, bits = math.prod(self.shape(release.units)), grid_bits(release.units, products=False)
            check_counts(release.vectors[COUNTS], self._counts, cells, bits, self._counts)
        except (StudyError, ValueError) as error:
            raise ReleaseError(str(error)) from None

    def table(self, release: Release) -> NoisyTable:
        """Return the noisy table of a checked release."""
        return NoisyTable(release.vectors[COUNTS].mean(1), release.units, (self.noise,))

    def cell_labels(self, release: Release) -> dict[str, tuple[str, ...]]:
        """Return the labels of every column's cells; the last level's holds what is not listed too."""
        found = {}
        for own in self.cells(release.units):
            labels = own.labels(release.cuts.get(own.column.name, ()))
            if isinstance(own.column, CategoricalColumn) and own.cells < own.column.categories:
                labels = (*labels[:-1], f"{labels[-1]} or other")
            found[own.column.name] = labels
        return found

    def signal(self, units: Sequence[int]) -> float:
        """Return the noncentrality of two equal variables at senders of so many units each, about."""
        found = 0.0
        for own in units:
            found += own**2 / (own + self.noise.variance * math.prod(self.shape(own)))
        return found
