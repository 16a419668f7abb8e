"""What events of known mechanisms cost together, the exact privacy curves, and the shares of an account.

Amounts are whole micro-epsilons at a stated delta; costs are rounded up, shares down. Events that were fixed
in advance are those of one study: Gaussian ones compose exactly (mu squared adds up, mu = Delta / sigma),
pure ones at delta = 0 too; anything else is charged the lesser of those sums added and the pessimistic
privacy loss distribution of dp-accounting. Events of studies chosen after earlier releases were seen are
none: an account's cap is kept by the shares of a privacy filter, never by composition. With sums of pure
epsilon, of mu squared and of delta of approximate events that never pass shares fixed beforehand, everything
released is (epsilon_p + epsilon_g, delta_g + delta_0) private, mu-Gaussian privacy at the Gaussian share
being (epsilon_g, delta_g). Proofs: docs/mathematics/privacy.md.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, Self

import numpy as np
from scipy.special import erfcinv, erfcx, erfinv, ndtr

from tacit_protocol.privacy.guarantee import (
    DELTA_UNITS,
    EPSILON_UNITS,
    Budget,
    GaussianEvent,
    LaplaceEvent,
    MechanismEvent,
)

CALIBRATION_SLACK = 1e-9
"""Relative part of mu that calibration gives away, so that a mu split over several queries and rounded a few
times on the way (1e-15 each) still composes within the budget it came from."""

CALIBRATIONS_KEPT = 256
"""Calibrations remembered: every check of a release, and so every upload, asks for its study's again."""

SMALL_MU = 0.25
"""Below it the curve is integrated rather than subtracted: the difference would lose digits like 1/mu."""

CALIBRATION_ROUNDING = 32 * 2.0**-53
"""Relative rounding error allowed for one evaluation of erfcx, exp and a few products."""

_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(12)


def gaussian_delta(epsilon: float, mu: float) -> float:
    """Return the smallest delta for which mu-Gaussian differential privacy implies (epsilon, delta).

    The exact curve Phi(-epsilon/mu + mu/2) - exp(epsilon) Phi(-epsilon/mu - mu/2) of Balle and Wang (2018),
    theorem 8. ``epsilon`` >= 0 and ``mu`` >= 0, both finite; the result lies in [0, 1].

    >>> round(gaussian_delta(1.0, 1.0), 12)
    0.126936737507
    """
    _require_epsilon(epsilon)
    if not (math.isfinite(mu) and mu >= 0):
        raise ValueError("mu must be a finite number, zero or more")
    return _curve(epsilon, mu)[0]


def gaussian_delta_bound(epsilon: float, mu: float) -> float:
    """Return gaussian_delta plus a bound on its rounding error: never below the exact curve."""
    delta = gaussian_delta(epsilon, mu)
    return min(1.0, delta + _curve(epsilon, mu)[1])


@lru_cache(CALIBRATIONS_KEPT)
def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return a mu for which mu-Gaussian differential privacy implies (epsilon, delta).

    Less than the largest such mu by at most a few parts in 10^9, and never more than it. Raises ValueError
    where epsilon is negative or not finite, or delta is not inside (0, 1): no Gaussian noise has delta = 0.

    >>> gaussian_delta(1.0, gaussian_mu(1.0, 1e-5)) <= 1e-5
    True
    """
    _require_epsilon(epsilon)
    if delta == 0:
        raise ValueError("Gaussian noise cannot give delta = 0: state a positive delta, or use Laplace noise")
    if not 0 < delta < 1:
        raise ValueError("delta must lie strictly between 0 and 1")
    low, high = 0.0, 1.0
    while gaussian_delta_bound(epsilon, high) <= delta:
        low, high = high, 2 * high
    while high - low > CALIBRATION_SLACK * high / 1024:
        middle = (low + high) / 2
        if gaussian_delta_bound(epsilon, middle) <= delta:
            low = middle
        else:
            high = middle
    return low * (1 - CALIBRATION_SLACK)


PURE_MU_SLACK = 1e-12
"""Relative part added to a mu that an inverse error function gave: its rounding is below 1e-14."""

PURE_EPSILON_EXACT_MAX = 500.0
"""Beyond it mu = sqrt(8 epsilon) is taken, which is never less: exp(-epsilon) would lose its digits."""


def pure_mu(epsilon: float) -> float:
    """Return a mu for which every (epsilon, 0)-private mechanism is mu-Gaussian private, rounded up.

    The least one is 2 Phi^-1(e^epsilon / (1 + e^epsilon)), at most sqrt(8 epsilon)
    (docs/mathematics/privacy.md).

    >>> round(pure_mu(0.01), 6), round(pure_mu(1.0), 6)
    (0.012533, 1.232035)
    """
    _require_epsilon(epsilon)
    if epsilon > PURE_EPSILON_EXACT_MAX:
        return math.sqrt(8 * epsilon) * (1 + PURE_MU_SLACK)
    if epsilon <= 1:
        argument = float(erfinv(math.tanh(epsilon / 2)))
    else:
        argument = float(erfcinv(2 * math.exp(-epsilon) / (1 + math.exp(-epsilon))))
    return 2 * math.sqrt(2) * argument * (1 + PURE_MU_SLACK)


def _require_epsilon(epsilon: float) -> None:
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError("epsilon must be a finite number, zero or more")


def _curve(epsilon: float, mu: float) -> tuple[float, float]:
    """Return delta and a bound on its absolute rounding error.

    With u = epsilon/mu - mu/2, v = epsilon/mu + mu/2, and Mills' ratio M(x) = Phi(-x)/phi(x), exp(epsilon)
    phi(v) = phi(u), so delta = phi(u) (M(u) - M(v)): nothing overflows and no large exponent is lost.
    """
    if mu == 0:
        return 0.0, 0.0
    ratio = epsilon / mu
    if math.isinf(ratio):
        return 0.0, 0.0
    lower, upper = ratio - mu / 2, ratio + mu / 2
    exponent_error = CALIBRATION_ROUNDING * (1 + abs(lower) * ratio)
    if mu < SMALL_MU:
        points = ratio + _NODES * (mu / 2)
        slopes = 1 - points * _mills(points)
        delta = _density(lower) * float(_NODE_WEIGHTS @ slopes) * (mu / 2)
        return _bounded(delta, delta * (exponent_error + CALIBRATION_ROUNDING * (1 + upper * upper)))
    subtracted = _density(lower) * float(_mills(np.float64(upper)))
    kept = float(ndtr(-lower))
    return _bounded(kept - subtracted, (kept + subtracted) * exponent_error)


def _bounded(delta: float, error: float) -> tuple[float, float]:
    return min(max(delta, 0.0), 1.0), error


def _density(x: float) -> float:
    return math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _mills(x: np.ndarray | np.float64) -> np.ndarray:
    return np.asarray(math.sqrt(math.pi / 2) * erfcx(x / math.sqrt(2)))


ACCOUNTING_ROUNDING = 1e-12
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

    >>> from tacit_protocol.privacy.guarantee import ApproximateEvent
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
    mu = math.sqrt(spending.mu_squared) * (1 + ACCOUNTING_ROUNDING)
    delta = float(spending.delta) / DELTA_UNITS * (1 - ACCOUNTING_ROUNDING)

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
    delta = float(spending.delta) / DELTA_UNITS * (1 - ACCOUNTING_ROUNDING)
    delta -= CONVOLUTION_DELTA * sum(count for _, count in distributions)
    if delta <= 0:
        return math.inf
    total: Any = None
    for distribution, count in distributions:
        repeated = distribution.self_compose(count) if count > 1 else distribution
        total = repeated if total is None else total.compose(repeated)
    return float(total.get_epsilon_for_delta(delta)) * (1 + ACCOUNTING_ROUNDING) * EPSILON_UNITS


def _loss_distributions(spending: _Spending) -> list[tuple[Any, int]]:
    """Return the pessimistic loss distribution of each kind of event, with its count."""
    # Imported here because it takes half of an agent's start, and Gaussian events alone never need it.
    from dp_accounting.pld import common, privacy_loss_distribution  # noqa: PLC0415

    interval = max(LOSS_INTERVAL, float(spending.pure_micro) / EPSILON_UNITS / LOSS_POINTS_MAX)
    found: list[tuple[Any, int]] = []
    if spending.mu_squared > 0:
        deviation = 1 / (math.sqrt(spending.mu_squared) * (1 + ACCOUNTING_ROUNDING))
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


Family = Literal["pure", "gaussian", "approximate"]
"""A kind of mechanism event: pure (Laplace noise, or epsilon with delta = 0), Gaussian, or approximate
(epsilon and delta both above 0)."""

FAMILIES: frozenset[Family] = frozenset(("pure", "gaussian", "approximate"))

PURE_UNITS = 10**12
"""Units of the pure share in an epsilon of one (pico-epsilons): what calibration gives away of an epsilon of
a thousandth is still a unit."""

GAUSSIAN_UNITS = 10**15
"""Units of the Gaussian share in a mu squared of one (femto). Calibration gives away 2e-9 of mu squared,
which is a unit where mu is 1e-3 (an epsilon of 0.004 at delta = 1e-5): from there on a Gaussian study that is
calibrated to the whole of a share fits it."""

APPROXIMATE_UNITS = 10**18
"""Units of the approximate share in a delta of one (atto)."""

PARTS = 10**6
"""A division is stated in millionths of the cap."""

EVEN_PART = PARTS // 2
"""Part of epsilon that is the pure share where both families may run, and of delta the approximate one.
Nothing is known beforehand of what will be asked; an even division never leaves less than half to either."""

DISCRETENESS_PART = PARTS // 20
"""Part of delta for approximate events where they are but the discreteness of Gaussian noise. It serves fifty
studies that each state the whole of delta, and costs a quarter of a per cent of the Gaussian share's mu."""

SHARES_ROUNDING = 1e-12
"""Relative part of mu and of delta kept back for rounding; a thousandth of what calibration gives away."""


@dataclass(frozen=True)
class Amounts:
    """An amount of each share, in whole units: pure epsilon, mu squared, delta of approximate events."""

    pure_pico: int = 0
    gaussian_femto: int = 0
    approximate_atto: int = 0

    def __add__(self, other: Self) -> "Amounts":
        return Amounts(*(own + more for own, more in zip(self.all, other.all, strict=True)))

    @property
    def all(self) -> tuple[int, int, int]:
        """The three amounts."""
        return self.pure_pico, self.gaussian_femto, self.approximate_atto

    def within(self, other: Self) -> bool:
        """Say whether no amount is larger than the other's."""
        return all(own <= largest for own, largest in zip(self.all, other.all, strict=True))

    def joined(self, other: Self) -> "Amounts":
        """Return the larger of both, amount by amount."""
        return Amounts(*(max(pair) for pair in zip(self.all, other.all, strict=True)))

    def met(self, other: Self) -> "Amounts":
        """Return the smaller of both, amount by amount."""
        return Amounts(*(min(pair) for pair in zip(self.all, other.all, strict=True)))


def charge(events: Iterable[MechanismEvent], *, pure_as_gaussian: bool = False) -> Amounts:
    """Return what events take of each share together, each sum rounded up once.

    Gaussian events take mu squared, Laplace and pure events epsilon, approximate events epsilon and delta.
    With ``pure_as_gaussian`` the epsilons are taken of the Gaussian share instead, each as the mu squared of
    Gaussian noise from which any such mechanism follows by post-processing.

    >>> from tacit_protocol.privacy.guarantee import ApproximateEvent
    >>> charge([ApproximateEvent(epsilon=0.1), ApproximateEvent(epsilon=0.2, delta=1e-9)])
    Amounts(pure_pico=300000000000, gaussian_femto=0, approximate_atto=1000000000)
    """
    pure, gaussian, approximate = Fraction(0), Fraction(0), Fraction(0)
    for event in events:
        if isinstance(event, GaussianEvent):
            gaussian += 1 / Fraction(event.noise_multiplier) ** 2
            continue
        if isinstance(event, LaplaceEvent):
            epsilon = 1 / Fraction(event.noise_multiplier)
        else:
            epsilon = _amount(event.epsilon, EPSILON_UNITS)
            approximate += _amount(event.delta, DELTA_UNITS)
        if pure_as_gaussian:
            gaussian += Fraction(pure_mu(math.nextafter(float(epsilon), math.inf))) ** 2 if epsilon else 0
        else:
            pure += epsilon
    return Amounts(
        math.ceil(pure * PURE_UNITS),
        math.ceil(gaussian * GAUSSIAN_UNITS),
        math.ceil(approximate * APPROXIMATE_UNITS),
    )


def families_of(events: Iterable[MechanismEvent]) -> frozenset[Family]:
    """Return the families of events. A delta alone belongs to none: Gaussian noise has it for its grid."""
    found: set[Family] = set()
    for event in events:
        if isinstance(event, GaussianEvent):
            found.add("gaussian")
        elif isinstance(event, LaplaceEvent):
            found.add("pure")
        elif event.epsilon > 0:
            found.add("approximate" if event.delta > 0 else "pure")
    return frozenset(found)


def _amount(amount: float, units: int) -> Fraction:
    """Return an amount exactly; the float nearest to whole micro- or pico-units stands for just those."""
    whole = round(amount * units)
    return Fraction(whole, units) if whole / units == amount else Fraction(amount)


@lru_cache(256)
def gaussian_share(epsilon_micro: int, delta_atto: int) -> int:
    """Return the largest mu squared, in units, at which Gaussian privacy is within (epsilon, delta)."""
    if epsilon_micro < 0 or delta_atto <= 0:
        return 0
    low, high = 0, 1
    while _within(high, epsilon_micro, delta_atto):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _within(middle, epsilon_micro, delta_atto) else (low, middle)
    return low


@lru_cache(256)
def gaussian_epsilon_micro(femto: int, delta_atto: int) -> int | None:
    """Return the fewest micro-epsilons that a mu squared means at a delta; None where none are enough."""
    if femto == 0:
        return 0
    largest = 10**6 * EPSILON_UNITS
    if delta_atto <= 0 or not _within(femto, largest, delta_atto):
        return None
    low, high = -1, largest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _within(femto, middle, delta_atto) else (middle, high)
    return high


def _within(femto: int, epsilon_micro: int, delta_atto: int) -> bool:
    mu = math.sqrt(femto / GAUSSIAN_UNITS) * (1 + SHARES_ROUNDING)
    delta = delta_atto / APPROXIMATE_UNITS * (1 - SHARES_ROUNDING)
    return gaussian_delta_bound(epsilon_micro / EPSILON_UNITS, mu) <= delta


@dataclass(frozen=True)
class Cap:
    """The whole of what an account may spend, (epsilon, delta); an epsilon of any size, unlike a budget."""

    epsilon_micro: int
    delta_pico: int

    @classmethod
    def of(cls, budget: Budget) -> Self:
        """Return a budget as a cap."""
        return cls(budget.epsilon_micro, budget.delta_pico)

    def gaussian(self, pure_pico: int, approximate_atto: int) -> int:
        """Return the largest Gaussian share beside a pure and an approximate one; 0 where there is none."""
        epsilon_micro = self.epsilon_micro - _rounded_up(pure_pico, PURE_UNITS // EPSILON_UNITS)
        return gaussian_share(epsilon_micro, self.delta_atto - approximate_atto)

    @property
    def pure_pico(self) -> int:
        """All of epsilon, in units of the pure share."""
        return self.epsilon_micro * (PURE_UNITS // EPSILON_UNITS)

    @property
    def delta_atto(self) -> int:
        """All of delta, in units of the approximate share."""
        return self.delta_pico * (APPROXIMATE_UNITS // DELTA_UNITS)

    def epsilon_of(self, amounts: Amounts) -> int | None:
        """Return the micro-epsilons at which all events within amounts are private with the cap's delta.

        None: no finite epsilon describes them at that delta.
        """
        left = self.delta_atto - amounts.approximate_atto
        gaussian = gaussian_epsilon_micro(amounts.gaussian_femto, left) if left >= 0 else None
        if gaussian is None:
            return None
        return gaussian + _rounded_up(amounts.pure_pico, PURE_UNITS // EPSILON_UNITS)

    def covers(self, share: Amounts) -> bool:
        """Say whether everything spent within these shares is within the cap."""
        return (
            share.pure_pico <= self.pure_pico
            and share.approximate_atto <= self.delta_atto
            and share.gaussian_femto <= self.gaussian(share.pure_pico, share.approximate_atto)
        )

    def shares_holding(self, wanted: Amounts, least: Amounts) -> Amounts | None:
        """Divide the cap as nearly as wanted so that each share is at least so large; None where it cannot.

        What gives way to ``least`` first is the wanted approximate share, then the pure one, which stays a
        whole number of micro-epsilons.
        """
        micro = PURE_UNITS // EPSILON_UNITS
        least = replace(least, pure_pico=_rounded_up(least.pure_pico, micro) * micro)
        pure = max(wanted.pure_pico, least.pure_pico)
        approximate = max(wanted.approximate_atto, least.approximate_atto)
        for tried_pure, tried_approximate in (
            (pure, approximate),
            (pure, least.approximate_atto),
            (least.pure_pico, least.approximate_atto),
        ):
            gaussian = self.gaussian(tried_pure, tried_approximate)
            share = Amounts(tried_pure, gaussian, tried_approximate)
            if least.within(share) and self.covers(share):
                return share
        return None


@dataclass(frozen=True)
class Division:
    """How a cap is divided: millionths of epsilon for pure events, and of delta for approximate ones.

    The rest of both is the Gaussian share. ``stated`` is what an owner has written, empty where nothing.
    """

    pure_parts: int
    approximate_parts: int
    stated: str = ""

    @classmethod
    def of(
        cls, families: Collection[Family], pure: float | None = None, approximate: float | None = None
    ) -> Self:
        """Return the division that an owner stated as parts of one, or else that of what may run.

        Where events of one family alone may run, it gets everything. Without Gaussian events the rest of
        epsilon and delta would serve nobody, so it is pure and approximate.
        """
        gaussian = "gaussian" in families
        epsilon_side = bool({"pure", "approximate"} & set(families))
        pure_parts, approximate_parts = PARTS, PARTS
        if gaussian:
            pure_parts = EVEN_PART if epsilon_side else 0
            approximate_parts = EVEN_PART if "approximate" in families else DISCRETENESS_PART
        stated = []
        if pure is not None:
            pure_parts = round(pure * PARTS)
            stated.append(f"pure={pure_parts}")
        if approximate is not None:
            approximate_parts = round(approximate * PARTS)
            stated.append(f"approximate={approximate_parts}")
        return cls(pure_parts, approximate_parts, " ".join(stated))

    def shares_of(self, cap: Cap) -> Amounts:
        """Return the shares of a cap. Where nothing is stated and delta is 0, all of epsilon is pure."""
        pure = cap.pure_pico * self.pure_parts // PARTS
        approximate = cap.delta_atto * self.approximate_parts // PARTS
        if cap.delta_pico == 0 and not self.stated:
            pure = cap.pure_pico
        return Amounts(pure, cap.gaussian(pure, approximate), approximate)


EVERYTHING_MAY_RUN = Division.of(FAMILIES)
"""The division of an account of whose studies nothing is known."""


def _rounded_up(amount: int, units: int) -> int:
    return -(-amount // units)
