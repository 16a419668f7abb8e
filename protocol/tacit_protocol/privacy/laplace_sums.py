"""The pure-epsilon release of exact sums: Laplace noise for an L1 sensitivity that follows from the L2 one.

A vector of J coordinates that moves by at most Delta in L2 moves by at most sqrt J Delta in L1 (Cauchy and
Schwarz), the rounding to the grid included. Laplace noise of scale sqrt J Delta / epsilon on every coordinate
is then epsilon-differentially private, and discrete Laplace noise on the integer sums has this guarantee
itself, with no delta (docs/mathematics/database-release.md); the scale is a little larger, so that it
composes as the continuous noise of its event does (noise.py). P2's 2 / sqrt N needs J <= N.
"""

import math

import numpy as np

from tacit_protocol.privacy.calibration import laplace_multiplier
from tacit_protocol.privacy.events import LaplaceEvent
from tacit_protocol.privacy.gaussian_sums import SCALE_TOLERANCE, LayoutError, SensitivityError, SumPart
from tacit_protocol.privacy.guarantee import Budget, Guarantee
from tacit_protocol.privacy.noise import NoiseSource, laplace_grid_is_fine
from tacit_protocol.privacy.noise import laplace_scale as scale_of_event
from tacit_protocol.privacy.vector import NoisyVector


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


def laplace_scale(part: SumPart, guarantee: Guarantee) -> float:
    """Return the scale of the noise on a coordinate, in natural units."""
    event = guarantee.events[0]
    if not isinstance(event, LaplaceEvent):
        raise SensitivityError("the guarantee is not that of a Laplace release")
    return scale_of_event(l1_sensitivity(part), event.noise_multiplier)


def release_laplace_sums(part: SumPart, guarantee: Guarantee, noise: NoiseSource) -> NoisyVector:
    """Add the noise that the guarantee states.

    Raises SensitivityError where the noise is so small, in grid steps, that its discreteness would count.
    """
    scale = laplace_scale(part, guarantee)
    if not laplace_grid_is_fine(
        math.ldexp(l1_sensitivity(part), -part.exponent), math.ldexp(scale, -part.exponent)
    ):
        raise SensitivityError("the noise is too small for its grid; give the study a smaller epsilon")
    noisy = noise.laplace(np.asarray(part.sums), math.ldexp(scale, -part.exponent))
    return NoisyVector(
        values=tuple(int(v) for v in noisy), exponent=part.exponent, noise="laplace", scale=scale
    )


def check_laplace_sums(vector: NoisyVector, stated: Guarantee, part: SumPart, fixed: Guarantee) -> None:
    """Raise LayoutError where a vector or its guarantee is not the one that a study fixes."""
    if stated != fixed:
        raise LayoutError("the release states another guarantee than the study")
    if len(vector.values) != len(part.sums) or vector.exponent != part.exponent:
        raise LayoutError(f"vector {part.name} has not the shape that the study fixes")
    if vector.noise != "laplace" or abs(vector.scale / laplace_scale(part, fixed) - 1) > SCALE_TOLERANCE:
        raise LayoutError(f"vector {part.name} has not the noise that the study fixes")
