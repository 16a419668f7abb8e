"""Brownian features: their distances, the bounds on them, and a search that catches wrong ones."""

import math

import numpy as np
import pytest
from definitions import Rows

from tacit_protocol.features.brownian import (
    BrownianFeatures,
    crowded_half_width,
    frequencies,
    left_out_variance,
    random_directions,
)
from tacit_protocol.numerics.distance_covariance import projection_constant

Floats = np.typing.NDArray[np.float64]


def rows_of(numeric: Floats, codes: np.typing.NDArray[np.int32] | None = None) -> Rows:
    return Rows(numeric, np.zeros((len(numeric), 0), np.int32) if codes is None else codes)


ONE = np.ones((1, 1))


@pytest.mark.parametrize(("terms", "near"), [(4, 7e-4), (8, 2e-4), (64, 2e-5)])
def test_the_truncated_distance_covariance_approaches_the_exact_one(terms: int, near: float) -> None:
    """X uniform with itself, exactly 2/45 = .04444; from below."""
    x = ((np.arange(20_000) + 0.5) / 20_000)[:, None]
    values = BrownianFeatures(ONE, terms)(rows_of(x))
    centred = values - values.mean(axis=0)
    found = 4 * np.sum((centred.T @ centred / len(x)) ** 2)
    assert 2 / 45 - near < found < 2 / 45


def left_out_trace(places: Floats, weights: Floats, kept: int) -> float:
    """tr Cov of the frequencies beyond ``kept``: E|X - X'|/2 less the kept part."""
    kept_features = BrownianFeatures(ONE, kept)(rows_of(places[:, None]))
    centred = kept_features - weights @ kept_features
    whole = 0.5 * weights @ np.abs(places[:, None] - places) @ weights
    return float(whole - weights @ np.sum(centred**2, axis=1))


def worst_law(kept: int, seed: int) -> float:
    """Climb from random laws on six places; returns the largest trace left out that is found."""
    rng, best = np.random.default_rng(seed), 0.0
    for _ in range(4):
        places, weights = rng.random(6), rng.dirichlet(np.ones(6))
        found = left_out_trace(places, weights, kept)
        for step in np.geomspace(0.3, 0.003, 800):
            moved = np.clip(places + step * rng.standard_normal(6) * (rng.random(6) < 0.4), 0, 1)
            shifted = np.abs(weights + 0.3 * step * rng.standard_normal(6))
            shifted /= shifted.sum()
            if (value := left_out_trace(moved, shifted, kept)) > found:
                places, weights, found = moved, shifted, value
        best = max(best, found)
    return best


@pytest.mark.parametrize("kept", [1, 2, 4, 8])
def test_the_variance_left_out_is_within_its_bound(kept: int) -> None:
    """A search over laws never passes the bound, and refutes one that is three tenths smaller."""
    bound, squared_norm = left_out_variance(kept), 1 - float(np.sum(2 / frequencies(kept) ** 2))
    assert bound < 0.85 * squared_norm
    assert BrownianFeatures(ONE, kept).left_out == bound
    assert 0.7 * bound < worst_law(kept, seed=kept) <= bound


def crowded(columns: int, count: int, kept: int) -> BrownianFeatures:
    directions = random_directions(columns, count, np.random.default_rng(columns))
    return BrownianFeatures(directions, kept, half_width=crowded_half_width(columns))


def trace_left_out(features: BrownianFeatures, rows: Floats, weights: Floats) -> float:
    """tr Cov of what the cosines leave out of the directions' average distance."""
    columns, count = rows.shape[1], len(features.directions)
    places = (1 + (2 * rows - 1) / math.sqrt(columns) @ features.directions.T) / 2
    distances = np.abs(places[:, None] - places).sum(axis=2) * projection_constant(columns) / count
    values = features(rows_of(rows))
    centred = values - weights @ values
    return float(0.5 * weights @ distances @ weights - weights @ np.sum(centred**2, axis=1))


def worst_trace(features: BrownianFeatures, seed: int) -> float:
    """Climb from random laws on four rows of the cube."""
    rng, columns, best = np.random.default_rng(seed), features.directions.shape[1], 0.0
    for _ in range(3):
        rows, weights = rng.integers(0, 2, (4, columns)).astype(float), rng.dirichlet(np.ones(4))
        found = trace_left_out(features, rows, weights)
        for step in np.geomspace(0.5, 0.005, 400):
            changed = rng.random(rows.shape) < 0.3
            moved = np.clip(rows + step * rng.standard_normal(rows.shape) * changed, 0, 1)
            shifted = np.abs(weights + 0.3 * step * rng.standard_normal(4))
            shifted /= shifted.sum()
            if (value := trace_left_out(features, moved, shifted)) > found:
                rows, weights, found = moved, shifted, value
        best = max(best, found)
    return best


@pytest.mark.parametrize(
    ("columns", "count", "kept"), [(1, 1, 2), (2, 6, 1), (2, 6, 4), (3, 6, 4), (5, 5, 2), (10, 13, 4)]
)
def test_what_cosines_leave_out_is_within_its_bound(columns: int, count: int, kept: int) -> None:
    """A search over laws, wide ones too, never passes the bound, and refutes a fifth of it."""
    features = BrownianFeatures(ONE, kept, half_width=0.5) if columns == 1 else crowded(columns, count, kept)
    assert features.left_out / 5 < worst_trace(features, seed=kept) <= features.left_out


@pytest.mark.sweep(1)
@pytest.mark.parametrize("half_width", [None, 0.5, 0.2])
def test_squared_distances_are_distances_within_the_range(half_width: float | None) -> None:
    """The part left out is at most 2/(pi^2 r) times 4."""
    x, other = np.random.default_rng(0).random((2, 200, 1))
    features = BrownianFeatures(ONE, 4000, half_width=half_width)
    squared = np.sum((features(rows_of(x)) - features(rows_of(other))) ** 2, axis=1)
    ends = np.clip([x, other], 0.5 - (half_width or 1), 0.5 + (half_width or 1))
    np.testing.assert_allclose(squared, np.abs(ends[0] - ends[1])[:, 0], atol=4 * 2 / (math.pi**2 * 4000))


def test_several_numbers_have_the_distance_of_vectors_on_average() -> None:
    """|x - x'| over the diagonal, from 3000 directions: a hundredth."""
    x, other = np.random.default_rng(6).random((2, 20, 3))
    features = BrownianFeatures(random_directions(3, 3000, np.random.default_rng(7)), 60)
    squared = np.sum((features(rows_of(x)) - features(rows_of(other))) ** 2, axis=1)
    np.testing.assert_allclose(squared, np.linalg.norm(x - other, axis=1) / math.sqrt(3), atol=0.015)
