"""Kernels on mixed tables, the distance kernel and random Fourier features, against their definitions."""

import itertools
import math
from typing import Literal

import mpmath
import numpy as np
import pytest
from definitions import gram, random_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit_protocol.domain import EncodedChunk
from tacit_protocol.features.kernels import DistanceKernel, LinearKernel, ProductKernel, RandomFourier
from tacit_protocol.features.unit_gram import UnitGram, UnitRows
from tacit_protocol.numerics.distance_covariance import distance_covariance_sqr
from tacit_protocol.procedures.permutation.statistic import permuted_statistics

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
