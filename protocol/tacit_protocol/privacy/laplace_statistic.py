"""One statistic with Laplace noise: pure epsilon, on a grid that is chosen from public bounds alone.

A statistic that replacing one unit moves by at most Delta is rounded to steps of 2**-bits, in which it
then moves by at most floor(Delta 2**bits) + 1; discrete Laplace noise of that many steps over epsilon makes
it epsilon-differentially private, and a little more noise as private as its event in composition (noise.py).
"""

import math
from dataclasses import dataclass

import numpy as np

from tacit_protocol.privacy.noise import NoiseSource, laplace_grid_is_fine, laplace_scale
from tacit_protocol.privacy.vector import NoisyVector

SENSITIVITY_BITS = 24
"""The sensitivity is at least 2**24 steps where the statistic's range allows it: rounding then adds less than
1e-7 of the noise."""

STEPS_MAX_BITS = 58
"""The largest statistic stays within 2**58 steps, which leaves room for 64 scales of noise."""

BITS_MAX = 62
"""Finest grid that a noisy vector may state."""


class StatisticError(ValueError):
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
        """Bits of the grid. Raises StatisticError where the noise would be too narrow for any grid."""
        fine = SENSITIVITY_BITS + 1 - math.frexp(self.sensitivity)[1]
        room = STEPS_MAX_BITS - math.frexp(self.largest)[1]
        bits = min(max(fine, 0), room, BITS_MAX)
        if bits < 0 or not laplace_grid_is_fine(self.steps(bits), self.steps(bits) * self.multiplier):
            raise StatisticError("the statistic can be far larger than one unit moves it: use fewer cells")
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
        """Add the noise. Raises StatisticError where the value is not within ``largest``."""
        if not abs(value) <= self.largest:
            raise StatisticError("the statistic is outside its bounds")
        bits = self.bits
        steps = np.array([round(math.ldexp(value, bits))], dtype=np.int64)
        noisy = noise.laplace(steps, math.ldexp(self.scale, bits))
        return NoisyVector(values=(int(noisy[0]),), exponent=-bits, noise="laplace", scale=self.scale)
