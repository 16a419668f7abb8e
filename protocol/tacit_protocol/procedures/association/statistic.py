"""Do columns go together within owners, and how strongly? Covariances whose noises cancel on average.

At each owner two scores a and b of two columns have noisy sums S_a, S_b and that of their products P, with
independent noises, and n units, publicly. C = P - S_a S_b/n has mean 0 where the columns are independent
within the owner, given what both columns hold, the grades among it: which value stands beside which is then
one of n! equally likely orders. Its variance is

    n v_a v_b + s_P^2 + m_a^2 s_b^2 + m_b^2 s_a^2 + s_a^2 s_b^2/n^2,

m = S/n, v one unit's variance, s^2 the noises' variances. Owners are added up with the weights n v/(n v +
s^2), v of all owners together. Of the five pairs of scores (``PARTS``) the smallest p-value counts, by a
weighted Bonferroni correction.

Correlations are roots of U(rho) = sum of w (C - rho B), B = (l V_a + V_b/l)/2 with l the root of the ratio
of all owners' weighted sums of squares V: then sum w B is the root of their product. The interval is
Fieller's. The sampling variance of U takes E a^2 b^2 from the release, the columns' kurtosis from the noisy
histograms, and for E a^3 b and E a b^3 the regressions of a on b and b on a as straight lines.

In Laplace noise (release.py) two parts are there, and the law of the smallest p-value over its weight is
simulated: normal sampling, and the noise as it is. Noise variances are widened for intervals.
docs/mathematics/association.md; levels and coverage: docs/benchmarks/association.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, ndtri

from tacit_protocol.numerics.inference import RARE_UNITS, Effects, Estimated, Number, effects_of_numbers
from tacit_protocol.procedures.association.release import (
    ADAPTED,
    COLUMN_WEIGHTS,
    CONVEX_WEIGHT,
    MASKED_SHARES,
    PAIR_WEIGHTS,
    PUBLIC,
    QQ,
    QR,
    RQ,
    RR,
    T_SQUARED,
    TT,
    YY,
    Q,
    R,
    RankTransform,
    T,
    convex,
)
from tacit_protocol.procedures.within_owners.covariances import ReadPairs
from tacit_protocol.procedures.within_owners.verdict import HIDDEN, visible

Floats = npt.NDArray[np.float64]

PARTS = ((0.3, TT, T, T), (0.5, RR, R, R), (0.05, RQ, R, Q), (0.05, QR, Q, R), (0.1, QQ, Q, Q))
"""Parts of a pair's test: weight in the Bonferroni correction, the product, and both columns' scores."""

KURTOSIS = (1.0, 30.0)
"""What a kurtosis is taken to lie within."""

RARE_STATED = 10.0
"""Least sum of squares of a column's scores from which a correlation is stated: that of ten units at one end
and all others at the other."""

SIGNS_MEAN_MAX = 0.9375
"""Largest mean of -1 and 1 that is told from 1: its kurtosis is the largest."""

RATIO_MAX = 30.0
"""Largest ratio of two columns' scaled spreads that is made use of."""

SIGNS = ((1.0, RR, R, R),)
"""The same of two columns of two levels."""

LAPLACE_PARTS = ((0.85, RR, R, R), (0.15, QQ, Q, Q))
"""The same in Laplace noise."""

NULL_DRAWS = 9999
"""Simulated null statistics of a pair in Laplace noise, at least."""

SURE = 3.0
"""From how many standard deviations of its noise a sum of squares is taken to be there."""

DRAW_WORK = 3
"""Simulated numbers that take as long as one owner's covariance of a draw."""

DRAWS_A_PAIR = 400
"""For every pair that a p-value is adjusted for, so that the least adjusted one is 1/400."""


def null_draws(pairs: int) -> int:
    """Return how many null statistics of a pair are simulated in Laplace noise."""
    return max(NULL_DRAWS, DRAWS_A_PAIR * pairs)


@dataclass(frozen=True)
class OwnerSums:
    """One owner's noisy sums of two columns: columns (2, 4), products (6,), noise variances (4,), (6,)."""

    units: int
    columns: Floats
    products: Floats
    column_noise: Floats
    product_noise: Floats
    grades: tuple[RankTransform, RankTransform]
    ranks_alone: bool = False
    """Whether the numbers are those of r, q, r r' and q q' alone."""

    laplace: bool = False
    """Whether the noise is Laplace's."""

    @property
    def signs(self) -> bool:
        """Whether both columns have two levels, and grades of -1 and 1."""
        return all(grades.signs for grades in self.grades)

    def widened(self, factor: float) -> "OwnerSums":
        """Return the block with noise variances that are so many times larger."""
        own, both = self.column_noise * factor, self.product_noise * factor
        return replace(self, column_noise=own, product_noise=both)


def block(
    units: int, columns: Floats, products: Floats, scale: float, grades: tuple[RankTransform, RankTransform]
) -> OwnerSums:
    """Return a block of weighted noisy sums, with noise of standard deviation ``scale`` on each."""
    return OwnerSums(
        units,
        columns / np.sqrt(COLUMN_WEIGHTS),
        products / np.sqrt(PAIR_WEIGHTS),
        scale**2 / COLUMN_WEIGHTS,
        scale**2 / PAIR_WEIGHTS,
        grades,
    )


def rank_block(  # noqa: PLR0917
    units: int,
    columns: Floats,
    products: Floats,
    scale: float,
    grades: tuple[RankTransform, RankTransform],
    laplace: bool,
) -> OwnerSums:
    """Return a block of weighted noisy sums of ranks, (2, 2), and (2,) or (1,), with noise of one scale.

    Without a sum of q q' its noise is infinite.
    """
    weights, variance = ADAPTED if len(products) > 1 else PUBLIC, (2 if laplace else 1) * scale**2
    by, of = np.array([weights.rank, CONVEX_WEIGHT]), np.array([1.0, weights.curve])[: len(products)]
    own, both, own_noise = np.zeros((2, 4)), np.zeros(6), np.zeros(4)
    noise = np.full(6, np.inf)
    own[:, [R, Q]], both[[RR, QQ][: len(products)]] = columns / by, products / of
    own_noise[[R, Q]], noise[[RR, QQ][: len(products)]] = variance / by**2, variance / of**2
    return OwnerSums(units, own, both, own_noise, noise, grades, ranks_alone=True, laplace=laplace)


@dataclass(frozen=True)
class Tested:
    """A pair's ``statistic``, that of its surest part, and its p-value for all its parts."""

    statistic: float
    pvalue: float


def independent(
    blocks: Sequence[OwnerSums], seed: np.random.SeedSequence | None = None, draws: int = NULL_DRAWS
) -> Tested:
    """Test whether two columns go together within any owner; in Laplace noise by so many draws."""
    if blocks[0].laplace:
        return _simulated(blocks, np.random.default_rng(seed), draws)
    found = []
    for weight, product, first, second in SIGNS if blocks[0].ranks_alone else PARTS:
        statistic = _Score.of(blocks, product, first, second).statistic
        found.append((min(1.0, float(chdtrc(1, statistic)) / weight), -statistic))
    pvalue, negative = min(found)
    return Tested(-negative, pvalue)


def independent_masked(found: ReadPairs, places: range) -> Tested:
    """Test whether two columns go together within owners, by all owners' covariances at these places."""
    weights = MASKED_SHARES if len(places) > 1 else (1.0,)
    pvalue, place = min(
        (found.pvalue(place) / weight, place) for place, weight in zip(places, weights, strict=True)
    )
    return Tested(found.statistic(place), min(1.0, pvalue))


def masked_correlation(found: ReadPairs, place: int, columns: tuple[int, int]) -> float | None:
    """Estimate all owners' correlation of t of two columns within them, by its covariance's place.

    None where noise could make either's sum of squares.
    """
    first, second = (float(found.spreads[column]) for column in columns)
    if min(first, second) <= SURE * found.spread_noise:
        return None
    top = float(found.covariances[place] / found.weights[place])
    return min(1.0, max(-1.0, top / math.sqrt(first * second)))


def masked_visible(
    found: ReadPairs, places: range, units: int, level: float, columns: tuple[int, int]
) -> float:
    """Return the correlation that covariances of so many units show, of values or of the middle.

    A column's sum of squares is taken to be no less than the noise that hides it; the middle counts where its
    variance is told.
    """
    first, second = np.maximum(found.spreads[list(columns)], found.spread_noise)
    largest = {places[0]: math.sqrt(first * second)}
    for place in places[1:]:  # V adds up the owners' products of sums of squares, over n
        if found.variances[place] > HIDDEN * found.doubt:
            largest[place] = math.sqrt(found.variances[place] * units) / float(found.weights[place])
    noises = [found.noise / (float(found.weights[place]) * size) for place, size in largest.items()]
    return visible(-float(ndtri(level / 2)) * math.hypot(min(noises), units**-0.5), level)


def _simulated(blocks: Sequence[OwnerSums], rng: np.random.Generator, draws: int) -> Tested:
    """Compare with drawn covariances: normal sampling, and the noise as it is, with its products."""
    smallest, of_null, surest = np.inf, np.full(draws, np.inf), 0.0
    for weight, product, first, second in LAPLACE_PARTS:
        if not all(np.isfinite(own.product_noise[product]) for own in blocks):
            continue
        score = _Score.of(blocks, product, first, second)
        pvalue = float(chdtrc(1, score.statistic)) / weight
        if pvalue < smallest:
            smallest, surest = pvalue, score.statistic
        simulated = chdtrc(1, score.of_null(rng, draws)) / weight
        of_null = np.minimum(of_null, simulated)
    return Tested(surest, float((1 + np.sum(of_null <= smallest)) / (draws + 1)))


@dataclass(frozen=True)
class _Score:
    """Owners' covariances of two scores (k,), their weights, and what they vary by.

    ``sampled`` is their sampling variance, ``noises`` (3, k) the noise variances of the product and of both
    scores' sums, ``means`` (2, k).
    """

    units: Floats
    away: Floats
    weights: Floats
    sampled: Floats
    noises: Floats
    means: Floats

    @classmethod
    def of(cls, blocks: Sequence[OwnerSums], product: int, first: int, second: int) -> "_Score":
        units = np.array([float(own.units) for own in blocks])
        a, b = (
            np.array([own.columns[place, score] for own in blocks])
            for place, score in ((0, first), (1, second))
        )
        noise_a, noise_b = (
            np.array([own.column_noise[score] for own in blocks]) for score in (first, second)
        )
        noise = np.array([own.product_noise[product] for own in blocks])
        v, u = (
            units * np.array([_unit_variance(own, place, score) for own in blocks]) + RARE_UNITS
            for place, score in ((0, first), (1, second))
        )
        sampled = v * u / units
        means = np.clip(np.stack([a / units, b / units]), -1.0, 1.0)
        away = np.array([own.products[product] for own in blocks]) - a * b / units
        # One variance for all owners: a weight that goes with its owner's noise would bias the score.
        common = units * sampled.sum() / units.sum()
        weights = common / (common + noise)
        return cls(units, away, weights, sampled, np.stack([noise, noise_a, noise_b]), means)

    @property
    def _variance(self) -> float:
        (noise, noise_a, noise_b), (mean_a, mean_b) = self.noises, self.means
        variance = (
            self.sampled
            + noise
            + mean_a**2 * noise_b
            + mean_b**2 * noise_a
            + noise_a * noise_b / self.units**2
        )
        return float(self.weights**2 @ variance)

    @property
    def statistic(self) -> float:
        """The squared sum of the owners' covariances over its variance."""
        return float((self.weights @ self.away) ** 2 / self._variance)

    def of_null(self, rng: np.random.Generator, draws: int) -> Floats:
        """Draw the statistic where columns are independent within owners, with Laplace noise, (draws,)."""
        total = np.zeros(draws)
        for place, weight in enumerate(self.weights):
            product, a, b = (rng.laplace(0.0, math.sqrt(own / 2), draws) for own in self.noises[:, place])
            mean_a, mean_b = self.means[:, place]
            away = math.sqrt(self.sampled[place]) * rng.standard_normal(draws) + product
            total += weight * (away - mean_a * b - mean_b * a - a * b / self.units[place])
        return np.asarray(total**2 / self._variance)


def _unit_variance(own: OwnerSums, place: int, score: int) -> float:
    """Bound one unit's variance of a score from above, with its noise."""
    mean = float(np.clip(own.columns[place, score] / own.units, -1.0, 1.0))
    square = max(mean**2 - own.column_noise[score] / own.units**2, 0.0)
    if score == Q:
        grades = own.grades[place]
        q = convex(grades.r)
        found = float(grades.shares @ q**2) - float(grades.shares @ q) ** 2
        most = max((1 - mean) * (mean + 0.5), 0.0)
        if own.ranks_alone:  # the release's own sums bound it, and are all there is where no histogram left
            spread = math.sqrt(own.column_noise[Q]) / own.units
            most = max((1 - mean + spread) * (mean + spread + 0.5), 0.0)
            found = found + spread if len(grades.shares) else most
    else:
        paired = T_SQUARED if score == T else Q
        found = float(own.columns[place, paired]) / own.units
        spread = math.sqrt(own.column_noise[paired]) / own.units
        found = found + spread if score == T else (1 + 2 * (found + spread)) / 3
        found, most = found - square, 1 - square
    return float(np.clip(found, 0.0, max(most, 0.0)))


def correlation(blocks: Sequence[OwnerSums], *, ranks: bool, pooled: bool = True) -> Effects:
    """Return the correlation of t, or of grades; ``pooled`` takes one ratio of spreads for all owners.

    Of public grades it is no rank correlation, and nothing is stated.
    """
    units = np.array([float(own.units) for own in blocks])
    if not all(len(grades.shares) for own in blocks for grades in own.grades):
        return Effects(0 * units, 0 * units, np.zeros((3, len(units))), np.ones(len(units)))
    score, product = (R, RR) if ranks else (T, TT)
    sums = np.stack([own.columns[:, score] for own in blocks], axis=1)
    noise = np.array([own.column_noise[score] for own in blocks])
    squares, noise_of_squares = _squares(blocks, ranks)
    mean = np.clip(sums / units, -1.0, 1.0)
    around = squares - sums**2 / units + noise / units
    spread = np.clip(around / units, 0.0, 1.0)
    noise_of_products = np.array([own.product_noise[product] for own in blocks])
    top = np.array([own.products[product] for own in blocks]) - sums[0] * sums[1] / units
    size = float(np.clip((units @ (spread[0] * spread[1])) / units.sum(), 1e-4, 1.0))
    weights = 1 / (units * size + noise_of_products)
    totals = around @ weights
    ratio = np.full(len(blocks), _ratio(*totals))
    if not pooled:
        sure = np.all(around > SURE * np.sqrt(noise_of_squares), axis=0)
        ratio = np.where(sure, [_ratio(*each) for each in around.T], ratio)
    bottom = (ratio * around[0] + around[1] / ratio) / 2
    if around.sum(axis=1).min() < RARE_STATED:
        weights = 0 * weights
    rho = float(np.clip((weights @ top) / max(float(weights @ bottom), 1e-9), -1.0, 1.0))
    numbers = [
        Number(1.0, 0.0, noise_of_products + noise**2 / units**2),
        Number(-mean[1], ratio * mean[0], noise),
        Number(-mean[0], mean[1] / ratio, noise),
        Number(0.0, -ratio / 2, noise_of_squares),
        Number(0.0, -1 / (2 * ratio), noise_of_squares),
    ]
    found = effects_of_numbers(top, bottom, numbers, weights)
    both = units * spread[0] * spread[1]
    polynomial = _sampling(blocks, rho, float(both.sum()), ranks)
    return Effects(top, bottom, found.variance + np.outer(polynomial, both), weights)


def _squares(blocks: Sequence[OwnerSums], ranks: bool) -> tuple[Floats, Floats]:
    """Return both columns' sums of squares, (2, k), and the variance of their noise, (k,)."""
    place = Q if ranks else T_SQUARED
    squares = np.stack([own.columns[:, place] for own in blocks], axis=1)
    noise = np.array([own.column_noise[place] for own in blocks])
    if not ranks:
        return squares, noise
    return (np.array([own.units for own in blocks]) + 2 * squares) / 3, noise * (2 / 3) ** 2


def _ratio(first: float, second: float) -> float:
    """Return the root of second over first within RATIO_MAX."""
    if first <= 0 or second <= 0:
        return 1.0
    return float(np.clip(math.sqrt(second / first), 1 / RATIO_MAX, RATIO_MAX))


def _sampling(blocks: Sequence[OwnerSums], rho: float, both: float, ranks: bool) -> Floats:
    """Return c0, c1, c2 of one unit's variance of a b - theta (a^2 + b^2)/2, of standardised a and b."""
    a, b = (
        float(np.clip(np.average([_kurtosis(own, place, ranks) for own in blocks]), *KURTOSIS))
        for place in (0, 1)
    )
    moments = 0.0
    if blocks[0].ranks_alone:
        moments += 4 / 9 * math.sqrt(sum(float(own.product_noise[QQ]) for own in blocks))
    for own in blocks:
        if ranks:
            q = own.columns[:, Q]
            moments += (4 * own.products[QQ] + 2 * q.sum() + own.units) / 9
        else:
            scales = [(1 + abs(grades.mean)) ** 2 for grades in own.grades]
            moments += own.products[YY] * math.prod(scales)
    most = max(math.sqrt(a * b), 1.0)
    if blocks[0].ranks_alone and all(own.signs for own in blocks):
        moments = both * _shared_by_signs(blocks, rho)
    shared = float(np.clip(moments / both, 0.5, most)) if both > 0 else most
    square = rho**2
    found = np.array([shared - square, -2 * rho * ((a + b) / 2 - 1), (a + b - 4 + 2 * shared) / 4])
    # Of normal columns' ranks it is this (Bonett and Wright, 2000); levels that nearly agree have no less.
    floor = (1 + square / 2) * (1 - square) ** 2 if ranks else (1 - square) ** 2 / 4
    least = floor - found @ np.array([1.0, rho, square])
    return np.asarray(found + np.array([max(float(least), 0.0), 0.0, 0.0]))


def _shared_by_signs(blocks: Sequence[OwnerSums], rho: float) -> float:
    """Return E a^2 b^2 of standardised signs of that correlation: 1 + 4 rho m_a m_b/(s_a s_b)."""
    units = np.array([float(own.units) for own in blocks])
    means = np.stack([[_mean_of_signs(own, place) for place in (0, 1)] for own in blocks])
    along = np.prod(means / np.sqrt(1 - means**2), axis=1)
    return float(1 + 4 * rho * np.average(along, weights=units))


def _mean_of_signs(own: OwnerSums, place: int) -> float:
    """Return the mean of a column of two levels, short of -1 and 1."""
    return float(np.clip(own.columns[place, R] / own.units, -SIGNS_MEAN_MAX, SIGNS_MEAN_MAX))


def _kurtosis(own: OwnerSums, place: int, ranks: bool) -> float:
    """Return the kurtosis of t or r in the noisy histogram; of two levels by their mean."""
    grades = own.grades[place]
    if own.ranks_alone and grades.signs:
        square = _mean_of_signs(own, place) ** 2
        return (1 + 3 * square) / (1 - square)
    values = grades.r if ranks else grades.t
    away = values - grades.shares @ values
    square = float(grades.shares @ away**2)
    return float(grades.shares @ away**4) / square**2 if square > 1e-12 else KURTOSIS[0]


def deviation(blocks: Sequence[OwnerSums], place: int) -> float:
    """Return the standard deviation of a column's t within owners, as noisy histograms have it."""
    found = [own.grades[place] for own in blocks]
    squares = [float(own.shares @ (own.t - own.mean) ** 2) for own in found]
    return math.sqrt(np.average(squares, weights=[own.units for own in blocks]))


def crowded(blocks: Sequence[OwnerSums], place: int) -> tuple[float, float, float]:
    """Return the largest share of an owner's units in one interval of a number, and its scaled ends."""
    found = []
    for grades in (own.grades[place] for own in blocks):
        shares = grades.shares[1:-1].reshape(grades.cells.bins, -1).sum(axis=1)
        cell = int(np.argmax(shares))
        found.append((float(shares[cell]), cell / grades.cells.bins, (cell + 1) / grades.cells.bins))
    return max(found)


def estimated(effects: Effects, level: float) -> Estimated:
    """Return a correlation with its interval, within [-1, 1]."""
    found = effects.common(level)
    if found is None:
        return Estimated(None, None, None)
    return Estimated(*(min(1.0, max(-1.0, end)) for end in found))
