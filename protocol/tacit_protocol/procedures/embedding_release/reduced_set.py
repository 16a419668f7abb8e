"""A reduced set: few points and weights whose mean embedding matches a noisy one, points optimised too.

P2's Algorithm 2: min |m - sum_i w_i phi(z_i)|^2 over points in the domain and weights a^2 / sum a^2, from
blind public starts, by L-BFGS-B with the gradient dL/dz_i = -2 w_i d(phi(z_i)'r)/dz_i, dL/da_i = 2 a_i (g_i -
w'g) / sum a^2, g_i = -2 phi(z_i)'r, r the residual. It stops where the distance is down to the noise's own
(Morozov's discrepancy principle). All of this is post-processing (docs/mathematics/database-release.md).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tacit_protocol.features.base import FloatMatrix
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import Locations, WhitenedMeanEmbedding

STEPS_MAX = 300
"""Most steps of one start."""

Floats = npt.NDArray[np.float64]
Progress = Callable[[float], None]


class MovingFeatures(Protocol):
    """A feature map that tells how its values move with the numeric columns."""

    def values(self, rows: Locations) -> FloatMatrix:
        """Return phi, (rows, dimension)."""

    def pullback(self, rows: Locations, values: FloatMatrix, vector: Floats) -> FloatMatrix:
        """Return d(phi(z)'vector)/dz, (rows, numeric columns); ``values`` are phi at the rows."""


class MovingEmbedding:
    """Whitened mean embeddings: psi(z)'v = sum_j c_j k(z, T_j), with c the whitener times v."""

    def __init__(self, kernel: ProductKernel, features: WhitenedMeanEmbedding) -> None:
        self._kernel = kernel
        self._features = features

    def values(self, rows: Locations) -> FloatMatrix:
        """Return psi, (rows, J)."""
        return self._features(rows)

    def pullback(self, rows: Locations, values: FloatMatrix, vector: Floats) -> FloatMatrix:  # noqa: ARG002
        """Return d(psi(z)'vector)/dz, (rows, numeric columns)."""
        places = self._features.locations
        coefficients = np.linalg.solve(self._features.unwhitener, vector)
        shares = self._kernel.gram(rows, places) * coefficients
        if self._kernel.shape == "laplacian":
            signs = np.sign(rows.numeric[:, None, :] - places.numeric[None, :, :])
            return np.asarray(-np.einsum("ij,ijc->ic", shares, signs) / self._kernel.bandwidth)
        towards = shares @ places.numeric - shares.sum(axis=1)[:, None] * rows.numeric
        return np.asarray(towards / self._kernel.bandwidth**2)


@dataclass(frozen=True)
class MovingFourier:
    """Pairs of all cosines and all sines, each times a sign of the categories, at ``frequencies``.

    ``map`` returns them, (rows, 2 F); ``frequencies`` is (F, numeric columns), in radians per unit.
    """

    map: Callable[[Locations], FloatMatrix]
    frequencies: FloatMatrix

    def values(self, rows: Locations) -> FloatMatrix:
        """Return phi, (rows, 2 F)."""
        return self.map(rows)

    def pullback(self, rows: Locations, values: FloatMatrix, vector: Floats) -> FloatMatrix:
        """Return d(phi(z)'vector)/dz, (rows, numeric columns)."""
        count, columns = self.frequencies.shape
        if not columns:
            return np.empty((len(rows), 0))
        cosines, sines = values[:, :count], values[:, count:]
        return np.asarray((cosines * vector[count:] - sines * vector[:count]) @ self.frequencies)


@dataclass(frozen=True)
class ReducedSet:
    """Points, with probability weights (M,), that match the mean up to ``squared_distance``.

    ``started`` is the squared distance at the start that led here, with its equal weights.
    """

    points: Locations
    weights: Floats
    squared_distance: float
    started: float


def fit_reduced_set(
    features: MovingFeatures,
    target: Floats,
    noise_error: float,
    starts: list[Locations],
    progress: Progress | None = None,
) -> ReducedSet:
    """Match a noisy mean from each of several blind starts, and return the nearest match.

    Args:
        features: the map whose mean was released.
        target: the noisy mean, (dimension,).
        noise_error: root mean square of the norm of its noise; a start that comes so near is the last.
        starts: public points, (M,) each: of the domain, in scaled columns.
        progress: called with the part done, in [0, 1].

    Raises ValueError where there is no start, or one has no points.
    """
    if not starts or any(not len(start) for start in starts):
        raise ValueError("a reduced set needs a start of one point at least")
    best: ReducedSet | None = None
    for number, start in enumerate(starts):

        def report(part: float, number: int = number) -> None:
            if progress is not None:
                progress((number + part) / len(starts))

        found = _descend(features, target, noise_error, start, report)
        if best is None or found.squared_distance < best.squared_distance:
            best = found
        if best.squared_distance <= noise_error**2:
            break
    if best is None:
        raise ValueError("a reduced set needs a start of one point at least")
    if progress is not None:
        progress(1.0)
    return best


def _descend(
    features: MovingFeatures, target: Floats, noise_error: float, start: Locations, report: Progress
) -> ReducedSet:
    from scipy.optimize import minimize  # noqa: PLC0415 (slow to import)

    count, columns = start.numeric.shape
    moving = count * columns
    steps = 0

    def unpack(values: Floats) -> tuple[Locations, Floats]:
        return Locations(values[:moving].reshape(count, columns), start.categorical), values[moving:]

    def objective(values: Floats) -> tuple[float, Floats]:
        return squared_distance(features, target, *unpack(values))

    def follow(xk: npt.NDArray[np.float64]) -> None:
        nonlocal steps
        steps += 1
        report(min(1.0, steps / STEPS_MAX))
        if objective(xk)[0] <= noise_error**2:
            raise StopIteration

    first: Floats = np.concatenate([np.clip(start.numeric, 0.0, 1.0).ravel(), np.ones(count)])
    found = minimize(
        objective,
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, 1.0)] * moving + [(-np.inf, np.inf)] * count,
        callback=follow,
        options={"maxiter": STEPS_MAX},
    )
    points, roots = unpack(np.asarray(found.x))
    weights = roots**2 / float(roots @ roots)
    return ReducedSet(points, weights, float(found.fun), objective(first)[0])


def squared_distance(
    features: MovingFeatures, target: Floats, points: Locations, roots: Floats
) -> tuple[float, Floats]:
    """Return |m - sum w phi(z)|^2 for w = roots^2 / sum roots^2, and its gradient: points, then roots."""
    values, total = features.values(points), float(roots @ roots)
    weights = roots**2 / total
    residual = target - weights @ values
    slopes = -2 * (values @ residual)
    by_point = -2 * weights[:, None] * features.pullback(points, values, residual)
    by_root = 2 * roots / total * (slopes - weights @ slopes)
    return float(residual @ residual), np.concatenate([by_point.ravel(), by_root])
