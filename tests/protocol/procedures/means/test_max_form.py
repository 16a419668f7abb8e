"""The max form: Q against linear algebra, level under Gaussian nulls, who is named; variances from means."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from planted import with_mistake
from scipy import stats
from two_sample_cases import Codes, Floats

from tacit_protocol.features.moments import AdditiveChoice, AdditiveFeatures, default_choice
from tacit_protocol.procedures.means import private_means as max_form
from tacit_protocol.procedures.means.private_means import (
    CoordinateFamily,
    FloatMatrix,
    FloatVector,
    PrivateMeans,
    additive_variances,
    coordinate_pvalues,
    max_test,
)

FALSE_ALARM = 1e-6
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


def rejections(module: Any, units: FloatVector, noise: FloatVector, root: FloatMatrix, runs: int) -> int:
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
    found = rejections(max_form, np.array(units), np.array(noise), roots(12)[correlation], runs)
    assert found <= stats.binom.isf(FALSE_ALARM, runs, 0.05)


def test_leaving_the_privacy_noise_out_of_the_variance_is_seen() -> None:
    planted = with_mistake(max_form, " + (means.noise**2)[:, None]", "")
    units, noise = np.array([300.0, 5000.0]), np.array([0.05, 0.003])
    allowed = stats.binom.isf(FALSE_ALARM, 500, 0.05)
    assert rejections(planted, units, noise, roots(12)["independent"], 500) > allowed
    assert rejections(max_form, units, noise, roots(12)["independent"], 500) <= allowed


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
    assert wrong <= stats.binom.isf(FALSE_ALARM, runs, 0.05)


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
    assert shortfalls(max_form, moments=moments) == 0


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(1 + 2 * upper) / 3", "(1 + upper) / 3"),
        ("else (1 + upper) / 2", "else upper / 2"),
        ('"P2", 0.0]', '"P1", 0.0]'),
    ],
)
def test_planted_mistakes_in_polynomials_are_seen(right: str, wrong: str) -> None:
    assert shortfalls(with_mistake(max_form, right, wrong), moments=True) > 0


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
    assert shortfalls(with_mistake(max_form, right, wrong)) > 0


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


def rare_rejections(module: Any, units: tuple[int, ...], runs: int) -> int:
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
    assert rare_rejections(max_form, units, runs) <= stats.binom.isf(1e-6, runs, 1e-3)


@pytest.mark.parametrize(
    "wrong", ["0.0 / means.units[:, None]", "RARE_UNITS / means.units.sum() * np.ones((2, 1))"]
)
def test_rare_categories_break_the_level_without_slack_for_each_owner(wrong: str) -> None:
    planted = with_mistake(max_form, "RARE_UNITS / means.units[:, None]", wrong)
    assert rare_rejections(planted, (200, 20_000), 500) > stats.binom.isf(1e-6, 500, 1e-3)
