"""Noise of the production laws from NumPy's generators: for simulated studies of synthetic data, alone.

It protects nobody: its generator can be guessed and repeated. Services cannot import it, since services and
clients never import each other.
"""

import math

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


class SimulatedNoise:
    """A noise source whose noise has the law of OpenDP's, from a seeded generator.

    Laplace noise is the discrete law itself, a difference of two geometric draws. Gaussian noise is rounded
    to the grid, where production draws the discrete law; releases refuse standard deviations of so few grid
    steps that the difference would count (docs/mathematics/planning.md).
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng

    def gaussian(self, values: Integers, scale: float) -> Integers:
        """Add Gaussian noise of standard deviation ``scale`` (in integer steps) to each value."""
        return values + np.rint(self._rng.normal(0.0, scale, values.shape)).astype(np.int64)

    def laplace(self, values: Integers, scale: float) -> Integers:
        """Add discrete Laplace noise of that scale (in integer steps) to each value."""
        stop = -math.expm1(-1.0 / scale)
        return values + self._rng.geometric(stop, values.shape) - self._rng.geometric(stop, values.shape)

    def choose(self, scores: Integers, scale: float) -> int:
        """Return i with probability proportional to exp(scores[i] / scale)."""
        return int(np.argmax(scores / scale + self._rng.gumbel(size=scores.shape)))
