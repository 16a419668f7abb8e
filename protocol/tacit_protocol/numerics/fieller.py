"""Effects of several owners from scores whose variance is a polynomial of the effect, and Fieller's interval.

U(theta) = sum over owners of w (top - theta bottom) has mean 0 at the theta that owners have in common. What
varies by sampling or noise is listed with its gradients, so that Var U = c0 + c1 theta + c2 theta^2 follows;
the interval is {theta: U^2 <= z^2 Var U} (Fieller, 1954). docs/mathematics/group-comparison.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
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
