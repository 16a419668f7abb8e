"""The shares of a privacy filter: what an account may spend on each kind of event, fixed in advance.

Studies are chosen after earlier releases were seen. A cap that is to hold for every such choice cannot be
checked by composing the events as if they had been fixed beforehand: the analyst would stop, or turn to
another kind of noise, where the privacy loss happens to be high. What holds (docs/mathematics/privacy.md,
"The ledger is a filter"): with sums of pure epsilon, of mu squared of Gaussian events, and of delta of
approximate ones that never pass shares fixed beforehand, everything released is (epsilon_p + epsilon_g,
delta_g + delta_0) private, where epsilon_p is the pure share, mu-Gaussian privacy at the Gaussian share is
(epsilon_g, delta_g), and delta_0 is the approximate share.

Amounts are integers, and charges are sums: costs are rounded up, shares down.
"""

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Literal, Self

from tacit_protocol.privacy.calibration import gaussian_delta_bound, pure_mu
from tacit_protocol.privacy.events import GaussianEvent, LaplaceEvent, MechanismEvent
from tacit_protocol.privacy.guarantee import DELTA_UNITS, EPSILON_UNITS, Budget

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

ROUNDING = 1e-12
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

    >>> from tacit_protocol.privacy.events import ApproximateEvent
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
    mu = math.sqrt(femto / GAUSSIAN_UNITS) * (1 + ROUNDING)
    delta = delta_atto / APPROXIMATE_UNITS * (1 - ROUNDING)
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
