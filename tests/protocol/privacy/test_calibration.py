"""The exact Gaussian curve: values, monotonicity, and never more mu than the truth."""

import math

import mpmath
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit_protocol.privacy.accounting import (
    CALIBRATION_SLACK,
    gaussian_delta,
    gaussian_delta_bound,
    gaussian_mu,
    laplace_multiplier,
)

EPSILONS = st.floats(min_value=0.0, max_value=100.0)
DELTAS = st.floats(min_value=-12.0, max_value=-0.31).map(lambda exponent: 10.0**exponent)


def curve(epsilon: float, mu: float) -> mpmath.mpf:
    """The curve as it is written, with digits to spare."""
    with mpmath.workdps(120):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    ("epsilon", "mu"),
    [
        *((0.0, 1e-9), (0.0, 1.0), (1e-6, 1e-5), (0.01, 0.003), (0.1, 0.25), (1.0, 0.2), (1.0, 0.249999)),
        *((1.0, 0.27), (1.0, 1.0), (2.5, 7.0), (10.0, 2.0), (50.0, 7.0), (100.0, 11.0), (100.0, 40.0)),
    ],
)
def test_the_curve_agrees_with_arithmetic_of_120_digits(epsilon: float, mu: float) -> None:
    exact = curve(epsilon, mu)
    assert abs(gaussian_delta(epsilon, mu) - exact) <= 1e-12 * exact
    assert exact <= gaussian_delta_bound(epsilon, mu) <= exact * (1 + mpmath.mpf("1e-10"))


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (0.1, 1e-12), (10.0, 1e-9), (100.0, 1e-12)])
def test_reference_values_of_mu(epsilon: float, delta: float) -> None:
    with mpmath.workdps(60):
        start = gaussian_mu(epsilon, delta)
        target = mpmath.mpf(delta)
        truth = mpmath.findroot(
            lambda mu: mpmath.log(curve(epsilon, mu)) - mpmath.log(target), (start, start * 1.01)
        )
    assert truth * (1 - 3 * CALIBRATION_SLACK) <= start <= truth


@settings(max_examples=60, deadline=None)
@given(EPSILONS, DELTAS)
def test_mu_never_exceeds_the_truth_and_is_close_to_it(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert curve(epsilon, mu) <= delta
    assert curve(epsilon, mu * (1 + 4 * CALIBRATION_SLACK)) > delta


def test_the_check_on_mu_catches_the_classical_constant_where_it_is_not_proved() -> None:
    epsilon, delta = 50.0, 1e-5
    planted = epsilon / math.sqrt(2 * math.log(1.25 / delta))
    assert curve(epsilon, planted) > delta, "a planted wrong mu must fail the test above"
    assert planted > gaussian_mu(epsilon, delta)


def test_zero_delta_is_refused_with_advice() -> None:
    with pytest.raises(ValueError, match="Laplace"):
        gaussian_mu(1.0, 0.0)


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(-1.0, 1e-5), (math.nan, 1e-5), (math.inf, 1e-5), (1.0, 1.0), (1.0, -0.1), (1.0, math.nan)],
)
def test_budgets_that_mean_nothing_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(ValueError, match="must"):
        gaussian_mu(epsilon, delta)


@given(st.floats(min_value=1e-6, max_value=100.0))
def test_laplace_noise_is_never_too_narrow(epsilon: float) -> None:
    assert epsilon * (1 - 1e-8) <= 1 / laplace_multiplier(epsilon) <= epsilon
