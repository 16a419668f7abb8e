"""The K-norm mechanism on exact sums: pure epsilon with noise that fits what one unit can move.

Let K be convex and symmetric about 0, and D a whole number of grid steps such that replacing a unit moves the
sums by a point of D K. Noise z on the integers with probability proportional to exp(-|z| / b), |z| the least
whole r with z in r K, is (D / b)-private, exactly: a point of r K moved by a point of D K lies in (r + D) K
(Hardt and Talwar 2010; Awan and Slavkovic 2021). Laplace noise is the case where K is the L1 ball.

K is a product, a factor for each column of features in [-1, 1], and one unit may move all of them at once: by
a point of the product of what moves each. In units of half of the largest difference, 2:

    Interval    [-1, 1]: any one coordinate
    Arc         of (t, cos pi t, sin pi t): |w| <= g(|s|), s = (t - t')/2, w half the waves' difference; g is
                1 up to 1/2 and sin pi s beyond, a concave function, rounded up by tangents
    DoubleArc   of (t, cos pi t, sin pi t, cos 2 pi t): that of an arc, w = (x, y), with |3 y - 2 s| at most
                DOUBLE_REACH, and for c, of the last, |c| <= h(|x|) and h(|y|), h(u) = 1 up to 1/2 and
                4 u (1 - u) beyond
    Simplex     of indicators of m levels: entries above 0 add up to 1 at most, and so do those below

A factor is a little larger than the differences, so that rounded features' differences are within D K for D a
few steps more than 2. Derivations: docs/mathematics/privacy.md.
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

FINE_STEPS = 2**20
"""Tangents' coefficients are multiples of its inverse, intercepts rounded up and slopes exact."""

SLOPES = tuple(round(FINE_STEPS * math.pi * share) for share in (0.16, 0.31, 0.45, 0.59, 0.71, 0.81, 0.9, 1))
"""Of the tangents of sin pi s, in steps."""

ROUNDING_STEPS = 2 + 2 * FEATURE_ERROR_STEPS
"""Steps by which rounding moves each coordinate of a difference at most: a row's features by half a step, its
unit's average by another half, and by their error, at either neighbour (exact_sums.py)."""

TRIES_MAX = 1000
"""Most points drawn on average until one lies in the body: with more columns, numeric ones have a cube."""

NODES = 256
"""Values of a coordinate, of 0 to 1, at which its law in a body is stated."""


def _intercept(slope: int) -> int:
    """Return an upper bound, in steps, of sin pi s + slope s over s in [1/2, 1]: its maximum, rounded up."""
    share = min(1.0, slope / FINE_STEPS / math.pi)
    place = math.acos(-share) / math.pi
    return math.ceil(FINE_STEPS * (math.sqrt(1 - share**2) + slope / FINE_STEPS * place)) + 2


TANGENTS = tuple((_intercept(slope), slope) for slope in SLOPES)
"""(a, b) in steps, with g(s) <= a - b s."""

DOUBLE_REACH = 2 + math.ceil(
    FINE_STEPS * (3 * math.sqrt(1 - (2 / 3 / math.pi) ** 2) - 2 / math.pi * math.acos(2 / 3 / math.pi))
)
"""Most of 3 y - 2 s, in steps, y half the difference of sin pi t: where it changes sign, at m = 0."""


@dataclass(frozen=True)
class Interval:
    """Any coordinate in [-1, 1]."""

    places: tuple[int]

    rounding: int = 1
    """The cube of side 2 / ``rounding`` around 0 lies within."""

    accepted: float = 1.0
    """Part of the cube [-1, 1]^m that it fills."""

    def holds(self, point: Sequence[int], radius: int) -> bool:
        """Say whether the point is in it."""
        return abs(point[0]) <= radius

    def densities(self) -> tuple[Floats, ...]:
        """Return each coordinate's density at ``nodes``, up to a factor, of a uniform point."""
        return (np.ones(NODES),)


@dataclass(frozen=True)
class Arc:
    """Differences of (t, cos pi t, sin pi t): see the module."""

    places: tuple[int, int, int]
    rounding: int = 2

    def holds(self, point: Sequence[int], radius: int) -> bool:
        """Say whether the point is in ``radius`` times the body, in whole numbers."""
        s, x, y = point
        square = x * x + y * y
        if square > radius * radius:
            return False
        for intercept, slope in TANGENTS:
            most = intercept * radius - slope * abs(s)
            if most < 0 or FINE_STEPS * FINE_STEPS * square > most * most:
                return False
        return True

    @property
    def accepted(self) -> float:
        """Part of the cube [-1, 1]^3 that it fills."""
        return float(np.pi / 4 * np.mean(_radii(nodes()) ** 2))

    def densities(self) -> tuple[Floats, ...]:
        """Return each coordinate's density at ``nodes``, up to a factor, of a uniform point."""
        u = nodes()
        discs = _radii(u) ** 2
        chords = np.sqrt(np.maximum(discs[None, :] - u[:, None] ** 2, 0.0)).mean(axis=1)
        return discs, chords, chords


@dataclass(frozen=True)
class DoubleArc:
    """Differences of (t, -cos pi t, -sin pi t, cos 2 pi t), which waves over a column are: see the module."""

    places: tuple[int, int, int, int]
    rounding: int = 3

    def holds(self, point: Sequence[int], radius: int) -> bool:
        """Say whether the point is in ``radius`` times the body, in whole numbers."""
        s, x, y, c = point
        if not _ARC.holds((s, x, y), radius) or abs(c) > radius:
            return False
        if FINE_STEPS * abs(3 * y + 2 * s) > DOUBLE_REACH * radius:
            return False
        return all(2 * u <= radius or abs(c) * radius <= 4 * u * (radius - u) for u in (abs(x), abs(y)))

    @property
    def accepted(self) -> float:
        """Part of the cube [-1, 1]^4 that it fills."""
        return _double_arc()[0]

    def densities(self) -> tuple[Floats, ...]:
        """Return each coordinate's density at ``nodes``, up to a factor, of a uniform point."""
        return _double_arc()[1]


@dataclass(frozen=True)
class Simplex:
    """Differences of indicators of m levels, of which a unit has one or none."""

    places: tuple[int, ...]

    @property
    def rounding(self) -> int:
        """The cube of side 2/m around 0 lies within."""
        return len(self.places)

    def holds(self, point: Sequence[int], radius: int) -> bool:
        """Say whether the point's entries above 0, and those below, add up to the radius at most."""
        above = sum(value for value in point if value > 0)
        return above <= radius and above - sum(point) <= radius

    @property
    def accepted(self) -> float:
        """Part of the cube [-1, 1]^m that it fills."""
        m = len(self.places)
        return float(math.comb(2 * m, m) / math.factorial(m) / 2**m)

    def densities(self) -> tuple[Floats, ...]:
        """Return each coordinate's density at ``nodes``, up to a factor, of a uniform point."""
        others, rest = len(self.places) - 1, 1 - nodes()
        terms = [
            math.comb(others, i) * rest**i / math.factorial(i) / math.factorial(others - i)
            for i in range(others + 1)
        ]
        return (np.sum(terms, axis=0),) * len(self.places)


@lru_cache(1)
def nodes() -> Floats:
    """Return the middles of equal intervals of [0, 1], (NODES,)."""
    return (np.arange(NODES) + 0.5) / NODES


def _radii(s: Floats) -> Floats:
    """Return the arc's radius at values of |s|."""
    lines = np.array([(a - b * s) / FINE_STEPS for a, b in TANGENTS])
    return np.asarray(np.clip(lines.min(axis=0), 0.0, 1.0))


_ARC = Arc((0, 1, 2))


@lru_cache(1)
def _double_arc() -> tuple[float, tuple[Floats, ...]]:
    """Return what part of the cube a double arc fills, and its coordinates' densities.

    With x and y >= 0, which stand for all, s has an interval, and c another.
    """
    u = nodes()
    x, y = u[:, None], u[None, :]
    lines = np.array([(a - FINE_STEPS * np.hypot(x, y)) / b for a, b in TANGENTS])
    most = np.where(np.hypot(x, y) <= 1, np.clip(lines.min(axis=0), -1.0, 1.0), -1.0)
    reach = DOUBLE_REACH / FINE_STEPS
    low, high = np.maximum(-most, -(reach + 3 * y) / 2), np.minimum(most, (reach - 3 * y) / 2)
    length = np.maximum(high - low, 0.0)
    width = np.minimum(*(np.where(v <= 0.5, 1.0, 4 * v * (1 - v)) for v in np.broadcast_arrays(x, y)))
    volume = length * width
    # Of s both signs count, and each of x, y and c as much as its opposite.
    within = [width[(v >= low) & (v <= high)].sum() + width[(-v >= low) & (-v <= high)].sum() for v in u]
    above = [length[width >= v].sum() for v in u]
    densities = np.array(within), volume.sum(axis=1), volume.sum(axis=0), np.array(above)
    return float(volume.mean() / 2), densities


Part = Interval | Arc | DoubleArc | Simplex


@dataclass(frozen=True)
class ProductBody:
    """A product of parts that are together all coordinates."""

    parts: tuple[Part, ...]

    @property
    def dimension(self) -> int:
        """Number of coordinates."""
        return sum(len(part.places) for part in self.parts)

    @property
    def accepted(self) -> float:
        """Part of the cube that it fills."""
        return math.prod(part.accepted for part in self.parts)

    def sensitivity(self, bits: int) -> int:
        """Return D: the differences of sums on the grid of 2**-bits are in D K."""
        rounding = max(part.rounding for part in self.parts)
        return (2 << bits) + math.ceil(ROUNDING_STEPS * rounding)

    @property
    def law(self) -> "KNormLaw":
        """The law of the noise."""
        return _law_of(self)

    def affordable(self) -> "ProductBody":
        """Return the body, or one that holds it and from which noise is drawn in fewer tries."""
        if self.accepted * TRIES_MAX >= 1:
            return self
        return ProductBody(tuple(Interval((place,)) for part in self.parts for place in part.places))


@dataclass(frozen=True)
class KNormLaw:
    """What each coordinate of the noise is like, in units of its scale: R u, R gamma with J + 1 degrees.

    ``kinds`` (J,) numbers each coordinate's law of u among ``weights`` (kinds, NODES), which are those of |u|
    at ``nodes``. Continuous: grids are so fine that it makes no difference.
    """

    dimension: int
    kinds: tuple[int, ...]
    weights: Floats

    @classmethod
    def of(cls, body: ProductBody) -> "KNormLaw":
        """Return the law of a body's noise."""
        found: list[Floats] = []
        kinds = [0] * body.dimension
        known: dict[bytes, int] = {}
        for part in body.parts:
            for place, density in zip(part.places, part.densities(), strict=True):
                own = density / density.sum()
                kinds[place] = known.setdefault(own.tobytes(), len(known))
                if kinds[place] == len(found):
                    found.append(own)
        return cls(body.dimension, tuple(kinds), np.array(found))

    @cached_property
    def deviations(self) -> Floats:
        """The standard deviation of each coordinate, (J,)."""
        squares = self.weights @ nodes() ** 2
        radius = (self.dimension + 1) * (self.dimension + 2)
        return np.asarray(np.sqrt(radius * squares)[list(self.kinds)])

    def widening(self, level: float) -> float:
        """Return by what to multiply the noise's variance for normal intervals to hold at that level, >= 1.

        Of the coordinates with the heaviest tails, alone: what else there is makes a sum more normal.
        """
        normal = float(-ndtri(level / 2))
        found = 1.0
        for kind, weights in enumerate(self.weights):
            unit = float(self.deviations[self.kinds.index(kind)]) / nodes()
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
        """Where characteristic functions are tabulated; beyond, they are below TURNS_LEFT and taken for 0."""
        power = self.dimension + 1
        furthest = min(TURNS_MAX, math.sqrt(math.expm1(-2 * math.log(TURNS_LEFT) / power)))
        even = min(EVEN_TURNS, furthest)
        steps = math.ceil(even / min(EVEN_STEP, TURN_OF_RADIUS / power))
        near, far = np.linspace(0, even, steps + 1), np.geomspace(even, furthest, 1001)[1:]
        return near if furthest <= even else np.concatenate([near, far])

    def standard_characteristic(self, kind: int, t: Floats) -> Floats:
        """Return E cos(t N) at values of t (...) >= 0, N of a kind divided by its standard deviation."""
        turned, furthest = t / self.deviations[self.kinds.index(kind)], self._turns[-1]
        return np.where(turned <= furthest, self._splines[kind](np.minimum(turned, furthest)), 0.0)

    def characteristic(self, kind: int, t: Floats) -> Floats:
        """Return E cos(t R u) of a kind at values of t (...)."""
        turned = np.asarray(t)[..., None] * nodes()
        power = self.dimension + 1
        waves = (1 + turned**2) ** (-power / 2) * np.cos(power * np.arctan(turned))
        return np.asarray(waves @ self.weights[kind])


LAWS_KEPT = 16
"""Laws remembered, with tables of 3000 values a kind or fewer: every check asks for its study's."""


@lru_cache(LAWS_KEPT)
def _law_of(body: ProductBody) -> KNormLaw:
    return KNormLaw.of(body)


TURNS_MAX, TURNS_LEFT = 200.0, 1e-11
"""Characteristic functions are tabulated up to the first, or to where |E cos t R u|, which is at most (1 +
t^2)^(-(J + 1)/2), is below the second."""

EVEN_TURNS, EVEN_STEP, TURN_OF_RADIUS = 10.0, 0.005, 0.05
"""Up to the first the table's steps are the second, or the third over J + 1, about the mean radius, if that
is less: a wave of the largest u has 125 steps a turn, and the cubic splines between them err by less than
1e-8."""


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
    point = np.empty(body.dimension)
    for part in body.parts:
        fine = 2**30
        while True:
            drawn = rng.integers(-fine, fine + 1, len(part.places))
            if part.holds([int(v) for v in drawn], fine):
                break
        point[list(part.places)] = drawn / fine
    return values + np.rint(radius * point).astype(np.int64)
