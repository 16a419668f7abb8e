"""What mechanism events that were fixed in advance cost together, in whole micro-epsilons at a stated delta.

The events of one study are such a list: its guarantee is checked with it, and reports state it. Events of
studies that were chosen after earlier releases were seen are none, and no bound of this module holds for
them: an account's cap is kept by shares (shares.py), never by this.

Gaussian events compose exactly (mu squared adds up), and so do pure ones at delta = 0 (epsilon adds up).
Anything else is charged the lesser of two upper bounds: those two sums, added; and the pessimistic privacy
loss distribution of dp-accounting. Every rounding is toward more spent. docs/mathematics/privacy.md.
"""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from tacit_protocol.privacy.calibration import gaussian_delta_bound
from tacit_protocol.privacy.events import GaussianEvent, LaplaceEvent, MechanismEvent
from tacit_protocol.privacy.guarantee import DELTA_UNITS, EPSILON_UNITS, Budget

ROUNDING = 1e-12
"""Relative part of delta, and of mu, kept back for the float rounding of a few sums; calibration gives away a
thousand times more (CALIBRATION_SLACK), so a guarantee's own events still cost no more than its epsilon."""

CONVOLUTION_DELTA = 1e-14
"""Delta kept back for each convolution of privacy loss distributions: the Fourier transform's rounding was
measured below 1e-15 in all of them together."""

LOSS_INTERVAL = 1e-4
"""Grid of the privacy loss distributions; each pure event's epsilon is rounded up to it."""

LOSS_POINTS_MAX = 10**6
"""Most grid points on either side of zero: beyond a total epsilon of 100 the grid becomes coarser instead."""

EPSILON_MICRO_MAX = 10**6 * EPSILON_UNITS
"""Largest epsilon that is told apart from an infinite one."""


class AccountingError(ValueError):
    """No finite epsilon describes these events at this delta. Allow a larger delta, or leave an event out."""


@dataclass(frozen=True)
class _Spending:
    """Events sorted by how they compose, and the delta left for them, in pico-deltas."""

    mu_squared: float
    laplace: Counter[float]
    pure: Counter[Fraction]
    delta: Fraction

    @property
    def pure_micro(self) -> Fraction:
        """The sum of all pure epsilons, in micro-epsilons."""
        approximate = sum((epsilon * count for epsilon, count in self.pure.items()), Fraction(0))
        inverses = (count / Fraction(multiplier) for multiplier, count in self.laplace.items())
        return approximate + EPSILON_UNITS * sum(inverses, Fraction(0))


def compose_epsilon_micro(events: Iterable[MechanismEvent], delta_pico: int) -> int:
    """Return the micro-epsilons that the events cost together, at a delta of ``delta_pico`` pico-units.

    All of them fixed before any was released. Raises AccountingError where no finite epsilon will do:
    Gaussian noise at delta = 0, or more delta in the events than there is.

    >>> from tacit_protocol.privacy.events import ApproximateEvent
    >>> compose_epsilon_micro([ApproximateEvent(epsilon=0.5), ApproximateEvent(epsilon=0.25)], 0)
    750000
    """
    if not 0 <= delta_pico < DELTA_UNITS:
        raise ValueError("delta must lie in [0, 1)")
    spending = _sorted(events, delta_pico)
    cost = min(_sum_bound(spending), _loss_distribution_bound(spending))
    if cost > EPSILON_MICRO_MAX:
        raise AccountingError("no finite epsilon describes these events at this delta")
    return math.ceil(cost)


def epsilon_spent(events: Iterable[MechanismEvent], delta: float) -> float:
    """Return the epsilon that the events cost together at ``delta``, rounded up to a micro-unit.

    Delta is rounded down to a pico-unit; the float nearest to whole units stands for just those, 1e-12 for
    one. Raises as compose_epsilon_micro does.
    """
    return compose_epsilon_micro(events, math.floor(_units(delta, DELTA_UNITS))) / EPSILON_UNITS


def fits(events: Iterable[MechanismEvent], budget: Budget) -> bool:
    """Say whether the events together stay within the budget."""
    spending = _sorted(events, budget.delta_pico)
    return (
        _sum_bound(spending) <= budget.epsilon_micro
        or _loss_distribution_bound(spending) <= budget.epsilon_micro
    )


def _sorted(events: Iterable[MechanismEvent], delta_pico: int) -> _Spending:
    squares: list[float] = []
    laplace: Counter[float] = Counter()
    pure: Counter[Fraction] = Counter()
    delta = Fraction(delta_pico)
    for event in events:
        if isinstance(event, GaussianEvent):
            squares.append(event.noise_multiplier**-2)
        elif isinstance(event, LaplaceEvent):
            laplace[event.noise_multiplier] += 1
        else:
            delta -= _units(event.delta, DELTA_UNITS)
            if event.epsilon > 0:
                pure[_units(event.epsilon, EPSILON_UNITS)] += 1
    return _Spending(math.fsum(squares), laplace, pure, delta)


def _units(amount: float, units: int) -> Fraction:
    """Return an amount in units, exactly; the float nearest to whole units stands for just those."""
    whole = round(amount * units)
    return Fraction(whole) if whole / units == amount else Fraction(amount) * units


def _sum_bound(spending: _Spending) -> Fraction | float:
    """Return the pure epsilons' sum plus the Gaussian events' exact epsilon, in micro-epsilons."""
    if spending.delta < 0:
        return math.inf
    if spending.mu_squared == 0:
        return spending.pure_micro
    return spending.pure_micro + _gaussian_micro(spending) if spending.delta > 0 else math.inf


def _gaussian_micro(spending: _Spending) -> float:
    """Return the fewest micro-epsilons at which the Gaussian events' curve is within delta."""
    mu = math.sqrt(spending.mu_squared) * (1 + ROUNDING)
    delta = float(spending.delta) / DELTA_UNITS * (1 - ROUNDING)

    def within(micro: int) -> bool:
        return gaussian_delta_bound(micro / EPSILON_UNITS, mu) <= delta

    if not within(EPSILON_MICRO_MAX):
        return math.inf
    low, high = -1, EPSILON_MICRO_MAX
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if within(middle) else (middle, high)
    return float(high)


def _loss_distribution_bound(spending: _Spending) -> float:
    """Return the mixture's epsilon by privacy loss distributions, in micro-epsilons.

    Infinite where it cannot improve on the sum: for Gaussian events alone, whose sum is exact, and where no
    delta is left to trade.
    """
    if spending.delta <= 0 or not (spending.laplace or spending.pure):
        return math.inf
    distributions = _loss_distributions(spending)
    delta = float(spending.delta) / DELTA_UNITS * (1 - ROUNDING)
    delta -= CONVOLUTION_DELTA * sum(count for _, count in distributions)
    if delta <= 0:
        return math.inf
    total: Any = None
    for distribution, count in distributions:
        repeated = distribution.self_compose(count) if count > 1 else distribution
        total = repeated if total is None else total.compose(repeated)
    return float(total.get_epsilon_for_delta(delta)) * (1 + ROUNDING) * EPSILON_UNITS


def _loss_distributions(spending: _Spending) -> list[tuple[Any, int]]:
    """Return the pessimistic loss distribution of each kind of event, with its count."""
    # Imported here because it takes half of an agent's start, and Gaussian events alone never need it.
    from dp_accounting.pld import common, privacy_loss_distribution  # noqa: PLC0415

    interval = max(LOSS_INTERVAL, float(spending.pure_micro) / EPSILON_UNITS / LOSS_POINTS_MAX)
    found: list[tuple[Any, int]] = []
    if spending.mu_squared > 0:
        deviation = 1 / (math.sqrt(spending.mu_squared) * (1 + ROUNDING))
        gaussian = privacy_loss_distribution.from_gaussian_mechanism(
            deviation, value_discretization_interval=interval
        )
        found.append((gaussian, 1))
    for multiplier, count in sorted(spending.laplace.items()):
        laplace = privacy_loss_distribution.from_laplace_mechanism(
            multiplier, value_discretization_interval=interval
        )
        found.append((laplace, count))
    for micro, count in sorted(spending.pure.items()):
        epsilon = math.ceil(micro / EPSILON_UNITS / Fraction(interval)) * interval
        parameters = common.DifferentialPrivacyParameters(epsilon, 0.0)
        found.append((privacy_loss_distribution.from_privacy_parameters(parameters, interval), count))
    return found
