"""Reduced sets: the gradient, the match, restarts, and what stays where it was."""

import numpy as np
import pytest
from scipy.optimize import approx_fprime

from tacit.database.weights import (
    MovingEmbedding,
    MovingFeatures,
    MovingFourier,
    fit_reduced_set,
    squared_distance,
)
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import Locations, WhitenedMeanEmbedding

RNG = np.random.default_rng(7)


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """A test draws the same whatever ran before it."""
    RNG.bit_generator.state = np.random.default_rng(7).bit_generator.state


def points(count: int, categories: int = 0) -> Locations:
    codes = RNG.integers(0, 2, (count, 1)) if categories else np.empty((count, 0))
    return Locations(RNG.random((count, 2)), codes.astype(np.int32))


def embedding(shape: str, categories: int = 0) -> MovingFeatures:
    kernel = ProductKernel(shape, 0.4, 0.5)  # type: ignore[arg-type]
    return MovingEmbedding(kernel, WhitenedMeanEmbedding(kernel, points(12, categories)))


def fourier() -> MovingFeatures:
    frequencies = RNG.normal(size=(15, 2)) * 3

    def pairs(rows: Locations) -> np.ndarray:
        angles = rows.numeric @ frequencies.T
        return np.concatenate([np.cos(angles), np.sin(angles)], axis=1) / np.sqrt(15)

    return MovingFourier(pairs, frequencies)


MAPS = {
    "gaussian": lambda: embedding("gaussian"),
    "laplacian": lambda: embedding("laplacian"),
    "fourier": fourier,
}


@pytest.mark.parametrize("name", MAPS)
def test_the_gradient_is_that_of_differences(name: str) -> None:
    features, start = MAPS[name](), points(5)
    target = features.values(points(200)).mean(axis=0)
    roots = RNG.random(5) + 0.5

    def distance(values: np.ndarray) -> float:
        return squared_distance(
            features, target, Locations(values[:10].reshape(5, 2), start.categorical), values[10:]
        )[0]

    at = np.concatenate([start.numeric.ravel(), roots])
    numeric = approx_fprime(at, distance, 1e-7)
    assert squared_distance(features, target, start, roots)[1] == pytest.approx(numeric, abs=2e-6)


@pytest.mark.parametrize("name", MAPS)
def test_points_that_moved_match_better_than_points_that_could_not(name: str) -> None:
    features = MAPS[name]()
    target = features.values(points(300)).mean(axis=0)
    start = Locations(RNG.random((6, 2)) / 3, np.empty((6, 0), dtype=np.int32))
    found = fit_reduced_set(features, target, 1e-3, [start])
    assert found.squared_distance < found.started / 20
    assert found.weights.min() >= 0
    assert found.weights.sum() == pytest.approx(1)
    assert 0 <= found.points.numeric.min() <= found.points.numeric.max() <= 1
    gained = found.weights @ features.values(found.points) - target
    assert found.squared_distance == pytest.approx(float(gained @ gained))
