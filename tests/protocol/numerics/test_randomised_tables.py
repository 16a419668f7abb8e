"""Tables of answers: unbiased, with the level under independence, and seeing dependence."""

import numpy as np
import pytest

from tacit_protocol.numerics.randomised_tables import (
    AnsweredTable,
    cell_cramers_v,
    cell_distance_correlation,
    cell_rank_correlation,
    contrast_basis,
    contrasts,
    independence_test,
    table_estimates,
    tables_with_margins,
)
from tacit_protocol.privacy.randomised_response import mixing

Floats = np.typing.NDArray[np.float64]
DEPENDENT = np.array([[0.2, 0.1, 0.03], [0.1, 0.1, 0.1], [0.02, 0.1, 0.25]])


def drawn(
    shares: Floats, n: int, kept: tuple[float, float], noise: float, rng: np.random.Generator
) -> AnsweredTable:
    answered = mixing(len(shares), kept[0]) @ shares @ mixing(shares.shape[1], kept[1]).T
    counts = rng.multinomial(n, answered.ravel()).reshape(shares.shape)
    noisy = counts + (rng.laplace(0, noise, shares.shape) if noise else 0.0)
    return AnsweredTable(noisy.astype(float), counts.sum(axis=1), kept, (True, True), noise)


@pytest.mark.parametrize(("kept", "noise"), [((0.4, 1.0), 2.0), ((0.4, 0.5), 0.0)])
def test_the_debiased_table_is_unbiased(kept: tuple[float, float], noise: float) -> None:
    """A mean of 400 tables within 6 standard errors in each of 9 cells: 2e-8 to fail by chance."""
    rng = np.random.default_rng(1)
    found = np.array(
        [table_estimates(drawn(DEPENDENT, 2000, kept, noise, rng), 0.95).shares for _ in range(400)]
    )
    errors = (found.mean(axis=0) - DEPENDENT) / (found.std(axis=0) / 20)
    assert np.abs(errors).max() < 6


@pytest.mark.parametrize(("kept", "noise"), [((0.4, 1.0), 2.0), ((0.6, 0.6), 0.0)])
def test_intervals_hold_what_they_estimate(kept: tuple[float, float], noise: float) -> None:
    """Of 300 intervals at 95 % fewer than 261 hold with probability below 1e-7."""
    rng = np.random.default_rng(2)
    true = [of(DEPENDENT) for of in (cell_distance_correlation, cell_cramers_v, cell_rank_correlation)]
    held = np.zeros(3)
    for _ in range(300):
        own = table_estimates(drawn(DEPENDENT, 3000, kept, noise, rng), 0.95)
        for place, one in enumerate((own.distance_correlation, own.cramers_v, own.correlation)):
            assert one.lower <= one.value <= one.upper
            held[place] += one.lower <= true[place] <= one.upper
    assert held.min() >= 261


@pytest.mark.parametrize(("kept", "noise"), [((0.4, 1.0), 2.0), ((0.4, 0.4), 0.0)])
@pytest.mark.parametrize("shares", [[0.3, 0.4, 0.3], [0.9, 0.08, 0.02]])
def test_the_level_is_kept(kept: tuple[float, float], noise: float, shares: list[float]) -> None:
    """400 independent tables at level .05: more than 46 rejections have probability below 1e-6."""
    rng, rejected = np.random.default_rng(3), 0
    for run in range(400):
        table = drawn(np.outer([0.5, 0.3, 0.2], shares), 500, kept, noise, rng)
        rejected += independence_test(table, 99, np.random.SeedSequence(run)).pvalue <= 0.05
    assert rejected <= 46


def test_dependence_is_seen_and_the_pvalue_has_its_least_value() -> None:
    table = drawn(DEPENDENT, 20_000, (0.4, 1.0), 2.0, np.random.default_rng(4))
    assert independence_test(table, 199, np.random.SeedSequence(1)).pvalue == pytest.approx(1 / 200)


def test_contrasts_are_orthonormal_under_their_weights() -> None:
    weights = np.array([0.1, 0.2, 0.3, 0.4])
    for ordered in (True, False):
        own = contrasts(weights, contrast_basis(weights, ordered=ordered))
        assert np.allclose(own.T @ (weights[:, None] * own), np.eye(3))
        assert np.allclose(weights @ own, 0)


def test_tables_with_margins_have_them_and_the_hypergeometric_mean() -> None:
    """4000 tables: a cell's mean is within 6 of its standard errors."""
    rows, columns = np.array([30, 50, 20]), np.array([60, 30, 10])
    found = tables_with_margins(rows, columns, np.random.default_rng(5), 4000)
    assert np.all(found.sum(axis=2) == rows)
    assert np.all(found.sum(axis=1) == columns)
    wanted = np.outer(rows, columns) / 100
    assert np.abs((found.mean(axis=0) - wanted) / (found.std(axis=0) / np.sqrt(4000))).max() < 6


def test_a_column_that_is_lost_in_the_noise_has_no_correlation() -> None:
    table = AnsweredTable(np.array([[5.0, 0.0], [6.0, 0.0]]), np.array([5, 6]), (0.5, 1.0), (True, True), 2.0)
    assert table_estimates(table, 0.95).distance_correlation is None
