"""Mutual independence of columns that three or more owners hold of the same units, by randomised answers.

``two-round``: all owners but one release one randomised answer of every unit to which cell of their column it
is in; the last, to whom all these answers are public, counts its own cells beside each combination of them,
and releases the noisy table. ``one-round``: all release randomised answers. Every release is pure, at the
whole of epsilon: an answer as in randomised columns, and with the answers fixed a replaced unit of the last
owner moves from one cell of its row to another, 2 in L1.

The joint test adds up the squares of all products of the columns' contrasts; its null permutes answers, and
draws the last owner's cells given them. Columns are mutually independent exactly where each is independent of
all before it: each of these steps is a test too, of a table whose rows are the combinations of the answers
before. Pairs are margins of the same tables, debiased as those are.

Dealt cuts: public numbers draw the units whose rows place the cells, and the others answer; every unit is in
one of both, at the whole of epsilon. Halves: public numbers deal all units into two, of which one has two
cells a number and sees signs, the other three, which see curves too; each is released as if it were alone.
Derivations: docs/mathematics/randomised-columns.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from tacit_protocol.domain import CategoricalColumn, NumericColumn
from tacit_protocol.features.private_cells import (
    QUANTILE_CELLS_MAX,
    ColumnCells,
    answered_categories,
)
from tacit_protocol.messages.study import PartyName, Release, Study
from tacit_protocol.numerics.noisy_tables import PLAUSIBLE
from tacit_protocol.numerics.randomised_tables import (
    AnsweredTable,
    SeveralAnswers,
    independence_test,
    mutual_test,
    table_estimates,
)
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.exact_sums import grid_bits
from tacit_protocol.privacy.gaussian_mechanism import LayoutError, SumPart
from tacit_protocol.privacy.guarantee import (
    ANSWER_BYTES_MAX,
    CODES_MAX,
    COORDINATES_MAX,
    Guarantee,
    LaplaceEvent,
    NoisyVector,
    RandomisedAnswers,
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
    Fields,
    Procedure,
    Progress,
    PublicRuleError,
    QuestionTemplate,
    ReleaseError,
    Releases,
    StudyError,
    common_fields,
    decided,
    parse_parameters,
    public_seed,
    require_noise,
    require_work,
    step,
)
from tacit_protocol.procedures.counts.release import COUNTS, L1_SENSITIVITY, L2_SENSITIVITY
from tacit_protocol.procedures.plan import Plan
from tacit_protocol.procedures.populations import Dependence, SimulationModel
from tacit_protocol.procedures.randomised_answers.answers import (
    CELLS_FIRST,
    CUTS_STREAM,
    EVEN_CELLS_MAX,
    SIGNAL_MIN,
    UNITS_MIN,
)
from tacit_protocol.procedures.randomised_answers.owners import AnswersOfOwners, OwnUnits
from tacit_protocol.procedures.randomised_answers.sides import (
    NULL_STREAM,
    PERMUTATIONS_DEFAULT,
    public_generator,
)
from tacit_protocol.procedures.randomised_answers.verdict import AnsweredPair, MeasuresOfCells, measures_of
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import (
    PVALUE,
    BaseVerdict,
    PvalueVerdict,
    ShownTable,
    compared_shown,
)
from tacit_protocol.verdicts.presentation import (
    DISTANCE,
    TWO_PARTIES,
    Citation,
    Meaning,
    Shown,
    decision_sentence,
    names_of,
)

Integers = npt.NDArray[np.int64]

OWNERS_MIN, OWNERS_MAX = 3, 6
"""Of two owners ``distance_correlation`` says more."""

COMBINATIONS_MAX = 1024
"""Most cells of the joint table."""

PAIRS_STREAM, JOINT_STREAM = 6, 7
"""Spawn keys under the study's seed of the simulations of pairs, and of the joint test."""

DEALT_SPENT, DEALT_PART_MAX = 60.0, 1 / 3
"""Fewest units times epsilon that place each cut, where the grid's ends are as far apart as they may be; and
the most of all units that do."""

SIGNS_MORE = 2.0
"""How many times as many units place a column's middle, where signs of three columns may matter together."""

HALVES = "halves"
"""What the answers, cuts and counts of the half with two cells are called beside the column's name."""

HALVES_SPENT, HALVES_SIGNAL = 1400.0, 90.0
"""Units are dealt into halves where they are as many, times epsilon, as both halves' cuts take, and, times
the fourth power of two cells' retention, as three columns' signs take that matter together alone."""

RETENTION_LIKE, SIGNAL_AMPLE = 0.9, 1000.0
"""In one round a pair keeps the fourth power of the retention: three cells find less than two where they keep
less than this part of two cells' retention, unless there are units enough to find either."""


def dealt_units(units: int, epsilon: float, cuts: int) -> int:
    """Return how many units place so many cuts of a column, from public numbers alone.

    Of cuts at a rank r away from the median, about 4.5 r^2 of a pair's signal is lost, and each unit that
    answers nothing is 1/n of it: sampling and noise have r^2 = 1/(4 m) + 8/(m epsilon)^2, and the square and
    cube roots are near the best m of both. Of three columns' signs that matter together about 10 |r| is lost:
    more units place a middle for them. docs/mathematics/randomised-columns.md.
    """
    best = math.sqrt(units) + 2.5 * math.cbrt(units / epsilon**2)
    best *= SIGNS_MORE if cuts == 1 else 1
    return math.ceil(min(units * DEALT_PART_MAX, max(best, cuts * DEALT_SPENT / epsilon)))


class MutualIndependenceParameters(StrictModel):
    """What a study of this procedure may choose; every choice is public."""

    method: Literal["two-round", "one-round"] = Field(
        "two-round",
        description=(
            "two-round, answers of all owners but the receiver, who counts beside them; or one-round, of all."
        ),
    )
    receiver: PartyName | None = Field(
        None, description="The owner that counts beside the others' answers; by default the last one."
    )
    categories: Annotated[int, Field(ge=2, le=16)] | None = Field(
        None,
        description=(
            "Cells of a numeric column: 2 to 4 with dealt cuts, 2 to 16 with even ones. By default 2 or 3, "
            "by epsilon and the number of units; where epsilon is small, 2 for half of the units and 3 for "
            "the others."
        ),
    )
    cuts: Literal["dealt", "even"] = Field(
        "dealt",
        description=(
            "Where a numeric column's cells end: at quantiles of units that public numbers draw, at the "
            "whole of epsilon, which then answer nothing (dealt); or evenly within its bounds."
        ),
    )
    permutations: Annotated[int, Field(ge=99, le=9999)] = Field(
        PERMUTATIONS_DEFAULT, description="Simulations of each test; they cost no privacy."
    )


@dataclass(frozen=True)
class UnitPart:
    """Units that public numbers dealt to the same cells: ``cells`` of each owner's column, by its place.

    They are ``units``, from place ``first`` on of all as they were dealt, and the first ``placing`` of them
    place the cuts and answer nothing.
    """

    name: str
    cells: tuple[ColumnCells, ...]
    first: int
    units: int
    placing: int

    @property
    def answering(self) -> int:
        """Number of units that answer, or are counted."""
        return self.units - self.placing

    def named(self, name: str) -> str:
        """Return what this part's own answers, cuts or counts are called."""
        return f"{name}, {self.name}" if self.name else name


def _combined(codes: Sequence[Integers], shape: tuple[int, ...]) -> Integers:
    """Return each unit's combination of cells, (n,): who comes last changes fastest."""
    return np.asarray(np.ravel_multi_index(tuple(codes), shape))


@dataclass(eq=False)
class MutualPlan(AnswersOfOwners):
    """What a study fixes before any data."""

    study: Study
    parameters: MutualIndependenceParameters
    last: int | None

    def __post_init__(self) -> None:
        self.guarantee = choice_guarantee(self.study.budget)
        self.simulations = self.parameters.permutations
        self.domains = tuple(self.study.domain_of(owner) for owner in self.study.owners)
        self.columns = tuple(domain.columns[0].name for domain in self.domains)
        self.names = tuple((name,) for name in self.columns)

    def parts(self, units: int) -> tuple[UnitPart, ...]:
        """Return the parts that so many units are dealt into: the one with more cells first."""
        chosen = self.parameters.categories
        if chosen is not None:
            return (self._part("", chosen, 0, units),)
        cells, halves = self._default(units)
        whole = self._part("", cells, 0, units - halves)
        return (whole, self._part(HALVES, 2, units - halves, halves)) if halves else (whole,)

    def _part(self, name: str, numeric: int, first: int, units: int) -> UnitPart:
        cells, cuts = [], self.parameters.cuts
        for side, domain in enumerate(self.domains):
            own, count = domain.columns[0], numeric
            if isinstance(own, CategoricalColumn):
                count = answered_categories(own) if self.answers_at(side) else own.categories
            cells.append(ColumnCells(own, 0, count, isinstance(own, NumericColumn) and cuts != "even"))
        placing = 0
        if cuts == "dealt" and self._numeric:
            placing = dealt_units(units, self.study.budget.epsilon, numeric - 1)
        return UnitPart(name, tuple(cells), first, units, placing)

    @property
    def _numeric(self) -> bool:
        return any(isinstance(domain.columns[0], NumericColumn) for domain in self.domains)

    def _default(self, units: int) -> tuple[int, int]:
        """Return the cells of a number, and how many of so many units have two in any case."""
        # What a pair of answers keeps: the weakest pair decides, which is of two that answer.
        kept, of_two = (retention(self.study.budget.epsilon_micro, cells) for cells in (CELLS_FIRST, 2))
        alike, one_round = kept >= RETENTION_LIKE * of_two, self._dealt and self.last is None
        if units * kept**4 < (SIGNAL_AMPLE if one_round and not alike else SIGNAL_MIN):
            return 2, 0
        if alike or not self._numeric:
            return CELLS_FIRST, 0
        spent = units * self.study.budget.epsilon
        if spent < HALVES_SPENT or units * of_two**4 < HALVES_SIGNAL:
            return 2, 0
        return CELLS_FIRST, units // 2

    @property
    def _dealt(self) -> bool:
        return self.parameters.cuts == "dealt"

    @property
    def whose(self) -> str:  # type: ignore[override]
        """Units that place no cuts."""
        return "unit that does not place the cuts instead" if self._dealt and self._numeric else "unit"

    def deal(self, units: int) -> list[tuple[UnitPart, Integers, Integers]]:
        """Return each part, the places of its units that answer, and of those that place cuts, in order."""
        drawn = public_generator(self.study, CUTS_STREAM).permutation(units)
        found = []
        for part in self.parts(units):
            own = drawn[part.first : part.first + part.units]
            placing = own[: part.placing] if part.placing else own
            found.append((part, np.sort(own[part.placing :]), np.sort(placing)))
        return found

    def shape(self, part: UnitPart) -> tuple[int, ...]:
        """Return the shape of a part's joint table, in ``order``."""
        return tuple(part.cells[side].cells for side in self.order)

    def layout(self, side: int, units: int) -> None:
        if units < UNITS_MIN:
            raise PublicRuleError("too-few-units", f"answers need {UNITS_MIN} units or more")
        needed = max(part.answering * answer_bits(part.cells[side].cells) // 8 for part in self.parts(units))
        if self.answers_at(side) and needed > ANSWER_BYTES_MAX:
            raise PublicRuleError("too-many-units", "so many units' answers do not fit one release")
        require_noise(partial(self._require_drawable, side, units))

    def _require_drawable(self, side: int, units: int) -> None:
        """Raise StudyError where an owner's cuts, answers or tables cannot be drawn among so many units."""
        for part in self.parts(units):
            cells = part.cells[side]
            if cells.bought:
                cells.mechanism(part.placing, self.study.budget.epsilon).scale  # noqa: B018 (raises)
            if not self.answers_at(side):
                laid = self._counted(part, np.zeros(0, dtype=np.int64), units)
                require_laplace(laid, self._table_guarantee)

    # What leaves.

    def privatise(self, summary: OwnUnits, noise: NoiseSource) -> Release:
        own, units, name = summary, len(summary.rows.numeric), self.columns[summary.side]
        cuts: dict[str, tuple[int, ...]] = {}
        answers: dict[str, RandomisedAnswers] = {}
        vectors: dict[str, NoisyVector] = {}
        for part, answering, placing in self.deal(units):
            cells, called = part.cells[own.side], part.named(name)
            if cells.bought:
                if not isinstance(noise, ChoiceSource):
                    raise TypeError("this noise source draws numbers alone, and the study asks for a choice")
                held = own.rows.numeric[placing, 0]
                cuts[called] = cells.draw_cuts(held, self.study.budget.epsilon, noise)
            ends = cuts.get(called, cells.even_cuts())
            codes = cells.codes(own.rows.numeric[answering], own.rows.categorical[answering], ends)
            if not self.answers_at(own.side):
                beside = [*self._answers(own.received, part), codes]
                laid = self._counted(part, np.bincount(_combined(beside, self.shape(part))), units)
                vectors[part.named(COUNTS)] = release_laplace_sums(laid, self._table_guarantee, noise)
                continue
            if not isinstance(noise, UniformSource):
                raise TypeError("this noise source draws numbers alone, and the study asks for answers")
            answers[called] = randomise(codes, cells.cells, self.study.budget.epsilon_micro, noise)
        return Release(units=units, guarantee=self.guarantee, vectors=vectors, answers=answers, cuts=cuts)

    def _answers(self, releases: Mapping[str, Release], part: UnitPart) -> list[Integers]:
        """Return each answering owner's answers, (n,), in ``order``."""
        return [
            releases[self.study.owners[place].name].answers[part.named(self.columns[place])].values()
            for place in self.order
            if self.answers_at(place)
        ]

    def _counted(self, part: UnitPart, counts: Integers, units: int) -> SumPart:
        """Lay out a part's table: with all answers fixed, a replaced unit moves from one cell to another."""
        bits = grid_bits(units, products=False)
        values = np.zeros(math.prod(self.shape(part)), dtype=np.int64)
        values[: len(counts)] = counts
        return SumPart(part.named(COUNTS), values << bits, -bits, L2_SENSITIVITY, 1.0, l1=L1_SENSITIVITY)

    @cached_property
    def _table_guarantee(self) -> Guarantee:
        """What a table's noise is made for: the units that are counted place no cuts."""
        event = LaplaceEvent(noise_multiplier=laplace_multiplier(self.study.budget.epsilon))
        return Guarantee(budget=self.study.budget, events=(event,))

    # What is checked, and read.

    def numbers_sent(self, side: int) -> int:
        known = [owner.units for owner in self.study.owners if owner.units is not None]
        parts = self.parts(known[0] if known else 2**30)
        cuts = sum(part.cells[side].cells - 1 for part in parts if part.cells[side].bought)
        if not self.answers_at(side):
            return sum(math.prod(self.shape(part)) for part in parts) + cuts
        return sum(part.answering for part in parts) + cuts if known else COORDINATES_MAX

    def check_side(self, side: int, release: Release) -> None:
        units, name = release.units, self.columns[side]
        try:
            self.layout(side, units)
            if release.guarantee != self.guarantee:
                raise LayoutError("the release states another guarantee than the study")
            parts = self.parts(units)
            if not set(release.cuts) <= {part.named(name) for part in parts}:
                raise LayoutError("the release has cuts of columns that its owner does not hold")
            for part in parts:
                part.cells[side].check_cuts(release.cuts.get(part.named(name)))
            if self.answers_at(side):
                self._check_answers(side, release)
                return
            if set(release.vectors) != {part.named(COUNTS) for part in parts} or release.answers:
                raise LayoutError("the release has not the counts of the second round, and nothing else")
            for part in parts:
                laid = self._counted(part, np.zeros(0, dtype=np.int64), units)
                own = self._table_guarantee
                check_laplace_sums(release.vectors[laid.name], own, laid, own)
        except (StudyError, ValueError) as error:
            raise ReleaseError(str(error)) from None

    def _check_answers(self, side: int, release: Release) -> None:
        name, parts = self.columns[side], self.parts(release.units)
        if set(release.answers) != {part.named(name) for part in parts} or release.vectors:
            raise LayoutError("the release has not one answer of every unit, and nothing else")
        for part in parts:
            own, cells = release.answers[part.named(name)], part.cells[side]
            if (own.codes, own.units) != (cells.cells, part.answering) or own.values().max() >= cells.cells:
                raise LayoutError("the answers have not the shape that the study fixes")
            if own.retention != retention(self.study.budget.epsilon_micro, cells.cells):
                raise LayoutError("the answers are not randomised as the study fixes")

    def joint(self, releases: Mapping[str, Release]) -> "list[JointTable]":
        """Return what everybody reads, of each part: the one with more cells first.

        Raises:
            ReleaseError: releases do not fit the study, or each other.
        """
        own = self.checked(releases)
        units, found = own[0].units, []
        for part in self.parts(units):
            answers, shape, noise = self._answers(releases, part), self.shape(part), 0.0
            kept = [own[s].answers[part.named(self.columns[s])].retention for s in self.order[: len(answers)]]
            if self.last is None:
                counts = np.bincount(_combined(answers, shape), minlength=math.prod(shape)).astype(np.float64)
            else:
                laid = self._counted(part, np.zeros(0, dtype=np.int64), units)
                noise, kept = sums_scale(laid, self._table_guarantee), [*kept, 1.0]
                counts = own[self.last].vectors[laid.name].mean(1)
            found.append(
                JointTable(
                    tuple(self.columns[side] for side in self.order),
                    answers,
                    np.reshape(counts, shape),
                    tuple(part.cells[side].ordered for side in self.order),
                    tuple(kept),
                    noise,
                )
            )
        return found

    def signal(self, units: int) -> float:
        """Return the noncentrality that two equal columns would have, about, of the weakest pair."""
        found = 0.0
        for part in self.parts(units):
            weakest = sorted(
                retention(self.study.budget.epsilon_micro, cells.cells) if self.answers_at(side) else 1.0
                for side, cells in enumerate(part.cells)
            )[:2]
            found += part.answering * math.prod(weakest) ** 2
        return found

    # What is concluded.

    @property
    def released(self) -> str:
        one = f"one randomised answer of each {self.whose}, to which cell of its column it is in"
        if self.last is None:
            return one
        return (
            f"at all owners but {self.study.owners[self.last].name} {one}, and there noisy counts of its own "
            "cells beside all these answers"
        )

    def meaning(self, verdict: Fields) -> Meaning:
        between = f"columns at {names_of(self.study)}"
        return decision_sentence(
            self.study,
            verdict,
            f"The {between} are not independent of each other",
            f"No dependence between the {between} was shown: they may be independent",
        )

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],  # noqa: ARG002 (releases state them)
        progress: Progress | None = None,
    ) -> "MutualIndependenceResult":
        study, parts, count = self.study, self.joint(releases), self.simulations
        joint, more = parts[0], parts[1:]
        owners, steps = len(study.owners), []
        pairs = list(combinations(range(owners), 2))
        work = owners + len(pairs)
        report = step(progress, "simulating", 0, 1 / work)
        whole = mutual_test([part.whole for part in parts], count, public_seed(study, JOINT_STREAM), report)
        for place in range(1, owners):
            report = step(progress, "simulating", place / work, (place + 1) / work)
            seed, others = public_seed(study, NULL_STREAM, place), [part.step(place) for part in more]
            test = independence_test(joint.step(place), count, seed, report, more=others)
            steps.append(
                IndependenceStep(
                    column=joint.columns[place],
                    beside=joint.columns[:place],
                    statistic=test.statistic,
                    pvalue=test.pvalue,
                )
            )
        found = []
        for place, (first, second) in enumerate(pairs):
            report = step(progress, "simulating", (owners + place) / work, (owners + 1 + place) / work)
            table, seed = joint.pair(first, second), public_seed(study, PAIRS_STREAM, place)
            if more:
                both = [part.both(first, second) for part in parts]
                pvalue = mutual_test(both, count, seed, report).pvalue
            else:
                pvalue = independence_test(table, count, seed, report).pvalue
            adjusted = min(1.0, pvalue * len(pairs))
            found.append(
                PairOfColumns(
                    first=joint.columns[first],
                    second=joint.columns[second],
                    pvalue=adjusted,
                    reject=adjusted <= study.level,
                    **measures_of(table_estimates(table, 1 - study.level)),
                )
            )
        counted = {owner.name: releases[owner.name].units for owner in study.owners}
        return MutualIndependenceResult(
            method=self._method(parts),
            **decided(study, whole.statistic, whole.pvalue),
            **common_fields(study, counted),
            steps=tuple(steps),
            pairs=tuple(sorted(found, key=lambda pair: (pair.pvalue, -(pair.cramers_v or 0)))),
            aligned=study.alignment is not None,
            warnings=(
                *self.warnings(counted),
                "estimates and intervals are of the cells: dependence within a cell is in none of them",
                *(("estimates are of the half of the units that has more cells",) if more else ()),
                *self.matched,
            ),
        )

    def _method(self, parts: Sequence["JointTable"]) -> str:
        cells = " and ".join(" by ".join(str(size) for size in joint.counts.shape) for joint in parts)
        simulated = f"{cells} cells, {self.simulations} simulations"
        if self.last is None:
            return f"one round: randomised answers of {len(self.columns)} owners, {simulated}"
        counting = self.study.owners[self.last].name
        return (
            f"two rounds: randomised answers of {len(self.columns) - 1} owners, and noisy counts of "
            f"{counting} beside them, {simulated}"
        )


@dataclass(frozen=True)
class JointTable:
    """All that was released, in an order in which whoever counted is last.

    ``answers`` are of all who answered, (n,) each; ``counts`` the joint table, with Laplace noise of that
    scale where one owner counted, and else exactly that of the answers.
    """

    columns: tuple[str, ...]
    answers: list[Integers]
    counts: npt.NDArray[np.float64]
    ordered: tuple[bool, ...]
    kept: tuple[float, ...]
    noise: float

    @property
    def whole(self) -> SeveralAnswers:
        """All columns together."""
        counts = self.counts if self.noise > 0 else None
        return SeveralAnswers(self._answered(len(self.answers)), counts, self.kept, self.ordered, self.noise)

    def _answered(self, columns: int) -> Integers:
        """Count the units by the answers to the first columns, exactly."""
        shape = self.counts.shape[:columns]
        combined = _combined(self.answers[:columns], shape)
        return np.bincount(combined, minlength=math.prod(shape)).reshape(shape)

    def step(self, place: int) -> AnsweredTable:
        """Return the table of one column beside the combinations of all before it."""
        earlier, noise = self.counts.shape[:place], self.noise if place == len(self.answers) else 0.0
        counts = self.counts if noise else self._answered(place + 1).astype(np.float64)
        return AnsweredTable(
            counts=counts.reshape(-1, counts.shape[-1]),
            rows=self._answered(place).ravel(),
            kept=(1.0, 1.0),
            ordered=(place == 1 and self.ordered[0], self.ordered[place]),
            noise=noise,
            factors=tuple(zip(earlier, self.ordered[:place], strict=True)) if place > 1 else (),
        )

    def both(self, first: int, second: int) -> SeveralAnswers:
        """Return two columns alone, of which the first answered."""
        table = self.pair(first, second)
        answered = table.rows if table.noise else table.counts.astype(np.int64)
        counts = table.counts if table.noise else None
        return SeveralAnswers(answered, counts, table.kept, table.ordered, table.noise, table.summed)

    def pair(self, first: int, second: int) -> AnsweredTable:
        """Return the table of two columns, of which the first answered."""
        shape, others = self.counts.shape, [p for p in range(self.counts.ndim) if p not in (first, second)]
        noisy = self.noise > 0 and second == len(shape) - 1
        if noisy:
            counts = self.counts.sum(axis=tuple(others))
        else:
            codes = self.answers[first] * shape[second] + self.answers[second]
            counts = np.bincount(codes, minlength=shape[first] * shape[second]).astype(np.float64)
        return AnsweredTable(
            counts=counts.reshape(shape[first], shape[second]),
            rows=np.bincount(self.answers[first], minlength=shape[first]).astype(np.int64),
            kept=(self.kept[first], self.kept[second]),
            ordered=(self.ordered[first], self.ordered[second]),
            noise=self.noise if noisy else 0.0,
            summed=math.prod(shape[place] for place in others) if noisy else 1,
        )


class IndependenceStep(StrictModel):
    """One test: whether ``column`` is independent of ``beside`` together, with its own p-value."""

    column: str
    beside: tuple[str, ...]
    statistic: float
    pvalue: Annotated[float, PVALUE]


class PairOfColumns(MeasuresOfCells, AnsweredPair):
    """Two columns: the p-value times the number of pairs, and measures of the cells with intervals."""

    def words(self) -> tuple[str, ...]:
        """Return its line in the command's table."""
        value, ends = self.cramers_v, self.cramers_v_interval
        shown = "unknown" if value is None or ends is None else f"{value:.2f}, {ends[0]:.2f} to {ends[1]:.2f}"
        return self.first, self.second, shown, f"{self.pvalue:.3g}"


class MutualIndependenceResult(PvalueVerdict):
    """Whether columns of several owners are independent of each other, and which pairs depend.

    Attributes:
        statistic: of the joint test of all columns together, from private releases alone.
        pvalue: of the joint test.
        steps: each column beside all before it.
        pairs: every two columns, in the order of their p-values, the stronger first where these are equal.
            Dependence of three columns of which no two depend is in none of them, and in the joint test.
        aligned: whether owners checked, before they spent anything, that all hold the same units.
    """

    listed: ClassVar[tuple[str, ...]] = ("statistic", "pvalue", "steps", "pairs", "aligned")
    tabulated: ClassVar[tuple[str, ...]] = ("pairs",)

    steps: Annotated[
        tuple[IndependenceStep, ...], Shown("each column beside all before it, not adjusted", "test")
    ]
    pairs: Annotated[tuple[PairOfColumns, ...], compared_shown("pairs")]
    aligned: Annotated[bool, Shown("records aligned")]

    def __str__(self) -> str:
        return self._told(self._decided("dependent" if self.reject else "no dependence shown"))

    def hypotheses(self) -> Mapping[str, float]:
        return {"": self.pvalue}

    def summary(self) -> Sequence[str | ShownTable]:
        finding = "the columns are not independent" if self.reject else "no dependence of the columns shown"
        table = ShownTable(
            ("first", "second", "Cramér's V", "adjusted p"), tuple(pair.words() for pair in self.pairs)
        )
        return self._finding(finding), f"  {self.method}", table


class MutualIndependence(Procedure):
    """See the module. Registered as ``mutual_independence``."""

    name: ClassVar[str] = "mutual_independence"
    title: ClassVar[str] = "Are columns that several owners hold independent of each other?"
    plans_two_rounds: ClassVar[bool] = True
    families: ClassVar[frozenset[Family]] = frozenset(("pure",))
    Parameters: ClassVar[type[BaseModel]] = MutualIndependenceParameters
    Verdict: ClassVar[type[BaseVerdict]] = MutualIndependenceResult
    RelayedVerdict: ClassVar[type[BaseVerdict]] = MutualIndependenceResult
    released: ClassVar[str] = "one randomised answer of each unit, to which cell of its column it is in"
    cited: ClassVar[tuple[Citation, ...]] = (TWO_PARTIES, DISTANCE)
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "Do columns that three or more owners hold of the same people, one each, depend on each other?",
        r"(three|four|five|six|several) (owners|parties|registries|sources|institutions)|mutual",
        "three or more",
        rank=4,
        apart=True,
        pure=True,
        relates=True,
    )
    population: ClassVar[type[SimulationModel] | None] = Dependence
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {},
        {"categories": 2},
        {"categories": 3},
        {"method": "one-round"},
    )

    def plan(self, study: Study) -> Plan:
        parameters = parse_parameters(MutualIndependenceParameters, study)
        if study.curator is not None:
            raise StudyError("owners send their own releases here; leave the curator out")
        if not OWNERS_MIN <= len(study.owners) <= OWNERS_MAX:
            raise StudyError(
                f"this is asked of {OWNERS_MIN} to {OWNERS_MAX} owners; of two ask distance_correlation"
            )
        held = [name for owner in study.owners for name in owner.columns or ()]
        single = all(owner.columns is not None and len(owner.columns) == 1 for owner in study.owners)
        if not single or sorted(held) != sorted(column.name for column in study.domain.columns):
            raise StudyError("give each owner one column of its own; every column belongs to one owner")
        if study.reusing:
            raise StudyError("answers are made for their own study here; leave reuses out")
        names, last = [owner.name for owner in study.owners], None
        if parameters.method == "two-round":
            if parameters.receiver is not None and parameters.receiver not in names:
                raise StudyError(
                    "say in parameter receiver which of the owners counts beside the others' answers"
                )
            last = len(names) - 1 if parameters.receiver is None else names.index(parameters.receiver)
        elif parameters.receiver is not None:
            raise StudyError("in one round nobody receives anything; leave receiver out")
        most = EVEN_CELLS_MAX if parameters.cuts == "even" else QUANTILE_CELLS_MAX
        if parameters.categories is not None and parameters.categories > most:
            raise StudyError(f"parameter categories: at most {most} with {parameters.cuts} cuts")
        plan = MutualPlan(study, parameters, last)
        shape = plan.shape(plan.parts(2**30)[0])
        if math.prod(shape) > COMBINATIONS_MAX or max(shape) > CODES_MAX:
            raise StudyError(
                f"there are at most {COMBINATIONS_MAX} combinations of cells, and {CODES_MAX} cells of a "
                "column: use fewer categories or owners"
            )
        plan.require_same_units()
        tests = len(names) * (len(names) + 1) // 2 + 1
        require_work(PLAUSIBLE * COMBINATIONS_MAX * tests, parameters.permutations)
        return plan
