"""Tails of weighted chi-squares plus a normal: against closed forms, quadrature and published values."""

import math

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit_protocol.numerics import quadratic_forms
from tacit_protocol.numerics.quadratic_forms import (
    TINY,
    NullDistributionError,
    quantile,
    survival,
    survival_many,
)

FIVE = (1.8, 1.3, 1.1, 3.0, 5.0)

WEIGHTS = st.lists(
    st.floats(min_value=-3.0, max_value=0.0).flatmap(lambda e: st.sampled_from([10.0**e, -(10.0**e)])),
    min_size=1,
    max_size=7,
    unique=True,
)
SIGMAS = st.one_of(st.just(0.0), st.floats(min_value=0.01, max_value=10.0))
STANDARD = st.floats(min_value=-30.0, max_value=30.0)

# Imhof's integral on the real line (or, without a normal, Talbot's contour), by mpmath with 30 to 40 digits.
REFERENCES = [
    (15.0, [1.0], [5], 2.0, 0.0142747464069894016),
    (40.0, list(FIVE), [1] * 5, 0.5, 0.0148977590231505107),
    (40.0, list(FIVE), [1] * 5, 0.0, 0.0148728184729740010),
    (30.0, [6.0, 3.0, 1.0], [1] * 3, 2.0, 0.0457063205718930961),
    (2.0, [2.0, -1.5, 0.7], [1, 2, 3], 1.0, 0.386484689283763070),
    (-3.0, [0.5, -0.25], [3, 9], 0.3, 0.929334765086278262),
]


def moments(weights: npt.ArrayLike, degrees: npt.ArrayLike, sigma: float) -> tuple[float, float]:
    w, d = np.asarray(weights, dtype=float), np.asarray(degrees, dtype=float)
    return float(w @ d), math.sqrt(2 * float(w**2 @ d) + sigma**2)


def closed_form(t: float, weights: list[float], sigma: float) -> mpmath.mpf:
    """Exact for two degrees of freedom each: a signed mixture of exponentials, plus a normal."""
    t, sigma = mpmath.mpf(t), mpmath.mpf(sigma)
    total = mpmath.mpf(0)
    for a in map(mpmath.mpf, weights):
        share = mpmath.fprod(a / (a - b) for b in map(mpmath.mpf, weights) if b != a)
        tail = exponential_plus_normal(t if a > 0 else -t, 1 / (2 * abs(a)), sigma)
        total += share * (tail if a > 0 else 1 - tail)
    return total


def exponential_plus_normal(t: mpmath.mpf, rate: mpmath.mpf, sigma: mpmath.mpf) -> mpmath.mpf:
    """P(E + N(0, sigma^2) > t) for E exponential."""
    if sigma == 0:
        return mpmath.exp(-rate * max(t, 0))
    shift = rate * sigma
    tilted = mpmath.exp(-rate * t + shift**2 / 2) * mpmath.ncdf(t / sigma - shift)
    return mpmath.ncdf(-t / sigma) + tilted


@pytest.mark.parametrize(("t", "weights", "degrees", "sigma", "reference"), REFERENCES)
def test_reference_values(
    t: float, weights: list[float], degrees: list[int], sigma: float, reference: float
) -> None:
    assert abs(survival(t, weights, sigma, degrees) - reference) < 1e-13
    assert abs(quantile(reference, weights, sigma, degrees) - t) < 1e-10 * abs(t)


@pytest.mark.parametrize("degrees", [1, 2, 3, 10, 400, 4000])
def test_one_weight_is_chi_square_far_into_both_tails(degrees: int) -> None:
    law = scipy.stats.chi2(degrees)
    upper = law.isf(10.0 ** -np.array([0.01, 0.3, 1, 2, 5, 10, 50, 100, 200, 300.0]))
    np.testing.assert_allclose(survival_many(upper, [1.0], 0.0, [degrees]), law.sf(upper), rtol=1e-10)
    lower = law.ppf(10.0 ** -np.array([0.3, 1, 5, 10, 100.0]))
    lower_tail = survival_many(-lower, [-1.0], 0.0, [degrees])
    np.testing.assert_allclose(lower_tail, law.cdf(lower), rtol=1e-10)


@pytest.mark.long
@settings(max_examples=150, deadline=None)
@given(WEIGHTS, SIGMAS, STANDARD)
def test_even_degrees_agree_with_the_closed_form(weights: list[float], sigma: float, x: float) -> None:
    degrees = [2] * len(weights)
    mean, sd = moments(weights, degrees, sigma)
    t = mean + x * sd
    with mpmath.workdps(450):
        exact = float(closed_form(t, weights, sigma))
    p = survival(t, weights, sigma, degrees)
    assert abs(p - max(exact, TINY)) <= 1e-10 * max(exact, TINY)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(WEIGHTS, SIGMAS, st.floats(min_value=-100.0, max_value=-1e-4).map(lambda e: 10.0**e))
def test_quantiles_invert_survival(weights: list[float], sigma: float, p: float) -> None:
    t = quantile(p, weights, sigma)
    lower, upper = t - 1e-12 * abs(t), t + 1e-12 * abs(t)
    assert survival(lower, weights, sigma) * (1 + 1e-9) >= p
    assert survival(upper, weights, sigma) * (1 - 1e-9) <= p


@pytest.mark.parametrize(
    ("t", "weights", "p"),
    [
        *((-1.0, [1.0], 1.0), (0.0, [1.0], 1.0), (0.0, [-1.0], TINY), (1.0, [-1.0, -2.0], TINY)),
        *((math.inf, [1.0], TINY), (-math.inf, [1.0], 1.0), (1e9, [1.0], TINY)),
        *((1e300, [1.0, -1.0], TINY), (0.0, [0.0], TINY), (-1e-300, [0.0], 1.0)),
    ],
)
def test_beyond_the_support_the_answer_is_one_or_the_smallest_float(
    t: float, weights: list[float], p: float
) -> None:
    assert survival(t, weights) == p


def test_a_rule_too_coarse_to_trust_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quadratic_forms, "FIRST_STEP", 2.0)
    monkeypatch.setattr(quadratic_forms, "HALVINGS_MAX", 1)
    with pytest.raises(NullDistributionError, match="converge"):
        survival(40.0, FIVE, 0.5)
    monkeypatch.setattr(quadratic_forms, "AGREEMENT", 1.0)
    monkeypatch.setattr(quadratic_forms, "RELATIVE_ERROR_MAX", 1.0)
    assert abs(survival(40.0, FIVE, 0.5) - 0.0148977590231505107) > 1e-9, "without the check it is wrong"


@pytest.mark.parametrize(
    ("weights", "sigma", "degrees"),
    [
        *(([], 0.0, None), ([math.nan], 0.0, None), ([math.inf], 0.0, None), ([[1.0]], 0.0, None)),
        *(([1.0], -1.0, None), ([1.0], math.nan, None), ([1.0], 0.0, [0]), ([1.0], 0.0, [1, 1])),
        ([1.0], 0.0, [1.5]),
    ],
)
def test_laws_that_mean_nothing_are_refused(weights: list[float], sigma: float, degrees: list[int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        survival(1.0, weights, sigma, degrees)


def test_statistics_and_probabilities_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="number"):
        survival(math.nan, [1.0])
    for p in (0.0, 1.0, -0.1, math.nan):
        with pytest.raises(ValueError, match="strictly between"):
            quantile(p, [1.0])
