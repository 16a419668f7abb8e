"""Does noise have the law it states? Chi-square in cells, variance, and the correlation of neighbours.

Every test is asked at ``LEVEL``, so that right noise is never called wrong, and with so many draws that noise
5 % too narrow or too wide is always called so.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.stats import chi2, laplace, norm

Floats = npt.NDArray[np.float64]

LEVEL = 1e-9
"""False alarm of one test: some hundred tests a run, so 1e-7 in all."""

DRAWS_MIN = {"gaussian": 30_000, "laplace": 80_000}
"""Draws with which a scale that is 5 % off is missed with a probability below 1e-8: the relative error of a
variance is sqrt((kurtosis - 1) / draws), 0.8 % for both."""

CELLS = 40

QUANTILES: dict[str, Callable[[Floats], Floats]] = {"gaussian": norm.ppf, "laplace": laplace.ppf}
VARIANCES = {"gaussian": 1.0, "laplace": 2.0}
KURTOSES = {"gaussian": 3.0, "laplace": 6.0}


def wrong_in(mechanism: str, noise: Floats) -> list[str]:
    """Say what is wrong with draws, (draws,), of noise divided by its stated scale."""
    if len(noise) < DRAWS_MIN[mechanism]:
        raise ValueError("too few draws to tell a scale that is 5 % off")
    tests = {"cells": cells, "variance": variance, "correlation": correlation}
    return [name for name, test in tests.items() if test(mechanism, noise) < LEVEL]


def cells(mechanism: str, noise: Floats) -> float:
    """Pearson's chi-square p-value over cells of equal probability."""
    edges = QUANTILES[mechanism](np.linspace(0, 1, CELLS + 1)[1:-1])
    counts = np.bincount(np.searchsorted(edges, noise), minlength=CELLS)
    expected = len(noise) / CELLS
    return float(chi2.sf(np.sum((counts - expected) ** 2) / expected, CELLS - 1))


def variance(mechanism: str, noise: Floats) -> float:
    """P-value of the mean square: exact for Gaussian noise, by the normal limit for Laplace noise."""
    if mechanism == "gaussian":
        total = np.sum(noise**2)
        return float(2 * min(chi2.sf(total, len(noise)), chi2.cdf(total, len(noise))))
    spread = np.sqrt((KURTOSES[mechanism] - 1) / len(noise))
    return float(2 * norm.sf(abs(np.mean(noise**2) / VARIANCES[mechanism] - 1) / spread))


def correlation(mechanism: str, noise: Floats) -> float:
    """P-value of the correlation between draws that follow each other: 0 if one draw serves twice."""
    products = noise[:-1] * noise[1:] / VARIANCES[mechanism]
    return float(2 * norm.sf(abs(np.sum(products)) / np.sqrt(len(products))))


def wrong_in_counts(probabilities: Floats, counts: npt.NDArray[np.int64]) -> bool:
    """Say whether counts of events, the last of them "any other", contradict their probabilities."""
    expected = np.append(probabilities, 1 - probabilities.sum()) * counts.sum()
    if expected.min() < 10:
        raise ValueError("cells this rare have not their limiting law")
    return float(chi2.sf(np.sum((counts - expected) ** 2 / expected), len(counts) - 1)) < LEVEL
