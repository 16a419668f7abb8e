"""Column-wise characteristic features: definition, order, movement, and variances from means."""

import math
from collections.abc import Sequence

import mpmath
import numpy as np
import pytest
from definitions import column_parts, distance, random_rows, shares_of
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from tacit_protocol.features.additive import ColumnWise, squared_movement_max
from tacit_protocol.features.base import EVALUATION_ERROR

CYCLES, WEIGHTS = (0.8, 1.6, 3.2), (1.0, 1.0, 0.4)
spectra = st.lists(st.tuples(st.floats(0.05, 8.0), st.floats(0.1, 2.0)), min_size=1, max_size=5)


@pytest.mark.parametrize(("numeric", "categories"), [(1, ()), (3, ()), (0, (3, 4)), (2, (3, 5)), (40, (6,))])
def test_features_are_those_of_the_definition(numeric: int, categories: tuple[int, ...]) -> None:
    rows = random_rows(np.random.default_rng(1), 5, numeric, categories)
    features = ColumnWise(numeric, categories, CYCLES, WEIGHTS)
    values = features(rows)
    assert values.shape == (5, features.dimension) == (5, 6 * numeric + sum(categories))
    for i in range(5):
        parts = column_parts(rows, i, categories, CYCLES, WEIGHTS)
        exact = [value / mpmath.sqrt(len(parts)) for part in parts for value in part]
        assert distance(values[i], exact) <= EVALUATION_ERROR / 1000
    np.testing.assert_allclose(np.linalg.norm(values, axis=1), 1, rtol=0, atol=1e-14)


def test_coordinates_describe_the_features_in_order() -> None:
    features = ColumnWise(2, (3,), CYCLES, WEIGHTS)
    rows = random_rows(np.random.default_rng(2), 4, 2, (3,))
    values = features(rows)
    assert len(features.coordinates) == features.dimension
    for index, coordinate in enumerate(features.coordinates):
        if coordinate.part == "category":
            wave = (rows.categorical[:, coordinate.column - 2] == index - 12).astype(float)
        else:
            angles = 2 * np.pi * coordinate.cycles * rows.numeric[:, coordinate.column]
            wave = np.cos(angles) if coordinate.part == "cos" else np.sin(angles)
        np.testing.assert_allclose(values[:, index], coordinate.scale * wave, rtol=0, atol=1e-15)


def test_a_cycle_with_its_double_moves_by_the_root_of_3_125() -> None:
    bound = squared_movement_max((1.0, 2.0), (1.0, 1.0))
    assert 3.125 <= bound <= 3.125 + 1e-5
    assert ColumnWise(4, (), (1.0, 2.0), (3.0, 3.0)).diameter == pytest.approx(math.sqrt(3.125), abs=1e-5)


@pytest.mark.parametrize(
    ("cycles", "exact"),
    [((1.0,), 4.0), ((0.5,), 4.0), ((0.25,), 2.0), ((0.1,), 2 - 2 * math.cos(0.2 * math.pi))],
)
def test_one_cycle_moves_as_far_as_the_bounds_let_it_turn(cycles: tuple[float, ...], exact: float) -> None:
    assert exact - 1e-12 <= squared_movement_max(cycles, (1.0,)) <= exact + 1e-6


@settings(max_examples=40, deadline=None)
@given(spectra, st.floats(0.0, 1.0))
def test_no_shift_moves_farther_than_the_maximum(spectrum: list[tuple[float, float]], shift: float) -> None:
    cycles, weights = (tuple(values) for values in zip(*spectrum, strict=True))
    bound = squared_movement_max(cycles, weights)
    assert movement(cycles, weights, shift) <= bound + 1e-12
    fine = np.linspace(0, 1, 20_011)
    shares = np.asarray(weights) / np.sum(weights)
    largest = (2 - 2 * np.cos(2 * np.pi * fine[:, None] * np.asarray(cycles)) @ shares).max()
    assert largest <= bound + 1e-12 <= largest + 1e-3


def movement(cycles: Sequence[float], weights: Sequence[float], shift: float) -> float:
    terms = zip(cycles, shares_of(weights), strict=True)
    return float(sum(w * (2 - 2 * mpmath.cos(2 * mpmath.pi * mpf(f) * mpf(shift))) for f, w in terms))
