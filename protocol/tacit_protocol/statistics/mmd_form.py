"""The MMD form: the squared distance between noisy means, against its exact null distribution.

Null hypothesis: all owners' units come from one distribution, with feature covariance Sigma. The statistic
is t = sum_g w_g |m_g - m_w|^2 with w_g = 1 / (tr Sigma / (n_g J) + sigma_g^2) and m_w the weighted centre;
for two owners it is proportional to |m_x - m_y|^2. In an eigenbasis of Sigma, coordinate j of owner g is
N(., lambda_j / n_g + sigma_g^2), and t is a quadratic form whose weights are, for every lambda_j, the k - 1
nonzero eigenvalues of D^(1/2) A D^(1/2), D = diag(lambda_j / n_g + sigma_g^2), A = diag(w) - w w' / sum w.

Sigma is known through noise. Its trace T and energy F^2 = |Sigma|_F^2 are estimated without bias and rounded
up; its largest eigenvalue L is bounded by the noisy matrix's and by F. Two-moment (gamma) laws are liberal
when few eigenvalues dominate; the null used here has the heaviest spectrum of its kind: as many eigenvalues
at L as T and F^2 allow, the rest equal.

A sum of few rare units is no normal variable: its upper tail is that of a Poisson count. So every owner's
largest variance is raised by the weight of a few units more (rare_guard, in private_means.py).
"""

from dataclasses import dataclass

import numpy as np

from tacit_protocol.nulls.quadratic_law import QuadraticLaw
from tacit_protocol.statistics.mmd_estimate import Moments
from tacit_protocol.statistics.private_means import (
    FloatMatrix,
    FloatVector,
    PrivateCovariance,
    PrivateMeans,
    rare_guard,
)


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
