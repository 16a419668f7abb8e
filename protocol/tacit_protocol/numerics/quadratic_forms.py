"""Tail probabilities and quantiles of Q = sum_j w_j chi2(d_j) + N(0, sigma^2), all independent.

The null law of a quadratic form in normals: no Monte Carlo and no moment matching, but an inversion with a
checked error. With K(z) = -1/2 sum_j d_j log(1 - 2 w_j z) + sigma^2 z^2 / 2 and any c > 0 where K is finite,

    P(Q > t) = 1/(2 pi i) integral exp(K(z) - z t) dz / z     over Re z = c, upward.

The line is moved to the c where the integrand is least, the saddle point, and bent into a hyperbola, so that
nothing cancels and the trapezoidal rule converges geometrically: the relative error is small however small
the probability. Derivation and error bound: docs/mathematics/null-distributions.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import expit

Floats = npt.NDArray[np.float64]
Complexes = npt.NDArray[np.complex128]

RELATIVE_ERROR_MAX = 1e-10
"""Largest error estimate, relative to the probability, with which a result is returned."""

AGREEMENT = 1e-11
"""Relative difference between two steps of the trapezoidal rule at which the finer one is taken. Its own
error is far smaller: halving the step squares the error."""

BEND = 0.5
"""Angle in radians between the hyperbola's arms and the vertical: below pi/4, where the normal part's
exp(sigma^2 z^2 / 2) would stop decaying."""

FIRST_STEP = 0.25
"""First step of the trapezoidal rule. Around the contour the integrand is analytic in a strip of half width
0.7, and decays in 0.28 of it or more, so halving the step squares the error; it is halved until two agree."""

HALVINGS_MAX = 7
"""Halvings of the step before a contour is given up: a step of 1/512, some 40 000 nodes at the very most."""

NEGLIGIBLE = 1e-18
"""Integrand, relative to its value at the saddle, at which the contour is cut off."""

REACH_MAX = 96.0
"""Longest contour, in the variable u: exp(-u/2), the slowest decay (one degree of freedom), is 1e-21."""

GROWTH_MAX = 1.0
"""A contour on which the integrand's logarithm rises so far above the saddle would cancel: try another."""

BLOCK = 16
"""Nodes evaluated at once while the length of the contour is being found."""

BISECTIONS = 32
"""Halvings of the saddle's bracket, at most 740 wide in log odds: the saddle need not be met exactly."""

LOG_ODDS_MAX = 34.0
"""Closest approach to the branch point, 1e-15 of its distance from 0: a saddle nearer has no visible tail."""

ELEMENTS_MAX = 2**19
"""Most (t, node, weight) triples evaluated at once: some 60 MB of working memory."""

LOG_TINY = math.log(np.finfo(np.float64).tiny)


class NullDistributionError(ArithmeticError):
    """A tail probability could not be computed to the stated error. Report the weights' number and spread."""


@dataclass(frozen=True)
class QuadraticForm:
    """The law of sum_j weights_j chi2(degrees_j) + N(0, sigma^2); weights not zero, degrees >= 1."""

    weights: Floats
    degrees: Floats
    sigma: float

    @property
    def mean(self) -> float:
        """The expectation."""
        return float(self.degrees @ self.weights)

    def negated(self) -> "QuadraticForm":
        """Return the law of -Q."""
        return QuadraticForm(-self.weights, self.degrees, self.sigma)

    def cumulant(self, z: Complexes) -> Complexes:
        """Return K(z) elementwise, off the cuts on the real axis; no digits are lost near a modulus of 1."""
        w = -2 * z[..., None] * self.weights
        x, y = w.real, w.imag
        modulus = np.hypot(1 + x, y)
        near = (modulus > 0.7) & (modulus < 1.4)
        small_x, small_y = np.where(near, x, 0.0), np.where(near, y, 0.0)
        logs = 0.5 * np.log1p(small_x * (2 + small_x) + small_y**2)
        np.log(modulus, out=logs, where=~near)
        log_determinant = (logs + 1j * np.arctan2(y, 1 + x)) @ self.degrees
        return np.asarray((self.sigma * z) ** 2 / 2 - 0.5 * log_determinant)

    def exponent(self, c: Floats) -> Floats:
        """Return K(c) elementwise for real c."""
        logs = np.log1p(-2 * c[..., None] * self.weights)
        return np.asarray((self.sigma * c) ** 2 / 2 - 0.5 * (logs @ self.degrees))

    def slope(self, c: Floats) -> Floats:
        """Return K'(c) elementwise for real c."""
        inner = self.weights / (1 - 2 * c[..., None] * self.weights)
        return np.asarray(inner @ self.degrees + self.sigma**2 * c)

    def relative_curvature(self, c: Floats) -> Floats:
        """Return c^2 K''(c) elementwise for real c."""
        inner = c[..., None] * self.weights / (1 - 2 * c[..., None] * self.weights)
        return np.asarray(2 * (inner**2 @ self.degrees) + (self.sigma * c) ** 2)


@dataclass(frozen=True)
class _Saddles:
    """For each t: the least point of exp(K(c) - ct)/c, the saddle's width, and the exponent there."""

    law: QuadraticForm
    t: Floats
    c: Floats
    width: Floats
    exponent: Floats

    def take(self, rows: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> "_Saddles":
        return _Saddles(self.law, self.t[rows], self.c[rows], self.width[rows], self.exponent[rows])


def upper_tail(law: QuadraticForm, t: Floats) -> Floats:
    """Return P(Q > t) for each t >= E Q, never below the smallest positive normal float.

    Relative error at most RELATIVE_ERROR_MAX by the estimate that every result is checked against; raises
    NullDistributionError where no contour reaches it.
    """
    result = np.full(t.shape, np.finfo(np.float64).tiny)
    possible = t < (math.inf if law.sigma > 0 or np.any(law.weights > 0) else 0.0)
    size = max(1, ELEMENTS_MAX // (BLOCK * max(1, law.weights.size)))
    for side in (possible & (t >= 0), possible & (t < 0)):
        rows = np.flatnonzero(side)
        for start in range(0, rows.size, size):
            part = rows[start : start + size]
            saddles = _saddles(law, t[part])
            visible = saddles.exponent + np.log(saddles.c) > LOG_TINY
            values = _probabilities(saddles.take(visible))
            result[part[visible]] = np.maximum(values, result[part[visible]])
    return result


def _saddles(law: QuadraticForm, t: Floats) -> _Saddles:
    """Find the least point of exp(K(c) - ct)/c over c > 0 by bisection of the log odds of c (or its log)."""
    largest = float(np.max(law.weights, initial=0.0))
    edge = 1 / (2 * largest) if largest > 0 else math.inf
    spread = math.sqrt(2 * float(law.weights**2 @ law.degrees) + law.sigma**2)
    start = math.log(1e-3 / spread)
    low = np.full(t.shape, start - math.log(edge) if largest > 0 else start)
    high = np.full(t.shape, LOG_ODDS_MAX if largest > 0 else start + 700.0)

    def point(v: Floats) -> Floats:
        return np.asarray(edge * expit(v) if largest > 0 else np.exp(v))

    with np.errstate(divide="ignore", over="ignore"):
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            c = point(middle)
            below = law.slope(c) - t - 1 / c < 0
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        c = point(low)
        width = c / np.sqrt(law.relative_curvature(c) + 1)
        exponent = law.exponent(c) - c * t - np.log(c)
    return _Saddles(law, t, c, width, exponent)


def _probabilities(saddles: _Saddles) -> Floats:
    """Integrate along the first contour that serves each t; all t have the same sign.

    Arms that turn towards the side where exp(-zt) decays come first.
    """
    result = np.empty(saddles.t.shape)
    waiting = np.arange(saddles.t.size)
    toward = -1.0 if np.any(saddles.t < 0) else 1.0
    for bend in (toward, 0.0, -toward):
        if waiting.size == 0:
            break
        part = saddles.take(waiting)
        values, errors = _integrals(part, bend * BEND)
        rounding = 4 * np.finfo(np.float64).eps * (np.abs(part.c * part.t) + np.abs(part.exponent) + 1)
        good = (values > 0) & (errors + rounding * values <= RELATIVE_ERROR_MAX * values)
        log_scale = part.exponent[good] + np.log(part.width[good] * values[good] / math.pi)
        result[waiting[good]] = np.exp(log_scale)
        waiting = waiting[~good]
    if waiting.size:
        raise NullDistributionError("a tail probability of the null distribution did not converge")
    return result


def _integrals(saddles: _Saddles, angle: float) -> tuple[Floats, Floats]:
    """Return the integral over u >= 0, relative to the saddle, and an estimate of its error, for each t.

    The error is infinite where the contour does not serve: the integrand grows, or does not decay.
    """
    sums, reach, fails = _first_sums(saddles, angle)
    values, errors = FIRST_STEP * sums, np.where(fails, math.inf, 0.0)
    active, step = np.flatnonzero(~fails), FIRST_STEP
    for _ in range(HALVINGS_MAX):
        part = saddles.take(active)
        midpoints: Floats = step * (np.arange(round(reach / step), dtype=np.float64) + 0.5)
        finer = values[active] / 2 + step / 2 * _node_sums(part, midpoints, angle)
        errors[active] = np.abs(finer - values[active])
        values[active] = finer
        active = active[errors[active] > AGREEMENT * np.abs(finer)]
        step /= 2
        if active.size == 0:
            break
    return values, errors


def _first_sums(saddles: _Saddles, angle: float) -> tuple[Floats, float, npt.NDArray[np.bool_]]:
    """Sum the nodes of the first step until the integrand is negligible; say how far, and which t failed."""
    sums = np.zeros(saddles.t.shape)
    fails = np.zeros(saddles.t.shape, dtype=bool)
    reach = 0.0
    while True:
        u: Floats = reach + FIRST_STEP * np.arange(BLOCK, dtype=np.float64)
        heights, terms = _nodes(saddles, u, angle)
        if reach == 0.0:
            terms[:, 0] /= 2
        sums += terms.sum(axis=1)
        fails |= heights.max(axis=1) > GROWTH_MAX
        undecided = (np.exp(np.minimum(heights[:, -1], 0.0)) * math.cosh(u[-1]) > NEGLIGIBLE) & ~fails
        reach += BLOCK * FIRST_STEP
        if reach >= REACH_MAX or not np.any(undecided):
            return sums, reach, fails | undecided


def _node_sums(saddles: _Saddles, u: Floats, angle: float) -> Floats:
    """Sum the integrand over the nodes u, in parts of bounded memory."""
    per_node = max(1, saddles.t.size * saddles.law.weights.size)
    size = max(1, ELEMENTS_MAX // per_node)
    total = np.zeros(saddles.t.shape)
    for start in range(0, u.size, size):
        total += _nodes(saddles, u[start : start + size], angle)[1].sum(axis=1)
    return total


def _nodes(saddles: _Saddles, u: Floats, angle: float) -> tuple[Floats, Floats]:
    """Return the log height of the integrand over the saddle, and the integrand in u; both (t, u)."""
    forward = math.sin(angle) * (np.cosh(u) - 1) + 1j * math.cos(angle) * np.sinh(u)
    speed = math.sin(angle) * np.sinh(u) + 1j * math.cos(angle) * np.cosh(u)
    z = saddles.c[:, None] + saddles.width[:, None] * forward
    log = saddles.law.cumulant(z) - z * saddles.t[:, None] - np.log(z) - saddles.exponent[:, None]
    heights = log.real
    terms = np.exp(np.minimum(heights, GROWTH_MAX) + 1j * log.imag) * speed
    return np.asarray(heights), np.asarray(terms.imag)


TINY = float(np.finfo(np.float64).tiny)
"""The smallest probability ever returned: a p-value of 0 would claim what no computation can know."""

STANDARD_MAX = 1e100
"""Statistics are cut off this many standard deviations out, where every tail is 0 or 1 to the last bit."""

BRACKET_DOUBLINGS = 14
"""A quantile of a probability above 1e-308 lies within 2**14 standard deviations of the mean."""

SMALLEST = 1e-250
"""Quantiles are sought on the scale of asinh(t / 1e-250), so that those near 0 are as exact as any."""

Weights = npt.ArrayLike
Degrees = Sequence[int] | npt.NDArray[np.int64] | None


def survival(t: float, weights: Weights, sigma: float = 0.0, degrees: Degrees = None) -> float:
    """Return P(sum_j weights_j chi2(degrees_j) + N(0, sigma^2) > t).

    ``weights`` are finite, of either sign or zero, at least one; ``degrees`` are whole multiplicities of 1 or
    more, all 1 where not given; ``sigma`` >= 0. The error is below 1e-10 of the probability, of either tail.
    Never 0: at least the smallest positive normal float. Raises ValueError for arguments out of range, and
    NullDistributionError where the stated error cannot be reached.

    >>> round(survival(15.0, [1.0], sigma=2.0, degrees=[5]), 10)
    0.0142747464
    """
    return float(survival_many([t], weights, sigma, degrees)[0])


def survival_many(ts: npt.ArrayLike, weights: Weights, sigma: float = 0.0, degrees: Degrees = None) -> Floats:
    """Return ``survival`` at each of ``ts``, an array of the same shape."""
    t = np.asarray(ts, dtype=np.float64)
    if np.any(np.isnan(t)):
        raise ValueError("a statistic must be a number")
    law, scale = _standard(weights, sigma, degrees)
    if scale == 0:
        return np.where(t < 0, 1.0, TINY)
    with np.errstate(over="ignore"):
        standard = np.clip(np.ravel(t) / scale, -STANDARD_MAX, STANDARD_MAX)
    upper, lower = _tails(law, standard)
    return np.reshape(np.where(standard >= law.mean, upper, 1 - lower), t.shape)


def quantile(p: float, weights: Weights, sigma: float = 0.0, degrees: Degrees = None) -> float:
    """Return the t with ``survival(t) = p``: the upper quantile, for p in (0, 1).

    To 12 digits, unless it lies within 1e-240 standard deviations of 0.

    >>> round(quantile(0.05, [1.0]), 6)
    3.841459
    """
    if not TINY < p < 1:
        raise ValueError("an upper quantile needs a probability strictly between 0 and 1")
    law, scale = _standard(weights, sigma, degrees)
    if scale == 0:
        return 0.0
    from scipy.optimize import brentq  # noqa: PLC0415 (slow to import)

    target = math.log(p) - math.log1p(-p)

    def excess(t: float) -> float:
        upper, lower = _tails(law, np.array([t]))
        if t >= law.mean:
            return math.log(upper[0]) - math.log1p(-upper[0]) - target
        return math.log1p(-lower[0]) - math.log(lower[0]) - target

    reach = 1.0
    for _ in range(BRACKET_DOUBLINGS):
        if excess(law.mean - reach) >= 0 >= excess(law.mean + reach):
            break
        reach *= 2
    low, high = (math.asinh(end / SMALLEST) for end in (law.mean - reach, law.mean + reach))
    root = brentq(lambda s: excess(SMALLEST * math.sinh(s)), low, high, xtol=1e-13, rtol=1e-15)
    return SMALLEST * math.sinh(root) * scale


def _tails(law: QuadraticForm, t: Floats) -> tuple[Floats, Floats]:
    """Return P(Q > t) where t is at least the mean, and P(Q < t) where it is below; NaN elsewhere."""
    upper, lower = np.full(t.shape, math.nan), np.full(t.shape, math.nan)
    above = t >= law.mean
    upper[above] = upper_tail(law, t[above])
    lower[~above] = upper_tail(law.negated(), -t[~above])
    return upper, lower


def _standard(weights: Weights, sigma: float, degrees: Degrees) -> tuple[QuadraticForm, float]:
    """Return the law of Q over its standard deviation, equal weights gathered and zeros dropped, and that."""
    w = np.asarray(weights, dtype=np.float64)
    d = np.ones(w.shape, dtype=np.int64) if degrees is None else np.asarray(degrees)
    if w.ndim != 1 or w.size == 0 or not np.all(np.isfinite(w)):
        raise ValueError("weights must be a vector of one or more finite numbers")
    if d.shape != w.shape or d.dtype.kind not in "iu" or np.any(d < 1):
        raise ValueError("degrees must be whole numbers of 1 or more, one for each weight")
    if not (math.isfinite(sigma) and sigma >= 0):
        raise ValueError("sigma must be a finite number, zero or more")
    largest = max(float(np.max(np.abs(w))), sigma)
    if largest == 0:
        return QuadraticForm(np.zeros(0), np.zeros(0), 0.0), 0.0
    distinct, group = np.unique(w / largest, return_inverse=True)
    multiplicity = np.bincount(group, weights=d)
    distinct, multiplicity = distinct[distinct != 0], multiplicity[distinct != 0]
    spread = math.sqrt(2 * float(distinct**2 @ multiplicity) + (sigma / largest) ** 2)
    return QuadraticForm(distinct / spread, multiplicity, sigma / largest / spread), largest * spread


@dataclass(frozen=True)
class QuadraticLaw:
    """The law of sum_j weights_j chi2(degrees_j) + N(0, sigma^2), all independent.

    ``weights`` (m,) are finite; ``degrees`` (m,) are 1 or more, all 1 where None; ``sigma`` >= 0.
    """

    weights: Floats
    degrees: npt.NDArray[np.int64] | None = None
    sigma: float = 0.0

    def pvalue(self, statistic: float) -> float:
        """Return the probability of a larger statistic; never 0."""
        return survival(statistic, self.weights, self.sigma, self.degrees)

    def tails(self, statistics: Floats) -> Floats:
        """Return the probability of a statistic larger than each of these, in their shape."""
        return survival_many(statistics, self.weights, self.sigma, self.degrees)

    def quantile(self, probability: float) -> float:
        """Return what a statistic exceeds with that probability, in (0, 1)."""
        return quantile(probability, self.weights, self.sigma, self.degrees)
