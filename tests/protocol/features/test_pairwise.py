"""Pairwise features: definition, order, kernel, and the smallest average over pairs by brute force."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from definitions import column_parts, distance, random_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit_protocol.features.additive import Pairwise, smallest_pair_average, squared_movement_max
from tacit_protocol.features.base import EVALUATION_ERROR

CYCLES, WEIGHTS = (0.8, 1.6), (1.0, 0.5)


@pytest.mark.parametrize(("numeric", "categories"), [(2, ()), (4, ()), (0, (3, 4)), (2, (3, 5))])
def test_features_are_those_of_the_definition(numeric: int, categories: tuple[int, ...]) -> None:
    rows = random_rows(np.random.default_rng(1), 4, numeric, categories)
    features = Pairwise(numeric, categories, CYCLES, WEIGHTS)
    values = features(rows)
    assert values.shape == (4, features.dimension) == (4, sum(features.widths))
    for i in range(4):
        parts = column_parts(rows, i, categories, CYCLES, WEIGHTS)
        pairs = list(itertools.combinations(range(len(parts)), 2))
        assert list(features.pairs) == pairs
        exact = [a * b / mpmath.sqrt(len(pairs)) for p, q in pairs for a in parts[p] for b in parts[q]]
        assert distance(values[i], exact) <= EVALUATION_ERROR / 1000
    np.testing.assert_allclose(np.linalg.norm(values, axis=1), 1, rtol=0, atol=1e-14)


def pair_average(kernels: np.typing.NDArray[np.float64]) -> np.typing.NDArray[np.float64]:
    """Average over pairs of the products of the columns, (..., columns)."""
    columns = kernels.shape[-1]
    pairs = (kernels.sum(-1) ** 2 - (kernels**2).sum(-1)) / 2
    return np.asarray(pairs / math.comb(columns, 2))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 6), st.integers(0, 4), st.floats(0.0, 1.0), st.integers(0, 2**31))
def test_the_smallest_average_over_pairs_is_found(
    numeric: int, categorical: int, lowest: float, seed: int
) -> None:
    if numeric + categorical < 2:
        return
    ends = [(-lowest, 1.0)] * numeric + [(0.0, 1.0)] * categorical
    vertices = np.array(list(itertools.product(*ends)))
    found = smallest_pair_average(numeric, categorical, lowest)
    assert found == pytest.approx(pair_average(vertices).min(), abs=1e-12)
    rng = np.random.default_rng(seed)
    inside = rng.uniform(-lowest, 1.0, (500, numeric + categorical))
    inside[:, numeric:] = rng.integers(0, 2, (500, categorical))
    assert pair_average(inside).min() >= found - 1e-12


def test_the_diameter_follows_from_the_smallest_average() -> None:
    lowest = squared_movement_max((1.0, 2.0), (1.0, 1.0)) / 2 - 1
    assert lowest == pytest.approx(0.5625, abs=1e-5)
    features = Pairwise(2, (), (1.0, 2.0), (1.0, 1.0))
    assert features.diameter == pytest.approx(math.sqrt(2 + 2 * lowest))
    assert Pairwise(0, (3, 4), (1.0,), (1.0,)).diameter == pytest.approx(math.sqrt(2))


@pytest.mark.parametrize(("numeric", "categories"), [(1, ()), (0, (3,)), (0, ())])
def test_pairs_need_two_columns(numeric: int, categories: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="two columns"):
        Pairwise(numeric, categories, CYCLES, WEIGHTS)
