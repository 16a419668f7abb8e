"""The MMD form: spectra heavier than the true one, exact p-values for them, and the level under noise."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noisy_moments import noisy_covariance, null_means, spectra, symmetric_noise
from planted import with_mistake
from scipy import stats

from tacit_protocol.numerics.quadratic_forms import quantile, survival
from tacit_protocol.procedures.means import private_means
from tacit_protocol.procedures.means.private_means import (
    FloatVector,
    Moments,
    PrivateCovariance,
    PrivateMeans,
    covariance_moments,
    heavy_spectrum,
    mmd_test,
    pool_covariance,
)

LEVELS = (0.1, 0.05, 0.01, 1e-4, 1e-8)
DIMENSIONS = (1, 2, 3, 5, 20, 60)


def moments_of(spectrum: FloatVector) -> Moments:
    return Moments(float(spectrum.sum()), float(spectrum @ spectrum), float(spectrum.max()))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=60))
def test_the_heavy_spectrum_has_the_trace_the_top_and_at_least_the_energy(values: list[float]) -> None:
    spectrum = np.array(values) / sum(values)
    moments = moments_of(spectrum)
    heavy = heavy_spectrum(moments, len(spectrum))
    counts = np.array(heavy.multiplicities)
    assert counts.sum() == len(spectrum)
    assert np.all(counts >= (1 if len(spectrum) > 1 else 0))
    assert np.all(heavy.eigenvalues >= 0)
    assert counts @ heavy.eigenvalues >= moments.trace * (1 - 1e-12)
    assert counts @ heavy.eigenvalues**2 >= moments.energy * (1 - 1e-9)
    assert heavy.eigenvalues[0] >= moments.largest * (1 - 1e-12)


def tail_ratios(spectrum: FloatVector, heavy: FloatVector, counts: FloatVector) -> FloatVector:
    """True tail probability over the level, at the heavy law's quantiles, with noise of several sizes."""
    ratios = []
    for noise in (0.0, 0.002, 0.03):
        true, stated = spectrum + noise, heavy + noise
        for level in LEVELS:
            critical = quantile(level, stated, degrees=counts)
            ratios.append(survival(critical, true) / level)
    return np.array(ratios)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("dimension", DIMENSIONS)
@pytest.mark.parametrize("name", sorted(spectra(2)))
def test_tails_are_never_lighter_than_the_true_ones(name: str, dimension: int) -> None:
    spectrum = spectra(dimension)[name]
    heavy = heavy_spectrum(moments_of(spectrum), dimension)
    counts = np.array(heavy.multiplicities)
    assert tail_ratios(spectrum, heavy.eigenvalues, counts).max() <= 1 + 1e-6


def test_two_moment_gamma_tails_are_lighter_than_the_true_ones() -> None:
    """The shortcut that this null replaces: two moments are too few where one eigenvalue is big."""
    spectrum = spectra(20)["one"] + 0.002
    shape, scale = spectrum.sum() ** 2 / (2 * spectrum @ spectrum), 2 * spectrum @ spectrum / spectrum.sum()
    critical = stats.gamma.isf(0.01, shape, scale=scale)
    assert survival(float(critical), spectrum) > 0.012
    assert survival(float(stats.gamma.isf(1e-4, shape, scale=scale)), spectrum) > 4e-4


def test_rounding_the_number_of_large_eigenvalues_down_is_seen() -> None:
    planted = with_mistake(private_means, "np.ceil(count - 1e-9)", "np.floor(count)")

    def largest_ratio(dimension: int, spectrum: FloatVector) -> float:
        heavy = planted.heavy_spectrum(moments_of(spectrum), dimension)
        counts = np.array(heavy.multiplicities)
        return float(tail_ratios(spectrum, heavy.eigenvalues, counts).max())

    # The first that shows it is enough.
    assert any(
        largest_ratio(dimension, spectrum) > 1.05
        for dimension in (5, 20, 60)
        for spectrum in spectra(dimension).values()
    )


@pytest.mark.parametrize("dimension", [1, 5, 40])
def test_trace_and_energy_are_estimated_without_bias(dimension: int) -> None:
    rng, runs = np.random.default_rng(dimension), 3000
    spectrum, tau = spectra(dimension)["powers"], 0.4 / dimension**1.5
    draws = [noisy_covariance(spectrum, np.array([500.0]), tau, rng) for _ in range(runs)]
    # Far from the clips, without slack.
    found = [covariance_moments(draw, trace_max=1e3, slack=0.0) for draw in draws]
    traces, energies = np.array([m.trace for m in found]), np.array([m.energy for m in found])
    assert abs(traces.mean() - spectrum.sum()) < 5 * traces.std() / np.sqrt(runs)
    if dimension > 1:  # in one dimension the energy is the square of the trace
        assert abs(energies.mean() - spectrum @ spectrum) < 5 * energies.std() / np.sqrt(runs)


def test_slack_is_one_standard_deviation() -> None:
    rng = np.random.default_rng(4)
    spectrum, tau = spectra(20)["powers"], 0.004
    found = [covariance_moments(noisy_covariance(spectrum, np.array([500.0]), tau, rng)) for _ in range(2000)]
    above = np.mean([[m.trace > spectrum.sum(), m.energy > spectrum @ spectrum] for m in found], axis=0)
    np.testing.assert_allclose(above, stats.norm.cdf(1), atol=0.06)


def test_moments_stay_possible_whatever_the_noise() -> None:
    rng = np.random.default_rng(5)
    for tau in (1e-9, 0.01, 1.0, 1e3):
        for dimension in (1, 2, 30):
            covariance = noisy_covariance(spectra(dimension)["powers"], np.array([9.0]), tau, rng)
            moments = covariance_moments(covariance, trace_max=1.0)
            slack = 1 + 1e-12
            assert 0 < moments.trace <= 1.0
            assert moments.trace**2 / dimension <= moments.energy * slack <= moments.trace**2 * slack**2
            assert moments.energy / moments.trace <= moments.largest * slack <= moments.trace * slack**2


def test_two_owners_statistic_is_the_scaled_squared_distance() -> None:
    means = PrivateMeans(np.array([[0.3, 0.1], [0.1, 0.2]]), np.array([100.0, 400.0]), np.array([0.05, 0.01]))
    covariance = PrivateCovariance(np.diag([0.3, 0.1]), 1e-9, 500.0)
    statistic, pvalue = mmd_test(means, covariance)
    weights = 1 / (0.4 / 2 / np.array([100.0, 400.0]) + np.array([0.05, 0.01]) ** 2)
    factor = weights.prod() / weights.sum()
    assert statistic == pytest.approx(factor * (0.2**2 + 0.1**2), rel=1e-6)
    # one eigenvalue of .3, one of .1: the spectrum is rounded up to two of .3 at most
    spread = np.array([0.3, 0.1]) * (1 / 100 + 1 / 400) + 0.05**2 + 0.01**2
    assert survival(0.05, spread) <= pvalue <= survival(0.05, np.full(2, spread[0])) * (1 + 1e-6)


def test_k_owners_null_law_is_that_of_the_statistic() -> None:
    """P-values of simulated statistics are uniform where the spectrum is flat: the law is then exact."""
    rng = np.random.default_rng(6)
    spectrum = np.full(4, 0.2)
    units, noise = np.array([50.0, 300.0, 2000.0]), np.array([0.05, 0.002, 0.01])
    covariance = PrivateCovariance(np.diag(spectrum), 1e-12, units.sum())
    pvalues = [mmd_test(null_means(spectrum, units, noise, rng), covariance)[1] for _ in range(800)]
    assert stats.kstest(pvalues, "uniform").pvalue > 1e-6


def rejections(module: Any, name: str, dimension: int, tau: float, runs: int) -> int:
    rng = np.random.default_rng(dimension)
    spectrum = spectra(dimension)[name]
    units, noise = np.array([500.0, 900.0]), np.array([0.03, 0.02])
    count = 0
    for _ in range(runs):
        covariance = noisy_covariance(spectrum, units, tau, rng)
        count += module.mmd_test(null_means(spectrum, units, noise, rng), covariance)[1] <= 0.05
    return count


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ["one", "flat", "powers"])
@pytest.mark.parametrize(("dimension", "tau"), [(1, 0.01), (5, 0.05), (40, 0.02)])
def test_level_is_kept_with_a_noisy_covariance(name: str, dimension: int, tau: float) -> None:
    runs = 400
    assert rejections(private_means, name, dimension, tau, runs) <= stats.binom.isf(1e-7, runs, 0.05)


def rare_rejections(module: Any, runs: int) -> int:
    """Rejections at level .001 where 50 units meet 5000, and four values of .004 each lie at right angles.

    Noise is that of epsilon = 20. Draws with fewer than three rare units among the 50 count as not rejected.
    """
    rng, units = np.random.default_rng(11), np.array([50.0, 5000.0])
    values, shares = np.eye(5), np.array([0.984, *[0.004] * 4])
    noise, tau = 0.459 / units, 0.917 / units
    rejected = 0
    for _ in range(runs):
        counts = np.stack([rng.multinomial(int(n), shares) / n for n in units])
        if counts[0, 1:].sum() * units[0] < 3:
            continue
        means = PrivateMeans(counts @ values + noise[:, None] * rng.standard_normal((2, 5)), units, noise)
        moments = np.stack(
            [np.diag(c) + symmetric_noise(5, t, rng) for c, t in zip(counts, tau, strict=True)]
        )
        covariance = pool_covariance(means, moments, tau)
        rejected += module.mmd_test(means, covariance)[1] <= 0.001
    return rejected


@pytest.mark.long
def test_level_is_kept_with_rare_values_and_little_noise() -> None:
    """At a level of exactly .001 so many rejections have probability below 1e-7; it was .005."""
    assert rare_rejections(private_means, 10_000) <= stats.binom.isf(1e-7, 10_000, 0.001)


@pytest.mark.long
def test_a_null_without_the_rare_units_is_seen() -> None:
    planted = with_mistake(private_means, "eigenvalue + raised * guard", "eigenvalue")
    assert rare_rejections(planted, 10_000) > stats.binom.isf(1e-7, 10_000, 0.001)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("raised * guard) / means.units + means.noise**2", "0.0) / means.units"),
        ("1.0 / (trace / means.units / means.dimension + means.noise**2)", "means.units / 1.0"),
        ("trace / means.units / means.dimension", "0 * means.units"),
    ],
)
def test_planted_mistakes(right: str, wrong: str) -> None:
    """Noise left out of the null breaks the level. Other weights do not: statistic and null have the same."""
    planted = with_mistake(private_means, right, wrong)
    broken = rejections(planted, "powers", 5, 0.01, 300) > stats.binom.isf(1e-6, 300, 0.05)
    assert broken == right.startswith("raised")
