"""The noise-aware form: p-values under the null, and a simulation anyone can repeat."""

from typing import Any

import numpy as np
import pytest
from noisy_moments import noisy_covariance, null_means, spectra
from planted import with_mistake
from scipy import stats

from tacit_protocol.procedures.means import private_means
from tacit_protocol.procedures.means.private_means import PrivateCovariance, PrivateMeans, noise_aware_test

UNITS, NOISE = np.array([600.0, 1500.0]), np.array([0.03, 0.02])


def null_pvalues(module: Any, dimension: int, tau: float, runs: int, replicates: int = 99) -> Any:
    rng = np.random.default_rng(1)
    spectrum = spectra(dimension)["powers"]
    pvalues = []
    for run in range(runs):
        covariance = noisy_covariance(spectrum, UNITS, tau, rng)
        means = null_means(spectrum, UNITS, NOISE, rng)
        pvalues.append(module.noise_aware_test(means, covariance, replicates, np.random.SeedSequence(run))[1])
    return np.array(pvalues)


def example(dimension: int = 3) -> tuple[PrivateMeans, PrivateCovariance]:
    rng = np.random.default_rng(2)
    spectrum = spectra(dimension)["powers"]
    return null_means(spectrum, UNITS, NOISE, rng), noisy_covariance(spectrum, UNITS, 0.01, rng)


@pytest.mark.long
@pytest.mark.parametrize(("dimension", "tau"), [(2, 0.005), (6, 0.01)])
def test_pvalues_are_near_uniform_under_the_null(dimension: int, tau: float) -> None:
    runs = 250
    pvalues = null_pvalues(private_means, dimension, tau, runs)
    for level in (0.05, 0.2):
        assert np.sum(pvalues <= level) <= stats.binom.isf(1e-6, runs, level)
    assert 0.4 < pvalues.mean() < 0.7


@pytest.mark.long
def test_a_null_without_the_noise_in_the_means_is_seen() -> None:
    planted = with_mistake(
        private_means, "sampling + rng.standard_normal", "sampling + 0 * rng.standard_normal"
    )
    assert np.sum(null_pvalues(planted, 2, 0.005, 250) <= 0.05) > stats.binom.isf(1e-6, 250, 0.05)


@pytest.mark.long
def test_an_asymptotic_null_would_break_the_level() -> None:
    """The statistic without inflation, against chi-squared: the shortcut that this form replaces."""
    plain = with_mistake(private_means, "covariance.noise * np.sqrt(2 * means_like.dimension)", "0.0")
    rng, rejected = np.random.default_rng(3), 0
    spectrum = spectra(20)["powers"]
    for _ in range(200):
        covariance = noisy_covariance(spectrum, UNITS, 0.02, rng)
        means = null_means(spectrum, UNITS, np.array([2e-3, 1e-3]), rng)
        rejected += stats.chi2.sf(plain._quadratic(means.means, means, covariance), 20) <= 0.05
    assert rejected > stats.binom.isf(1e-6, 200, 0.05)


def test_the_same_seed_gives_the_same_null_however_often_it_is_used() -> None:
    means, covariance = example()
    seed = np.random.SeedSequence(9, spawn_key=(2, 1))
    first = noise_aware_test(means, covariance, 40, seed)
    again = noise_aware_test(means, covariance, 40, seed)
    np.testing.assert_array_equal(first[2], again[2])
    assert first[:2] == again[:2]
    other = noise_aware_test(means, covariance, 40, np.random.SeedSequence(9, spawn_key=(2, 2)))
    assert not np.any(first[2] == other[2])


def test_a_replicate_does_not_depend_on_how_many_there_are() -> None:
    means, covariance = example()
    seed = np.random.SeedSequence(4)
    many = noise_aware_test(means, covariance, 60, seed)[2]
    np.testing.assert_array_equal(noise_aware_test(means, covariance, 20, seed)[2], many[:20])


def test_the_statistic_is_the_generalised_least_squares_residual() -> None:
    rng = np.random.default_rng(5)
    spectrum = spectra(3)["powers"]
    units, noise = np.array([100.0, 300.0, 900.0]), np.array([0.02, 0.03, 0.01])
    means = null_means(spectrum, units, noise, rng)
    covariance = noisy_covariance(spectrum, units, 0.002, rng)
    inflated = covariance.positive_part() + 0.002 * np.sqrt(6) * np.eye(3)
    precisions = [
        np.linalg.inv(inflated / n + (s**2 + 2 / n**2) * np.eye(3)) for n, s in zip(units, noise, strict=True)
    ]
    centre = np.linalg.solve(
        sum(precisions), sum(p @ m for p, m in zip(precisions, means.means, strict=True))
    )
    expected = sum((m - centre) @ p @ (m - centre) for p, m in zip(precisions, means.means, strict=True))
    found = noise_aware_test(means, covariance, 2, np.random.SeedSequence(1))[0]
    assert found == pytest.approx(expected, rel=1e-10)
