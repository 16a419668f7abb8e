"""Composition, calibration and shares: exact where they can be, and never below the truth."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tacit_protocol.privacy.accounting import (
    APPROXIMATE_UNITS,
    CALIBRATION_SLACK,
    EVERYTHING_MAY_RUN,
    GAUSSIAN_UNITS,
    AccountingError,
    Amounts,
    Cap,
    charge,
    compose_epsilon_micro,
    epsilon_spent,
    fits,
    gaussian_delta,
    gaussian_delta_bound,
    gaussian_epsilon_micro,
    gaussian_mu,
    gaussian_share,
    pure_mu,
)
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee, halved_guarantee
from tacit_protocol.privacy.guarantee import (
    ApproximateEvent,
    Budget,
    GaussianEvent,
    LaplaceEvent,
    MechanismEvent,
)
from tacit_protocol.privacy.noise import laplace_multiplier


def gaussian(mu: float) -> GaussianEvent:
    return GaussianEvent(noise_multiplier=1 / mu)


def laplace(epsilon: float) -> LaplaceEvent:
    return LaplaceEvent(noise_multiplier=laplace_multiplier(epsilon))


def approximate(epsilon: float, delta: float = 0.0) -> ApproximateEvent:
    return ApproximateEvent(epsilon=epsilon, delta=delta)


MUS = st.floats(min_value=0.01, max_value=3.0)
EPSILON_MICROS = st.integers(1, 20 * 10**6)
DELTA_PICOS = st.integers(1, 10**10)


def exact_mixture_delta(epsilon: float, mu: float, pure: float, count: int) -> float:
    """Delta of one Gaussian with ``count`` randomised responses of epsilon ``pure``: a mixture of curves."""
    up = 1 / (1 + math.exp(-pure))
    total = 0.0
    for ups in range(count + 1):
        share = math.comb(count, ups) * up**ups * (1 - up) ** (count - ups)
        total += share * signed_gaussian_delta(epsilon - (2 * ups - count) * pure, mu)
    return total


def signed_gaussian_delta(epsilon: float, mu: float) -> float:
    """The curve for epsilon of either sign: delta(-e) = 1 - exp(-e) + exp(-e) delta(e)."""
    if epsilon >= 0:
        return gaussian_delta(epsilon, mu)
    return 1 - math.exp(epsilon) + math.exp(epsilon) * gaussian_delta(-epsilon, mu)


@settings(max_examples=60, deadline=None)
@given(EPSILON_MICROS, DELTA_PICOS, st.floats(min_value=0.01, max_value=0.99))
def test_a_gaussian_guarantee_costs_no_more_than_it_states(micro: int, pico: int, share: float) -> None:
    budget = Budget(epsilon_micro=micro, delta_pico=pico)
    mu = gaussian_mu(budget.epsilon, budget.delta)
    parts = [gaussian(mu * math.sqrt(share)), gaussian(mu * math.sqrt(1 - share))]
    for events in ([gaussian(mu)], parts):
        cost = compose_epsilon_micro(events, pico)
        assert cost <= micro
        assert cost >= micro * (1 - 1e-6) - 1
        assert fits(events, budget)
        assert not fits([*events, gaussian(mu / 100)], budget)


@settings(max_examples=60, deadline=None)
@given(EPSILON_MICROS, st.integers(0, 10**6))
def test_pure_and_approximate_guarantees_cost_no_more_than_they_state(micro: int, pico: int) -> None:
    budget = Budget(epsilon_micro=micro, delta_pico=pico)
    assert compose_epsilon_micro([approximate(budget.epsilon, budget.delta)], pico) == micro
    assert compose_epsilon_micro([laplace(budget.epsilon)], 0) == micro
    assert fits([laplace(budget.epsilon)], budget)
    assert fits([approximate(budget.epsilon, budget.delta)], budget)


@settings(max_examples=60, deadline=None)
@given(st.lists(MUS, min_size=1, max_size=6), DELTA_PICOS)
def test_gaussian_events_compose_exactly_rounded_up(mus: list[float], pico: int) -> None:
    micro = compose_epsilon_micro([gaussian(mu) for mu in mus], pico)
    mu = math.sqrt(math.fsum((1 / (1 / m)) ** 2 for m in mus))
    assert gaussian_delta(micro / 1e6, mu) <= pico / 1e12
    assert micro == 0 or gaussian_delta((micro - 2) / 1e6 if micro > 1 else 0.0, mu) > pico / 1e12 * (
        1 - 1e-8
    )


@pytest.mark.parametrize(("mu", "pure", "count"), [(0.25, 0.5, 1), (0.5, 0.2, 4), (1.0, 0.05, 10)])
@pytest.mark.parametrize("pico", [10**3, 10**7])
def test_mixtures_are_never_charged_less_than_the_truth(
    mu: float, pure: float, count: int, pico: int
) -> None:
    events: list[MechanismEvent] = [gaussian(mu), *[approximate(pure)] * count]
    spent = epsilon_spent(events, pico / 1e12)
    assert exact_mixture_delta(spent, mu, pure, count) <= pico / 1e12
    assert exact_mixture_delta(spent - 0.005, mu, pure, count) > pico / 1e12, "and hardly more"
    planted = epsilon_spent([gaussian(mu)], pico / 1e12)
    assert exact_mixture_delta(planted, mu, pure, count) > pico / 1e12, "a forgotten event must be seen"


def test_pure_events_add_up_exactly_without_delta() -> None:
    assert compose_epsilon_micro([approximate(0.1)] * 3, 0) == 300_000
    assert compose_epsilon_micro([laplace(0.1)] * 3, 0) == 300_000
    assert compose_epsilon_micro([LaplaceEvent(noise_multiplier=3.0)], 0) == 333_334
    assert compose_epsilon_micro([approximate(1e-9)], 0) == 1
    assert compose_epsilon_micro([], 0) == 0


def test_delta_adds_up_to_the_last_pico() -> None:
    events = [approximate(0.1, 1e-6), approximate(0.1, 2e-6)]
    assert compose_epsilon_micro(events, 3 * 10**6) == 200_000
    with pytest.raises(AccountingError, match="finite"):
        compose_epsilon_micro(events, 3 * 10**6 - 1)
    assert not fits(events, Budget(epsilon_micro=10**7, delta_pico=3 * 10**6 - 1))


def test_gaussian_noise_without_delta_has_no_finite_cost() -> None:
    with pytest.raises(AccountingError, match="finite"):
        compose_epsilon_micro([gaussian(1.0)], 0)
    assert not fits([gaussian(0.001)], Budget(epsilon_micro=10**8, delta_pico=0))


@pytest.mark.parametrize("pico", [-1, 10**12])
def test_deltas_out_of_range_are_refused(pico: int) -> None:
    with pytest.raises(ValueError, match="delta"):
        compose_epsilon_micro([approximate(0.1)], pico)


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


PURE_EPSILONS = [1e-9, 1e-6, 1e-3, 0.1, 0.5, 0.999, 1.0, 1.001, 3.0, 10.0, 50.0, 400.0, 600.0]


def meeting_point(mu: float, epsilon: float) -> mpmath.mpf:
    """How far the Gaussian curve lies above the pure one's kink; at most 0 is private."""
    with mpmath.workdps(400):
        kink = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
        fixed = mpmath.erfc(mpmath.mpf(mu) / (2 * mpmath.sqrt(2))) / 2  # where the Gaussian curve is alpha
        return fixed / kink - 1


@pytest.mark.parametrize("epsilon", PURE_EPSILONS)
def test_a_pure_event_is_no_easier_to_tell_than_its_gaussian_one(epsilon: float) -> None:
    assert meeting_point(pure_mu(epsilon), epsilon) <= 0
    if epsilon <= 500:
        assert meeting_point(pure_mu(epsilon) * (1 - 2e-12), epsilon) > 0, "and no larger than it must be"


@given(st.floats(1e-6, 20.0))
def test_randomised_response_stays_below_its_gaussian_curve_everywhere(epsilon: float) -> None:
    at = np.linspace(0.0, epsilon, 20)
    for one in at:
        delta = (math.exp(epsilon) - math.exp(one)) / (1 + math.exp(epsilon))
        assert delta <= gaussian_delta_bound(float(one), pure_mu(epsilon)) * (1 + 1e-9) + 1e-15


def test_a_constant_that_is_a_little_too_small_is_caught() -> None:
    """1.25 in place of 1.2533: randomised response is told apart more easily than that at epsilon = 0."""
    epsilon = 0.01
    total_variation = math.tanh(epsilon / 2)
    assert total_variation > gaussian_delta_bound(0.0, 1.25 * epsilon)
    assert total_variation <= gaussian_delta_bound(0.0, pure_mu(epsilon))


@given(st.integers(1000, 100_000_000), st.integers(10**3, 10**11))
def test_the_gaussian_share_is_within_its_epsilon_and_delta_and_a_unit_more_is_not_far_from_it(
    epsilon_micro: int, delta_pico: int
) -> None:
    delta_atto = delta_pico * 10**6
    share = gaussian_share(epsilon_micro, delta_atto)
    mu = math.sqrt(share / GAUSSIAN_UNITS)
    assert gaussian_delta_bound(epsilon_micro / 1e6, mu) <= delta_atto / APPROXIMATE_UNITS
    calibrated = gaussian_mu(epsilon_micro / 1e6, delta_pico / 1e12)
    assert math.ceil(Fraction(calibrated) ** 2 * GAUSSIAN_UNITS) <= share + 1
    back = gaussian_epsilon_micro(share, delta_atto)
    assert back <= epsilon_micro


@given(st.integers(4000, 100_000_000), st.integers(10**5, 10**10))
def test_a_study_that_is_calibrated_to_a_whole_cap_is_held_by_it(epsilon_micro: int, delta_pico: int) -> None:
    budget = Budget(epsilon_micro=epsilon_micro, delta_pico=delta_pico)
    assume(gaussian_mu(budget.epsilon, budget.delta) > 1e-3)
    cap = Cap.of(budget)
    pure = charge([LaplaceEvent(noise_multiplier=laplace_multiplier(budget.epsilon))])
    assert pure.pure_pico <= cap.pure_pico
    for guarantee in (gaussian_guarantee(budget), halved_guarantee(budget)):
        assert cap.shares_holding(EVERYTHING_MAY_RUN.shares_of(cap), charge(guarantee.events)) is not None


def test_charges_are_rounded_up_once_for_a_whole_study() -> None:
    thirds = [LaplaceEvent(noise_multiplier=3 * laplace_multiplier(1.0))] * 3
    assert (
        charge(thirds).pure_pico == charge([LaplaceEvent(noise_multiplier=laplace_multiplier(1.0))]).pure_pico
    )
    assert charge([GaussianEvent(noise_multiplier=1e9)]).gaussian_femto == 1
    assert charge([ApproximateEvent(epsilon=0.0, delta=1e-19)]).approximate_atto == 1
    assert charge([ApproximateEvent(epsilon=0.1)]) == Amounts(pure_pico=10**11)
