"""The joint Gaussian release of exact sums: one budget, several vectors, every rounding counted.

A part is a vector of integer sums over units, on a grid of 2^exponent, whose L2 sensitivity Delta (ideal
diameter plus rounding) is known, and which gets the share s of mu^2. Gaussian noise of standard deviation
Delta / (mu sqrt s) on every part makes the whole mu-Gaussian differentially private, because the parts' mu^2
add up to mu^2 (docs/mathematics/privacy.md). mu is calibrated at a delta less DISCRETISATION_SHARE, which
pays for discrete noise in the place of continuous noise.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_protocol.privacy.guarantee import ApproximateEvent, Budget, GaussianEvent, Guarantee, NoisyVector
from tacit_protocol.privacy.noise import (
    DISCRETISATION_SHARE,
    NoiseSource,
    discretisation_delta,
    scale_fits,
)
from tacit_protocol.strict import ReleaseError, StudyError

SCALE_TOLERANCE = 1e-9
"""Relative difference allowed between a release's stated noise and the noise that the study fixes: processors
round differently, by 1e-11 at most."""


NO_ROOM = (
    "the budget, or the part of it that some numbers get, is so small that their noise has no room in 62 "
    "bits; give the study a larger epsilon or delta, or these numbers a larger part"
)
"""What is said where noise is too wide: of the study and of numbers of units alone."""


class LayoutError(ReleaseError):
    """Noisy vectors are not those that a study fixes. The message says which rule they break; no value."""


class SensitivityError(StudyError):
    """The noise cannot be calibrated as asked. The message says what to change and quotes no data."""


@dataclass(frozen=True)
class SumPart:
    """Integer sums (coordinates,) in steps of 2**exponent, with their L2 sensitivity in natural units.

    Two parts of one isometric vector (the diagonal of a symmetric matrix, and its entries above the diagonal
    times sqrt 2) have the same sensitivity and share; ``isometry`` scales the noise of entries that are
    released without their sqrt 2. ``l1`` is the L1 sensitivity where it is known to be less than what follows
    from the other.
    """

    name: str
    sums: npt.NDArray[np.int64]
    exponent: int
    sensitivity: float
    share: float
    isometry: float = 1.0
    l1: float | None = None

    def scale(self, mu: float) -> float:
        """Return the standard deviation of the noise on a coordinate, in natural units."""
        deviation = self.sensitivity / (mu * math.sqrt(self.share)) * self.isometry
        return math.nextafter(deviation * (1 + 1e-12), math.inf)


def gaussian_guarantee(budget: Budget) -> Guarantee:
    """Return the guarantee of a joint Gaussian release that uses the whole budget.

    Raises SensitivityError where delta is 0: Gaussian noise has no pure guarantee.
    """
    if budget.delta_pico == 0:
        raise SensitivityError("Gaussian noise needs a delta above 0; give the study one, such as 1e-5")
    reserve = budget.delta * DISCRETISATION_SHARE
    mu = gaussian_mu(budget.epsilon, budget.delta - reserve)
    gaussian = GaussianEvent(noise_multiplier=1 / mu)
    return Guarantee(budget=budget, events=(gaussian, ApproximateEvent(epsilon=0.0, delta=reserve)))


def halved_guarantee(budget: Budget) -> Guarantee:
    """Return P0's guarantee: two Gaussian releases, each calibrated to half of epsilon and half of delta.

    P0 adds the halves up by basic composition; its sigma is the exact curve's here, never more than P0's.

    Raises SensitivityError where epsilon is one micro-unit, which has no half, or where half of delta is 0.
    """
    if budget.epsilon_micro < 2:
        raise SensitivityError("the budget is too small to be halved; give the study a larger epsilon")
    half = Budget(epsilon_micro=budget.epsilon_micro // 2, delta_pico=budget.delta_pico // 2)
    event, reserve = gaussian_guarantee(half).events
    return Guarantee(budget=budget, events=(event, event, reserve, reserve))


def noise_scales(parts: tuple[SumPart, ...], guarantee: Guarantee) -> dict[str, float]:
    """Return the standard deviation of the noise on every part's coordinates, in natural units."""
    mu = mu_of(guarantee)
    return {part.name: part.scale(mu) for part in parts}


def mu_of(guarantee: Guarantee) -> float:
    """Return the Gaussian privacy of a guarantee's first event, which is of a Gaussian release."""
    event = guarantee.events[0]
    if not isinstance(event, GaussianEvent):
        raise SensitivityError("the guarantee is not that of a Gaussian release")
    return 1 / event.noise_multiplier


def release_sums(
    parts: tuple[SumPart, ...], guarantee: Guarantee, noise: NoiseSource
) -> dict[str, NoisyVector]:
    """Add the noise that the guarantee states to every part. Shares add to 1, more where no unit moves all.

    Raises SensitivityError where the noise cannot be drawn (:func:`require_drawable`).
    """
    require_drawable(parts, guarantee)
    mu = mu_of(guarantee)
    return {
        part.name: NoisyVector(
            values=tuple(int(v) for v in noise.gaussian(part.sums, _steps(part, mu))),
            exponent=part.exponent,
            noise="gaussian",
            scale=part.scale(mu),
        )
        for part in parts
    }


def require_drawable(parts: tuple[SumPart, ...], guarantee: Guarantee, owners: int = 1) -> None:
    """Raise SensitivityError where a part's noise has no room, or is too few grid steps wide for its delta.

    It looks at shapes, grids and sensitivities, never at sums, so that it decides before any row is read. All
    parts' discreteness together costs no more delta than the guarantee sets aside. Of ``owners`` who mask,
    the noises together need the room.
    """
    mu = mu_of(guarantee)
    scales = [_steps(part, mu) for part in parts]
    if not all(scale_fits(scale * math.sqrt(owners)) for scale in scales):
        raise SensitivityError(NO_ROOM)
    extra = sum(
        discretisation_delta(len(part.sums), scale, guarantee.budget.epsilon)
        for part, scale in zip(parts, scales, strict=True)
    )
    # What the events set aside: halves of an odd delta set aside a little less than a share of the budget.
    reserve = sum(event.delta for event in guarantee.events if isinstance(event, ApproximateEvent))
    if extra > reserve:
        raise SensitivityError("the noise is too small for its grid; give the study a smaller epsilon")


def _steps(part: SumPart, mu: float) -> float:
    """Return the standard deviation of the noise in grid steps."""
    return math.ldexp(part.scale(mu), -part.exponent)


def check_layout(
    vectors: Mapping[str, NoisyVector], stated: Guarantee, layout: tuple[SumPart, ...], fixed: Guarantee
) -> None:
    """Raise LayoutError where ``vectors`` or the stated guarantee are not those that the study fixes."""
    if not same_guarantee(stated, fixed):
        raise LayoutError("the release states another guarantee than the study")
    parts = {part.name: part for part in layout}
    if set(parts) != set(vectors):
        raise LayoutError("the release has not the vectors that the study asks for")
    scales = noise_scales(layout, fixed)
    for name, vector in vectors.items():
        part = parts[name]
        if len(vector.values) != len(part.sums) or vector.exponent != part.exponent:
            raise LayoutError(f"vector {name} has not the shape that the study fixes")
        if vector.noise != "gaussian" or abs(vector.scale / scales[name] - 1) > SCALE_TOLERANCE:
            raise LayoutError(f"vector {name} has not the noise that the study fixes")


def same_guarantee(stated: Guarantee, fixed: Guarantee) -> bool:
    """Whether a release states the study's guarantee: another processor may round its noise otherwise."""
    if stated.budget != fixed.budget or len(stated.events) != len(fixed.events):
        return False
    for a, b in zip(stated.events, fixed.events, strict=True):
        if isinstance(a, GaussianEvent) and isinstance(b, GaussianEvent):
            if abs(a.noise_multiplier / b.noise_multiplier - 1) > SCALE_TOLERANCE:
                return False
        elif a != b:
            return False
    return True
