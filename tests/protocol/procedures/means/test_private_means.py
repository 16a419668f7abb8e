"""Laws of noisy means and their covariance: quadratic forms, and the max form over families of columns."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noisy_moments import noisy_covariance, null_means, spectra, symmetric_noise
from planted import with_mistake
from scipy import stats
from two_sample_cases import Codes, Floats

from tacit_protocol.features.moments import AdditiveChoice, AdditiveFeatures, default_choice
from tacit_protocol.numerics.quadratic_forms import quantile, survival
from tacit_protocol.procedures.means import private_means
from tacit_protocol.procedures.means.private_means import (
    CoordinateFamily,
    FloatMatrix,
    FloatVector,
    Moments,
    PrivateCovariance,
    PrivateMeans,
    additive_variances,
    coordinate_pvalues,
    covariance_moments,
    heavy_spectrum,
    max_test,
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


# The max form: Q against linear algebra, level under Gaussian nulls, who is named; variances from means.


MAX_FALSE_ALARM = 1e-6
"""Probability that a correct test of a level fails: allowed rejections are this quantile of the binomial."""


def family(*sizes: int, name: str = "column", share: float = 1.0, first: int = 0) -> CoordinateFamily:
    ends = first + np.cumsum([0, *sizes])
    groups = tuple((str(i), int(a), int(b)) for i, (a, b) in enumerate(itertools.pairwise(ends)))
    return CoordinateFamily(name, groups, share)


@pytest.mark.parametrize("owners", [2, 3, 5])
def test_k_owners_q_is_the_generalised_least_squares_residual(owners: int) -> None:
    rng = np.random.default_rng(owners)
    units, noise = rng.integers(50, 5000, owners).astype(float), rng.uniform(0.001, 0.05, owners)
    means = PrivateMeans(rng.normal(0, 0.1, (owners, 3)), units, noise)
    variances = rng.uniform(0.01, 0.5, 3)
    statistic, pvalues = coordinate_pvalues(means, variances)
    for j in range(3):
        precision = np.diag(1 / (variances[j] / units + noise**2))
        ones = np.ones((owners, 1))
        projection = precision - precision @ ones @ ones.T @ precision / (ones.T @ precision @ ones)
        expected = means.means[:, j] @ projection @ means.means[:, j]
        assert statistic[j] == pytest.approx(expected, rel=1e-10)
        assert pvalues[j] == pytest.approx(stats.chi2.sf(expected, owners - 1), rel=1e-9)


def max_rejections(module: Any, units: FloatVector, noise: FloatVector, root: FloatMatrix, runs: int) -> int:
    """How often the overall test rejects at .05 under a null with covariance root root'."""
    rng = np.random.default_rng(7)
    dimension = len(root)
    families = [family(2, dimension - 4, share=0.7), family(2, name="pair", share=0.3, first=dimension - 2)]
    count = 0
    for _ in range(runs):
        sampling = rng.standard_normal((len(units), dimension)) @ root.T / np.sqrt(units)[:, None]
        noisy = sampling + rng.standard_normal(sampling.shape) * noise[:, None]
        means = PrivateMeans(noisy, units, noise)
        count += module.max_test(means, np.sum(root**2, axis=1), families)[1] <= 0.05
    return count


def roots(dimension: int) -> dict[str, FloatMatrix]:
    shared = 0.9 * np.ones((dimension, dimension)) + 0.1 * np.eye(dimension)
    chained = 0.95 ** np.abs(np.subtract.outer(np.arange(dimension), np.arange(dimension)))
    signs = np.where(np.arange(dimension) % 2, -1.0, 1.0)
    return {
        "independent": 0.5 * np.eye(dimension),
        "shared": 0.5 * np.linalg.cholesky(shared),
        "alternating": 0.5 * signs[:, None] * np.linalg.cholesky(chained),
    }


@pytest.mark.sweep(2)
@pytest.mark.parametrize("correlation", ["independent", "shared", "alternating"])
@pytest.mark.parametrize(
    ("units", "noise"),
    [
        ((300.0, 5000.0), (0.02, 0.001)),
        ((40.0, 40.0, 40.0), (1e-6, 1e-6, 1e-6)),
        ((50.0, 800.0, 9e4), (0.2, 0.01, 1e-4)),
    ],
)
def test_level_is_kept_whatever_the_correlation(
    correlation: str, units: tuple[float, ...], noise: tuple[float, ...]
) -> None:
    runs = 1500
    found = max_rejections(private_means, np.array(units), np.array(noise), roots(12)[correlation], runs)
    assert found <= stats.binom.isf(MAX_FALSE_ALARM, runs, 0.05)


def test_leaving_the_privacy_noise_out_of_the_variance_is_seen() -> None:
    planted = with_mistake(private_means, " + (means.noise**2)[:, None]", "")
    units, noise = np.array([300.0, 5000.0]), np.array([0.05, 0.003])
    allowed = stats.binom.isf(MAX_FALSE_ALARM, 500, 0.05)
    assert max_rejections(planted, units, noise, roots(12)["independent"], 500) > allowed
    assert max_rejections(private_means, units, noise, roots(12)["independent"], 500) <= allowed


def test_families_share_the_level() -> None:
    means = PrivateMeans(np.array([[0.2, 0.0, 0.0], [0.0, 0.0, 0.25]]), np.full(2, 1e3), np.full(2, 0.01))
    variances = np.full(3, 0.5)
    single = coordinate_pvalues(means, variances)[1]
    families = [family(1, 1, share=0.7), family(1, name="pair", share=0.3, first=2)]
    _, overall, groups = max_test(means, variances, families)
    columns = 1 - (1 - single[:2].min()) ** 2
    assert overall == pytest.approx(min(columns / 0.7, single[2] / 0.3), rel=1e-9)
    expected = [min(1, 2 * single[0] / 0.7), 1.0, single[2] / 0.3]
    np.testing.assert_allclose([group.pvalue for group in groups], expected, rtol=1e-9)


def test_familywise_error_of_named_groups_is_kept() -> None:
    """One group differs, eleven do not: at level .05 the others are named no more often than that."""
    rng, runs, wrong = np.random.default_rng(11), 1500, 0
    units, noise = np.array([500.0, 700.0]), np.array([0.01, 0.01])
    shift = np.zeros((2, 12))
    shift[0, 4] = 1.0
    for _ in range(runs):
        sampling = 0.5 * rng.standard_normal((2, 12)) / np.sqrt(units)[:, None]
        values = shift + sampling + rng.standard_normal((2, 12)) * noise[:, None]
        groups = max_test(PrivateMeans(values, units, noise), np.full(12, 0.25), [family(*[1] * 12)])[2]
        wrong += any(group.pvalue <= 0.05 for i, group in enumerate(groups) if i != 4)
    assert wrong <= stats.binom.isf(MAX_FALSE_ALARM, runs, 0.05)


MANY = 1e15
"""Units so many that the weight of two of them is below rounding."""


@dataclass(frozen=True)
class Atoms:
    """A distribution on finitely many rows; ``weights`` are their probabilities."""

    numeric: Floats
    categorical: Codes
    weights: FloatVector


def atoms(name: str, numeric: int, categories: tuple[int, ...], rng: np.random.Generator) -> Atoms:
    count = 300
    values = {
        "uniform": rng.random((count, numeric)),
        "one point": np.full((count, numeric), 0.37),
        "two ends": rng.integers(0, 2, (count, numeric)).astype(float),
        "narrow": np.clip(0.7 + 0.02 * rng.standard_normal((count, numeric)), 0, 1),
        "alike": np.repeat(rng.random((count, 1)), numeric, axis=1),
        "rare": np.where(rng.random((count, numeric)) < 0.01, 0.9, 0.1),
    }[name]
    codes = np.zeros((count, len(categories)), dtype=np.int32)
    for index, levels in enumerate(categories):
        drawn = rng.integers(0, levels, count)
        codes[:, index] = np.where(rng.random(count) < 0.02, drawn, 0) if name == "rare" else drawn
    weights = rng.random(count) ** (30 if name == "rare" else 1)
    return Atoms(values, codes, weights / weights.sum())


NAMES = ("uniform", "one point", "two ends", "narrow", "alike", "rare")
DOMAINS = (
    (1, ()), (2, ()), (4, (3,)), (7, (4, 2)), (0, (3, 12)),
)  # fmt: skip


def default_features(numeric: int, categories: tuple[int, ...], *, moments: bool = False) -> AdditiveFeatures:
    choice = default_choice(numeric, categories, 0.3, moments=moments and numeric > 0)
    return AdditiveFeatures(numeric, categories, choice)


def exact(features: AdditiveFeatures, law: Atoms) -> tuple[FloatVector, FloatVector]:
    """Means and variances of one unit's features."""
    values = features(law)
    mean = law.weights @ values
    return mean, law.weights @ (values - mean) ** 2


def silent_means(mean: FloatVector, units: float = MANY) -> PrivateMeans:
    """The means of two owners, without any noise."""
    return PrivateMeans(np.stack([mean, mean]), np.array([units, units]), np.array([0.0, 0.0]))


def shortfalls(module: Any, seed: int = 1, *, moments: bool = False) -> int:
    """How many exact variances lie above the bound, over all distributions and domains."""
    rng = np.random.default_rng(seed)
    short = 0
    for numeric, categories in DOMAINS:
        features = default_features(numeric, categories, moments=moments)
        for name in NAMES:
            mean, variance = exact(features, atoms(name, numeric, categories, rng))
            short += int(np.sum(variance > module.additive_variances(features, silent_means(mean)) + 1e-12))
    return short


@pytest.mark.parametrize("moments", [False, True])
def test_no_exact_variance_is_above_its_bound(moments: bool) -> None:
    assert shortfalls(private_means, moments=moments) == 0


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(1 + 2 * upper) / 3", "(1 + upper) / 3"),
        ("else (1 + upper) / 2", "else upper / 2"),
        ('"P2", 0.0]', '"P1", 0.0]'),
    ],
)
def test_planted_mistakes_in_polynomials_are_seen(right: str, wrong: str) -> None:
    assert shortfalls(with_mistake(private_means, right, wrong), moments=True) > 0


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("1 + sign * raw[doubled]", "1 - sign * raw[doubled]"),
        ("slack[doubled]) / 2", "slack[doubled]) / 4"),
        ('other = "sin" if coordinate.part == "cos" else "cos"', "other = coordinate.part"),
        ("2 * coordinate.cycles", "coordinate.cycles"),
        ("np.minimum.outer(parts[a][1], parts[b][1])", "np.multiply.outer(parts[a][1], parts[b][1])"),
        ("* scales**2)", "* scales**3)"),
    ],
)  # fmt: skip
def test_planted_mistakes_are_seen(right: str, wrong: str) -> None:
    assert shortfalls(with_mistake(private_means, right, wrong)) > 0


@pytest.mark.parametrize("name", NAMES)
def test_doubled_frequencies_and_categories_give_the_variance_itself(name: str) -> None:
    features = AdditiveFeatures(
        3, (5,), AdditiveChoice((0.8125, 1.625, 3.25), (1.0, 1.0, 0.4), (0.8125,), 0.3)
    )
    mean, variance = exact(features, atoms(name, 3, (5,), np.random.default_rng(2)))
    found = additive_variances(features, silent_means(mean))
    for index, coordinate in enumerate(features.column_wise.coordinates):
        if coordinate.cycles < 3.25:
            assert found[0, index] == pytest.approx(variance[index], abs=1e-12)


def max_rare_rejections(module: Any, units: tuple[int, ...], runs: int) -> int:
    """Rejections at 1e-3 where forty categories hold one unit in a thousand each; little privacy noise."""
    rng = np.random.default_rng(6)
    features = default_features(0, (41,))
    probabilities = np.array([0.96, *[0.001] * 40])
    family = CoordinateFamily("column", (("0", 0, 41),), 1.0)
    counted, noise = np.array(units, dtype=np.float64), 0.2 / np.array(units)
    count = 0
    for _ in range(runs):
        values = np.stack([rng.multinomial(n, probabilities) / n for n in units])
        values += noise[:, None] * rng.standard_normal(values.shape)
        means = PrivateMeans(values, counted, noise)
        count += max_test(means, module.additive_variances(features, means), [family])[1] <= 1e-3
    return count


@pytest.mark.sweep(1)
@pytest.mark.parametrize("units", [(1000, 1000), (200, 20_000), (1000, 20_000), (200, 200, 20_000)])
def test_rare_categories_do_not_break_the_level(units: tuple[int, ...]) -> None:
    runs = 1000
    assert max_rare_rejections(private_means, units, runs) <= stats.binom.isf(1e-6, runs, 1e-3)


@pytest.mark.parametrize(
    "wrong", ["0.0 / means.units[:, None]", "RARE_UNITS / means.units.sum() * np.ones((2, 1))"]
)
def test_rare_categories_break_the_level_without_slack_for_each_owner(wrong: str) -> None:
    planted = with_mistake(private_means, "RARE_UNITS / means.units[:, None]", wrong)
    assert max_rare_rejections(planted, (200, 20_000), 500) > stats.binom.isf(1e-6, 500, 1e-3)
