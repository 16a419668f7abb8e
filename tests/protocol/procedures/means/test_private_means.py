"""The MMD and noise-aware forms and the squared MMD's estimate: nulls, levels and intervals under noise."""

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
    noise_aware_test,
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


SPECTRUM = 0.6 * np.arange(1, 13) ** -1.5 / np.sum(np.arange(1, 13) ** -1.5)
MOMENTS = Moments(float(SPECTRUM.sum()), float(SPECTRUM @ SPECTRUM), float(SPECTRUM.max()))
UNITS, NOISE = np.array([400.0, 1500.0]), np.array([0.02, 0.006])


def draw(shift: FloatVector, rng: np.random.Generator) -> PrivateMeans:
    sampling = rng.standard_normal((2, 12)) * np.sqrt(SPECTRUM) / np.sqrt(UNITS)[:, None]
    noisy = sampling + rng.standard_normal((2, 12)) * NOISE[:, None]
    noisy[0] += shift
    return PrivateMeans(noisy, UNITS, NOISE)


def shift_of(length: float, direction: str) -> FloatVector:
    vector = np.ones(12) if direction == "spread" else np.eye(12)[0]
    return np.asarray(length * vector / np.linalg.norm(vector))


def estimates(module: Any, length: float, direction: str, runs: int, confidence: float = 0.95) -> Any:
    rng = np.random.default_rng(1)
    shift = shift_of(length, direction)
    found = [module.estimate_mmd(draw(shift, rng), MOMENTS, confidence) for _ in range(runs)]
    return np.array([[e.squared_mmd, e.lower, e.upper] for e in found]).T


CASES = [(length, direction) for length in (0.0, 0.05, 0.2, 1.0) for direction in ("spread", "first")]


@pytest.mark.parametrize(("length", "direction"), CASES)
def test_the_estimate_is_unbiased(length: float, direction: str) -> None:
    values = estimates(private_means, length, direction, 4000)[0]
    assert abs(values.mean() - length**2) < 5.5 * values.std() / np.sqrt(4000)


@pytest.mark.parametrize("wrong", ["", " - a * moments.trace"])
def test_forgetting_a_term_is_seen(wrong: str) -> None:
    planted = with_mistake(private_means, " - a * moments.trace - b * dimension", wrong)
    values = estimates(planted, 0.05, "spread", 1000)[0]
    assert abs(values.mean() - 0.05**2) > 5.5 * values.std() / np.sqrt(1000)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
@pytest.mark.parametrize(("length", "direction"), CASES)
def test_the_interval_covers(length: float, direction: str, confidence: float) -> None:
    runs = 2000
    _, lower, upper = estimates(private_means, length, direction, runs, confidence)
    covered = int(np.sum((lower <= length**2) & (length**2 <= upper)))
    assert covered >= stats.binom.ppf(1e-7, runs, confidence)


def test_a_normal_interval_would_leave_out_the_skewness() -> None:
    planted = with_mistake(private_means, "(estimate, skewed, constant", "(estimate, normal, constant")
    _, lower, _ = estimates(planted, 0.05, "first", 4000, 0.99)
    assert np.sum(lower > 0.05**2) > stats.binom.isf(1e-6, 4000, 0.01)


def test_an_interval_without_the_noise_does_not_cover() -> None:
    planted = with_mistake(private_means, "b = float(np.sum(means.noise**2))", "b = 0.0")
    _, lower, upper = estimates(planted, 0.05, "spread", 2000)
    covered = int(np.sum((lower <= 0.05**2) & (upper >= 0.05**2)))
    assert covered < stats.binom.ppf(1e-6, 2000, 0.945)


SIZES, NOISES = np.array([600.0, 1500.0]), np.array([0.03, 0.02])


def null_pvalues(module: Any, dimension: int, tau: float, runs: int, replicates: int = 99) -> Any:
    rng = np.random.default_rng(1)
    spectrum = spectra(dimension)["powers"]
    pvalues = []
    for run in range(runs):
        covariance = noisy_covariance(spectrum, SIZES, tau, rng)
        means = null_means(spectrum, SIZES, NOISES, rng)
        pvalues.append(module.noise_aware_test(means, covariance, replicates, np.random.SeedSequence(run))[1])
    return np.array(pvalues)


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
        covariance = noisy_covariance(spectrum, SIZES, 0.02, rng)
        means = null_means(spectrum, SIZES, np.array([2e-3, 1e-3]), rng)
        rejected += stats.chi2.sf(plain._quadratic(means.means, means, covariance), 20) <= 0.05
    assert rejected > stats.binom.isf(1e-6, 200, 0.05)


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
