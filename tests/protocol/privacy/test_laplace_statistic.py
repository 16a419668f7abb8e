"""One statistic with Laplace noise: its grid is public, and wide enough for what one unit can do."""

import math

import numpy as np
import pytest

from tacit_protocol.privacy.laplace_mechanism import LaplaceStatistic, StatisticError
from tacit_protocol.privacy.noise import OpenDPNoise


class Recorder:
    """Adds nothing and keeps what it was asked."""

    def laplace(self, values: np.ndarray, scale: float) -> np.ndarray:
        self.values, self.scale = values.copy(), scale
        return values

    def gaussian(self, values: np.ndarray, scale: float) -> np.ndarray:
        raise AssertionError("Laplace noise alone")


@pytest.mark.parametrize("sensitivity", [1e-6, 0.3, 1.0, 1e3, 1e9])
def test_numbers_a_sensitivity_apart_stay_within_epsilon(sensitivity: float) -> None:
    released, recorder = LaplaceStatistic(sensitivity, 1e4 * sensitivity, 0.5), Recorder()
    rng = np.random.default_rng(1)
    for value in rng.uniform(-100, 100, 50) * sensitivity:
        released.release(value, recorder)
        one = int(recorder.values[0])
        released.release(value + sensitivity, recorder)
        assert abs(int(recorder.values[0]) - one) / recorder.scale <= 1 / 0.5
        assert recorder.scale == pytest.approx(math.ldexp(released.scale, released.bits))
    assert released.scale == pytest.approx(sensitivity * 0.5, rel=1e-6)


def test_the_grid_leaves_room_for_the_largest_value() -> None:
    released = LaplaceStatistic(1.0, 1e12, 1.0)
    vector = released.release(1e12, OpenDPNoise())
    assert vector.exponent == -released.bits
    assert vector.mean(1)[0] == pytest.approx(1e12, abs=100)
    for largest in (1e15, 1e20):
        with pytest.raises(StatisticError, match="fewer cells"):
            _ = LaplaceStatistic(1.0, largest, 1.0).bits


@pytest.mark.parametrize("value", [math.nan, math.inf, -11.0])
def test_a_value_outside_its_bounds_is_refused_without_being_told(value: float) -> None:
    with pytest.raises(StatisticError) as refused:
        LaplaceStatistic(1.0, 10.0, 1.0).release(value, OpenDPNoise())
    assert "11" not in str(refused.value)
