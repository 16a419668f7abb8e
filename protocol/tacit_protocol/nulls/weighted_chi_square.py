"""Tail probabilities and quantiles of weighted sums of chi-squares plus a normal.

The null law of a quadratic form in normals: Q = sum_j w_j chi2(d_j) + N(0, sigma^2), all independent. No
Monte Carlo and no moment matching: an inversion with a checked error (tilted_inversion.py).
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tacit_protocol.nulls.tilted_inversion import Floats, QuadraticForm, upper_tail

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
