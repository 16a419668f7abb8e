"""How often each identity test rejects: simulated from counts alone, for planning and for benchmarks.

Nothing here is private noise: counts, noise and answers are all simulated on public distributions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit_protocol.features.cell_counts import Integers
from tacit_protocol.numerics.noisy_tables import CellNoise
from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_protocol.procedures.identity.privit import (
    ClippedIdentity,
    Repetition,
    plan_privit,
    replicates_needed,
)
from tacit_protocol.procedures.identity.statistic import GoodnessOfFit, Weights, in_batches

Floats = npt.NDArray[np.float64]

Scores = Callable[[Floats, int, np.random.Generator], Floats]
"""Draws scores, (runs,), of data that follow a distribution: larger is further from the known one."""


@dataclass(frozen=True)
class Rates:
    """How often a test rejected where the known distribution was true, and where another was."""

    false: float
    true: float
    runs: int


@dataclass(frozen=True)
class PlannedIdentity:
    """A test of ``units`` units against ``probabilities`` (k,); ``method`` is as in the procedure.

    ``rho`` is the zCDP of Gaussian counts, by default the largest that (epsilon, delta) allows. ``weights``
    are "noise-aware" by default, and those of clipping "filter", the published form, "published".
    """

    method: str
    probabilities: Floats
    units: int
    epsilon: float
    level: float
    delta: float = 0.0
    rho: float | None = None
    distance: float = 0.1
    weights: Weights | None = None
    clipping: str = "tight"

    def rates(self, other: Floats, runs: int, draws: int, seed: np.random.SeedSequence) -> Rates:
        """Simulate ``runs`` studies under both distributions; ``draws`` simulations make the null.

        Raises PrivitRefusedError or RepetitionRefusedError where the method does not take so few units.
        """
        rng = np.random.default_rng(seed)
        if self.method in ("privit", "repetition"):
            found = [self.decisions(p, runs, rng) for p in (self.probabilities, other)]
            return Rates(float(np.mean(found[0])), float(np.mean(found[1])), runs)
        scores = self.scores()
        null = np.sort(scores(self.probabilities, draws, rng))
        rejected = [
            (1 + draws - np.searchsorted(null, scores(p, runs, rng), side="left")) / (draws + 1) <= self.level
            for p in (self.probabilities, other)
        ]
        return Rates(float(np.mean(rejected[0])), float(np.mean(rejected[1])), runs)

    def decisions(self, p: Floats, runs: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        """Simulate what a method that sends a decision sends, (runs,), where ``p`` (k,) is true.

        Raises PrivitRefusedError or RepetitionRefusedError where the method does not take so few units.
        """
        return (self._privit if self.method == "privit" else self._repetition)(p, runs, rng)

    def scores(self) -> Scores:
        """Return what draws the scores of a method that has a statistic."""
        if self.method == "privit-laplace":
            return self._clipped_scores
        if self.method == "chi-square":
            return self._open_scores
        return self._count_scores

    def _count_scores(self, p: Floats, runs: int, rng: np.random.Generator) -> Floats:
        noise = CellNoise("laplace", 2 / self.epsilon)
        if self.method == "zcdp-gof":
            rho = gaussian_mu(self.epsilon, self.delta) ** 2 / 2 if self.rho is None else self.rho
            noise = CellNoise("gaussian", 1 / math.sqrt(rho))
        fit = GoodnessOfFit(self.probabilities, self.units, noise, self.weights or "noise-aware")
        return fit.scores(p, runs, rng)

    def _clipped_scores(self, p: Floats, runs: int, rng: np.random.Generator) -> Floats:
        filtered = self.clipping == "filter"
        multiplier = (2 if filtered else 1) / self.epsilon
        published = (self.weights or ("published" if filtered else "noise-aware")) == "published"
        clipped = ClippedIdentity(
            self.probabilities,
            self.units,
            self.distance,
            4 / self.epsilon if filtered else None,
            None if published else multiplier,
        )
        scale = clipped.sensitivity * multiplier
        return in_batches(lambda size: clipped.simulate(rng, scale, size, p), runs, len(p))

    def _open_scores(self, p: Floats, runs: int, rng: np.random.Generator) -> Floats:
        test = Repetition(self.probabilities, self.epsilon, self.level)
        return in_batches(
            lambda size: test.statistic(rng.multinomial(self.units, p, size=size)), runs, len(p)
        )

    def _privit(self, p: Floats, runs: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        plan = plan_privit(self.probabilities, self.units, self.epsilon, self.distance, self.level)

        def rejected(counts: Integers) -> bool:
            return bool(rng.random() >= plan.instance.acceptance(counts))

        return np.array(
            [
                2 * sum(rejected(rng.poisson(plan.instance.samples * p)) for _ in range(plan.blocks))
                > plan.blocks
                for _ in range(runs)
            ]
        )

    def _repetition(self, p: Floats, runs: int, rng: np.random.Generator) -> npt.NDArray[np.bool_]:
        test = Repetition(self.probabilities, self.epsilon, self.level)
        size = test.block_units(self.units)
        null = np.sort(
            in_batches(
                lambda part: test.statistic(rng.multinomial(size, self.probabilities, size=part)),
                max(999, replicates_needed(self.level)),
                len(p),
            )
        )
        # One block's answer has the law of the answer drawn: blocks are alike.
        values = in_batches(lambda part: test.statistic(rng.multinomial(size, p, size=part)), runs, len(p))
        larger = len(null) - np.searchsorted(null, values, side="left")
        rejects = (1 + larger) / (len(null) + 1) <= test.block_level
        coin = rng.random(runs) < self.level
        return np.where(coin, rng.random(runs) < 0.5, rejects)
