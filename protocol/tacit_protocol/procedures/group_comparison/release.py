"""What leaves an owner for a comparison of groups: sums over each group's units of bounded features.

A numeric column scaled to t in [-1, 1] has Chebyshev's polynomials T1 to T4 of it, times sqrt(``SQUARES``);
a categorical column has the indicators of its listed levels; and where there is a numeric column, 1 times
sqrt(``COUNT_SQUARE``) counts. The features of a unit, over the root of the number of columns, stand in the
block of its group, and all other blocks are 0; a unit whose group is not listed, or missing, has 0 alone.

**Sensitivity.** Replacing a unit of a group by one of the same group moves every column's part, and the
count not at all: by the columns' average squared movement, M. Replacing it by one of another group, or of
none, moves two blocks: by 2 (c^2 + the average squared length of the parts) at most. The larger of both is
the squared diameter; a unit of several rows has the average of their features, which lies in their convex
hull, whose diameter is that of its corners. Of a numeric part, movement and length are found on a grid, and
a curvature bound covers the gaps; of indicators they are 2 and 1.

**In pure epsilon** (``noise = "laplace"``) a numeric column has six *soft cells*, Bernstein's polynomials of
degree 2 on either half of [-1, 1]: weights that are never negative and add up to 1. A unit adds them, and the
indicators of categories, to its group's cells, so that replacing it, whatever the groups, moves every column
by 2 in L1 at most, as a histogram; a unit of several rows has averages, in the hull. Sums of cells are exact:
of t (-1, -1/2, 0, 0, 1/2, 1), of t^2 (1, 0, 0, 0, 0, 1), of the sign of t (-1, -1, -1, 1, 1, 1). Where noise
is nearly all there is, four cells, of degree 1, say as much with less of it, but for t^2 <= |t|.

T1^2 = (1 + T2)/2 and T2^2 = (1 + T4)/2: variances of means and of squares come from the same sums.

**Where another owner holds the group** and released randomised answers, T1 and T2/4 of a number, and the
indicators, are summed by *answer*. Answers are fixed, so that a replaced unit moves one block alone, and
counts of answers are public. In L1 a number moves by |t - t'| (1 + |t + t'|/2) <= (2 - s)(1 + s/2) = 2 -
s^2/2 <= 2, s = |t + t'|: T2 costs nothing. Indicators move by 2: columns by 2 each, in pure epsilon.
docs/mathematics/group-comparison.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from tacit_protocol.domain import CategoricalColumn, Column, ColumnName, EncodedChunk, NumericColumn
from tacit_protocol.features.kernels import FloatMatrix, Rows
from tacit_protocol.features.moments import MEAN, FeatureSums, MomentRelease, MomentShares
from tacit_protocol.features.private_cells import SingleRows
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.exact_sums import FEATURE_ERROR_STEPS, grid_bits, sums_by_group, whole_steps
from tacit_protocol.privacy.gaussian_mechanism import (
    LayoutError,
    SensitivityError,
    SumPart,
    check_layout,
    gaussian_guarantee,
    noise_scales,
    release_sums,
    require_drawable,
)
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Guarantee, NoisyVector
from tacit_protocol.privacy.laplace_mechanism import (
    check_laplace_sums,
    laplace_sum_guarantee,
    release_laplace_sums,
    require_laplace,
    sums_scale,
)
from tacit_protocol.privacy.noise import NoiseSource, laplace_multiplier
from tacit_protocol.procedures.base import StudyError, parse_parameters, planned_once, units_declared
from tacit_protocol.procedures.masking import MaskedParameters
from tacit_protocol.procedures.randomised_answers.answered_column import AnsweredColumnPlan, beside
from tacit_protocol.procedures.within_owners import STEPS, MaskedPairs, WithinPairs, shared_within

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

SQUARES = np.array([1.0, 0.4, 0.0625, 0.16])
"""Squared weights of T1 to T4: means first; T2 tells spreads and variances, T3 and T4 other differences."""

COUNT_SQUARE = 0.5
"""Squared weight of a group's count for each numeric column: as much as leaves the sensitivity as it is."""

GROUPS_MAX = 8
OUTCOMES_MAX = 100

CONTRASTS_MAX = 100
"""Most contrasts of groups and levels, (groups - 1)(levels - 1): matrices of that size are inverted."""

GRID = 1024
"""Intervals of [-1, 1] on which the largest movement and length of a numeric part are sought."""


class GroupComparisonParameters(MaskedParameters):
    """Who is compared; every other column of the study is what they may differ in."""

    group: ColumnName | None = Field(
        None, description="The categorical column of the groups; by default the first categorical one."
    )
    noise: Literal["gaussian", "laplace"] = Field(
        "gaussian",
        description=(
            "gaussian, of four sums a number, needs a delta; laplace, of soft cells, costs epsilon alone."
        ),
    )


def chebyshev(t: Floats) -> Floats:
    """Return T1 to T4 of numbers (...) in [-1, 1], (..., 4)."""
    square = t * t
    return np.stack([t, 2 * square - 1, (4 * square - 3) * t, 8 * square * (square - 1) + 1], axis=-1)


@cache
def numeric_bounds(squares: tuple[float, ...] = tuple(SQUARES)) -> tuple[float, float]:
    """Bound the squared movement |f(t) - f(t')|^2 and the squared length |f(t)|^2 of a numeric part.

    With T_k(cos a) = cos ka and C = sum of s_k k^2, the length has second derivatives of 2 C at most; the
    movement has 4 C at most in either angle, and 2 C mixed. A maximum is at an angle where the gradient is 0,
    also at 0 and pi, and within half a step of a grid point, which it exceeds by no more than these make.
    """
    angles = np.linspace(0, np.pi, GRID + 1)
    orders = np.arange(1, len(squares) + 1)
    parts = np.cos(angles[:, None] * orders) * np.sqrt(squares)
    lengths = (parts**2).sum(axis=1)
    movements = lengths[:, None] + lengths - 2 * parts @ parts.T
    half = np.pi / GRID / 2
    slack = float(np.dot(squares, orders**2)) * half**2 / 2
    return float(movements.max()) + (4 + 4 + 2 * 2) * slack, float(lengths.max()) + 2 * slack


class GroupFeatures:
    """Features of units by group: see the module. Blocks are those of ``groups`` levels, in their order."""

    def __init__(self, group: int, groups: int, numeric: int, outcomes: tuple[tuple[int, int], ...]) -> None:
        """Take the places of columns.

        Args:
            group: place of the group's column among the categorical ones.
            groups: number of its levels.
            numeric: number of numeric columns.
            outcomes: (place among the categorical columns, levels) of the other categorical ones.
        """
        self._group, self._numeric, self._outcomes = group, numeric, outcomes
        self.groups = groups
        self.columns = numeric + len(outcomes)
        self.places = group, numeric, outcomes
        count = COUNT_SQUARE * numeric / self.columns
        self.count_scale = float(np.sqrt(count))
        self.scales = np.sqrt(SQUARES / self.columns)
        self.indicator = float(1 / np.sqrt(self.columns))
        self.width = (numeric > 0) + len(SQUARES) * numeric + sum(levels for _, levels in outcomes)
        movement, length = numeric_bounds()
        within = (movement * numeric + 2.0 * len(outcomes)) / self.columns
        across = 2 * (count + (length * numeric + len(outcomes)) / self.columns)
        self._square = max(within, across)
        self._norm = float(np.sqrt(across / 2))

    @property
    def dimension(self) -> int:
        """Groups times the width of a block."""
        return self.groups * self.width

    @property
    def norm(self) -> float:
        """The root of c^2 and the columns' average squared length."""
        return self._norm

    @property
    def diameter(self) -> float:
        """The larger movement, within a group or between two."""
        return float(np.sqrt(self._square))

    @property
    def second_moment_diameter(self) -> float:
        """The root of 2 times the squared norm; no second moment is released."""
        return float(np.sqrt(2)) * self.norm**2

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the features, (rows, dimension): group after group, each count, numeric, categorical."""
        count = len(rows.numeric)
        own = np.zeros((count, self.width))
        start = int(self._numeric > 0)
        if start:
            own[:, 0] = self.count_scale
            t = np.clip(2 * rows.numeric - 1, -1.0, 1.0)
            stop = start + len(SQUARES) * self._numeric
            own[:, start:stop] = (chebyshev(t) * self.scales).reshape(count, -1)
            start = stop
        for place, levels in self._outcomes:
            codes = rows.categorical[:, place]
            listed = np.flatnonzero(codes < levels)
            own[listed, start + codes[listed]] = self.indicator
            start += levels
        found = np.zeros((count, self.groups, self.width))
        group = rows.categorical[:, self._group]
        counted = np.flatnonzero(group < self.groups)
        found[counted, group[counted]] = own[counted]
        return found.reshape(count, -1)


SOFT_CELLS = 6
"""Of a numeric column under Laplace noise: three on either half of it."""


def soft_cells(t: Floats) -> Floats:
    """Return the weights of numbers (...) in [-1, 1], (..., SOFT_CELLS): never negative, 1 together."""
    u = np.abs(t)
    inner, both, outer = (1 - u) ** 2, 2 * u * (1 - u), u**2
    right = t >= 0
    none = np.zeros_like(u)
    left = [np.where(right, none, part) for part in (outer, both, inner)]
    return np.stack([*left, *(np.where(right, part, none) for part in (inner, both, outer))], axis=-1)


FEW_CELLS = 4
"""Of a number where noise is nearly all there is: two on either half of it."""


def few_cells(t: Floats) -> Floats:
    """Return the weights of numbers (...) in [-1, 1], (..., FEW_CELLS): never negative, 1 together."""
    u = np.abs(t)
    right, none = t >= 0, np.zeros_like(u)
    left = [np.where(right, none, part) for part in (u, 1 - u)]
    return np.stack([*left, *(np.where(right, part, none) for part in (1 - u, u))], axis=-1)


class GroupCells:
    """Soft cells and indicators of units by group: see the module. Blocks are as in ``GroupFeatures``."""

    def __init__(
        self,
        group: int,
        groups: int,
        numeric: int,
        outcomes: tuple[tuple[int, int], ...],
        cells: int = SOFT_CELLS,
    ) -> None:
        """Take the places of columns, as ``GroupFeatures``, and how many cells a number has."""
        self._group, self._numeric, self._outcomes = group, numeric, outcomes
        self.groups, self.columns, self.cells = groups, numeric + len(outcomes), cells
        self.width = cells * numeric + sum(levels for _, levels in outcomes)

    @property
    def dimension(self) -> int:
        """Groups times the width of a block."""
        return self.groups * self.width

    @property
    def norm(self) -> float:
        """The root of the number of columns: a column's weights have a length of 1 at most."""
        return float(np.sqrt(self.columns))

    @property
    def diameter(self) -> float:
        """In L2; noise is made for ``movement``."""
        return float(np.sqrt(2)) * self.norm

    @property
    def second_moment_diameter(self) -> float:
        """The root of 2 times the squared norm; no second moment is released."""
        return float(np.sqrt(2)) * self.norm**2

    @property
    def movement(self) -> float:
        """How far one unit moves all sums in L1, but for rounding: 2 a column."""
        return CELLS_MOVEMENT * self.columns

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the features, (rows, dimension): group after group, each numeric, categorical."""
        count = len(rows.numeric)
        own = np.zeros((count, self.width))
        start = self.cells * self._numeric
        t = np.clip(2 * rows.numeric - 1, -1.0, 1.0)
        weights = few_cells(t) if self.cells == FEW_CELLS else soft_cells(t)
        own[:, :start] = weights.reshape(count, -1)
        for place, levels in self._outcomes:
            codes = rows.categorical[:, place]
            listed = np.flatnonzero(codes < levels)
            own[listed, start + codes[listed]] = 1.0
            start += levels
        found = np.zeros((count, self.groups, self.width))
        group = rows.categorical[:, self._group]
        counted = np.flatnonzero(group < self.groups)
        found[counted, group[counted]] = own[counted]
        return found.reshape(count, -1)


CELLS_MOVEMENT = 2.0
"""How far, in L1, one unit moves the cells of one column."""


@dataclass(frozen=True)
class GroupComparisonPlan:
    """What a study fixes before any data.

    Attributes:
        group: the column of the groups.
        outcomes: the columns that are compared: numeric ones, then categorical ones.
        release: how features are summed.
        guarantee: what every owner spends.
    """

    group: CategoricalColumn
    outcomes: tuple[Column, ...]
    features: GroupFeatures | GroupCells
    release: MomentRelease
    guarantee: Guarantee

    @property
    def pure(self) -> bool:
        """Whether soft cells leave in Laplace noise."""
        return isinstance(self.features, GroupCells)

    def parts(self, units: int, sums: FeatureSums | None = None) -> tuple[SumPart, ...]:
        """Lay the release out; without ``sums`` the values are zeros."""
        parts = self.release.parts(units, sums)
        if isinstance(self.features, GroupFeatures):
            return parts
        bits = self.release.bits(units)
        # Each of two neighbours lies a row's and its unit's half step, and a float's error, from its ideal.
        rounding = 2 * (1 + FEATURE_ERROR_STEPS) * self.features.dimension * 2.0**-bits
        return (replace(parts[0], l1=float(np.nextafter(self.features.movement + rounding, np.inf))),)

    def privatise(self, sums: FeatureSums, noise: NoiseSource) -> dict[str, NoisyVector]:
        """Add the noise that the guarantee states. Raises SensitivityError where none can be drawn."""
        parts = self.parts(sums.units, sums)
        if isinstance(self.features, GroupCells):
            return {parts[0].name: release_laplace_sums(parts[0], self.guarantee, noise)}
        return release_sums(parts, self.guarantee, noise)

    def require_drawable(self, units: int) -> None:
        """Raise SensitivityError or ValueError where the noise of so many units cannot be drawn."""
        parts = self.parts(units)
        if self.pure:
            require_laplace(parts[0], self.guarantee)
        else:
            require_drawable(parts, self.guarantee)

    def check(self, release: Release) -> None:
        """Raise LayoutError or ValueError where a release has not the shape and noise that a study fixes."""
        parts = self.parts(release.units)
        if isinstance(self.features, GroupFeatures):
            check_layout(release.vectors, release.guarantee, parts, self.guarantee)
            return
        if set(release.vectors) != {parts[0].name}:
            raise LayoutError("the release has not the vectors that the study asks for")
        check_laplace_sums(release.vectors[parts[0].name], release.guarantee, parts[0], self.guarantee)

    def noise(self, units: int) -> float:
        """Return the standard deviation of the noise on the largest of sums of t, or of levels' counts."""
        parts = self.parts(units)
        if isinstance(self.features, GroupFeatures):
            scale = noise_scales(parts, self.guarantee)[MEAN]
            return scale / min(self.features.indicator, float(self.features.scales[0]))
        squares = 1.0
        if isinstance(self.outcomes[0], NumericColumn):
            squares = 2.0 if self.features.cells == FEW_CELLS else 2.5
        return float(np.sqrt(2 * squares)) * sums_scale(parts[0], self.guarantee)


SAMPLING = 0.25
"""Standard deviation of t in a typical column, whose bounds are eight standard deviations apart."""

GAUSSIAN_FROM = 0.5
"""Gaussian noise is taken from where it is so many times sampling's standard deviation in a group of average
size: its release tells of standard deviations, and of other differences of shape, too."""


LAPLACE_TO = 1.35
"""Laplace noise is taken up to so many times Gaussian noise, on sums of t: the sign less t tells a shift in
the middle of the bounds with less noise. In simulations both are level at five columns, at delta = 1e-5."""


FEW_CELLS_FROM = 0.5
"""A number has few cells from where the noise's variance on a group's sum of the sign of t, in as many, is so
many times its number of units: the variance that sampling makes at most."""


def fitting_cells(study: Study, groups: int, columns: int) -> int:
    """Return the cells of a number that suit the units that owners declare; six where one declares none."""
    declared = units_declared(study)
    if len(declared) < len(study.owners):
        return SOFT_CELLS
    scale = CELLS_MOVEMENT * columns * laplace_multiplier(study.budget.epsilon)
    noisy = FEW_CELLS * 2 * scale**2 > FEW_CELLS_FROM * min(declared.values()) / groups
    return FEW_CELLS if noisy else SOFT_CELLS


def fitting_noise(study: Study, units: int) -> dict[str, str]:
    """Return the noise that suits a study of so many units an owner, as parameters: none where Gaussian.

    From public numbers alone: units, budget, groups, columns and their kinds.
    """
    laplace = {"noise": "laplace"}
    if study.budget.delta_pico == 0:
        return laplace
    many, pure = (
        plan_of(study.model_copy(update={"parameters": dict(study.parameters) | noise}))
        for noise in ({"noise": "gaussian"}, laplace)
    )
    gaussian, sampling = many.noise(units), SAMPLING * float(np.sqrt(units / many.features.groups))
    return (
        laplace if pure.noise(units) < LAPLACE_TO * gaussian and gaussian > GAUSSIAN_FROM * sampling else {}
    )


@planned_once
def plan_of(study: Study) -> GroupComparisonPlan:
    """Return what a study fixes; raises StudyError where it cannot be run as written."""
    parameters, domain = parse_parameters(GroupComparisonParameters, study), study.domain
    named = [c for c in domain.categorical if parameters.group in (None, c.name)]
    if not named:
        raise StudyError("parameter group must name a categorical column of the study")
    group = named[0]
    if not 2 <= len(group.levels) <= GROUPS_MAX:
        raise StudyError(f"the column of the groups needs two to {GROUPS_MAX} levels")
    others = tuple((place, c) for place, c in enumerate(domain.categorical) if c != group)
    numeric: tuple[NumericColumn, ...] = domain.numeric
    if not 1 <= len(numeric) + len(others) <= OUTCOMES_MAX:
        raise StudyError(f"groups are compared in one to {OUTCOMES_MAX} columns besides their own")
    if any(len(c.levels) < 2 for _, c in others):
        raise StudyError("a categorical column that is compared needs two levels or more")
    if any((len(group.levels) - 1) * (len(c.levels) - 1) > CONTRASTS_MAX for _, c in others):
        raise StudyError(f"at most {CONTRASTS_MAX} contrasts of groups and levels: use fewer levels")
    laplace = parameters.noise == "laplace"
    places = (
        domain.categorical.index(group),
        len(group.levels),
        len(numeric),
        tuple((place, len(c.levels)) for place, c in others),
    )
    try:
        budget = study.budget
        guarantee = laplace_sum_guarantee(budget) if laplace else gaussian_guarantee(budget)
    except SensitivityError as error:
        raise StudyError(str(error)) from None
    features: GroupFeatures | GroupCells = GroupFeatures(*places)
    if laplace:
        cells = fitting_cells(study, len(group.levels), len(numeric) + len(others))
        features = GroupCells(*places, cells=cells)
    if features.dimension > COORDINATES_MAX:
        raise StudyError("the study asks for too many numbers; use fewer columns, levels or groups")
    release = MomentRelease(features, MomentShares(1.0, 0.0))
    return GroupComparisonPlan(group, (*numeric, *(c for _, c in others)), features, release, guarantee)


class GroupPairs(WithinPairs):
    """Of two groups: x is the second one, y T1 to T4 of numbers and the indicators of categories' levels.

    Units of neither group count nowhere, of no listed level not in their column's pairs. Of a column of two
    levels the last one alone is a pair: the other is what is left.
    """

    def __init__(self, group: int, numeric: int, outcomes: Sequence[tuple[int, int]]) -> None:
        """Take the places of columns, as ``GroupFeatures``."""
        self._group, self._numeric = group, numeric
        self._levels = [(place, level) for place, levels in outcomes for level in range(levels == 2, levels)]
        weights = [float(np.sqrt(square)) for square in SQUARES] * numeric
        weights += [
            float(np.sqrt(2.0)) if levels == 2 else 1.0 for _, levels in outcomes for _ in _pairs(levels)
        ]
        movement = numeric_bounds()[0] * numeric + 2.0 * len(outcomes)
        first = int(numeric > 0)
        spread_of = [0] * (len(SQUARES) * numeric)
        spread_of += [first + at for at, (_, levels) in enumerate(outcomes) for _ in _pairs(levels)]
        self._sizes = [levels for _, levels in outcomes for _ in _pairs(levels)]
        ranges = [2.0] * (len(SQUARES) * numeric) + [1.0] * len(self._levels)
        super().__init__(np.array(weights), float(np.sqrt(movement)), np.array(ranges), np.array(spread_of))

    def steps(self, chunk: EncodedChunk) -> tuple[Integers, Integers, npt.NDArray[np.bool_]]:
        """Return the second group's units, the features and which units count, (rows, pairs) each."""
        rows, group = len(chunk.numeric), chunk.categorical[:, self._group]
        counts = np.repeat((group < 2)[:, None], len(self.weights), axis=1)
        y = np.zeros((rows, len(self.weights)), dtype=np.int64)
        t = np.clip(2 * chunk.numeric - 1, -1.0, 1.0)
        start = len(SQUARES) * self._numeric
        y[:, :start] = np.rint(chebyshev(t).reshape(rows, -1) * STEPS)
        for at, ((place, level), levels) in enumerate(zip(self._levels, self._sizes, strict=True), start):
            codes = chunk.categorical[:, place]
            counts[:, at] &= codes < levels
            y[:, at] = STEPS * (codes == level)
        return np.repeat((group == 1).astype(np.int64)[:, None], len(self.weights), axis=1), y, counts


def _pairs(levels: int) -> range:
    return range(1 if levels == 2 else levels)


@planned_once
def masked_plan(study: Study) -> MaskedPairs | None:
    """Return what a study fixes whose owners mask; None where every owner's sums are read by themselves.

    Raises StudyError where it cannot be run as written.
    """
    parameters = parse_parameters(GroupComparisonParameters, study)
    shared = shared_within(study, parameters, parameters.noise, lambda: plan_of(study).guarantee)
    if shared is None:
        return None
    plan = plan_of(study)
    if not isinstance(plan.features, GroupFeatures) or plan.features.groups != 2:
        raise StudyError("masked sums compare two groups: list two levels of the group's column")
    pairs = GroupPairs(*plan.features.places)
    if pairs.numbers > COORDINATES_MAX // len(study.owners):
        raise StudyError("the study asks for too many numbers; use fewer columns or levels")
    return MaskedPairs(pairs, shared)


ANSWERED_SQUARE = 0.25
"""Weight of T2 in sums by answer: the largest that leaves a number's movement at 2."""

ANSWERED_MOVEMENT = 2.0
"""How far, in L1, one unit moves the sums of one column."""

ANSWERED_OUTCOMES_MAX = 20
"""Most columns that are compared by answer: each has its part of epsilon."""


@dataclass(frozen=True)
class GroupAnsweredSums:
    """Sums by answer of T1 and T2/4 of numbers, then of the indicators of every category's listed levels."""

    groups: int
    numeric: int
    levels: tuple[int, ...]

    @property
    def width(self) -> int:
        """Numbers of each answer."""
        return 2 * self.numeric + sum(self.levels)

    def part(
        self,
        units: int,
        answers: npt.NDArray[np.int64] | None = None,
        rows: SingleRows | None = None,
    ) -> SumPart:
        """Return the sums, answer after answer, with their L1 sensitivity; zeros where no rows are given."""
        bits = grid_bits(units, products=False)
        sums = np.zeros((self.groups, self.width))
        if answers is not None and rows is not None:
            for start in range(0, units, BLOCK_UNITS):
                own = slice(start, start + BLOCK_UNITS)
                steps = self._steps(SingleRows(rows.numeric[own], rows.categorical[own]), bits)
                sums += sums_by_group(steps, answers[own], self.groups)
        # Each of two neighbours lies half a step and a float's error from its ideal, in either feature.
        rounding = 2 * 2 * (0.5 + FEATURE_ERROR_STEPS) * self.numeric * 2.0**-bits
        moved = ANSWERED_MOVEMENT * (self.numeric + len(self.levels)) + rounding
        l1 = float(np.nextafter(moved, np.inf))
        return SumPart("sums", sums.ravel().astype(np.int64), -bits, l1, 1.0, l1=l1)

    def _steps(self, rows: SingleRows, bits: int) -> Floats:
        t = np.clip(2 * rows.numeric - 1, -1.0, 1.0)
        found = [whole_steps(np.stack([t, ANSWERED_SQUARE * (2 * t * t - 1)], axis=-1), bits)]
        found = [found[0].reshape(len(t), 2 * self.numeric)]
        for codes, levels in zip(rows.categorical.T, self.levels, strict=True):
            found.append(2.0**bits * (codes[:, None] == np.arange(levels)))
        return np.concatenate(found, axis=1)


BLOCK_UNITS = 1 << 16
"""Units summed at once."""


def plan_beside(study: Study) -> AnsweredColumnPlan | None:
    """Return what a study fixes whose group another owner holds; None where every owner holds all columns.

    Raises StudyError where it cannot be run as written.
    """
    if not study.columns_apart:
        return None
    parameters = parse_parameters(GroupComparisonParameters, study)
    if parameters.noise != "gaussian":
        raise StudyError("noise has no effect beside another owner's answers, which are pure: leave it out")
    sender, receiver, group, own = beside(study, parameters.group)
    levels = tuple(len(column.levels) for column in own.categorical)
    if not 2 <= len(group.levels) <= GROUPS_MAX:
        raise StudyError(f"the column of the groups needs two to {GROUPS_MAX} levels")
    if len(own.columns) > ANSWERED_OUTCOMES_MAX:
        raise StudyError(f"groups of another owner are compared in at most {ANSWERED_OUTCOMES_MAX} columns")
    if min(levels, default=2) < 2:
        raise StudyError("a categorical column that is compared needs two levels or more")
    if (len(group.levels) - 1) * (max(levels, default=2) - 1) > CONTRASTS_MAX:
        raise StudyError(f"at most {CONTRASTS_MAX} contrasts of groups and levels: use fewer levels")
    sums = GroupAnsweredSums(len(group.levels), len(own.numeric), levels)
    return AnsweredColumnPlan(study, (sender, receiver, group, own), sums)
