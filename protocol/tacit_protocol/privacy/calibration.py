"""From a budget to a noise level, and back, by the exact privacy curves. docs/mathematics/privacy.md.

A mechanism is mu-Gaussian differentially private when telling two neighbours apart is no easier than telling
N(0, 1) from N(mu, 1). Gaussian noise of standard deviation sigma on a query of L2 sensitivity Delta has
mu = Delta / sigma, and mechanisms compose by adding mu squared.
"""

import math
from functools import lru_cache

import numpy as np
from scipy.special import erfcinv, erfcx, erfinv, ndtr

CALIBRATION_SLACK = 1e-9
"""Relative part of mu that calibration gives away, so that a mu split over several queries and rounded a few
times on the way (1e-15 each) still composes within the budget it came from."""

CALIBRATIONS_KEPT = 256
"""Calibrations remembered: every check of a release, and so every upload, asks for its study's again."""

SMALL_MU = 0.25
"""Below it the curve is integrated rather than subtracted: the difference would lose digits like 1/mu."""

ROUNDING = 32 * 2.0**-53
"""Relative rounding error allowed for one evaluation of erfcx, exp and a few products."""

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(12)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta for which mu-Gaussian differential privacy implies (epsilon, delta).

    The exact curve Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2) of Balle and Wang (2018),
    theorem 8. ``epsilon`` >= 0 and ``mu`` >= 0, both finite; the result lies in [0, 1].

    >>> round(gaussian_delta(1.0, 1.0), 12)
    0.126936737507
    """
    _require_epsilon(epsilon)
    if not (math.isfinite(mu) and mu >= 0):
        raise ValueError("mu must be a finite number, zero or more")
    return _curve(epsilon, mu)[0]


def gaussian_delta_bound(epsilon: float, mu: float) -> float:
    """Return gaussian_delta plus a bound on its rounding error: never below the exact curve."""
    delta = gaussian_delta(epsilon, mu)
    return min(1.0, delta + _curve(epsilon, mu)[1])


@lru_cache(CALIBRATIONS_KEPT)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return a mu for which mu-Gaussian differential privacy implies (epsilon, delta).

    Less than the largest such mu by at most a few parts in 10^9, and never more than it. Raises ValueError
    where epsilon is negative or not finite, or delta is not inside (0, 1): no Gaussian noise has delta = 0.

    >>> gaussian_delta(1.0, gaussian_mu(1.0, 1e-5)) <= 1e-5
    True
    """
    _require_epsilon(epsilon)
    if delta == 0:
        raise ValueError("Gaussian noise cannot give delta = 0: state a positive delta, or use Laplace noise")
    if not 0 < delta < 1:
        raise ValueError("delta must lie strictly between 0 and 1")
    low, high = 0.0, 1.0
    while gaussian_delta_bound(epsilon, high) <= delta:
        low, high = high, 2 * high
    while high - low > CALIBRATION_SLACK * high / 1024:
        middle = (low + high) / 2
        if gaussian_delta_bound(epsilon, middle) <= delta:
            low = middle
        else:
            high = middle
    return low * (1 - CALIBRATION_SLACK)


def laplace_multiplier(epsilon: float) -> float:
    """Return the scale of Laplace noise, in units of the L1 sensitivity, that gives (epsilon, 0)."""
    _require_epsilon(epsilon)
    if epsilon == 0:
        raise ValueError("epsilon must be positive: no noise is wide enough for zero")
    return (1 / epsilon) * (1 + CALIBRATION_SLACK)


PURE_MU_SLACK = 1e-12
"""Relative part added to a mu that an inverse error function gave: its rounding is below 1e-14."""

PURE_EPSILON_EXACT_MAX = 500.0
"""Beyond it mu = sqrt(8 epsilon) is taken, which is never less: exp(-epsilon) would lose its digits."""


def pure_mu(epsilon: float) -> float:
    """Return a mu for which every (epsilon, 0)-private mechanism is mu-Gaussian private, rounded up.

    The least one is 2 Phi^-1(e^epsilon / (1 + e^epsilon)): there the Gaussian trade-off curve, which is
    convex, passes through the kink of the pure one and lies below its two straight lines. About 1.2533
    epsilon where epsilon is small; at most sqrt(8 epsilon), as Phi(-t) <= exp(-t^2/2)/2.

    >>> round(pure_mu(0.01), 6), round(pure_mu(1.0), 6)
    (0.012533, 1.232035)
    """
    _require_epsilon(epsilon)
    if epsilon > PURE_EPSILON_EXACT_MAX:
        return math.sqrt(8 * epsilon) * (1 + PURE_MU_SLACK)
    if epsilon <= 1:
        argument = float(erfinv(math.tanh(epsilon / 2)))
    else:
        argument = float(erfcinv(2 * math.exp(-epsilon) / (1 + math.exp(-epsilon))))
    return 2 * math.sqrt(2) * argument * (1 + PURE_MU_SLACK)


def _require_epsilon(epsilon: float) -> None:
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError("epsilon must be a finite number, zero or more")


def _curve(epsilon: float, mu: float) -> tuple[float, float]:
    """Return delta and a bound on its absolute rounding error.

    With u = epsilon/mu - mu/2, v = epsilon/mu + mu/2, and Mills' ratio M(x) = Phi(-x)/phi(x), exp(epsilon)
    phi(v) = phi(u), so delta = phi(u) (M(u) - M(v)): nothing overflows and no large exponent is lost.
    """
    if mu == 0:
        return 0.0, 0.0
    ratio = epsilon / mu
    if math.isinf(ratio):
        return 0.0, 0.0
    lower, upper = ratio - mu / 2, ratio + mu / 2
    exponent_error = ROUNDING * (1 + abs(lower) * ratio)
    if mu < SMALL_MU:
        points = ratio + _NODES * (mu / 2)
        slopes = 1 - points * _mills(points)
        delta = _density(lower) * float(_NODE_WEIGHTS @ slopes) * (mu / 2)
        return _bounded(delta, delta * (exponent_error + ROUNDING * (1 + upper * upper)))
    subtracted = _density(lower) * float(_mills(np.float64(upper)))
    kept = float(ndtr(-lower))
    return _bounded(kept - subtracted, (kept + subtracted) * exponent_error)


def _bounded(delta: float, error: float) -> tuple[float, float]:
    return min(max(delta, 0.0), 1.0), error


def _density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _mills(x: np.ndarray | np.float64) -> np.ndarray:
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2)))
