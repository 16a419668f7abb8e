"""Dependence from randomised answers: what either owner releases, of which units, at which part of epsilon.

``two-round``: one owner releases a randomised answer of every unit to which cell of its column the unit is
in; the other, to whom these answers are public, counts its own cells beside them and releases the noisy
table. ``one-round``: both release randomised answers, at the same time. Where an owner has several columns,
units are dealt out to pairs of columns in public, so that a unit answers for one column alone, at the whole
of epsilon. Both releases are pure. Derivations: docs/mathematics/randomised-columns.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.features.aligned_sums import deal_out
from tacit_protocol.features.private_cells import (
    QUANTILE_CELLS_MAX,
    ColumnCells,
    SingleRows,
    answered_categories,
)
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.numerics.noisy_tables import PLAUSIBLE
from tacit_protocol.numerics.randomised_tables import AnsweredTable
from tacit_protocol.privacy.exact_sums import grid_bits
from tacit_protocol.privacy.gaussian_mechanism import LayoutError, SumPart
from tacit_protocol.privacy.guarantee import (
    ANSWER_BYTES_MAX,
    CODES_MAX,
    COORDINATES_MAX,
    EPSILON_UNITS,
    Budget,
    Guarantee,
    LaplaceEvent,
    NoisyVector,
    answer_bits,
)
from tacit_protocol.privacy.laplace_mechanism import (
    ChoiceSource,
    check_laplace_sums,
    choice_guarantee,
    release_laplace_sums,
    require_laplace,
    sums_scale,
)
from tacit_protocol.privacy.noise import NoiseSource, laplace_multiplier
from tacit_protocol.privacy.randomised_response import UniformSource, randomise, retention
from tacit_protocol.procedures.base import (
    CELL_WORK,
    PublicRuleError,
    ReleaseError,
    StudyError,
    require_noise,
)
from tacit_protocol.procedures.counts.release import COUNTS, L1_SENSITIVITY
from tacit_protocol.procedures.randomised_answers.owners import AnswersOfOwners, OwnUnits
from tacit_protocol.procedures.randomised_answers.sides import (
    DESIGN_STREAM,
    public_generator,
)

Integers = npt.NDArray[np.int64]

CUTS_STREAM = 5
"""Spawn key of the column for whose cuts a unit counts, where it is counted in the tables of all."""

CUTS_PART = 0.15
"""Part of epsilon that buys a column's cuts; the most of it where the part is fitted."""

CUTS_PART_LEAST, CUTS_SPENT = 0.03, 100.0
"""The least part where it is fitted to the number of units; and the part times units and epsilon. Cuts lie as
near to quantiles as this product is large, and what they leave keeps answers true."""


def fitted_part(units: float, epsilon: float) -> float:
    """Return the part of epsilon that buys cuts among so many units, from public numbers alone."""
    return min(CUTS_PART, max(CUTS_PART_LEAST, CUTS_SPENT / (units * epsilon)))


CELLS_FIRST, CELLS_SECOND = 3, 4
"""Cells of a numeric column whose answers are randomised, and of one that is counted."""

SIGNAL_MIN = 25.0
"""Units times what of a contrast's square is left with three cells: of less, two cells find more of what can
be found at all (docs/benchmarks/distance-correlation.md)."""

UNITS_MIN = 20
"""Fewest units of a pair of columns."""

PAIRS_MAX = 64
"""Most pairs of columns that units are dealt out to."""

TABLE_MAX = 400
"""Most cells of one pair's table: its estimates take the square of it in memory."""

EVEN_CELLS_MAX = 16
"""Most cells of a numeric column at even public cuts."""


OTHER_GUARANTEE = "the release states another guarantee than the study"

TOO_SMALL = "the budget is too small to be shared out; give the study a larger epsilon"


@dataclass(eq=False)
class PairedAnswers(AnswersOfOwners):
    """A study of the pairs of two owners' columns, to which units are dealt out."""

    study: Study
    domains: tuple[Domain, Domain]
    first: int
    """The place, among the owners, of the one who answers first."""
    last: int | None
    simulations: int
    categories: int | None = None
    """Cells of a numeric column; None leaves it to public numbers."""
    even: bool = False
    """Whether a numeric column's cells end at even public cuts, and not at bought quantiles."""
    given: Release | None = None
    """What that one released earlier, for whoever asks: cells and retention are then as it says."""

    noise: ClassVar[Literal["gaussian", "laplace"]] = "laplace"
    """The law of the noise on every count of a table."""
    of_what: ClassVar[str] = "a column"
    counted: ClassVar[str] = "its own cells"
    each: ClassVar[str] = "pair of columns"
    """What is answered about, what is counted, and what units are dealt out to, in words."""

    @cached_property
    def guarantee(self) -> Guarantee:  # type: ignore[override]
        """What the second owner spends, and the first where they spend alike."""
        return self.guarantee_of(1 - self.first)

    def guarantee_of(self, side: int) -> Guarantee:  # noqa: ARG002
        """Return what an owner spends: all of epsilon."""
        return choice_guarantee(self.study.budget)

    @cached_property
    def names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:  # type: ignore[override]
        """Either owner's columns."""
        first, second = (tuple(column.name for column in domain.columns) for domain in self.domains)
        return first, second

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The places of both owners' columns, of each pair."""
        return [(i, j) for i in range(len(self.names[0])) for j in range(len(self.names[1]))]

    @property
    def work(self) -> int:
        """What one simulation of all pairs' tables takes at most, in simulated numbers."""
        most = self.categories or QUANTILE_CELLS_MAX
        cells = [
            sum(c.categories if isinstance(c, CategoricalColumn) else most for c in domain.columns)
            for domain in self.domains
        ]
        return CELL_WORK * PLAUSIBLE * math.prod(cells)

    @cached_property
    def decks(self) -> list[int]:
        """Which units, of those dealt out, are counted for each pair of columns."""
        return list(range(len(self.pairs)))

    @property
    def tables_of_unit(self) -> int:
        """In how many tables a unit is counted."""
        return 1

    def cells(self, side: int, column: int, units: int) -> ColumnCells:
        """Return the cells of one of an owner's columns, among so many units in all."""
        domain = self.domains[side]
        own = domain.columns[column]
        if self.given is not None and side == self.first and isinstance(own, NumericColumn):
            codes, bought = self.given.answers[own.name].codes, own.name in self.given.cuts
            return ColumnCells(own, domain.numeric.index(own), codes, bought)
        if isinstance(own, CategoricalColumn):
            count = answered_categories(own) if self.answers_at(side) else own.categories
            return ColumnCells(own, domain.categorical.index(own), count, bought=False)
        bought = not self.even
        count = self.categories or self._default(side, units)
        return ColumnCells(own, domain.numeric.index(own), count, bought)

    def _default(self, side: int, units: int) -> int:
        """Return the cells of a numeric column: two where more would find less."""
        kept = retention(self._rest_micro(units, bought=True), CELLS_FIRST)
        if units / len(self.pairs) * kept ** (4 if self.last is None else 2) < SIGNAL_MIN:
            return 2
        return CELLS_FIRST if self.answers_at(side) else CELLS_SECOND

    def _buys(self, side: int) -> bool:
        """Say whether any of an owner's columns has cuts that are bought."""
        return not self.even and bool(self.domains[side].numeric)

    def _cuts_micro(self, units: int, *, bought: bool) -> int:
        if not bought:
            return 0
        return max(1, int(self.study.budget.epsilon_micro * self.cuts_part(units)))

    def cuts_part(self, units: int) -> float:
        """Return the part of epsilon that buys a column's cuts."""
        return fitted_part(units / len(self.pairs), self.study.budget.epsilon)

    def _rest_micro(self, units: int, *, bought: bool) -> int:
        return self.study.budget.epsilon_micro - self._cuts_micro(units, bought=bought)

    def dealt(self, units: int) -> Integers:
        """Return which pair of columns, or column of the first owner's, each unit counts for, (n,)."""
        return deal_out(units, max(self.decks) + 1, public_generator(self.study, DESIGN_STREAM))

    def columns_of(self, side: int, dealt: Integers) -> Integers:
        """Return which of an owner's columns each unit counts for, (n,)."""
        return np.array([pair[side] for pair in self.pairs])[dealt]

    def layout(self, side: int, units: int) -> None:  # noqa: ARG002
        least = UNITS_MIN * max(len(self.names[1 - self.first]), max(self.decks) + 1)
        if units < least:
            raise PublicRuleError(
                "too-few-units",
                f"answers need {UNITS_MIN} units or more for every {self.each}, {least} in all: ask for "
                "fewer columns, or more units",
            )
        for own in (0, 1):
            widest = max(self.cells(own, j, units).cells for j in range(len(self.names[own])))
            # A column's share of the units is even, up to one; a byte of each is padding.
            needed = units * answer_bits(widest) // 8 + 2 * len(self.names[own])
            if self.answers_at(own) and needed > ANSWER_BYTES_MAX:
                raise PublicRuleError("too-many-units", "so many units' answers do not fit one release")
            require_noise(partial(self._require_drawable, own, units))

    def _require_drawable(self, side: int, units: int) -> None:
        """Raise StudyError where an owner's cuts, answers or tables cannot be drawn among so many units."""
        columns = self.columns_of(side, self.dealt(units))
        for place in range(len(self.names[side])):
            cells = self.cells(side, place, units)
            if self._rest_micro(units, bought=cells.bought) < 1:
                raise StudyError(TOO_SMALL)
            if cells.bought:
                counted = int(np.count_nonzero(columns == place))
                epsilon = self._cuts_micro(units, bought=True) / EPSILON_UNITS
                cells.mechanism(counted, epsilon).scale  # noqa: B018 (raises where there is no grid)
        if self.answers_at(side):
            return
        shapes = (self._shape(pair, units) for pair in range(len(self.pairs)))
        bits, size = grid_bits(units, products=False), sum(math.prod(shape) for shape in shapes)
        self.require_table(self._part(np.zeros(size, dtype=np.int64), bits), units)

    @property
    def released(self) -> str:
        one = "one randomised answer of each unit, to which cell of"
        if self.last is None:
            return f"{one} a column it is in"
        sender, receiver = (self.study.owners[place].name for place in self.order)
        return (
            f"at {sender} {one} {self.of_what} it is in, and at {receiver} noisy counts of {self.counted} "
            "beside these answers"
        )

    def answered(self, side: int) -> str:
        dealt = " (of one of them, dealt out in public)" if len(self.names[side]) > 1 else ""
        return super().answered(side) + dealt

    def require_small(self) -> None:
        """Raise StudyError where cells are asked for that cuts, answers or tables cannot have."""
        most = EVEN_CELLS_MAX if self.even else QUANTILE_CELLS_MAX
        if self.categories is not None and self.categories > most:
            cuts = "even" if self.even else "fitted"
            raise StudyError(f"parameter categories: at most {most} with {cuts} cuts")
        for side in (0, 1):
            widest = max(self.cells(side, place, 2**30).cells for place in range(len(self.names[side])))
            if self.answers_at(side) and widest > CODES_MAX:
                raise StudyError(f"a randomised column has at most {CODES_MAX} categories: use fewer")
        largest = max(math.prod(self._shape(pair, 2**30)) for pair in range(len(self.pairs)))
        if largest > TABLE_MAX:
            raise StudyError(f"a table of answers has at most {TABLE_MAX} cells: use fewer categories")

    # What leaves.

    def privatise(self, summary: OwnUnits, noise: NoiseSource) -> Release:
        dealt = self.dealt(len(summary.rows.numeric))
        cuts = self._draw_cuts(summary, dealt, noise)
        drawn = self._answers if self.answers_at(summary.side) else self._table
        return drawn(summary, dealt, cuts, noise)

    def _draw_cuts(self, own: OwnUnits, dealt: Integers, noise: NoiseSource) -> dict[str, tuple[int, ...]]:
        """Draw the private cuts of each numeric column from the units that count for it."""
        columns, found = self.columns_of(own.side, dealt), {}
        for place, name in enumerate(self.names[own.side]):
            cells = self.cells(own.side, place, len(dealt))
            if not cells.bought:
                continue
            if not isinstance(noise, ChoiceSource):
                raise TypeError("this noise source draws numbers alone, and the study asks for a choice")
            values = own.rows.numeric[columns == place, cells.place]
            epsilon = self._cuts_micro(len(dealt), bought=True) / EPSILON_UNITS
            found[name] = cells.draw_cuts(values, epsilon, noise)
        return found

    def _codes(
        self, side: int, place: int, rows: SingleRows, cuts: Mapping[str, tuple[int, ...]]
    ) -> Integers:
        cells = self.cells(side, place, len(rows.numeric))
        own = cuts.get(self.names[side][place], cells.even_cuts())
        return cells.codes(rows.numeric, rows.categorical, own)

    def _answers(
        self, own: OwnUnits, dealt: Integers, cuts: Mapping[str, tuple[int, ...]], noise: NoiseSource
    ) -> Release:
        if not isinstance(noise, UniformSource):
            raise TypeError("this noise source draws numbers alone, and the study asks for answers")
        columns, answers = self.columns_of(own.side, dealt), {}
        for place, name in enumerate(self.names[own.side]):
            cells = self.cells(own.side, place, len(dealt))
            codes = self._codes(own.side, place, own.rows, cuts)[columns == place]
            rest = self._rest_micro(len(dealt), bought=cells.bought)
            answers[name] = randomise(codes, cells.cells, rest, noise)
        guarantee = self.guarantee_of(own.side)
        return Release(units=len(dealt), guarantee=guarantee, answers=answers, cuts=dict(cuts))

    def _table(
        self, own: OwnUnits, dealt: Integers, cuts: Mapping[str, tuple[int, ...]], noise: NoiseSource
    ) -> Release:
        received = own.received.get(self.study.owners[self.first].name)
        if received is None:
            raise StudyError("the other owner's answers are missing")
        answers = self._spread(received, dealt)
        counts = []
        for pair, (i, j) in enumerate(self.pairs):
            place = (i, j)[own.side]
            shape = self._shape(pair, len(dealt))
            chosen = dealt == self.decks[pair]
            codes = self._codes(own.side, place, own.rows, cuts)[chosen]
            cells = answers[chosen] * shape[1] + codes
            counts.append(np.bincount(cells, minlength=math.prod(shape)))
        bits = grid_bits(len(dealt), products=False)
        part = self._part(np.concatenate(counts).astype(np.int64) << bits, bits)
        vector = self.noisy_table(part, len(dealt), noise)
        guarantee = self.guarantee_of(own.side)
        return Release(units=len(dealt), guarantee=guarantee, vectors={COUNTS: vector}, cuts=dict(cuts))

    def _part(self, steps: Integers, bits: int) -> SumPart:
        """Lay out the tables. With the answers fixed, a replaced unit moves by one cell in each of its own.

        That is 2 in L1 and 2 in the square of L2 for each table that it is counted in.
        """
        l2 = math.nextafter(math.sqrt(2.0 * self.tables_of_unit), math.inf)
        return SumPart(COUNTS, steps, -bits, l2, 1.0, l1=L1_SENSITIVITY * self.tables_of_unit)

    def _table_guarantee(self, units: int) -> Guarantee:
        """Return what the tables' noise is made for: the least that is left beside any column's cuts."""
        left = self._rest_micro(units, bought=self._buys(1 - self.first))
        if left < 1:
            raise StudyError(TOO_SMALL)
        return self.guarantee_for(self.study.budget.model_copy(update={"epsilon_micro": left}))

    # The noise on tables: of another law where a subclass has it.

    def guarantee_for(self, left: Budget) -> Guarantee:
        """Return what noise is made for that costs so much of the study's budget."""
        event = LaplaceEvent(noise_multiplier=laplace_multiplier(left.epsilon))
        return Guarantee(budget=self.study.budget, events=(event,))

    def require_table(self, part: SumPart, units: int) -> None:
        """Raise ValueError where the noise of tables of so many units cannot be drawn."""
        require_laplace(part, self._table_guarantee(units))

    def noisy_table(self, part: SumPart, units: int, noise: NoiseSource) -> NoisyVector:
        """Return tables of so many units with their noise."""
        return release_laplace_sums(part, self._table_guarantee(units), noise)

    def check_table(self, side: int, part: SumPart, release: Release) -> None:
        """Raise LayoutError where tables have not the noise that the study fixes."""
        if release.guarantee != self.guarantee_of(side):
            raise LayoutError(OTHER_GUARANTEE)
        own = self._table_guarantee(release.units)
        check_laplace_sums(release.vectors[COUNTS], own, part, own)

    def scale(self, units: int) -> float:
        """Return the scale of the noise on a count: the Laplace law's, or a standard deviation."""
        return sums_scale(self._part(np.zeros(1, dtype=np.int64), 0), self._table_guarantee(units))

    def _shape(self, pair: int, units: int) -> tuple[int, int]:
        """Return the shape of a pair's table: who answers first has the rows."""
        sizes = [self.cells(side, self.pairs[pair][side], units).cells for side in (0, 1)]
        return sizes[self.first], sizes[1 - self.first]

    def _spread(self, release: Release, dealt: Integers, side: int | None = None) -> Integers:
        """Return each unit's answer, (n,), for the column that it counts for."""
        side = self.first if side is None else side
        columns, found = self.columns_of(side, dealt), np.empty(len(dealt), dtype=np.int64)
        for place, name in enumerate(self.names[side]):
            found[columns == place] = release.answers[name].values()
        return found

    # What is checked, and read.

    def numbers_sent(self, side: int) -> int:
        """Return an answer of every unit, or counts; and cuts."""
        known = [owner.units for owner in self.study.owners if owner.units is not None]
        if known:
            return self.numbers(side, known[0])
        return COORDINATES_MAX if self.answers_at(side) else self.numbers(side, 2**30)

    def numbers(self, side: int, units: int) -> int:
        """Return how many noisy numbers an owner sends: an answer of every unit, or counts; and cuts."""
        held = [self.cells(side, place, units) for place in range(len(self.names[side]))]
        bought = sum(own.cells - 1 for own in held if own.bought)
        if self.answers_at(side):
            return units + bought
        return sum(math.prod(self._shape(pair, units)) for pair in range(len(self.pairs))) + bought

    def check_side(self, side: int, release: Release) -> None:
        """Check shape, cuts, randomisation and noise; not of what was given, which is of another study."""
        if release is self.given:
            return
        units = release.units
        try:
            self.layout(side, units)
            places = {name: self.cells(side, j, units) for j, name in enumerate(self.names[side])}
            if not set(release.cuts) <= set(places):
                raise LayoutError("the release has cuts of columns that its owner does not hold")
            for name, cells in places.items():
                cells.check_cuts(release.cuts.get(name))
            if self.answers_at(side):
                self._check_answers(side, release, places)
            else:
                if set(release.vectors) != {COUNTS} or release.answers:
                    raise LayoutError("the release has not the counts of the second round, and nothing else")
                size = self.numbers(side, units) - sum(len(cuts) for cuts in release.cuts.values())
                part = self._part(np.zeros(size, dtype=np.int64), grid_bits(units, products=False))
                self.check_table(side, part, release)
        except (StudyError, ValueError) as error:
            raise ReleaseError(str(error)) from None

    def _check_answers(self, side: int, release: Release, places: Mapping[str, ColumnCells]) -> None:
        if release.guarantee != self.guarantee_of(side):
            raise LayoutError(OTHER_GUARANTEE)
        if set(release.answers) != set(places) or release.vectors:
            raise LayoutError("the release has not one answer of every unit, and nothing else")
        columns = self.columns_of(side, self.dealt(release.units))
        for place, (name, cells) in enumerate(places.items()):
            own = release.answers[name]
            fixed = (cells.cells, int(np.sum(columns == place)))
            if (own.codes, own.units) != fixed:
                raise LayoutError(f"the answers of {name} have not the shape that the study fixes")
            rest = self._rest_micro(release.units, bought=cells.bought)
            if own.retention != retention(rest, cells.cells):
                raise LayoutError(f"the answers of {name} are not randomised as the study fixes")
            if own.values().max() >= cells.cells:
                raise LayoutError(f"an answer of {name} is none of its cells")

    def tables(self, releases: Mapping[str, Release]) -> list["PairTable"]:
        """Return each pair's table; raises ReleaseError where releases do not fit the study or each other."""
        own = self.checked(releases)
        units, second = own[0].units, 1 - self.first
        dealt = self.dealt(units)
        answers = self._spread(own[self.first], dealt)
        other = self._spread(own[second], dealt, second) if self.last is None else None
        noise = 0.0 if self.last is None else self.scale(units)
        sums = None if self.last is None else own[second].vectors[COUNTS].mean(1)
        found, done = [], 0
        for pair, places in enumerate(self.pairs):
            shape, chosen = self._shape(pair, units), dealt == self.decks[pair]
            size = math.prod(shape)
            if other is not None:
                counts = 1.0 * np.bincount(answers[chosen] * shape[1] + other[chosen], minlength=size)
            elif sums is not None:
                counts, done = sums[done : done + size], done + size
            cells = [self.cells(side, places[side], units) for side in (0, 1)]
            order = (self.first, second)
            kept = [
                own[side].answers[each.column.name].retention if self.answers_at(side) else 1.0
                for side, each in enumerate(cells)
            ]
            labels = [
                each.labels(own[side].cuts.get(each.column.name, each.even_cuts()))
                for side, each in enumerate(cells)
            ]
            table = AnsweredTable(
                counts=np.reshape(counts, shape).astype(np.float64),
                rows=np.bincount(answers[chosen], minlength=shape[0]).astype(np.int64),
                kept=(kept[order[0]], kept[order[1]]),
                ordered=(cells[order[0]].ordered, cells[order[1]].ordered),
                noise=noise,
                law=self.noise,
            )
            found.append(
                PairTable(
                    (cells[0].column.name, cells[1].column.name),
                    (labels[0], labels[1]),
                    (kept[0], kept[1]),
                    table,
                    swapped=self.first == 1,
                )
            )
        return found

    def signal(self, units: int) -> float:
        """Return what even equal columns could not exceed."""
        kept = 1.0
        for side in (0, 1):
            widest = max(self.cells(side, j, units).cells for j in range(len(self.names[side])))
            if self.answers_at(side):
                bought = self.cells(side, 0, units).bought
                kept *= retention(self._rest_micro(units, bought=bought), widest)
        return units / len(self.pairs) * kept**2


@dataclass(frozen=True)
class PairTable:
    """A pair of columns, in the study's order of owners, with the table of answers between them.

    ``swapped``: the table's rows are the second column's.
    """

    columns: tuple[str, str]
    labels: tuple[tuple[str, ...], tuple[str, ...]]
    kept: tuple[float, float]
    table: AnsweredTable
    swapped: bool


def suits_answers(domains: tuple[Domain, Domain], budget: Budget) -> bool:
    """Say whether ``auto`` asks for randomised answers, from public numbers alone.

    They find with a twentieth of the units what a sketch finds of one pair of columns; each of several pairs
    has its part of the units, where a sketch has all columns in every unit.
    """
    pairs = len(domains[0].columns) * len(domains[1].columns)
    sizes = [
        max(c.categories if isinstance(c, CategoricalColumn) else CELLS_SECOND for c in domain.columns)
        for domain in domains
    ]
    if pairs > PAIRS_MAX or math.prod(sizes) > TABLE_MAX or min(sizes) > CODES_MAX:
        return False
    return pairs <= PAIRS_AUTO or budget.delta_pico == 0


PAIRS_AUTO = 16
"""Most pairs of columns for which ``auto`` asks for answers where a delta would pay for a sketch."""
