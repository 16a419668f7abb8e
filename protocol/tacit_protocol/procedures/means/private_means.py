"""What a tester knows of each owner, a noisy mean and perhaps a second moment, and what follows from them.

*Squared MMD* of two owners: |d|^2 less a tr Sigma and b J, a = 1/n_x + 1/n_y, b = sigma_x^2 + sigma_y^2; the
interval holds the MMD^2 within so many standard deviations, its lower end by the quantile of a gamma law.

*MMD form*: t = sum_g w_g |m_g - m_w|^2, w_g = 1 / (tr Sigma / (n_g J) + sigma_g^2), against the quadratic
form of the heaviest spectrum that trace, energy and largest eigenvalue of Sigma allow, each rounded up for
its noise.

*Noise-aware form*: s = sum_g (m_g - c)' V_g^-1 (m_g - c), V_g = (P + c_0 I) / n_g + r_g^2 I, P the noisy
pooled covariance on the positive semidefinite cone; its null is simulated through the same steps, p = (1 +
#{s* >= s}) / (B + 1).

*Max form*: every coordinate is tested against its own variance; it names the columns that differ. Coordinate
j of owner g's noisy mean is N(theta_j, V_gj) under the null hypothesis, V_gj = v_gj / n_g + sigma_g^2, v_gj a
bound on the variance of one unit's coordinate from the released means alone, rounded up for noise and rare
units. Q_j = sum_g (m_gj - c_j)^2 / V_gj is chi-squared with k - 1 degrees; the smallest p-value of a family
of coordinates is corrected by Sidak's formula.

Rare units are guarded against by :func:`rare_guard`. Derivations: docs/mathematics/kernel-two-sample.md.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc, gammaincinv, ndtri

from tacit_protocol.domain import Domain
from tacit_protocol.features.cell_means import FINE_CELLS, PAIR_SHARE, CellsOfColumns
from tacit_protocol.features.moments import AdditiveFeatures, Coordinate
from tacit_protocol.numerics.inference import PVALUE_MIN, RARE_UNITS, holm, sidak
from tacit_protocol.numerics.quadratic_forms import QuadraticLaw
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import PVALUE, REJECTED
from tacit_protocol.verdicts.presentation import Critical, Null, chi_square_quantile, largest_of

FloatVector = npt.NDArray[np.float64]
FloatMatrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PrivateMeans:
    """Noisy means of k owners.

    ``means`` is (k, J); ``units`` (k,) the numbers of units n_g; ``noise`` (k,) the standard deviation of
    the noise on each coordinate of an owner's mean.
    """

    means: FloatMatrix
    units: FloatVector
    noise: FloatVector

    @property
    def owners(self) -> int:
        """Number of owners k."""
        return int(self.means.shape[0])

    @property
    def dimension(self) -> int:
        """Number of coordinates J."""
        return int(self.means.shape[1])

    def pooled(self) -> FloatVector:
        """Mean over all units, (J,)."""
        return np.asarray(self.units @ self.means / self.units.sum())

    def pooled_noise(self) -> float:
        """Return the standard deviation of the noise on a coordinate of the pooled mean."""
        return float(np.linalg.norm(self.units * self.noise) / self.units.sum())

    def select(self, owners: tuple[int, ...]) -> "PrivateMeans":
        """Keep some of the owners."""
        index = list(owners)
        return PrivateMeans(self.means[index], self.units[index], self.noise[index])


@dataclass(frozen=True)
class PrivateCovariance:
    """A pooled noisy covariance.

    ``matrix`` is (J, J) symmetric; ``noise`` the standard deviation of the noise on a diagonal entry (an
    off-diagonal one carries 1 / sqrt 2 of it); ``units`` the number of units pooled in it.
    """

    matrix: FloatMatrix
    noise: float
    units: float

    def positive_part(self) -> FloatMatrix:
        """Projection on the cone of positive semidefinite matrices."""
        values, vectors = np.linalg.eigh(self.matrix)
        return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def pool_covariance(
    means: PrivateMeans,
    second_moments: npt.NDArray[np.float64],
    noise: FloatVector,
    weights: FloatVector | None = None,
) -> PrivateCovariance:
    """Pool the owners' covariances, weighted by ``weights`` (k,), by default their units.

    ``second_moments`` is (k, J, J); ``noise`` (k,) the standard deviation on their diagonal entries. The
    outer products of the means are corrected for their noise in expectation.
    """
    weights = means.units if weights is None else weights
    shares = weights / weights.sum()
    outer = np.einsum("gi,gj->gij", means.means, means.means)
    outer -= (means.noise**2)[:, None, None] * np.eye(means.dimension)
    matrix = np.einsum("g,gij->ij", shares, second_moments - outer)
    return PrivateCovariance(
        np.asarray((matrix + matrix.T) / 2), float(np.linalg.norm(shares * noise)), float(means.units.sum())
    )


def rare_guard(means: PrivateMeans, largest: float, trace: float, trace_max: float) -> FloatVector:
    """Return what is added to the features' largest variance at each owner, (k,), for units that are rare.

    The weight of RARE_UNITS units; or, where that is more, what gives the squared length of an owner's sum
    the variance that units of squared length 0 or ``trace_max`` give it, n T (trace_max - T) beyond the
    normal law's. ``largest`` and ``trace`` are of the covariance of one unit's features.
    """
    own = means.units * largest + (means.units * means.noise) ** 2
    excess = means.units * trace * max(0.0, trace_max - trace)
    return np.asarray(np.maximum(RARE_UNITS * trace_max, np.sqrt(own**2 + excess / 2) - own) / means.units)


@dataclass(frozen=True)
class Moments:
    """Trace, energy |Sigma|_F^2 and largest eigenvalue of the features' covariance (or bounds on them)."""

    trace: float
    energy: float
    largest: float


@dataclass(frozen=True)
class MmdEstimate:
    """Unbiased estimate of MMD^2 (may be negative) and a two-sided interval (never below 0)."""

    squared_mmd: float
    lower: float
    upper: float


def estimate_mmd(means: PrivateMeans, moments: Moments, confidence: float) -> MmdEstimate:
    """Estimate the squared MMD between two owners. ``confidence`` in (0, 1) is the interval's coverage."""
    a = float(np.sum(1 / means.units))
    b = float(np.sum(means.noise**2))
    dimension = means.dimension
    difference = means.means[0] - means.means[1]
    estimate = float(difference @ difference) - a * moments.trace - b * dimension
    constant = 2 * (a**2 * moments.energy + 2 * a * b * moments.trace + b**2 * dimension)
    slope = 4 * (a * moments.largest + b)
    normal = float(ndtri((1 + confidence) / 2))
    skewed = max(normal, _gamma_quantile((1 + confidence) / 2, slope / float(np.sqrt(constant))))
    lower = _end(estimate, skewed, constant, slope, -1)
    upper = _end(estimate, normal, constant, slope, 1)
    return MmdEstimate(estimate, max(0.0, lower), max(0.0, upper))


def _gamma_quantile(probability: float, skewness: float) -> float:
    """Quantile of a gamma law of mean 0, variance 1 and that positive skewness."""
    shape = 4 / skewness**2
    return float((gammaincinv(shape, probability) - shape) / np.sqrt(shape))


def _end(estimate: float, deviations: float, constant: float, slope: float, side: int) -> float:
    """Solve |estimate - x| = deviations * sqrt(constant + slope x) for the x on that side of the estimate."""
    middle = estimate + deviations**2 * slope / 2
    radius = float(np.sqrt(max(0.0, middle**2 - estimate**2 + deviations**2 * constant)))
    return middle + side * radius


@dataclass(frozen=True)
class Spectrum:
    """Eigenvalues (m,) and how often each occurs (m,)."""

    eigenvalues: FloatVector
    multiplicities: tuple[int, ...]


def covariance_moments(covariance: PrivateCovariance, trace_max: float, slack: float = 1.0) -> Moments:
    """Estimate trace, energy and largest eigenvalue from a noisy covariance, rounded up.

    ``trace_max`` is a public bound on the trace, the squared norm of the features; ``slack`` is how many
    standard deviations the trace and the energy are rounded up by.
    """
    matrix, tau = covariance.matrix, covariance.noise
    dimension = len(matrix)
    entries = dimension * (dimension + 1) / 2
    trace = float(np.trace(matrix)) + slack * tau * np.sqrt(dimension)
    trace = float(np.clip(trace, 1e-12, trace_max))
    energy = float(np.sum(matrix**2)) - tau**2 * entries
    energy += slack * float(np.sqrt(2 * entries) * tau**2 + 2 * tau * np.sqrt(max(energy, 0.0)))
    energy = float(np.clip(energy, trace**2 / dimension, trace**2))
    top = min(float(np.linalg.eigvalsh(matrix)[-1]), float(np.sqrt(energy)))
    return Moments(trace, energy, float(np.clip(top, energy / trace, trace)))


def bounded_moments(means: PrivateMeans, trace_max: float = 1.0) -> Moments:
    """Bound the covariance's moments from the means alone: a single eigenvalue, as large as it can be.

    tr Sigma = E|f|^2 - |m|^2 is at most ``trace_max`` - |m|^2; |m|^2 is estimated from the pooled noisy mean,
    less its noise and sampling in expectation, and rounded down by three standard deviations.
    """
    dimension, noise, units = means.dimension, means.pooled_noise(), float(means.units.sum())
    size = float(np.sum(means.pooled() ** 2)) - dimension * noise**2 - trace_max / units
    spread = 2 * dimension * noise**4 + 4 * max(size, 0.0) * (noise**2 + trace_max / units)
    size -= 3.0 * float(np.sqrt(spread))
    trace = float(np.clip(trace_max - size, 1e-12, trace_max))
    return Moments(trace, trace**2, trace)


def heavy_spectrum(moments: Moments, dimension: int) -> Spectrum:
    """Return the two-point spectrum with the trace, the largest eigenvalue and at least the energy given.

    As many eigenvalues are at the largest as the moments allow, rounded up; the rest are equal.
    """
    trace, energy, top = moments.trace, moments.energy, moments.largest
    if dimension == 1:
        return Spectrum(np.array([trace]), (1,))
    # count solves count * top + (J - count) rest = T and count * top^2 + (J - count) rest^2 = F^2
    denominator = energy + top**2 * dimension - 2 * trace * top
    count = 1.0 if denominator <= 0 else (energy * dimension - trace**2) / denominator
    heavy = int(np.clip(np.ceil(count - 1e-9), 1, dimension - 1))
    rest = max(0.0, (trace - heavy * top) / (dimension - heavy))
    return Spectrum(np.array([top, rest]), (heavy, dimension - heavy))


def _weights(means: PrivateMeans, trace: float) -> FloatVector:
    return np.asarray(1.0 / (trace / means.units / means.dimension + means.noise**2))


def _contrast(weights: FloatVector) -> FloatMatrix:
    return np.asarray(np.diag(weights) - np.outer(weights, weights) / weights.sum())


def mmd_test(
    means: PrivateMeans, covariance: PrivateCovariance | None, trace_max: float = 1.0
) -> tuple[float, float]:
    """Return the statistic t and its p-value. ``trace_max`` is the squared norm of the features."""
    statistic, law = mmd_law(means, covariance, trace_max)
    return statistic, law.pvalue(statistic)


def mmd_law(
    means: PrivateMeans, covariance: PrivateCovariance | None, trace_max: float
) -> tuple[float, QuadraticLaw]:
    """Return the statistic t and its null law.

    Without a covariance its moments are bounded from the means, which costs power and never the level.
    """
    moments = (
        bounded_moments(means, trace_max) if covariance is None else covariance_moments(covariance, trace_max)
    )
    spectrum = heavy_spectrum(moments, means.dimension)
    trace = float(spectrum.eigenvalues @ np.array(spectrum.multiplicities))
    weights = _weights(means, trace)
    centre = weights @ means.means / weights.sum()
    statistic = float(weights @ np.sum((means.means - centre) ** 2, axis=1))
    contrast = _contrast(weights)
    guard = rare_guard(means, float(spectrum.eigenvalues[0]), trace, trace_max)
    values: list[float] = []
    degrees: list[int] = []
    for eigenvalue, multiplicity, raised in _guarded(spectrum):
        root = np.sqrt((eigenvalue + raised * guard) / means.units + means.noise**2)
        quadratic = contrast * np.outer(root, root)
        values += [float(v) for v in np.linalg.eigvalsh(quadratic)[1:]]
        degrees += [multiplicity] * (means.owners - 1)
    return statistic, QuadraticLaw(np.array(values), np.array(degrees))


def _guarded(spectrum: Spectrum) -> list[tuple[float, int, bool]]:
    """Return eigenvalues with how often each occurs, and whether it is the one that is raised."""
    (top, *rest), (count, *counts) = spectrum.eigenvalues.tolist(), spectrum.multiplicities
    found = [
        (top, 1, True),
        (top, count - 1, False),
        *((v, c, False) for v, c in zip(rest, counts, strict=True)),
    ]
    return [part for part in found if part[1] > 0]


Progress = Callable[[float], None]


def _quadratic(means: FloatMatrix, means_like: PrivateMeans, covariance: PrivateCovariance) -> float:
    inflation = covariance.noise * np.sqrt(2 * means_like.dimension)
    values, vectors = np.linalg.eigh(covariance.matrix)
    values = np.maximum(values, 0.0) + inflation
    spread = values[None, :] / means_like.units[:, None] + (means_like.noise**2)[:, None]
    rotated = means @ vectors
    weights = 1.0 / spread
    centre = np.sum(weights * rotated, axis=0) / weights.sum(axis=0)
    return float(np.sum(weights * (rotated - centre) ** 2))


def _symmetric_noise(dimension: int, noise: float, rng: np.random.Generator) -> FloatMatrix:
    draw = rng.standard_normal((dimension, dimension)) * (noise / np.sqrt(2))
    upper = np.triu(draw, 1)
    return np.asarray(upper + upper.T + np.diag(rng.standard_normal(dimension) * noise))


def _sampled_covariance(root: FloatMatrix, degrees: float, rng: np.random.Generator) -> FloatMatrix:
    # Bartlett's decomposition: a Wishart matrix with `degrees` degrees of freedom, in J^2 normals.
    dimension = len(root)
    lower = np.tril(rng.standard_normal((dimension, dimension)), -1)
    lower += np.diag(np.sqrt(rng.chisquare(np.maximum(degrees - np.arange(dimension), 1.0))))
    factor = root @ lower
    return np.asarray(factor @ factor.T / degrees)


REPLICATE_WORK = 5000
"""Simulated numbers that take as long as what a replicate of noise_aware_test takes at any size."""


def simulated_test_work(owners: int, dimension: int) -> float:
    """Return the work of a replicate of noise_aware_test, which factors a matrix, in simulated numbers."""
    return REPLICATE_WORK + dimension**2 * (dimension + owners)


def noise_aware_test(
    means: PrivateMeans,
    covariance: PrivateCovariance,
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Progress | None = None,
    *,
    trace_max: float = 1.0,
) -> tuple[float, float, FloatVector]:
    """Return the statistic s, its p-value and the simulated null, (replicates,).

    ``trace_max`` is the squared norm of the features. One child of ``seed`` per replicate, so that the result
    does not depend on how replicates are grouped.
    """
    rare = RARE_UNITS * trace_max / means.units**2
    means = replace(means, noise=np.sqrt(means.noise**2 + rare))
    statistic = _quadratic(means.means, means, covariance)
    positive = covariance.positive_part()
    values, vectors = np.linalg.eigh(positive)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    degrees = max(covariance.units - means.owners, 1.0)
    null = np.empty(replicates)
    for replicate in range(replicates):
        # Not seed.spawn, which counts its children: the same seed must give the same null twice.
        child = np.random.SeedSequence(seed.entropy, spawn_key=(*seed.spawn_key, replicate))
        rng = np.random.default_rng(child)
        sampling = rng.standard_normal(means.means.shape) @ root.T / np.sqrt(means.units)[:, None]
        drawn = sampling + rng.standard_normal(means.means.shape) * means.noise[:, None]
        matrix = _sampled_covariance(root, degrees, rng)
        matrix += _symmetric_noise(means.dimension, covariance.noise, rng)
        fresh = PrivateCovariance(matrix, covariance.noise, covariance.units)
        null[replicate] = _quadratic(drawn, means, fresh)
        if progress is not None and replicate % 50 == 0:
            progress(replicate / replicates)
    pvalue = (1 + int(np.sum(null >= statistic))) / (replicates + 1)
    return statistic, pvalue, null


def additive_variances(features: AdditiveFeatures, means: PrivateMeans) -> FloatMatrix:
    """Bound the variance of every coordinate of one unit's additive features, for every owner, (k, J).

    ``means`` are all owners' (under the null hypothesis they share one distribution, so they are pooled).
    """
    shares = (1 - features.choice.pair_share, features.choice.pair_share)
    pooled, noise = means.pooled(), means.pooled_noise()
    block = features.column_wise
    scales = np.sqrt(shares[0]) * np.array([c.scale for c in block.coordinates])
    known = _Known(block.coordinates, pooled[: block.dimension] / scales, noise / scales)
    moments = known.moments()
    variances = [_variances(known.raw, moments, scales, noise, means)]
    if features.pairwise is not None:
        pair_scales, pair_moments = _pair_moments(features, known, moments)
        pair_scales = pair_scales * np.sqrt(shares[1] / len(features.pairwise.pairs))
        raw = pooled[block.dimension :] / pair_scales
        variances.append(_variances(raw, pair_moments, pair_scales, noise, means))
    return np.concatenate(variances, axis=1)


@dataclass(frozen=True)
class _Known:
    """The means of raw coordinates, (J,), and by how much each is rounded up for its noise."""

    coordinates: tuple[Coordinate, ...]
    raw: FloatVector
    slack: FloatVector

    @cached_property
    def index(self) -> dict[tuple[int, str, float], int]:
        """The places of polynomials and waves, by column, part and frequency."""
        return {(c.column, c.part, c.cycles): i for i, c in enumerate(self.coordinates)}

    def moments(self) -> FloatVector:
        """Bound the mean of every squared coordinate, (J,)."""
        moments = np.ones(len(self.coordinates))
        for i, coordinate in enumerate(self.coordinates):
            if coordinate.part == "category":
                moments[i] = self.raw[i] + self.slack[i]
            elif coordinate.part in ("P1", "P2"):
                moments[i] = self.polynomial_moment(coordinate)
            else:
                moments[i] = self.wave_moment(coordinate)
        return np.clip(moments, 0.0, 1.0)

    def polynomial_moment(self, coordinate: Coordinate) -> float:
        """Bound the mean of t^2, or of P2's square, from P2's mean."""
        second = self.index[coordinate.column, "P2", 0.0]
        upper = float(self.raw[second] + self.slack[second])
        return (1 + 2 * upper) / 3 if coordinate.part == "P1" else (1 + upper) / 2

    def wave_moment(self, coordinate: Coordinate) -> float:
        """Bound the mean of a squared cosine or sine whose double, or partner, is among the coordinates."""
        index = self.index
        doubled = index.get((coordinate.column, "cos", 2 * coordinate.cycles))
        raw, slack = self.raw, self.slack
        if doubled is not None:
            sign = 1.0 if coordinate.part == "cos" else -1.0
            return float(1 + sign * raw[doubled] + slack[doubled]) / 2
        other = "sin" if coordinate.part == "cos" else "cos"
        partner = index.get((coordinate.column, other, coordinate.cycles))
        if partner is None:
            return 1.0
        return float(1 - max(0.0, abs(raw[partner]) - slack[partner]) ** 2)


def _pair_moments(
    features: AdditiveFeatures, known: _Known, moments: FloatVector
) -> tuple[FloatVector, FloatVector]:
    """Scales (before division by the root of the number of pairs) and moments of the pairwise coordinates."""
    assert features.pairwise is not None  # noqa: S101 (the caller checked; this tells the type checker)
    cycles = features.choice.pair_cycles
    parts: list[tuple[FloatVector, FloatVector]] = []
    for column, (start, stop) in enumerate(features.column_groups):
        if column < features.numeric:
            waves = [Coordinate(column, part, cycle, 1.0) for cycle in cycles for part in ("cos", "sin")]
            found = np.clip([known.wave_moment(wave) for wave in waves], 0.0, 1.0)
            parts.append((np.full(2 * len(cycles), 1 / np.sqrt(len(cycles))), found))
        else:
            parts.append((np.ones(stop - start), moments[start:stop]))
    scales, bounds = [], []
    for a, b in features.pairwise.pairs:
        scales.append(np.multiply.outer(parts[a][0], parts[b][0]).ravel())
        bounds.append(np.minimum.outer(parts[a][1], parts[b][1]).ravel())
    return np.concatenate(scales), np.concatenate(bounds)


def _variances(
    raw: FloatVector, moments: FloatVector, scales: FloatVector, noise: float, means: PrivateMeans
) -> FloatMatrix:
    certain = np.maximum(0.0, np.abs(raw) - noise / scales)
    variances = np.clip(moments - certain**2, 0.0, 1.0)
    return np.asarray((variances + RARE_UNITS / means.units[:, None]) * scales**2)


@dataclass(frozen=True)
class CoordinateFamily:
    """Coordinates that answer one kind of question, in groups that carry names.

    ``groups`` holds (name, first coordinate, one past the last); ``share`` is the part of the level that
    the family may use (shares of all families add to 1).
    """

    name: str
    groups: tuple[tuple[str, int, int], ...]
    share: float


@dataclass(frozen=True)
class GroupResult:
    """One group's p-value, adjusted for every other group of its family (Holm) and for the other families."""

    family: str
    name: str
    pvalue: float


def coordinate_pvalues(
    means: PrivateMeans, variances: FloatVector | FloatMatrix
) -> tuple[FloatVector, FloatVector]:
    """Return Q_j and its p-values, (J,) each.

    ``variances`` are those of one unit's coordinates: (J,), or (k, J) where they are bounded for each owner.
    """
    spread = variances / means.units[:, None] + (means.noise**2)[:, None]
    weights = 1.0 / spread
    centre = np.sum(weights * means.means, axis=0) / weights.sum(axis=0)
    statistic = np.sum(weights * (means.means - centre) ** 2, axis=0)
    pvalues = chdtrc(means.owners - 1, statistic)
    return statistic, np.asarray(np.maximum(pvalues, PVALUE_MIN))


def max_test(
    means: PrivateMeans, variances: FloatVector | FloatMatrix, families: Sequence[CoordinateFamily]
) -> tuple[float, float, tuple[GroupResult, ...]]:
    """Return the largest Q_j, the overall p-value, and every group's adjusted p-value.

    The overall p-value is the smallest of the families' Sidak p-values, each divided by its share.
    """
    statistic, pvalues = coordinate_pvalues(means, variances)
    overall, results = 1.0, []
    for family in families:
        start, stop = family.groups[0][1], family.groups[-1][2]
        smallest = float(pvalues[start:stop].min())
        overall = min(overall, sidak(smallest, stop - start) / family.share)
        groups = np.array([sidak(float(pvalues[a:b].min()), b - a) for _, a, b in family.groups])
        adjusted = np.minimum(1.0, holm(groups) / family.share)
        results += [
            GroupResult(family.name, name, float(p))
            for (name, _, _), p in zip(family.groups, adjusted, strict=True)
        ]
    return float(statistic.max()), overall, tuple(results)


INVERSION_ERROR = 1e-7
"""Added to p-values under K-norm noise: more than what the inversion of their law is wrong by."""

FINEST = 120.0
"""Turns, over a standard deviation, at which the series ends: what is left out is below INVERSION_ERROR also
for one coordinate, whose law has a kink."""

FURTHEST = 40.0
"""Standard deviations beyond which a p-value under K-norm noise is INVERSION_ERROR: no law here reaches so
far with a probability near it."""


class NoiseLaw(Protocol):
    """What noise on coordinates is like: a kind of law for each; KNormLaw is one, LaplaceSums another."""

    @property
    def kinds(self) -> Sequence[int]:
        """The kind of every coordinate's noise."""

    def standard_characteristic(self, kind: int, t: FloatVector) -> FloatVector:
        """Return E cos(t N) at values of t >= 0, N noise of a kind divided by its standard deviation."""


@dataclass(frozen=True)
class LaplaceSums:
    """Sums of Laplace noises, of which the kind says how many: continuous, as grids are fine."""

    kinds: tuple[int, ...]

    def standard_characteristic(self, kind: int, t: FloatVector) -> FloatVector:
        """Return (1 + t^2 / (2 m))^-m of m noises."""
        return np.asarray(np.exp(-kind * np.log1p(t**2 / (2 * kind))))


def k_norm_tail(threshold: float, variance: float, law: NoiseLaw, kind: int, scales: FloatVector) -> float:
    """Return P(|X + sum_g s_g N_g| > c), X normal of that variance, N_g noise of a kind with deviation 1.

    By the Fourier series of the density folded into [-L, L]; what is folded in has probability below 1e-11.
    """
    deviation = float(np.sqrt(variance + scales @ scales))
    if threshold > FURTHEST * deviation:
        return INVERSION_ERROR
    reach = max(threshold, threshold / 2 + 20 * float(np.abs(scales).sum()) + 8 * float(np.sqrt(variance)))
    turns = np.pi / reach * np.arange(1, int(np.ceil(FINEST * reach / (np.pi * deviation))) + 1)
    transform: FloatVector = np.exp(-variance * turns**2 / 2)
    for scale in scales:
        transform = transform * law.standard_characteristic(kind, np.abs(turns * scale))
    inside = threshold / reach + 2 / reach * float((transform / turns) @ np.sin(turns * threshold))
    return float(np.clip(1 - inside, 0.0, 1.0)) + INVERSION_ERROR


def cell_variances(cells: CellsOfColumns, means: PrivateMeans) -> FloatMatrix:
    """Bound the variance of every contrast of one unit's cells, for every owner, (k, K); 0 of all else.

    ``means`` are all owners', pooled as in :func:`additive_variances`. A contrast c of cells has the variance
    E c^2 - (E c)^2, whose first term is another sum of the same noisy cells; a number's deviation is at most
    that of its cells' middles and of what it is within a cell.
    """
    scales = np.array([coordinate.scale for coordinate in cells.coordinates])
    raw, slack = means.pooled() / scales, means.pooled_noise() / scales
    variances = np.zeros((means.owners, means.dimension))
    for contrast in (own for group in cells.groups for own in group.contrasts):
        squares = np.square(contrast.coefficients)
        held = slice(contrast.start, contrast.start + len(squares))
        even = float(squares.mean()) if contrast.whole else 0.0
        uneven = squares - even
        moment = even + float(uneven @ raw[held] + np.linalg.norm(uneven) * slack[contrast.start])
        centre, error = float(raw[contrast.place]), float(slack[contrast.place])
        if contrast.square is not None:
            moment = float(1 + 2 * (raw[contrast.square] + slack[contrast.square])) / 3
        elif contrast.spread:
            centre, error = float(np.array(contrast.coefficients) @ raw[held]), float(slack[contrast.place])
        found = max(0.0, moment - max(0.0, abs(centre) - error) ** 2)
        if contrast.square is None:
            found = (math.sqrt(found) + contrast.spread) ** 2
        largest = float(squares.max())
        within = max(largest, 1.0) if contrast.spread else largest
        rare = RARE_UNITS * within / means.units
        variances[:, contrast.place] = (min(found, within) + rare) * scales[contrast.place] ** 2
    return variances


def k_norm_pvalues(
    means: PrivateMeans, variances: FloatMatrix, law: NoiseLaw, places: Sequence[int], least: float = 0.0
) -> tuple[float, FloatVector]:
    """Return the largest squared z-score, and the p-value of the coordinate at every place.

    Every owner is compared with the average of the others, of two owners one with the other, and the smallest
    p-value is multiplied by how many comparisons there are. That of z-scores below ``least`` counts as 1.
    """
    sampling = variances / means.units[:, None]
    weights = 1 / ((means.noise**2)[:, None] + sampling)
    count = 1 if means.owners == 2 else means.owners
    statistic, pvalues = 0.0, np.ones(len(places))
    for owner in range(count):
        others = np.where(np.arange(means.owners)[:, None] == owner, 0.0, weights)
        contrast = -others / others.sum(axis=0)
        contrast[owner] = 1.0
        differences = np.abs(np.sum(contrast * means.means, axis=0))
        spread = np.sum(contrast**2 * sampling, axis=0)
        noise = contrast * means.noise[:, None]
        squares = differences**2 / (spread + np.sum(noise**2, axis=0))
        for number in np.flatnonzero(squares[list(places)] >= least**2).tolist():
            place = places[number]
            kind = law.kinds[place]
            tail = k_norm_tail(float(differences[place]), float(spread[place]), law, kind, noise[:, place])
            pvalues[number] = min(pvalues[number], count * tail)
        statistic = max(statistic, float(squares[list(places)].max()))
    return statistic, pvalues


FINE_WIDTHS = (1, 2, 4, 8, 16)
"""Fine cells in either half of a fine contrast, the sum of so many less that of as many after them."""

FINE_LEVEL = 0.1
"""Part of a numeric column's level that goes to its fine contrasts, where there are any."""

FINE_RARE = 25.0
"""Units of an owner by whose weight the variances of fine contrasts are rounded up. Tested at levels down to
INVERSION_ERROR they need more than RARE_UNITS: where a normal law of the variance v + r stands for a count of
variance v, skewness and kurtosis ask for r = z^4 / 36 + z^2 / 12 at the two-sided quantile z, 25 at 1e-7."""

FINE_Z = 3.0
"""Smaller z-scores of fine contrasts are not looked at: at their part of the level they never count."""


def fine_pvalues(fine: PrivateMeans) -> tuple[float, FloatVector]:
    """Return the largest squared z-score of fine contrasts, and a p-value for every numeric column.

    ``fine`` holds the shares of fine cells, column after column. Of each of FINE_WIDTHS the contrasts of a
    column step by half of what they cover; Bonferroni's correction, by equal parts for widths and within. The
    variance of one unit's contrast is at most its share of the cells covered, less the contrast squared.
    """
    before = np.pad(fine.means.reshape(fine.owners, -1, FINE_CELLS), ((0, 0), (0, 0), (1, 0))).cumsum(axis=2)
    columns, statistic = before.shape[1], 0.0
    found = np.ones(columns)
    for width in FINE_WIDTHS:
        starts = np.arange(0, FINE_CELLS - 2 * width + 1, width)
        first, middle, last = (
            before[:, :, starts + at].reshape(fine.owners, -1) for at in (0, width, 2 * width)
        )
        noise = math.sqrt(2 * width) * fine.noise
        contrasts = PrivateMeans(2 * middle - first - last, fine.units, noise)
        covered, slack = PrivateMeans(last - first, fine.units, noise).pooled(), contrasts.pooled_noise()
        certain = np.maximum(np.abs(contrasts.pooled()) - slack, 0.0)
        variances = np.clip(np.minimum(covered + slack, 1.0) - certain**2, 0.0, 1.0)
        bounds = variances + FINE_RARE / fine.units[:, None]
        law, places = LaplaceSums((2 * width,) * len(variances)), range(len(variances))
        largest, pvalues = k_norm_pvalues(contrasts, bounds, law, places, FINE_Z)
        smallest = pvalues.reshape(columns, -1).min(axis=1)
        found = np.minimum(found, len(FINE_WIDTHS) * len(starts) * smallest)
        statistic = max(statistic, largest)
    return statistic, found


def cells_test(
    means: PrivateMeans, cells: CellsOfColumns, fine: PrivateMeans | None = None
) -> tuple[float, float, tuple[GroupResult, ...]]:
    """Return the largest squared z-score, the overall p-value, and every group's adjusted p-value.

    Bonferroni's correction: contrasts by their shares, columns or pairs alike, and both families by theirs;
    named groups by Holm: valid whatever depends on whatever.
    """
    variances = cell_variances(cells, means)
    contrasts = [own for group in cells.groups for own in group.contrasts]
    statistic, pvalues = k_norm_pvalues(means, variances, cells.law, [own.place for own in contrasts])
    shared = pvalues / np.array([own.share for own in contrasts])
    ends = np.cumsum([0, *(len(group.contrasts) for group in cells.groups)])
    smallest = np.array([min(1.0, shared[a:b].min()) for a, b in pairwise(ends)])
    if fine is not None:
        largest, of_columns = fine_pvalues(fine)
        numeric = slice(0, len(of_columns))
        statistic = max(statistic, largest)
        smallest[numeric] = np.minimum(smallest[numeric] / (1 - FINE_LEVEL), of_columns / FINE_LEVEL)
        smallest = np.minimum(smallest, 1.0)
    overall, results = 1.0, list[GroupResult]()
    families = [("column", 0, cells.columns, 1 - PAIR_SHARE * cells.pairs)]
    if cells.pairs:
        families.append(("pair", cells.columns, len(smallest), PAIR_SHARE))
    for family, start, stop, share in families:
        own = smallest[start:stop]
        overall = min(overall, len(own) * float(own.min()) / share)
        names = [":".join(map(str, group.columns)) for group in cells.groups[start:stop]]
        adjusted = np.minimum(1.0, holm(own) / share)
        results += [GroupResult(family, name, float(p)) for name, p in zip(names, adjusted, strict=True)]
    return statistic, overall, tuple(results)


PAIRS_NAMED_MAX = 50
"""Most pairs of columns that a verdict names, those that differ most; all columns are named."""


class TestedHypothesis(StrictModel):
    """One of several hypotheses tested together: which, its adjusted p-value, and the decision.

    ``names`` holds the two owners, or the columns: one, or two whose dependence is compared. ``pvalue`` is
    adjusted after Holm, so that it may be compared with the level as it is. For owners ``estimate`` is their
    squared MMD, 0 where ``estimate_unbiased`` is negative, and ``interval`` contains it.
    """

    pvalue: Annotated[float, PVALUE]
    reject: Annotated[bool, REJECTED]

    @property
    def names(self) -> tuple[str, ...]:
        """Two owners, or columns."""
        raise NotImplementedError

    @property
    def estimate(self) -> float | None:
        """Of two owners, their squared MMD."""
        return None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of two owners, that of their squared MMD."""
        return None

    @property
    def estimate_unbiased(self) -> float | None:
        """Of two owners, their squared MMD before it is cut at 0."""
        return None

    def __str__(self) -> str:
        verb = "differ" if self.reject else "no difference shown"
        return f"{' and '.join(self.names)}: {verb} (p = {self.pvalue:.3g})"


class ComparedFeatures(TestedHypothesis):
    """A column or a pair of columns: p-value adjusted for all of them (Holm)."""

    kind: Literal["column", "pair"]
    columns: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns."""
        return self.columns


def additive_families(features: AdditiveFeatures) -> tuple[CoordinateFamily, ...]:
    """Return the family of columns and, where there are pairs, that of pairs; groups carry indices."""
    groups = tuple((str(i), start, stop) for i, (start, stop) in enumerate(features.column_groups))
    share = features.choice.pair_share
    columns = CoordinateFamily("column", groups, 1.0 - share)
    if not features.pair_groups:
        return (columns,)
    pairs = tuple((f"{a}:{b}", start, stop) for a, b, start, stop in features.pair_groups)
    return columns, CoordinateFamily("pair", pairs, share)


def named_groups(domain: Domain, groups: Sequence[GroupResult], level: float) -> tuple[ComparedFeatures, ...]:
    """Name every column's result, and the PAIRS_NAMED_MAX strongest of the pairs'."""
    names = [column.name for column in domain.numeric]
    names += [column.name for column in domain.categorical]
    named = [
        ComparedFeatures(
            kind="column" if group.family == "column" else "pair",
            columns=tuple(names[int(index)] for index in group.name.split(":")),
            pvalue=group.pvalue,
            reject=group.pvalue <= level,
        )
        for group in groups
    ]
    columns = [group for group in named if group.kind == "column"]
    pairs = sorted((group for group in named if group.kind == "pair"), key=lambda group: group.pvalue)
    return tuple(columns + pairs[:PAIRS_NAMED_MAX])


def max_null(features: AdditiveFeatures, owners: int, statistic: float, level: float) -> Null:
    """Return the null of the max form; each family of coordinates has its own part of the level."""
    families, criticals = additive_families(features), []
    for family in families:
        count = family.groups[-1][2] - family.groups[0][1]
        each = -np.expm1(np.log1p(-level * family.share) / count)
        of = f"{family.name}s" if len(families) > 1 else ""
        criticals.append(Critical(chi_square_quantile(owners - 1, each), of))
    return largest_of(features.dimension, owners - 1, statistic, tuple(criticals))
