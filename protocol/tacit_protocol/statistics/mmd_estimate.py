"""The effect size: an estimate of the squared maximum mean discrepancy, with an interval that counts noise.

For two owners with d = m_x - m_y, E|d|^2 = MMD^2 + a tr Sigma + b J, where a = 1/n_x + 1/n_y and
b = sigma_x^2 + sigma_y^2; the estimate subtracts both terms. With C = a Sigma + b I, Var |d|^2 =
2 |C|_F^2 + 4 delta' C delta, at most 2 |C|_F^2 + 4 MMD^2 (a L + b) with L the largest eigenvalue; the
interval is the set of MMD^2 within so many standard deviations of the estimate, cut at 0. Upward |d|^2 has a
heavier tail than a normal law, so the lower end takes the quantile of a gamma law with the largest skewness
possible, 4 (a L + b) / sqrt(2 |C|_F^2) (docs/mathematics/kernel-two-sample.md); the upper end a normal one.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincinv, ndtri

from tacit_protocol.statistics.private_means import PrivateMeans


@dataclass(frozen=True)
class Moments:
    """Trace, energy |Sigma|_F^2 and largest eigenvalue of the features' covariance (or bounds on them)."""

    trace: float
    energy: float
    largest: float


@dataclass(frozen=True)
class MmdEstimate:
    """Unbiased estimate of MMD^2 (may be negative) and a two-sided interval (never below 0)."""

    squared_mmd: float
    lower: float
    upper: float


def estimate_mmd(means: PrivateMeans, moments: Moments, confidence: float) -> MmdEstimate:
    """Estimate the squared MMD between two owners. ``confidence`` in (0, 1) is the interval's coverage."""
    a = float(np.sum(1 / means.units))
    b = float(np.sum(means.noise**2))
    dimension = means.dimension
    difference = means.means[0] - means.means[1]
    estimate = float(difference @ difference) - a * moments.trace - b * dimension
    constant = 2 * (a**2 * moments.energy + 2 * a * b * moments.trace + b**2 * dimension)
    slope = 4 * (a * moments.largest + b)
    normal = float(ndtri((1 + confidence) / 2))
    skewed = max(normal, _gamma_quantile((1 + confidence) / 2, slope / float(np.sqrt(constant))))
    lower = _end(estimate, skewed, constant, slope, -1)
    upper = _end(estimate, normal, constant, slope, 1)
    return MmdEstimate(estimate, max(0.0, lower), max(0.0, upper))


def _gamma_quantile(probability: float, skewness: float) -> float:
    """Quantile of a gamma law of mean 0, variance 1 and that positive skewness."""
    shape = 4 / skewness**2
    return float((gammaincinv(shape, probability) - shape) / np.sqrt(shape))


def _end(estimate: float, deviations: float, constant: float, slope: float, side: int) -> float:
    """Solve |estimate - x| = deviations * sqrt(constant + slope x) for the x on that side of the estimate."""
    middle = estimate + deviations**2 * slope / 2
    radius = float(np.sqrt(max(0.0, middle**2 - estimate**2 + deviations**2 * constant)))
    return middle + side * radius
