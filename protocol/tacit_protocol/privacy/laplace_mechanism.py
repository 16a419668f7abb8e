"""Pure-epsilon mechanisms: Laplace noise on exact sums and on one statistic, and the exponential mechanism.

Sums of J coordinates that move by at most Delta in L2 move by at most sqrt J Delta in L1: discrete Laplace
noise of scale sqrt J Delta / epsilon on each is epsilon-differentially private
(docs/mathematics/database-release.md; P2's 2 / sqrt N needs J <= N). A statistic that one unit moves by at
most Delta, rounded to steps of 2**-bits, moves by at most floor(Delta 2**bits) + 1 steps. Both scales are a
little larger (``laplace_scale`` in noise.py), for the composition of the continuous noise that their events
stand for.

The exponential mechanism over a finite public list (McSherry and Talwar 2007) draws a candidate whose loss
one unit moves by at most Delta with probability proportional to exp(-epsilon loss / (2 Delta)), exactly:
losses are rounded to integers, and OpenDP picks the largest of minus the losses with Gumbel noise.
"""

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from tacit_protocol.privacy.gaussian_mechanism import (
    NO_ROOM,
    SCALE_TOLERANCE,
    LayoutError,
    SensitivityError,
    SumPart,
)
from tacit_protocol.privacy.guarantee import ApproximateEvent, Budget, Guarantee, LaplaceEvent, NoisyVector
from tacit_protocol.privacy.noise import (
    NoiseSource,
    laplace_grid_is_fine,
    laplace_multiplier,
    laplace_scale,
    scale_fits,
)
from tacit_protocol.privacy.noise import laplace_scale as scale_of_event
from tacit_protocol.strict import StudyError


def laplace_sum_guarantee(budget: Budget) -> Guarantee:
    """Return the pure guarantee of one Laplace release that uses the whole epsilon; delta may be 0."""
    event = LaplaceEvent(noise_multiplier=laplace_multiplier(budget.epsilon))
    return Guarantee(budget=budget, events=(event,))


def shared_laplace_guarantee(budget: Budget, shares: tuple[float, ...]) -> Guarantee:
    """Return the pure guarantee of several Laplace releases, one event each, that share epsilon.

    ``shares`` add up to 1. A later release may depend on the earlier ones: epsilons add up all the same.
    """
    multiplier = laplace_multiplier(budget.epsilon)
    events = tuple(LaplaceEvent(noise_multiplier=multiplier / share) for share in shares)
    return Guarantee(budget=budget, events=events)


def of_event(guarantee: Guarantee, place: int) -> Guarantee:
    """Return the part of a shared guarantee that pays for one of its releases."""
    return Guarantee(budget=guarantee.budget, events=(guarantee.events[place],))


def l1_sensitivity(part: SumPart) -> float:
    """Bound the L1 change of a part's sums when one unit is replaced, in natural units."""
    if part.l1 is not None:
        return part.l1
    return math.nextafter(math.sqrt(len(part.sums)) * part.sensitivity, math.inf)


def sums_scale(part: SumPart, guarantee: Guarantee) -> float:
    """Return the scale of the noise on a coordinate, in natural units."""
    event = guarantee.events[0]
    if not isinstance(event, LaplaceEvent):
        raise SensitivityError("the guarantee is not that of a Laplace release")
    return scale_of_event(l1_sensitivity(part), event.noise_multiplier)


def release_laplace_sums(part: SumPart, guarantee: Guarantee, noise: NoiseSource) -> NoisyVector:
    """Add the noise that the guarantee states.

    Raises SensitivityError where the noise cannot be drawn (:func:`require_laplace`).
    """
    require_laplace(part, guarantee)
    scale = sums_scale(part, guarantee)
    noisy = noise.laplace(np.asarray(part.sums), math.ldexp(scale, -part.exponent))
    return NoisyVector(
        values=tuple(int(v) for v in noisy), exponent=part.exponent, noise="laplace", scale=scale
    )


def require_laplace(part: SumPart, guarantee: Guarantee) -> None:
    """Raise SensitivityError where a part's noise has no room, or is too few grid steps wide.

    It looks at the grid and the sensitivity, never at sums, so that it decides before any row is read.
    """
    moved, scale = (
        math.ldexp(size, -part.exponent) for size in (l1_sensitivity(part), sums_scale(part, guarantee))
    )
    if not scale_fits(scale):
        raise SensitivityError(NO_ROOM)
    if not laplace_grid_is_fine(moved, scale):
        raise SensitivityError("the noise is too small for its grid; give the study a smaller epsilon")


def check_laplace_sums(vector: NoisyVector, stated: Guarantee, part: SumPart, fixed: Guarantee) -> None:
    """Raise LayoutError where a vector or its guarantee is not the one that a study fixes."""
    if stated != fixed:
        raise LayoutError("the release states another guarantee than the study")
    if len(vector.values) != len(part.sums) or vector.exponent != part.exponent:
        raise LayoutError(f"vector {part.name} has not the shape that the study fixes")
    if vector.noise != "laplace" or abs(vector.scale / sums_scale(part, fixed) - 1) > SCALE_TOLERANCE:
        raise LayoutError(f"vector {part.name} has not the noise that the study fixes")


SENSITIVITY_BITS = 24
"""The sensitivity is at least 2**24 steps where the statistic's range allows it: rounding then adds less than
1e-7 of the noise."""

STEPS_MAX_BITS = 58
"""The largest statistic stays within 2**58 steps, which leaves room for 64 scales of noise."""

BITS_MAX = 62
"""Finest grid that a noisy vector may state."""


class StatisticError(StudyError):
    """The statistic's range is too wide for its sensitivity. Says so and quotes no value."""


@dataclass(frozen=True)
class LaplaceStatistic:
    """How one statistic is released: all of it public.

    ``sensitivity`` is what one unit moves it by, ``largest`` bounds its absolute value for all data, and
    ``multiplier`` is the scale of the noise in units of the sensitivity (1/epsilon, or a little more).
    """

    sensitivity: float
    largest: float
    multiplier: float

    @property
    def bits(self) -> int:
        """Bits of the grid. Raises StatisticError where the noise would be too narrow or wide for any."""
        fine = SENSITIVITY_BITS + 1 - math.frexp(self.sensitivity)[1]
        room = STEPS_MAX_BITS - math.frexp(self.largest)[1]
        bits = min(max(fine, 0), room, BITS_MAX)
        if bits < 0 or not laplace_grid_is_fine(self.steps(bits), self.steps(bits) * self.multiplier):
            raise StatisticError("the statistic can be far larger than one unit moves it: use fewer cells")
        if not scale_fits(laplace_scale(self.steps(bits), self.multiplier)):
            raise StatisticError(NO_ROOM)
        return bits

    def steps(self, bits: int) -> int:
        """Return the sensitivity in steps of 2**-bits, with the rounding."""
        return math.floor(math.ldexp(self.sensitivity, bits)) + 1

    @property
    def scale(self) -> float:
        """Scale of the noise, in the statistic's own units."""
        bits = self.bits
        return math.ldexp(laplace_scale(self.steps(bits), self.multiplier), -bits)

    def release(self, value: float, noise: NoiseSource) -> NoisyVector:
        """Add the noise; raises StatisticError as ``bits`` does, whatever the value.

        A value beyond ``largest`` counts as it, which moves no two values further apart. There is none such:
        ``largest`` is a bound for all data.
        """
        bits = self.bits
        bounded = float(np.clip(np.nan_to_num(value), -self.largest, self.largest))
        steps = np.array([round(math.ldexp(bounded, bits))], dtype=np.int64)
        noisy = noise.laplace(steps, math.ldexp(self.scale, bits))
        return NoisyVector(values=(int(noisy[0]),), exponent=-bits, noise="laplace", scale=self.scale)


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
        """Return minus the losses, (candidates,), in whole steps.

        A loss beyond 0 or ``largest`` counts as that, and one that is no number as ``largest``: whatever the
        losses are, a candidate is drawn. Raises ValueError where they are not a vector of one or more.
        """
        if losses.ndim != 1 or not losses.size:
            raise ValueError("losses must be a vector of one or more numbers")
        bounded = np.clip(np.nan_to_num(losses, nan=self.largest), 0, self.largest)
        steps = np.rint(np.ldexp(bounded, self._grid.bits))
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
