"""Effects common to several owners, intervals of ratios, and corrections of p-values.

U(theta) = sum over owners of w (top - theta bottom) has mean 0 at the theta that owners have in common. What
varies by sampling or noise is listed with its gradients, so that Var U = c0 + c1 theta + c2 theta^2 follows;
the interval is {theta: U^2 <= z^2 Var U} (Fieller, 1954). docs/mathematics/group-comparison.md.

From noisy counts the scores are such that noises cancel on average: with P and Q sums of products of
*different* cells and theta the same in all strata, U(theta) = sum w_s (P_s - theta Q_s) has mean 0 at the
true theta however large the noise. Mantel and Haenszel's estimators (1959) are of this kind, and so is that
of a hazard ratio. Write P - theta Q = x'B x/2, and M for the covariance of the counts, sampling and noise;
then Var(x'B x/2) = (B m)'M (B m) + tr(B M B M)/2, m estimated under theta. The interval may be unbounded, or
all there is (docs/mathematics/stratified.md).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.polynomial import Polynomial
from scipy.optimize import brentq
from scipy.special import chdtrc, ndtri

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Effects:
    """One effect of k owners: U = top - theta bottom, Var U = c0 + c1 theta + c2 theta^2, each (k,).

    ``variance`` is (3, k); ``weights`` add the owners up.
    """

    top: Floats
    bottom: Floats
    variance: Floats
    weights: Floats

    def common(self, level: float) -> tuple[float, float, float] | None:
        """Return the effect that owners have in common with its interval; None where it can be any."""
        z = float(-ndtri(level / 2))
        top, bottom = float(self.top @ self.weights), float(self.bottom @ self.weights)
        c0, c1, c2 = (float(c) for c in self.variance @ self.weights**2)
        square = bottom**2 - z**2 * c2
        if bottom <= 0 or square <= 0:
            return None
        half = top * bottom + z**2 * c1 / 2
        root = math.sqrt(max(half**2 - square * (top**2 - z**2 * c0), 0.0))
        return top / bottom, (half - root) / square, (half + root) / square

    def heterogeneity(self) -> float | None:
        """Return the p-value of one effect at all owners (Cochran, 1954); None where it cannot be tested."""
        if len(self.top) < 2 or (found := self.common(0.5)) is None:
            return None
        theta = found[0]
        for _ in range(2):
            variance = np.maximum(np.array([1.0, theta, theta**2]) @ self.variance, 1e-300)
            theta = float((self.top * self.bottom / variance).sum() / (self.bottom**2 / variance).sum())
        variance = np.maximum(np.array([1.0, theta, theta**2]) @ self.variance, 1e-300)
        score = self.top - theta * self.bottom
        return float(chdtrc(len(score) - 1, float((score**2 / variance).sum())))

    @classmethod
    def single(cls, top: float, bottom: float, variance: tuple[float, float, float]) -> "Effects":
        """Return an effect of one stratum, with Var U = c0 + c1 theta + c2 theta^2."""
        return cls(np.array([top]), np.array([bottom]), np.array(variance)[:, None], np.ones(1))

    def owner(self, place: int) -> "Effects":
        """Return one owner's effect."""
        own = slice(place, place + 1)
        weights = (self.weights[own] > 0).astype(np.float64)
        return Effects(self.top[own], self.bottom[own], self.variance[:, own], weights)


@dataclass(frozen=True)
class Number:
    """Something that varies by sampling or noise: its gradients in top and in -bottom, its variance."""

    top: Floats | float
    bottom: Floats | float
    variance: Floats


def effects_of_numbers(top: Floats, bottom: Floats, numbers: Sequence[Number], weights: Floats) -> Effects:
    """Return an effect of what varies, owner by owner."""
    variance = sum(
        number.variance * np.stack(np.broadcast_arrays(t**2, 2 * t * b, b**2))
        for number in numbers
        for t, b in [(np.asarray(number.top) + 0 * top, np.asarray(number.bottom) + 0 * top)]
    )
    return Effects(top, bottom, np.asarray(variance), weights)


RARE_UNITS = 2.0
"""Units of an owner by whose weight its variances are rounded up: a Poisson count of about one has heavier
tails than a normal law of its variance. Two more in each owner's own variance kept the level in
simulations (docs/mathematics/kernel-two-sample.md); two shared by all owners did not, where a small owner
met a large one."""

LEAST = 1.0
"""Units that a stratum is taken to have at least: of fewer nothing is known."""

STEPS = 241
"""Values at which an interval's ends are looked for, before they are refined."""

HALVINGS = 30

RATIO_MAX = 1e4
"""Ratios are looked for between it and its inverse."""


@dataclass(frozen=True)
class Estimated:
    """An effect common to strata; a ratio's ``value``, or an end, is None where counts cannot tell it."""

    value: float | None
    lower: float | None
    upper: float | None


@dataclass(frozen=True)
class Score:
    """U = sum of w_s (P_s - theta Q_s): the matrices of P and Q, (k, k), and what cells are expected.

    ``expected`` takes noisy counts (..., S, k) and theta (..., 1) to expected ones, none below 0. What a
    cell's product with itself adds on average, its count and its noise's variance, is taken off. The weights
    are 1/(n + the sum of the noise variances), so that strata of noise alone add nothing.
    """

    top: Floats
    bottom: Floats
    expected: Callable[[Floats, Floats], Floats]
    ratio: bool

    def at(self, counts: Floats, variances: Floats, theta: Floats) -> tuple[Floats, Floats]:
        """Return U_s and Var U_s, (..., S) both, at effects theta (..., 1) of counts (..., S, k)."""
        form = self.top - theta[..., None, None] * self.bottom
        weights = 1 / (np.maximum(counts.sum(axis=-1), LEAST) + variances.sum(axis=-1))
        found = _unbiased(form, counts, variances)
        cells = self.expected(counts, theta)
        spread = (cells + variances)[..., None] * np.eye(counts.shape[-1])
        sizes = np.maximum(cells.sum(axis=-1), LEAST)[..., None, None]
        spread = spread - cells[..., :, None] * cells[..., None, :] / sizes
        moved = form @ spread
        slope = (form @ cells[..., None])[..., 0]
        variance = ((spread @ slope[..., None])[..., 0] * slope).sum(axis=-1)
        variance = variance + (moved * np.swapaxes(moved, -1, -2)).sum(axis=(-1, -2)) / 2
        return weights * found / 2, weights**2 * variance

    def excess(self, counts: Floats, variances: Floats, z: float) -> Callable[[Floats], Floats]:
        """Return U^2 - z^2 Var U of strata (S, k) together, (t,), as a function of effects (t,)."""

        def excess(theta: Floats) -> Floats:
            each = np.broadcast_to(counts, (len(theta), *counts.shape))
            score, variance = self.at(each, variances, theta[:, None])
            return np.asarray(score.sum(axis=-1) ** 2 - z**2 * variance.sum(axis=-1))

        return excess

    def pooled(self, counts: Floats, variances: Floats) -> Floats:
        """Return the effect at which all strata's U add up to 0, (...); NaN where there is none."""
        weights = 1 / (np.maximum(counts.sum(axis=-1), LEAST) + variances.sum(axis=-1))
        top, bottom = (
            (weights * _unbiased(form, counts, variances)).sum(axis=-1) for form in (self.top, self.bottom)
        )
        value = np.divide(top, bottom, out=np.full_like(top, np.nan), where=bottom > 0)
        return np.asarray(np.maximum(value, 0.0) if self.ratio else np.clip(value, -1.0, 1.0))

    def by_answer(self, inverse: Floats, mixing: Floats) -> "Score":
        """Return the score of cells by randomised answer, of which ``inverse`` (k, l) makes groups' cells.

        ``mixing`` (l, k) makes cells by answer of groups' own (docs/mathematics/randomised-columns.md).
        """

        def expected(counts: Floats, theta: Floats) -> Floats:
            own = counts @ inverse.T
            return np.maximum(counts + (self.expected(own, theta) - own) @ mixing.T, 0.0)

        top, bottom = (inverse.T @ form @ inverse for form in (self.top, self.bottom))
        return Score(top, bottom, expected, self.ratio)

    def estimate(self, counts: Floats, variances: Floats, level: float) -> Estimated:
        """Estimate what strata (S, k) have in common, with an interval of confidence 1 - level."""
        z, pooled = float(-ndtri(level / 2)), float(self.pooled(counts, variances))
        if math.isnan(pooled):  # noise alone is to be seen of one group, or of the event
            return Estimated(None, None, None) if self.ratio else Estimated(None, -1.0, 1.0)
        value, edge = pooled, math.log(RATIO_MAX)
        values = np.exp(np.linspace(-edge, edge, STEPS)) if self.ratio else np.linspace(-1.0, 1.0, STEPS)
        if 0 < abs(value) < RATIO_MAX:
            values = np.sort(np.append(values, value))

        excess = self.excess(counts, variances, z)
        inside = np.flatnonzero(excess(values) <= 0)
        if not len(inside):  # the best value lies beyond what is looked at
            return Estimated(value, None, None) if self.ratio else Estimated(value, value, value)

        def end(inner: int, outer: int) -> float | None:
            if not 0 <= outer < len(values):
                return None if self.ratio else float(values[inner])
            within, without = float(values[inner]), float(values[outer])
            for _ in range(HALVINGS):
                middle = (within + without) / 2
                within, without = (
                    (middle, without) if excess(np.array([middle]))[0] <= 0 else (within, middle)
                )
            return within

        first, last = int(inside[0]), int(inside[-1])
        return Estimated(value, end(first, first - 1), end(last, last + 1))


class FixedScore(Score):
    """A score whose expected cells no effect changes: U is linear in it, Var U quadratic."""

    def excess(self, counts: Floats, variances: Floats, z: float) -> Callable[[Floats], Floats]:
        """Return U^2 - z^2 Var U as a function of effects: it is evaluated at three."""
        each = np.broadcast_to(counts, (3, *counts.shape))
        found = self.at(each, variances, np.array([[-1.0], [0.0], [1.0]]))
        score, variance = (
            Polynomial((own[1], (own[2] - own[0]) / 2, (own[0] + own[2]) / 2 - own[1]))
            for own in (part.sum(axis=-1) for part in found)
        )
        return lambda theta: np.asarray(score(theta) ** 2 - z**2 * variance(theta))


def _unbiased(form: Floats, counts: Floats, variances: Floats) -> Floats:
    """Return x'F x (...) of counts (..., k), less what cells' products with themselves add on average."""
    own = np.diagonal(form, axis1=-2, axis2=-1)
    products = ((counts[..., None, :] @ form)[..., 0, :] * counts).sum(axis=-1)
    return np.asarray(products - (own * (counts + variances)).sum(axis=-1))


def products(cells: int, *pairs: tuple[int, int, float]) -> Floats:
    """Return B of x'B x/2, a sum of products of different cells, each with its coefficient.

    Raises:
        ValueError: a cell is multiplied by itself: its noise would not cancel.
    """
    found = np.zeros((cells, cells))
    for one, other, coefficient in pairs:
        if one == other:
            raise ValueError("products are of different cells")
        found[one, other] += coefficient
        found[other, one] += coefficient
    return found


def spread_difference(
    variances: Floats, covariance: Floats, level: float, largest: float = 1.0
) -> tuple[float, float, float]:
    """Return the difference of two standard deviations with its interval, from two noisy variances, (2,).

    Each variance has its normal interval, cut to [0, ``largest``]; the roots' distances from their intervals'
    ends add up as standard errors do (Zou and Donner, 2008), with the correlation of ``covariance``, (2, 2).
    """
    one, other = root_intervals(variances, np.diag(covariance), level, largest)
    both = math.sqrt(float(covariance[0, 0] * covariance[1, 1]))
    shared = float(covariance[0, 1]) / both if both > 0 else 0.0

    def end(low: float, high: float) -> float:
        return math.sqrt(max(low**2 + high**2 - 2 * shared * low * high, 0.0))

    difference = one[0] - other[0]
    lower = difference - end(one[0] - one[1], other[2] - other[0])
    return difference, lower, difference + end(one[2] - one[0], other[0] - other[1])


def root_intervals(
    variances: Floats, errors: Floats, level: float, largest: float = 1.0
) -> list[tuple[float, float, float]]:
    """Return roots of noisy variances with their intervals; ``errors`` are the variances' own variances."""
    half = -ndtri(level / 2) * np.sqrt(errors)
    ends = (variances, variances - half, variances + half)
    values, lower, upper = (np.sqrt(np.clip(end, 0.0, largest)) for end in ends)
    return list(zip(values.tolist(), lower.tolist(), upper.tolist(), strict=True))


def estimated(effects: Effects, level: float, kind: str, scale: float = 1.0) -> Estimated:
    """Return an effect as it is stated: differences times ``scale``, the root of a ratio of variances."""
    found = effects.common(level)
    if found is None:
        return Estimated(None, None, None)
    value, lower, upper = found
    if kind.endswith("difference"):
        value, lower, upper = (
            min(1.0, max(-1.0, end / 2 if kind == "mean difference" else end)) for end in found
        )
        return Estimated(scale * value, scale * lower, scale * upper)
    root = math.sqrt if kind == "standard deviation ratio" else float
    value, lower, upper = (root(max(end, 0.0)) for end in found)
    return Estimated(value, lower, upper if upper < RATIO_MAX else None)


PVALUE_MIN = float(np.finfo(np.float64).tiny)
"""p-values are never 0: the smallest normal float64 stands for anything below it."""


def laplace_widening(level: float) -> float:
    """Return by what to multiply a noise's variance for normal intervals to hold at a level, at least 1.

    That of two independent Laplace numbers, |x| of whose sum exceeds q scales with probability
    e^-q (1 + q/2): in every effect there are as many, and more make a sum more normal.
    """
    q = float(brentq(lambda x: math.exp(-x) * (1 + x / 2) - level, 0.0, 800.0))
    return max(1.0, (q / 2 / float(-ndtri(level / 2))) ** 2)


def holm(pvalues: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Holm's step-down adjusted p-values, (m,): valid whatever the dependence."""
    order = np.argsort(pvalues)
    steps = pvalues[order] * np.arange(len(pvalues), 0, -1)
    adjusted = np.empty(len(pvalues))
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(steps))
    return adjusted


def sidak(smallest: float, comparisons: int) -> float:
    """P(the smallest of as many independent p-values <= ``smallest``): 1 - (1 - p)^m, without cancellation.

    For Gaussian vectors with any correlation it is an upper bound: the events |z_j| <= c, and ellipsoids in
    groups of coordinates, are symmetric convex sets, and the Gaussian correlation inequality (Royen 2014)
    gives P(all) >= product of P(each).
    """
    if smallest >= 1.0:
        return 1.0
    return max(PVALUE_MIN, float(-np.expm1(comparisons * np.log1p(-smallest))))
