"""What a study can see at best: whether n and epsilon leave any hope, before anything is spent."""

import math

from scipy.special import chdtri, chndtr, ndtri

DETECTABLE_MAX = 1.0
"""A test that cannot see this difference is called hopeless: half of an owner's units moved from one end of a
coordinate to the other (a mean of a cosine or an indicator moving by 1, of the 2 or 1 that it can)."""

POWER = 0.8
"""The chance of seeing the detectable difference."""


def detectable_difference(
    noise: tuple[float, float], units: tuple[int, int], scale: float, level: float
) -> float:
    """Smallest difference of a coordinate's raw means that two owners see with probability POWER.

    ``noise`` are the standard deviations on the owners' means, ``scale`` the coordinate's weight, ``level``
    the level left to it after correction for the other coordinates.
    """
    variance = (noise[0] ** 2 + noise[1] ** 2) / scale**2 + 0.5 / units[0] + 0.5 / units[1]
    quantile = float(ndtri(POWER) - ndtri(level / 2))
    return quantile * math.sqrt(variance)


def detectable_squared_mmd(noise: tuple[float, float], dimension: int, level: float) -> float:
    """Smallest squared MMD that the MMD form sees with probability POWER, from privacy noise alone."""
    energy = noise[0] ** 2 + noise[1] ** 2
    critical = float(chdtri(dimension, level)) * energy
    low, high = 0.0, 16.0 * (critical + energy)
    for _ in range(60):
        middle = (low + high) / 2
        seen = 1 - float(chndtr(critical / energy, dimension, middle / energy))
        low, high = (low, middle) if seen >= POWER else (middle, high)
    return high
