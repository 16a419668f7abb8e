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

from tacit_protocol.domain import EncodedChunk
from tacit_protocol.features.kernels import EVALUATION_ERROR
from tacit_protocol.features.moments import (
    AdditiveChoice,
    AdditiveFeatures,
    ColumnWise,
    Pairwise,
    default_choice,
    squared_movement_max,
)

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


@pytest.mark.parametrize(("first", "moments"), [(0, 0.0), (1, 0.75)])
@pytest.mark.parametrize("cycles", [(0.8125, 1.625), (1.625, 0.8125), (3.25,)])
@pytest.mark.parametrize(("numeric", "categories"), [(2, ()), (4, (3,)), (0, (3, 5)), (1, (40,))])
def test_pairs_parts_follow_from_the_columns_features(
    numeric: int, categories: tuple[int, ...], cycles: tuple[float, ...], first: int, moments: float
) -> None:
    choice = AdditiveChoice((0.8125, 1.625, 3.25)[first:], (1.0, 0.5, 0.4)[first:], cycles, 0.3, moments)
    features = AdditiveFeatures(numeric, categories, choice)
    rows = random_rows(np.random.default_rng(2), 30, numeric, categories)
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


@pytest.mark.parametrize(("numeric", "categories"), [(1, ()), (2, (3, 5))])
def test_polynomials_come_first_in_a_column_at_their_weight(
    numeric: int, categories: tuple[int, ...]
) -> None:
    rows = random_rows(np.random.default_rng(1), 50, numeric, categories)
    plain = ColumnWise(numeric, categories, CYCLES, WEIGHTS)
    features = ColumnWise(numeric, categories, CYCLES, WEIGHTS, 0.5)
    values = features(rows)
    assert values.shape == (50, features.dimension) == (50, 8 * numeric + sum(categories))
    own = [c.part in ("P1", "P2") for c in features.coordinates]
    scales = np.array([c.scale for c in features.coordinates])
    t = 2 * rows.numeric - 1
    exact = np.stack([t, (3 * t**2 - 1) / 2], axis=-1).reshape(50, -1)
    np.testing.assert_allclose(values[:, own] / scales[own], exact, rtol=0, atol=1e-14)
    shrunk = np.where([c.part == "category" for c in plain.coordinates], 1.0, np.sqrt(2.4 / 2.9))
    np.testing.assert_allclose(values[:, np.logical_not(own)], plain(rows) * shrunk, rtol=0, atol=1e-14)
    assert np.linalg.norm(values, axis=1).max() <= features.norm + 1e-14


@settings(max_examples=40, deadline=None)
@given(spectra, st.floats(0.05, 5.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_no_two_values_are_farther_apart_than_the_maximum(
    spectrum: list[tuple[float, float]], moments: float, one: float, other: float
) -> None:
    """Over both values, although the bound is found over their distance alone."""
    cycles, weights = (tuple(values) for values in zip(*spectrum, strict=True))
    bound = squared_movement_max(cycles, weights, moments)
    grid = np.linspace(0, 1, 401)
    features = ColumnWise(1, (), cycles, weights, moments)
    numeric = np.concatenate([[one, other], grid])[:, None]
    values = features(EncodedChunk(numeric, np.zeros((len(numeric), 0), np.int32), None, len(numeric)))
    squares = (values**2).sum(axis=1)
    moved = squares[:, None] + squares - 2 * values @ values.T
    assert moved.max() <= bound + 1e-12 <= moved.max() + 0.02 * bound


def test_polynomials_move_most_from_a_bound() -> None:
    """The figure of the methods reference: 9.73 at equal weights of P1, P2 and two cycles."""
    bound = 3 * squared_movement_max((1.625, 3.25), (1.0, 1.0), 1.0)
    assert bound == pytest.approx(9.735, abs=5e-4)


def test_polynomials_cost_more_than_three_columns_nothing() -> None:
    """Raw coordinates of the cycles that stay have no more noise than they had."""
    before, now = (default_choice(4, (), 0.3, moments=moments) for moments in (False, True))
    old = squared_movement_max(before.cycles, before.weights) * sum(before.weights)
    new = squared_movement_max(now.cycles, now.weights, now.moments) * (sum(now.weights) + now.moments)
    assert now.cycles == before.cycles[1:]
    assert new < old


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
