"""Tables of cells: cuts and counts; exact moments, level, strata and coverage of what is said of them."""

import math
from typing import Any

import numpy as np
import pytest
from made_studies import Drawing, made_study, rows_table
from two_sample_cases import domain_of

from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable
from tacit_protocol.numerics.randomised_tables import cell_cramers_v, cell_rank_correlation
from tacit_protocol.procedures.counts.release import COUNTS
from tacit_protocol.procedures.independence.plan import TableTested
from tacit_protocol.procedures.joint_independence import JointIndependence
from tacit_protocol.procedures.quantile_tables.release import TableLayout
from tacit_protocol.procedures.quantile_tables.statistic import (
    Statistic,
    Variable,
    independence_test,
    pair_estimates,
)

PROCEDURE = JointIndependence()


def study_of(numeric: int, parameters: Any = None, categories: tuple[int, ...] = (), **given: Any) -> Study:
    chosen = {"method": "table", "permutations": 199} | (parameters or {})
    domain = domain_of(numeric, categories)
    return made_study(PROCEDURE.name, domain, chosen, **({"delta": 0.0} | given))


def plan_of(study: Study) -> TableLayout:
    plan = PROCEDURE.plan(study)
    assert isinstance(plan, TableTested)
    return plan.layout


def test_exact_counts_are_those_of_the_cells_between_the_cuts() -> None:
    rng = np.random.default_rng(3)
    values, codes = rng.random((500, 2)), rng.integers(0, 5, (500, 1)).astype(np.int32)
    study = study_of(2, {"categories": 3}, categories=(5,))
    held = PROCEDURE.summarise(study, rows_table(study.domain, values, None, codes))
    release = PROCEDURE.privatise(study, held, Drawing())
    levels = len(study.domain.categorical[0].levels)
    counts = np.array(release.vectors[COUNTS].mean(1)).reshape(3, 3, levels)
    for a, b, c in np.ndindex(3, 3, levels):
        ends = [(0.0, *(cut / 128 for cut in release.cuts[f"n{place}"]), 1.01) for place in (0, 1)]
        inside = [(values[:, i] >= ends[i][k]) & (values[:, i] < ends[i][k + 1]) for i, k in ((0, a), (1, b))]
        level = codes[:, 0] == c if c < levels - 1 else codes[:, 0] >= c
        assert counts[a, b, c] == np.sum(inside[0] & inside[1] & level)
    assert max(abs(counts.sum(axis=(1, 2)) - 500 / 3)) < 10, "the likeliest cuts are near the quantiles"


def test_the_number_of_cells_follows_from_public_numbers() -> None:
    def cells(numeric: int, units: int, epsilon: float, owners: int = 1) -> int:
        study = study_of(numeric, epsilon=epsilon, owners=owners, units=units)
        return plan_of(study).shape(units)[0]

    assert [cells(2, n, 1.0) for n in (50, 300, 5000)] == [2, 3, 4]
    assert cells(2, 2000, 0.1) == 2
    assert cells(3, 300, 1.0) == 2
    assert cells(2, 5000, 1.0, owners=2) == 4
    undeclared = study_of(2, owners=2)
    assert plan_of(undeclared).shape(10**6) == (2, 2), "owners whose numbers differ must have the same cells"


def test_a_table_that_even_equal_columns_would_not_fill_is_called_hopeless() -> None:
    study = study_of(2, epsilon=0.01)
    assert any("hardly be told" in words for words in PROCEDURE.warnings(study, {"owner-0": 100}))
    assert PROCEDURE.warnings(study_of(2), {"owner-0": 1000}) == ()
    assert math.isclose(plan_of(study_of(0, categories=(4, 4))).noise.scale, 2.0, rel_tol=1e-6)


# The test and the estimates of tables of cells: exact moments, level, strata, coverage.


Floats = np.typing.NDArray[np.float64]
NOISE = CellNoise("laplace", 2.0)
DEPENDENT = np.array([[0.22, 0.08, 0.03], [0.08, 0.18, 0.08], [0.03, 0.08, 0.22]])


def noisy(
    probabilities: Floats, units: int, rng: np.random.Generator, noise: CellNoise = NOISE
) -> NoisyTable:
    counts = rng.multinomial(units, probabilities.ravel()) + noise.draw(rng, (probabilities.size,))
    return NoisyTable(counts, units, (noise,))


def two(*cells: int) -> Statistic:
    return Statistic(tuple(Variable.of([count], [True]) for count in cells))


def test_a_dependence_that_no_pair_shows_is_in_the_products_of_three_contrasts() -> None:
    probabilities = np.zeros((2, 2, 2))
    for a, b, c in np.ndindex(2, 2, 2):
        probabilities[a, b, c] = (1 + 0.8 * (1 if (a + b + c) % 2 == 0 else -1)) / 8
    table = NoisyTable(1000 * probabilities.ravel(), 1000, (CellNoise("laplace", 1e-6),))
    statistic = two(2, 2, 2)
    independent = NoisyTable(np.full(8, 125.0), 1000, (CellNoise("laplace", 1e-6),))
    assert statistic.of([table.counts], [table]) > 100 > 1 > statistic.of([independent.counts], [independent])


def test_mixed_likelihood_ratios_of_two_by_two_cells_rise_with_chi_squared() -> None:
    """log(.7 + .3 exp(x v/(1 + v)/2)/sqrt(1 + v)) of chi-squared x, at v = 10, where there is no noise."""
    counts = np.array([40.0, 10.0, 20.0, 30.0])
    table = NoisyTable(counts, 100, (CellNoise("laplace", 1e-9),))
    squared = 100 * (40 * 30 - 10 * 20) ** 2 / (50 * 50 * 60 * 40)
    expected = np.log(0.7 + 0.3 * np.exp(squared * 10 / 11 / 2) / np.sqrt(11))
    assert two(2, 2).of([counts], [table]) == pytest.approx(expected, rel=1e-6)
    halves = [NoisyTable(counts / 2, 50, table.noises)] * 2
    together = two(2, 2).of([half.counts for half in halves], halves)
    assert together == pytest.approx(expected, rel=1e-6), "owners of one law are as one owner"


def test_dependence_within_a_variable_of_two_columns_is_not_tested() -> None:
    pair = np.array([[0.45, 0.05], [0.05, 0.45]])
    probabilities = np.multiply.outer(pair, np.array([0.5, 0.5]))
    table = NoisyTable(1000 * probabilities.ravel(), 1000, (CellNoise("laplace", 1e-6),))
    grouped = Statistic((Variable.of([2, 2], [True, True]), Variable.of([2], [True])))
    assert grouped.of([table.counts], [table]) < 0
    assert two(2, 2, 2).of([table.counts], [table]) > 200


def test_contrasts_keep_their_signs_from_table_to_table() -> None:
    """Products of several owners add up: signs that an algorithm chose by the data would cancel them."""
    variable, rng = Variable.of([3], [True]), np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(3), 200)
    found = variable.contrasts(shares)
    assert np.all(found[:, -1, 1] > found[:, 0, 1]), "the first contrast rises"
    assert np.allclose(np.einsum("ra,rau,rav->ruv", shares, found, found), np.eye(3), atol=1e-9)


LEVEL_RUNS = 600


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("shares", "owners"),
    [
        ([[0.5, 0.5]] * 3, 1),
        ([[0.8, 0.2]] * 3, 1),
        ([[0.3, 0.3, 0.4], [0.9, 0.05, 0.05]], 1),
        ([[1.0, 0.0], [0.4, 0.6]], 1),
        ([[0.5, 0.5]] * 2, 3),
    ],
)
def test_independence_is_rejected_at_most_at_the_level(shares: list[list[float]], owners: int) -> None:
    """600 runs at .05: more than 66 have a probability below 1e-8 (Chernoff). Three cells of 300 units."""
    rng, rejected = np.random.default_rng(11), 0
    probabilities = np.array(shares[0])
    for other in shares[1:]:
        probabilities = np.multiply.outer(probabilities, np.array(other))
    statistic = two(*probabilities.shape)
    for run in range(LEVEL_RUNS):
        tables = [noisy(probabilities, 300, rng, CellNoise("laplace", 2.86)) for _ in range(owners)]
        rejected += independence_test(statistic, tables, 99, np.random.SeedSequence(run)).pvalue <= 0.05
    assert rejected <= 66


def test_what_differs_between_owners_is_no_dependence() -> None:
    """Each owner's columns are independent, at shares of its own; their sum is far from independent."""
    rng = np.random.default_rng(2)
    one, other = np.outer([0.8, 0.2], [0.8, 0.2]), np.outer([0.2, 0.8], [0.2, 0.8])
    pvalues, pooled = [], []
    for run in range(20):
        tables = [noisy(p, 2000, rng) for p in (one, other)]
        pvalues.append(independence_test(two(2, 2), tables, 99, np.random.SeedSequence(run)).pvalue)
        added = NoisyTable(tables[0].counts + tables[1].counts, 4000, (NOISE, NOISE))
        pooled.append(independence_test(two(2, 2), [added], 99, np.random.SeedSequence(run)).pvalue)
        found = pair_estimates(tables, (2, 2), (0, 1), (True, True), 0.95)
        assert abs(found.correlation.value) < 0.15
    assert np.mean(np.array(pvalues) <= 0.05) <= 0.4  # probability below 1e-6
    assert max(pooled) == 0.01


def test_owners_add_up() -> None:
    """Four owners of 400 units find what one of them seldom does: 20 runs, hundreds of standard errors."""
    rng = np.random.default_rng(5)
    weak = np.full((2, 2), 0.25) + 0.04 * np.array([[1, -1], [-1, 1]])
    statistic, alone, together = two(2, 2), 0, 0
    for run in range(40):
        tables = [noisy(weak, 400, rng) for _ in range(4)]
        seed = np.random.SeedSequence(run)
        alone += independence_test(statistic, tables[:1], 99, seed).pvalue <= 0.05
        together += independence_test(statistic, tables, 99, seed).pvalue <= 0.05
    assert together >= 38
    assert alone <= 34


COVERAGE_RUNS = 1500


@pytest.mark.long
@pytest.mark.sweep(1)
@pytest.mark.parametrize("owners", [1, 2])
def test_intervals_cover(owners: int) -> None:
    """1500 runs: fewer than .91 where .95 is covered has a probability below 1e-9."""
    rng, held = np.random.default_rng(8), {"correlation": 0, "v": 0}
    for _ in range(COVERAGE_RUNS):
        tables = [noisy(DEPENDENT, 1500 // owners, rng) for _ in range(owners)]
        found = pair_estimates(tables, (3, 3), (0, 1), (True, True), 0.95)
        assert found.correlation is not None
        assert found.cramers_v is not None
        own, v = found.correlation, found.cramers_v
        held["correlation"] += own.lower <= cell_rank_correlation(DEPENDENT) <= own.upper
        held["v"] += v.lower <= cell_cramers_v(DEPENDENT) <= v.upper
    assert min(held.values()) >= 0.91 * COVERAGE_RUNS
