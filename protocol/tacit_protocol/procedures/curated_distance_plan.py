"""What a study of ``curated_distance_correlation`` fixes before any data: sides, budgets, sensitivities."""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import Field

from tacit_protocol.domain.columns import ColumnName
from tacit_protocol.features.brownian import BrownianFeatures, random_directions
from tacit_protocol.features.distance_kernel import DistanceKernel
from tacit_protocol.features.unit_gram import UnitGram, UnitRows, unit_features
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.events import GaussianEvent
from tacit_protocol.privacy.gaussian_sums import SensitivityError, SumPart, gaussian_guarantee
from tacit_protocol.privacy.guarantee import Budget, Guarantee
from tacit_protocol.privacy.permutation_test import decision_guarantee, rank_max
from tacit_protocol.procedures.base import StudyError, parse_parameters
from tacit_protocol.statistics.curated_distance import (
    COLUMN_UNITS_MAX,
    PAIRED_UNITS_MAX,
    DistanceRoots,
    covariance_sensitivity,
    release_parts,
)
from tacit_protocol.statistics.joint_independence import TENSOR_ENTRIES_MAX
from tacit_protocol.statistics.joint_sensitivity import permuted_sensitivity
from tacit_protocol.strict import StrictModel

Floats = npt.NDArray[np.float64]

PERMUTATIONS_DEFAULT = 999

TEST_SHARE = 0.4
"""Of epsilon for the test's decision, and none of delta: the rest buys the estimates."""

FREQUENCIES_ONE, FREQUENCIES_MANY = 8, 4
"""Brownian frequencies of the test's features, of one column and of each projection of several: 99.7 and 99 %
of a uniform column's distance variance."""

DIRECTIONS_AIMED = 6
"""Projections aimed at where a side has several numeric columns; at least one for each."""

FEATURE_BYTES_MAX = 2**32
"""Memory for the test's features of all units."""

TEST_ERROR = 2e-8
"""Bound on what errors of 1e-9 in every unit's features move a permuted statistic by, with rounding."""

DIRECTIONS_STREAM, PERMUTATIONS_STREAM = 1, 3
"""Spawn keys under the study's seed."""

Group = Annotated[tuple[ColumnName, ...], Field(min_length=1)]


class CuratedDistanceCorrelationParameters(StrictModel):
    """What a study of this procedure may choose; every choice is public.

    Without a test, independence is rejected where the noisy covariance leaves no other choice, which takes
    much stronger dependence.
    """

    groups: tuple[Group, Group] | None = Field(
        None, description="The columns of X and those of Y; by default the study's two columns."
    )
    test: bool = Field(True, description="Whether a part of epsilon buys the decision of a permutation test.")
    test_share: Annotated[float, Field(ge=0.05, le=0.95)] = Field(
        TEST_SHARE, description="That part of epsilon."
    )
    permutations: Annotated[int, Field(ge=99, le=9999)] = Field(
        PERMUTATIONS_DEFAULT, description="Permutations of the test; they cost no privacy."
    )


@dataclass(frozen=True)
class Side:
    """The columns of X or Y, by name and by place among the study's numeric and categorical ones."""

    names: tuple[str, ...]
    numeric: tuple[int, ...]
    categorical: tuple[int, ...]
    features: BrownianFeatures

    @property
    def single(self) -> bool:
        """Whether it is one numeric column."""
        return len(self.numeric) == 1 and not self.categorical

    def gram(self, rows: UnitRows) -> UnitGram:
        """Return the units' matrix of induced kernel values."""
        return UnitGram(DistanceKernel(), rows.columns(self.numeric, self.categorical))

    def factor(self, rows: UnitRows) -> Floats:
        """Return features whose inner products approximate the induced kernel, (dimension, units)."""
        own = rows.columns(self.numeric, self.categorical)
        return np.ascontiguousarray(math.sqrt(2) * unit_features(self.features, own).T)


@dataclass(frozen=True)
class DistancePlan:
    """What a study fixes before any data."""

    parameters: CuratedDistanceCorrelationParameters
    sides: tuple[Side, Side]
    estimates: Guarantee
    decision: Budget | None
    rows_are_units: bool

    @property
    def guarantee(self) -> Guarantee:
        """The whole release's: both parts, composed."""
        if self.decision is None:
            return self.estimates
        budget = Budget(
            epsilon_micro=self.estimates.budget.epsilon_micro + self.decision.epsilon_micro,
            delta_pico=self.estimates.budget.delta_pico,
        )
        return Guarantee(
            budget=budget, events=(*self.estimates.events, *decision_guarantee(self.decision).events)
        )

    @property
    def columns(self) -> bool:
        """Whether both sides are one numeric column of units of one row, for which there is a faster way."""
        return self.rows_are_units and all(side.single for side in self.sides)

    @property
    def line(self) -> bool:
        """Whether a side is one numeric column, for which there is a sharper bound."""
        return any(side.single for side in self.sides)

    def layout(self, units: int, roots: DistanceRoots | None = None) -> tuple[SumPart, ...]:
        """Lay out the release of the roots; raises StudyError for fewer than two units, or too many."""
        self.check_units(units, COLUMN_UNITS_MAX if self.columns else PAIRED_UNITS_MAX)
        error = max(DistanceKernel.error(len(side.numeric)) for side in self.sides)
        return release_parts(units, self.line, error, roots)

    @property
    def mu(self) -> float:
        """The Gaussian privacy of the estimates."""
        event = self.estimates.events[0]
        if not isinstance(event, GaussianEvent):
            raise TypeError("the guarantee is not that of a Gaussian release")
        return 1 / event.noise_multiplier

    def check_units(self, units: int, largest: int) -> None:
        """Raise StudyError where the test or the estimates cannot take so many units."""
        if units < 2:
            raise StudyError("the study needs at least two units")
        if units > largest:
            raise StudyError(
                f"pairs of units are compared, {largest} units at most; use a subset of them, or one numeric "
                "column a side and one row a unit"
            )
        width = sum(side.features.dimension for side in self.sides)
        if self.decision is not None and 8 * width * units > FEATURE_BYTES_MAX:
            raise StudyError("too many units to permute; use a subset of them, or leave the test out")

    def sensitivities(self, units: int) -> tuple[float, float]:
        """Return what one unit moves the test's observed statistic by, and the permuted ones."""
        reach = math.prod(side.features.diameter for side in self.sides)
        error = 2 * (TEST_ERROR + 4 * (units + 32) * 2.0**-53)
        return (
            reach * covariance_sensitivity(units, self.line) + error,
            reach * permuted_sensitivity(units, 2) + error,
        )


def plan_of(study: Study) -> DistancePlan:
    """Read a study; raises StudyError where it cannot be run as written."""
    parameters = parse_parameters(CuratedDistanceCorrelationParameters, study)
    first, second = (
        _side(study, index, names) for index, names in enumerate(_groups(study, parameters.groups))
    )
    decided = round(study.budget.epsilon_micro * parameters.test_share) if parameters.test else 0
    if parameters.test and rank_max(study.level, parameters.permutations + 1) < 1:
        raise StudyError("the level is below 1 / (permutations + 1): ask for more permutations")
    if parameters.test and not 0 < decided < study.budget.epsilon_micro:
        raise StudyError("the budget is too small to be shared out; give the study a larger epsilon")
    if parameters.test and first.features.dimension * second.features.dimension > TENSOR_ENTRIES_MAX:
        raise StudyError("too many columns or levels to permute; use fewer, or leave the test out")
    estimates = study.budget.model_copy(update={"epsilon_micro": study.budget.epsilon_micro - decided})
    try:
        guarantee = gaussian_guarantee(estimates)
    except SensitivityError as error:
        raise StudyError(str(error)) from None
    decision = Budget(epsilon_micro=decided, delta_pico=0) if parameters.test else None
    return DistancePlan(parameters, (first, second), guarantee, decision, not study.averages_rows)


def _groups(study: Study, groups: tuple[Group, Group] | None) -> tuple[Group, Group]:
    names = [column.name for column in study.domain.columns]
    if groups is None:
        if len(names) != 2:
            raise StudyError("with more than two columns, share them out: groups = [[...], [...]]")
        return (names[0],), (names[1],)
    grouped = [name for group in groups for name in group]
    if len(set(grouped)) != len(grouped):
        raise StudyError("parameter groups: a column may be in one group only")
    if set(grouped) != set(names):
        raise StudyError("parameter groups: the groups together must name the study's columns, all of them")
    return groups


def _side(study: Study, index: int, names: Group) -> Side:
    numeric = tuple(i for i, column in enumerate(study.domain.numeric) if column.name in names)
    categorical = tuple(i for i, column in enumerate(study.domain.categorical) if column.name in names)
    categories = tuple(study.domain.categorical[i].categories for i in categorical)
    frequencies = FREQUENCIES_ONE if len(numeric) <= 1 else FREQUENCIES_MANY
    features = BrownianFeatures(_directions(study, index, len(numeric)), frequencies, categories)
    return Side(names, numeric, categorical, features)


def _directions(study: Study, index: int, numeric: int) -> Floats:
    if numeric <= 1:
        return np.ones((numeric, numeric))
    count = numeric * max(1, round(DIRECTIONS_AIMED / numeric))
    seed = np.random.SeedSequence(int(study.seed, 16), spawn_key=(DIRECTIONS_STREAM, index))
    return random_directions(numeric, count, np.random.default_rng(seed))
