"""The K-norm mechanism on exact sums: pure epsilon with noise that fits what one unit can move.

Let K be convex and symmetric about 0, and D a whole number of grid steps such that replacing a unit moves the
sums by a point of D K. Noise z on the integers with probability proportional to exp(-|z| / b), |z| the least
whole r with z in r K, is (D / b)-private, exactly: a point of r K moved by a point of D K lies in (r + D) K
(Hardt and Talwar 2010; Awan and Slavkovic 2021). Laplace noise is the case where K is the L1 ball.

K is a product, and one unit may move all factors at once. Each factor is of m coordinates: the points whose
entries above 0 add up to 1 at most, and so do those below. It holds the differences of indicators of m cells,
of which a unit has one or none, and, for m = 1, of a number in [-1/2, 1/2]. Rounded features' differences are
within D K for D a few steps more than 1. Derivations: docs/mathematics/privacy.md.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt
from scipy.interpolate import CubicSpline
from scipy.special import gammaincc, ndtri

from tacit_protocol.privacy.exact_sums import FEATURE_ERROR_STEPS
from tacit_protocol.privacy.gaussian_mechanism import (
    NO_ROOM,
    SCALE_TOLERANCE,
    LayoutError,
    SensitivityError,
    SumPart,
)
from tacit_protocol.privacy.guarantee import ApproximateEvent, Budget, Guarantee, NoisyVector
from tacit_protocol.privacy.noise import (
    LAPLACE_STEPS_MIN,
    Body,
    KNormSource,
    NoiseSource,
    radius_scale,
    scale_fits,
)

Floats = npt.NDArray[np.float64]

ROUNDING_STEPS = 2 + 2 * FEATURE_ERROR_STEPS
"""Steps by which rounding moves each coordinate of a difference at most: a row's features by half a step, its
unit's average by another half, and by their error, at either neighbour (exact_sums.py)."""

NODES = 256
"""Values of a coordinate, of 0 to its largest, at which its law in a body is stated."""

LAW_POINTS, LAW_SEED = 2**15, 20
"""Points of a body from which the law of a sum of coordinates is stated, and their seed, public like all of a
law. Radii, which make the tails, are counted exactly."""


@dataclass(frozen=True)
class ProductBody:
    """The product of a factor for each of ``sizes``: see the module. Coordinates stand in their order."""

    sizes: tuple[int, ...]

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return sum(self.sizes)

    @property
    def starts(self) -> tuple[int, ...]:
        """First coordinate of every factor."""
        return tuple(sum(self.sizes[:place]) for place in range(len(self.sizes)))

    def norm(self, point: Sequence[int]) -> int:
        """Return the least radius whose body holds the point, exactly."""
        found = 0
        for start, size in zip(self.starts, self.sizes, strict=True):
            own = point[start : start + size]
            above = sum(value for value in own if value > 0)
            found = max(found, above, above - sum(own))
        return found

    def sensitivity(self, bits: int) -> int:
        """Return D: the differences of sums on the grid of 2**-bits are in D K."""
        return (1 << bits) + math.ceil(ROUNDING_STEPS * max(self.sizes))

    def law(self, rows: Floats) -> "KNormLaw":
        """Return the law of the noise of sums of coordinates, ``rows`` (K, J)."""
        return KNormLaw.of(self, rows)

    def deviations(self, rows: Floats) -> Floats:
        """Return the deviations of sums of coordinates of the noise, ``rows`` (K, J), in its scale."""
        variances = np.zeros(len(rows))
        for start, size in zip(self.starts, self.sizes, strict=True):
            own = rows[:, start : start + size]
            square, product = factor_moments(size)
            squares = np.sum(own**2, axis=1)
            variances += square * squares + product * (own.sum(axis=1) ** 2 - squares)
        return np.asarray(np.sqrt((self.dimension + 1) * (self.dimension + 2) * variances))

    def points(self, count: int, rng: np.random.Generator) -> Floats:
        """Draw uniform points of the body, (count, J)."""
        return np.concatenate([factor_points(size, count, rng) for size in self.sizes], axis=1)


@lru_cache(64)
def _shares_of_positive(size: int) -> Floats:
    """Return the part of a factor in which k coordinates are above 0, by k: C(m, k)^2 / C(2 m, m)."""
    whole = math.comb(2 * size, size)
    return np.array([math.comb(size, k) ** 2 / whole for k in range(size + 1)])


@lru_cache(64)
def factor_moments(size: int) -> tuple[float, float]:
    """Return the mean of the square of a coordinate, and of a product of two, of a factor's uniform point.

    Given which k are above 0, those are uniform where they add up to 1 at most, and so are the others.
    """
    k = np.arange(size + 1.0)
    rest, shares = size - k, _shares_of_positive(size)
    square = shares @ (k * 2 / (k + 1) / (k + 2) + rest * 2 / (rest + 1) / (rest + 2)) / size
    alike = k * (k - 1) / (k + 1) / (k + 2) + rest * (rest - 1) / (rest + 1) / (rest + 2)
    product = shares @ (alike - 2 * k * rest / (k + 1) / (rest + 1)) / max(1, size * (size - 1))
    return float(square), float(product)


def factor_points(size: int, count: int, rng: np.random.Generator) -> Floats:
    """Draw uniform points of a factor, (count, size)."""
    above = rng.choice(size + 1, count, p=_shares_of_positive(size))
    positive = np.argsort(rng.random((count, size)), axis=1) < above[:, None]
    drawn = rng.standard_exponential((count, size))
    found = np.zeros((count, size))
    for sign, kept in ((1.0, positive), (-1.0, ~positive)):
        own = np.where(kept, drawn, 0.0)
        found += sign * own / (own.sum(axis=1) + rng.standard_exponential(count))[:, None]
    return found


@lru_cache(16)
def _law_points(size: int, place: int) -> Floats:
    """Return the points of the factor at a place among those that a sum is of."""
    return factor_points(size, LAW_POINTS, np.random.default_rng([LAW_SEED, place]))


@lru_cache(1)
def nodes() -> Floats:
    """Return the middles of equal intervals of [0, 1], (NODES,)."""
    return (np.arange(NODES) + 0.5) / NODES


@dataclass(frozen=True)
class KNormLaw:
    """What sums of the noise's coordinates are like, in units of its scale: R v, R gamma with J + 1 degrees.

    ``kinds`` (K,) numbers each sum's law of v among ``weights`` (kinds, NODES), which are those of |v| at
    ``nodes`` times ``reaches`` (kinds,). ``deviations`` (K,) are exact. Continuous: grids are so fine that it
    makes no difference.
    """

    dimension: int
    kinds: tuple[int, ...]
    weights: Floats
    reaches: Floats
    deviations: Floats

    @classmethod
    def of(cls, body: ProductBody, rows: Floats) -> "KNormLaw":
        """Return the law of sums of coordinates of a body's noise, ``rows`` (K, J)."""
        kinds, deviations = list[int](), body.deviations(rows)
        known = dict[tuple[tuple[float, ...], ...], int]()
        weights, reaches = list[Floats](), list[float]()
        radius = math.sqrt((body.dimension + 1) * (body.dimension + 2))
        for row, deviation in zip(rows, deviations, strict=True):
            # A factor's coordinates are alike, and so are factors of one size.
            touched = sorted(
                tuple(np.sort(row[start : start + size]).round(12).tolist())
                for start, size in zip(body.starts, body.sizes, strict=True)
                if np.any(row[start : start + size])
            )
            kinds.append(known.setdefault(tuple(touched), len(known)))
            if kinds[-1] < len(weights):
                continue
            drawn = [_law_points(len(own), place) @ np.array(own) for place, own in enumerate(touched)]
            sums = np.abs(np.sum(drawn, axis=0))
            sums = np.asarray(sums * (deviation / radius / math.sqrt(float(np.mean(sums**2)))))
            reach = float(sums.max()) * (1 + 1e-9)
            counts = np.bincount((sums / reach * NODES).astype(np.int64), minlength=NODES)
            weights.append(counts / LAW_POINTS)
            reaches.append(reach)
        return cls(body.dimension, tuple(kinds), np.array(weights), np.array(reaches), deviations)

    @cached_property
    def of_kinds(self) -> Floats:
        """The standard deviation of each kind, (kinds,)."""
        return np.array([self.deviations[self.kinds.index(kind)] for kind in range(len(self.weights))])

    def widening(self, level: float) -> float:
        """Return by what to multiply the noise's variance for normal intervals to hold at that level, >= 1.

        Of the sums with the heaviest tails, alone: what else there is makes a sum more normal.
        """
        normal = float(-ndtri(level / 2))
        found = 1.0
        for reach, deviation, weights in zip(self.reaches, self.of_kinds, self.weights, strict=True):
            unit = float(deviation / reach) / nodes()
            low, high = 0.0, 64.0
            for _ in range(50):
                middle = (low + high) / 2
                above = float(gammaincc(self.dimension + 1, middle * unit) @ weights) > level
                low, high = (middle, high) if above else (low, middle)
            found = max(found, (high / normal) ** 2)
        return found

    @cached_property
    def _splines(self) -> tuple[Callable[[Floats], Floats], ...]:
        return tuple(
            CubicSpline(self._turns, self.characteristic(kind, self._turns))
            for kind in range(len(self.weights))
        )

    @cached_property
    def _turns(self) -> Floats:
        """Where characteristic functions are tabulated, in turns of the largest v.

        Beyond, they are below TURNS_LEFT and taken for 0.
        """
        power = self.dimension + 1
        furthest = min(TURNS_MAX, math.sqrt(math.expm1(-2 * math.log(TURNS_LEFT) / power)))
        even = min(EVEN_TURNS, furthest)
        steps = math.ceil(even / min(EVEN_STEP, TURN_OF_RADIUS / power))
        near, far = np.linspace(0, even, steps + 1), np.geomspace(even, furthest, 1001)[1:]
        return near if furthest <= even else np.concatenate([near, far])

    def standard_characteristic(self, kind: int, t: Floats) -> Floats:
        """Return E cos(t N) at values of t (...) >= 0, N of a kind divided by its standard deviation."""
        turned, furthest = t * (self.reaches[kind] / self.of_kinds[kind]), self._turns[-1]
        return np.where(turned <= furthest, self._splines[kind](np.minimum(turned, furthest)), 0.0)

    def characteristic(self, kind: int, t: Floats) -> Floats:
        """Return E cos(t R v) of a kind, v in units of its largest, at values of t (...)."""
        turned = np.asarray(t)[..., None] * nodes()
        power = self.dimension + 1
        waves = (1 + turned**2) ** (-power / 2) * np.cos(power * np.arctan(turned))
        return np.asarray(waves @ self.weights[kind])


TURNS_MAX, TURNS_LEFT = 200.0, 1e-11
"""Characteristic functions are tabulated up to the first, or to where E cos(t R) is below the second: it is
at most (1 + t^2)^(-(J + 1)/2)."""

EVEN_TURNS, EVEN_STEP, TURN_OF_RADIUS = 10.0, 0.005, 0.05
"""Up to the first the table's steps are the second, or the third over J + 1, about the mean radius, if that
is less: a wave of the largest v has 125 steps a turn, and cubic splines between err by less than 1e-8."""


def k_norm_guarantee(budget: Budget) -> Guarantee:
    """Return the pure guarantee of one K-norm release that uses the whole epsilon; delta may be 0."""
    return Guarantee(budget=budget, events=(ApproximateEvent(epsilon=budget.epsilon),))


def k_norm_scale(body: ProductBody, bits: int, epsilon: float) -> float:
    """Return b, the scale of the noise's radius, in grid steps, rounded up."""
    return math.nextafter(body.sensitivity(bits) / epsilon * (1 + 1e-12), math.inf)


def release_k_norm(
    part: SumPart, body: ProductBody, guarantee: Guarantee, noise: NoiseSource
) -> dict[str, NoisyVector]:
    """Add the noise that the guarantee states to a part's sums.

    Raises SensitivityError where it cannot be drawn (:func:`require_k_norm`), or not from this source.
    """
    if not isinstance(noise, KNormSource):
        raise SensitivityError("this source of noise draws none by norms")
    require_k_norm(body, -part.exponent, guarantee.budget.epsilon)
    scale = k_norm_scale(body, -part.exponent, guarantee.budget.epsilon)
    noisy = noise.k_norm(np.asarray(part.sums), scale, body)
    return {
        part.name: NoisyVector(
            values=tuple(int(v) for v in noisy),
            exponent=part.exponent,
            noise="k-norm",
            scale=math.ldexp(scale, part.exponent),
        )
    }


def require_k_norm(body: ProductBody, bits: int, epsilon: float) -> None:
    """Raise SensitivityError where noise on a grid of 2**-bits has no room, or is too few steps wide.

    It looks at public numbers alone, so that it decides before any row is read.
    """
    scale = k_norm_scale(body, bits, epsilon)
    if not scale_fits(radius_scale(scale, body.dimension)):
        raise SensitivityError(NO_ROOM)
    if scale < LAPLACE_STEPS_MIN:
        raise SensitivityError("the noise is too small for its grid; give the study a smaller epsilon")


def check_k_norm(
    vectors: Mapping[str, NoisyVector],
    stated: Guarantee,
    part: SumPart,
    body: ProductBody,
    fixed: Guarantee,
) -> None:
    """Raise LayoutError where vectors or their guarantee are not those that a study fixes."""
    if stated != fixed:
        raise LayoutError("the release states another guarantee than the study")
    if set(vectors) != {part.name}:
        raise LayoutError("the release has not the vectors that the study asks for")
    vector = vectors[part.name]
    if len(vector.values) != len(part.sums) or vector.exponent != part.exponent:
        raise LayoutError(f"vector {part.name} has not the shape that the study fixes")
    scale = math.ldexp(k_norm_scale(body, -part.exponent, fixed.budget.epsilon), part.exponent)
    if vector.noise != "k-norm" or abs(vector.scale / scale - 1) > SCALE_TOLERANCE:
        raise LayoutError(f"vector {part.name} has not the noise that the study fixes")


def simulated_k_norm(
    values: npt.NDArray[np.int64], scale: float, body: Body, rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Add noise of the same law from a seeded generator, rounded to steps: for synthetic data alone."""
    radius = float(rng.gamma(body.dimension + 1, scale))
    point = ProductBody(tuple(body.sizes)).points(1, rng)[0]
    return np.asarray(values + np.rint(radius * point).astype(np.int64))
