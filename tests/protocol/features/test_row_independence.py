"""A row's features are the same bits whatever rows stand beside it, and wherever it stands.

Sums on a grid need this: were a feature to change in its last bit because another unit has more rows, it
could round to another grid step, and replacing one unit would move the contributions of all.
"""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from definitions import Matrix, Rows, random_rows, take
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit_protocol.features.additive import AdditiveFeatures, default_choice
from tacit_protocol.features.base import PRODUCT_ROWS, FeatureMap, row_products
from tacit_protocol.features.brownian import BrownianFeatures, random_directions
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import (
    Locations,
    RawMeanEmbedding,
    SmoothCharacteristic,
    WhitenedMeanEmbedding,
)

ROWS = 2 * PRODUCT_ROWS + 77
NUMERIC, CATEGORIES = 9, (3, 4)
Features = Callable[[Rows], Matrix]


def embedding(shape: str, bandwidth: float, count: int, raw: bool = False) -> FeatureMap:
    rows = random_rows(np.random.default_rng(count), count, NUMERIC, CATEGORIES)
    kernel = ProductKernel("gaussian" if shape == "gaussian" else "laplacian", bandwidth, 0.2)
    kind = RawMeanEmbedding if raw else WhitenedMeanEmbedding
    return kind(kernel, Locations(rows.numeric, rows.categorical))


MAPS: dict[str, FeatureMap] = {
    "ME Gaussian": embedding("gaussian", 1.0, 37),
    "ME Gaussian, narrow": embedding("gaussian", 0.2, 5),
    "ME Laplacian": embedding("laplacian", 1.0, 40),
    "ME Gaussian, one location": embedding("gaussian", 1.0, 1),
    "raw ME": embedding("gaussian", 1.0, 16, raw=True),
    "SCF": SmoothCharacteristic(4 * np.random.default_rng(1).standard_normal((13, NUMERIC)), 0.7),
    "SCF, one frequency": SmoothCharacteristic(np.ones((1, NUMERIC))),
    "Brownian": BrownianFeatures(random_directions(NUMERIC, 14, np.random.default_rng(2)), 3, CATEGORIES),
    "default": AdditiveFeatures(NUMERIC, CATEGORIES, default_choice(NUMERIC, CATEGORIES, 0.3)),
}
TABLE = random_rows(np.random.default_rng(0), ROWS, NUMERIC, CATEGORIES)
WHOLE = {name: features(TABLE) for name, features in MAPS.items()}


def in_parts(features: Features, cuts: list[int]) -> Matrix:
    edges = [0, *sorted(cuts), ROWS]
    parts = [slice(start, stop) for start, stop in itertools.pairwise(edges)]
    return np.concatenate([features(take(TABLE, part)) for part in parts])


@pytest.mark.parametrize("name", MAPS)
@settings(max_examples=12, deadline=None)
@given(cuts=st.lists(st.integers(0, ROWS), max_size=5))
def test_cutting_the_table_elsewhere_changes_no_bit(name: str, cuts: list[int]) -> None:
    np.testing.assert_array_equal(in_parts(MAPS[name], cuts), WHOLE[name])


@pytest.mark.parametrize("name", MAPS)
def test_a_row_by_itself_or_in_another_place_has_the_same_bits(name: str) -> None:
    order = np.random.default_rng(2).permutation(ROWS)
    shuffled = Rows(TABLE.numeric[order], TABLE.categorical[order])
    np.testing.assert_array_equal(MAPS[name](shuffled), WHOLE[name][order])
    for row in (0, 1, PRODUCT_ROWS - 1, PRODUCT_ROWS, ROWS - 1):
        alone = MAPS[name](take(TABLE, slice(row, row + 1)))
        np.testing.assert_array_equal(alone[0], WHOLE[name][row])


def test_columns_stored_one_after_the_other_change_no_bit() -> None:
    columns = Rows(np.asfortranarray(TABLE.numeric), np.asfortranarray(TABLE.categorical))
    for name, features in MAPS.items():
        np.testing.assert_array_equal(features(columns), WHOLE[name], err_msg=name)


def test_a_map_that_looks_at_its_neighbours_is_caught() -> None:
    def centred(rows: Rows) -> Matrix:
        return np.asarray(MAPS["SCF"](rows) + 1e-15 * rows.numeric.sum())

    with pytest.raises(AssertionError):
        np.testing.assert_array_equal(in_parts(centred, [100]), centred(TABLE))


@pytest.mark.parametrize("count", [0, 1, PRODUCT_ROWS - 1, PRODUCT_ROWS, PRODUCT_ROWS + 1])
def test_row_products_are_products(count: int) -> None:
    rng = np.random.default_rng(count)
    x, matrix = rng.standard_normal((count, 6)), rng.standard_normal((6, 4))
    products = row_products(x, matrix)
    assert products.shape == (count, 4)
    np.testing.assert_allclose(products, np.einsum("ij,jk->ik", x, matrix), rtol=0, atol=1e-13)
