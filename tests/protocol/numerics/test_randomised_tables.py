"""Noisy and randomised tables: debiasing, intervals, level, products of contrasts; adjusted p-values."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit_protocol.numerics.inference import FixedScore, Score, holm, products, sidak
from tacit_protocol.numerics.noisy_tables import REACH, CellNoise, onto_simplex, plausible
from tacit_protocol.numerics.randomised_tables import (
    ALL_PRODUCTS,
    FURTHER_COLUMN,
    ONE_PRODUCT,
    SMOOTHNESS,
    AnsweredTable,
    SeveralAnswers,
    _Squares,
    cell_cramers_v,
    cell_distance_correlation,
    cell_rank_correlation,
    contrast_basis,
    contrasts,
    independence_test,
    mutual_test,
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


@pytest.mark.parametrize(("kept", "noise"), [((0.4, 1.0), 2.0), ((0.4, 0.4), 0.0)])
def test_tables_of_other_units_and_cells_add_up_and_keep_the_level(
    kept: tuple[float, float], noise: float
) -> None:
    """300 independent pairs of tables at level .05: more than 37 rejections have probability below 1e-6.

    Of dependent ones, neither of which is enough by itself, both find more than either does.
    """
    rng, rejected, found = np.random.default_rng(11), 0, np.zeros(3)
    halves = np.array([[0.27, 0.23], [0.23, 0.27]])
    for run in range(300):
        seed = np.random.SeedSequence(run)
        table = drawn(np.outer([0.5, 0.3, 0.2], [0.6, 0.3, 0.1]), 400, kept, noise, rng)
        other = drawn(np.outer([0.6, 0.4], [0.5, 0.5]), 300, kept, noise, rng)
        rejected += independence_test(table, 99, seed, more=[other]).pvalue <= 0.05
        if run < 60:
            both = [drawn(halves, units, (0.9, kept[1] ** 0.1), noise, rng) for units in (600, 600)]
            own = [independence_test(each, 99, seed).pvalue <= 0.05 for each in both]
            found += [*own, independence_test(both[0], 99, seed, more=both[1:]).pvalue <= 0.05]
    assert rejected <= 37
    assert found[2] > found[:2].max()


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


def several(
    n: int, noise: float, rng: np.random.Generator, sizes: tuple[int, ...] = (2, 3, 2)
) -> SeveralAnswers:
    """Independent answers of three sides; the last is counted where there is noise."""
    sides = [rng.choice(size, n, p=np.arange(1, size + 1) / (size * (size + 1) / 2)) for size in sizes]
    whole = np.zeros(sizes, dtype=np.int64)
    np.add.at(whole, tuple(sides), 1)
    if noise == 0:
        return SeveralAnswers(whole, None, (0.4, 0.3, 0.4), (True, True, False), 0.0)
    noisy = whole + rng.laplace(0, noise, whole.shape)
    return SeveralAnswers(whole.sum(axis=2), noisy, (0.4, 0.3, 1.0), (True, True, False), noise)


def products_of(table: SeveralAnswers, noise: float) -> dict[tuple[int, ...], tuple[float, float, int]]:
    """Every product of two and three sides' contrasts: over its deviation, its signal, and its order."""
    found = {}
    n, own = table.units, []
    whole = table.answered if table.counts is None else table.counts
    for side, ordered in enumerate(table.ordered):
        margin = whole.sum(axis=tuple(s for s in range(3) if s != side)) / n
        if side < table.answered.ndim:
            margin = table.margins[side] / n
        share = margin / margin.sum()
        own.append(
            np.column_stack([np.ones(len(share)), contrasts(share, contrast_basis(share, ordered=ordered))])
        )
    for place in np.ndindex(*whole.shape):
        several_sides = [side for side in range(3) if place[side]]
        if len(several_sides) < 2:
            continue
        counts, variance = (table.answered[..., None] if noise else whole), float(n)
        vectors = [own[side][:, place[side]] for side in range(3)]
        if noise and not place[2]:
            vectors[2] = np.ones(1)
        elif noise:
            counts = whole
            variance += 2 * noise**2 * np.prod([(vector**2).sum() for vector in vectors])
        product = np.einsum("abc,a,b,c->", counts.astype(float), *vectors)
        kept = n * np.prod([table.kept[side] ** 2 for side in several_sides]) * n / variance
        order = sum(place[side] if table.ordered[side] else 1 for side in several_sides)
        found[place] = (float(product / np.sqrt(variance)), float(kept), order)
    return found


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_the_joint_statistic_is_of_the_weighted_squares_of_all_products(noise: float, halves: bool) -> None:
    """Against a loop over products, as the mathematics states it: with halves signals add up products."""
    rng = np.random.default_rng(8)
    tables = [several(400, noise, rng)] + ([several(300, noise, rng, (2, 2, 2))] if halves else [])
    units = sum(table.units for table in tables)
    parts = [products_of(table, noise) for table in tables]
    squares, weights, likely = [], [], []
    for place, (_, _, order) in parts[0].items():
        own = [part[place] for part in parts if place in part]
        signal = sum(kept for _, kept, _ in own)
        squares.append(sum(product * np.sqrt(kept) for product, kept, _ in own) ** 2 / signal)
        weights.append(np.sqrt(signal / units) * SMOOTHNESS ** (order - 2))
        alike = [o for p, (_, _, o) in parts[0].items() if np.count_nonzero(p) == np.count_nonzero(place)]
        whole = sum(SMOOTHNESS**o for o in alike)
        likely.append(FURTHER_COLUMN ** np.count_nonzero(place) * SMOOTHNESS**order / whole)
    z, w, a = np.array(squares), np.array(weights), np.array(likely) / sum(likely)
    counted = [(table.answered[None].astype(float), table.noisy) for table in tables]
    # Likelihoods beside the null's: z is a square of variance 1/(1 - r) where the part r of it is no chance.
    one = np.sqrt(1 - ONE_PRODUCT) * (np.exp(z * ONE_PRODUCT / 2) @ a)
    shares = ALL_PRODUCTS * w / w.max()
    every = np.prod(np.sqrt(1 - shares) * np.exp(z * shares / 2))
    assert _Squares(tables).of(counted)[0] == pytest.approx(np.log(one + every))


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize("noise", [0.0, 3.0])
def test_the_joint_test_keeps_its_level(noise: float, halves: bool) -> None:
    """300 independent tables at level .05: more than 37 rejections have probability below 1e-6."""
    rng, rejected = np.random.default_rng(9), 0
    for run in range(300):
        seed = np.random.SeedSequence(run)
        tables = [several(300, noise, rng), several(200, noise, rng, (2, 2, 2))]
        tables = tables if halves else tables[:1]
        rejected += mutual_test(tables, 99, seed).pvalue <= 0.05
    assert rejected <= 37


def test_permuted_answers_have_the_law_of_permutations() -> None:
    """Joint tables of two permuted sides against ``Generator.permutation``: cells' means and variances.

    12 cells of 4000 tables within 6 standard errors: 2e-8 to fail by chance.
    """
    rng = np.random.default_rng(10)
    first, second, third = rng.integers(0, 2, 40), rng.integers(0, 3, 40), rng.integers(0, 2, 40)
    margins = [np.bincount(side) for side in (first, second, third)]
    rows = tables_with_margins(margins[0], margins[1], rng, 4000).reshape(4000, -1)
    found = tables_with_margins(rows.astype(np.int64), margins[2], rng, 4000).reshape(4000, -1)
    drawn = np.zeros((4000, 12))
    for run in range(4000):
        codes = np.ravel_multi_index((first, rng.permutation(second), rng.permutation(third)), (2, 3, 2))
        drawn[run] = np.bincount(codes, minlength=12)
    errors = np.sqrt((found.var(axis=0) + drawn.var(axis=0)) / 4000)
    assert np.abs((found.mean(axis=0) - drawn.mean(axis=0)) / errors).max() < 6
    spread = np.sqrt(((found - found.mean(0)) ** 2).var(axis=0) * 2 / 4000)
    assert np.abs((found.var(axis=0) - drawn.var(axis=0)) / spread).max() < 6


# Noise on cells and on sums of cells: its variance, its bound, its simulation; projections.


NOISES = [
    CellNoise("laplace", 2.0),
    CellNoise("gaussian", 3.0),
    CellNoise("laplace", 0.5, 7),
    CellNoise("gaussian", 0.5, 4),
]


@pytest.mark.parametrize("noise", NOISES)
def test_simulated_noise_has_the_stated_variance_and_stays_within_its_bound(noise: CellNoise) -> None:
    drawn = noise.draw(np.random.default_rng(3), (400_000,))
    # Standard errors: .0016 of the mean, and of the variance relative .004 at most; ten of them.
    assert abs(drawn.mean()) < 0.016 * math.sqrt(noise.variance)
    assert drawn.var() == pytest.approx(noise.variance, rel=0.04)
    for outside in (0.1, 0.001):
        beyond = float(np.mean(np.abs(drawn) > noise.half_width(outside)))
        assert beyond <= outside + 10 * math.sqrt(outside / 400_000)


def test_bounds_of_single_noises_are_exact() -> None:
    assert CellNoise("laplace", 2.0).half_width(0.05) == pytest.approx(2 * math.log(20))
    assert CellNoise("gaussian", 2.0).half_width(0.05) == pytest.approx(2 * 1.959963984540054)
    assert CellNoise("gaussian", 1.0, 4).half_width(0.05) == pytest.approx(2 * 1.959963984540054)


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=30), st.integers(0, 2**32 - 1))
def test_the_projection_is_the_nearest_probabilities(values: list[float], seed: int) -> None:
    given_values = np.array(values)
    projected = onto_simplex(given_values)
    assert projected.min() >= 0
    assert projected.sum() == pytest.approx(1)
    others = np.random.default_rng(seed).dirichlet(np.ones(len(values)), 50)
    nearest = np.sum((projected - given_values) ** 2)
    assert (np.sum((others - given_values) ** 2, axis=1) >= nearest - 1e-9).all()


@pytest.mark.sweep(4)
@pytest.mark.parametrize("noise", [0.0, 0.015, 0.15, 5.0])
@pytest.mark.parametrize(
    "fitted", [[0.5, 0.3, 0.2, 0.0], [1.0, 0.0, 0.0, 0.0], [0.25] * 4, [0.4, 0.4, 0.1, 0.1]]
)
def test_plausible_probabilities_are_as_near_as_asked(fitted: list[float], noise: float) -> None:
    own = np.array(fitted)
    variances = noise**2 + own * (1 - own) / 1000
    deviation = float(np.sqrt(variances.sum()))
    same, sparse, even = plausible(own, noise**2, 1000)
    assert same is own
    for other in (sparse, even):
        assert other.sum() == pytest.approx(1)
        assert other.min() >= 0
        assert np.linalg.norm(other - own) <= REACH * deviation + 1e-12
    assert sparse @ sparse >= own @ own - 1e-12 >= even @ even - 2e-12
    # Scaling to a sum of 1 moves what a bisection of 50 steps left.
    assert (np.abs(even - own) <= REACH * np.sqrt(variances) + 1e-9).all()
    if noise == 5.0:
        assert even == pytest.approx([0.25] * 4)


# Sidak without cancellation, Holm against closed testing, and scores of which three values tell all.


pvalues = st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=6)


def closed_testing(p: list[float]) -> list[float]:
    """The largest Bonferroni p-value of any intersection that contains hypothesis i."""
    adjusted = [0.0] * len(p)
    for size in range(1, len(p) + 1):
        for subset in itertools.combinations(range(len(p)), size):
            joint = min(1.0, size * min(p[i] for i in subset))
            for i in subset:
                adjusted[i] = max(adjusted[i], joint)
    return adjusted


@settings(max_examples=200, deadline=None)
@given(pvalues)
def test_holm_is_closed_testing_with_bonferroni(p: list[float]) -> None:
    np.testing.assert_allclose(holm(np.array(p)), closed_testing(p), rtol=1e-14)


@pytest.mark.parametrize("smallest", [1e-300, 1e-20, 1e-9, 0.001, 0.3, 0.999])
@pytest.mark.parametrize("comparisons", [1, 2, 200, 50_000])
def test_sidak_to_the_last_digits(smallest: float, comparisons: int) -> None:
    with mpmath.workdps(350):
        exact = 1 - (1 - mpmath.mpf(smallest)) ** comparisons
        assert abs(sidak(smallest, comparisons) / exact - 1) < 1e-12


def test_a_score_whose_cells_no_effect_changes_is_told_by_three_of_its_values() -> None:
    """Of hazard ratios, whose ends are those of all values one by one."""
    rng, strata = np.random.default_rng(5), 3
    top, bottom = (products(4, (one, 3, 1.0), (1, 2, 0.5)) for one in (0, 1))
    cells = rng.uniform(20, 80, (strata, 4))
    counts, variances = cells + rng.normal(0, 3, cells.shape), np.full(cells.shape, 9.0)
    one, all_of_them = (
        kind(top, bottom, lambda counts, _: np.broadcast_to(cells, counts.shape), ratio=True)
        for kind in (FixedScore, Score)
    )
    theta = np.exp(np.linspace(-5, 5, 41))
    np.testing.assert_allclose(
        one.excess(counts, variances, 1.96)(theta), all_of_them.excess(counts, variances, 1.96)(theta), 1e-11
    )
    found, expected = (score.estimate(counts, variances, 0.05) for score in (one, all_of_them))
    assert (found.value, found.lower, found.upper) == pytest.approx(
        (expected.value, expected.lower, expected.upper), rel=1e-9
    )
    assert found.lower is not None
    assert found.upper is not None
