"""Priv'IT in its practical form: one noisy statistic, whose sensitivity holds for all data.

Cai, Daskalakis and Kamath (2017), section 6: filter the counts with half of epsilon, then publish Z with
Laplace noise for the other half, calibrated to what can move Z among counts that pass. Here the deviations
N_i - n q_i are clipped instead, so that the guarantee never depends on having passed:

    Z = sum w_i (x_i^2 - x_i - n q_i),  x_i = clip(N_i - n q_i, +-B_i).

The published weights are w_i = 1/(n q_i): one unit in a rare cell then moves Z by far more than anywhere
else, and decides the noise. Balanced weights are min(1/(n q_i), c/(2 B_i + 1)), with the public c that sees
best what is hardest to see.

``filter`` clips at the filter's bound B_i = 2T + M_i, M_i = max(4 sqrt(n q_i log k), log k). ``tight`` clips
at M_i, which hardly any count passes where p = q, needs no filter and spends all of epsilon on the statistic.
docs/mathematics/identity.md proves it all.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from tacit_protocol.statistics.privit import C1, C3

Floats = npt.NDArray[np.float64]

Clipping = Literal["filter", "tight"]

BATCH_NUMBERS = 2**20
"""Numbers of simulated counts held at once: 8 MiB."""

UNIT_ROUNDOFF = 2.0**-53

CAPS = 49
"""Caps of weights that are tried, evenly spaced in logarithm from no cap to one that binds everywhere."""

CAP_GAIN = 1 + 1e-6
"""A smaller cap has to be so much better than a larger one: rounding never decides."""


@dataclass(frozen=True)
class ClippedIdentity:
    """The statistic of counts of ``units`` units against ``probabilities`` (k,), k >= 2.

    ``distance`` is alpha, which decides the cells that count. ``filter_scale`` is the scale of the Laplace
    noise of the filter's counts, in units; None where there is no filter and clipping is tight.
    ``multiplier`` is the scale of the statistic's own noise in units of its sensitivity, for which weights
    are balanced; None leaves the published weights.
    """

    probabilities: Floats
    units: int
    distance: float
    filter_scale: float | None
    multiplier: float | None = None

    @cached_property
    def cells(self) -> npt.NDArray[np.int64]:
        """The cells that count, (a,): those with q_i >= c1 alpha/k."""
        return np.flatnonzero(self.probabilities >= C1 * self.distance / len(self.probabilities))

    @cached_property
    def expected(self) -> Floats:
        """Expected counts n q_i of the cells that count, (a,)."""
        return np.asarray(self.units * self.probabilities[self.cells])

    @cached_property
    def usual(self) -> Floats:
        """M_i: how far a count strays from its expected value where p = q, with hardly an exception, (a,)."""
        log_k = math.log(len(self.probabilities))
        return np.asarray(np.maximum(4 * np.sqrt(self.expected * log_k), log_k))

    @cached_property
    def reach(self) -> float:
        """T: how far the filter's noise strays in any cell, but for a probability of c3; 0 without filter."""
        if self.filter_scale is None:
            return 0.0
        return self.filter_scale * -math.log(-math.expm1(math.log1p(-C3) / len(self.cells)))

    @cached_property
    def bounds(self) -> Floats:
        """B_i: where deviations are clipped, (a,)."""
        return np.asarray(2 * self.reach + self.usual)

    @cached_property
    def weights(self) -> Floats:
        """w_i, (a,): public, as everything here but counts is."""
        published = 1 / self.expected
        if self.multiplier is None:
            return np.asarray(published)
        each = 2 * self.bounds + 1
        moves = each * published
        if moves.max() <= moves.min() * CAP_GAIN:
            return np.asarray(published)
        caps = np.geomspace(float(moves.max()), float(moves.min()), CAPS)
        best, found = 0.0, published
        for cap in caps:
            weights = np.minimum(published, cap / each)
            worth = self._worth(weights)
            if worth > best * CAP_GAIN:
                best, found = worth, weights
        return np.asarray(found)

    def _worth(self, weights: Floats) -> float:
        """Return the squared signal over the variance, where deviations of one L1 norm show least.

        The signal sum w d^2 with sum |d| = 1 is smallest for d in proportion to 1/w: 1/sum(1/w). The variance
        is that of counting, 2 sum (w n q)^2, and of the noise.
        """
        noise = float(np.sort(weights * (2 * self.bounds + 1))[-2:].sum()) * (self.multiplier or 0.0)
        variance = 2 * float(np.sum((weights * self.expected) ** 2)) + 2 * noise**2
        return float(1 / np.sum(1 / weights)) ** 2 / variance

    @cached_property
    def sensitivity(self) -> float:
        """The most that the replacement of one unit moves the statistic as it is computed, whatever the data.

        A unit may be spread over several cells, as long as its parts are not negative and add up to 1.
        """
        moves = float(np.sort(self.weights * (2 * self.bounds + 1))[-2:].sum())
        return (moves + self.rounding) * (1 + 8 * UNIT_ROUNDOFF)

    @property
    def rounding(self) -> float:
        """A bound on what rounding adds to a difference of two statistics.

        A summand has at most 8 roundings, and a sum of a numbers in any order a - 1: each of at most 2**-53
        of the summands' absolute sum.
        """
        return 2 * (len(self.cells) + 8) * UNIT_ROUNDOFF * self.largest

    @cached_property
    def largest(self) -> float:
        """A bound on the summands' absolute sum, and so on the statistic's, whatever the data."""
        parts = self.weights * (self.bounds**2 + self.bounds + self.expected)
        return float(parts.sum()) * (1 + 1e-9) + 1

    def statistic(self, counts: Floats) -> Floats:
        """Return Z of exact counts, (..., k): (...) float64."""
        apart = np.clip(counts[..., self.cells] - self.expected, -self.bounds, self.bounds)
        return np.asarray(((apart**2 - apart - self.expected) * self.weights).sum(axis=-1))

    def stopped(self, noisy: Floats) -> npt.NDArray[np.bool_]:
        """Say whether the filter stops noisy counts, (..., k): some are further off than T + M_i."""
        apart = np.abs(noisy[..., self.cells] - self.expected)
        return np.asarray(np.any(apart >= self.reach + self.usual, axis=-1))

    def scores(self, statistic: npt.ArrayLike, noisy: Floats | None) -> Floats:
        """Return what is compared with its simulations: Z with noise, or infinity where the filter stops."""
        if noisy is None:
            return np.asarray(statistic, dtype=np.float64)
        return np.where(self.stopped(noisy), np.inf, statistic)

    def simulate(self, rng: np.random.Generator, scale: float, draws: int, p: Floats | None = None) -> Floats:
        """Draw scores of data and of all the noise, (draws,).

        The data follow ``p``, by default the probabilities; ``scale`` is that of the statistic's noise.
        """
        counts = rng.multinomial(self.units, self.probabilities if p is None else p, size=draws)
        values = self.statistic(counts.astype(np.float64)) + rng.laplace(0.0, scale, draws)
        if self.filter_scale is None:
            return self.scores(values, None)
        return self.scores(values, counts + rng.laplace(0.0, self.filter_scale, counts.shape))

    def pvalue(
        self,
        observed: float,
        scale: float,
        draws: int,
        seed: np.random.SeedSequence,
        progress: Callable[[float], None] | None = None,
    ) -> float:
        """Return (1 + number of simulated scores at least as large) / (draws + 1); one seed a draw."""
        larger = 0
        for number, child in enumerate(seed.spawn(draws), 1):
            larger += int(self.simulate(np.random.default_rng(child), scale, 1)[0] >= observed)
            if progress is not None and (number == draws or number % 64 == 0):
                progress(number / draws)
        return (1 + larger) / (draws + 1)
