"""Brownian features: vectors whose squared distances are the distances of distance covariance.

On [0, 1], |x - x'| = sum_j (phi_j(x) - phi_j(x'))^2, phi_j(x) = sqrt 2 sin((j - 1/2) pi x)/((j - 1/2) pi), so
that a unit that is replaced moves them by sqrt|x - x'| <= 1 at most, however many there are. Several numeric
columns go through public projections, for which cosines on an interval about the middle keep more; two
categories are 1 apart. Of many columns side by side squared diameters add up.
Derivations: docs/mathematics/distance-correlation.md.
"""

import math
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tacit_protocol.features.kernels import FloatMatrix, InBall, Rows, row_products
from tacit_protocol.numerics.distance_covariance import projection_constant
from tacit_protocol.numerics.sincos import Harmonics

ROUNDING = 1e-9
"""Relative allowance for the computed norm of the directions."""


def random_directions(columns: int, count: int, rng: np.random.Generator) -> FloatMatrix:
    """Return ``count`` directions, (count, columns): rows of uniform random orthogonal matrices.

    Each is uniform on the sphere; orthogonal ones cover it more evenly, and have the least operator norm,
    sqrt(ceil(count / columns)).
    """
    blocks: list[FloatMatrix] = []
    for _ in range(-(-count // columns)):
        q, r = np.linalg.qr(rng.standard_normal((columns, columns)))
        blocks.append(np.asarray((q * np.sign(np.diagonal(r))).T, dtype=np.float64))
    return np.concatenate(blocks)[:count]


def operator_norm(directions: FloatMatrix) -> float:
    """Return an upper bound on the operator norm of the directions, (K, D), tight to 1e-9."""
    return float(np.linalg.norm(directions, 2)) * (1 + ROUNDING)


def frequencies(count: int) -> npt.NDArray[np.float64]:
    """Return (j - 1/2) pi for j = 1..count."""
    return np.asarray(np.pi * (np.arange(1, count + 1) - 0.5), dtype=np.float64)


@cache
def _odd_quarters(count: int) -> Harmonics:
    """Return odd multiples of a quarter turn, as many as ``count``, and half a turn: what parts them."""
    return Harmonics((*(0.25 * (2 * index + 1) for index in range(count)), 0.5))


@cache
def _half_turns(count: int) -> Harmonics:
    return Harmonics(tuple(0.5 * (index + 1) for index in range(count)))


def write_sines(places: FloatMatrix, scale: float, out: npt.NDArray[np.float64]) -> None:
    """Write the features of numbers in [0, 1], (rows, K), times ``scale``, to (K, count, rows).

    They are taken about the middle, where they are 0.
    """
    kept = frequencies(out.shape[1])
    for index, wave in _odd_quarters(len(kept)).at(places):
        if index < len(kept):
            np.subtract(wave.sines.T, math.sin(kept[index] / 2), out=out[:, index])
            out[:, index] *= scale * math.sqrt(2) / kept[index]


CENTRE = 0.16
"""The frequencies left out lie in a ball about this part of where 1 is mapped; near the best on that line."""

PLACES = 2**15
"""Places at which the ball's squared radius is looked for: between them it grows by 1.6e-4 at most."""

SLOPE = 10.4
"""Bound on the slope of a squared distance from the centre: partial sums of sin(w_j t)/w_j are below .93."""


@cache
def left_out_variance(count: int) -> float:
    """Bound E|f(X) - E f(X)|^2 in the frequencies of a column beyond ``count``, for every law on [0, 1].

    It is the squared radius of a ball that holds all of them, .72 of their largest squared norm. So it bounds
    the trace, and any norm, of their covariance, also where units are averages of rows.
    """
    places = np.arange(PLACES + 1) / PLACES
    # k(x, y) = min(x, y) less the kept terms; wanted is k(x, x) - 2 c k(x, 1) + c^2 k(1, 1).
    own, end = places.copy(), places.copy()
    for frequency in frequencies(count):
        waves = np.sin(places * frequency)
        own -= 2 * waves**2 / frequency**2
        end -= 2 * waves * math.sin(frequency) / frequency**2
    radius_sqr = float(np.max(own - 2 * CENTRE * end)) + CENTRE**2 * float(own[-1])
    return radius_sqr + SLOPE / (2 * PLACES)


CROWDED = 0.75
"""Half of the interval where projections of p columns crowd, times sqrt p: 2.6 standard deviations of a
uniform column's, and 1.5 of the widest law's in the unit ball."""


def crowded_half_width(columns: int) -> float:
    """Return half of the interval about 1/2 where most of the projections of so many columns lie."""
    return min(0.5, CROWDED / math.sqrt(columns))


def left_out_of_interval(count: int) -> float:
    """Bound the squared norm of the cosines beyond ``count``, over the interval's width: 2/pi^2 sum 1/j^2."""
    kept = math.fsum(1 / index**2 for index in range(1, count + 1))
    return 1 / 3 - 2 / math.pi**2 * kept + ROUNDING


@dataclass(frozen=True)
class BrownianFeatures:
    """Brownian features of numeric columns in [0, 1] and of categories, about the middle of their range.

    ``directions`` is (K, numeric columns), unit rows, K at least the number of columns (one direction, 1, for
    one column); ``per_direction`` is the number r of frequencies, ``categories`` the number of categories of
    every categorical column. Without ``half_width`` frequencies are those of the whole range; with it, in
    (0, 1/2], those of the places so near to the middle, and places beyond count as the interval's ends.
    Coordinates come direction by direction, then categories. |f(x) - f(x')|^2 is, up to the frequencies left
    out, an average over columns of distances: the p numeric ones together count p times, with
    |x - x'|/sqrt p by projections; two categories are 1 apart.
    """

    directions: FloatMatrix
    per_direction: int
    categories: tuple[int, ...] = ()
    half_width: float | None = None

    def __post_init__(self) -> None:
        if self.half_width is not None and not 0 < self.half_width <= 0.5:
            raise ValueError("half of the interval must be above 0 and at most a half")
        if self._numeric > 1 and len(self.directions) < self._numeric:
            raise ValueError("there must be at least as many directions as numeric columns")
        if self._numeric <= 1 and len(self.directions) != self._numeric:
            raise ValueError("one numeric column has one direction")

    @property
    def _numeric(self) -> int:
        return int(self.directions.shape[1])

    @property
    def columns(self) -> int:
        """Number of columns."""
        return self._numeric + len(self.categories)

    @property
    def dimension(self) -> int:
        """K r coordinates of numbers and one for each category."""
        return len(self.directions) * self.per_direction + sum(self.categories)

    @cached_property
    def _numeric_reach(self) -> float:
        """Bound on the average over directions of |u'z - u'z'|/2, z in the unit ball, times C_p."""
        if not self._numeric:
            return 0.0
        if self._numeric == 1:
            return 1.0
        spread = operator_norm(self.directions) / math.sqrt(len(self.directions))
        return projection_constant(self._numeric) * spread

    @cached_property
    def _squared_diameter(self) -> float:
        return (self._numeric * self._numeric_reach + len(self.categories)) / self.columns

    @property
    def diameter(self) -> float:
        """1 for one column; for several, what the directions' operator norm allows."""
        return math.sqrt(self._squared_diameter)

    @property
    def norm(self) -> float:
        """The diameter over sqrt 2: the features are taken about the middle."""
        return math.sqrt(self._squared_diameter / 2)

    @property
    def second_moment_diameter(self) -> float:
        """Sqrt 2 times the squared norm: |f|^4 + |g|^4 - 2 (f'g)^2 is at most 2 norm^4."""
        return math.sqrt(0.5) * self._squared_diameter

    @property
    def left_out(self) -> float:
        """Bound on E|f(X) - E f(X)|^2 in the frequencies left out, averaged over directions."""
        if self.half_width is None or not self._numeric:
            share = left_out_variance(self.per_direction)
        else:
            share = self._interval_left_out(self.half_width)
        return self._numeric * self._constant * share / self.columns

    def _interval_left_out(self, half_width: float) -> float:
        # Squared distances of the places from the middle, averaged over directions, are at most this.
        squared = operator_norm(self.directions) ** 2 / (4 * len(self.directions))
        # A place beyond the interval by |t - 1/2| - a loses as much more, which is at most (t - 1/2)^2/(4 a).
        beyond = min(0.5 - half_width, squared / (4 * half_width))
        return 2 * half_width * left_out_of_interval(self.per_direction) + beyond

    @cached_property
    def _constant(self) -> float:
        return projection_constant(self._numeric) if self._numeric else 0.0

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the features, (rows, dimension); a coordinate's values lie one after the other in memory."""
        count, start = len(rows.numeric), len(self.directions) * self.per_direction
        features = np.empty((self.dimension, count))
        waves = features[:start].reshape(len(self.directions), self.per_direction, count)
        if self._numeric:
            scale = math.sqrt(self._numeric * self._constant / (self.columns * len(self.directions)))
            places = np.asfortranarray(self._places(rows.numeric))
            self._write_waves(places, scale, waves)
        features[start:] = 0.0
        for index, categories in enumerate(self.categories):
            features[start + rows.categorical[:, index], np.arange(count)] = math.sqrt(0.5 / self.columns)
            start += categories
        return features.T

    def _write_waves(self, places: FloatMatrix, scale: float, out: npt.NDArray[np.float64]) -> None:
        """Write the values at the places, (rows, K), times ``scale``, to (K, r, rows)."""
        if self.half_width is None:
            write_sines(places, scale, out)
            return
        width = 2 * self.half_width
        inner = np.clip((places - 0.5) / width + 0.5, 0.0, 1.0)
        for index, wave in _half_turns(self.per_direction).at(inner):
            angle = math.pi * (index + 1)
            np.subtract(wave.cosines.T, math.cos(angle / 2), out=out[:, index])
            out[:, index] *= scale * math.sqrt(2 * width) / angle

    def _places(self, numeric: FloatMatrix) -> FloatMatrix:
        """Project rows, scaled into the unit ball, on the directions: (1 + u'z)/2, (rows, K) in [0, 1]."""
        if self._numeric == 1:
            return numeric
        ball = (2 * numeric - 1) / math.sqrt(self._numeric)
        return np.clip((1 + row_products(ball, self.directions.T)) / 2, 0.0, 1.0)


BLOCKS_KEPT = 256
"""Blocks remembered, by kind: columns of one kind share one."""


@lru_cache(BLOCKS_KEPT)
def numeric_block(count: int) -> BrownianFeatures:
    """Return the features of one numeric column, with ``count`` frequencies."""
    return BrownianFeatures(np.ones((1, 1)), count)


@lru_cache(BLOCKS_KEPT)
def categorical_block(categories: int) -> BrownianFeatures:
    """Return the features of one categorical column: indicators over sqrt 2."""
    return BrownianFeatures(np.zeros((0, 0)), 1, (categories,))


@dataclass(frozen=True)
class BrownianColumns(InBall):
    """Blocks of ``numeric`` columns with ``per_column`` frequencies each, then one block per categorical one.

    ``categories`` holds every categorical column's number of categories.
    """

    numeric: int
    per_column: int
    categories: tuple[int, ...] = ()

    @cached_property
    def blocks(self) -> tuple[BrownianFeatures, ...]:
        """Every column's own features, in the order of their coordinates."""
        waves = (numeric_block(self.per_column),) * self.numeric
        return waves + tuple(categorical_block(count) for count in self.categories)

    @cached_property
    def places(self) -> tuple[slice, ...]:
        """Where every column's coordinates are."""
        ends = np.cumsum([0, *(block.dimension for block in self.blocks)]).tolist()
        return tuple(slice(start, end) for start, end in pairwise(ends))

    @property
    def dimension(self) -> int:
        """One coordinate for every frequency of a numeric column, one for every category."""
        return self.numeric * self.per_column + sum(self.categories)

    @property
    def norm(self) -> float:
        """Root of the sum of the blocks' squared norms."""
        return math.sqrt(math.fsum(block.norm**2 for block in self.blocks))

    @property
    def diameter(self) -> float:
        """Root of the sum of the blocks' squared diameters: that of the number of columns."""
        return math.sqrt(math.fsum(block.diameter**2 for block in self.blocks))

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the features, (rows, dimension); a coordinate's values lie one after the other in memory."""
        count, start = len(rows.numeric), self.numeric * self.per_column
        features = np.empty((self.dimension, count))
        if self.numeric:
            waves = features[:start].reshape(self.numeric, self.per_column, count)
            write_sines(rows.numeric, 1.0, waves)
        features[start:] = 0.0
        for index, categories in enumerate(self.categories):
            features[start + rows.categorical[:, index], np.arange(count)] = math.sqrt(0.5)
            start += categories
        return features.T
