"""Charges, shares and their rounding; a pure event as a Gaussian one; the families that procedures state."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tacit_protocol.privacy.accounting import (
    APPROXIMATE_UNITS,
    EVERYTHING_MAY_RUN,
    FAMILIES,
    GAUSSIAN_UNITS,
    PARTS,
    Amounts,
    Cap,
    Division,
    charge,
    families_of,
    gaussian_delta_bound,
    gaussian_epsilon_micro,
    gaussian_mu,
    gaussian_share,
    laplace_multiplier,
    pure_mu,
)
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee, halved_guarantee
from tacit_protocol.privacy.guarantee import ApproximateEvent, Budget, GaussianEvent, LaplaceEvent

EPSILONS = [1e-9, 1e-6, 1e-3, 0.1, 0.5, 0.999, 1.0, 1.001, 3.0, 10.0, 50.0, 400.0, 600.0]


def meeting_point(mu: float, epsilon: float) -> mpmath.mpf:
    """How far the Gaussian curve lies above the pure one's kink; at most 0 is private."""
    with mpmath.workdps(400):
        kink = 1 / (1 + mpmath.exp(mpmath.mpf(epsilon)))
        fixed = mpmath.erfc(mpmath.mpf(mu) / (2 * mpmath.sqrt(2))) / 2  # where the Gaussian curve is alpha
        return fixed / kink - 1


@pytest.mark.parametrize("epsilon", EPSILONS)
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
    assert back is not None
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


@pytest.mark.parametrize(
    ("families", "pure", "approximate"),
    [
        ({"gaussian"}, 0, PARTS // 20),
        ({"pure"}, PARTS, PARTS),
        ({"pure", "approximate"}, PARTS, PARTS),
        ({"gaussian", "pure"}, PARTS // 2, PARTS // 20),
        (FAMILIES, PARTS // 2, PARTS // 2),
    ],
)
def test_one_family_gets_everything(families: set[str], pure: int, approximate: int) -> None:
    division = Division.of(families)  # type: ignore[arg-type]
    assert (division.pure_parts, division.approximate_parts) == (pure, approximate)
    shares = division.shares_of(Cap(10**6, 10**7))
    assert Cap(10**6, 10**7).covers(shares)
    assert (shares.gaussian_femto > 0) == ("gaussian" in families)


def test_what_an_owner_states_comes_before_what_may_run() -> None:
    division = Division.of({"gaussian"}, pure=0.25)
    assert (division.pure_parts, division.stated) == (250_000, "pure=250000")
    assert Division.of({"pure"}, 0.0, 1.0).stated == "pure=0 approximate=1000000"


def test_events_belong_to_families() -> None:
    assert families_of(gaussian_guarantee(Budget.of("1", "1e-5")).events) == {"gaussian"}
    assert families_of([LaplaceEvent(noise_multiplier=1.0), ApproximateEvent(epsilon=1.0)]) == {"pure"}
    assert families_of([ApproximateEvent(epsilon=1.0, delta=1e-9)]) == {"approximate"}
