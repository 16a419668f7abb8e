"""Noisy counts against a known distribution: reference values, and the level over a grid.

False alarms: every rate is compared with its level plus 5.5 standard errors of its runs; all comparisons
together raise a false alarm with probability below 1e-6.
"""

import math
import tracemalloc

import numpy as np
import pytest
from scipy.stats import chi2

from tacit_protocol.numerics.noisy_tables import CellNoise
from tacit_protocol.procedures.identity.simulate import PlannedIdentity
from tacit_protocol.procedures.identity.statistic import GoodnessOfFit

RUNS, DRAWS, LEVEL = 2000, 999, 0.05


def skewed(cells: int) -> np.ndarray:
    weights = 1 / np.arange(1, cells + 1) ** 1.5
    return np.asarray(weights / weights.sum())


def sparse(cells: int) -> np.ndarray:
    """Half of the cells share a thousandth, one has nothing."""
    q = np.full(cells, 0.001 / (cells // 2))
    q[: cells - cells // 2] = 0.999 / (cells - cells // 2)
    q[-1] = 0.0
    return np.asarray(q / q.sum())


LAWS = {"uniform": lambda cells: np.full(cells, 1 / cells), "skewed": skewed, "sparse": sparse}


@pytest.mark.parametrize("law", LAWS)
def test_the_form_is_the_dense_one(law: str) -> None:
    """With S = diag(q) - q q' + I/(n rho), n (c/n - q)' P S^-1 P (c/n - q), as published."""
    k, n, rho = 7, 200, 0.01
    q = LAWS[law](k)
    fit = GoodnessOfFit(q, n, CellNoise("gaussian", 1 / math.sqrt(rho)), "noise-aware")
    counts = fit.simulate(np.random.default_rng(1))
    projection = np.eye(k) - np.full((k, k), 1 / k)
    covariance = np.diag(q) - np.outer(q, q) + np.eye(k) / (n * rho)
    apart = projection @ (counts / n - q)
    dense = n * apart @ np.linalg.inv(covariance) @ apart
    assert float(fit.statistic(counts)) == pytest.approx(dense, rel=1e-10)


def test_the_published_statistic_divides_by_expected_counts_and_impossible_cells_by_their_noise() -> None:
    q, noise = np.array([0.5, 0.5, 0.0]), CellNoise("laplace", 3.0)
    fit = GoodnessOfFit(q, 10, noise, "published")
    assert float(fit.statistic(np.array([7.0, 4.0, 6.0]))) == pytest.approx(4 / 5 + 1 / 5 + 36 / 18)


GRID = [
    (law, cells, units, epsilon)
    for law in LAWS
    for cells in (3, 40, 300)
    for units in (60, 2000)
    for epsilon in (0.1, 1.0, 8.0)
]


@pytest.mark.sweep(1)
@pytest.mark.parametrize("method", ["mcgof, published", "mcgof", "zcdp-gof", "privit-laplace"])
def test_the_level_is_kept_over_the_grid(method: str) -> None:
    """54 cells; 60 units on 300 cells expect 0.2 a cell, and the sparse ones far less."""
    for index, (law, cells, units, epsilon) in enumerate(GRID):
        plan = PlannedIdentity(
            method.partition(",")[0],
            LAWS[law](cells),
            units,
            epsilon,
            LEVEL,
            delta=1e-6,
            weights="published" if "published" in method else "noise-aware",
        )
        found = plan.rates(LAWS[law](cells), RUNS, DRAWS, np.random.SeedSequence([9, index]))
        # Both rates are of the null; the simulated null varies too.
        allowed = LEVEL + 5.5 * math.sqrt(LEVEL * (1 - LEVEL) * (1 / RUNS + 1 / DRAWS))
        assert max(found.false, found.true) < allowed, (law, cells, units, epsilon)


@pytest.mark.long
@pytest.mark.parametrize("law", LAWS)
def test_chi_square_keeps_the_level_where_it_is_chosen(law: str) -> None:
    rng, chosen = np.random.default_rng(11), 0
    for cells in (3, 40, 300):
        for units in (60, 2000, 10**5):
            for deviation in (0.5, 3.0, 30.0):
                fit = GoodnessOfFit(LAWS[law](cells), units, CellNoise("gaussian", deviation), "noise-aware")
                if not fit.chi_square_holds:
                    continue
                chosen += 1
                counts = rng.multinomial(units, fit.probabilities, size=RUNS)
                values = fit.statistic(counts + fit.noise.draw(rng, counts.shape))
                for level in (0.05, 0.01):
                    rate = np.mean(values > chi2.isf(level, cells - 1))
                    assert rate < level + 5.5 * math.sqrt(level / RUNS), (cells, units, deviation)
    assert chosen >= 5


@pytest.mark.long
def test_chi_square_would_break_the_level_on_rare_cells() -> None:
    """Why it is not chosen there: cells with 0.05 expected counts and little noise."""
    q = sparse(200)
    fit = GoodnessOfFit(q, 400, CellNoise("gaussian", 0.2), "noise-aware")
    rng = np.random.default_rng(12)
    counts = rng.multinomial(400, q, size=RUNS)
    values = fit.statistic(counts + fit.noise.draw(rng, counts.shape))
    assert np.mean(values > chi2.isf(0.01, 199)) > 0.02
    assert not fit.chi_square_holds


def test_twenty_thousand_cells_take_linear_memory() -> None:
    k = 20_000
    fit = GoodnessOfFit(np.full(k, 1 / k), 10**6, CellNoise("gaussian", 30.0), "noise-aware")
    counts = fit.simulate(np.random.default_rng(1))
    tracemalloc.start()
    found = fit.test(counts, "auto", 999, np.random.SeedSequence(1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 * 8 * k, "a matrix would take 3 GB"
    assert 1e-6 < found.pvalue < 1 - 1e-6
