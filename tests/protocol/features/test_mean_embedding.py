"""Features of means: at locations and frequencies, of columns and pairs; errors, and how far values lie."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal

import mpmath
import numpy as np
import pytest
from definitions import Rows, column_parts, distance, gram, random_rows, shares_of
from hypothesis import given, settings
from hypothesis import strategies as st
from mpmath import mpf
from scipy.spatial.distance import pdist

from tacit_protocol.domain import CategoricalColumn, Domain, EncodedChunk, NumericColumn
from tacit_protocol.features import kernels
from tacit_protocol.features.kernels import EVALUATION_ERROR, ProductKernel
from tacit_protocol.features.mean_embedding import (
    FINE_SLACK,
    RIDGES,
    Locations,
    Ridge,
    SmoothCharacteristic,
    WhitenedMeanEmbedding,
    draw_frequencies,
    draw_locations,
    encode_locations,
    median_distance,
    windowed_diameter,
)
from tacit_protocol.features.moments import (
    AdditiveChoice,
    AdditiveFeatures,
    ColumnWise,
    Pairwise,
    default_choice,
    squared_movement_max,
)

Shape = Literal["gaussian", "laplacian"]


def crowded(
    shape: Shape, bandwidth: float, columns: int, count: int, apart: float
) -> tuple[ProductKernel, Rows]:
    """Half of the locations lie ``apart`` from the other half, so that the Gram matrix is nearly singular."""
    rng = np.random.default_rng(count)
    numeric = rng.random((count, columns))
    numeric[count // 2 :] = numeric[: count - count // 2]
    numeric[count // 2 :] += apart * rng.standard_normal((count - count // 2, columns))
    return ProductKernel(shape, bandwidth), Rows(np.clip(numeric, 0, 1), np.zeros((count, 0), np.int32))


def near(locations: Rows, bandwidth: float) -> Rows:
    """Rows at locations, close to them and anywhere."""
    rng = np.random.default_rng(1)
    columns = locations.numeric.shape[1]
    close = locations.numeric[:3] + bandwidth * rng.standard_normal((3, columns))
    numeric = np.vstack([locations.numeric[-3:], np.clip(close, 0, 1), rng.random((2, columns))])
    return Rows(numeric, np.zeros((len(numeric), 0), np.int32))


def whitened(kernel: ProductKernel, locations: Rows, ridge: Ridge = "coarse") -> WhitenedMeanEmbedding:
    return WhitenedMeanEmbedding(kernel, Locations(locations.numeric, locations.categorical), ridge)


def evaluation_error(kernel: ProductKernel, locations: Rows, rows: Rows, ridge: Ridge = "coarse") -> float:
    """Largest distance of computed features from W k_x, W being the float64 whitener taken as exact."""
    features = whitened(kernel, locations, ridge)
    exact = gram(kernel, rows, locations) * mpmath.matrix(features.whitener.tolist())
    computed = features(rows)
    return max(distance(computed[i], list(exact[i, :])) for i in range(len(rows)))


def contraction(kernel: ProductKernel, locations: Rows, ridge: Ridge = "coarse") -> float:
    """1 - the largest eigenvalue of W K W': W k_x has norm and distances below k(x, .)'s if it is >= 0."""
    whitener = mpmath.matrix(whitened(kernel, locations, ridge).whitener.tolist())
    product = whitener * gram(kernel, locations, locations) * whitener.T
    return float(1 - max(mpmath.eigsy((product + product.T) / 2, eigvals_only=True)))


ILL_CONDITIONED: list[tuple[Shape, float, int, int, float]] = [
    *(("gaussian", 0.5, 3, 8, apart) for apart in (0.0, 1e-4, 1e-3)),
    ("gaussian", 5.0, 3, 8, 1e-3),
    ("gaussian", 1e3, 3, 8, 1e-3),
    ("gaussian", 0.05, 10, 12, 1e-6),
    ("gaussian", 0.01, 10, 12, 1e-6),
    ("gaussian", 0.4, 10, 12, 1e-5),
    ("gaussian", 3.0, 50, 16, 1e-3),
    ("laplacian", 1.0, 3, 12, 1e-8),
    ("laplacian", 100.0, 3, 12, 1e-6),
]


@pytest.mark.parametrize(("shape", "bandwidth", "columns", "count", "apart"), ILL_CONDITIONED)
def test_the_evaluation_error_holds_for_crowded_locations(
    shape: Shape, bandwidth: float, columns: int, count: int, apart: float
) -> None:
    kernel, locations = crowded(shape, bandwidth, columns, count, apart)
    assert evaluation_error(kernel, locations, near(locations, bandwidth)) <= EVALUATION_ERROR / 10
    assert contraction(kernel, locations) > 0.9e-8


def test_the_expanded_exponent_would_break_the_error_for_narrow_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels, "EXPANSION_MAX", float("inf"))
    kernel, locations = crowded("gaussian", 0.01, 10, 12, 1e-6)
    assert evaluation_error(kernel, locations, near(locations, 0.01)) > EVALUATION_ERROR


def test_too_little_regularisation_would_break_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, locations = crowded("gaussian", 0.5, 3, 8, 1e-7)
    assert contraction(kernel, locations) > 0.9e-8
    monkeypatch.setitem(RIDGES, "coarse", 1e-17)
    assert contraction(kernel, locations) < -1e-4


@pytest.mark.parametrize(("shape", "bandwidth", "columns", "count", "apart"), ILL_CONDITIONED)
def test_the_fine_ridge_keeps_the_bounds_up_to_its_slack(
    shape: Shape, bandwidth: float, columns: int, count: int, apart: float
) -> None:
    kernel, locations = crowded(shape, bandwidth, columns, count, apart)
    rows = near(locations, bandwidth)
    assert contraction(kernel, locations, "fine") > -FINE_SLACK / 100
    assert evaluation_error(kernel, locations, rows, "fine") < FINE_SLACK / 100
    coarse, fine = whitened(kernel, locations), whitened(kernel, locations, "fine")
    assert fine.diameter == pytest.approx(coarse.diameter * (1 + FINE_SLACK), rel=1e-12)
    assert fine.second_moment_diameter > coarse.second_moment_diameter


def test_too_little_of_the_fine_ridge_would_pass_its_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, locations = crowded("gaussian", 0.5, 3, 8, 1e-7)
    monkeypatch.setitem(RIDGES, "fine", 1e-17)
    assert contraction(kernel, locations, "fine") < -FINE_SLACK


def test_features_are_those_of_the_definition() -> None:
    """Where locations are well apart, the definition itself is met, not only a map with the same bounds."""
    rng = np.random.default_rng(4)
    kernel = ProductKernel("gaussian", 0.4, 0.3)
    locations, rows = random_rows(rng, 9, 2, (3, 4)), random_rows(rng, 6, 2, (3, 4))
    eigenvalues, vectors = mpmath.eigsy(gram(kernel, locations, locations))
    regularised = [1 / mpmath.sqrt(value + 9 * mpf("1e-8")) for value in eigenvalues]
    exact = gram(kernel, rows, locations) * (vectors * mpmath.diag(regularised) * vectors.T)
    computed = whitened(kernel, locations)(rows)
    assert computed.shape == (6, 9)
    for i in range(6):
        assert distance(computed[i], list(exact[i, :])) <= 1e-10


FREQUENCIES = 5 * np.random.default_rng(0).standard_normal((4, 3))


def definition(rows: Rows, i: int, window: float | None, scale: mpmath.mpf) -> list[mpmath.mpf]:
    x = [mpf(float(value)) for value in rows.numeric[i]]
    angles = [sum(a * mpf(float(w)) for a, w in zip(x, frequency, strict=True)) for frequency in FREQUENCIES]
    height = mpf(1)
    if window is not None:
        height = mpmath.exp(-sum((a - mpf("0.5")) ** 2 for a in x) / (2 * mpf(window) ** 2))
    return [scale * height * f(a) for f in (mpmath.sin, mpmath.cos) for a in angles]


@pytest.mark.parametrize("window", [None, 0.3, 2.0])
@pytest.mark.parametrize("raw", [False, True])
def test_features_are_those_of_the_definition_sines_then_cosines(window: float | None, raw: bool) -> None:
    rows = random_rows(np.random.default_rng(1), 10, 3)
    features = SmoothCharacteristic(FREQUENCIES, window, raw=raw)
    values = features(rows)
    assert values.shape == (10, 8) == (10, features.dimension)
    scale = mpf(1) if raw else 1 / mpmath.sqrt(4)
    for i in range(10):
        assert distance(values[i], definition(rows, i, window, scale)) <= EVALUATION_ERROR / 10


@pytest.mark.parametrize("window", [0.05, 0.2, 0.5, 3.0])
@pytest.mark.parametrize("frequency", [0.5, 3.0, 40.0])
def test_the_windowed_diameter_bounds_every_pair_of_a_fine_grid_and_is_near_it(
    window: float, frequency: float
) -> None:
    """In one column the search is exhaustive; the bound allows for cells of a 512th of the reach."""
    frequencies = np.array([[frequency], [2.5 * frequency]])
    numeric = np.linspace(0.0, 1.0, 1001)[:, None]
    values = SmoothCharacteristic(frequencies, window)(Rows(numeric, np.zeros((1001, 0), dtype=np.int32)))
    largest = math.sqrt(float(np.max(pdist(values, "sqeuclidean"))))
    bound = windowed_diameter(frequencies, window)
    assert largest <= bound <= 2
    assert largest >= 0.8 * bound


def test_a_window_so_wide_that_it_is_none_has_the_diameter_two() -> None:
    frequencies = np.array([[np.pi]])
    assert windowed_diameter(frequencies, 1e3) == pytest.approx(2, abs=0.02)
    assert SmoothCharacteristic(frequencies).diameter == 2


MIXED = Domain(
    columns=(
        NumericColumn(name="age", lower=0.0, upper=100.0),
        CategoricalColumn(name="sex", levels=("F", "M")),
        NumericColumn(name="dose", lower=-1.0, upper=1.0, missing=1.0),
    )
)


def test_drawn_locations_lie_in_the_domain_and_follow_the_seed() -> None:
    locations, again, other = (draw_locations(MIXED, 500, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert 0 <= locations.numeric.min() <= locations.numeric.max() <= 1
    assert set(np.unique(locations.categorical)) == {0, 1, 2, 3}
    np.testing.assert_array_equal(locations.numeric, again.numeric)
    assert not np.array_equal(locations.numeric, other.numeric)


def test_public_rows_are_encoded_as_data_are() -> None:
    locations = encode_locations(MIXED, [(25.0, "M", 0.0), (1e9, "other", None), (None, None, -1.0)])
    np.testing.assert_array_equal(locations.numeric, [[0.25, 0.5], [1.0, 1.0], [0.5, 0.0]])
    np.testing.assert_array_equal(locations.categorical, [[1], [2], [3]])


@pytest.mark.parametrize(
    ("row", "reason"),
    [((25.0, "M"), "one value per column"), ((25.0, "M", 0.0, 1.0), "one value per column"),
     (("25", "M", 0.0), "must be a number"), ((25.0, "M", "secret"), "must be a number")],
)  # fmt: skip
def test_rows_that_do_not_fit_are_refused_without_quoting_them(row: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refused:
        encode_locations(MIXED, [row])
    assert "secret" not in str(refused.value)
    assert "25" not in str(refused.value)


def test_the_median_distance_is_that_of_all_pairs_and_one_where_points_coincide() -> None:
    points = np.random.default_rng(3).random((10, 2))
    pairs = [np.linalg.norm(points[i] - points[j]) for i in range(10) for j in range(i)]
    assert median_distance(points) == pytest.approx(np.median(pairs), rel=1e-12)
    for shape in ((1, 2), (5, 2), (0, 3), (4, 0)):
        assert median_distance(np.zeros(shape)) == 1.0


def test_frequencies_are_those_of_the_gaussian_kernel() -> None:
    """E cos(w'(x - y)) = exp(-|x - y|^2 / (2 h^2)), to six standard errors."""
    frequencies = draw_frequencies(2, 100_000, 0.5, np.random.default_rng(4))
    difference = np.array([0.3, -0.4])
    assert np.cos(frequencies @ difference).mean() == pytest.approx(np.exp(-0.5), abs=6 / np.sqrt(100_000))


# Additive features against their definition: columns, pairs, direct sums, and what the domain chooses.


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
def test_additive_features_are_those_of_the_definition(numeric: int, categories: tuple[int, ...]) -> None:
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
