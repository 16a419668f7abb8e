"""P2's mixture of Gaussians, with its kernel mean embedding in closed form."""

import functools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.spatial.distance import cdist

Floats = npt.NDArray[np.float64]

LOWER, UPPER = -900.0, 1100.0
"""Public bounds of every column: five standard deviations of the components' means on both sides."""

SIDE = UPPER - LOWER
COMPONENTS = 10


@dataclass(frozen=True)
class Mixture:
    """Spherical Gaussians in [0, 1]^D: ``weights`` (C,), ``means`` (C, D), one standard deviation."""

    weights: Floats
    means: Floats
    deviation: float

    @property
    def columns(self) -> int:
        """Number of columns D."""
        return int(self.means.shape[1])

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Draw n rows, (n, D)."""
        which = rng.choice(len(self.weights), n, p=self.weights)
        return np.asarray(self.means[which] + self.deviation * rng.standard_normal((n, self.columns)))

    def embedding(self, points: Floats, bandwidth: float) -> Floats:
        """Return E k(X, t) at every point t, (J,), for the Gaussian kernel of that bandwidth."""
        return np.asarray(self._smoothed(points, bandwidth, bandwidth**2 + self.deviation**2) @ self.weights)

    def norm_sqr(self, bandwidth: float) -> float:
        """Return the squared RKHS norm of the embedding, E k(X, X')."""
        pairs = self._smoothed(self.means, bandwidth, bandwidth**2 + 2 * self.deviation**2)
        return float(self.weights @ pairs @ self.weights)

    def second_moment(self, points: Floats, bandwidth: float) -> Floats:
        """Return E k(X, s) k(X, t) for every pair of points, (J, J).

        The product of two Gaussians is one around their middle: k(x, s) k(x, t) = k(s, t)^(1/2) c(x), where
        c has the variance bandwidth^2 / 2.
        """
        half = bandwidth / math.sqrt(2)
        squared = cdist(points, points, "sqeuclidean")
        total = np.zeros_like(squared)
        for weight, mean in zip(self.weights, self.means, strict=True):
            centred = points - mean
            own = np.sum(centred**2, axis=1)
            middles = (2 * own[:, None] + 2 * own[None, :] - squared) / 4
            total += weight * self._bump(middles, half, half**2 + self.deviation**2)
        return np.asarray(np.exp(-squared / (4 * bandwidth**2)) * total)

    def _smoothed(self, points: Floats, bandwidth: float, variance: float) -> Floats:
        """Return the kernel around each component's mean, convolved until its variance is ``variance``."""
        return self._bump(cdist(points, self.means, "sqeuclidean"), bandwidth, variance)

    def _bump(self, squared: Floats, bandwidth: float, variance: float) -> Floats:
        return np.asarray((bandwidth**2 / variance) ** (self.columns / 2) * np.exp(-squared / (2 * variance)))


@functools.cache
def p2_mixture(columns: int) -> Mixture:
    """Return the mixture of P2's experiments, with the means that its published code draws.

    Means N(100, 200^2) from NumPy's legacy generator with seed 0, deviation 30, weights like 1, ..., 1/10.
    Raises ValueError where a mean is within 8 deviations of a bound: clipping would then count.
    """
    drawn = np.random.RandomState(0).normal(100, 200, (COMPONENTS, columns))
    means = (drawn - LOWER) / SIDE
    weights = 1 / np.arange(1, COMPONENTS + 1)
    mixture = Mixture(weights / weights.sum(), means, 30 / SIDE)
    if min(means.min(), 1 - means.max()) < 8 * mixture.deviation:
        raise ValueError("a component is too near to a bound")
    return mixture


def p2_bandwidth(columns: int) -> float:
    """Return P2's: its kernel is exp(-|x - y|^2 / (100^2 D)) in the columns' own units."""
    return 100 * math.sqrt(columns / 2) / SIDE
