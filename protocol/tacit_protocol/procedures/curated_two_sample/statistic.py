"""What a tester knows of two samples that a curator compared: a noisy difference, a centre, perhaps moments.

Every form of the test sees two noisy means through their difference, of noise variance V_d, and through the
pooled mean, here the centre. So the two means are rebuilt from d and q, with stated noises whose squares add
up to V_d.

P0's own test, s = n w'(Sigma + gamma I)^-1 w of paired differences against sum_j lambda_j chi2_1, lambda_j =
(tau_j + n sigma^2) / (tau_j + gamma), treats the noisy Sigma as exact, so that its level is not kept.
"""

from dataclasses import dataclass

import numpy as np

from tacit_protocol.features.kernels import FeatureMap
from tacit_protocol.features.moments import AdditiveFeatures
from tacit_protocol.numerics.quadratic_forms import QuadraticLaw
from tacit_protocol.procedures.means.effects import squared_lengths
from tacit_protocol.procedures.means.private_means import (
    FloatMatrix,
    FloatVector,
    GroupResult,
    MmdEstimate,
    Moments,
    PrivateCovariance,
    PrivateMeans,
    additive_families,
    additive_variances,
    covariance_moments,
    estimate_mmd,
    max_test,
)
from tacit_protocol.procedures.two_sample.statistic import MeanEmbedding, Witness, witness_at_locations


@dataclass(frozen=True)
class CuratedMeans(PrivateMeans):
    """Two samples' means as rebuilt from a difference and a centre = w_x m_x + w_y m_y, (J,) each.

    ``noise`` (2,) is a fiction in which the two means carry independent noise: right for their difference.
    ``centre_noise`` is the standard deviation of the noise on the centre, independent of the difference's.
    """

    centre: FloatVector
    centre_noise: float
    weights: tuple[float, float]

    @classmethod
    def of(
        cls,
        difference: FloatVector,
        centre: FloatVector,
        units: tuple[int, int],
        noise: tuple[float, float],
        weights: tuple[float, float],
    ) -> "CuratedMeans":
        """Build from what was released; ``noise`` is that on the difference and on the centre."""
        means = np.stack([centre + weights[1] * difference, centre - weights[0] * difference])
        half = np.full(2, noise[0] / np.sqrt(2))
        return cls(means, np.array(units, dtype=np.float64), half, centre, noise[1], weights)

    def pooled(self) -> FloatVector:
        """Return the centre: under the null hypothesis every weighting estimates one mean."""
        return self.centre

    def pooled_noise(self) -> float:
        """Return the standard deviation of the noise on a coordinate of the centre."""
        return self.centre_noise

    @property
    def difference_variance(self) -> float:
        """Variance V_d of the noise on a coordinate of the difference."""
        return float(np.sum(self.noise**2))

    @property
    def mean_variances(self) -> FloatVector:
        """True variance of the noise on a coordinate of either rebuilt mean, (2,)."""
        return np.diag(self.mean_covariance)

    @property
    def mean_covariance(self) -> FloatMatrix:
        """True covariance of the noise on a coordinate of the two rebuilt means, (2, 2)."""
        moved = np.array([self.weights[1], -self.weights[0]])
        return np.asarray(self.centre_noise**2 + self.difference_variance * np.outer(moved, moved))


def curated_covariance(means: CuratedMeans, second_moment: FloatMatrix, noise: float) -> PrivateCovariance:
    """Return the covariance within the samples, from both samples' noisy second moment, (J, J).

    ``noise`` is the standard deviation on its diagonal. Outer products of the means are corrected for their
    noise in expectation; what it adds to trace and energy is stated as noise
    (docs/mathematics/trusted-curator.md).
    """
    shares = means.units / means.units.sum()
    outer = np.einsum("g,gi,gj->ij", shares, means.means, means.means)
    outer -= float(shares @ means.mean_variances) * np.eye(means.dimension)
    matrix = second_moment - outer
    centre, difference = means.centre_noise**2, means.difference_variance
    (x, y), (w_x, w_y) = shares, means.weights
    # sum_g (n_g / N) m_g m_g' = qq' + mixed (qd' + dq') + square dd'
    mixed, square = x * w_y - y * w_x, x * w_y**2 + y * w_x**2
    length = max(0.0, float(means.centre @ means.centre) - means.dimension * centre)
    added = 4 * (centre + mixed**2 * difference) * length / means.dimension
    added += 2 * centre**2 + 2 * (square * difference) ** 2 + 4 * mixed**2 * centre * difference
    return PrivateCovariance(
        np.asarray((matrix + matrix.T) / 2), float(np.sqrt(noise**2 + added)), float(means.units.sum())
    )


def estimate_additive(means: CuratedMeans, features: AdditiveFeatures, confidence: float) -> MmdEstimate:
    """Estimate the squared MMD from additive features, whose trace follows from their norm."""
    energy = np.sum(means.means**2, axis=1) - means.dimension * means.mean_variances
    traces = np.clip(squared_lengths(features, means.means) - energy, 0.0, features.norm**2)
    trace = float(np.sum(traces / means.units) / np.sum(1 / means.units))
    return estimate_mmd(means, Moments(trace, trace**2, trace), confidence)


def estimate_moments(
    means: CuratedMeans, covariance: PrivateCovariance, trace_max: float, confidence: float
) -> MmdEstimate:
    """Estimate the squared MMD from a pooled covariance.

    The estimate takes both samples' covariances to be equal. The interval does so for samples of one size,
    whose sum the pooled one is; between others it holds for every split of the pooled trace, and for any
    covariances of those traces.
    """
    bounds = covariance_moments(covariance, trace_max)
    trace = float(np.clip(np.trace(covariance.matrix), 0.0, trace_max))
    middle = estimate_mmd(means, Moments(trace, bounds.energy, bounds.largest), confidence)
    x, y = means.units
    if x == y:
        return middle
    ends = []
    for first in (max(0.0, (trace * (x + y) - trace_max * y) / x), min(trace_max, trace * (x + y) / x)):
        second = (trace * (x + y) - first * x) / y
        weighted = float((first / x + second / y) / (1 / x + 1 / y))
        ends.append(estimate_mmd(means, Moments(weighted, weighted**2, weighted), confidence))
    return MmdEstimate(middle.squared_mmd, min(end.lower for end in ends), max(end.upper for end in ends))


def paired_law(
    mean: FloatVector, second_moment: FloatMatrix, pairs: int, noise: float, regularisation: float
) -> tuple[float, QuadraticLaw]:
    """Return s and its null law. ``noise`` is the standard deviation on a coordinate of ``mean``, (J,)."""
    values, vectors = np.linalg.eigh(second_moment - np.outer(mean, mean))
    values = np.maximum(values, 0.0)
    rotated = mean @ vectors
    statistic = float(pairs * np.sum(rotated**2 / (values + regularisation)))
    weights = (values + pairs * noise**2) / (values + regularisation)
    return statistic, QuadraticLaw(weights)


@dataclass(frozen=True)
class CuratedFinding:
    """A test of two samples, with the estimate of the squared MMD, and what it names."""

    statistic: float
    pvalue: float
    mmd: MmdEstimate
    groups: tuple[GroupResult, ...] = ()
    witness: Witness | None = None


def additive_finding(features: AdditiveFeatures, means: CuratedMeans, confidence: float) -> CuratedFinding:
    """Test by the max form, which names columns and pairs of columns."""
    variances = additive_variances(features, means)
    statistic, pvalue, groups = max_test(means, variances, additive_families(features))
    return CuratedFinding(statistic, pvalue, estimate_additive(means, features, confidence), groups)


def moment_finding(
    features: FeatureMap,
    means: CuratedMeans,
    covariance: PrivateCovariance,
    tested: tuple[float, float],
    confidence: float,
) -> CuratedFinding:
    """Return a test's statistic and p-value with estimates, on features with a second moment."""
    witness = None
    if isinstance(features, MeanEmbedding):
        difference = means.means[0] - means.means[1]
        noise = float(np.sqrt(means.difference_variance))
        witness = witness_at_locations(features, difference, covariance, means.units, noise)
    mmd = estimate_moments(means, covariance, features.norm**2, confidence)
    return CuratedFinding(*tested, mmd, witness=witness)
