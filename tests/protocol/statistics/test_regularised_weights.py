"""Theorem 8's weights: inside the ball, at a certified optimum, and closer than any rival."""

import numpy as np
import pytest
from scipy.optimize import linprog, minimize

from tacit_protocol.numerics.simplex_weights import (
    GAP_SHARE,
    CrossPolytope,
    duality_gap,
    fit_regularised,
    fit_simplex,
)

RNG = np.random.default_rng(5)
FEATURES = RNG.normal(size=(12, 7)) / np.sqrt(7)
TARGET = RNG.normal(size=7)


@pytest.fixture(autouse=True)
def _same_draws() -> None:
    """A test draws the same whatever ran before it."""
    RNG.bit_generator.state = np.random.default_rng(5).bit_generator.state


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


def test_projection_on_the_ball_is_nearest() -> None:
    """Against 2000 members drawn at random; members stay where they are."""
    ball, point = CrossPolytope(1.0), 2 * RNG.normal(size=5)
    nearest = ball.project(point)
    members = RNG.dirichlet(np.ones(6), 2000)[:, :5] * RNG.choice([-1, 1], (2000, 5))
    assert np.abs(nearest).sum() == pytest.approx(1)
    assert np.sum((point - nearest) ** 2) <= np.min(np.sum((point - members) ** 2, axis=1)) + 1e-12
    assert np.array_equal(ball.project(members.T), members.T)


def test_with_one_as_bound_the_weights_match_at_least_as_well_as_probabilities() -> None:
    signed = fit_regularised(FEATURES, TARGET, 1e-4, 1.0)
    probabilities = fit_simplex(FEATURES, TARGET, 1e-4)
    assert signed.squared_distance <= probabilities.squared_distance + 1e-9
    assert signed.weights.min() < 0


@pytest.mark.parametrize("radius", [0.0, -1.0, np.inf, np.nan])
def test_a_bound_that_bounds_nothing_is_refused(radius: float) -> None:
    with pytest.raises(ValueError, match="positive and finite"):
        fit_regularised(FEATURES, TARGET, 1e-3, radius)
