"""How well features tell two public samples apart under a private test, with the gradient.

Features are F = psi R (psi the private test's features; R R = G, the regularised Gram matrix of ME features,
or the identity), with mean difference delta and V = Sigma_x / n_x + Sigma_y / n_y for the numbers of units
that the test will have. The difference that the test sees is psi's plus noise of variance b on every
coordinate. Two criteria, by the form of the test, with nu the variance that the form counts:

    noise-aware:  delta' (V + nu G)^-1 delta, the noncentrality of Hotelling's statistic; nu is b and the
                  bound that the form adds to the noisy covariance;
    mmd:          |d|^2 / sqrt(2 |C|_F^2), d = R^-1 delta, C = R^-1 V R^-1 + nu I, the MMD form's shift in
                  standard deviations of its null distribution; nu is b.

Jitkrittum, Szabo, Chwialkowski and Gretton (2016) maximise delta' (V + gamma I)^-1 delta, without noise
(docs/mathematics/test-locations.md).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve, eigh

from tacit_protocol.features.base import FloatMatrix

FloatVector = npt.NDArray[np.float64]
Form = Literal["mmd", "noise-aware"]

POWER_DRAWS = 4000
"""Simulated statistics behind a predicted power: a standard error of at most .008."""


@dataclass(frozen=True)
class PlannedTest:
    """The private test that is planned: its form, units, and noise, relative to the features' diameters.

    ``mean_noise`` is the standard deviation of the noise on a coordinate of the mean difference when the
    features' diameter is 1; ``moment_noise`` that on a diagonal entry of the pooled second moment when its
    diameter is 1 (the noise-aware form alone pays for it). ``whitened`` is false for P0's raw ME features.
    """

    form: Form
    units: tuple[int, int]
    mean_noise: float
    moment_noise: float
    whitened: bool = True

    def noise(self, diameter: float) -> float:
        """Return b, the variance of the noise on a coordinate of the mean difference."""
        return (self.mean_noise * diameter) ** 2

    def counted(
        self, dimension: int, diameter: float, moment_diameter: float
    ) -> tuple[float, tuple[float, float]]:
        """Return nu, the variance that the form counts, and its slopes by the two diameters."""
        variance, slope = self.noise(diameter), 2 * self.mean_noise**2 * diameter
        if self.form == "mmd":
            return variance, (slope, 0.0)
        # The noise-aware form adds the bound tau sqrt(2 J) on the noise's spectral norm to the covariance.
        inflation = (1 / self.units[0] + 1 / self.units[1]) * self.moment_noise * math.sqrt(2 * dimension)
        return variance + inflation * moment_diameter, (slope, inflation)


@dataclass(frozen=True)
class Contrast:
    """What separates two samples: delta (J,), V (J, J), G (J, J), nu, and b, as in the module."""

    difference: FloatVector
    sampling: FloatMatrix
    gram: FloatMatrix
    counted: float
    noise: float


@dataclass(frozen=True)
class Slopes:
    """A criterion's value and its derivatives: by delta (J,), V and G (J, J) symmetric, and nu."""

    value: float
    difference: FloatVector
    sampling: FloatMatrix
    gram: FloatMatrix
    counted: float


def hotelling(contrast: Contrast) -> Slopes:
    """Return delta' (V + nu G)^-1 delta and its slopes."""
    gram, counted = contrast.gram, contrast.counted
    u = cho_solve(cho_factor(contrast.sampling + counted * gram), contrast.difference)
    outer = np.outer(u, u)
    value = float(contrast.difference @ u)
    return Slopes(value, 2 * u, -outer, -counted * outer, float(-u @ gram @ u))


def mmd_shift(contrast: Contrast) -> Slopes:
    """Return delta' G^-1 delta / sqrt(2 |G^(-1/2) V G^(-1/2) + nu I|_F^2) and its slopes."""
    dimension, counted = len(contrast.gram), contrast.counted
    factor = cho_factor(contrast.gram)
    u = cho_solve(factor, contrast.difference)
    inverse = cho_solve(factor, np.eye(dimension))
    ratio = cho_solve(factor, contrast.sampling)
    trace = float(np.trace(ratio))
    energy = float(np.sum(ratio * ratio.T)) + 2 * counted * trace + counted**2 * dimension
    distance, scale = float(contrast.difference @ u), 1 / math.sqrt(2 * energy)
    by_energy = -distance / (2 * energy) * scale
    spread = ratio @ inverse
    by_sampling = by_energy * 2 * (spread + counted * inverse)
    by_gram = -scale * np.outer(u, u) - by_energy * 2 * (ratio @ spread + counted * spread)
    by_counted = by_energy * 2 * (trace + counted * dimension)
    return Slopes(distance * scale, 2 * scale * u, _symmetric(by_sampling), _symmetric(by_gram), by_counted)


CRITERIA: dict[Form, Callable[[Contrast], Slopes]] = {"mmd": mmd_shift, "noise-aware": hotelling}


def predicted_power(
    contrast: Contrast, form: Form, level: float, bias: FloatMatrix, rng: np.random.Generator
) -> float:
    """Return the chance that the test rejects, as if it knew its covariance, by simulation.

    ``bias`` (J, J) is the covariance of delta itself, which comes from finite public samples and is longer
    for it: what it adds to the statistic on average is taken off.
    """
    # In the basis of G^-1 V both V and G are diagonal: variances of psi's coordinates, and 1.
    variances, basis = eigh(contrast.sampling, contrast.gram)
    variances = np.maximum(variances, 0.0)
    weights = np.ones(len(variances)) if form == "mmd" else 1 / (variances + contrast.counted)
    shift = contrast.difference @ basis
    signal = float(weights @ shift**2)
    excess = float(weights @ np.einsum("ij,ik,kj->j", basis, bias, basis))
    shift = shift * math.sqrt(max(0.0, 1 - excess / signal)) if signal > 0 else shift
    draws = rng.standard_normal((POWER_DRAWS, len(variances))) * np.sqrt(variances + contrast.noise)
    critical = np.quantile(draws**2 @ weights, 1 - level)
    return float(np.mean((draws + shift) ** 2 @ weights > critical))


@dataclass(frozen=True)
class SampleMoments:
    """Weighted mean (J,) and covariance (J, J) of features, and how slopes by them become slopes by rows.

    Weights w add up to 1 and may be of both signs, as those of a released database are. The mean is sum w f;
    the covariance is that of the law |w| / sum |w|, so that it is never indefinite.
    """

    features: FloatMatrix
    weights: FloatVector

    @property
    def mean(self) -> FloatVector:
        """The weighted mean, (J,)."""
        return np.asarray(self.weights @ self.features)

    @property
    def covariance(self) -> FloatMatrix:
        """The covariance, (J, J)."""
        shares, centred = self._centred()
        return np.asarray((centred * shares[:, None]).T @ centred)

    def row_slopes(self, by_mean: FloatVector, by_covariance: FloatMatrix) -> FloatMatrix:
        """Return the slopes by every feature of every row, (rows, J)."""
        shares, centred = self._centred()
        slopes = np.outer(self.weights, by_mean)
        slopes += 2 * shares[:, None] * (centred @ by_covariance)
        return np.asarray(slopes)

    def _centred(self) -> tuple[FloatVector, FloatMatrix]:
        shares = np.abs(self.weights)
        shares = shares / shares.sum()
        return shares, self.features - shares @ self.features


def _symmetric(matrix: FloatMatrix) -> FloatMatrix:
    return np.asarray((matrix + matrix.T) / 2)
