"""Bounds on the distance of two noisy means dominate what is simulated, in the worst populations too."""

import numpy as np
import pytest

from tacit_protocol.procedures.embedding_release.concentration_bounds import (
    Noise,
    ProvedDistance,
    ReleasedMean,
    Sampling,
    trace_bound,
)

ROOT_2 = float(np.sqrt(2))
DIMENSION = 6


def pair_of(
    statistic: float, units: float, noise: Noise, *, sampling: Sampling = "any", length: float = 0.0
) -> ProvedDistance:
    """Two means at that squared distance, each of squared length ``length`` besides."""
    first, second = np.zeros(DIMENSION), np.zeros(DIMENSION)
    first[0], second[0] = np.sqrt(statistic) / 2, -np.sqrt(statistic) / 2
    first[1] = second[1] = np.sqrt(length)
    one, other = ReleasedMean(first, units, noise), ReleasedMean(second, units, noise)
    return ProvedDistance(one, other, ROOT_2, sampling)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("sampling", ["any", "normal"])
@pytest.mark.parametrize("scale", [0.0, 1e-9, 0.05])
@pytest.mark.parametrize("rare", [0.5, 0.01])
def test_pvalues_of_two_point_populations_are_above_their_frequency(
    sampling: Sampling, scale: float, rare: float
) -> None:
    """Units at one of two orthogonal features: all the spread in one direction, far from normal where rare.

    Of 40 000 simulated distances under one population, the part above each quantile is below the p-value;
    a frequency of .05 is known to .001.
    """
    units, rng = 50, np.random.default_rng(5)
    counts = rng.binomial(units, rare, (2, 40_000)) / units
    noise = rng.normal(0, scale * ROOT_2, (40_000, DIMENSION))
    difference = counts[0] - counts[1]
    noise[:, 0] += difference
    noise[:, 1] -= difference
    distances = np.sum(noise**2, axis=1)
    for part in (0.5, 0.1, 0.05, 0.01):
        statistic = float(np.quantile(distances, 1 - part))
        found = pair_of(statistic, units, Noise(scale), sampling=sampling, length=0.25).pvalue()
        assert found >= np.mean(distances > statistic) - 0.005


@pytest.mark.sweep(10)
@pytest.mark.parametrize("law", ["gaussian", "laplace"])
@pytest.mark.parametrize("units", [1.0, 3.0, 1e3, 1e9])
@pytest.mark.parametrize("statistic", [0.0, 1e-12, 0.01, 1.9, 300.0])
def test_nothing_is_nan_and_intervals_are_ordered(law: str, units: float, statistic: float) -> None:
    for sampling in ("any", "normal"):
        found = pair_of(statistic, units, Noise(0.03, law), sampling=sampling)  # type: ignore[arg-type]
        low, high = found.interval(0.95)
        assert 0 <= low <= high <= 2 + 1e-9
        assert 0 < found.pvalue() <= 1


@pytest.mark.parametrize("law", ["gaussian", "laplace"])
def test_traces_are_bounded(law: str) -> None:
    """Where all units are alike the trace is 0, and bounds come near to it as units and noise allow."""
    mean = np.zeros(DIMENSION)
    mean[0] = 1.0
    bounds = [
        trace_bound(ReleasedMean(mean, units, Noise(scale, law)), ROOT_2, 1e-3)  # type: ignore[arg-type]
        for units, scale in ((10, 0.1), (1e4, 1e-3), (1e8, 1e-6))
    ]
    assert 1 >= bounds[0] > bounds[1] > bounds[2]
    assert bounds[2] < 0.01
    assert trace_bound(ReleasedMean(np.zeros(DIMENSION), 1e8, Noise(0.0)), ROOT_2, 1e-3) == 1
    assert trace_bound(ReleasedMean(np.zeros(DIMENSION), 1e8, Noise(0.0)), 0.5, 1e-3) == 0.125
