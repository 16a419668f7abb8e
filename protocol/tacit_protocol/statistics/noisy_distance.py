"""The squared distance of two means of which one or both carry privacy noise, against its null distribution.

Both are means of features psi with |psi| <= 1 over units of one population with covariance Sigma, so that
d = m_x - m_y is nearly normal with covariance a Sigma, a = 1/n_x + 1/n_y, plus the noises. Nothing but the
means was released: Sigma's spectrum is taken from points that stand for the population (``database_spread``)
or from a table at hand (``sample_spread``), which is approximate; proved_distance.py needs no spectrum. |d|^2
is then a weighted sum of chi-squares with weights a lambda_j + b, b the variance of both noises; with
Laplace noise its law is simulated.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit_protocol.nulls.weighted_chi_square import survival
from tacit_protocol.statistics.mmd_estimate import Moments
from tacit_protocol.statistics.private_means import FloatMatrix, FloatVector, PrivateMeans

SLACK = 2.0
"""Standard deviations by which |mu|^2 is rounded down, for the noise and the sampling in it."""

DRAWS = 9999
"""Draws of a null that has no closed form: its p-values are 1e-4 or more."""

DRAWS_AT_ONCE = 1000
"""Draws held in memory together."""

SEED = 31
"""Of these draws: the same question gets the same answer."""


@dataclass(frozen=True)
class Noise:
    """Noise on each coordinate of a mean: its standard deviation and its law."""

    scale: float
    law: Literal["gaussian", "laplace"] = "gaussian"


@dataclass(frozen=True)
class Spread:
    """What is known of the units' covariance: spectra (dimension,), one of which is no more favourable."""

    spectra: tuple[FloatVector, ...]

    @property
    def moments(self) -> Moments:
        """Trace, energy and largest eigenvalue: the largest of each over the spectra."""
        traces = [float(s.sum()) for s in self.spectra]
        energies = [float(s @ s) for s in self.spectra]
        return Moments(max(traces), max(energies), max(float(s.max()) for s in self.spectra))


def trace_bound(means: PrivateMeans) -> float:
    """Bound the trace of the units' covariance: 1 - |mu|^2, with |mu|^2 rounded down by ``SLACK`` errors."""
    pooled, noise = means.pooled(), means.pooled_noise()
    units, dimension = float(means.units.sum()), means.dimension
    energy = float(np.clip(pooled @ pooled - dimension * noise**2 - 1 / units, 0.0, 1.0))
    error = np.sqrt(4 * energy * (noise**2 + 1 / units) + 2 * dimension * noise**4)
    return float(np.clip(1.0 - energy + SLACK * error, 1e-9, 1.0))


def bounded_spread(means: PrivateMeans) -> Spread:
    """Return spectra that share the largest trace allowed by the means among 1, 4, 16, ... eigenvalues."""
    trace, dimension = trace_bound(means), means.dimension
    counts = sorted({min(4**power, dimension) for power in range(dimension.bit_length() + 1)})
    spectra = []
    for count in counts:
        spectrum = np.zeros(dimension)
        spectrum[:count] = trace / count
        spectra.append(spectrum)
    return Spread(tuple(spectra))


def database_spread(features: FloatMatrix, weights: FloatVector, means: PrivateMeans) -> Spread:
    """Return the spectrum of points with probability weights, scaled up to the largest trace allowed.

    ``features`` is (points, dimension), ``weights`` (points,).
    """
    mean = features.T @ weights
    covariance = (features * weights[:, None]).T @ features - np.outer(mean, mean)
    spectrum = np.maximum(np.linalg.eigvalsh(covariance), 0.0)
    total = float(spectrum.sum())
    if total <= 1e-12:
        return bounded_spread(means)
    return Spread((np.asarray(spectrum * max(1.0, trace_bound(means) / total)),))


def sample_spread(covariance: FloatMatrix, rows: int) -> Spread:
    """Return the spectrum of a sample's covariance, its trace rounded up by its standard error.

    ``covariance`` is (dimension, dimension), from ``rows`` rows.
    """
    spectrum = np.maximum(np.linalg.eigvalsh((covariance + covariance.T) / 2), 0.0)
    total = float(spectrum.sum())
    if total <= 1e-12:
        return Spread((np.full(len(spectrum), 1e-12),))
    error = float(np.sqrt(2 * float(spectrum @ spectrum) / rows)) / total
    return Spread((np.asarray(spectrum * (1 + error)),))


def distance_pvalue(
    statistic: float, share: float, noises: tuple[Noise, ...], spread: Spread, dimension: int
) -> float:
    """Return the probability of a squared distance at least as large, under one population.

    Args:
        statistic: |d|^2.
        share: a = 1/n_x + 1/n_y.
        noises: of each mean that has any.
        spread: of the units.
        dimension: number of coordinates.
    """
    variance = sum(noise.scale**2 for noise in noises)
    if all(noise.law == "gaussian" for noise in noises):
        return max(_exact(statistic, share * spectrum + variance) for spectrum in spread.spectra)
    return max(_simulated(statistic, share * spectrum, noises, dimension) for spectrum in spread.spectra)


def _exact(statistic: float, values: FloatVector) -> float:
    weights, degrees = np.unique(values, return_counts=True)
    return survival(statistic, weights, degrees=degrees)


def _simulated(statistic: float, variances: FloatVector, noises: tuple[Noise, ...], dimension: int) -> float:
    above = sum(int(np.sum(norms >= statistic)) for norms in _squared_norms(noises, dimension, variances))
    return (1 + above) / (DRAWS + 1)


def noise_norms(noises: tuple[Noise, ...], dimension: int) -> FloatVector:
    """Simulate the norm of the sum of the noises ``DRAWS`` times, in rising order."""
    return np.sort(np.sqrt(np.concatenate(list(_squared_norms(noises, dimension, np.zeros(dimension))))))


def _squared_norms(
    noises: tuple[Noise, ...], dimension: int, variances: FloatVector
) -> Iterator[FloatVector]:
    """Yield ``DRAWS`` squared norms of normal vectors with these variances (dimension,) plus the noises."""
    rng, left = np.random.default_rng(SEED), DRAWS
    while left > 0:
        count = min(left, DRAWS_AT_ONCE)
        drawn = rng.standard_normal((count, dimension)) * np.sqrt(variances)
        for noise in noises:
            if noise.law == "gaussian":
                drawn += noise.scale * rng.standard_normal((count, dimension))
            else:
                drawn += rng.laplace(0.0, noise.scale / np.sqrt(2), (count, dimension))
        yield np.sum(drawn**2, axis=1)
        left -= count
