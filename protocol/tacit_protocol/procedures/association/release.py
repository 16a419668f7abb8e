"""What leaves an owner for an association: histograms of every column, then sums of scores made from them.

First every column's histogram over public cells, with noise. From the noisy one alone come the column's
*grades*: r = 2 F - 1 in [-1, 1], F its distribution function with half of what is in the same cell, as in
mid-ranks of values of which those of one cell are ties, and q = (3 r^2 - 1)/2. Then the sums over units, in
one vector, of

    of every column    t, t^2, r, q
    of every pair      t t', r r', r q', q r', q q', y y'

each times the root of its weight; t is the number scaled to [-1, 1], or the place of a level among those
listed (0 of one that is not), and y = ((t - m)/(1 + |m|))^2 with m the noisy histogram's mean, for variances
alone.

**Sensitivity.** Histograms move by sqrt 2 a column, exactly (column_histograms.py). Whatever the grades are,
|r| <= 1. The squared movement of all t and t t', convex in each of the 2 D numbers t and t' of both units,
is largest at a corner, where k columns change their sign: 4 (k w_t + k (D - k) w_tt) at most; likewise of r.
Every other coordinate moves by its range at most. A unit of several rows has averages, in the convex hull.
The second vector depends on the first one's noise: Gaussian releases compose adaptively, mu^2 adding up
(Dong, Roth and Su, 2022).

**In pure epsilon** (``noise = "laplace"``) few sums leave: of every column c r and q/3, of every pair r r'
and q q'/4, after histograms that take a part of epsilon; of few units by public grades, without q q'. Of two
units let x = |r - r'|, for each column. Then |r^2 - r'^2| <= x (2 - x) and |r s - r' s'| <= x + y - x y, so
that with m the sum of all x the movement of c r, r^2/2 and r s is at most (c + D) m - m^2/2 <= (c + D)^2/2 in
L1, for D columns; q q' moves by 3/2 at most.

**Of columns of two levels alone** t is -1 or 1, and so are r = t and r r'; squares are constant, and ranks
need no histogram. So c r, q/3 and r r' leave, by these public grades, in noise of either kind: in L2 the
squared movement of c r and r r' is 4 k (c^2 + D - k) at most, where k columns change their sign, and that of
q/3 a quarter a column.

**Where owners mask** each takes, within itself and exactly, of every pair of columns the covariance C of t,
and, where one is a number, that of the middle of its bounds, 4 t cut at -1 and 1; the variance of either
where which values stand together is chance, V = S S'/(n - 1), S a sum of squares about the mean; and S of
every t. Of numbers of the ranges a and b a replaced unit moves C by a b, V by a^2 b^2/4 and S by a^2 at most.
docs/mathematics/association.md, docs/mathematics/masked-sums.md#numbers-within-owners.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from tacit_protocol.domain import CategoricalColumn, Domain, EncodedChunk, NumericColumn, Table
from tacit_protocol.features.column_histograms import ColumnHistograms, HistogramCells, nearest_counts
from tacit_protocol.features.kernels import FloatMatrix, Rows
from tacit_protocol.features.moments import FeatureSums, sum_features
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.exact_sums import FEATURE_ERROR_STEPS, grid_bits, rounding_sensitivity
from tacit_protocol.privacy.gaussian_mechanism import (
    LayoutError,
    SensitivityError,
    SumPart,
    check_layout,
    gaussian_guarantee,
    mu_of,
    release_sums,
    require_drawable,
)
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Guarantee, NoisyVector
from tacit_protocol.privacy.laplace_mechanism import (
    check_laplace_sums,
    choice_guarantee,
    of_event,
    release_laplace_sums,
    require_laplace,
    shared_laplace_guarantee,
    sums_scale,
)
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import StudyError, parse_parameters, planned_once
from tacit_protocol.procedures.masking import MaskedParameters
from tacit_protocol.procedures.within_owners import (
    ONE_ROW,
    STEPS,
    MaskedPairs,
    PairSums,
    WithinPairs,
    shared_within,
    squares_about,
)

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

HISTOGRAMS, SCORES = "histograms", "scores"
"""Names of a release's vectors."""

BINS, BINS_OF_FEW = 64, 32
"""Equal intervals of a numeric column's histogram, at owners of many units and of few: values within one are
ties. Many tell values apart within bounds that are too wide; few carry less noise."""

UNITS_A_BIN = 0.5
"""Fewest units of an average interval, in standard deviations of its noise, from which there are ``BINS``."""

COARSE = 8
"""Intervals whose noisy counts are taken as they are, but for what is negative."""

EVENED = 1.5
"""Within those, halves that differ by less than so many standard deviations of the noise are made alike."""

HISTOGRAM_WEIGHT = 0.5
"""Squared weight of a histogram's cell."""

COLUMN_WEIGHTS = np.array([0.2, 0.2, 0.05, 0.1])
"""Squared weights of t, t^2, r, q: they tell means and variances, and r has mean 0 but for noise."""

PAIR_WEIGHTS = np.array([0.7, 0.6, 0.1, 0.1, 0.15, 0.3])
"""Squared weights of t t', r r', r q', q r', q q', y y'. Within wide bounds grades vary more than t does."""

T, T_SQUARED, R, Q = range(4)
TT, RR, RQ, QR, QQ, YY = range(6)

COLUMNS_MAX = 20
LEVELS_MAX = 16

WITHIN = 4
"""Points in an interval at which moments of grades are taken."""


HISTOGRAM_PART = 0.25
"""Part of epsilon that pays for histograms in Laplace noise."""

ADAPTIVE_FROM = 200.0
"""Units times epsilon, for each column, from which there are histograms in pure epsilon: from noisier ones no
grades could be read that find as much as the middle of the bounds does."""

CONVEX_WEIGHT = 1 / 3
"""Weight in Laplace noise of q, where r r' has 1: r^2 has 1/2 then, the most that costs nothing."""


@dataclass(frozen=True)
class RankWeights:
    """Weights in Laplace noise of ``rank``, r, and ``curve``, q q', where r r' has 1; of 0 there is none."""

    rank: float
    curve: float

    def dimension(self, columns: int) -> int:
        """Return how many scores so many columns have: two each, and one or two a pair."""
        return 2 * columns + (1 + (self.curve > 0)) * (columns * (columns - 1) // 2)


ADAPTED, PUBLIC = RankWeights(0.3, 0.25), RankWeights(0.7, 0.0)
"""Of grades from a histogram, whose mean is near 0, and of public ones, whose mean may be far from it: its
noise then counts in every covariance."""


class AssociationParameters(MaskedParameters):
    """What leaves with which noise; every pair of the study's columns is looked at."""

    noise: Literal["gaussian", "laplace"] = Field(
        "gaussian",
        description=(
            "gaussian, of ten sums a pair and more, needs a delta; laplace, of sums of ranks alone, costs "
            "epsilon alone, and states rank correlations."
        ),
    )


@dataclass(frozen=True)
class RankTransform:
    """A column's grades, as its noisy histogram has them: those of mid-ranks, values of one cell being ties.

    ``cells`` are the public cells by which values are graded and ``graded`` is r of each; ``mean`` is that of
    t. ``shares``, ``t`` and ``r`` are a distribution on points, for moments: empty of public grades.
    """

    cells: HistogramCells
    graded: Floats
    mean: float
    shares: Floats
    t: Floats
    r: Floats

    @classmethod
    def of(cls, cells: HistogramCells, noisy: Sequence[int], total: int, noise: float) -> "RankTransform":
        """Return the grades of a column whose noisy histogram should add up to ``total``.

        ``noise`` is the standard deviation of the noise on each of its numbers.
        """
        if isinstance(cells.column, CategoricalColumn):
            counts = np.array(nearest_counts([int(v) for v in noisy], total), dtype=np.float64)
            return cls._of_levels(cells, len(cells.column.levels), counts / counts.sum())
        fine = np.array(noisy[: cells.bins], dtype=np.int64).reshape(COARSE, -1)
        coarse = [*(int(v) for v in fine.sum(axis=1)), *noisy[cells.bins :]]
        counts = np.array(nearest_counts(coarse, total), dtype=np.float64)
        bins, gathered = _shared(counts[:COARSE], fine, EVENED * noise), counts[COARSE:]
        at = [min(int(value * cells.bins), cells.bins - 1) for value in cells.gathered[2:]]
        np.add.at(bins, at, gathered[2:])
        low, high, bins = (part / counts.sum() for part in (gathered[0], gathered[1], bins))
        inner = 2 * (low + np.cumsum(bins)) - bins - 1
        u = (np.arange(cells.bins * WITHIN) + 0.5) / (cells.bins * WITHIN)
        shares = np.concatenate([[low], np.repeat(bins / WITHIN, WITHIN), [high]])
        t = np.concatenate([[-1.0], 2 * u - 1, [1.0]])
        r = np.concatenate([[low - 1], np.repeat(inner, WITHIN), [1 - high]])
        graded = np.concatenate([inner, [low - 1, 1 - high], inner[at]])
        return cls(cells, graded, float(shares @ t), shares, t, r)

    @property
    def signs(self) -> bool:
        """Whether they are -1 and 1, of two levels."""
        levels = isinstance(self.cells.column, CategoricalColumn) and len(self.graded) == 4
        return levels and bool(self.graded[1] - self.graded[0] == 2)

    @classmethod
    def public(cls, cells: HistogramCells) -> "RankTransform":
        """Return grades that need no histogram: of a number on which side of its bounds' middle it is.

        Of two levels they are -1 and 1: twice as far apart as by a histogram, for the same noise.
        """
        if isinstance(cells.column, CategoricalColumn):
            levels = len(cells.column.levels)
            found = cls._of_levels(cells, levels, np.concatenate([np.ones(levels), [0.0, 0.0]]) / levels)
            return replace(found, r=found.t, graded=found.t) if levels == 2 else found
        none = np.zeros(0)
        # Of both intervals beside the middle it is neither: a missing value counts as the middle.
        sides = np.sign(np.trunc(np.arange(cells.bins) - (cells.bins - 1) / 2))
        at = [min(int(value * cells.bins), cells.bins - 1) for value in cells.gathered[2:]]
        return cls(cells, np.concatenate([sides, [-1.0, 1.0], sides[at]]), 0.0, none, none, none)

    @classmethod
    def _of_levels(cls, cells: HistogramCells, levels: int, shares: Floats) -> "RankTransform":
        listed = (
            shares[:levels] / shares[:levels].sum() if shares[:levels].any() else np.full(levels, 1 / levels)
        )
        r = np.zeros(levels + 2)
        r[:levels] = 2 * np.cumsum(listed) - listed - 1
        t = np.zeros(levels + 2)
        t[:levels] = np.linspace(-1, 1, levels)
        return cls(cells, r, float(shares @ t), shares, t, r)

    def at(self, rows: Rows) -> tuple[Floats, Floats]:
        """Return rows' t and r, (rows,) each."""
        codes = self.cells.codes(rows)
        r = np.clip(self.graded[codes], -1.0, 1.0)
        if isinstance(self.cells.column, CategoricalColumn):
            return self.t[codes], r
        return np.clip(2 * rows.numeric[:, self.cells.place] - 1, -1.0, 1.0), r


def _shared(counts: Floats, noisy: Integers, least: float) -> Floats:
    """Share the counts of intervals, (k,), out to their cells, (k m,), by the cells' noisy counts, (k, m).

    An interval of m cells is halved again and again, by what its halves' noisy counts differ in, or evenly
    where that is less than ``least`` times the root of m, which noise alone may make (Haar wavelets).
    """
    while noisy.shape[1] > 1:
        halves = noisy.reshape(len(noisy), 2, -1)
        apart = (halves[:, 0].sum(axis=1) - halves[:, 1].sum(axis=1)).astype(np.float64)
        apart[np.abs(apart) < least * math.sqrt(noisy.shape[1])] = 0.0
        apart = np.clip(apart, -counts, counts)
        counts = np.stack([counts + apart, counts - apart], axis=1).ravel() / 2
        noisy = halves.reshape(len(counts), -1)
    return counts


def convex(r: Floats) -> Floats:
    """Return q = (3 r^2 - 1)/2, in [-1/2, 1]."""
    return (3 * r * r - 1) / 2


def squared_movement(columns: int) -> float:
    """Bound the squared movement of the scores of so many columns: see the module."""
    signs = np.arange(columns + 1)
    apart = signs * (columns - signs)
    pairs = columns * (columns - 1) // 2
    return float(
        np.max(4 * (COLUMN_WEIGHTS[T] * signs + PAIR_WEIGHTS[TT] * apart))
        + np.max(4 * (COLUMN_WEIGHTS[R] * signs + PAIR_WEIGHTS[RR] * apart))
        + columns * (COLUMN_WEIGHTS[T_SQUARED] + 1.5**2 * COLUMN_WEIGHTS[Q])
        + pairs * (4 * (PAIR_WEIGHTS[RQ] + PAIR_WEIGHTS[QR]) + 1.5**2 * PAIR_WEIGHTS[QQ] + PAIR_WEIGHTS[YY])
    )


def absolute_movement(columns: int, weights: RankWeights) -> float:
    """Bound the movement in L1 of the scores in Laplace noise of so many columns: see the module."""
    pairs = columns * (columns - 1) // 2
    return (weights.rank + columns) ** 2 / 2 + 1.5 * weights.curve * pairs


def squared_movement_of_signs(columns: int) -> float:
    """Bound the squared movement of the scores of so many columns of two levels: see the module."""
    signs = np.arange(columns + 1)
    return float(np.max(4 * signs * (PUBLIC.rank**2 + columns - signs))) + columns / 4


class RankScores:
    """The scores of ranks alone, given every column's grades: weighted r and q, r r' and q q'."""

    def __init__(self, grades: Sequence[RankTransform], weights: RankWeights) -> None:
        self._grades, self._weights = tuple(grades), weights

    @property
    def dimension(self) -> int:
        """Two coordinates a column, one or two a pair."""
        return self._weights.dimension(len(self._grades))

    @property
    def norm(self) -> float:
        """The root of all squared weights: every score lies in [-1, 1]."""
        count = len(self._grades)
        own = count * (self._weights.rank**2 + CONVEX_WEIGHT**2)
        return float(np.sqrt(own + count * (count - 1) / 2 * (1 + self._weights.curve**2)))

    @property
    def diameter(self) -> float:
        """In L2; noise is made for ``absolute_movement``, which is larger."""
        return absolute_movement(len(self._grades), self._weights)

    @property
    def second_moment_diameter(self) -> float:
        """The root of 2 times the squared norm; no second moment is released."""
        return float(np.sqrt(2)) * self.norm**2

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the scores, (rows, dimension): columns, then pairs."""
        ranks = [grades.at(rows)[1] for grades in self._grades]
        curves = [convex(r) for r in ranks]
        own = []
        for r, q in zip(ranks, curves, strict=True):
            own += [self._weights.rank * r, CONVEX_WEIGHT * q]
        for a, b in itertools.combinations(range(len(ranks)), 2):
            own.append(ranks[a] * ranks[b])
            if self._weights.curve:
                own.append(self._weights.curve * curves[a] * curves[b])
        return np.stack(own, axis=1)


class Scores:
    """The scores of units, given every column's grades."""

    def __init__(self, grades: Sequence[RankTransform]) -> None:
        self._grades = tuple(grades)
        self._pairs = tuple(itertools.combinations(range(len(self._grades)), 2))

    @property
    def dimension(self) -> int:
        """Four coordinates a column, six a pair."""
        return dimension(len(self._grades))

    @property
    def norm(self) -> float:
        """The root of all weights: every score lies in [-1, 1]."""
        count, pairs = len(self._grades), len(self._pairs)
        return float(np.sqrt(count * COLUMN_WEIGHTS.sum() + pairs * PAIR_WEIGHTS.sum()))

    @property
    def diameter(self) -> float:
        """The root of the squared movement, whatever the grades."""
        return float(np.sqrt(squared_movement(len(self._grades))))

    @property
    def second_moment_diameter(self) -> float:
        """The root of 2 times the squared norm; no second moment is released."""
        return float(np.sqrt(2)) * self.norm**2

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the scores, (rows, dimension): columns, then pairs."""
        parts, squares = [], []
        for grades in self._grades:
            t, r = grades.at(rows)
            parts.append((t, t * t, r, convex(r)))
            squares.append(((t - grades.mean) / (1 + abs(grades.mean))) ** 2)
        own = [
            part * weight
            for each in parts
            for part, weight in zip(each, np.sqrt(COLUMN_WEIGHTS), strict=True)
        ]
        for a, b in self._pairs:
            (t, _, r, q), (u, _, s, p) = parts[a], parts[b]
            both = (t * u, r * s, r * p, q * s, q * p, squares[a] * squares[b])
            own += [part * weight for part, weight in zip(both, np.sqrt(PAIR_WEIGHTS), strict=True)]
        return np.stack(own, axis=1)


def dimension(columns: int) -> int:
    """Return how many scores so many columns have."""
    return 4 * columns + 6 * (columns * (columns - 1) // 2)


@dataclass(frozen=True)
class Sums:
    """An owner's exact numbers. They never leave it; ``repr`` shows none.

    ``noisy`` and ``scores`` are there as soon as the histograms' noise was drawn, on which the scores depend;
    ``table`` is read again for them.
    """

    units: int
    bits: int
    steps: Integers = field(repr=False)
    table: Table = field(repr=False)
    noisy: NoisyVector | None = field(default=None, repr=False)
    scores: FeatureSums | None = field(default=None, repr=False)


@dataclass(frozen=True)
class AssociationPlan:
    """What a study fixes before any data, and how its release is made."""

    domain: Domain
    guarantee: Guarantee
    pure: bool = False
    """Whether sums of ranks leave in Laplace noise."""

    def histograms(self, units: int) -> ColumnHistograms:
        """Return the public cells of an owner of so many units."""
        many = units >= BINS * UNITS_A_BIN * self.cell_noise
        return ColumnHistograms(self.domain, BINS if many else BINS_OF_FEW)

    @property
    def cell_noise(self) -> float:
        """The noise's standard deviation on a histogram's count."""
        if self.pure:
            return math.sqrt(2) * 2 * self.columns / (HISTOGRAM_PART * self.guarantee.budget.epsilon)
        moved = 2 * self.columns * HISTOGRAM_WEIGHT + squared_movement(self.columns)
        return math.sqrt(moved / HISTOGRAM_WEIGHT) / mu_of(self.guarantee)

    @property
    def signs(self) -> bool:
        """Whether every column has two levels: then sums of signs and their products are all there is."""
        columns = self.domain.columns
        return all(isinstance(own, CategoricalColumn) and len(own.levels) == 2 for own in columns)

    @property
    def ranks_alone(self) -> bool:
        """Whether sums of ranks leave alone, and none of numbers' own values."""
        return self.pure or self.signs

    @property
    def columns(self) -> int:
        """How many columns there are."""
        return len(self.domain.columns)

    @property
    def dimension(self) -> int:
        """How many scores there are, at most."""
        if self.signs:
            return PUBLIC.dimension(self.columns)
        return ADAPTED.dimension(self.columns) if self.pure else dimension(self.columns)

    @property
    def numbers(self) -> int:
        """How many noisy numbers an owner sends, at most."""
        return (0 if self.signs else ColumnHistograms(self.domain, BINS).size) + self.dimension

    def rank_noise(self, units: int) -> float:
        """Return the noise's standard deviation on a sum of r r' of so many units."""
        if self.pure:
            return math.sqrt(2) * sums_scale(self.parts(units)[-1], self.events(units)[-1])
        if self.signs:
            return math.sqrt(squared_movement_of_signs(self.columns)) / mu_of(self.guarantee)
        moved = 2 * self.columns * HISTOGRAM_WEIGHT + squared_movement(self.columns)
        return math.sqrt(moved / PAIR_WEIGHTS[RR]) / mu_of(self.guarantee)

    def adaptive(self, units: int) -> bool:
        """Say whether histograms leave, from which grades are read: in pure epsilon of enough units alone.

        Of two levels none do.
        """
        if self.signs:
            return False
        return not self.pure or units * self.guarantee.budget.epsilon >= ADAPTIVE_FROM * self.columns

    def weights(self, units: int) -> RankWeights:
        """Return the weights of scores of ranks."""
        return ADAPTED if self.adaptive(units) else PUBLIC

    def events(self, units: int) -> tuple[Guarantee, ...]:
        """Return what each vector in Laplace noise is made for: its part of epsilon."""
        shares = (HISTOGRAM_PART, 1 - HISTOGRAM_PART) if self.adaptive(units) else (1.0,)
        whole = shared_laplace_guarantee(self.guarantee.budget, shares)
        return tuple(of_event(whole, place) for place in range(len(shares)))

    def parts(
        self, units: int, steps: Integers | None = None, scores: Integers | None = None
    ) -> tuple[SumPart, ...]:
        """Lay the release out: histograms, where any leave, then scores; zeros where nothing is given."""
        bits, cells, count = grid_bits(units, products=False), self.histograms(units), self.dimension
        if self.ranks_alone:
            count = self.weights(units).dimension(self.columns)
        steps = np.zeros(cells.size, dtype=np.int64) if steps is None else steps
        scores = np.zeros(count, dtype=np.int64) if scores is None else scores
        if self.pure:
            # Each of two neighbours lies a row's and its unit's half step, and a float's error, off.
            rounding = 2 * (1 + FEATURE_ERROR_STEPS) * count * 2.0**-bits
            moved = math.nextafter(absolute_movement(self.columns, self.weights(units)) + rounding, math.inf)
            own = SumPart(SCORES, scores, -bits, moved, 1.0, l1=moved)
            if not self.adaptive(units):
                return (own,)
            return SumPart(HISTOGRAMS, steps, -bits, cells.l2_sensitivity, 1.0, l1=2.0 * self.columns), own
        if self.signs:
            moved = math.sqrt(squared_movement_of_signs(self.columns)) + rounding_sensitivity(count, bits)
            return (SumPart(SCORES, scores, -bits, moved, 1.0),)
        first, second = 2 * self.columns * HISTOGRAM_WEIGHT, squared_movement(self.columns)
        return (
            SumPart(HISTOGRAMS, steps, -bits, cells.l2_sensitivity, first / (first + second)),
            SumPart(
                SCORES,
                scores,
                -bits,
                float(np.sqrt(second)) + rounding_sensitivity(count, bits),
                second / (first + second),
            ),
        )

    def sum(self, table: Table) -> Sums:
        """Count the units by cell, exactly."""
        bits = grid_bits(table.units, products=False)
        return Sums(table.units, bits, self.histograms(table.units).sum(table, bits), table)

    def grades(self, noisy: NoisyVector | None, units: int) -> tuple[RankTransform, ...]:
        """Return every column's grades from noisy histograms, or public ones: the same for everyone."""
        histograms = self.histograms(units)
        if noisy is None:
            return tuple(RankTransform.public(cells) for cells in histograms.columns)
        total, noise = units << -noisy.exponent, float(np.ldexp(noisy.scale, -noisy.exponent))
        noise *= math.sqrt(2) if self.pure else 1.0
        return tuple(
            RankTransform.of(cells, own, total, noise)
            for cells, own in zip(histograms.columns, histograms.split(noisy.values), strict=True)
        )

    def scores(self, grades: Sequence[RankTransform], units: int) -> Scores | RankScores:
        """Return the scores of so many units by these grades."""
        return RankScores(grades, self.weights(units)) if self.ranks_alone else Scores(grades)

    def adapt(self, sums: Sums, noise: NoiseSource) -> Sums:
        """Draw the histograms' noise, and sum the scores that follow from it."""
        noisy = self._histograms(sums, noise) if self.adaptive(sums.units) else None
        scores = self.scores(self.grades(noisy, sums.units), sums.units)
        return replace(
            sums, noisy=noisy, scores=sum_features(scores, sums.table, products=False, bits=sums.bits)
        )

    def _histograms(self, sums: Sums, noise: NoiseSource) -> NoisyVector:
        parts = self.parts(sums.units, sums.steps)
        if self.pure:
            return release_laplace_sums(parts[0], self.events(sums.units)[0], noise)
        require_drawable(parts, self.guarantee)
        return release_sums(parts[:1], self.guarantee, noise)[HISTOGRAMS]

    def release(self, sums: Sums, noise: NoiseSource) -> Release:
        """Add the noise to all."""
        if sums.scores is None:
            sums = self.adapt(sums, noise)
        if sums.scores is None:
            raise TypeError("the histograms' noise comes before the scores'")
        part = self.parts(sums.units, scores=sums.scores.total)[-1]
        if self.pure:
            own = {SCORES: release_laplace_sums(part, self.events(sums.units)[-1], noise)}
        else:
            own = release_sums((part,), self.guarantee, noise)
        vectors = own if sums.noisy is None else {HISTOGRAMS: sums.noisy, **own}
        return Release(units=sums.units, guarantee=self.guarantee, vectors=vectors)

    def require_drawable(self, units: int) -> None:
        """Raise SensitivityError or ValueError where the noise of so many units cannot be drawn."""
        parts = self.parts(units)
        if not self.pure:
            require_drawable(parts, self.guarantee)
            return
        for part, own in zip(parts, self.events(units), strict=True):
            require_laplace(part, own)

    def check(self, release: Release) -> None:
        """Raise ReleaseError or ValueError where a release has not the shape and noise that a study fixes."""
        parts = self.parts(release.units)
        if not self.pure:
            check_layout(release.vectors, release.guarantee, parts, self.guarantee)
            return
        if release.guarantee != self.guarantee or set(release.vectors) != {part.name for part in parts}:
            raise LayoutError("the release has not the vectors and the guarantee that the study asks for")
        for part, own in zip(parts, self.events(release.units), strict=True):
            check_laplace_sums(release.vectors[part.name], own, part, own)


GAUSSIAN_FROM, LAPLACE_TO, PUBLIC_TO = 0.5, 1.0, 0.7
"""Gaussian noise is taken up to so many times sampling's standard deviation, on a sum of r r', and from where
Laplace noise is so many times it, or less by public grades: its release tells of numbers' own correlation and
of spreads too."""


def fitting_noise(study: Study, units: int) -> dict[str, str]:
    """Return the noise that suits a study of so many units an owner, as parameters: none where Gaussian.

    From public numbers alone: units, budget and the number of columns. Of two levels both kinds of noise are
    on the same sums, and the smaller is taken.
    """
    few = {"noise": "laplace"}
    if study.budget.delta_pico == 0:
        return few
    many, pure = (
        plan_of(study.model_copy(update={"parameters": dict(study.parameters) | noise}))
        for noise in ({"noise": "gaussian"}, few)
    )
    if many.signs:
        return few if pure.rank_noise(units) < many.rank_noise(units) else {}
    gaussian, most = many.rank_noise(units), LAPLACE_TO if pure.adaptive(units) else PUBLIC_TO
    less = pure.rank_noise(units) < most * gaussian
    return few if less and gaussian > GAUSSIAN_FROM * math.sqrt(units) / 3 else {}


@planned_once
def plan_of(study: Study) -> AssociationPlan:
    """Return what a study fixes; raises StudyError where it cannot be run as written."""
    parameters, domain = parse_parameters(AssociationParameters, study), study.domain
    if not 2 <= len(domain.columns) <= COLUMNS_MAX:
        raise StudyError(f"an association is between two to {COLUMNS_MAX} columns")
    if any(not 2 <= len(column.levels) <= LEVELS_MAX for column in domain.categorical):
        raise StudyError(f"a categorical column needs two to {LEVELS_MAX} levels, in their order")
    pure = parameters.noise == "laplace"
    try:
        guarantee = choice_guarantee(study.budget) if pure else gaussian_guarantee(study.budget)
    except SensitivityError as error:
        raise StudyError(str(error)) from None
    plan = AssociationPlan(domain, guarantee, pure)
    if plan.numbers > COORDINATES_MAX:
        raise StudyError("the study asks for too many numbers; use fewer columns")
    return plan


MIDDLE_SCALE = 4
"""Where owners mask a number has a second score beside t, this times t, cut at -1 and 1: within bounds that
are eight standard deviations apart its variance is eight times that of t, for the same sensitivity."""

MASKED_SHARES = (0.3, 0.7)
"""Squared weights of the covariance of t, and of the middle; in the test, their Bonferroni weights."""

PRODUCT_MOVEMENT, PRODUCT_VARIANCE_MOVEMENT, SQUARE_MOVEMENT = 4.0, 4.0, 4.0
"""How far a replaced unit moves C, V and S of numbers in [-1, 1]."""


class ScorePairs(WithinPairs):
    """Of every pair of columns the covariance of t, then, where one is a number, that of the middle.

    All units count. Sums of squares are of every column's t. ``of_pairs`` are the places of every pair's.
    """

    def __init__(self, domain: Domain) -> None:
        columns, weights = domain.columns, list[float]()
        self._columns, self._places = domain, list[tuple[int, int]]()
        self.of_pairs: list[range] = []
        for a, b in itertools.combinations(range(len(columns)), 2):
            both = isinstance(columns[a], NumericColumn) or isinstance(columns[b], NumericColumn)
            shares = MASKED_SHARES if both else (1.0,)
            self.of_pairs.append(range(len(weights), len(weights) + len(shares)))
            weights += [math.sqrt(share) for share in shares]
            self._places += [(a, b), (len(columns) + a, len(columns) + b)][: len(shares)]
        movement = PRODUCT_MOVEMENT * math.sqrt(len(self.of_pairs))
        firsts = np.array([a % len(columns) for a, _ in self._places])
        super().__init__(np.array(weights), movement, np.full(len(weights), 2.0), firsts)

    @property
    def spreads(self) -> int:
        """One a column."""
        return len(self._columns.columns)

    @property
    def bounds(self) -> tuple[float, float, float]:
        """How far, in L2, a replaced unit moves weighted covariances, their variances, and spreads."""
        return (
            self.movement,
            PRODUCT_VARIANCE_MOVEMENT * float(np.linalg.norm(self.weights**2)),
            SQUARE_MOVEMENT * math.sqrt(self.spreads),
        )

    def start(self) -> PairSums:
        """Return the sums over no unit: of 1 and both scores of every column, and of their products."""
        size = 1 + 2 * self.spreads
        return PairSums(np.zeros((size, size), dtype=np.int64))

    def add(self, partial: PairSums, chunk: EncodedChunk) -> None:
        """Add a chunk's units, of one row each."""
        if chunk.unit is not None and chunk.rows != chunk.units:
            raise StudyError(ONE_ROW)
        scores = np.hstack([np.ones((chunk.rows, 1), dtype=np.int64), self._scores(chunk)])
        partial.held += scores.T @ scores
        partial.units += chunk.rows

    def _scores(self, chunk: EncodedChunk) -> Integers:
        """Return t of every column, then its middle, in steps of 2^-15, (rows, 2 columns)."""
        own, middles, places = [], [], [0, 0]
        for column in self._columns.columns:
            numeric = isinstance(column, NumericColumn)
            if isinstance(column, CategoricalColumn):
                at = np.zeros(len(column.levels) + 2)
                at[: len(column.levels)] = np.linspace(-1, 1, len(column.levels))
                t = at[chunk.categorical[:, places[numeric]]]
            else:
                t = np.clip(2 * chunk.numeric[:, places[numeric]] - 1, -1.0, 1.0)
            own.append(t)
            middles.append(np.clip(MIDDLE_SCALE * t, -1.0, 1.0) if numeric else t)
            places[numeric] += 1
        found: Integers = np.rint(np.stack([*own, *middles], axis=1) * STEPS).astype(np.int64)
        return found

    def exact(self, sums: PairSums) -> tuple[Sequence[Fraction], Sequence[Fraction], Sequence[Fraction]]:
        """Return an owner's weighted covariances and variances, and spreads. They never leave it."""
        n, totals = int(sums.held[0, 0]), [int(own) for own in sums.held[0]]
        squares = [
            squares_about(int(sums.held[at, at]), totals[at], n) / STEPS**2 for at in range(len(totals))
        ]
        covariances, variances = [], []
        for weight, (a, b) in zip(self.weights, self._places, strict=True):
            own = Fraction(float(weight))
            top = int(sums.held[1 + a, 1 + b]) * n - totals[1 + a] * totals[1 + b]
            covariances.append(own * Fraction(top, max(n, 1) * STEPS**2))
            variances.append(own**2 * squares[1 + a] * squares[1 + b] / max(n - 1, 1))
        return covariances, variances, squares[1 : 1 + self.spreads]


@dataclass(frozen=True)
class MaskedScores(MaskedPairs):
    """What a study fixes whose owners mask."""

    pairs: ScorePairs


@planned_once
def masked_plan(study: Study) -> MaskedScores | None:
    """Return what a study fixes whose owners mask; None where every owner's sums are read by themselves.

    Raises StudyError where it cannot be run as written.
    """
    parameters = parse_parameters(AssociationParameters, study)
    shared = shared_within(study, parameters, parameters.noise, lambda: plan_of(study).guarantee)
    if shared is None:
        return None
    return MaskedScores(ScorePairs(study.domain), shared)
