"""P0's statistic and nulls: to the formula, and why they are not the default."""

import numpy as np
import pytest
from noisy_moments import noisy_covariance, null_means, spectra
from scipy import stats

from tacit_protocol.numerics.quadratic_forms import survival
from tacit_protocol.procedures.kernel_two_sample.statistic import published_test
from tacit_protocol.procedures.means.private_means import PrivateCovariance, PrivateMeans

UNITS, NOISE, GAMMA = np.array([300.0, 700.0]), np.array([0.02, 0.01]), 1e-3


def example() -> tuple[PrivateMeans, PrivateCovariance]:
    rng = np.random.default_rng(1)
    root = rng.normal(0, 0.3, (4, 4))
    covariance = PrivateCovariance(root @ root.T / 4, 0.01, 1000.0)
    return PrivateMeans(rng.normal(0, 0.05, (2, 4)), UNITS, NOISE), covariance


def test_the_statistic_is_the_published_one() -> None:
    means, covariance = example()
    difference = means.means[0] - means.means[1]
    inverse = np.linalg.inv(covariance.matrix + GAMMA * np.eye(4))
    expected = 300 * 700 / 1000 * difference @ inverse @ difference
    assert published_test(means, covariance, GAMMA, "weighted")[0] == pytest.approx(expected, rel=1e-10)
    statistic, pvalue = published_test(means, covariance, GAMMA, "asymptotic")
    assert statistic == pytest.approx(expected, rel=1e-10)
    assert pvalue == pytest.approx(stats.chi2.sf(expected, 4), rel=1e-9)


def test_the_weighted_null_is_the_published_one() -> None:
    means, covariance = example()
    values, vectors = np.linalg.eigh(covariance.matrix + GAMMA * np.eye(4))
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    spread = covariance.matrix * (1 / 300 + 1 / 700) + (0.02**2 + 0.01**2) * np.eye(4)
    weights = 210 * np.linalg.eigvalsh(root @ spread @ root)
    statistic, pvalue = published_test(means, covariance, GAMMA, "weighted")
    assert pvalue == pytest.approx(survival(statistic, weights), rel=1e-8)


def test_a_covariance_with_negative_eigenvalues_is_cut_at_zero() -> None:
    means, _ = example()
    covariance = PrivateCovariance(np.diag([0.2, -0.1, 0.1, -0.2]), 0.1, 1000.0)
    cut = PrivateCovariance(np.diag([0.2, 0.0, 0.1, 0.0]), 0.1, 1000.0)
    found, expected = (published_test(means, c, GAMMA, "weighted") for c in (covariance, cut))
    assert found == pytest.approx(expected, rel=1e-10)


def level_of(null: str, runs: int) -> float:
    """Type I error at .01 with J = 40, n = 3000 and the noise of epsilon = 2.5 in means and covariance."""
    rng, rejected = np.random.default_rng(2), 0
    units, noise, tau = np.array([3000.0, 3000.0]), np.full(2, 8e-4), 1e-3
    for _ in range(runs):
        covariance = noisy_covariance(spectra(40)["powers"], units, tau, rng)
        means = null_means(spectra(40)["powers"], units, noise, rng)
        rejected += published_test(means, covariance, 1e-3, null)[1] <= 0.01  # type: ignore[arg-type]
    return rejected / runs


def test_neither_null_keeps_its_level_under_noise() -> None:
    """Treating the noisy covariance as exact is what goes wrong, for both nulls: hence not the default."""
    assert level_of("asymptotic", 60) > 0.2
    assert level_of("weighted", 100) > 0.03
