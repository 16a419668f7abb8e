"""Composition: exact where it can be, never below the truth, never above a guarantee's own epsilon."""

import itertools
import math
from collections.abc import Sequence

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit_protocol.privacy.accounting import (
    AccountingError,
    compose_epsilon_micro,
    epsilon_spent,
    fits,
    gaussian_delta,
    gaussian_mu,
    laplace_multiplier,
)
from tacit_protocol.privacy.guarantee import (
    ApproximateEvent,
    Budget,
    GaussianEvent,
    LaplaceEvent,
    MechanismEvent,
)

PICO = 10**7  # delta = 1e-5


def gaussian(mu: float) -> GaussianEvent:
    return GaussianEvent(noise_multiplier=1 / mu)


def laplace(epsilon: float) -> LaplaceEvent:
    return LaplaceEvent(noise_multiplier=laplace_multiplier(epsilon))


def approximate(epsilon: float, delta: float = 0.0) -> ApproximateEvent:
    return ApproximateEvent(epsilon=epsilon, delta=delta)


MUS = st.floats(min_value=0.01, max_value=3.0)
EPSILON_MICROS = st.integers(1, 20 * 10**6)
DELTA_PICOS = st.integers(1, 10**10)
EVENTS: st.SearchStrategy[MechanismEvent] = st.one_of(
    MUS.map(gaussian),
    st.sampled_from([0.05, 0.3, 1.0]).map(laplace),
    st.tuples(st.sampled_from([0.0, 0.1, 0.5]), st.sampled_from([0.0, 1e-7])).map(lambda a: approximate(*a)),
)


def dp_accounting_epsilon(accountant: object, events: Sequence[MechanismEvent], delta: float) -> float:
    for event in events:
        assert not isinstance(event, ApproximateEvent)
        kind = (
            dp_accounting.GaussianDpEvent
            if isinstance(event, GaussianEvent)
            else dp_accounting.LaplaceDpEvent
        )
        accountant.compose(kind(event.noise_multiplier))  # type: ignore[attr-defined]
    return float(accountant.get_epsilon(delta))  # type: ignore[attr-defined]


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


def test_a_gaussian_guarantee_that_pays_for_its_discretisation_costs_what_it_states() -> None:
    mu = gaussian_mu(1.0, 1e-5 - 3e-12)
    assert compose_epsilon_micro([gaussian(mu), approximate(0.0, 3e-12)], PICO) == 10**6
    assert compose_epsilon_micro([gaussian(mu), approximate(0.0, 3e-9)], PICO) > 10**6


@settings(max_examples=60, deadline=None)
@given(st.lists(MUS, min_size=1, max_size=6), DELTA_PICOS)
def test_gaussian_events_compose_exactly_rounded_up(mus: list[float], pico: int) -> None:
    micro = compose_epsilon_micro([gaussian(mu) for mu in mus], pico)
    mu = math.sqrt(math.fsum((1 / (1 / m)) ** 2 for m in mus))
    assert gaussian_delta(micro / 1e6, mu) <= pico / 1e12
    assert micro == 0 or gaussian_delta((micro - 2) / 1e6 if micro > 1 else 0.0, mu) > pico / 1e12 * (
        1 - 1e-8
    )


@pytest.mark.sweep(4)
@pytest.mark.parametrize("pico", [10**3, 10**7, 10**9])
@pytest.mark.parametrize("mus", [[0.27], [0.1, 0.2, 0.3], [1.0, 0.5], [2.0]])
def test_gaussian_events_agree_with_dp_accounting_from_below(mus: list[float], pico: int) -> None:
    events = [gaussian(mu) for mu in mus]
    exact = epsilon_spent(events, pico / 1e12)
    pessimistic = dp_accounting_epsilon(PLDAccountant(), events, pico / 1e12)
    assert exact - 2e-6 <= pessimistic <= exact + 1e-3
    renyi = dp_accounting_epsilon(RdpAccountant(), events, pico / 1e12)
    assert pessimistic <= renyi, "the Renyi bound is looser"


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


def test_laplace_mixtures_lie_between_the_gaussian_part_and_the_renyi_bound() -> None:
    events: list[MechanismEvent] = [gaussian(0.3), *[laplace(0.2)] * 5]
    spent = epsilon_spent(events, 1e-5)
    assert epsilon_spent(events[:1], 1e-5) < spent < epsilon_spent(events[:1], 1e-5) + 1.0
    assert spent <= dp_accounting_epsilon(RdpAccountant(), events, 1e-5)
    assert abs(spent - dp_accounting_epsilon(PLDAccountant(), events, 1e-5)) < 1e-3


@settings(max_examples=6, deadline=None)
@given(st.lists(EVENTS, min_size=1, max_size=4), EVENTS)
def test_more_events_cost_more_in_any_order(events: list[MechanismEvent], another: MechanismEvent) -> None:
    before, after = compose_epsilon_micro(events, PICO), compose_epsilon_micro([*events, another], PICO)
    assert after >= before - 1
    gaussians = [event for event in events if isinstance(event, GaussianEvent)]
    assert before >= compose_epsilon_micro(gaussians, PICO) - 1
    for order in itertools.islice(itertools.permutations(events), 1, 3):
        assert abs(compose_epsilon_micro(order, PICO) - before) <= 1
    assert compose_epsilon_micro(events, PICO * 10) <= before


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


def test_one_pico_delta_is_spent_as_such() -> None:
    """1e-12 as a float is a little less than one pico-unit."""
    event = GaussianEvent(noise_multiplier=4.0)
    assert epsilon_spent([event], 1e-12) == compose_epsilon_micro([event], 1) / 10**6
    assert epsilon_spent([event], 3e-12) == compose_epsilon_micro([event], 3) / 10**6
    assert epsilon_spent([event], 1.9e-12) == epsilon_spent([event], 1e-12)
    with pytest.raises(AccountingError):
        epsilon_spent([event], 0.9e-12)
