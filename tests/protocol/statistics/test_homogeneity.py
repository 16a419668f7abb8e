"""Homogeneity: its reference value, its level in sparse tables, and the plain statistic that fails there."""

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import bdtrc
from scipy.stats import chi2_contingency

from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable
from tacit_protocol.procedures.counts import statistic
from tacit_protocol.procedures.counts.statistic import Weights, compare_pairs, homogeneity_test

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


def test_the_expected_spread_is_what_simulation_finds() -> None:
    rng = np.random.default_rng(4)
    noise, sizes = CellNoise("laplace", 2.0), (300, 900, 100)
    shares = np.array([0.6, 0.3, 0.1])
    weights = Weights.of(np.array(sizes, dtype=float), np.full(3, noise.variance), 3)
    found = []
    for _ in range(20_000):
        drawn = np.stack([table.counts / table.units for table in tables(shares, sizes, noise, rng)])
        pooled = weights.pooled(drawn)
        found.append(np.einsum("j,jk->k", weights.spread, (drawn - pooled) ** 2))
    expected = weights.sampling * shares * (1 - shares) + weights.noise
    # Relative standard error below .01; six of them.
    assert np.mean(found, axis=0) == pytest.approx(expected, rel=0.06)


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

    monkeypatch.setattr(statistic.Weights, "cells", plain)
    monkeypatch.setattr(statistic, "plausible", lambda fitted, *_: (fitted,))
    found = rejections(UNIFORM, (100, 100), 20.0, 80)
    assert bdtrc(found - 1, 80, 0.05) < 1e-7


def test_a_null_without_noise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted mistake: simulated tables that carry no noise."""
    monkeypatch.setattr(
        NoisyTable, "draw_noise", lambda self, _, replicates: np.zeros((replicates, len(self.counts)))
    )
    found = rejections(np.full(6, 1 / 6), (400, 400), 0.2, 80)
    assert bdtrc(found - 1, 80, 0.05) < 1e-7


def test_a_difference_is_found_in_its_cell_and_its_pair() -> None:
    rng = np.random.default_rng(5)
    noise = CellNoise("gaussian", 3.0)
    same, other = np.array([0.4, 0.3, 0.2, 0.1, 0, 0]), np.array([0.4, 0.3, 0.1, 0.2, 0, 0])
    drawn = tables(same, (2000, 2000), noise, rng) + tables(other, (2000,), noise, rng)
    test = homogeneity_test(drawn, 999, np.random.SeedSequence(1))
    assert test.pvalue == 1 / 1000
    assert test.cells[[2, 3]].tolist() == [1 / 1000, 1 / 1000]
    pairs = compare_pairs(drawn, 999, np.random.SeedSequence(2))
    assert [pair.pvalue for pair in pairs if pair.second == 2] == pytest.approx([3 / 1000, 3 / 1000])
