"""Screening by randomised answers: every unit answers for one outcome, and is counted beside all columns.

``two-round``: the owner of the outcomes deals the units out to them in public, and releases one randomised
answer of each unit at the whole of epsilon; the other owner counts every unit, beside its answer, in one
table for each of its columns, and releases all tables together. With the answers fixed, a replaced unit of p
columns moves by one cell in each of p tables: by 2p in L1, and by the root of 2p in L2. ``one-round``: both
owners release randomised answers, for the pair of columns that a unit is dealt to.
Derivations: docs/mathematics/screening.md.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tacit_protocol.features.aligned_sums import deal_out
from tacit_protocol.features.private_cells import GRIDS
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.numerics.noisy_tables import SimulatedTest
from tacit_protocol.numerics.randomised_tables import AnsweredTable, independence_test, table_estimates
from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_protocol.privacy.gaussian_mechanism import (
    SumPart,
    check_layout,
    gaussian_guarantee,
    mu_of,
    release_sums,
    require_drawable,
)
from tacit_protocol.privacy.guarantee import (
    COORDINATES_MAX,
    EPSILON_UNITS,
    ApproximateEvent,
    Budget,
    Guarantee,
    NoisyVector,
)
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.privacy.randomised_response import retention
from tacit_protocol.procedures.base import (
    HOPELESS,
    Progress,
    Releases,
    StudyError,
    common_fields,
    public_seed,
    require_work,
    step,
)
from tacit_protocol.procedures.randomised_answers.answers import (
    CELLS_FIRST,
    CELLS_SECOND,
    CUTS_PART,
    CUTS_STREAM,
    PAIRS_MAX,
    SIGNAL_MIN,
    PairedAnswers,
    PairTable,
)
from tacit_protocol.procedures.randomised_answers.sides import (
    NULL_STREAM,
    SIGNAL_HOPELESS,
    public_generator,
    require_two_sides,
)
from tacit_protocol.procedures.randomised_answers.verdict import measures_of
from tacit_protocol.procedures.screening.plan import (
    CONTROLS,
    HIDDEN,
    ScreeningParameters,
    ScreeningTest,
    names_of_features,
    outcome_of,
    permutations_of,
    require_room,
)
from tacit_protocol.procedures.screening.verdict import (
    AnsweredColumn,
    AnsweredScreeningVerdict,
    Control,
    false_discovery_values,
    smallest_level,
)
from tacit_protocol.verdicts.base import BaseVerdict

Integers = npt.NDArray[np.int64]

CUTS_EXCESS_MAX = 0.25
"""Part of a column's units by which three cuts may by chance be less even than the best ones: from more on
one cut is drawn, of which there are three hundred times fewer."""

LOOK, LOOK_LEVEL = 999, 0.05
"""Simulations of a first look at every pair, and the p-value up to which a pair gets all of them."""


def least_noise(budget: Budget, columns: int) -> Literal["gaussian", "laplace"]:
    """Return the noise with the smaller variance on tables of so many columns: Laplace, or Gaussian.

    >>> least_noise(Budget.of(1, 1e-5), 3), least_noise(Budget.of(1, 1e-5), 20)
    ('laplace', 'gaussian')
    """
    if budget.delta_pico == 0:
        return "laplace"
    gaussian = 2 * columns / gaussian_mu(budget.epsilon, budget.delta) ** 2
    return "gaussian" if gaussian < 2 * (2 * columns / budget.epsilon) ** 2 else "laplace"


def pair_test(
    table: AnsweredTable, count: int, study: Study, place: int, report: Callable[[float], None]
) -> SimulatedTest:
    """Test one pair with so many simulations, or with fewer where a first look says enough.

    The p-value is the first look's where that passes LOOK_LEVEL, and else that of further simulations.
    Up to LOOK_LEVEL it is at most u only if the latter is, beyond only if the former is: its level is theirs.
    """
    first = independence_test(table, min(count, LOOK), public_seed(study, NULL_STREAM, place, 0), report)
    if count <= LOOK or first.pvalue > LOOK_LEVEL:
        return first
    return independence_test(table, count, public_seed(study, NULL_STREAM, place, 1), report)


@dataclass(eq=False)
class AnsweredScreening(ScreeningTest, PairedAnswers):
    """By randomised answers: in one round, of both owners, units are dealt out to pairs of columns."""

    control: Control = "by"
    smallest: float = 0.0
    outcome: int = 0
    drawn: ClassVar[str] = "simulations"
    verdict_type: ClassVar[type[BaseVerdict]] = AnsweredScreeningVerdict

    @property
    def permutations(self) -> int:  # type: ignore[override]
        """Number of simulations."""
        return self.simulations

    @cached_property
    def release_size(self) -> int:  # type: ignore[override]
        return self.numbers_sent(self.outcome)

    def cuts_part(self, units: int) -> float:  # noqa: ARG002
        """Return a part that is not fitted."""
        return CUTS_PART

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        # With the square of its quantile for noncentrality a normal passes it in every second study.
        needed = max(SIGNAL_HOPELESS, float(ndtri(self.smallest / 2)) ** 2)
        if not units or self.signal(min(units.values())) >= needed:
            return self.few
        return (f"{HOPELESS}{HIDDEN}", *self.few)

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],  # noqa: ARG002 (releases state them)
        progress: Progress | None = None,
    ) -> AnsweredScreeningVerdict:
        study = self.study
        counted = {owner.name: releases[owner.name].units for owner in study.owners}
        tables = self.tables(releases)
        tests = [
            pair_test(
                pair.table,
                self.simulations,
                study,
                place,
                step(progress, "simulating", place / len(tables), (place + 1) / len(tables)),
            )
            for place, pair in enumerate(tables)
        ]
        qvalues = false_discovery_values(np.array([test.pvalue for test in tests]), self.control)
        pairs = [
            self._pair(pair, test, float(qvalue))
            for pair, test, qvalue in zip(tables, tests, qvalues, strict=True)
        ]
        ranked = sorted(pairs, key=lambda pair: (pair.pvalue, -(pair.cramers_v or 0.0)))
        caveats = ["estimates and intervals are of the cells: dependence within a cell is in none of them"]
        if any(pair.distance_correlation is None for pair in pairs):
            caveats.append(
                "no correlation is stated where a column's cells are lost in the noise, or all in one"
            )
        return AnsweredScreeningVerdict(
            method=self._method(),
            reject=any(pair.reject for pair in pairs),
            **common_fields(study, {name: release.units for name, release in releases.items()}),
            pairs=tuple(ranked),
            aligned=study.alignment is not None,
            warnings=(*self.warnings(counted), *self.matched, *caveats),
        )

    def _pair(self, pair: PairTable, test: SimulatedTest, qvalue: float) -> AnsweredColumn:
        found = table_estimates(pair.table, 1 - self.study.level)
        rank = found.correlation
        return AnsweredColumn(
            outcome=pair.columns[self.outcome],
            column=pair.columns[1 - self.outcome],
            **measures_of(found),
            sign=0 if rank is None else 1 if rank.value >= 0 else -1,
            cells=(len(pair.labels[self.outcome]), len(pair.labels[1 - self.outcome])),
            statistic=test.statistic,
            pvalue=test.pvalue,
            qvalue=qvalue,
            reject=qvalue <= self.study.level,
        )

    def _rounds(self) -> str:
        return "one round: randomised answers of both owners"

    def _method(self) -> str:
        pairs = f"{len(self.pairs)} pair{'' if len(self.pairs) == 1 else 's'} of columns"
        return (
            f"{self._rounds()}, {pairs}, {self.simulations} simulations, false discovery rate by "
            f"{CONTROLS[self.control]}"
        )


@dataclass(eq=False)
class CountedScreening(AnsweredScreening):
    """By answers for the outcomes alone: each unit is counted, beside its own, in tables of all columns."""

    of_what: ClassVar[str] = "an outcome"
    counted: ClassVar[str] = "every column's cells"
    each: ClassVar[str] = "column"

    @cached_property
    def decks(self) -> list[int]:
        """The outcome of every pair."""
        return [pair[self.first] for pair in self.pairs]

    @property
    def tables_of_unit(self) -> int:
        """One of every column."""
        return len(self.names[1 - self.first])

    def columns_of(self, side: int, dealt: Integers) -> Integers:
        """Return each unit's outcome; of the columns, in all of which it is counted, that of its cuts."""
        if side == self.first:
            return dealt
        return deal_out(len(dealt), len(self.names[side]), public_generator(self.study, CUTS_STREAM))

    def signal(self, units: int) -> float:
        return min(self._left(units, *self._shape(pair, units)) for pair in range(len(self.pairs)))

    def variance(self, units: int) -> float:
        """Return the variance of the noise on a count."""
        return 2 * self.scale(units) ** 2

    def _default(self, side: int, units: int) -> int:
        found = self._left(units, CELLS_FIRST, CELLS_SECOND)
        if found < SIGNAL_MIN or not self._cuts_suit(side, units):
            return 2
        return CELLS_FIRST if self.answers_at(side) else CELLS_SECOND

    def _left(self, units: int, first: int, second: int) -> float:
        """Return the noncentrality of equal columns beside those answers, about, with so many cells each."""
        counted = units / (max(self.decks) + 1)
        noise = self.variance(units) * first * second / counted
        return counted * retention(self._rest_micro(units, bought=True), first) ** 2 / (1 + noise)

    def _cuts_suit(self, side: int, units: int) -> bool:
        """Say whether so many units are enough for all the cuts of one of an owner's columns."""
        counted = units / len(self.names[side])
        cells = CELLS_FIRST if self.answers_at(side) else CELLS_SECOND
        lists = math.comb(GRIDS[cells] - 1, cells - 1)
        scale = 2 / (self._cuts_micro(units, bought=True) / EPSILON_UNITS)
        return scale * math.log(lists) <= CUTS_EXCESS_MAX * counted

    def _rounds(self) -> str:
        sender = self.study.owners[self.outcome].name
        return (
            f"two rounds: randomised answers of {sender}, and counts beside them with "
            f"{self.noise.capitalize()} noise"
        )


@dataclass(eq=False)
class GaussianScreening(CountedScreening):
    """The same with Gaussian noise on the tables, which costs the one who counts a delta.

    A cost is known before any number of units: the part of epsilon for cuts is not fitted to one.
    """

    noise: ClassVar[Literal["gaussian", "laplace"]] = "gaussian"

    def guarantee_of(self, side: int) -> Guarantee:
        if self.answers_at(side):
            return super().guarantee_of(side)
        bought = self._cuts_micro(1, bought=self._buys(side)) / EPSILON_UNITS
        cuts = (ApproximateEvent(epsilon=bought),) if bought else ()
        return Guarantee(budget=self.study.budget, events=(*self._table_guarantee(1).events, *cuts))

    @cached_property
    def costs(self) -> Mapping[str, Guarantee]:  # type: ignore[override]
        """What each spends."""
        return {owner.name: self.guarantee_of(side) for side, owner in enumerate(self.study.owners)}

    def guarantee_for(self, left: Budget) -> Guarantee:
        return gaussian_guarantee(left)

    def require_table(self, part: SumPart, units: int) -> None:
        require_drawable((part,), self._table_guarantee(units))

    def noisy_table(self, part: SumPart, units: int, noise: NoiseSource) -> NoisyVector:
        return release_sums((part,), self._table_guarantee(units), noise)[part.name]

    def check_table(self, side: int, part: SumPart, release: Release) -> None:
        check_layout(release.vectors, release.guarantee, (part,), self.guarantee_of(side))

    @cached_property
    def _scale(self) -> float:
        return self._part(np.zeros(1, dtype=np.int64), 0).scale(mu_of(self._table_guarantee(1)))

    def scale(self, units: int) -> float:  # noqa: ARG002
        return self._scale

    def variance(self, units: int) -> float:
        return self.scale(units) ** 2


def answered_screening(study: Study, parameters: ScreeningParameters) -> AnsweredScreening:
    """Return the plan of a study by randomised answers; raises StudyError where it cannot be run."""
    require_two_sides(study)
    domains = study.domain_of(study.owners[0]), study.domain_of(study.owners[1])
    names = names_of_features(domains[0]), names_of_features(domains[1])
    require_room(parameters, names)
    outcome, pairs = outcome_of(study, parameters, names), len(names[0]) * len(names[1])
    smallest = smallest_level(study.level, pairs, parameters.control)
    if study.reusing:
        raise StudyError("answers are made for their own study here; leave reuses out")
    plan: AnsweredScreening
    if parameters.method == "two-round":
        noise = least_noise(study.budget, len(domains[1 - outcome].columns))
        plan = (GaussianScreening if noise == "gaussian" else CountedScreening)(
            study,
            domains,
            outcome,
            1 - outcome,
            LOOK,
            parameters.categories,
            control=parameters.control,
            smallest=smallest,
            outcome=outcome,
        )
    else:
        plan = AnsweredScreening(
            study,
            domains,
            0,
            None,
            LOOK,
            parameters.categories,
            control=parameters.control,
            smallest=smallest,
            outcome=outcome,
        )
        if pairs > PAIRS_MAX:
            raise StudyError(f"one-round is for at most {PAIRS_MAX} pairs of columns: leave some out")
    plan.require_small()
    if plan.last is not None and plan.numbers(plan.last, 2**30) > COORDINATES_MAX:
        raise StudyError(
            f"an owner would send over {COORDINATES_MAX} numbers; use fewer columns or categories"
        )
    plan.simulations = permutations_of(parameters, smallest, plan.work)
    plan.require_same_units()
    require_work(plan.work, plan.simulations)
    return plan
