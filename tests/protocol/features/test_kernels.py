"""Kernels and distances, their low ranks, and features whose squared distances are distances."""

import itertools
import math
from typing import Literal

import mpmath
import numpy as np
import pytest
from definitions import Rows, gram, random_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit_protocol.domain import EncodedChunk
from tacit_protocol.features import fixed_rank
from tacit_protocol.features.brownian import (
    BrownianFeatures,
    crowded_half_width,
    frequencies,
    left_out_variance,
    random_directions,
)
from tacit_protocol.features.fixed_rank import LEFT_OUT, RANK_MAX, SmoothColumn, features_of
from tacit_protocol.features.kernels import (
    DistanceKernel,
    KernelMixture,
    LinearKernel,
    ProductKernel,
    RandomFourier,
)
from tacit_protocol.features.unit_gram import UnitGram, UnitRows
from tacit_protocol.numerics.distance_covariance import distance_covariance_sqr, projection_constant
from tacit_protocol.procedures.permutation.statistic import CELL_ERROR, FACTOR_ERROR, permuted_statistics

Shape = Literal["gaussian", "laplacian"]
shapes = st.sampled_from(("gaussian", "laplacian"))
bandwidths = st.floats(0.01, 100.0)
similarities = st.floats(0.0, 0.99)


@settings(max_examples=25, deadline=None)
@given(shapes, bandwidths, similarities, st.integers(0, 4), st.integers(0, 3), st.integers(0, 2**31))
def test_values_are_those_of_the_definition(
    shape: Shape, bandwidth: float, similarity: float, numeric: int, categorical: int, seed: int
) -> None:
    kernel = ProductKernel(shape, bandwidth, similarity)
    rng = np.random.default_rng(seed)
    x, t = (random_rows(rng, 4, numeric, (3,) * categorical) for _ in range(2))
    values, exact = kernel.gram(x, t), gram(kernel, x, t)
    assert values.shape == (4, 4)
    for i, j in itertools.product(range(4), range(4)):
        assert values[i, j] == pytest.approx(float(exact[i, j]), abs=3e-14)


@pytest.mark.parametrize("bandwidth", [1e-6, 0.3, 10.0, 1e4, 1e6])
@pytest.mark.parametrize("shape", ["gaussian", "laplacian"])
def test_distances_are_accurate_where_the_minimum_rounds_to_one(shape: Shape, bandwidth: float) -> None:
    kernel = ProductKernel(shape, bandwidth, 0.25)
    h = mpmath.mpf(bandwidth)
    exponent = 3 / (2 * h**2) if shape == "gaussian" else 3 / h
    for categorical in (0, 2):
        minimum = mpmath.exp(-exponent) * mpmath.mpf("0.25") ** categorical
        exact = float(mpmath.sqrt(2 - 2 * minimum)), float(mpmath.sqrt(2 - 2 * minimum**2))
        assert kernel.distance_max(3, categorical) == pytest.approx(exact[0], rel=1e-14)
        assert kernel.product_distance_max(3, categorical) == pytest.approx(exact[1], rel=1e-14)


Floats = np.typing.NDArray[np.float64]

SHAPES = [(1, 0), (3, 0), (0, 1), (0, 3), (2, 2)]


def rows_of(numeric: int, categorical: int, units: int = 60, seed: int = 0) -> UnitRows:
    """Random rows, with corners of the domain among them."""
    rng = np.random.default_rng(seed)
    numbers = rng.random((units, numeric))
    numbers[: units // 3] = np.rint(numbers[: units // 3])
    codes = rng.integers(0, 3, (units, categorical)).astype(np.int32)
    return UnitRows(numbers, codes, np.arange(units + 1))


def distances(rows: UnitRows) -> Floats:
    """By definition: an average over columns, the numeric ones together."""
    numeric, categorical = rows.numeric.shape[1], rows.categorical.shape[1]
    total = np.zeros((rows.units, rows.units))
    if numeric:
        difference = rows.numeric[:, None] - rows.numeric[None]
        total += numeric * np.sqrt((difference**2).sum(axis=2)) / math.sqrt(numeric)
    total += (rows.categorical[:, None] != rows.categorical[None]).sum(axis=2)
    return np.asarray(total / (numeric + categorical))


@pytest.mark.parametrize(("numeric", "categorical"), SHAPES)
def test_squared_distances_of_features_are_twice_the_distances(numeric: int, categorical: int) -> None:
    rows = rows_of(numeric, categorical)
    gram = DistanceKernel().gram(rows, rows)
    diagonal = np.diag(gram)
    assert np.allclose(diagonal[:, None] + diagonal[None] - 2 * gram, 2 * distances(rows), atol=1e-14)


@pytest.mark.parametrize("kernel", [DistanceKernel(), LinearKernel()], ids=["distance", "linear"])
@pytest.mark.parametrize(("numeric", "categorical"), SHAPES)
def test_values_lie_between_0_and_1(
    numeric: int, categorical: int, kernel: DistanceKernel | LinearKernel
) -> None:
    """All that sensitivities of the joint independence test ask of a kernel; 1 is reached at corners."""
    rows = rows_of(numeric, categorical)
    gram = kernel.gram(rows, rows)
    error = kernel.error(numeric)
    assert gram.min() >= -error
    assert 1 - error <= gram.max() <= 1 + error
    assert np.linalg.eigvalsh(gram).min() > -1e-12


def test_hsic_of_two_variables_is_the_distance_covariance() -> None:
    rng = np.random.default_rng(3)
    x = rng.random(400)
    y = np.clip((2 * x - 1) ** 2 + 0.1 * rng.standard_normal(400), 0, 1)
    grams = [
        UnitGram(DistanceKernel(), UnitRows(column[:, None], np.zeros((400, 0), np.int32), np.arange(401)))
        for column in (x, y)
    ]
    (statistic,) = permuted_statistics(grams, 0, np.random.SeedSequence(0))
    assert statistic**2 == pytest.approx(distance_covariance_sqr(x, y, "biased"), abs=1e-13)


def rows(numeric: int, categories: tuple[int, ...], count: int = 40, seed: int = 1) -> EncodedChunk:
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, c, count, dtype=np.int32) for c in categories]
    table = np.stack(codes, axis=1) if codes else np.zeros((count, 0), dtype=np.int32)
    return EncodedChunk(rng.random((count, numeric)), table, None, count)


@pytest.mark.parametrize("shape", ["gaussian", "laplacian"])
def test_inner_products_are_the_product_kernels_on_average(shape: Literal["gaussian", "laplacian"]) -> None:
    """Averages of 40 000 numbers in [-1, 1]: off by .03 with probability below 1e-7 each (Hoeffding)."""
    kernel, data = ProductKernel(shape, 0.4, 0.3), rows(2, (3, 3), count=6)
    features = RandomFourier.draw(kernel, 2, (3, 3), 40_000, np.random.default_rng(3))
    values = features(data)
    assert values @ values.T == pytest.approx(kernel.gram(data, data), abs=0.03)


@pytest.mark.parametrize(("numeric", "categories"), [(1, ()), (2, ()), (1, (3,)), (3, ()), (0, (5,))])
def test_rows_have_norm_1_and_are_no_farther_apart_than_the_diameter(
    numeric: int, categories: tuple[int, ...]
) -> None:
    kernel = ProductKernel("gaussian", 0.3, 0.2)
    features = RandomFourier.draw(kernel, numeric, categories, 12, np.random.default_rng(0))
    values = features(rows(numeric, categories, count=400))
    assert np.linalg.norm(values, axis=1) == pytest.approx(1.0, abs=1e-12)
    assert math.sqrt((2 - 2 * values @ values.T).max()) <= features.diameter <= 2


def test_the_diameter_is_reached_and_may_be_far_below_2() -> None:
    """One wide frequency: cos(1) is the smallest product, at opposite ends."""
    features = RandomFourier(np.array([[1.0]]))
    ends = EncodedChunk(np.array([[0.0], [1.0]]), np.zeros((2, 0), dtype=np.int32), None, 2)
    first, second = features(ends)
    reached = float(np.linalg.norm(first - second))
    assert reached == pytest.approx(math.sqrt(2 - 2 * math.cos(1)))
    assert reached <= features.diameter <= reached + 1e-3


# Brownian features: their distances, the bounds on them, and a search that catches wrong ones.


def law_rows(numeric: Floats, codes: np.typing.NDArray[np.int32] | None = None) -> Rows:
    return Rows(numeric, np.zeros((len(numeric), 0), np.int32) if codes is None else codes)


ONE = np.ones((1, 1))


@pytest.mark.parametrize(("terms", "near"), [(4, 7e-4), (8, 2e-4), (64, 2e-5)])
def test_the_truncated_distance_covariance_approaches_the_exact_one(terms: int, near: float) -> None:
    """X uniform with itself, exactly 2/45 = .04444; from below."""
    x = ((np.arange(20_000) + 0.5) / 20_000)[:, None]
    values = BrownianFeatures(ONE, terms)(law_rows(x))
    centred = values - values.mean(axis=0)
    found = 4 * np.sum((centred.T @ centred / len(x)) ** 2)
    assert 2 / 45 - near < found < 2 / 45


def left_out_trace(places: Floats, weights: Floats, kept: int) -> float:
    """tr Cov of the frequencies beyond ``kept``: E|X - X'|/2 less the kept part."""
    kept_features = BrownianFeatures(ONE, kept)(law_rows(places[:, None]))
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
    values = features(law_rows(rows))
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
    squared = np.sum((features(law_rows(x)) - features(law_rows(other))) ** 2, axis=1)
    ends = np.clip([x, other], 0.5 - (half_width or 1), 0.5 + (half_width or 1))
    np.testing.assert_allclose(squared, np.abs(ends[0] - ends[1])[:, 0], atol=4 * 2 / (math.pi**2 * 4000))


def test_several_numbers_have_the_distance_of_vectors_on_average() -> None:
    """|x - x'| over the diagonal, from 3000 directions: a hundredth."""
    x, other = np.random.default_rng(6).random((2, 20, 3))
    features = BrownianFeatures(random_directions(3, 3000, np.random.default_rng(7)), 60)
    squared = np.sum((features(law_rows(x)) - features(law_rows(other))) ** 2, axis=1)
    np.testing.assert_allclose(squared, np.linalg.norm(x - other, axis=1) / math.sqrt(3), atol=0.015)


# Features of a fixed rank: what they leave out of a kernel value is bounded, whatever the rows.


ROUNDED = FACTOR_ERROR - LEFT_OUT - 1e-14
"""What rounding may add; the last 1e-14 is room for cells (test_statistic.py)."""


def gaussian(*bandwidths: float, similarity: float = 0.0) -> KernelMixture:
    kernels = tuple(ProductKernel("gaussian", bandwidth, similarity) for bandwidth in bandwidths)
    return KernelMixture(kernels, (1 / len(kernels),) * len(kernels))


def placed_rows(numeric: int, categories: tuple[int, ...], count: int = 700) -> UnitRows:
    """Rows anywhere, at corners, at codes of every kind, and close to each other."""
    rng = np.random.default_rng(1)
    values = rng.random((count, numeric))
    values[: count // 4] = rng.integers(0, 2, (count // 4, numeric))
    values[count // 4 : count // 2] = 0.5 + 1e-9 * values[count // 4 : count // 2]
    codes = np.stack([rng.integers(0, each, count) for each in categories], axis=1) if categories else None
    table = np.zeros((count, 0)) if codes is None else codes
    return UnitRows(values, table.astype(np.int32), np.arange(count + 1))


def exact(kernel: KernelMixture, rows: UnitRows) -> np.typing.NDArray[np.longdouble]:
    x = rows.numeric.astype(np.longdouble)
    squared = np.square(x[:, None] - x).sum(axis=2)
    unlike = (rows.categorical[:, None] != rows.categorical).sum(axis=2)
    found = np.zeros(squared.shape, np.longdouble)
    for each, weight in zip(kernel.kernels, kernel.weights, strict=True):
        value = np.exp(-squared / (2 * np.longdouble(each.bandwidth) ** 2))
        found += weight * value * np.longdouble(each.similarity) ** unlike
    return found


CASES = [
    (gaussian(0.12), 1, ()),
    (gaussian(0.02), 1, ()),
    (gaussian(0.5), 1, ()),
    (gaussian(1e6), 1, ()),
    (gaussian(0.05, 0.1, 0.2), 1, ()),
    (gaussian(0.2, similarity=0.3), 1, (3,)),
    (gaussian(0.3, similarity=1 - 1e-16), 0, (5, 4)),
    (gaussian(0.12 * math.sqrt(2)), 2, ()),
    (gaussian(2.0), 3, ()),
    (gaussian(0.5, 1.0), 2, (2,)),
]


@pytest.mark.parametrize(("kernel", "numeric", "categories"), CASES)
def test_inner_products_are_kernel_values(
    kernel: KernelMixture, numeric: int, categories: tuple[int, ...]
) -> None:
    """Of every pair of rows, in extended precision."""
    rows, features = placed_rows(numeric, categories), features_of(kernel, numeric, categories)
    assert features is not None
    found = features(rows).astype(np.longdouble)
    assert found.shape == (700, features.dimension)
    assert np.abs(found @ found.T - exact(kernel, rows)).max() <= LEFT_OUT + ROUNDED


@pytest.mark.parametrize("bandwidth", [0.03, 0.12, 0.45])
def test_no_place_is_left_out_by_more_than_stated(bandwidth: float) -> None:
    """What is left out is largest of a row with itself: between public points, and at the ends."""
    column = SmoothColumn.of(gaussian(bandwidth), LEFT_OUT)
    assert column is not None
    places = np.concatenate([np.linspace(0, 1, 50_001), np.geomspace(1e-9, 1e-2, 500)])
    missed = 1 - np.square(column(places).astype(np.longdouble)).sum(axis=1)
    assert np.abs(missed).max() <= LEFT_OUT + ROUNDED
    # It is the bound, and not rounding, that the rank follows.
    assert np.abs(missed).max() > LEFT_OUT / 100


def test_too_few_public_points_would_be_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the rank, and the same search finds what they miss between them."""
    points = fixed_rank._points(0.12)
    assert points is not None
    count = 24
    few = 0.5 + 0.5 * np.cos(np.pi * (np.arange(count) + 0.5) / count)
    monkeypatch.setattr(fixed_rank, "_points", lambda _: few)
    column = SmoothColumn.of(gaussian(0.12), LEFT_OUT)
    assert column is not None
    found = column(np.linspace(0, 1, 50_001)).astype(np.longdouble)
    assert np.abs(1 - np.square(found).sum(axis=1)).max() > 2 * FACTOR_ERROR


@pytest.mark.parametrize("number", [8, 32, 128])
def test_directions_of_cells_miss_features_by_no_more_than_asked(number: int) -> None:
    column = SmoothColumn.of(gaussian(0.12), LEFT_OUT)
    assert column is not None
    directions = column.cells(number, CELL_ERROR)
    assert directions is not None
    values = np.concatenate([np.linspace(0, 1, 4001), np.arange(number) / number])
    found, own = column(values), directions.each[directions.places(values)]
    missed = found - np.einsum("nrk,nsk,ns->nr", own, own, found)
    assert np.linalg.norm(missed, axis=1).max() <= CELL_ERROR
    assert directions.each.shape[2] < 15


@pytest.mark.parametrize(("numeric", "categories"), [(3, ()), (0, (4,)), (2, (3, 20, 30))])
def test_coordinates_are_features_of_the_linear_kernel(numeric: int, categories: tuple[int, ...]) -> None:
    rows, features = placed_rows(numeric, categories), features_of(LinearKernel(), numeric, categories)
    assert features is not None
    found = features(rows)
    assert np.abs(found @ found.T - LinearKernel().gram(rows, rows)).max() < 1e-14
    if not numeric:
        assert np.abs(found @ found.T - DistanceKernel().gram(rows, rows)).max() < 1e-14


def test_kernels_without_a_low_rank_have_no_features() -> None:
    laplacian = KernelMixture((ProductKernel("laplacian", 0.2),), (1.0,))
    none = [(DistanceKernel(), 1, ()), (laplacian, 1, ()), (gaussian(1e-3), 1, ()), (gaussian(0.2), 3, ())]
    none += [(gaussian(0.1), 0, (30, 30)), (LinearKernel(), 0, (RANK_MAX + 1,))]
    assert [features_of(*case) for case in none] == [None] * len(none)
    assert features_of(laplacian, 0, (7,)) is not None


def test_products_that_go_are_together_as_small_as_asked() -> None:
    squares = [np.geomspace(1, 1e-8, 20), np.geomspace(1, 1e-9, 15), np.array([0.5, 0.1])]
    kept = fixed_rank._kept(squares, 1e-6)
    assert kept is not None
    stay = {tuple(index) for index in kept.tolist()}
    sizes = {
        index: math.prod(own[place] for own, place in zip(squares, index, strict=True))
        for index in itertools.product(range(20), range(15), range(2))
    }
    gone = math.fsum(size for index, size in sizes.items() if index not in stay)
    assert 0 < gone <= 1e-6
    assert len(stay) == len(kept) < len(sizes) / 2
