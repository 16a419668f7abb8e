"""Private counts over public cells: Laplace or Gaussian noise on every cell.

Replacing one unit moves counts, whole steps of 2**-bits, by at most 2 in L1 and sqrt 2 in L2, exactly
(features/cell_counts.py). Laplace noise of scale 2/epsilon on each cell is epsilon-differentially private;
Gaussian noise of standard deviation sqrt 2/mu is mu-Gaussian private, and rho-zCDP with rho = mu^2/2, a
variance of 1/rho on each cell (Canonne, Kamath and Steinke 2020, theorem 4). For composition the Laplace
scale is a little larger (noise.py), and Gaussian noise has the reserve of gaussian_mechanism.py.
"""

import math

import numpy as np
import numpy.typing as npt

from tacit_protocol.privacy.accounting import fits, gaussian_mu, laplace_multiplier
from tacit_protocol.privacy.gaussian_mechanism import (
    SCALE_TOLERANCE,
    LayoutError,
    SensitivityError,
    SumPart,
    check_layout,
    gaussian_guarantee,
    release_sums,
)
from tacit_protocol.privacy.guarantee import (
    ApproximateEvent,
    Budget,
    GaussianEvent,
    Guarantee,
    LaplaceEvent,
    NoisyVector,
)
from tacit_protocol.privacy.noise import (
    DISCRETISATION_SHARE,
    NoiseSource,
    laplace_grid_is_fine,
    laplace_scale,
)

COUNTS = "counts"
"""Name of the vector in a release."""

L1_SENSITIVITY = 2.0
L2_SENSITIVITY = math.nextafter(math.sqrt(2.0), 2.0)


def laplace_count_guarantee(budget: Budget) -> Guarantee:
    """Return the pure guarantee of Laplace counts that use the whole epsilon; delta may be 0."""
    event = LaplaceEvent(noise_multiplier=laplace_multiplier(budget.epsilon))
    return Guarantee(budget=budget, events=(event,))


def gaussian_count_guarantee(budget: Budget, rho: float | None = None) -> Guarantee:
    """Return the guarantee of Gaussian counts that use the whole budget, or rho-zCDP within the budget.

    Raises SensitivityError where delta is 0, or rho costs more than the budget.
    """
    if rho is None:
        return gaussian_guarantee(budget)
    if budget.delta_pico == 0:
        raise SensitivityError("Gaussian noise needs a delta above 0; give the study one, such as 1e-5")
    reserve = budget.delta * DISCRETISATION_SHARE
    gaussian = GaussianEvent(noise_multiplier=1 / math.sqrt(2 * rho))
    events = (gaussian, ApproximateEvent(epsilon=0.0, delta=reserve))
    if not fits(events, budget):
        raise SensitivityError("rho costs more than the study's budget: lower it, or raise epsilon or delta")
    return Guarantee(budget=budget, events=events)


def largest_rho(budget: Budget) -> float:
    """Return the largest rho whose Gaussian noise fits the budget: mu^2/2 of its calibration.

    Larger than what the textbook conversion of zCDP to (epsilon, delta) would allow: it is the exact curve.
    """
    return gaussian_mu(budget.epsilon, budget.delta * (1 - DISCRETISATION_SHARE)) ** 2 / 2


def count_noise(guarantee: Guarantee) -> tuple[str, float]:
    """Return the kind of noise, "laplace" or "gaussian", and its scale on each cell, in units.

    The scale is that of the Laplace distribution, or a standard deviation.
    """
    event = guarantee.events[0]
    if isinstance(event, LaplaceEvent):
        return "laplace", laplace_scale(L1_SENSITIVITY, event.noise_multiplier)
    if isinstance(event, GaussianEvent):
        return "gaussian", _part(0, np.zeros(1, dtype=np.int64)).scale(1 / event.noise_multiplier)
    raise SensitivityError("the guarantee is not that of noisy counts")


def laplace_counts(
    steps: npt.NDArray[np.int64], bits: int, guarantee: Guarantee, noise: NoiseSource
) -> NoisyVector:
    """Add discrete Laplace noise to counts, (k,) in steps of 2**-bits: pure epsilon.

    Raises SensitivityError where the noise is so small, in grid steps, that its discreteness would count.
    """
    kind, scale = count_noise(guarantee)
    if kind != "laplace":
        raise SensitivityError("the guarantee is not that of Laplace counts")
    if not laplace_grid_is_fine(math.ldexp(L1_SENSITIVITY, bits), math.ldexp(scale, bits)):
        raise SensitivityError("the noise is too small for its grid; give the study a smaller epsilon")
    noisy = noise.laplace(steps, math.ldexp(scale, bits))
    return NoisyVector(values=tuple(int(v) for v in noisy), exponent=-bits, noise="laplace", scale=scale)


def gaussian_counts(
    steps: npt.NDArray[np.int64], bits: int, guarantee: Guarantee, noise: NoiseSource
) -> NoisyVector:
    """Add discrete Gaussian noise to counts, (k,) in steps of 2**-bits.

    Raises SensitivityError where the noise is so small, in grid steps, that its discreteness would count.
    """
    return release_sums((_part(bits, steps),), guarantee, noise)[COUNTS]


def noisy_counts(
    steps: npt.NDArray[np.int64], bits: int, guarantee: Guarantee, noise: NoiseSource
) -> NoisyVector:
    """Add the noise that the guarantee states."""
    add = laplace_counts if isinstance(guarantee.events[0], LaplaceEvent) else gaussian_counts
    return add(steps, bits, guarantee, noise)


def check_counts(vector: NoisyVector, stated: Guarantee, cells: int, bits: int, fixed: Guarantee) -> None:
    """Raise LayoutError where a vector or its guarantee is not the one that a study fixes."""
    if isinstance(fixed.events[0], GaussianEvent):
        check_layout({COUNTS: vector}, stated, (_part(bits, np.zeros(cells, dtype=np.int64)),), fixed)
        return
    if stated != fixed:
        raise LayoutError("the release states another guarantee than the study")
    if len(vector.values) != cells or vector.exponent != -bits:
        raise LayoutError(f"vector {COUNTS} has not the shape that the study fixes")
    if vector.noise != "laplace" or abs(vector.scale / count_noise(fixed)[1] - 1) > SCALE_TOLERANCE:
        raise LayoutError(f"vector {COUNTS} has not the noise that the study fixes")


def _part(bits: int, steps: npt.NDArray[np.int64]) -> SumPart:
    return SumPart(COUNTS, steps, -bits, L2_SENSITIVITY, 1.0)
