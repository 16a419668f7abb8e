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
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain import CategoricalColumn, Domain, EncodedChunk, NumericColumn
from tacit_protocol.features.column_histograms import HistogramCells, nearest_counts
from tacit_protocol.features.kernels import FloatMatrix, Rows
from tacit_protocol.procedures.base import StudyError
from tacit_protocol.procedures.within_owners.covariances import (
    ONE_ROW,
    STEPS,
    PairSums,
    WithinPairs,
    squares_about,
)

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

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

WITHIN = 4
"""Points in an interval at which moments of grades are taken."""

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
