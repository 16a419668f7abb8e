"""The max form: Q against linear algebra, level under Gaussian nulls, and who is named."""

import itertools
from typing import Any

import numpy as np
import pytest
from planted import with_mistake
from scipy import stats

from tacit_protocol.procedures.means import max_form
from tacit_protocol.procedures.means.max_form import Family, coordinate_pvalues, max_test
from tacit_protocol.procedures.means.private_means import FloatMatrix, FloatVector, PrivateMeans

FALSE_ALARM = 1e-6
"""Probability that a correct test of a level fails: allowed rejections are this quantile of the binomial."""


def family(*sizes: int, name: str = "column", share: float = 1.0, first: int = 0) -> Family:
    ends = first + np.cumsum([0, *sizes])
    groups = tuple((str(i), int(a), int(b)) for i, (a, b) in enumerate(itertools.pairwise(ends)))
    return Family(name, groups, share)


def test_two_owners_q_is_the_squared_z_score() -> None:
    means = PrivateMeans(np.array([[0.3, 0.1], [0.1, 0.2]]), np.array([100.0, 400.0]), np.array([0.05, 0.01]))
    statistic, pvalues = coordinate_pvalues(means, np.array([0.5, 0.2]))
    spread = np.array([0.5, 0.2]) * (1 / 100 + 1 / 400) + 0.05**2 + 0.01**2
    z = np.array([0.2, -0.1]) / np.sqrt(spread)
    np.testing.assert_allclose(statistic, z**2, rtol=1e-13)
    np.testing.assert_allclose(pvalues, 2 * stats.norm.sf(abs(z)), rtol=1e-12)


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


def test_level_is_nearly_used_up_where_coordinates_are_independent() -> None:
    """Sidak is exact for one family of independent coordinates; two families lose a little."""
    runs = 1500
    found = rejections(
        max_form, np.array([300.0, 900.0]), np.array([0.02, 0.01]), roots(12)["independent"], runs
    )
    assert found >= stats.binom.ppf(FALSE_ALARM, runs, 0.045)


def test_leaving_the_privacy_noise_out_of_the_variance_is_seen() -> None:
    planted = with_mistake(max_form, " + (means.noise**2)[:, None]", "")
    units, noise = np.array([300.0, 5000.0]), np.array([0.05, 0.003])
    allowed = stats.binom.isf(FALSE_ALARM, 500, 0.05)
    assert rejections(planted, units, noise, roots(12)["independent"], 500) > allowed
    assert rejections(max_form, units, noise, roots(12)["independent"], 500) <= allowed


def test_the_group_that_differs_is_named_and_no_other() -> None:
    rng = np.random.default_rng(3)
    values = rng.normal(0, 1e-3, (3, 10))
    values[1, 5] += 0.5
    means = PrivateMeans(values, np.full(3, 1e4), np.full(3, 1e-3))
    _, overall, groups = max_test(means, np.full(10, 0.01), [family(2, 2, 4, 2)])
    assert [group.pvalue < 1e-6 for group in groups] == [False, False, True, False]
    assert [group.name for group in groups] == ["0", "1", "2", "3"]
    assert overall < 1e-6


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
