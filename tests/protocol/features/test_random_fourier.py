"""Random Fourier features: norm 1 whatever is drawn, the product kernel on average, a diameter that holds."""

import math
from typing import Literal

import numpy as np
import pytest

from tacit_protocol.domain.table import EncodedChunk
from tacit_protocol.features.kernels import ProductKernel, RandomFourier


def rows(numeric: int, categories: tuple[int, ...], count: int = 40, seed: int = 1) -> EncodedChunk:
    rng = np.random.default_rng(seed)
    codes = [rng.integers(0, c, count, dtype=np.int32) for c in categories]
    table = np.stack(codes, axis=1) if codes else np.zeros((count, 0), dtype=np.int32)
    return EncodedChunk(rng.random((count, numeric)), table, None, count)


@pytest.mark.parametrize("shape", ["gaussian", "laplacian"])
@pytest.mark.parametrize(("numeric", "categories"), [(1, ()), (3, (4,)), (2, (3, 5)), (0, (4,))])
def test_every_row_has_norm_1(
    shape: Literal["gaussian", "laplacian"], numeric: int, categories: tuple[int, ...]
) -> None:
    kernel = ProductKernel(shape, 0.3, 0.5)
    features = RandomFourier.draw(kernel, numeric, categories, 17, np.random.default_rng(2))
    values = features(rows(numeric, categories))
    assert values.shape == (40, features.dimension)
    assert np.linalg.norm(values, axis=1) == pytest.approx(1.0, abs=1e-12)
    assert features.dimension == (34 if numeric else 17)


@pytest.mark.parametrize("shape", ["gaussian", "laplacian"])
def test_inner_products_are_the_product_kernels_on_average(shape: Literal["gaussian", "laplacian"]) -> None:
    """Averages of 40 000 numbers in [-1, 1]: off by .03 with probability below 1e-7 each (Hoeffding)."""
    kernel, data = ProductKernel(shape, 0.4, 0.3), rows(2, (3, 3), count=6)
    features = RandomFourier.draw(kernel, 2, (3, 3), 40_000, np.random.default_rng(3))
    values = features(data)
    assert values @ values.T == pytest.approx(kernel.gram(data, data), abs=0.03)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("numeric", "categories"), [(1, ()), (2, ()), (1, (3,)), (3, ()), (0, (5,))])
def test_no_two_rows_are_farther_apart_than_the_diameter(
    seed: int, numeric: int, categories: tuple[int, ...]
) -> None:
    features = RandomFourier.draw(
        ProductKernel("gaussian", 0.3, 0.2), numeric, categories, 12, np.random.default_rng(seed)
    )
    values = features(rows(numeric, categories, count=400, seed=seed))
    squared = 2 - 2 * values @ values.T
    assert math.sqrt(squared.max()) <= features.diameter <= 2


def test_the_diameter_is_reached_and_may_be_far_below_2() -> None:
    """One wide frequency: cos(1) is the smallest product, at opposite ends."""
    features = RandomFourier(np.array([[1.0]]))
    ends = EncodedChunk(np.array([[0.0], [1.0]]), np.zeros((2, 0), dtype=np.int32), None, 2)
    first, second = features(ends)
    reached = float(np.linalg.norm(first - second))
    assert reached == pytest.approx(math.sqrt(2 - 2 * math.cos(1)))
    assert reached <= features.diameter <= reached + 1e-3
