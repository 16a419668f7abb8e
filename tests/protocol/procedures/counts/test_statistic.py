"""Homogeneity and independence of noisy tables: level, residuals, margins, Cramér's V, planted mistakes."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import bdtrc
from scipy.stats import chi2_contingency

from tacit_protocol.features.cell_counts import compared_places
from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable
from tacit_protocol.procedures import homogeneity
from tacit_protocol.procedures.homogeneity import Weights, homogeneity_test
from tacit_protocol.procedures.independence_table import cramers_v, independence_test

Floats = npt.NDArray[np.float64]

UNIFORM = np.full(200, 1 / 200)
SKEWED = np.arange(1, 61) ** -1.5 / np.sum(np.arange(1, 61) ** -1.5)


def tables(
    shares: Floats, sizes: tuple[int, ...], noise: CellNoise, rng: np.random.Generator
) -> list[NoisyTable]:
    return [
        NoisyTable(rng.multinomial(units, shares) + noise.draw(rng, shares.shape), units, (noise,))
        for units in sizes
    ]


def test_without_noise_the_spread_is_pearsons_chi_square() -> None:
    counts = np.array([[30.0, 50.0, 20.0], [60.0, 90.0, 50.0], [20.0, 30.0, 50.0]])
    units = counts.sum(axis=1)
    weights = Weights.of(units, np.full(3, 1e-12), 3)
    shares = counts / units[:, None]
    pooled = weights.pooled(shares)
    # With k = 3 weights are 3 n_j: the spread over 3 p is Pearson's term of the cell.
    deviations = np.sum(weights.spread[:, None] * (shares - pooled) ** 2, axis=0) / (3 * pooled)
    assert float(deviations.sum()) == pytest.approx(chi2_contingency(counts).statistic, rel=1e-9)


def rejections(shares: Floats, sizes: tuple[int, ...], epsilon: float, runs: int) -> int:
    rejected = 0
    for run in range(runs):
        rng = np.random.default_rng([17, run])
        drawn = tables(shares, sizes, CellNoise("laplace", 2 / epsilon), rng)
        rejected += homogeneity_test(drawn, 99, np.random.SeedSequence([18, run])).pvalue <= 0.05
    return rejected


SETTINGS = [
    (UNIFORM, (100, 100), 20.0),
    (UNIFORM, (100, 100), 3.0),
    (SKEWED, (50, 1000), 1.0),
    (SKEWED, (200, 200, 200), 20.0),
    (np.array([0.97, 0.01, 0.01, 0.01]), (60, 60), 10.0),
]


@pytest.mark.sweep(2)
@pytest.mark.parametrize(("shares", "sizes", "epsilon"), SETTINGS)
def test_the_level_is_kept_in_sparse_and_skewed_tables(
    shares: Floats, sizes: tuple[int, ...], epsilon: float
) -> None:
    """At a level of exactly .05 so many rejections have probability below 1e-7, five times over."""
    found = rejections(shares, sizes, epsilon, 80)
    assert bdtrc(found - 1, 80, 0.05) > 1e-7


@pytest.mark.long
def test_the_level_is_kept_where_many_cells_hold_two_units() -> None:
    """At a level of exactly .05 so many rejections have probability below 1e-7.

    With the null at the pooled shares alone it is .066: cells that are empty by chance stay so in the null.
    """
    shares, runs, rejected = np.array([0.65, *[0.35 / 39] * 39]), 6000, 0
    for run in range(runs):
        drawn = tables(shares, (200, 200), CellNoise("laplace", 0.4), np.random.default_rng([21, run]))
        rejected += homogeneity_test(drawn, 39, np.random.SeedSequence([22, run])).pvalue <= 0.05
    assert bdtrc(rejected - 1, runs, 0.05) > 1e-7


def test_the_plain_statistic_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mistake: the spread itself, nothing subtracted, and one null, at the pooled shares."""
    stated = Weights.cells

    def plain(self: Weights, shares: Floats) -> tuple[Floats, Floats]:
        ratio, _ = stated(self, shares)
        return ratio, ratio

    monkeypatch.setattr(homogeneity.Weights, "cells", plain)
    monkeypatch.setattr(homogeneity, "plausible", lambda fitted, *_: (fitted,))
    found = rejections(UNIFORM, (100, 100), 20.0, 80)
    assert bdtrc(found - 1, 80, 0.05) < 1e-7


def test_a_null_without_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mistake: simulated tables that carry no noise."""
    monkeypatch.setattr(
        NoisyTable, "draw_noise", lambda self, _, replicates: np.zeros((replicates, len(self.counts)))
    )
    found = rejections(np.full(6, 1 / 6), (400, 400), 0.2, 80)
    assert bdtrc(found - 1, 80, 0.05) < 1e-7


ROWS = np.arange(1, 9) ** -1.5 / np.sum(np.arange(1, 9) ** -1.5)
COLUMNS = np.array([0.5, 0.3, 0.15, 0.05])


def draw(probabilities: Floats, units: int, noise: CellNoise, rng: np.random.Generator) -> NoisyTable:
    counts = rng.multinomial(units, probabilities) + noise.draw(rng, probabilities.shape)
    return NoisyTable(counts, units, (noise,))


def rejections_of_independence(
    probabilities: Floats, shape: tuple[int, ...], units: int, epsilon: float, runs: int
) -> int:
    rejected = 0
    for run in range(runs):
        table = draw(probabilities, units, CellNoise("laplace", 2 / epsilon), np.random.default_rng([7, run]))
        rejected += independence_test(table, shape, 99, np.random.SeedSequence([8, run])).pvalue <= 0.05
    return rejected


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("units", "epsilon"), [(60, 20.0), (60, 3.0), (500, 0.5), (500, 20.0), (20_000, 1.0)]
)
def test_the_level_is_kept_with_expected_counts_below_one(units: int, epsilon: float) -> None:
    """At a level of exactly .05 so many rejections have probability below 1e-7, five times over."""
    found = rejections_of_independence(np.outer(ROWS, COLUMNS).ravel(), (8, 4), units, epsilon, 80)
    assert bdtrc(found - 1, 80, 0.05) > 1e-7


@pytest.mark.long
@pytest.mark.parametrize(("units", "epsilon"), [(1000, 0.03), (200, 0.1)])
def test_the_level_is_kept_where_noise_hides_that_one_category_holds_all(units: int, epsilon: float) -> None:
    """At a level of exactly .01 so many rejections have probability below 1e-7, twice over.

    With the null at the fitted margins alone they are .06 and .04: margins drowned in noise look far more
    even than they are.
    """
    margin = np.eye(10)[0]
    shape, runs, rejected = (10, 10), 400, 0
    for run in range(runs):
        rng = np.random.default_rng([9, run])
        table = draw(np.outer(margin, margin).ravel(), units, CellNoise("laplace", 2 / epsilon), rng)
        rejected += independence_test(table, shape, 99, np.random.SeedSequence([10, run])).pvalue <= 0.01
    assert bdtrc(rejected - 1, runs, 0.01) > 1e-7 if rejected else True


def test_a_null_of_independence_without_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        NoisyTable, "draw_noise", lambda self, _, replicates: np.zeros((replicates, len(self.counts)))
    )
    found = rejections_of_independence(np.outer(ROWS, COLUMNS).ravel(), (8, 4), 500, 0.5, 80)
    assert bdtrc(found - 1, 80, 0.05) < 1e-7


def dependent(strength: float) -> Floats:
    joint = (1 - strength) * np.outer(COLUMNS, COLUMNS) + strength * np.diag(COLUMNS)
    return np.asarray(joint.ravel())


@pytest.mark.sweep(1)
@pytest.mark.parametrize("strength", [0.0, 0.1, 0.5])
def test_intervals_of_cramers_v_hold_it(strength: float) -> None:
    """V of this table is the strength itself. At a coverage of .95 so many misses have probability 1e-7."""
    runs, missed = 25, 0
    for run in range(runs):
        table = draw(dependent(strength), 3000, CellNoise("laplace", 4.0), np.random.default_rng([2, run]))
        found = cramers_v(table, (4, 4), 0.05, np.random.SeedSequence([3, run]))
        assert 0 <= found.lower <= found.value <= found.upper <= 1
        missed += not found.lower <= strength <= found.upper
    assert bdtrc(missed - 1, runs, 0.05) > 1e-7 if missed else True


def test_cells_that_nobody_lists_do_not_blur_cramers_v() -> None:
    """Two by two levels at V = .5, and cells for unlisted and missing values with a twentieth of the units.

    At misses of .05 a run, 10 of 25 have probability 3e-7. When nearly empty cells counted, widths were up to
    .5, and the lower end was the estimate itself in two of three runs.
    """
    joint = np.zeros((4, 4))
    joint[:2, :2] = 0.95 * np.array([[0.375, 0.125], [0.125, 0.375]])
    joint[2, :2] = joint[:2, 3] = 0.0125
    missed, widths = 0, []
    for run in range(25):
        drawn = draw(joint.ravel(), 2000, CellNoise("laplace", 2.0), np.random.default_rng([7, run]))
        table = replace(drawn, compared=compared_places((4, 4), (2, 2)))
        found = cramers_v(table, (2, 2), 0.05, np.random.SeedSequence([8, run]))
        missed += not found.lower <= 0.5 <= found.upper
        widths.append(found.upper - found.lower)
        assert found.lower < found.value < found.upper
    assert missed < 10
    assert max(widths) < 0.15


def yes_or_no(phi: float, unlisted: float, together: bool) -> Floats:
    """Two columns of two levels, (16,), beside cells of unlisted and missing values with so many units."""
    joint = np.zeros((4, 4))
    joint[:2, :2] = (1 - unlisted) * (0.25 + phi / 4 * np.array([[1, -1], [-1, 1]]))
    if together:
        joint[3, 3] = unlisted
    else:
        joint[2, :2] = joint[:2, 3] = unlisted / 4
    return np.asarray(joint.ravel())


def rejections_given_the_listed(joint: Floats, epsilon: float, runs: int) -> int:
    rejected, cells = 0, compared_places((4, 4), (2, 2))
    for run in range(runs):
        rng = np.random.default_rng([31, run])
        drawn = replace(draw(joint, 1000, CellNoise("laplace", 2 / epsilon), rng), compared=cells)
        rejected += independence_test(drawn, (2, 2), 99, np.random.SeedSequence([32, run])).pvalue <= 0.05
    return rejected


def test_empty_cells_of_unlisted_values_cost_independence_no_power() -> None:
    """With a power of .8, as of two by two cells alone, so few of 60 have probability 1e-7.

    When the twelve other cells were in the statistic too, the power was .19.
    """
    assert rejections_given_the_listed(yes_or_no(0.1, 0.0, together=False), 1.0, 60) >= 30


@pytest.mark.sweep(2)
@pytest.mark.parametrize("unlisted", [0.1, 0.5, 0.9, 0.97])
@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_the_level_of_independence_is_kept_whatever_share_is_not_listed(
    unlisted: float, together: bool, epsilon: float
) -> None:
    """At a level of exactly .05 so many rejections have probability below 1e-7, sixteen times over.

    Values that are missing together are no dependence of those listed.
    """
    found = rejections_given_the_listed(yes_or_no(0.0, unlisted, together), epsilon, 60)
    assert bdtrc(found - 1, 60, 0.05) > 1e-7 if found else True


def homogeneous_rejections(
    shares: tuple[float, float], unlisted: tuple[float, float], epsilon: float, runs: int
) -> int:
    rejected = 0
    for run in range(runs):
        rng, owners = np.random.default_rng([33, run]), []
        for share, other in zip(shares, unlisted, strict=True):
            law = np.array([(1 - other) * share, (1 - other) * (1 - share), other / 3, 2 * other / 3])
            drawn = draw(law, 1000, CellNoise("laplace", 2 / epsilon), rng)
            owners.append(replace(drawn, compared=np.arange(2)))
        rejected += homogeneity_test(owners, 99, np.random.SeedSequence([34, run])).pvalue <= 0.05
    return rejected


@pytest.mark.sweep(2)
@pytest.mark.parametrize("unlisted", [(0.0, 0.5), (0.1, 0.5), (0.9, 0.1), (0.9, 0.97)])
@pytest.mark.parametrize("epsilon", [0.3, 3.0])
def test_owners_who_differ_in_missing_values_alone_are_homogeneous(
    unlisted: tuple[float, float], epsilon: float
) -> None:
    """At a level of exactly .05 so many rejections have probability below 1e-7, eight times over."""
    found = homogeneous_rejections((0.8, 0.8), unlisted, epsilon, 60)
    assert bdtrc(found - 1, 60, 0.05) > 1e-7 if found else True


def test_a_difference_among_the_listed_is_found_beside_missing_values() -> None:
    """With a power of .95 so few of 40 have probability below 1e-9."""
    assert homogeneous_rejections((0.5, 0.6), (0.0, 0.2), 1.0, 40) >= 25


def test_shares_of_listed_cells_hold_their_differences_beside_missing_values() -> None:
    """At misses of .05 so many of 40 have probability below 1e-7; the share of all units differs by .29."""
    missed = 0
    for run in range(40):
        rng = np.random.default_rng([35, run])
        owners = [
            replace(draw(np.array(law), 2000, CellNoise("laplace", 2.0), rng), compared=np.arange(2))
            for law in ([0.6, 0.4, 0.0, 0.0], [0.25, 0.25, 0.0, 0.5])
        ]
        found, half, _ = homogeneity.differences(
            owners, np.arange(2), 0.05, 199, np.random.SeedSequence([36, run])
        )
        missed += not abs(found[0, 0] - 0.1) <= half[0, 0]
    assert bdtrc(missed - 1, 40, 0.05) > 1e-7 if missed else True
