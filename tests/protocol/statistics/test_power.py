"""Detectable differences: the power promised is the power there is."""

import numpy as np
import pytest
from scipy import stats

from tacit_protocol.procedures.kernel_two_sample.statistic import (
    POWER,
    detectable_difference,
    detectable_squared_mmd,
)


@pytest.mark.parametrize("level", [0.05, 1e-4])
@pytest.mark.parametrize("noise", [(0.01, 0.02), (0.5, 0.1)])
def test_the_detectable_difference_is_seen_with_the_power_stated(
    noise: tuple[float, float], level: float
) -> None:
    scale, units = 0.4, (500, 3000)
    difference = detectable_difference(noise, units, scale, level)
    spread = np.sqrt((noise[0] ** 2 + noise[1] ** 2) / scale**2 + 0.5 / units[0] + 0.5 / units[1])
    seen = stats.norm.sf(stats.norm.isf(level / 2) - difference / spread)
    assert seen == pytest.approx(POWER, abs=1e-6)


@pytest.mark.parametrize("dimension", [1, 5, 200])
@pytest.mark.parametrize("level", [0.05, 1e-4])
def test_the_detectable_squared_mmd_is_seen_with_the_power_stated(dimension: int, level: float) -> None:
    noise = (0.03, 0.01)
    energy = noise[0] ** 2 + noise[1] ** 2
    squared = detectable_squared_mmd(noise, dimension, level)
    seen = stats.ncx2.sf(stats.chi2.isf(level, dimension), dimension, squared / energy)
    assert seen == pytest.approx(POWER, abs=1e-6)
