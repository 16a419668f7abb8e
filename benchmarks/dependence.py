"""Pairs of columns in [0, 1] with known dependence, and columns of several kinds without any."""

import functools
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from benchmarks.problems import chunk_of
from tacit_protocol.features.brownian import BrownianFeatures
from tacit_protocol.numerics.distance_covariance import distance_covariance_sqr

Floats = npt.NDArray[np.float64]
Pair = tuple[Floats, Floats]

GRID = 1000
"""Quantiles of each of the two uniform numbers that a law is made of, for its exact distance covariance."""


def _independent(u: Floats, v: Floats) -> Pair:
    return u, v


def _linear(u: Floats, v: Floats) -> Pair:
    return u, np.clip(u + 0.17 * ndtri(v), 0, 1)


def _quadratic(u: Floats, v: Floats) -> Pair:
    return u, np.clip((2 * u - 1) ** 2 + 0.03 * ndtri(v), 0, 1)


def _circular(u: Floats, v: Floats) -> Pair:
    y = 0.5 + 0.5 * np.sin(2 * np.pi * u) + 0.05 * ndtri(v)
    return 0.5 + 0.5 * np.cos(2 * np.pi * u), np.clip(y, 0, 1)


LAWS: dict[str, Callable[[Floats, Floats], Pair]] = {
    "independent": _independent,
    "linear": _linear,
    "quadratic": _quadratic,
    "circular": _circular,
}
"""Functions of two independent uniform numbers. The noise of linear and quadratic gives the distance
covariances of the methods reference's table, .0340 and .0109."""


def generator(name: str, n: int, run: int) -> np.random.Generator:
    """Return the generator of a run's data: the same for every method."""
    return np.random.default_rng([run, n, zlib.crc32(name.encode())])


def draw(law: str, n: int, run: int) -> Pair:
    """Draw n rows."""
    rng = generator(law, n, run)
    return LAWS[law](rng.random(n), 1 - rng.random(n))


@functools.cache
def _quantiles(law: str) -> Pair:
    middles = (np.arange(GRID) + 0.5) / GRID
    return LAWS[law](np.repeat(middles, GRID), np.tile(middles, GRID))


@functools.cache
def population_value(law: str) -> float:
    """Return the law's squared distance covariance, to about 1e-5: that of a grid of its quantiles."""
    return 0.0 if law == "independent" else distance_covariance_sqr(*_quantiles(law), "biased")


def kept_covariance_sqr(x: Floats, y: Floats, per_direction: int) -> float:
    """Return the unbiased squared distance covariance of two columns in [0, 1] in the leading frequencies.

    4 times the unbiased HSIC with the kernels f'f, f the Brownian features: what the sketch estimates on
    these rows. O(n r^2).
    """
    features = BrownianFeatures(np.ones((1, 1)), per_direction)
    f, g = (features(chunk_of(column[:, None])) for column in (x, y))
    n = len(x)
    own_f, own_g = np.sum(f * f, axis=1), np.sum(g * g, axis=1)
    rows_f, rows_g = f @ f.sum(axis=0) - own_f, g @ g.sum(axis=0) - own_g
    products = float(np.sum((f.T @ g) ** 2) - own_f @ own_g)
    totals = float(rows_f.sum() * rows_g.sum()) / ((n - 1) * (n - 2))
    return 4 * (products + totals - 2 * float(rows_f @ rows_g) / (n - 2)) / (n * (n - 3))


def without_dependence(kind: str, n: int, rng: np.random.Generator) -> tuple[Any, Any, list[Any]]:
    """Return two owners' independent columns, and their public bounds."""
    if kind == "uniform":
        return rng.random(n), rng.random(n), [(0, 1), (0, 1)]
    if kind == "skewed":
        return rng.beta(0.3, 4, n), rng.beta(0.3, 4, n), [(0, 1), (0, 1)]
    if kind == "ties":
        counts = np.minimum(rng.poisson(1.0, (2, n)), 4).astype(np.float64)
        return counts[0], counts[1], [(0, 4), (0, 4)]
    if kind == "vectors":
        # Correlated within each owner, and heavy-tailed.
        x, y = (rng.standard_t(3, (n, columns)) + rng.standard_t(3, (n, 1)) for columns in (3, 2))
        return np.clip(x, -8, 8), np.clip(y, -8, 8), [(-8, 8), (-8, 8)]
    levels = ["a", "b", "c"]
    labels = np.array(levels, dtype=object)[rng.choice(3, n, p=(0.7, 0.25, 0.05))]
    return labels, rng.random(n), [levels, (0, 1)]


KINDS = ("uniform", "skewed", "ties", "vectors", "categories")
