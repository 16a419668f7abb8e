"""Findings on all owners and on pairs, estimates, P0's statistic and nulls, and detectable differences."""

from typing import Any

import numpy as np
import pytest
from noisy_moments import noisy_covariance, null_means, spectra, symmetric_noise
from planted import with_mistake
from scipy import stats

from tacit_protocol.numerics.inference import holm
from tacit_protocol.numerics.quadratic_forms import survival
from tacit_protocol.procedures.means.private_means import FloatMatrix, PrivateCovariance, PrivateMeans
from tacit_protocol.procedures.two_sample import statistic
from tacit_protocol.procedures.two_sample.statistic import (
    POWER,
    Form,
    PrivateMoments,
    TwoSampleTest,
    detectable_difference,
    detectable_squared_mmd,
    published_test,
)

SPECTRUM = spectra(3)["powers"]


def second_moments(means: PrivateMeans, noise: float, rng: np.random.Generator) -> FloatMatrix:
    moments = [np.diag(SPECTRUM) + np.outer(m, m) for m in means.means]
    return np.stack([moment + symmetric_noise(3, noise, rng) for moment in moments])


def evidence_of(owners: int, *, shift: float = 0.0, seed: int = 1) -> PrivateMoments:
    """Owners of growing sizes, of which the last one differs by ``shift``."""
    rng = np.random.default_rng(seed)
    units = 1000.0 * np.arange(1, owners + 1)
    means = null_means(SPECTRUM, units, 10 / units, rng)
    means.means[-1] += shift
    return PrivateMoments(means, second_moments(means, 0.005, rng), np.full(owners, 0.005))


def finder_of(form: Form, module: Any = statistic) -> TwoSampleTest:
    test = module.TwoSampleTest(form, None, (), 99, 1e-3, np.random.SeedSequence(5, spawn_key=(2,)))
    assert isinstance(test, TwoSampleTest) or module is not statistic
    return test  # type: ignore[no-any-return]


@pytest.mark.parametrize("form", ["mmd", "noise-aware"])
def test_pairs_are_in_order_adjusted_by_holm_and_name_who_differs(form: Form) -> None:
    test, evidence = finder_of(form), evidence_of(4, shift=1.0)
    overall = test.run(evidence)
    pairs = test.compare_pairs(evidence, overall, 0.95)
    assert [(p.first, p.second) for p in pairs] == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    raw = [
        test.run(evidence.select((p.first, p.second)), purpose=1 + number).pvalue
        for number, p in enumerate(pairs)
    ]
    np.testing.assert_allclose([p.pvalue for p in pairs], holm(np.array(raw)), rtol=1e-12)
    for pair in pairs:
        assert (pair.pvalue <= 0.1) == (pair.second == 3)
        assert (pair.mmd.lower > 0) == (pair.second == 3)


def unequal(rng: np.random.Generator) -> tuple[PrivateMoments, float]:
    """A small owner with a small covariance and a large one with a large: noise-free second moments."""
    spreads, units = np.array([[0.02, 0.02], [0.4, 0.3]]), np.array([50.0, 5000.0])
    truth = np.array([[0.1, 0.0], [0.0, 0.0]])
    noise = np.array([0.01, 0.001])
    values = truth + rng.standard_normal((2, 2)) * np.sqrt(spreads / units[:, None] + noise[:, None] ** 2)
    # Second moments of the true distributions around the noisy mean's own square.
    moments = np.stack(
        [
            np.diag(s) + np.outer(v, v) - n**2 * np.eye(2)
            for s, v, n in zip(spreads, values, noise, strict=True)
        ]
    )
    return PrivateMoments(PrivateMeans(values, units, noise), moments, np.full(2, 1e-9)), 0.01


def bias(module: Any) -> float:
    """Bias of the estimate, in its own standard errors."""
    rng, runs = np.random.default_rng(7), 1500
    estimates = []
    for _ in range(runs):
        evidence, truth = unequal(rng)
        estimates.append(finder_of("mmd", module).estimate(evidence, 0.95).squared_mmd - truth)
    return float(np.mean(estimates) / (np.std(estimates) / np.sqrt(runs)))


def test_the_estimate_is_unbiased_where_owners_differ_in_size_and_covariance() -> None:
    assert abs(bias(statistic)) < 5.5


def test_pooling_by_units_would_bias_the_estimate() -> None:
    assert (
        abs(bias(with_mistake(statistic, "evidence.second_noise, 1 / means.units", "evidence.second_noise")))
        > 5.5
    )


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


@pytest.mark.parametrize("level", [0.05, 1e-4])
@pytest.mark.parametrize("noise", [(0.01, 0.02), (0.5, 0.1)])
def test_the_detectable_difference_is_seen_with_the_power_stated(
    noise: tuple[float, float], level: float
) -> None:
    scale, units = 0.4, (500, 3000)
    difference = detectable_difference(noise, units, scale, level)
    spread = np.sqrt((noise[0] ** 2 + noise[1] ** 2) / scale**2 + 0.5 / units[0] + 0.5 / units[1])
    seen = stats.norm.sf(stats.norm.isf(level / 2) - difference / spread)
    assert seen == pytest.approx(POWER, abs=1e-6)


@pytest.mark.parametrize("dimension", [1, 5, 200])
@pytest.mark.parametrize("level", [0.05, 1e-4])
def test_the_detectable_squared_mmd_is_seen_with_the_power_stated(dimension: int, level: float) -> None:
    noise = (0.03, 0.01)
    energy = noise[0] ** 2 + noise[1] ** 2
    squared = detectable_squared_mmd(noise, dimension, level)
    seen = stats.ncx2.sf(stats.chi2.isf(level, dimension), dimension, squared / energy)
    assert seen == pytest.approx(POWER, abs=1e-6)
