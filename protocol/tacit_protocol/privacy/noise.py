"""The one noise module: OpenDP's discrete samplers on integers, and uniform integers of the operating system.

No other module draws private noise.

The samplers are exact, so no floating point enters between the exact sums and the released integers. Discrete
noise is not the continuous noise that calibration and the accountant speak of; what the difference costs,
``discretisation_delta`` and ``laplace_excess``, is derived in docs/mathematics/privacy.md: a procedure pays
for it, and ``OpenDPNoise`` refuses grids on which none could. A private coin compares a uniform number, made
of the signs of discrete Laplace draws, with a probability on the grid of 2**-53: no floating point enters
after its rounding.
"""

import math
import secrets
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian, make_laplace, make_noisy_max
from opendp.measures import zero_concentrated_divergence
from opendp.metrics import l1_distance, l2_distance, linf_distance
from opendp.mod import enable_features

from tacit_protocol.privacy.accounting import CALIBRATION_SLACK
from tacit_protocol.privacy.guarantee import EPSILON_MAX

SCALES_MAX = 64
"""Noise beyond 64 scales has probability below 1e-27 (Laplace) or e**-2048 (Gaussian)."""

SCALE_MAX = 2.0**55
"""Largest scale, in grid steps. Exact sums stay within 2**61 steps (exact_sums.py), and so do 64 scales: the
noisy value is within 2**62 but for that probability. What is refused is the scale, which is public, and no
value: values and noise are added modulo 2**64, so that whatever the values are, the release is a function of
their exact sum with the noise."""

CHOICE_STEPS_MAX = 2**61
"""Scores beyond it count as it, which moves no two of them further apart."""

DISCRETISATION_SHARE = 1e-3
"""Part of delta set aside for the discreteness of Gaussian noise; it costs less than 1e-4 of the noise. As no
delta is above 1, no release ever sets aside more than this: dearer noise is refused, whoever asks."""

LAPLACE_SLACK = 2.0**-33
"""Relative part of a Laplace scale that calibration adds for the discreteness of the noise: a ninth of the
tolerance on stated scales, so that releases made without it still pass their checks."""

LAPLACE_PRODUCT_MIN = 2.0**32
"""Smallest product of the sensitivity and the scale, both in grid steps, for which half of LAPLACE_SLACK pays
(laplace_excess); the other half is for the rounding of floats. At epsilon it is a scale of at least 2**16 /
sqrt(epsilon) steps."""

LAPLACE_STEPS_MIN = 2**12
"""Smallest scale of Laplace noise, in grid steps: whoever forgets to pay for the discreteness then claims at
most 1.5e-8 too little, less than the micro-epsilon in which amounts are counted."""

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


class Body(Protocol):
    """A convex body, symmetric about 0, within the cube [-1, 1]^J, as a product of parts."""

    @property
    def dimension(self) -> int:
        """J, the number of coordinates."""

    @property
    def parts(self) -> "Sequence[BodyPart]":
        """The bodies whose product it is, each of coordinates of its own; they are all coordinates."""


class BodyPart(Protocol):
    """One factor of a body."""

    @property
    def places(self) -> tuple[int, ...]:
        """Which coordinates it is of."""

    def holds(self, point: Sequence[int], radius: int) -> bool:
        """Say, in whole numbers and exactly, whether a point of the cube [-radius, radius] is in radius K."""


@runtime_checkable
class KNormSource(Protocol):
    """Adds noise whose density falls with a norm; OpenDPNoise does."""

    def k_norm(self, values: npt.NDArray[np.int64], scale: float, body: Body) -> npt.NDArray[np.int64]:
        """Add noise z with probability proportional to exp(-|z| / scale), |z| the least r with z in r K."""


class OpenDPNoise:
    """Noise from OpenDP's samplers, seeded by the operating system. It takes no seed, on purpose.

    Its methods take a one-dimensional int64 vector of at least one value and return a new one of the same
    length. They raise NoiseError where the scale is not positive and finite, where it is above SCALE_MAX, or
    where it is so few grid steps that discrete noise does not stand for the continuous noise of its event.
    All this is public: no method fails, or takes another branch, because of a value. Noise is drawn from the
    scale and the number of values alone, and then added.
    """

    def __init__(self) -> None:
        enable_features("contrib")

    def gaussian(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        """Add discrete Gaussian noise of standard deviation ``scale`` (in integer steps) to each value."""
        _require_vector(values)
        _require_scale(scale)
        if discretisation_delta(values.size, scale, EPSILON_MAX) > DISCRETISATION_SHARE:
            raise NoiseError("the noise is too few grid steps wide: use a finer grid, or more noise")
        domain = vector_domain(atom_domain(T="i64"))
        measurement = make_gaussian(domain, l2_distance(T=float), float(scale))
        return values + np.array(measurement([0] * values.size), dtype=np.int64)

    def laplace(self, values: npt.NDArray[np.int64], scale: float) -> npt.NDArray[np.int64]:
        """Add discrete Laplace noise of that scale (in integer steps) to each value."""
        _require_vector(values)
        _require_scale(scale)
        if scale < LAPLACE_STEPS_MIN:
            raise NoiseError("the noise is too few grid steps wide: use a finer grid, or more noise")
        domain = vector_domain(atom_domain(T="i64"))
        measurement = make_laplace(domain, l1_distance(T=float), float(scale))
        return values + np.array(measurement([0] * values.size), dtype=np.int64)

    def choose(self, scores: npt.NDArray[np.int64], scale: float) -> int:
        """Return i with probability proportional to exp(scores[i] / scale): the exponential mechanism.

        OpenDP adds Gumbel noise where it accounts in zero-concentrated privacy; its noise for pure privacy,
        exponential, has another law.
        """
        _require_vector(scores)
        _require_scale(scale)
        bounded = np.clip(scores, -CHOICE_STEPS_MAX, CHOICE_STEPS_MAX)
        domain = vector_domain(atom_domain(T="i64"))
        measure = zero_concentrated_divergence()
        measurement = make_noisy_max(domain, linf_distance(T="i64"), measure, float(scale))
        return int(measurement(bounded.tolist()))

    def uniform(self, count: int) -> npt.NDArray[np.uint64]:
        """Return ``count`` independent integers, uniform in 0..2**64 - 1: the operating system's own."""
        return np.frombuffer(secrets.token_bytes(8 * count), dtype=np.uint64)

    def k_norm(self, values: npt.NDArray[np.int64], scale: float, body: Body) -> npt.NDArray[np.int64]:
        """Add noise z with probability proportional to exp(-|z| / scale), |z| the least r with z in r K.

        Exactly, on the integers: a radius r has probability proportional to (2 r + 1)^J exp(-r / scale), a
        point is uniform in the cube of that radius, and both are drawn again until the point is in r K. What
        a point is left with is the sum of exp(-r / scale) over all r that hold it.
        """
        dimension = body.dimension
        _require_vector(values)
        _require_scale(radius_scale(scale, dimension))
        if values.size != dimension or sorted(p for part in body.parts for p in part.places) != [
            *range(dimension)
        ]:
            raise NoiseError("the body has not a coordinate for each value")
        waits = self._waits(scale)
        while (drawn := _in_body(body, waits)) is None:
            continue
        return values + np.array([drawn_at % 2**64 for drawn_at in drawn], dtype=np.uint64).view(np.int64)

    def _waits(self, scale: float) -> Iterator[int]:
        """Yield whole numbers m >= 0 with probability proportional to exp(-m / scale)."""
        zeros = np.zeros(WAITS_AT_ONCE, dtype=np.int64)
        while True:
            # Half of discrete Laplace noise, with its 0, has that law.
            yield from (int(drawn) for drawn in self.laplace(zeros, scale) if drawn >= 0)


WAITS_AT_ONCE = 256
"""Draws of one call of OpenDP, which takes as long as fifty draws."""


def _in_body(body: Body, waits: Iterator[int]) -> list[int] | None:
    """Try to draw a point of a body: None where the radius or the point is to be drawn again."""
    dimension = body.dimension
    # A sum of J + 1 waits s has probability ~ (s + 1)..(s + J) exp(-s / scale), which 2^J (s + 1)..(s + J)
    # and (2 s + 1)^J, never more, turn into the radius's.
    radius = sum(next(waits) for _ in range(dimension + 1))
    most = math.prod(2 * (radius + place) for place in range(1, dimension + 1))
    if secrets.randbelow(most) >= (2 * radius + 1) ** dimension:
        return None
    point = [0] * dimension
    for part in body.parts:
        own = [secrets.randbelow(2 * radius + 1) - radius for _ in part.places]
        if not part.holds(own, radius):
            return None
        for place, value in zip(part.places, own, strict=True):
            point[place] = value
    return point


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


def laplace_excess(scale_steps: float) -> float:
    """Return the epsilon that discrete Laplace noise costs over continuous noise of the same scale.

    Discrete noise of scale b on integers that one unit moves by Delta steps in L1 is exactly Delta/b-private,
    on any grid. But its whole privacy curve, which is what composes, is within that of continuous noise with
    Delta/b + 2 log cosh(1/(2b)), and of no less: 1/(4 b^2), rounded up here.
    """
    if not (math.isfinite(scale_steps) and scale_steps > 0):
        raise ValueError("the scale must be positive and finite")
    return 1 / (4 * scale_steps) / scale_steps * (1 + 1e-12)


def laplace_multiplier(epsilon: float) -> float:
    """Return the scale of Laplace noise, in units of the L1 sensitivity, that gives (epsilon, 0)."""
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise ValueError("epsilon must be positive and finite: no noise is wide enough for zero")
    return (1 / epsilon) * (1 + CALIBRATION_SLACK)


def laplace_scale(sensitivity: float, multiplier: float) -> float:
    """Return the scale of noise for a Laplace event, (scale / sensitivity) ``multiplier``, and its slack.

    In the units of the sensitivity, rounded up.
    """
    return math.nextafter(multiplier * sensitivity * (1 + LAPLACE_SLACK + 1e-12), math.inf)


def laplace_grid_is_fine(sensitivity_steps: float, scale_steps: float) -> bool:
    """Say whether noise of ``laplace_scale`` has its event's whole privacy curve; both are in grid steps."""
    return sensitivity_steps * scale_steps >= LAPLACE_PRODUCT_MIN and scale_steps >= LAPLACE_STEPS_MIN


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


def radius_scale(scale: float, dimension: int) -> float:
    """Return the scale that K-norm noise of so many coordinates needs room for: its radius is about that."""
    return scale * (2 + dimension)


def scale_fits(scale: float) -> bool:
    """Say whether noise of a scale, in grid steps, has room beside any exact sums."""
    return 0 < scale <= SCALE_MAX


def _require_vector(values: npt.NDArray[np.int64]) -> None:
    if values.ndim != 1 or values.dtype != np.int64 or values.size == 0:
        raise NoiseError("noise is added to a vector of one or more 64-bit integers")


def _require_scale(scale: float) -> None:
    if not (math.isfinite(scale) and scale > 0):
        raise NoiseError("the scale of the noise must be positive and finite")
    if not scale_fits(scale):
        raise NoiseError("the noise needs more than 62 bits: use a coarser grid, or less noise")


COIN_BITS = 53
"""Grid of the probabilities: all of a float64 in [1/2, 1] is on it."""

COIN_SCALE = 2.0**40
"""Scale of the noise whose signs are drawn: a draw is zero with probability 2**-41."""

SPARE_DRAWS = 11
"""More draws than bits: that more than these are zero has probability below 2**-450. Bits that are missing
all the same (a source that adds nothing) count as 0: the function always ends."""


def coin_steps(probability: float) -> int:
    """Return a probability in steps of 2**-53, rounded. Raises ValueError where it is outside [0, 1]."""
    if not 0 <= probability <= 1:
        raise ValueError("a probability lies between 0 and 1")
    return round(math.ldexp(probability, COIN_BITS))


def private_coin(probability: float, noise: NoiseSource) -> bool:
    """Return True with the probability given, rounded to 2**-53, from private randomness.

    Raises ValueError where the probability is outside [0, 1]; quotes no value.
    """
    threshold = coin_steps(probability)
    drawn = noise.laplace(np.zeros(COIN_BITS + SPARE_DRAWS, dtype=np.int64), COIN_SCALE)
    signs = (drawn[drawn != 0] > 0)[:COIN_BITS]
    uniform = sum(1 << int(place) for place in np.flatnonzero(signs))
    return uniform < threshold
