"""The one noise module: OpenDP's discrete samplers on integers. No other module draws private noise.

The samplers are exact (integer and rational arithmetic on the operating system's randomness), so no floating
point enters between the exact sums and the released integers. Discrete noise is not the continuous noise that
calibration speaks of: ``discretisation_delta`` bounds what the difference costs, and a procedure pays for it.
"""

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian, make_laplace, make_noisy_max
from opendp.measures import zero_concentrated_divergence
from opendp.metrics import l1_distance, l2_distance, linf_distance
from opendp.mod import enable_features

from tacit_protocol.privacy.guarantee import EPSILON_MAX

VALUE_MAX = 2**62
"""No noisy value may come near 2**63, where OpenDP's integers saturate and the noise would lose its law."""

SCALES_MAX = 64
"""Noise beyond 64 scales has probability below 1e-27 (Laplace) or e**-2048 (Gaussian)."""

GAUSSIAN_STEPS_MIN = 2**16
"""Smallest standard deviation, in grid steps, at which discrete Gaussian noise may stand for the continuous
one: the price, discretisation_delta, is then below 1e-8 for 500 coordinates, and it falls with the square of
the scale."""

TAIL_EXPONENT = 48.0
"""The discretisation bound sets aside noise vectors of probability e**-(48 + epsilon), and pays for them."""

SCALE_PROVED_MIN = 1.0
"""Smallest scale, in grid steps, for which the discretisation bound is proved."""


class NoiseError(ValueError):
    """The noise asked for cannot be drawn safely. Choose a coarser grid; quotes no value."""


class NoiseSource(Protocol):
    """Adds discrete noise to integer vectors."""

    def gaussian(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        """Add discrete Gaussian noise of standard deviation ``scale`` (in integer steps) to each value."""

    def laplace(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        """Add discrete Laplace noise of that scale (in integer steps) to each value."""


class OpenDPNoise:
    """Noise from OpenDP's samplers, seeded by the operating system. It takes no seed, on purpose.

    Both methods take a one-dimensional int64 vector of at least one value and return a new one of the same
    length. They raise NoiseError where the scale is not positive and finite, or where a value plus 64 scales
    could reach 2**62: OpenDP saturates at the ends of int64, which would spoil the noise without a word.
    """

    def __init__(self) -> None:
        enable_features("contrib")

    def gaussian(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        """Add discrete Gaussian noise of standard deviation ``scale`` (in integer steps) to each value."""
        _require_room(values, scale)
        domain = vector_domain(atom_domain(T="i64"))
        measurement = make_gaussian(domain, l2_distance(T=float), float(scale))
        return np.array(measurement(values.tolist()), dtype=np.int64)

    def laplace(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        """Add discrete Laplace noise of that scale (in integer steps) to each value."""
        _require_room(values, scale)
        domain = vector_domain(atom_domain(T="i64"))
        measurement = make_laplace(domain, l1_distance(T=float), float(scale))
        return np.array(measurement(values.tolist()), dtype=np.int64)

    def choose(self, scores: npt.NDArray[np.int64], scale: float) -> int:
        """Return i with probability proportional to exp(scores[i] / scale): the exponential mechanism.

        OpenDP adds Gumbel noise where it accounts in zero-concentrated privacy; its noise for pure privacy,
        exponential, has another law.
        """
        _require_room(scores, scale)
        domain = vector_domain(atom_domain(T="i64"))
        measure = zero_concentrated_divergence()
        measurement = make_noisy_max(domain, linf_distance(T="i64"), measure, float(scale))
        return int(measurement(scores.tolist()))


def discretisation_delta(coordinates: int, scale_steps: float, epsilon: float) -> float:
    """Bound the delta that discrete Gaussian noise costs over continuous noise of the same scale.

    With continuous noise of standard deviation ``scale_steps`` on the same integer vector, a release is a
    Gaussian mechanism. With discrete noise it costs no more than that and an approximate event of (0, this),
    alone or in any composition whose epsilon is at most EPSILON_MAX or ``epsilon``, whichever is larger. For
    several vectors with their own scales, add the bounds. It is 1 (no claim) where the scale is too small for
    the proof, which is in docs/mathematics/privacy.md. Raises ValueError where an argument is out of range.
    """
    if coordinates < 1 or not (math.isfinite(scale_steps) and scale_steps > 0):
        raise ValueError("coordinates must be at least 1, and the scale positive and finite")
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise ValueError("epsilon must be a finite number, zero or more")
    radius = _norm_radius(coordinates, scale_steps, TAIL_EXPONENT + max(epsilon, EPSILON_MAX))
    if scale_steps < SCALE_PROVED_MIN or coordinates + radius > 8 * scale_steps**2:
        return 1.0
    return min(1.0, _log_ratio(coordinates, scale_steps, radius) + 4 * math.exp(-TAIL_EXPONENT))


def _norm_radius(coordinates: int, scale: float, exponent: float) -> float:
    """Return t such that the noise's squared norm, in squared scales, is ``coordinates`` +- t but for e**-x.

    Laurent and Massart (2000), lemma 1, for chi-square, widened by the half step of rounding per coordinate.
    """
    continuous = 2 * math.sqrt(coordinates * exponent) + 2 * exponent
    shift = math.sqrt(coordinates) / (2 * scale)
    return continuous + 2 * shift * math.sqrt(coordinates + continuous) + shift**2


def _log_ratio(coordinates: int, scale: float, radius: float) -> float:
    """Bound |log(rounded continuous / discrete)| over the noise vectors within the radius."""
    first = radius / (24 * scale**2)
    second = (coordinates + (coordinates + radius) ** 2) / (320 * scale**4)
    normalisation = coordinates * 2.1 * math.exp(-2 * math.pi**2 * min(scale, 10.0) ** 2)
    return first + second + normalisation


def _require_room(values: npt.NDArray[np.int64], scale: float) -> None:
    if values.ndim != 1 or values.dtype != np.int64 or values.size == 0:
        raise NoiseError("noise is added to a vector of one or more 64-bit integers")
    if not (math.isfinite(scale) and scale > 0):
        raise NoiseError("the scale of the noise must be positive and finite")
    largest = max(abs(int(values.min())), abs(int(values.max())))
    if largest + math.ceil(SCALES_MAX * scale) >= VALUE_MAX:
        raise NoiseError("the values and their noise need more than 62 bits: use a coarser grid")
