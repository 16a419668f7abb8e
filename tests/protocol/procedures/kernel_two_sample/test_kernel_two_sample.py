"""The kernel two-sample test: statistics and nulls, witnesses, what differs, and releases read again."""

from typing import Any

import numpy as np
import pytest
from made_studies import uniform
from noisy_moments import noisy_covariance, null_means, spectra, symmetric_noise
from planted import with_mistake
from scipy import stats
from two_sample_cases import (
    MemoryTable,
    NoNoise,
    SeededNoise,
    domain_of,
    numbers,
    releases_of,
    study_of,
    verdict_of,
)

from tacit_protocol.domain import Domain
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import Locations, RawMeanEmbedding, WhitenedMeanEmbedding
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.numerics.inference import holm
from tacit_protocol.numerics.quadratic_forms import survival
from tacit_protocol.procedures.base import ReleaseError, StudyError, check_release, check_study, reread
from tacit_protocol.procedures.embedding_release import EmbeddingRelease, features_of
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample
from tacit_protocol.procedures.means.private_means import (
    FloatMatrix,
    PrivateCovariance,
    PrivateMeans,
    bounded_moments,
)
from tacit_protocol.procedures.two_sample import statistic
from tacit_protocol.procedures.two_sample import statistic as witnesses
from tacit_protocol.procedures.two_sample.statistic import (
    POWER,
    Form,
    PrivateMoments,
    TwoSampleTest,
    Witness,
    detectable_difference,
    detectable_squared_mmd,
    published_test,
    witness_at_locations,
)
from tacit_protocol.procedures.two_sample.verdict import TwoSampleResult

PROCEDURE = KernelTwoSample()
NUMERIC = domain_of(2)


def test_an_epsilon_too_large_for_the_grid_is_refused_before_anything_is_released() -> None:
    """Many owners' units make the grid of second moments coarse; noise this small would show its steps."""
    study = study_of(NUMERIC, {"features": "me", "n_features": 40}, epsilon=100.0)
    table = MemoryTable(NUMERIC, np.zeros((1, 2)), np.zeros((1, 0), np.int32), None, (), 1)
    summary = PROCEDURE.summarise(study, table)
    coarse = type(summary)(2**40, 8, summary.total, 1.0, summary.second, 1.0)
    with pytest.raises(StudyError, match="smaller epsilon"):
        PROCEDURE.privatise(study, coarse, NoNoise())


def named(verdict: TwoSampleResult) -> set[tuple[str, ...]]:
    return {group.columns for group in verdict.columns if group.reject}


@pytest.mark.parametrize("kind", ["numeric", "mixed", "categorical"])
def test_the_pair_of_columns_that_differs_is_named_where_no_column_does(kind: str) -> None:
    """A pure interaction: every column has the same distribution at both owners."""
    domain, rows = domain_of(3, (4, 4)), 40_000
    tables = [uniform(domain, rows, 1), uniform(domain, rows, 2)]
    numeric, codes = tables[1].numeric, tables[1].categorical
    if kind == "numeric":
        numeric[:, 1] = numeric[:, 0]
        expected = ("n0", "n1")
    elif kind == "mixed":
        codes[:, 0] = np.where(numeric[:, 2] < 0.5, 0, 1)
        expected = ("n2", "c0")
    else:
        codes[:, 1] = codes[:, 0]
        expected = ("c0", "c1")
    verdict = verdict_of(study_of(domain, {}, epsilon=4.0, level=1e-4), tables, SeededNoise(6))
    assert named(verdict) == {expected}


# Findings on all owners and on pairs, estimates, P0's statistic and nulls, and detectable differences.


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


# The witness at test locations: what it is, how sure it is, and which locations a verdict names.


LOCATIONS = [[0.2, 0.3], [0.5, 0.5], [0.7, 0.6], [0.52, 0.5]]


def around(seed: int, n: int, mean: float = 0.5) -> FloatMatrix:
    return np.clip(mean + 0.15 * np.random.default_rng(seed).standard_normal((n, 2)), 0, 1)


def kernel_means(x: FloatMatrix, y: FloatMatrix) -> FloatMatrix:
    """Differences of mean kernel values at LOCATIONS, straight from the definition."""
    squares = [np.sum((rows[:, None, :] - np.array(LOCATIONS)) ** 2, axis=2) for rows in (x, y)]
    means = [np.exp(-one / (2 * 0.2**2)).mean(axis=0) for one in squares]
    return np.asarray(means[0] - means[1])


@pytest.mark.parametrize("build", [WhitenedMeanEmbedding, RawMeanEmbedding])
def test_the_unwhitener_turns_mean_features_back_into_mean_kernels(build: Any) -> None:
    kernel = ProductKernel("gaussian", 0.2)
    locations = Locations(np.array(LOCATIONS), np.zeros((4, 0), np.int32))
    features = build(kernel, locations)
    x, y = around(1, 50), around(2, 60)
    tables = [numbers(domain_of(2), rows) for rows in (x, y)]
    means = [features(next(table.chunks())).mean(axis=0) for table in tables]
    assert features.locations is locations
    assert np.allclose(features.unwhitener @ (means[0] - means[1]), kernel_means(x, y), atol=1e-10)


def test_standard_errors_are_those_of_noise_and_of_sampling() -> None:
    kernel = ProductKernel("gaussian", 0.3)
    locations = Locations(np.random.default_rng(0).random((5, 2)), np.zeros((5, 0), np.int32))
    features = WhitenedMeanEmbedding(kernel, locations)
    rows = numbers(domain_of(2), around(3, 4000))
    values = features(next(rows.chunks()))
    units = np.array([400.0, 600.0])
    covariance = PrivateCovariance(np.cov(values.T), 0.0, 1000.0)
    found = witness_at_locations(features, np.zeros(5), covariance, units, noise=0.02)
    raw = kernel.gram(next(rows.chunks()), locations)
    expected = raw.var(axis=0) * np.sum(1 / units) + 2 * np.sum(1 / units**2) + 0.02**2
    assert np.allclose(found.standard_errors**2, expected, rtol=1e-3)
    # Noise in the covariance rounds up, but never above the variance of a fair coin.
    noisy = PrivateCovariance(covariance.matrix, 0.01, 1000.0)
    rounded = witness_at_locations(features, np.zeros(5), noisy, units, noise=0.02)
    assert np.allclose(rounded.standard_errors**2 - expected, 0.01 * np.sum(1 / units), rtol=0.05)
    absurd = PrivateCovariance(1000 * np.eye(5), 5.0, 1000.0)
    bounded = witness_at_locations(features, np.zeros(5), absurd, units, noise=0.02)
    limit = 0.25 * np.sum(1 / units) + 2 * np.sum(1 / units**2) + 0.02**2
    assert np.allclose(bounded.standard_errors**2, limit, rtol=1e-6)


def false_names(runs: int, n: tuple[int, int], epsilon: float) -> int:
    """In how many of so many studies of one population a verdict names a location, at level .05."""
    domain, named = domain_of(2), 0
    for run in range(runs):
        study = study_of(domain, {"features": "me", "n_features": 8}, epsilon=epsilon, level=0.05, seed=run)
        tables = [numbers(domain, around(2 * run + owner, size)) for owner, size in enumerate(n)]
        named += any(one.reject for one in verdict_of(study, tables, SeededNoise(run)).locations)
    return named


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("n", "epsilon"), [((300, 300), 1.0), ((100, 1000), 10.0), ((400, 400), 50.0)])
def test_one_population_is_named_no_more_often_than_the_level(n: tuple[int, int], epsilon: float) -> None:
    # P(Binomial(300, .05) > 38) < 3e-7; three cases.
    assert false_names(300, n, epsilon) <= 38


@pytest.mark.long
def test_standard_errors_that_forget_the_noise_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = witnesses.witness_at_locations

    def forgetful(*arguments: Any) -> Witness:
        return honest(*arguments[:-1], 0.0)

    monkeypatch.setattr(witnesses, "witness_at_locations", forgetful)
    assert false_names(300, (300, 300), 1.0) > 38


# Releases and databases in other two-sample studies: when they are the very release that is asked for.


SOURCE = "c" * 64


def table(domain: Domain, rows: int, seed: int) -> MemoryTable:
    return numbers(domain, np.random.default_rng(seed).random((rows, len(domain.numeric))))


def reusing(study: Study, *names: str) -> Study:
    """Return the study with those owners' releases taken from an earlier one."""
    owners = [
        owner.model_copy(update={"reuses": SOURCE}) if owner.name in names else owner
        for owner in study.owners
    ]
    return study.model_copy(update={"owners": tuple(owners)})


TEST, DATABASE = KernelTwoSample(), EmbeddingRelease()
PLANE = domain_of(2)
ME: dict[str, Any] = {"features": "me", "n_features": 12, "bandwidth": 0.4}
POINTS: dict[str, Any] = {"n_points": 12, "placement": "middle", "bandwidth": 0.4}


def given(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}


def database(**parameters: Any) -> Study:
    study = study_of(PLANE, given(POINTS | parameters), owners=1)
    return study.model_copy(update={"procedure": DATABASE.name})


def sample(seed: int, shift: float = 0.0, units: int = 4000) -> MemoryTable:
    rng = np.random.default_rng(seed)
    return numbers(PLANE, 0.5 + shift + 0.12 * rng.standard_normal((units, 2)))


def made(study: Study, table: MemoryTable, noise: Any) -> Release:
    release = DATABASE.privatise(study, DATABASE.summarise(study, table), noise)
    check_release(DATABASE, study, release)
    return release


def verdict_on(shift: float, seed: int, reused: tuple[str, ...]) -> TwoSampleResult:
    """The verdict on two owners, the second shifted, with some releases taken from their databases."""
    study = reusing(study_of(PLANE, ME, level=0.05), *reused)
    check_study(TEST, study)
    tables = {"o0": sample(2 * seed), "o1": sample(2 * seed + 1, shift)}
    releases = releases_of(study, list(tables.values()), SeededNoise(seed))
    for index, name in enumerate(reused):
        owner = study.owner_named(name)
        source = database().model_copy(update={"owners": (owner.model_copy(update={"reuses": None}),)})
        release = made(source, tables[name], SeededNoise(1000 + 2 * seed + index))
        releases[name] = reread(TEST, study, owner, source, release, lender=DATABASE)
    return TEST.assemble(study, releases)


@pytest.mark.parametrize("reused", [("o0",), ("o0", "o1")])
def test_the_level_holds_with_means_alone(reused: tuple[str, ...]) -> None:
    """At level .05 more than 9 rejections of 30 have probability below 1e-5; the seeds are fixed."""
    assert sum(verdict_on(0.0, seed, reused).reject for seed in range(30)) <= 9


def test_the_trace_is_bounded_from_means_alone() -> None:
    """Three standard deviations upward: the bound is below the true trace once in a thousand times."""
    truth = features_of(database())(next(sample(99, units=100_000).chunks()))
    trace = float(np.trace(np.cov(truth.T)))
    below = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        means = np.stack([truth[rng.integers(0, len(truth), 1000)].mean(axis=0) for _ in range(2)])
        noisy = PrivateMeans(
            means + 0.01 * rng.standard_normal(means.shape), np.full(2, 1000.0), np.full(2, 0.01)
        )
        moments = bounded_moments(noisy)
        below += moments.trace < trace
        assert moments.energy == pytest.approx(moments.trace**2)
        assert moments.trace <= 1
    assert below <= 2


def test_points_as_a_verdict_wrote_them_are_the_same_points() -> None:
    """In their own units and back they may differ in the last bit."""
    source = database(placement="uniform")
    release = made(source, sample(1), SeededNoise(1))
    rows = [list(row) for row in DATABASE.assemble(source, {"o0": release}).points]
    written = reusing(database(points=rows, n_points=None, placement=None), "o0")
    assert reread(DATABASE, written, written.owners[0], source, release) == release
    study = reusing(study_of(PLANE, {"features": "me", "locations": rows, "bandwidth": 0.4}), "o0")
    with pytest.raises(StudyError, match="placement middle alone"):
        reread(TEST, study, study.owners[0], source, release, lender=DATABASE)


def test_an_owner_that_is_asked_cannot_send_a_mean_alone() -> None:
    with pytest.raises(ReleaseError):
        check_release(TEST, study_of(PLANE, ME), made(database(), sample(1), SeededNoise(1)))
