"""Direct sums, and the default features that are one."""

import math

import numpy as np
import pytest
from definitions import random_rows

from tacit_protocol.features.additive import AdditiveFeatures, ColumnWise, DirectSum, Pairwise, default_choice
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import Locations, RawMeanEmbedding

COLUMNS = ColumnWise(2, (), (1.0, 2.0), (1.0, 1.0))
PAIRS = Pairwise(2, (), (1.0,), (1.0,))


def test_the_kernel_is_the_shares_average_of_the_blocks_kernels() -> None:
    rows = random_rows(np.random.default_rng(0), 20, 2)
    features = DirectSum((COLUMNS, PAIRS), (3.0, 1.0))
    values, columns, pairs = features(rows), COLUMNS(rows), PAIRS(rows)
    assert features.dimension == COLUMNS.dimension + PAIRS.dimension
    np.testing.assert_allclose(
        values @ values.T, 0.75 * columns @ columns.T + 0.25 * pairs @ pairs.T, atol=1e-14
    )
    np.testing.assert_allclose(values[:, : COLUMNS.dimension], math.sqrt(0.75) * columns, rtol=1e-15)


def test_bounds_are_root_mean_squares_of_the_blocks() -> None:
    raw = RawMeanEmbedding(
        ProductKernel("gaussian", 1.0), Locations(np.zeros((4, 2)), np.zeros((4, 0), np.int32))
    )
    features = DirectSum((COLUMNS, raw), (1.0, 3.0))
    assert features.norm == pytest.approx(math.sqrt(0.25 * 1 + 0.75 * 4))
    assert features.diameter == pytest.approx(math.sqrt(0.25 * 3.125 + 0.75 * 4), abs=1e-5)
    assert features.second_moment_diameter == pytest.approx(math.sqrt(2) * features.norm**2)


@pytest.mark.parametrize(("numeric", "categories"), [(1, ()), (2, ()), (4, (3,)), (0, (3, 5)), (20, ())])
def test_groups_of_the_default_features_cover_every_coordinate_once(
    numeric: int, categories: tuple[int, ...]
) -> None:
    features = AdditiveFeatures(numeric, categories, default_choice(numeric, categories, 0.3))
    groups = [*features.column_groups, *((start, stop) for _, _, start, stop in features.pair_groups)]
    covered = [index for start, stop in groups for index in range(start, stop)]
    assert covered == list(range(features.dimension))
    assert len(features.column_groups) == numeric + len(categories)
    assert (features.pairwise is None) == (numeric + len(categories) < 2)
