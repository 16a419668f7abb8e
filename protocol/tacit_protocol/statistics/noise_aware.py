"""The noise-aware form: a Hotelling statistic whose null distribution counts the noise in the covariance.

s = sum_g (m_g - c)' V_g^-1 (m_g - c), V_g = (P + c_0 I) / n_g + r_g^2 I, with P the noisy pooled covariance
on the positive semidefinite cone, c_0 = tau sqrt(2 J) a bound on the noise's spectral norm, r_g^2 the
variance of an owner's noise and of the weight of a few units more, so that rare values do not look certain,
and c the inverse-variance weighted centre (docs/mathematics/kernel-two-sample.md). The null is simulated
through the same steps: m*_g ~ N(0, P / n_g + r_g^2 I), Sigma* = Wishart sampling of P, plus fresh noise;
p = (1 + #{s* >= s}) / (B + 1). All of it is post-processing.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from tacit_protocol.statistics.private_means import (
    RARE_UNITS,
    FloatMatrix,
    FloatVector,
    PrivateCovariance,
    PrivateMeans,
)

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
