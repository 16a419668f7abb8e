"""The ledger's sums against composition worked out anew, over random sequences of releases.

What they say was spent, an epsilon at the account's delta, is never less than the releases cost, and where
all noise is Gaussian no more than two micro-epsilons above it. With other noise it is more than composition
of a fixed list would say: the sums hold for studies chosen after earlier releases were seen.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

import dp_accounting
import pytest
import sqlalchemy as sa
from direct_composition import (
    CELL,
    delta_given_away,
    epsilon_interval,
    gaussian_delta_exact,
    mu_squared,
)
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from long_runs import choose

from tacit_protocol.privacy.accounting import Amounts, Cap, charge
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee, halved_guarantee
from tacit_protocol.privacy.guarantee import (
    ApproximateEvent,
    Budget,
    GaussianEvent,
    Guarantee,
    LaplaceEvent,
    MechanismEvent,
)
from tacit_protocol.privacy.noise import laplace_multiplier
from tacit_services.ledger import accounts
from tacit_services.ledger.accounts import account_of, debit, set_caps
from tacit_services.ledger.entries import ACCOUNTS, METADATA

HISTORIES = choose(1, 10)
"""Times as many histories in ``make audit``."""

CAP_MICRO = 10**9
MICRO = 1e-6


def laplace(budget: Budget) -> Guarantee:
    event = LaplaceEvent(noise_multiplier=laplace_multiplier(budget.epsilon))
    return Guarantee(budget=Budget(epsilon_micro=budget.epsilon_micro, delta_pico=0), events=(event,))


def pure(budget: Budget) -> Guarantee:
    event = ApproximateEvent(epsilon=budget.epsilon, delta=budget.delta)
    return Guarantee(budget=budget, events=(event,))


BUDGETS = st.builds(
    Budget, epsilon_micro=st.integers(20_000, 1_500_000), delta_pico=st.integers(10**4, 2 * 10**6)
)
ACCOUNT_DELTAS = st.sampled_from([10**7, 3 * 10**7, 10**9])
GAUSSIAN_RELEASES = st.lists(
    st.tuples(st.sampled_from([gaussian_guarantee, halved_guarantee]), BUDGETS), min_size=1, max_size=12
)
ANY_RELEASES = st.lists(
    st.tuples(st.sampled_from([gaussian_guarantee, halved_guarantee, laplace, pure]), BUDGETS),
    min_size=1,
    max_size=5,
)
Releases = Sequence[tuple[Callable[[Budget], Guarantee], Budget]]


@pytest.fixture(scope="module")
def engine() -> Iterator[sa.Engine]:
    with tempfile.TemporaryDirectory() as folder:
        engine = sa.create_engine(f"sqlite:///{Path(folder) / 'ledger.sqlite3'}")
        METADATA.create_all(engine)
        yield engine
        engine.dispose()


Charge = Callable[..., Amounts]


def totals(
    engine: sa.Engine, releases: Releases, delta_pico: int, charged: Charge = charge
) -> list[tuple[list[MechanismEvent], float]]:
    """Debit the releases to a new account: after each, all events so far, and the epsilon of its sums."""
    found, events = [], list[MechanismEvent]()
    cap, everything = Cap(CAP_MICRO, delta_pico), Amounts(10**18, 10**18, 10**18)
    with (
        engine.connect() as connection,  # nothing is committed: every history begins anew
        mock.patch.object(accounts, "charge", charged),
    ):
        set_caps(connection, "patients", CAP_MICRO, delta_pico, at=1)
        roomy = replace(account_of(connection, "patients"), share=everything)
        connection.execute(ACCOUNTS.update().values(roomy.row()))
        for number, (cost, budget) in enumerate(releases):
            guarantee = cost(budget)
            debit(connection, "patients", f"{number:064x}", guarantee, at=2)
            events.extend(guarantee.events)
            spent = cap.epsilon_of(account_of(connection, "patients").spent)
            found.append((list(events), math.inf if spent is None else spent * MICRO))
    return found


def reports_less(events: Sequence[MechanismEvent], spent: float, delta: float) -> bool:
    """Whether Gaussian events cost more than is reported, by the exact curve."""
    return bool(gaussian_delta_exact(spent, mu_squared(events)) > delta - delta_given_away(events))


def renyi_epsilon(events: Sequence[MechanismEvent], delta: float) -> float:
    accountant = RdpAccountant()
    for event in events:
        if isinstance(event, GaussianEvent):
            accountant.compose(dp_accounting.GaussianDpEvent(event.noise_multiplier))
        elif isinstance(event, LaplaceEvent):
            accountant.compose(dp_accounting.LaplaceDpEvent(event.noise_multiplier))
        else:
            assert event.epsilon == 0
    return float(accountant.get_epsilon(delta - delta_given_away(events)))


@settings(max_examples=40 * HISTORIES, deadline=None)
@given(GAUSSIAN_RELEASES, ACCOUNT_DELTAS)
def test_gaussian_releases_cost_what_the_exact_curve_says_to_a_micro_epsilon(
    engine: sa.Engine, releases: Releases, delta_pico: int
) -> None:
    delta = delta_pico / 1e12
    for events, spent in totals(engine, releases, delta_pico):
        assert not reports_less(events, spent, delta)
        assert spent <= 2 * MICRO or reports_less(events, spent - 2 * MICRO, delta)
        assert spent <= renyi_epsilon(events, delta) + MICRO


@settings(max_examples=12 * HISTORIES, deadline=None)
@given(ANY_RELEASES, ACCOUNT_DELTAS)
def test_releases_of_any_mechanism_cost_no_more_than_the_sums_say(
    engine: sa.Engine, releases: Releases, delta_pico: int
) -> None:
    events, spent = totals(engine, releases, delta_pico)[-1]
    assert spent >= epsilon_interval(events, delta_pico / 1e12)[0]


def forget_one_event(events: Sequence[MechanismEvent], **options: bool) -> Amounts:
    return charge(list(events)[1:], **options)


def forget_everything(_: Sequence[MechanismEvent], **__: bool) -> Amounts:
    return Amounts()


def forget_the_discreteness(events: Sequence[MechanismEvent], **options: bool) -> Amounts:
    return replace(charge(events, **options), approximate_atto=0)


def round_down(events: Sequence[MechanismEvent], **options: bool) -> Amounts:
    """A millionth of mu squared too little: what rounding to whole micro-units would lose."""
    found = charge(events, **options)
    return replace(found, gaussian_femto=found.gaussian_femto * (10**6 - 1) // 10**6)


def add_mu(events: Sequence[MechanismEvent], **_: bool) -> Amounts:
    """The mistake the other way: mu taken where mu squared is to be."""
    mu = math.fsum(1 / e.noise_multiplier for e in events if isinstance(e, GaussianEvent))
    return Amounts(gaussian_femto=math.ceil(mu * 10**15))


SIX = [(gaussian_guarantee, Budget.of("0.5", "1e-6")), (halved_guarantee, Budget.of("1", "1e-6"))] * 3


@pytest.mark.parametrize("planted", [forget_one_event, forget_the_discreteness, round_down])
def test_a_ledger_that_reports_less_is_caught(engine: sa.Engine, planted: Charge) -> None:
    found = totals(engine, SIX, 10**7, planted)
    assert any(reports_less(events, spent, 1e-5) for events, spent in found if len(events) > 2)


def test_a_ledger_that_reports_more_is_caught(engine: sa.Engine) -> None:
    events, spent = totals(engine, SIX, 10**7, add_mu)[-1]
    assert not reports_less(events, spent - 2 * MICRO, 1e-5)


def test_a_forgotten_event_among_other_mechanisms_is_caught(engine: sa.Engine) -> None:
    budget = Budget.of("0.5", "1e-7")
    releases = [(laplace, budget), (laplace, budget), (gaussian_guarantee, budget)]
    events, spent = totals(engine, releases, 10**7, forget_everything)[-1]
    assert spent < epsilon_interval(events, 1e-5)[0]


@pytest.mark.parametrize("mu", [0.1, 0.8, 2.0])
def test_the_convolution_agrees_with_the_exact_curve(mu: float) -> None:
    half: list[MechanismEvent] = [GaussianEvent(noise_multiplier=math.sqrt(2) / mu)] * 2
    lower, upper = epsilon_interval(half, 1e-5)
    assert gaussian_delta_exact(lower, mu**2) >= 1e-5 >= gaussian_delta_exact(upper, mu**2)
    assert upper - lower == pytest.approx(CELL, rel=1e-3)


def test_the_convolution_of_pure_events_agrees_with_counting() -> None:
    """Of k randomised responses the loss is (2 j - k) epsilon with j binomial: delta in closed form."""
    count, epsilon = 4, 0.25
    events: list[MechanismEvent] = [ApproximateEvent(epsilon=epsilon)] * count
    right = 1 / (1 + math.exp(-epsilon))

    def delta(at: float) -> float:
        return sum(
            math.comb(count, j)
            * right**j
            * (1 - right) ** (count - j)
            * max(0.0, -math.expm1(at - (2 * j - count) * epsilon))
            for j in range(count + 1)
        )

    lower, upper = epsilon_interval(events, 0.01)
    assert delta(lower) >= 0.01 >= delta(upper)
