"""Locations, frequencies and bandwidths: functions of the seed and of public rows."""

from typing import Any

import numpy as np
import pytest
from two_sample_cases import domain_of

from tacit_protocol.domain.columns import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.features.mean_embedding import (
    KernelChoice,
    draw_frequencies,
    draw_locations,
    encode_locations,
    median_distance,
    smooth_characteristic,
)

MIXED = Domain(
    columns=(
        NumericColumn(name="age", lower=0.0, upper=100.0),
        CategoricalColumn(name="sex", levels=("F", "M")),
        NumericColumn(name="dose", lower=-1.0, upper=1.0, missing=1.0),
    )
)


def choice(**changes: Any) -> KernelChoice:
    plain: dict[str, Any] = {
        "count": 6, "shape": "gaussian", "bandwidth": None, "similarity": 0.5, "locations": None,
        "raw": False,
    }  # fmt: skip
    return KernelChoice(**(plain | changes))


def test_drawn_locations_lie_in_the_domain_and_follow_the_seed() -> None:
    locations = draw_locations(MIXED, 500, np.random.default_rng(1))
    assert locations.numeric.shape == (500, 2)
    assert locations.numeric.min() >= 0
    assert locations.numeric.max() <= 1
    assert set(np.unique(locations.categorical)) == {0, 1, 2, 3}
    again = draw_locations(MIXED, 500, np.random.default_rng(1))
    np.testing.assert_array_equal(locations.numeric, again.numeric)
    np.testing.assert_array_equal(locations.categorical, again.categorical)
    assert not np.array_equal(locations.numeric, draw_locations(MIXED, 500, np.random.default_rng(2)).numeric)


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


def test_the_median_distance_is_that_of_all_pairs() -> None:
    points = np.random.default_rng(3).random((10, 2))
    pairs = [np.linalg.norm(points[i] - points[j]) for i in range(10) for j in range(i)]
    assert median_distance(points) == pytest.approx(np.median(pairs), rel=1e-12)


@pytest.mark.parametrize("points", [np.zeros((1, 2)), np.zeros((5, 2)), np.zeros((0, 3)), np.zeros((4, 0))])
def test_points_that_coincide_have_a_bandwidth_of_one(points: np.ndarray) -> None:
    assert median_distance(points) == 1.0


def test_frequencies_are_those_of_the_gaussian_kernel() -> None:
    """E cos(w'(x - y)) = exp(-|x - y|^2 / (2 h^2)), to six standard errors."""
    frequencies = draw_frequencies(2, 100_000, 0.5, np.random.default_rng(4))
    difference = np.array([0.3, -0.4])
    assert np.cos(frequencies @ difference).mean() == pytest.approx(np.exp(-0.5), abs=6 / np.sqrt(100_000))


def test_scf_features_come_in_pairs_and_take_numeric_columns_alone() -> None:
    rng = np.random.default_rng(6)
    assert [smooth_characteristic(domain_of(2), choice(count=c), rng).dimension for c in (1, 6, 7)] == [
        2,
        6,
        6,
    ]
    with pytest.raises(ValueError, match="numeric columns alone"):
        smooth_characteristic(MIXED, choice(), rng)
    assert smooth_characteristic(domain_of(2), choice(raw=True), rng).norm == pytest.approx(np.sqrt(3))
