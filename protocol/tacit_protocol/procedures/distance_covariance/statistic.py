"""Distance covariance and correlation from two owners' releases, and an exact test of independence.

Rows of ``a`` (m, p) and ``b`` (m, q), signed sums over disjoint buckets of units, are independent of each
other with E a_h b_h' = C: a U-statistic over pairs of buckets is unbiased for |C|^2, a quarter of the squared
distance covariance, and permuting the rows of ``b`` gives a test of exactly the level. Of P4's noisy
projections the raw value is no estimate of the data's own: each side shrinks a squared correlation by
t^2/(t^2 + s^2), t^2 the variance of the data and s^2 that of the noise. Derivations:
docs/mathematics/distance-correlation.md.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tacit_protocol.features.brownian import frequencies
from tacit_protocol.features.kernels import FloatMatrix
from tacit_protocol.features.sketches import BucketDesign, Side, SketchRelease
from tacit_protocol.messages.study import Release
from tacit_protocol.numerics.distance_covariance import (
    distance_covariance_sqr,
    distance_variance_sqr,
    projection_constant,
)
from tacit_protocol.verdicts.base import Interval

VARIANCE_FACTOR_MIN = 2.0
"""Both distance variances must be this many standard errors above 0 for a correlation to be stated."""


@dataclass(frozen=True)
class NoisyEstimate:
    """An estimate with the variance of its error."""

    value: float
    variance: float


@dataclass(frozen=True)
class CovarianceEstimate:
    """An unbiased estimate whose variance, at a true value D, is base + slope D + curve D^2."""

    value: float
    base: float
    slope: float
    curve: float

    def interval(self, coverage: float) -> tuple[float, float]:
        """Return the D that are no more than z of their own standard errors away, cut at 0."""
        z2 = float(ndtri((1 + coverage) / 2)) ** 2
        square, linear = 1 - z2 * self.curve, self.value + z2 * self.slope / 2
        constant = self.value**2 - z2 * self.base
        if square <= 0:
            return 0.0, math.inf
        # Where the estimate lies far below 0 no D is near enough, and 0 is the nearest.
        root = math.sqrt(max(0.0, linear**2 - square * constant))
        return max(0.0, (linear - root) / square), max(0.0, (linear + root) / square)


def covariance_estimate(first: Side, second: Side) -> CovarianceEstimate:
    """Return the U-statistic 4/(m (m - 1)) sum_{h != h'} (a_h'a_h') (b_h'b_h') and the law of its variance.

    Unbiased for D = 4 |C|^2. Its variance is that for normal buckets, or more where a jackknife finds more
    (docs/mathematics/distance-correlation.md).
    """
    a, b, m = first.buckets, second.buckets, len(first.buckets)
    products = a.T @ b
    own = np.sum(a * a, axis=1) * np.sum(b * b, axis=1)
    means = (np.sum((a @ products) * b, axis=1) - own) / (m - 1)
    spread_a, spread_b, cross = first.bucket_covariance, second.bucket_covariance, products / m
    energy = _squared_norm(cross)
    projected = float(np.sum((spread_a @ cross @ spread_b) * cross))
    normal = projected + _squared_norm(cross.T @ cross)
    excess = max(1.0, float(np.var(means, ddof=1)) / normal) if normal > 0 else 1.0
    return CovarianceEstimate(
        value=4 * float(means.mean()),
        base=32 * _squared_norm(spread_a) * _squared_norm(spread_b) / m**2,
        slope=16 * excess * projected / energy / m if energy > 0 else 0.0,
        curve=4 * excess / m,
    )


def variance_estimate(side: Side) -> NoisyEstimate:
    """Return the squared distance variance, 4 |covariance|^2 less its noise's energy, with its error.

    The noise is that of the second moment and of the mean; the sampling part of the variance is a bound
    (docs/mathematics/distance-correlation.md).
    """
    dimension, noise_sqr = len(side.covariance), side.covariance_noise**2
    own = dimension * (dimension + 1) / 2 * noise_sqr
    mean_sqr = max(0.0, _squared_norm(side.mean) - dimension * side.mean_noise**2)
    of_mean = (dimension + 1) * side.mean_noise**2 * (2 * mean_sqr + dimension * side.mean_noise**2)
    squared = max(0.0, _squared_norm(side.covariance) - own - of_mean)
    error = noise_sqr + _sampling_variance(side, squared) / side.units
    variance = 4 * squared * error + 2 * own * noise_sqr + 4 * of_mean * noise_sqr
    return NoisyEstimate(4 * squared, 16 * (variance + _variance_by_mean(side, mean_sqr, squared)))


def _variance_by_mean(side: Side, mean_sqr: float, squared: float) -> float:
    """Bound the variance that the mean's noise alone gives |covariance|^2 less its energy."""
    dimension, noise_sqr = len(side.covariance), side.mean_noise**2
    moved = min(_squared_norm(side.covariance @ side.mean), squared * mean_sqr)
    return noise_sqr * (
        16 * moved
        + 8 * noise_sqr * ((dimension + 3) * mean_sqr**2 + squared)
        + 32 * (dimension + 2) * noise_sqr**2 * mean_sqr
        + 8 * dimension * (dimension + 2) * noise_sqr**3
    )


def _sampling_variance(side: Side, energy: float) -> float:
    """Bound Var z'S z of a unit, |covariance|^2 = ``energy``; it never exceeds norm^4."""
    largest = max(0.0, float(np.linalg.eigvalsh(side.covariance)[-1]))
    bound = 2 * side.norm**2 * largest - energy
    return min(side.norm**4, bound) if bound > 0 else side.norm**4


@dataclass(frozen=True)
class CorrelationEstimate:
    """A squared distance correlation with its interval, neither yet cut at 0 and 1."""

    value: float
    lower: float
    upper: float


def correlation_estimate(
    covariance: CovarianceEstimate, variances: tuple[NoisyEstimate, NoisyEstimate], coverage: float
) -> CorrelationEstimate | None:
    """Return the squared distance correlation; None where a distance variance is lost in its noise.

    The error of the root of both distance variances, by the delta method, is added to the interval of the
    covariance in quadrature.
    """
    if any(own.value <= VARIANCE_FACTOR_MIN * math.sqrt(own.variance) for own in variances):
        return None
    scale = math.sqrt(variances[0].value * variances[1].value)
    value, (lower, upper) = covariance.value / scale, covariance.interval(coverage)
    relative = sum(own.variance / own.value**2 for own in variances) / 4
    reach = float(ndtri((1 + coverage) / 2)) * abs(value) * math.sqrt(relative)
    return CorrelationEstimate(
        value,
        value - math.hypot(max(0.0, value - lower / scale), reach),
        value + math.hypot(max(0.0, upper / scale - value), reach),
    )


def correlation_of(squared: float) -> float:
    """Return the root of a squared correlation, cut to [0, 1] first.

    >>> correlation_of(0.25), correlation_of(-0.1)
    (0.5, 0.0)
    """
    return math.sqrt(min(1.0, max(0.0, squared)))


def truncation_bound(first: Side, second: Side) -> float:
    """Bound what the estimate leaves out: squared covariances of pairs of features not both in it, times 4.

    For fixed features of covariance V, the squares of their covariances with all features of the other side
    add up to at most tr V times the largest eigenvalue of that side's covariance.
    """
    kept = [max(0.0, float(np.linalg.eigvalsh(side.covariance)[-1])) for side in (first, second)]
    shared = first.left_out * kept[1] + second.left_out * kept[0]
    return 4 * (shared + first.left_out * second.left_out)


@dataclass(frozen=True)
class IndependenceTest:
    """The largest standardised energy of covariances, and its permutation p-value.

    ``permuted`` (count,) are the statistics of the permutations.
    """

    statistic: float
    pvalue: float
    permuted: npt.NDArray[np.float64] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Permutations:
    """How many, from which public generator; only within ``blocks`` (m,) where given."""

    count: int
    rng: np.random.Generator
    blocks: npt.NDArray[np.int64] | None = None
    progress: Callable[[float], None] | None = None

    def orders(self, places: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the order of ``places`` as it is, then ``count`` random ones that keep the blocks."""
        blocks = np.zeros(places, np.int64) if self.blocks is None else self.blocks
        members = [np.flatnonzero(blocks == block) for block in np.unique(blocks)]
        yield np.arange(places)
        for index in range(self.count):
            if self.progress is not None:
                self.progress(index / self.count)
            if len(members) == 1:
                yield self.rng.permutation(members[0])
                continue
            order = np.empty(places, dtype=np.int64)
            for own in members:
                order[own] = self.rng.permutation(own)
            yield order


ROUNDING = 1e-12
"""Of the largest energy: a spread below this part of it is none."""


def permutation_test(first: Side, second: Side, permutations: Permutations) -> IndependenceTest:
    """Test independence by permuting the second side's buckets.

    Rows are rotated to the principal axes of their covariance, and whitened by covariance and noise. For each
    k, the sum of the squared covariances of both sides' k leading axes is standardised over all permutations;
    the largest is the statistic. The p-value is exact under independence, and at least 1 / (count + 1).
    """
    a, b = whitened(first), whitened(second)
    energies = np.array([_nested_energies(a.T @ b[order]) for order in permutations.orders(len(b))])
    # Leading axes of different blocks have no unit in common: their covariance is 0, and what is computed of
    # it rounding, which differs from processor to processor. It must not be blown up to a score.
    excess, spread = energies - energies.mean(axis=0), energies.std(axis=0)
    scores = np.divide(excess, spread, out=np.zeros_like(excess), where=spread > ROUNDING * energies.max())
    largest = scores.max(axis=1)
    # Energies of equal tables differ in the last digits: a hair's breadth below counts as a tie.
    reached = int(np.sum(largest[1:] >= largest[0] - 1e-9 * (1 + abs(largest[0]))))
    return IndependenceTest(float(largest[0]), (1 + reached) / (permutations.count + 1), largest[1:])


def nested_sizes(largest: int) -> list[int]:
    """Return how many leading axes are tried: 1, 2, 3, 4, 6, 8, 12, ... and all."""
    sizes = {min(largest, base << shift) for shift in range(largest.bit_length()) for base in (1, 3)}
    return sorted(sizes | {min(largest, 2), largest})


def _nested_energies(covariances: FloatMatrix) -> list[float]:
    squares = covariances**2
    return [float(squares[:k, :k].sum()) for k in nested_sizes(max(squares.shape))]


def whitened(side: Side) -> FloatMatrix:
    """Return the buckets in principal axes of their covariance, largest first, with variances near 1."""
    values, vectors = np.linalg.eigh(side.covariance)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    return np.asarray(side.buckets @ (vectors / np.sqrt(values + side.bucket_noise**2)))


def _squared_norm(matrix: FloatMatrix) -> float:
    return float(np.sum(matrix * matrix))


FREQUENCIES = 3
"""Sines of every released column that the test looks at; the noise hides finer structure."""

Blocks = npt.NDArray[np.int64]
Report = Callable[[float], None]


@dataclass(frozen=True)
class NoisyProjections:
    """One owner's projections, (n, K) or (n, 1), of p columns, with noise of that deviation, or of 0."""

    values: FloatMatrix
    noise: float
    columns: int


@dataclass(frozen=True)
class RawCorrelation:
    """Squared distance covariance (unbiased) and correlation of noisy projections, and their attenuation."""

    covariance_sqr: float
    correlation_sqr: float
    attenuation: float


def raw_correlation(
    first: NoisyProjections, second: NoisyProjections, blocks: Blocks | None
) -> RawCorrelation:
    """Average over directions, (C_p C_q / K) sum_k Omega_n; ``blocks`` (n,) deals the units out, one each."""
    pairs = list(_pairs(first, second, blocks))
    constants = [projection_constant(side.columns) for side in (first, second)]
    covariance = (
        constants[0] * constants[1] * float(np.mean([distance_covariance_sqr(x, y) for x, y in pairs]))
    )
    variances = [
        constant**2 * float(np.mean([distance_variance_sqr(pair[index]) for pair in pairs]))
        for index, constant in enumerate(constants)
    ]
    scale = float(np.sqrt(max(0.0, variances[0]) * max(0.0, variances[1])))
    kept = [_kept(side) for side in (first, second)]
    return RawCorrelation(covariance, covariance / scale if scale > 0 else 0.0, kept[0] * kept[1])


def projected_test(
    first: NoisyProjections, second: NoisyProjections, permutations: Permutations
) -> IndependenceTest:
    """Permute one side's released rows, within blocks where these have directions of their own. Exact."""
    sides = [_side(each, permutations.blocks) for each in (first, second)]
    return permutation_test(sides[0], sides[1], permutations)


def _pairs(
    first: NoisyProjections, second: NoisyProjections, blocks: Blocks | None
) -> list[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]]:
    if blocks is not None:
        own = [np.flatnonzero(blocks == block) for block in range(int(blocks.max()) + 1)]
        return [(first.values[rows, 0], second.values[rows, 0]) for rows in own]
    count = max(first.values.shape[1], second.values.shape[1])
    # One column has one projection, whatever the other side has.
    columns = [np.broadcast_to(side.values, (len(side.values), count)) for side in (first, second)]
    return list(zip(columns[0].T, columns[1].T, strict=True))


def _kept(side: NoisyProjections) -> float:
    if side.noise == 0:
        return 1.0
    spread = float(np.mean(np.var(side.values, axis=0)))
    return max(0.0, 1 - side.noise**2 / spread)


def _side(released: NoisyProjections, blocks: Blocks | None) -> Side:
    """Sines of the released columns over their own range, in columns of their own for every block."""
    values = released.values
    low, reach = values.min(axis=0), np.ptp(values, axis=0)
    waves = frequencies(FREQUENCIES)
    places = ((values - low) / np.where(reach > 0, reach, 1.0))[:, :, None]
    features = (np.sin(places * waves) / waves).reshape(len(values), -1)
    if blocks is not None:
        own = np.arange(int(blocks.max()) + 1) == blocks[:, None]
        sums = own.T.astype(np.float64) @ features
        features = features - (sums / own.sum(axis=0)[:, None])[blocks]
        features = (own[:, :, None] * features[:, None, :]).reshape(len(values), -1)
    centred = features - features.mean(axis=0)
    covariance = centred.T @ centred / len(values)
    floor = 1e-6 * float(np.sqrt(np.trace(covariance)))
    # A constant column has covariance 0 with everything: the floor keeps that from being 0/0.
    noise, none = max(floor, 1e-150), np.zeros(len(covariance))
    return Side(centred, noise, covariance, 0.0, 1.0, 0.0, len(values), none, 0.0)


COVARIANCE_SQR_MAX = 0.25
"""Of distances in [0, 1]: at most the root of both distance variances, each at most 1/4."""


def correlation_words(value: float | None, interval: Interval | None) -> tuple[str, ...]:
    """Return the command's line of a distance correlation with its interval; none where there is none."""
    if value is None or interval is None:
        return ()
    return (f"  distance correlation {value:.3f}, [{interval[0]:.3f}, {interval[1]:.3f}]",)


@dataclass(frozen=True)
class Found:
    """What either method finds; None where it does not have it."""

    method: str
    test: IndependenceTest
    covariance_sqr: float
    """Unbiased, and so negative at times."""
    correlation_sqr: float | None
    covariance_interval: tuple[float | None, float | None] = (None, None)
    correlation_interval: tuple[float, float] | None = None
    truncation: float | None = None
    attenuation: float | None = None
    buckets: int | None = None
    caveats: tuple[str, ...] = ()


def resolution_caveat(truncation: float, *, drawn: bool) -> str:
    """Say what the intervals of a sketch cover, and how much of the squared covariance may lie beyond it."""
    directions = " and directions drawn" if drawn else ""
    return (
        f"estimates and intervals are of the frequencies kept{directions}: finer dependence may add up to "
        f"{truncation:.2g} to the squared distance covariance, which no interval counts"
    )


def read_side(sketch: SketchRelease, design: BucketDesign, release: Release) -> Side:
    """Read one owner's sketch, which is of one block."""
    return sketch.read(release.vectors, design)[0]
