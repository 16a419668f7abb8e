"""Exact sums of features: the same bits however a table is cut, and a sensitivity no neighbour passes."""

from collections.abc import Sequence

import numpy as np
import pytest
from two_sample_cases import MemoryTable, domain_of

from tacit_protocol.features.additive import AdditiveFeatures, ColumnWise, default_choice
from tacit_protocol.features.base import FeatureMap
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import Locations, WhitenedMeanEmbedding
from tacit_protocol.features.moments import (
    FeatureSums,
    MomentShares,
    UnitCountError,
    moment_parts,
    second_moment_sensitivity,
    sum_features,
    sum_sensitivity,
)
from tacit_protocol.privacy.exact_sums import GridError, grid_bits

DOMAIN = domain_of(3, (4,))
ADDITIVE = AdditiveFeatures(3, (4,), default_choice(3, (4,), 0.3))
LOCATIONS = Locations(np.random.default_rng(0).random((7, 3)), np.arange(7, dtype=np.int32)[:, None] % 4)
EMBEDDING = WhitenedMeanEmbedding(ProductKernel("gaussian", 0.5, 0.5), LOCATIONS)


def table(rows: int, *, several: bool, seed: int = 1) -> MemoryTable:
    rng = np.random.default_rng(seed)
    unit = np.sort(rng.integers(0, rows // 3, rows)) if several else None
    return MemoryTable(DOMAIN, rng.random((rows, 3)), rng.integers(0, 4, (rows, 1)).astype(np.int32), unit)


def cut(whole: MemoryTable, cuts: Sequence[int], shuffle: bool = False) -> MemoryTable:
    order = np.random.default_rng(2).permutation(len(whole.numeric)) if shuffle else None
    return MemoryTable(DOMAIN, whole.numeric, whole.categorical, whole.unit, cuts, None, order)


def same(a: FeatureSums, b: FeatureSums) -> bool:
    assert a.second is not None
    assert b.second is not None
    return bool(
        np.array_equal(a.total, b.total)
        and np.array_equal(a.second, b.second)
        and (a.units, a.bits, a.sensitivity) == (b.units, b.bits, b.sensitivity)
    )


def test_sums_are_those_of_the_units_averages() -> None:
    whole = table(700, several=True)
    assert whole.unit is not None
    found = sum_features(ADDITIVE, whole, products=True)
    values = ADDITIVE(whole)
    averages = np.stack([values[whole.unit == name].mean(axis=0) for name in np.unique(whole.unit)])
    assert found.units == len(averages)
    step = 2.0**-found.bits
    np.testing.assert_allclose(found.total * step, averages.sum(axis=0), atol=len(averages) * step)
    assert found.second is not None
    np.testing.assert_allclose(found.second * step**2, averages.T @ averages, atol=4 * len(averages) * step)
    np.testing.assert_array_equal(found.second, found.second.T)


def test_only_the_mean_is_summed_where_products_are_not_asked_for() -> None:
    found = sum_features(ADDITIVE, table(50, several=False), products=False)
    assert found.second is None
    assert found.second_sensitivity == 0.0
    assert found.bits == grid_bits(50, False)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_table_with_another_number_of_units_than_declared_is_refused(several: bool, change: int) -> None:
    whole = table(90, several=several)
    wrong = MemoryTable(DOMAIN, whole.numeric, whole.categorical, whole.unit, (), whole.units + change)
    with pytest.raises(UnitCountError):
        sum_features(ADDITIVE, wrong, products=True)


def test_features_outside_the_grid_are_refused() -> None:
    whole = table(90, several=False)
    with pytest.raises(GridError):
        sum_features(
            _Tripled(ADDITIVE), MemoryTable(DOMAIN, whole.numeric, whole.categorical), products=False
        )


class _Tripled:
    """Features that leave the grid's range."""

    def __init__(self, features: FeatureMap) -> None:
        self.dimension, self.norm = features.dimension, features.norm
        self.diameter, self.second_moment_diameter = features.diameter, features.second_moment_diameter
        self._features = features

    def __call__(self, rows: object) -> np.ndarray:
        return 3.0 * self._features(rows)  # type: ignore[arg-type]


def test_rounding_is_part_of_the_sensitivity() -> None:
    """On a coarse grid neighbours do pass the diameter, by less than the rounding that is counted."""
    features, bits = AdditiveFeatures(0, (2,) * 7, default_choice(0, (2,) * 7, 0.0)), 8
    ends = np.array([[0] * 7, [1] * 7], dtype=np.int32)
    values = features(MemoryTable(DOMAIN, np.zeros((2, 0)), ends))
    assert np.linalg.norm(values[0] - values[1]) == pytest.approx(features.diameter, rel=1e-12)
    rounded = np.rint(values * 2.0**bits) * 2.0**-bits
    moved = float(np.linalg.norm(rounded[0] - rounded[1]))
    assert features.diameter < moved <= sum_sensitivity(features, bits)


def test_second_moment_sensitivity_counts_the_features_norm() -> None:
    """|zz' - (z + e)(z + e)'| <= 2 |z| |e| + |e|^2 for features of norm above 1 too."""
    raw = _Tripled(EMBEDDING)
    raw.norm, raw.second_moment_diameter = 3.0, 9 * EMBEDDING.second_moment_diameter
    extra = second_moment_sensitivity(EMBEDDING, 10) - EMBEDDING.second_moment_diameter
    wider = second_moment_sensitivity(raw, 10) - raw.second_moment_diameter
    assert wider == pytest.approx(3 * extra, rel=0.02)


FEATURES = ColumnWise(1, (3,), (1.0,), (1.0,))
BOTH = MomentShares(0.8, 0.2)


def test_parts_have_their_shapes_grids_sensitivities_and_shares() -> None:
    mean, diagonal, off = moment_parts(FEATURES, BOTH, 12)
    assert [len(part.sums) for part in (mean, diagonal, off)] == [5, 5, 10]
    assert [part.exponent for part in (mean, diagonal, off)] == [-12, -24, -24]
    assert mean.sensitivity == sum_sensitivity(FEATURES, 12)
    assert diagonal.sensitivity == off.sensitivity == second_moment_sensitivity(FEATURES, 12)
    assert (mean.share, diagonal.share, off.share) == (0.8, 0.2, 0.2)
    assert diagonal.scale(1.0) / off.scale(1.0) == pytest.approx(np.sqrt(2))
