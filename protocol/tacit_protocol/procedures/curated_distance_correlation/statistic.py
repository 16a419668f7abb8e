"""What noisy roots tell of a distance covariance and correlation, with intervals, and a test without more.

T and the S's are V-statistics of n independent units: besides the noise there is their sampling error, of
which only bounds are used, so that intervals cover more often than they say.
"""

import math
from dataclasses import dataclass

from scipy.special import ndtri

from tacit_protocol.procedures.curated_distance_correlation.release import covariance_sensitivity

ROOT_MAX = 0.5
"""Largest T and S: of distances in [0, 1] the distance variance is 1/4 at most."""

COVARIANCE_PART = 0.8
"""Of an interval's error probability, for the covariance; the rest in halves for the two deviations."""

NOISE_PART = 0.1
"""Of the test's level, for the noise; the rest for the sampling error."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class NoisyRoots:
    """Noisy T, S_x, S_y with the standard deviations of their noise.

    ``line`` is whether a side is a single numeric column.
    ``mean_distances`` bound E d(X, X') and E d(Y, Y') over all laws: :func:`mean_distance_max`.
    """

    units: int
    values: tuple[float, float, float]
    noise: tuple[float, float, float]
    mean_distances: tuple[float, float]
    line: bool


@dataclass(frozen=True)
class CuratedDistance:
    """Estimates. ``covariance_sqr`` is unbiased for the units' own V-statistic, and may be negative.

    ``covariance`` and ``correlation`` are intervals for the population, ``held`` for the correlation of the
    units that are held, counting the noise alone. Those of a correlation are None where a deviation is lost
    in its noise.
    """

    covariance_sqr: float
    covariance: Interval
    variances: tuple[float, float]
    correlation_value: float | None
    correlation: Interval | None
    held: Interval | None
    bias_max: float


def mean_distance_max(numeric: int, categorical: int) -> float:
    """Bound E d(Z, Z') over all laws, d averaging columns: 1/2 for one number, 1/sqrt 2 for several.

    >>> mean_distance_max(1, 0), mean_distance_max(0, 2)
    (0.5, 1.0)
    """
    numbers = 0.5 if numeric == 1 else math.sqrt(0.5)
    return (numeric * numbers + categorical) / (numeric + categorical)


def estimate(found: NoisyRoots, level: float) -> CuratedDistance:
    """Estimate from noisy roots; intervals cover with probability 1 - ``level`` in large samples, or more."""
    n = found.units
    boxes = _boxes(found, level, sampling=True)
    biases = [2 * min(found.mean_distances) / n, *(2 * mean / n for mean in found.mean_distances)]
    covariance, *deviations = (_population(box, bias, n) for box, bias in zip(boxes, biases, strict=True))
    held = [(low**2, high**2) for low, high in _boxes(found, level, sampling=False)]
    squares = [value * abs(value) - noise**2 for value, noise in zip(found.values, found.noise, strict=True)]
    # Where the noise alone could hide a deviation, a quotient by it says nothing.
    known = all(low > 0 for low, _ in held[1:]) and min(squares[1:]) > 0
    return CuratedDistance(
        covariance_sqr=squares[0],
        covariance=covariance,
        variances=(max(0.0, squares[1]), max(0.0, squares[2])),
        correlation_value=_quotient(squares[0], squares[1], squares[2]) if known else None,
        correlation=_correlations(covariance, deviations) if known else None,
        held=_correlations(held[0], held[1:]) if known else None,
        bias_max=biases[0],
    )


def rejects(found: NoisyRoots, level: float) -> bool:
    """Test independence by the noisy T alone; the level holds at every n.

    Under independence E T^2 = (n - 1)/n^2 E d(X, X') E d(Y, Y'), and T exceeds E T by t with probability at
    most exp(-2 t^2/(n c^2)), c its sensitivity (McDiarmid).
    """
    n = found.units
    expected = math.sqrt((n - 1) * math.prod(found.mean_distances)) / n
    sampling = math.log(1 / ((1 - NOISE_PART) * level))
    above = covariance_sensitivity(n, found.line) * math.sqrt(n * sampling / 2)
    return found.values[0] > expected + above + _z(NOISE_PART * level) * found.noise[0]


def _boxes(found: NoisyRoots, level: float, *, sampling: bool) -> list[Interval]:
    """Return intervals of T, S_x and S_y that hold together, for their expectations or for what is held.

    The asymptotic variance of T is at most 2 min(S_x, S_y)/n, that of an S at most 2 S/n.
    """
    rest = (1 - COVARIANCE_PART) * level / 2
    upper = [
        min(ROOT_MAX, max(0.0, value) + _z(rest) * noise)
        for value, noise in zip(found.values[1:], found.noise[1:], strict=True)
    ]
    spreads = [2 * deviation / found.units for deviation in (min(upper), *upper)]
    boxes = []
    for value, noise, spread, part in zip(
        found.values, found.noise, spreads, (COVARIANCE_PART * level, rest, rest), strict=True
    ):
        reach = _z(part / 2) * math.sqrt(noise**2 + (spread if sampling else 0.0))
        low, high = value - reach, value + reach
        boxes.append((min(ROOT_MAX, max(0.0, low)), min(ROOT_MAX, max(0.0, high))))
    return boxes


def _population(box: Interval, bias: float, units: int) -> Interval:
    """Return what a root's interval says of the population's square D.

    The expected square of a V-statistic lies between (1 - 1/n)^2 D and that plus the bias.
    """
    shrinking = (1 - 1 / units) ** 2
    return max(0.0, box[0] ** 2 - bias) / shrinking, min(ROOT_MAX**2, box[1] ** 2 / shrinking)


def _correlations(covariance: Interval, variances: list[Interval]) -> Interval:
    low = _quotient(covariance[0], variances[0][1], variances[1][1])
    smallest = (variances[0][0], variances[1][0])
    return low, _quotient(covariance[1], *smallest) if min(smallest) > 0 else 1.0


def _quotient(covariance: float, first: float, second: float) -> float:
    scale = math.sqrt(first * second)
    return math.sqrt(min(1.0, max(0.0, covariance) / scale)) if scale > 0 else 0.0


def _z(part: float) -> float:
    return -float(ndtri(part))
