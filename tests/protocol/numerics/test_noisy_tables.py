"""Noise on cells and on sums of cells: its variance, its bound, its simulation; projections."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit_protocol.numerics.noisy_tables import REACH, CellNoise, onto_simplex, plausible

NOISES = [
    CellNoise("laplace", 2.0),
    CellNoise("gaussian", 3.0),
    CellNoise("laplace", 0.5, 7),
    CellNoise("gaussian", 0.5, 4),
]


@pytest.mark.parametrize("noise", NOISES)
def test_simulated_noise_has_the_stated_variance_and_stays_within_its_bound(noise: CellNoise) -> None:
    drawn = noise.draw(np.random.default_rng(3), (400_000,))
    # Standard errors: .0016 of the mean, and of the variance relative .004 at most; ten of them.
    assert abs(drawn.mean()) < 0.016 * math.sqrt(noise.variance)
    assert drawn.var() == pytest.approx(noise.variance, rel=0.04)
    for outside in (0.1, 0.001):
        beyond = float(np.mean(np.abs(drawn) > noise.half_width(outside)))
        assert beyond <= outside + 10 * math.sqrt(outside / 400_000)


def test_bounds_of_single_noises_are_exact() -> None:
    assert CellNoise("laplace", 2.0).half_width(0.05) == pytest.approx(2 * math.log(20))
    assert CellNoise("gaussian", 2.0).half_width(0.05) == pytest.approx(2 * 1.959963984540054)
    assert CellNoise("gaussian", 1.0, 4).half_width(0.05) == pytest.approx(2 * 1.959963984540054)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=30), st.integers(0, 2**32 - 1))
def test_the_projection_is_the_nearest_probabilities(values: list[float], seed: int) -> None:
    given_values = np.array(values)
    projected = onto_simplex(given_values)
    assert projected.min() >= 0
    assert projected.sum() == pytest.approx(1)
    others = np.random.default_rng(seed).dirichlet(np.ones(len(values)), 50)
    nearest = np.sum((projected - given_values) ** 2)
    assert (np.sum((others - given_values) ** 2, axis=1) >= nearest - 1e-9).all()


@pytest.mark.sweep(4)
@pytest.mark.parametrize("noise", [0.0, 0.015, 0.15, 5.0])
@pytest.mark.parametrize(
    "fitted", [[0.5, 0.3, 0.2, 0.0], [1.0, 0.0, 0.0, 0.0], [0.25] * 4, [0.4, 0.4, 0.1, 0.1]]
)
def test_plausible_probabilities_are_as_near_as_asked(fitted: list[float], noise: float) -> None:
    own = np.array(fitted)
    variances = noise**2 + own * (1 - own) / 1000
    deviation = float(np.sqrt(variances.sum()))
    same, sparse, even = plausible(own, noise**2, 1000)
    assert same is own
    for other in (sparse, even):
        assert other.sum() == pytest.approx(1)
        assert other.min() >= 0
        assert np.linalg.norm(other - own) <= REACH * deviation + 1e-12
    assert sparse @ sparse >= own @ own - 1e-12 >= even @ even - 2e-12
    # Scaling to a sum of 1 moves what a bisection of 50 steps left.
    assert (np.abs(even - own) <= REACH * np.sqrt(variances) + 1e-9).all()
    if noise == 5.0:
        assert even == pytest.approx([0.25] * 4)
