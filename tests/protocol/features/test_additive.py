"""The default choice of features: what a domain alone decides."""

import numpy as np
import pytest
from definitions import random_rows

from tacit_protocol.features.additive import (
    BASE_CYCLES,
    PAIR_COORDINATES_MAX,
    AdditiveChoice,
    AdditiveFeatures,
    default_choice,
)
from tacit_protocol.privacy.guarantee import COORDINATES_MAX

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


def test_frequencies_are_exact_doubles() -> None:
    """0.8125 is dyadic: the doubled frequency is found by equality, not by luck."""
    for columns in (1, 5, 50):
        cycles = default_choice(columns, (), 0.3).cycles
        assert 2 * cycles[0] in cycles
        assert cycles[0] == BASE_CYCLES == 13 / 16


@pytest.mark.parametrize(("numeric", "categories"), DOMAINS)
def test_the_pairwise_block_stays_within_its_cap(numeric: int, categories: tuple[int, ...]) -> None:
    features = AdditiveFeatures(numeric, categories, default_choice(numeric, categories, 0.3))
    pairs = features.dimension - features.column_wise.dimension
    assert pairs <= PAIR_COORDINATES_MAX < COORDINATES_MAX
    assert (pairs > 0) == (features.choice.pair_share > 0)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.9])
def test_squared_weights_of_the_blocks_are_the_shares(share: float) -> None:
    features = AdditiveFeatures(4, (3,), default_choice(4, (3,), share))
    values = features(random_rows(np.random.default_rng(1), 20, 4, (3,)))
    split = features.column_wise.dimension
    np.testing.assert_allclose(np.sum(values[:, :split] ** 2, axis=1), 1 - share, rtol=1e-12)
    np.testing.assert_allclose(np.sum(values[:, split:] ** 2, axis=1), share, rtol=1e-12)


@pytest.mark.parametrize("cycles", [(0.8125, 1.625), (1.625, 0.8125), (3.25,)])
@pytest.mark.parametrize(("numeric", "categories"), [(2, ()), (4, (3,)), (0, (3, 5)), (1, (40,))])
def test_pairs_parts_follow_from_the_columns_features(
    numeric: int, categories: tuple[int, ...], cycles: tuple[float, ...]
) -> None:
    choice = AdditiveChoice((0.8125, 1.625, 3.25), (1.0, 0.5, 0.4), cycles, 0.3)
    features = AdditiveFeatures(numeric, categories, choice)
    rows = random_rows(np.random.default_rng(2), 30, numeric, categories)
    assert features.pairwise is not None
    parts = features.pair_parts(features.column_wise(rows))
    np.testing.assert_allclose(parts, features.pairwise.parts(rows), rtol=0, atol=1e-14)
