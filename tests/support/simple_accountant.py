"""An accountant that knows only what was released, and works out anew what it costs.

It shares no code with the ledger's accounting: exact fractions, the exact Gaussian curve in 50 digits
(direct_composition.py), and the theorem of docs/mathematics/privacy.md. It is told what was released, which
caps were in force, and which shares the ledger promised before the first release.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

import mpmath
from direct_composition import gaussian_delta_exact

from tacit_protocol.privacy.guarantee import GaussianEvent, Guarantee, LaplaceEvent, MechanismEvent

Shares = tuple[Fraction, Fraction, Fraction]
"""Pure epsilon, mu squared, delta of approximate events."""

NOTHING: Shares = (Fraction(0), Fraction(0), Fraction(0))

ROUNDING = Fraction(1, 10**9)
"""Relative part by which a mu that was found in floats may be below the exact one."""


@lru_cache(4096)
def mu_squared_of_pure(epsilon: float) -> Fraction:
    """The least mu squared whose Gaussian trade-off curve lies below a pure mechanism's, from below."""
    with mpmath.workdps(50):
        # The curves meet at the kink 1 / (1 + exp(epsilon)): mu = -2 times the normal quantile there.
        quantile = mpmath.sqrt(2) * mpmath.erfinv(1 - 2 / (1 + mpmath.exp(mpmath.mpf(epsilon))))
        return Fraction(str(mpmath.mpf(4 * quantile**2))) * (1 - ROUNDING)


def cost_of(events: Sequence[MechanismEvent], *, paid_as_gaussian: bool) -> Shares:
    """What events take, where the Gaussian share pays for pure ones or not."""
    pure, squared, delta = NOTHING
    for event in events:
        if isinstance(event, GaussianEvent):
            squared += 1 / Fraction(event.noise_multiplier) ** 2
            continue
        epsilon = 1 / event.noise_multiplier if isinstance(event, LaplaceEvent) else event.epsilon
        delta += 0 if isinstance(event, LaplaceEvent) else Fraction(event.delta)
        if paid_as_gaussian:
            squared += mu_squared_of_pure(epsilon)
        else:
            pure += Fraction(epsilon) * (1 - ROUNDING)
    return pure, squared, delta * (1 - ROUNDING)


def added(first: Shares, second: Shares) -> Shares:
    """The sum, share by share."""
    return first[0] + second[0], first[1] + second[1], first[2] + second[2]


def joined(first: Shares, second: Shares) -> Shares:
    """The larger of both, share by share."""
    return max(first[0], second[0]), max(first[1], second[1]), max(first[2], second[2])


def within(amounts: Shares, shares: Shares) -> bool:
    """Whether no amount passes its share."""
    return all(amount <= share for amount, share in zip(amounts, shares, strict=True))


@lru_cache(4096)
def covers(cap: tuple[Fraction, Fraction], shares: Shares) -> bool:
    """Whether all that fits these shares, however it was chosen, is (epsilon, delta) private."""
    (epsilon, delta), (pure, squared, approximate) = cap, shares
    if pure > epsilon or approximate > delta:
        return False
    if not squared:
        return True
    left = mpmath.mpf(int((delta - approximate) * 10**18)) / 10**18
    return bool(gaussian_delta_exact(float(epsilon - pure), float(squared)) <= left * (1 + 1e-12))


@dataclass
class SimpleAccountant:
    """One data set's account: what was released, and what was promised for it."""

    released: dict[str, Guarantee] = field(default_factory=dict)
    reserved: dict[str, Guarantee] = field(default_factory=dict)
    caps: list[tuple[Fraction, Fraction]] = field(default_factory=list)
    promised: Shares = NOTHING
    """The shares before the first release, and those of later caps."""

    def faults(self, paid_as_gaussian: Mapping[str, bool], shares: Shares) -> list[str]:
        """Say what is wrong with an account that has now these shares; nothing where all is well.

        ``paid_as_gaussian`` says of each released study whether the Gaussian share paid for its pure events.
        """
        if paid_as_gaussian.keys() != self.released.keys():
            return ["the debits are not what was released"]
        found, total = [], NOTHING
        for study, paid in paid_as_gaussian.items():
            total = added(total, cost_of(self.released[study].events, paid_as_gaussian=paid))
        if self.released:
            if not within(total, self.promised):
                found.append("what was released passes a share that was fixed before")
            if not within(shares, self.promised):
                found.append("a share has grown after the first release")
            if not any(covers(cap, self.promised) for cap in self.caps):
                found.append("the shares together pass every cap that was in force")
        elif not any(covers(cap, shares) for cap in self.caps[-1:]):
            found.append("the shares together pass the cap")
        return found
