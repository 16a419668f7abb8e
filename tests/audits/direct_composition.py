"""Composition worked out anew, without the ledger's accountant: exact for Gaussians, by convolution for all.

The exact curve of Balle and Wang (2018) in 50 digits; and privacy losses under the first of two neighbours,
cut into cells, convolved, and read as delta(epsilon) = E max(0, 1 - exp(epsilon - loss)). That grows with the
loss, so cells counted at their lower ends bound delta from below, and at their upper ends from above.
"""

import math
from collections.abc import Sequence

import mpmath
import numpy as np
import numpy.typing as npt
from adaptive_search import Grid, losses_of
from scipy.signal import fftconvolve

from tacit_protocol.privacy.guarantee import ApproximateEvent, GaussianEvent, LaplaceEvent, MechanismEvent

Floats = npt.NDArray[np.float64]

CELL = 1e-4
"""Width of a cell of privacy loss: so much, at most, each event but the Gaussians adds to the interval."""


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


def epsilon_interval(events: Sequence[MechanismEvent], delta: float) -> tuple[float, float]:
    """Lower and upper bound on the smallest epsilon of the events together at ``delta``."""
    worst: list[MechanismEvent] = [e for e in events if isinstance(e, LaplaceEvent)]
    worst += [e for e in events if isinstance(e, ApproximateEvent) and e.epsilon > 0]
    squared = mu_squared(events)
    if squared:
        worst.append(GaussianEvent(noise_multiplier=1 / math.sqrt(squared)))
    first, total = 0, np.ones(1)
    for event in worst:
        losses = losses_of(event, Grid(CELL, 0.0, upper=False))
        first, total = first + losses.first, np.maximum(fftconvolve(total, losses.mass), 0.0)
    left = delta - delta_given_away(events)
    lower = CELL * (first + np.arange(len(total)))
    return _epsilon(lower, total, left), _epsilon(lower + CELL * len(worst), total, left)


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
