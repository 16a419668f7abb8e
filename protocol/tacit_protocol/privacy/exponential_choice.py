"""The exponential mechanism over a finite public list (McSherry and Talwar 2007), drawn exactly.

Candidate c has a loss that replacing one unit moves by at most Delta, for all data. Drawn with probability
proportional to exp(-epsilon loss / (2 Delta)), the choice is epsilon-differentially private: the log of
every candidate's probability moves by at most epsilon/2 + epsilon/2. Losses are rounded to integers first, in
whose steps one unit moves them by at most floor(Delta 2**bits) + 1; OpenDP then picks the largest of minus
the losses with Gumbel noise, compared in arithmetic of as many digits as it takes, whose law is the
exponential mechanism's itself. (With exponential noise it would be permute-and-flip: private too, and of
another law.)
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tacit_protocol.privacy.calibration import laplace_multiplier
from tacit_protocol.privacy.events import ApproximateEvent
from tacit_protocol.privacy.guarantee import Budget, Guarantee
from tacit_protocol.privacy.laplace_statistic import LaplaceStatistic


@runtime_checkable
class ChoiceSource(Protocol):
    """Draws from a list by the exponential mechanism; OpenDPNoise does."""

    def choose(self, scores: npt.NDArray[np.int64], scale: float) -> int:
        """Return i with probability proportional to exp(scores[i] / scale)."""


def choice_guarantee(budget: Budget) -> Guarantee:
    """Return the pure guarantee of one choice that uses the whole epsilon; delta may be 0."""
    return Guarantee(budget=budget, events=(ApproximateEvent(epsilon=budget.epsilon),))


@dataclass(frozen=True)
class ExponentialChoice:
    """How one of a list is chosen: all of it public.

    ``sensitivity`` is what one unit moves any candidate's loss by, ``largest`` bounds losses for all data.
    """

    sensitivity: float
    largest: float
    epsilon: float

    @property
    def scale(self) -> float:
        """Twice the sensitivity over epsilon, in the losses' own units."""
        return self._grid.scale

    def scores(self, losses: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Return minus the losses, (candidates,), in whole steps; larger losses count as ``largest``.

        Raises ValueError where a loss is negative or not a number; quotes no value.
        """
        if losses.ndim != 1 or not losses.size or not np.all(losses >= 0):
            raise ValueError("losses must be a vector of one or more numbers, none below 0")
        steps = np.rint(np.ldexp(np.minimum(losses, self.largest), self._grid.bits))
        return np.asarray(-steps, dtype=np.int64)

    def choose(self, losses: npt.NDArray[np.float64], source: ChoiceSource) -> int:
        """Draw a candidate. Nothing else of the losses may leave."""
        return source.choose(self.scores(losses), math.ldexp(self.scale, self._grid.bits))

    def excess(self, candidates: int, error: float) -> float:
        """Bound how much the chosen loss exceeds the smallest, but for a probability of ``error``."""
        return self.scale * math.log(candidates / error)

    @property
    def _grid(self) -> LaplaceStatistic:
        return LaplaceStatistic(self.sensitivity, self.largest, 2 * laplace_multiplier(self.epsilon))
