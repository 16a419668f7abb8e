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
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain import EncodedChunk
from tacit_protocol.features.kernels import FloatMatrix, Rows
from tacit_protocol.features.private_cells import SingleRows
from tacit_protocol.privacy.exact_sums import FEATURE_ERROR_STEPS, grid_bits, sums_by_group, whole_steps
from tacit_protocol.privacy.gaussian_mechanism import (
    SumPart,
)
from tacit_protocol.procedures.within_owners.covariances import STEPS, WithinPairs

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

SQUARES = np.array([1.0, 0.4, 0.0625, 0.16])
"""Squared weights of T1 to T4: means first; T2 tells spreads and variances, T3 and T4 other differences."""

COUNT_SQUARE = 0.5
"""Squared weight of a group's count for each numeric column: as much as leaves the sensitivity as it is."""

GRID = 1024
"""Intervals of [-1, 1] on which the largest movement and length of a numeric part are sought."""


def chebyshev(t: Floats) -> Floats:
    """Return T1 to T4 of numbers (...) in [-1, 1], (..., 4)."""
    square = t * t
    return np.stack([t, 2 * square - 1, (4 * square - 3) * t, 8 * square * (square - 1) + 1], axis=-1)


@cache
def numeric_bounds() -> tuple[float, float]:
    """Bound the squared movement |f(t) - f(t')|^2 and the squared length |f(t)|^2 of a numeric part.

    With T_k(cos a) = cos ka and C = sum of s_k k^2, the length has second derivatives of 2 C at most; the
    movement has 4 C at most in either angle, and 2 C mixed. A maximum is at an angle where the gradient is 0,
    also at 0 and pi, and within half a step of a grid point, which it exceeds by no more than these make.
    """
    angles = np.linspace(0, np.pi, GRID + 1)
    orders = np.arange(1, len(SQUARES) + 1)
    parts = np.cos(angles[:, None] * orders) * np.sqrt(SQUARES)
    lengths = (parts**2).sum(axis=1)
    movements = lengths[:, None] + lengths - 2 * parts @ parts.T
    half = np.pi / GRID / 2
    slack = float(np.dot(SQUARES, orders**2)) * half**2 / 2
    return float(movements.max()) + (4 + 4 + 2 * 2) * slack, float(lengths.max()) + 2 * slack


class GroupBlocks:
    """Features of units by group: see the module. Blocks are those of ``groups`` levels, in their order.

    Attributes:
        width: numbers of one group.
        indicator: what a listed level of a category counts.
    """

    width: int
    indicator: float

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

    @property
    def dimension(self) -> int:
        """Groups times the width of a block."""
        return self.groups * self.width

    @property
    def norm(self) -> float:
        """The longest that a unit's features can be."""
        raise NotImplementedError

    @property
    def second_moment_diameter(self) -> float:
        """The root of 2 times the squared norm; no second moment is released."""
        return float(np.sqrt(2)) * self.norm**2

    def of_numbers(self, t: Floats) -> Floats:
        """Return what stands before the indicators, of scaled numbers (rows, numeric)."""
        raise NotImplementedError

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the features, (rows, dimension): group after group, each numeric, categorical."""
        count = len(rows.numeric)
        own = np.zeros((count, self.width))
        numbers = self.of_numbers(np.clip(2 * rows.numeric - 1, -1.0, 1.0))
        start = numbers.shape[1]
        own[:, :start] = numbers
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


class GroupFeatures(GroupBlocks):
    """Counts, Chebyshev's polynomials of numbers, and indicators of categories."""

    def __init__(self, group: int, groups: int, numeric: int, outcomes: tuple[tuple[int, int], ...]) -> None:
        super().__init__(group, groups, numeric, outcomes)
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
    def norm(self) -> float:
        """The root of c^2 and the columns' average squared length."""
        return self._norm

    @property
    def diameter(self) -> float:
        """The larger movement, within a group or between two."""
        return float(np.sqrt(self._square))

    def of_numbers(self, t: Floats) -> Floats:
        """Return the count, where there are numbers, and their polynomials."""
        count = np.full((len(t), int(self._numeric > 0)), self.count_scale)
        polynomials = (chebyshev(t) * self.scales).reshape(len(t), len(SQUARES) * self._numeric)
        return np.concatenate([count, polynomials], axis=1)


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


class GroupCells(GroupBlocks):
    """Soft cells of numbers, ``cells`` of each, and indicators of categories."""

    indicator = 1.0

    def __init__(
        self,
        group: int,
        groups: int,
        numeric: int,
        outcomes: tuple[tuple[int, int], ...],
        cells: int = SOFT_CELLS,
    ) -> None:
        super().__init__(group, groups, numeric, outcomes)
        self.cells = cells
        self.width = cells * numeric + sum(levels for _, levels in outcomes)

    @property
    def norm(self) -> float:
        """The root of the number of columns: a column's weights have a length of 1 at most."""
        return float(np.sqrt(self.columns))

    @property
    def diameter(self) -> float:
        """In L2; noise is made for ``movement``."""
        return float(np.sqrt(2)) * self.norm

    @property
    def movement(self) -> float:
        """How far one unit moves all sums in L1, but for rounding: 2 a column."""
        return CELLS_MOVEMENT * self.columns

    def of_numbers(self, t: Floats) -> Floats:
        """Return the weights of every number's cells."""
        weights = few_cells(t) if self.cells == FEW_CELLS else soft_cells(t)
        return weights.reshape(len(t), self.cells * self._numeric)


CELLS_MOVEMENT = 2.0
"""How far, in L1, one unit moves the cells of one column."""


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


ANSWERED_SQUARE = 0.25
"""Weight of T2 in sums by answer: the largest that leaves a number's movement at 2."""

ANSWERED_MOVEMENT = 2.0
"""How far, in L1, one unit moves the sums of one column."""


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
