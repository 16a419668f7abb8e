"""Additive features against their definition: columns, pairs, direct sums, and what the domain chooses."""

import itertools
from collections.abc import Sequence

import mpmath
import numpy as np
import pytest
from definitions import column_parts, distance, random_rows, shares_of
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf

from tacit_protocol.features.additive import (
    AdditiveChoice,
    AdditiveFeatures,
    ColumnWise,
    Pairwise,
    default_choice,
    squared_movement_max,
)
from tacit_protocol.features.base import EVALUATION_ERROR

DOMAINS: list[tuple[int, tuple[int, ...]]] = [
    (1, ()), (2, ()), (3, ()), (4, (3,)), (6, ()), (7, ()), (50, ()), (0, (3,)), (0, (3, 5)), (1, (40,)),
    (3, (1002,)),
]  # fmt: skip


@pytest.mark.parametrize(("numeric", "categories"), DOMAINS)
def test_pair_frequencies_are_among_the_columns_own(numeric: int, categories: tuple[int, ...]) -> None:
    """Variances of pairs are bounded from the columns' second moments, looked up by frequency."""
    choice = default_choice(numeric, categories, 0.3)
    assert set(choice.pair_cycles) <= set(choice.cycles)
    assert len(choice.cycles) == len(choice.weights) == len(set(choice.cycles))


@pytest.mark.parametrize("cycles", [(0.8125, 1.625), (1.625, 0.8125), (3.25,)])
@pytest.mark.parametrize(("numeric", "categories"), [(2, ()), (4, (3,)), (0, (3, 5)), (1, (40,))])
def test_pairs_parts_follow_from_the_columns_features(
    numeric: int, categories: tuple[int, ...], cycles: tuple[float, ...]
) -> None:
    choice = AdditiveChoice((0.8125, 1.625, 3.25), (1.0, 0.5, 0.4), cycles, 0.3)
    features = AdditiveFeatures(numeric, categories, choice)
    rows = random_rows(np.random.default_rng(2), 30, numeric, categories)
    assert features.pairwise is not None
    parts = features.pair_parts(rows, features.column_wise(rows))
    np.testing.assert_allclose(parts, features.pairwise.parts(rows), rtol=0, atol=1e-14)


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


PAIR_CYCLES, PAIR_WEIGHTS = (0.8, 1.6), (1.0, 0.5)


@pytest.mark.parametrize(("numeric", "categories"), [(2, ()), (4, ()), (0, (3, 4)), (2, (3, 5))])
def test_pairs_are_those_of_the_definition(numeric: int, categories: tuple[int, ...]) -> None:
    rows = random_rows(np.random.default_rng(1), 4, numeric, categories)
    features = Pairwise(numeric, categories, PAIR_CYCLES, PAIR_WEIGHTS)
    values = features(rows)
    assert values.shape == (4, features.dimension) == (4, sum(features.widths))
    for i in range(4):
        parts = column_parts(rows, i, categories, PAIR_CYCLES, PAIR_WEIGHTS)
        pairs = list(itertools.combinations(range(len(parts)), 2))
        assert list(features.pairs) == pairs
        exact = [a * b / mpmath.sqrt(len(pairs)) for p, q in pairs for a in parts[p] for b in parts[q]]
        assert distance(values[i], exact) <= EVALUATION_ERROR / 1000
    np.testing.assert_allclose(np.linalg.norm(values, axis=1), 1, rtol=0, atol=1e-14)
