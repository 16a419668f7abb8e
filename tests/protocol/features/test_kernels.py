"""Kernels on mixed tables against their definition, their smallest value and positive semidefiniteness."""

import itertools
import math
from typing import Literal

import mpmath
import numpy as np
import pytest
from definitions import Rows, gram, random_rows
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit_protocol.features.kernels import ProductKernel

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


@settings(max_examples=40, deadline=None)
@given(
    shapes, st.floats(0.05, 5.0), similarities, st.integers(0, 4), st.integers(0, 3), st.integers(0, 2**31)
)
def test_gram_matrices_are_positive_semidefinite_with_ones_on_the_diagonal(
    shape: Shape, bandwidth: float, similarity: float, numeric: int, categorical: int, seed: int
) -> None:
    kernel = ProductKernel(shape, bandwidth, similarity)
    rows = random_rows(np.random.default_rng(seed), 30, numeric, (3, 4, 5)[:categorical])
    values = kernel.gram(rows, rows)
    np.testing.assert_allclose(np.diagonal(values), 1.0, rtol=0, atol=1e-13)
    assert values.min() >= 0
    assert values.max() <= 1
    assert np.linalg.eigvalsh((values + values.T) / 2).min() > -1e-12


@pytest.mark.parametrize("similarity", [-1e-9, 1.0, float("nan")])
def test_similarities_outside_their_range_are_refused(similarity: float) -> None:
    with pytest.raises(ValueError, match="similarity"):
        ProductKernel("gaussian", 1.0, similarity)


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, 9e-7, 1.1e6, float("inf"), float("nan")])
def test_bandwidths_outside_their_range_are_refused(bandwidth: float) -> None:
    with pytest.raises(ValueError, match="bandwidth"):
        ProductKernel("laplacian", bandwidth)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("shape", ["gaussian", "laplacian"])
@pytest.mark.parametrize(("numeric", "categorical"), [(1, 0), (3, 0), (2, 1), (0, 2), (2, 2)])
@pytest.mark.parametrize("similarity", [0.0, 0.4])
def test_the_minimum_is_the_smallest_value_over_corners_and_random_rows(
    shape: Shape, numeric: int, categorical: int, similarity: float
) -> None:
    kernel = ProductKernel(shape, 0.7, similarity)
    corners = np.array(list(itertools.product((0.0, 1.0), repeat=numeric)), dtype=np.float64)
    codes = np.array(list(itertools.product(range(2), repeat=categorical)), dtype=np.int32)
    grid = Rows(np.repeat(corners, len(codes), axis=0), np.tile(codes, (len(corners), 1)))
    minimum = kernel.minimum(numeric, categorical)
    assert kernel.gram(grid, grid).min() == pytest.approx(minimum, abs=1e-15)
    rows = random_rows(np.random.default_rng(0), 300, numeric, (3,) * categorical)
    assert kernel.gram(rows, rows).min() >= minimum - 1e-15


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


def test_the_distance_of_a_flat_kernel_is_small_but_not_nothing() -> None:
    """The plain formula, 2 - 2 min k, is a hundredth off here, and 0 a little further on."""
    kernel = ProductKernel("gaussian", 1e6)
    naive = math.sqrt(2 - 2 * kernel.minimum(1, 0))
    assert kernel.distance_max(1, 0) == pytest.approx(1e-6, rel=1e-12)
    assert naive != pytest.approx(1e-6, rel=1e-6)
