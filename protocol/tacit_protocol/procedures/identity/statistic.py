"""Noisy counts against a known distribution: MCGOF and zCDP-GOF.

Gaboardi, Lim, Rogers and Vadhan, *Differentially private chi-squared hypothesis testing* (2016): the
statistic sum (c_i - n q_i)^2/(n q_i) of noisy counts c, and a null that draws the counts and the noise.
Kifer and Rogers, *A new class of private chi-square tests* (2017): the quadratic form whose matrix is the
inverse of the covariance of counts and noise together. That covariance is diagonal plus rank one, so that the
form takes O(k) (docs/mathematics/identity.md), and it serves Laplace noise as well.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc

from tacit_protocol.numerics.noisy_tables import CellNoise

Floats = npt.NDArray[np.float64]

Weights = Literal["published", "noise-aware"]
Null = Literal["auto", "chi-square", "monte-carlo"]

TAIL_WEIGHT_MAX = 0.01
"""Most that a cell's counts may weigh in n q/(n q + v)^2, with v the variance of its noise, for the
chi-square distribution to stand for the null: the excess kurtosis that rare counts keep beside the noise.
Beyond it the level is broken by rare cells (tests/protocol/procedures/identity/test_identity.py)."""

BATCH_NUMBERS = 2**20
"""Numbers of simulated counts held at once: 8 MiB."""


DRAW_WORK = 1000
"""Simulated numbers that take as long as what a draw takes whatever the number of cells."""


def in_batches(draw: Callable[[int], Floats], runs: int, cells: int) -> Floats:
    """Draw so many statistics, (runs,), of so many cells each, in parts that fit a processor's cache."""
    batch = max(1, BATCH_NUMBERS // cells)
    return np.concatenate([draw(min(batch, runs - done)) for done in range(0, runs, batch)])


@dataclass(frozen=True)
class Fit:
    """What noisy counts tell: the statistic, its p-value, and in words how the null was found."""

    statistic: float
    pvalue: float
    null: str


@dataclass(frozen=True)
class GoodnessOfFit:
    """A statistic of noisy counts of ``units`` units against ``probabilities`` (k,), which add to 1.

    ``weights`` "published" divides each cell by its expected count, and a cell of probability 0, of which the
    published statistic is undefined, by the variance of its noise; "noise-aware" is the form of zCDP-GOF.
    """

    probabilities: Floats
    units: int
    noise: CellNoise
    weights: Weights

    def statistic(self, counts: Floats) -> Floats:
        """Return the statistic of noisy counts, (..., k): (...) float64."""
        apart = counts - self.units * self.probabilities
        if self.weights == "published":
            expected = self.units * self.probabilities
            divisors = np.where(expected > 0, expected, self.noise.variance)
            return np.asarray((apart**2 / divisors).sum(axis=-1))
        return _projected(
            apart / self.units, self.probabilities, self.noise.variance / self.units, self.units
        )

    def simulate(self, rng: np.random.Generator) -> Floats:
        """Draw noisy counts, (k,), of data that follow the probabilities."""
        counts = rng.multinomial(self.units, self.probabilities)
        return np.asarray(counts + self.noise.draw(rng, (len(counts),)))

    def test(
        self,
        counts: Floats,
        null: Null,
        draws: int,
        seed: np.random.SeedSequence,
        progress: Callable[[float], None] | None = None,
    ) -> Fit:
        """Test noisy counts, (k,), whoever released them.

        ``null`` "auto" takes the chi-square distribution where it holds, and ``draws`` simulations elsewhere.
        Raises ValueError where chi-square is asked for with weights or noise that it does not serve.
        """
        found = float(self.statistic(counts))
        if self.by_chi_square(null):
            if progress is not None:
                progress(1.0)
            words = f"chi-square with {len(self.probabilities) - 1} degrees of freedom"
            return Fit(found, self.chi_square_pvalue(found), words)
        return Fit(found, self.monte_carlo_pvalue(found, draws, seed, progress), f"{draws} simulations")

    def by_chi_square(self, null: Null) -> bool:
        """Say whether the null is the chi-square distribution. Raises ValueError where it does not serve."""
        fits = self.weights == "noise-aware" and self.noise.kind == "gaussian"
        if null == "chi-square" and not fits:
            raise ValueError("chi-square is the null of noise-aware weights and Gaussian noise alone")
        return null == "chi-square" or (null == "auto" and fits and self.chi_square_holds)

    def scores(self, p: Floats, runs: int, rng: np.random.Generator) -> Floats:
        """Draw statistics, (runs,), of data that follow ``p`` (k,)."""

        def part(size: int) -> Floats:
            counts = rng.multinomial(self.units, p, size=size)
            return self.statistic(counts + self.noise.draw(rng, counts.shape))

        return in_batches(part, runs, len(p))

    def monte_carlo_pvalue(
        self,
        observed: float,
        draws: int,
        seed: np.random.SeedSequence,
        progress: Callable[[float], None] | None = None,
    ) -> float:
        """Return (1 + number of simulated statistics at least as large) / (draws + 1); one seed a draw."""
        cells, larger, done = len(self.probabilities), 0, 0
        batch = max(1, BATCH_NUMBERS // cells)
        children = seed.spawn(draws)
        while done < draws:
            part = children[done : done + batch]
            counts = np.array([self.simulate(np.random.default_rng(child)) for child in part])
            larger += int(np.count_nonzero(self.statistic(counts) >= observed))
            done += len(part)
            if progress is not None:
                progress(done / draws)
        return (1 + larger) / (draws + 1)

    def chi_square_pvalue(self, observed: float) -> float:
        """Return the probability that chi-square with k - 1 degrees is at least as large; never 0."""
        return max(float(chdtrc(len(self.probabilities) - 1, max(0.0, observed))), math.ulp(0.0))

    @property
    def chi_square_holds(self) -> bool:
        """Whether the chi-square distribution may stand for the null of the noise-aware form."""
        expected = self.units * self.probabilities
        spread = expected + self.noise.variance
        gaussian = self.noise.kind == "gaussian"
        return gaussian and bool(np.all(expected / spread**2 <= TAIL_WEIGHT_MAX))


def _projected(apart: Floats, q: Floats, noise: float, units: int) -> Floats:
    """Return n r' S^-1 r for r = ``apart`` less its mean and S = diag(q) - qq' + noise I, by its rank one.

    With D = diag(q) + noise I: S^-1 = D^-1 + D^-1 q q' D^-1/(1 - q' D^-1 q), and that last divisor is
    sum_i noise q_i/d_i: written so, nothing cancels.
    """
    residual = apart - apart.mean(axis=-1, keepdims=True)
    diagonal = q + noise
    first = (residual**2 / diagonal).sum(axis=-1)
    second = (residual * (q / diagonal)).sum(axis=-1) ** 2 / float((noise * q / diagonal).sum())
    return np.asarray(units * (first + second))
