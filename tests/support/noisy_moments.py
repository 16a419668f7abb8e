"""Noisy means and covariances of owners, simulated under known distributions."""

import numpy as np

from tacit_protocol.procedures.means.private_means import (
    FloatMatrix,
    FloatVector,
    PrivateCovariance,
    PrivateMeans,
)


def symmetric_noise(dimension: int, noise: float, rng: np.random.Generator) -> FloatMatrix:
    """Noise of standard deviation ``noise`` on the diagonal and ``noise`` / sqrt 2 beside it."""
    upper = np.triu(rng.standard_normal((dimension, dimension)) * noise / np.sqrt(2), 1)
    return np.asarray(upper + upper.T + np.diag(rng.standard_normal(dimension) * noise))


def null_means(
    spectrum: FloatVector, units: FloatVector, noise: FloatVector, rng: np.random.Generator
) -> PrivateMeans:
    """Means of owners whose units share one normal distribution, in an eigenbasis of its covariance."""
    sampling = rng.standard_normal((len(units), len(spectrum))) * np.sqrt(spectrum) / np.sqrt(units)[:, None]
    return PrivateMeans(sampling + rng.standard_normal(sampling.shape) * noise[:, None], units, noise)


def noisy_covariance(
    spectrum: FloatVector, units: FloatVector, noise: float, rng: np.random.Generator
) -> PrivateCovariance:
    """The diagonal covariance with noise in it; sampling error is left out."""
    matrix = np.diag(spectrum) + symmetric_noise(len(spectrum), noise, rng)
    return PrivateCovariance(matrix, noise, float(units.sum()))


def spectra(dimension: int) -> dict[str, FloatVector]:
    """Eigenvalues with traces up to 1: one or two dominant, geometric, slow decay, flat."""
    index = np.arange(1, dimension + 1)
    shapes = {
        "flat": np.ones(dimension),
        "one": np.where(index == 1, dimension, 0.5),
        "two": np.where(index <= 2, dimension / 2, 0.2),
        "three levels": np.where(index == 1, 15.0, np.where(index == 2, 8.0, 0.5)),
        "geometric": 0.5**index,
        "powers": index**-1.5,
        "singular": np.where(index <= (dimension + 1) // 2, 1.0, 0.0),
    }
    return {name: 0.7 * shape / shape.sum() for name, shape in shapes.items()}
