"""What a tester knows of each owner, a noisy mean and perhaps a second moment, and what follows from them.

*Squared MMD* of two owners: |d|^2 less a tr Sigma and b J, a = 1/n_x + 1/n_y, b = sigma_x^2 + sigma_y^2; the
interval holds the MMD^2 within so many standard deviations, its lower end by the quantile of a gamma law.

*MMD form*: t = sum_g w_g |m_g - m_w|^2, w_g = 1 / (tr Sigma / (n_g J) + sigma_g^2), against the quadratic
form of the heaviest spectrum that trace, energy and largest eigenvalue of Sigma allow, each rounded up for
its noise.

*Noise-aware form*: s = sum_g (m_g - c)' V_g^-1 (m_g - c), V_g = (P + c_0 I) / n_g + r_g^2 I, P the noisy
pooled covariance on the positive semidefinite cone; its null is simulated through the same steps, p = (1 +
#{s* >= s}) / (B + 1).

Rare units are guarded against by :func:`rare_guard`. Derivations: docs/mathematics/kernel-two-sample.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy.special import gammaincinv, ndtri

from tacit_protocol.numerics.quadratic_forms import QuadraticLaw

FloatVector = npt.NDArray[np.float64]
FloatMatrix = npt.NDArray[np.float64]

RARE_UNITS = 2.0
"""Units of an owner by whose weight its variances are rounded up: a Poisson count of about one has heavier
tails than a normal law of its variance. Two more in each owner's own variance kept the level in
simulations (docs/mathematics/kernel-two-sample.md); two shared by all owners did not, where a small owner
met a large one."""


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


def covariance_moments(covariance: PrivateCovariance, trace_max: float = 1.0, slack: float = 1.0) -> Moments:
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


def bounded_moments(means: PrivateMeans, trace_max: float = 1.0, slack: float = 3.0) -> Moments:
    """Bound the covariance's moments from the means alone: a single eigenvalue, as large as it can be.

    tr Sigma = E|f|^2 - |m|^2 is at most ``trace_max`` - |m|^2; |m|^2 is estimated from the pooled noisy mean,
    less its noise and sampling in expectation, and rounded down by ``slack`` standard deviations.
    """
    dimension, noise, units = means.dimension, means.pooled_noise(), float(means.units.sum())
    size = float(np.sum(means.pooled() ** 2)) - dimension * noise**2 - trace_max / units
    spread = 2 * dimension * noise**4 + 4 * max(size, 0.0) * (noise**2 + trace_max / units)
    size -= slack * float(np.sqrt(spread))
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
    means: PrivateMeans, covariance: PrivateCovariance | None, trace_max: float = 1.0
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
