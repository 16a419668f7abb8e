"""Laplace noise on exact sums: pure epsilon for any vector of the stated L2 sensitivity."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tacit_protocol.features.mean_embedding import SmoothCharacteristic
from tacit_protocol.features.moments import sum_sensitivity
from tacit_protocol.privacy.gaussian_mechanism import (
    LayoutError,
    SensitivityError,
    SumPart,
    gaussian_guarantee,
)
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.laplace_mechanism import (
    check_laplace_sums,
    l1_sensitivity,
    laplace_sum_guarantee,
    of_event,
    release_laplace_sums,
    shared_laplace_guarantee,
    sums_scale,
)
from tacit_protocol.privacy.noise import OpenDPNoise

PURE = laplace_sum_guarantee(Budget.of(2.0, 0))


def part(coordinates: int, sensitivity: float = math.sqrt(2)) -> SumPart:
    return SumPart("mean", np.zeros(coordinates, dtype=np.int64), -20, sensitivity, 1.0)


@pytest.mark.parametrize("coordinates", [1, 2, 7, 400])
def test_the_worst_direction_is_the_diagonal_and_the_bound_holds_there(coordinates: int) -> None:
    diagonal = np.full(coordinates, math.sqrt(2 / coordinates))
    assert np.linalg.norm(diagonal) == pytest.approx(math.sqrt(2))
    assert np.abs(diagonal).sum() <= l1_sensitivity(part(coordinates)) <= np.abs(diagonal).sum() * (1 + 1e-12)


def test_rounding_is_counted_in_every_coordinate() -> None:
    """Two neighbours' contributions may each be rounded by 17/16 of a step in all J coordinates."""
    features = SmoothCharacteristic(np.ones((50, 1)))
    step, given = 2.0**-8, part(100, sum_sensitivity(SmoothCharacteristic(np.ones((50, 1))), 8))
    worst = math.sqrt(100) * features.diameter + 2 * 100 * (17 / 16) * step
    assert l1_sensitivity(given) == pytest.approx(worst)
    assert l1_sensitivity(given) >= worst * (1 - 1e-12)


def test_the_scale_is_the_sensitivity_over_epsilon_and_the_release_says_so() -> None:
    given = part(9)
    assert sums_scale(given, PURE) == pytest.approx(3 * math.sqrt(2) / 2)
    vector = release_laplace_sums(given, PURE, OpenDPNoise())
    assert (vector.noise, vector.exponent, len(vector.values)) == ("laplace", -20, 9)
    check_laplace_sums(vector, PURE, given, PURE)
    for change in ({"scale": vector.scale / 2}, {"noise": "gaussian"}, {"exponent": -19}):
        with pytest.raises(LayoutError):
            check_laplace_sums(vector.model_copy(update=change), PURE, given, PURE)
    with pytest.raises(LayoutError, match="guarantee"):
        check_laplace_sums(vector, laplace_sum_guarantee(Budget.of(1.0, 0)), given, PURE)


def test_a_gaussian_guarantee_is_not_one_of_laplace_noise() -> None:
    with pytest.raises(SensitivityError):
        sums_scale(part(2), gaussian_guarantee(Budget.of(1.0, 1e-5)))


def spent(shares: tuple[float, float], epsilon: float) -> Fraction:
    """What two releases that share epsilon spend together at most, exactly, by the noise that each has."""
    shared = shared_laplace_guarantee(Budget.of(epsilon, 0), shares)
    parts = (
        SumPart("histograms", np.zeros(3, dtype=np.int64), -20, math.sqrt(6), shares[0], l1=6.0),
        part(7),
    )
    scales = [sums_scale(each, of_event(shared, place)) for place, each in enumerate(parts)]
    return sum(
        (Fraction(l1_sensitivity(each)) / Fraction(scale) for each, scale in zip(parts, scales, strict=True)),
        Fraction(0),
    )


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 0.3, 1.0, 7.7, 20.0])
def test_releases_that_share_epsilon_spend_no_more_than_it(epsilon: float) -> None:
    for share in np.random.default_rng(4).uniform(0.01, 0.99, 200).tolist():
        assert spent((share, 1 - share), epsilon) <= Fraction(str(epsilon))
    assert spent((0.25, 0.76), epsilon) > Fraction(str(epsilon)), "shares beyond the whole would be seen"
