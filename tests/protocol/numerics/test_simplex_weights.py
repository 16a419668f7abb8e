"""Weights from a mean, probabilities or in a ball: a certified gap, and no following of the noise."""

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from tacit_protocol.numerics.simplex_weights import (
    GAP_SHARE,
    CrossPolytope,
    duality_gap,
    fit_regularised,
    fit_simplex,
    project_on_simplex,
)

RNG = np.random.default_rng(5)


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """A test draws the same whatever ran before it."""
    RNG.bit_generator.state = np.random.default_rng(5).bit_generator.state


def test_the_projection_is_the_nearest_probability_vector() -> None:
    """Checked by its optimality condition: v - p is constant where p > 0, and no larger elsewhere."""
    for _ in range(50):
        values = RNG.normal(0, 2, 7)
        found = project_on_simplex(values)
        assert found.min() >= 0
        assert found.sum() == pytest.approx(1)
        rest = values - found
        kept = found > 1e-12
        assert np.ptp(rest[kept]) < 1e-12
        assert np.all(rest[~kept] <= rest[kept].max() + 1e-12)


def test_the_gap_bounds_the_distance_from_the_smallest_value() -> None:
    features, target = RNG.normal(size=(6, 4)), RNG.normal(size=4)
    gram, linear = features @ features.T, features @ target

    def value(weights: np.typing.NDArray[np.float64]) -> float:
        return float(weights @ gram @ weights - 2 * linear @ weights)

    grid = RNG.dirichlet(np.ones(6), 20_000)
    smallest = min(value(weights) for weights in grid)
    for weights in grid[:100]:
        assert value(weights) - smallest <= duality_gap(gram, linear, weights) + 1e-12


def test_of_all_weights_within_the_noise_the_smoothest_are_taken() -> None:
    """Many points, and a mean of equal weights with noise: the closest match is ragged, the fit is not."""
    points = np.linspace(0, 1, 60)
    kernel = np.exp(-((points[:, None] - points[None, :]) ** 2) / (2 * 0.2**2))
    values, vectors = np.linalg.eigh(kernel + 1e-7 * np.eye(60))
    features = (vectors * np.sqrt(values)) @ vectors.T
    noise = 0.01 * RNG.normal(size=60)
    target = features.T @ np.full(60, 1 / 60) + noise
    fit = fit_simplex(features, target, 0.01 * np.sqrt(60))
    ragged = fit_simplex(features, target, 1e-3)
    assert fit.squared_distance <= 0.01**2 * 60
    assert fit.weights.max() < 0.05 < ragged.weights.max()


FEATURES = RNG.normal(size=(12, 7)) / np.sqrt(7)
TARGET = RNG.normal(size=7)


def reference(features: np.ndarray, target: np.ndarray, radius: float) -> float:
    """The smallest squared distance, by a general solver on u = p - q with p, q >= 0."""
    count = len(features)

    def distance(parts: np.ndarray) -> float:
        return float(np.sum((target - features.T @ (parts[:count] - parts[count:])) ** 2))

    inside = {"type": "ineq", "fun": lambda parts: radius - parts.sum()}
    found = minimize(
        distance, np.full(2 * count, 1e-3), bounds=[(0, None)] * (2 * count), constraints=[inside], tol=1e-14
    )
    return float(found.fun)


@pytest.mark.parametrize("radius", [0.3, 1.0, 2.5])
def test_the_fit_is_the_best_in_the_ball_within_its_gap(radius: float) -> None:
    fit = fit_regularised(FEATURES, TARGET, 1e-3, radius)
    assert np.abs(fit.weights).sum() <= radius * (1 + 1e-12)
    assert fit.gap <= GAP_SHARE * 1e-6
    best = reference(FEATURES, TARGET, radius)
    assert fit.squared_distance - fit.gap - 1e-12 <= best
    assert fit.squared_distance == pytest.approx(best, abs=1e-6)


def test_the_gap_is_the_linear_programme_it_claims_to_be() -> None:
    weights, ball = RNG.normal(size=12) / 30, CrossPolytope(1.5)
    gram, linear = FEATURES @ FEATURES.T, FEATURES @ TARGET
    gradient = 2 * (gram @ weights - linear)
    lowest = linprog(np.concatenate([gradient, -gradient]), A_ub=np.ones((1, 24)), b_ub=[1.5]).fun
    assert duality_gap(gram, linear, weights, ball) == pytest.approx(float(gradient @ weights) - lowest)


@pytest.mark.parametrize("radius", [0.0, -1.0, np.inf, np.nan])
def test_a_bound_that_bounds_nothing_is_refused(radius: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        fit_regularised(FEATURES, TARGET, 1e-3, radius)
