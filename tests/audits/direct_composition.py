"""Composition worked out anew, without the ledger's accountant: exact for Gaussians, by convolution for all.

The exact curve of Balle and Wang (2018) in 50 digits; and privacy losses under the first of two neighbours,
cut into cells, convolved, and read as delta(epsilon) = E max(0, 1 - exp(epsilon - loss)). That grows with the
loss, so cells counted at their lower ends bound delta from below, and at their upper ends from above.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import mpmath
import numpy as np
import numpy.typing as npt
from scipy.signal import fftconvolve
from scipy.special import ndtr

from tacit_protocol.privacy.guarantee import ApproximateEvent, GaussianEvent, LaplaceEvent, MechanismEvent

Floats = npt.NDArray[np.float64]

CELL = 1e-4
"""Width of a cell of privacy loss: so much, at most, each event but the Gaussians adds to the interval."""

GAUSSIAN_TAIL = 9.0
"""Standard deviations of the Gaussian loss that are cut into cells; the rest, 1e-19, is dropped or lost."""


def gaussian_delta_exact(epsilon: float, mu_squared: float) -> mpmath.mpf:
    """Delta of Gaussian events whose mu squared add up to this, in 50 digits."""
    with mpmath.workdps(50):
        e, mu = mpmath.mpf(epsilon), mpmath.sqrt(mpmath.mpf(mu_squared))
        return mpmath.ncdf(-e / mu + mu / 2) - mpmath.exp(e) * mpmath.ncdf(-e / mu - mu / 2)


def mu_squared(events: Sequence[MechanismEvent]) -> float:
    """The Gaussian events' mu squared, together."""
    return math.fsum(e.noise_multiplier**-2 for e in events if isinstance(e, GaussianEvent))


def delta_given_away(events: Sequence[MechanismEvent]) -> float:
    """What the approximate events take of delta."""
    return math.fsum(e.delta for e in events if isinstance(e, ApproximateEvent))


@dataclass(frozen=True)
class _Losses:
    """Probabilities of cells (first + k, first + k + 1] * CELL of the privacy loss."""

    first: int
    mass: Floats

    def plus(self, other: "_Losses") -> "_Losses":
        mass = np.maximum(fftconvolve(self.mass, other.mass), 0.0)
        return _Losses(self.first + other.first, mass)


def epsilon_interval(events: Sequence[MechanismEvent], delta: float) -> tuple[float, float]:
    """Lower and upper bound on the smallest epsilon of the events together at ``delta``."""
    losses = _losses_of(events)
    total = losses[0]
    for loss in losses[1:]:
        total = total.plus(loss)
    left = delta - delta_given_away(events)
    lower = CELL * (total.first + np.arange(len(total.mass)))
    return _epsilon(lower, total.mass, left), _epsilon(lower + CELL * len(losses), total.mass, left)


def _epsilon(losses: Floats, mass: Floats, delta: float) -> float:
    """The smallest epsilon >= 0 at which the losses' delta is within ``delta``, by bisection."""

    def above(epsilon: float) -> bool:
        tail = losses > epsilon
        return float(np.sum(mass[tail] * -np.expm1(epsilon - losses[tail]))) > delta

    low, high = 0.0, float(losses[-1]) + 1.0
    if not above(low):
        return 0.0
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) else (low, middle)
    return high


def _losses_of(events: Sequence[MechanismEvent]) -> list[_Losses]:
    found = [_laplace(1 / e.noise_multiplier) for e in events if isinstance(e, LaplaceEvent)]
    found += [_pure(e.epsilon) for e in events if isinstance(e, ApproximateEvent) and e.epsilon > 0]
    squared = mu_squared(events)
    if squared:
        found.append(_gaussian(math.sqrt(squared)))
    return found


def _gaussian(mu: float) -> _Losses:
    """The loss is normal with mean mu^2 / 2 and standard deviation mu."""
    first = math.floor((mu * mu / 2 - GAUSSIAN_TAIL * mu) / CELL)
    count = math.ceil(2 * GAUSSIAN_TAIL * mu / CELL) + 1
    edges = CELL * (first + np.arange(count + 1))
    return _Losses(first, np.diff(ndtr((edges - mu * mu / 2) / mu)))


def _laplace(epsilon: float) -> _Losses:
    """The loss is epsilon with probability 1/2, -epsilon with exp(-epsilon) / 2, and in between else."""

    def below(loss: Floats) -> Floats:
        inside = np.exp((loss - epsilon) / 2) / 2
        return np.where(loss >= epsilon, 1.0, np.where(loss < -epsilon, 0.0, inside))

    return _cells(below, epsilon)


def _pure(epsilon: float) -> _Losses:
    """Randomised response, the worst of all pure mechanisms."""
    right = 1 / (1 + math.exp(-epsilon))

    def below(loss: Floats) -> Floats:
        return np.where(loss >= epsilon, 1.0, np.where(loss < -epsilon, 0.0, 1 - right))

    return _cells(below, epsilon)


def _cells(below: Callable[[Floats], Floats], epsilon: float) -> _Losses:
    first = math.floor(-epsilon / CELL) - 1
    edges = CELL * (first + np.arange(2 * math.ceil(epsilon / CELL) + 4))
    return _Losses(first, np.diff(below(edges)))
