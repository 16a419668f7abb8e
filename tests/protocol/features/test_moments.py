"""Exact sums of features: the same bits however a table is cut, and a sensitivity no neighbour passes."""

import numpy as np
import pytest
from two_sample_cases import MemoryTable, domain_of

from tacit_protocol.features.moments import (
    AdditiveFeatures,
    UnitCountError,
    default_choice,
    sum_features,
    sum_sensitivity,
)

DOMAIN = domain_of(3, (4,))
ADDITIVE = AdditiveFeatures(3, (4,), default_choice(3, (4,), 0.3))


def table(rows: int, *, several: bool, seed: int = 1) -> MemoryTable:
    rng = np.random.default_rng(seed)
    unit = np.sort(rng.integers(0, rows // 3, rows)) if several else None
    return MemoryTable(DOMAIN, rng.random((rows, 3)), rng.integers(0, 4, (rows, 1)).astype(np.int32), unit)


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_table_with_another_number_of_units_than_declared_is_refused(several: bool, change: int) -> None:
    whole = table(90, several=several)
    wrong = MemoryTable(DOMAIN, whole.numeric, whole.categorical, whole.unit, (), whole.units + change)
    with pytest.raises(UnitCountError):
        sum_features(ADDITIVE, wrong, products=True)


def test_rounding_is_part_of_the_sensitivity() -> None:
    """On a coarse grid neighbours do pass the diameter, by less than the rounding that is counted."""
    features, bits = AdditiveFeatures(0, (2,) * 7, default_choice(0, (2,) * 7, 0.0)), 8
    ends = np.array([[0] * 7, [1] * 7], dtype=np.int32)
    values = features(MemoryTable(DOMAIN, np.zeros((2, 0)), ends))
    assert np.linalg.norm(values[0] - values[1]) == pytest.approx(features.diameter, rel=1e-12)
    rounded = np.rint(values * 2.0**bits) * 2.0**-bits
    moved = float(np.linalg.norm(rounded[0] - rounded[1]))
    assert features.diameter < moved <= sum_sensitivity(features, bits)
