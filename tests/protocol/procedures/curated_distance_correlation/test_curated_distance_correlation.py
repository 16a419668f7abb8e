"""Distance correlation in one place: estimates, intervals, level; roots, and how far one unit moves them."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from made_studies import made_study, release_of, rows_table
from two_sample_cases import MemoryTable, SeededNoise, domain_of
from two_sample_cases import NoNoise as Nothing

from tacit_protocol.features.kernels import DistanceKernel
from tacit_protocol.features.unit_gram import UnitGram, UnitRows
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.distance_covariance import (
    distance_correlation_sqr,
    distance_covariance_sqr,
    distance_variance_sqr,
    exact_distance_sums,
)
from tacit_protocol.privacy.noise import NoiseSource, OpenDPNoise
from tacit_protocol.procedures.base import StudyError
from tacit_protocol.procedures.curated_distance_correlation import (
    CuratedDistanceCorrelation,
    CuratedDistanceCorrelationResult,
    release,
)
from tacit_protocol.procedures.curated_distance_correlation.release import (
    COVARIANCE,
    DistanceRoots,
    column_roots,
    covariance_sensitivity,
    deviation_sensitivity,
    paired_roots,
    release_parts,
    root_exponent,
)
from tacit_protocol.procedures.independence.verdict import JointIndependenceResult
from tacit_protocol.procedures.permutation.statistic import observed_sensitivity
from tacit_protocol.procedures.quantile_tables.verdict import CellsTableResult

Floats = np.typing.NDArray[np.float64]

PROCEDURE = CuratedDistanceCorrelation()
ESTIMATES: dict[str, Any] = {"test": False}


def study_of(
    numeric: int = 2, parameters: dict[str, Any] | None = None, categories: tuple[int, ...] = (), **given: Any
) -> Study:
    return made_study(PROCEDURE.name, domain_of(numeric, categories), parameters, **given)


def table_of(study: Study, values: Floats, unit: Any = None, codes: Any = None) -> MemoryTable:
    return rows_table(study.domain, values, unit, codes)


def verdict_of(study: Study, table: MemoryTable, noise: NoiseSource) -> CuratedDistanceCorrelationResult:
    return PROCEDURE.assemble(study, {study.senders[0].name: release_of(PROCEDURE, study, table, noise)})


def dependent(kind: str, units: int, rng: np.random.Generator) -> Floats:
    x = rng.random(units)
    y = {
        "independent": lambda: rng.random(units),
        "linear": lambda: np.clip(x + 0.13 * rng.standard_normal(units), 0, 1),
        "quadratic": lambda: (2 * x - 1) ** 2,
    }[kind]()
    return np.stack([x, y], axis=1)


@pytest.mark.long
def test_estimates_are_unbiased_for_the_units_own_value() -> None:
    """400 draws of noise at one table: within 6 standard errors, false alarm 2e-9."""
    values = dependent("quadratic", 2000, np.random.default_rng(4))
    study = study_of(2, ESTIMATES)
    summary = PROCEDURE.summarise(study, table_of(study, values))
    found = []
    for seed in range(400):
        release = PROCEDURE.privatise(study, summary, SeededNoise(seed))
        found.append(PROCEDURE.assemble(study, {"owner-0": release}).distance_covariance_sqr)
    truth = distance_covariance_sqr(values[:, 0], values[:, 1], "biased")
    error = np.std(found) / math.sqrt(len(found))
    assert abs(np.mean(found) - truth) < 6 * error
    assert error < 0.1 * truth


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("kind", "units"), [("independent", 200), ("quadratic", 200), ("linear", 50)])
def test_the_bias_of_the_v_statistic_is_at_most_what_is_stated(kind: str, units: int) -> None:
    """Against the unbiased estimate of the same data: 600 tables, six standard errors of the difference."""
    rng = np.random.default_rng(5)
    differences = []
    for _ in range(600):
        x, y = dependent(kind, units, rng).T
        differences.append(distance_covariance_sqr(x, y, "biased") - distance_covariance_sqr(x, y))
    bias, error = float(np.mean(differences)), float(np.std(differences)) / math.sqrt(600)
    found = verdict_of(study_of(2, ESTIMATES), table_of(study_of(), np.stack([x, y], 1)), Nothing())
    assert found.bias_max == pytest.approx(1 / units)
    # Below by 2 D/n at most.
    assert -2 * 0.25 / units - 6 * error < bias < found.bias_max + 6 * error
    if kind == "independent":
        assert bias > 0.05 * found.bias_max, "the bound would be a hundred times too large"


POPULATIONS = {"independent": 0.0, "linear": None, "quadratic": None}


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", POPULATIONS)
def test_intervals_cover(kind: str) -> None:
    """200 tables of 1500 units at level .2: fewer than 126 covers at .8 have probability below 1e-8.

    The population's values come from 100 000 units, whose own error is a tenth of an interval's length.
    """
    rng = np.random.default_rng(6)
    x, y = dependent(kind, 100_000, rng).T
    squared, correlation = distance_covariance_sqr(x, y), math.sqrt(max(0.0, distance_correlation_sqr(x, y)))
    if kind == "independent":
        squared = correlation = 0.0
    study = study_of(2, ESTIMATES, level=0.2, epsilon=2.0)
    covered = np.zeros(3)
    for seed in range(200):
        values = dependent(kind, 1500, rng)
        found = verdict_of(study, table_of(study, values), SeededNoise(seed))
        held = math.sqrt(distance_correlation_sqr(values[:, 0], values[:, 1]))
        covered += [
            found.covariance_lower <= squared <= found.covariance_upper,
            found.lower <= correlation <= found.upper,
            found.held_lower - 1e-5 <= held <= found.held_upper + 1e-5,
        ]
    assert covered.min() >= 126


@pytest.mark.sweep(1)
@pytest.mark.parametrize("test", [True, False])
def test_the_level_holds(test: bool) -> None:
    """300 tables at level .2, exact with the test: more than 104 rejections have probability below 1e-8."""
    rng = np.random.default_rng(7)
    parameters = {"permutations": 99} if test else ESTIMATES
    rejected = 0
    for seed in range(300):
        study = study_of(2, parameters, level=0.2, epsilon=4.0, seed=seed)
        values = np.rint(rng.random((60, 2)) * (1 if seed % 2 else 1000)) / (1 if seed % 2 else 1000)
        rejected += verdict_of(study, table_of(study, values), SeededNoise(seed)).reject
    assert rejected <= 104
    if test:
        assert rejected >= 24, "an exact test rejects as often as it may; fewer have probability 1e-7"


def test_dependence_is_found_with_and_without_the_test() -> None:
    rng = np.random.default_rng(8)
    strong, weak = dependent("linear", 3000, rng), dependent("quadratic", 3000, rng)
    for seed in range(3):
        assert verdict_of(study_of(2, ESTIMATES), table_of(study_of(), strong), SeededNoise(seed)).reject
        assert verdict_of(study_of(epsilon=2.0), table_of(study_of(), weak), SeededNoise(seed)).reject


def test_large_units_of_several_rows_are_refused_in_clear_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tacit_protocol.procedures.curated_distance_correlation.plan.PAIRED_UNITS_MAX", 50)
    values = dependent("linear", 120, np.random.default_rng(13))
    with pytest.raises(StudyError, match="one row a unit"):
        PROCEDURE.summarise(study_of(), table_of(study_of(), values, np.repeat(np.arange(60), 2)))


@pytest.mark.parametrize("method", ["aggregate", "table"])
def test_blocks_and_tables_are_those_of_joint_independence(method: str) -> None:
    """In pure epsilon, with a p-value; of the table the pair's distance correlation and its interval."""
    rng = np.random.default_rng(1)
    x = rng.random(2000)
    values = np.column_stack([x, (2 * x - 1) ** 2 + 0.1 * rng.random(2000)])
    study = study_of(2, {"method": method}, delta=0.0)
    PROCEDURE.check(study)
    summary = PROCEDURE.summarise(study, table_of(study, values))
    release = PROCEDURE.privatise(study, summary, OpenDPNoise())
    PROCEDURE.check_release(study, release)
    verdict = PROCEDURE.assemble(study, {"owner-0": release})
    assert isinstance(verdict, PROCEDURE.verdict_type(study))
    assert PROCEDURE.cost(study).budget.delta_pico == 0
    assert verdict.reject, "of so strong a dependence missed with probability below 1e-9"
    if isinstance(verdict, CellsTableResult):
        (pair,) = verdict.pairs
        assert pair.interval[0] > 0
        assert PROCEDURE.panels(study, verdict.model_dump(mode="json"), {})


def test_auto_takes_blocks_where_no_table_can_be() -> None:
    for numeric, kind in ((2, CellsTableResult), (10, JointIndependenceResult)):
        half = [f"n{place}" for place in range(numeric // 2)]
        rest = [f"n{place}" for place in range(numeric // 2, numeric)]
        study = study_of(numeric, {"method": "auto", "groups": [half, rest]}, epsilon=3.0, delta=0.0)
        assert PROCEDURE.verdict_type(study) is kind


# Roots of distance covariances and variances: exact, and no unit moves them by more than is proved.


def values_of(roots: DistanceRoots) -> list[float]:
    return [math.ldexp(step, -root_exponent(roots.units)) for step in roots.steps]


def gram_of(column: Floats) -> UnitGram:
    return UnitGram(
        DistanceKernel(),
        UnitRows(column[:, None], np.zeros((len(column), 0), np.int32), np.arange(len(column) + 1)),
    )


def by_definition(x: Floats, y: Floats) -> list[float]:
    found = [distance_covariance_sqr(x, y, "biased")]
    found += [distance_variance_sqr(column, "biased") for column in (x, y)]
    return [math.sqrt(value) for value in found]


@pytest.mark.parametrize("units", [2, 3, 7, 60])
def test_sums_of_integers_are_exact(units: int) -> None:
    rng = np.random.default_rng(units)
    x, y = rng.integers(0, 2**20, units), rng.integers(0, 4, units)

    def by_pairs(first: Floats, second: Floats) -> int:
        a, b = (np.abs(v[:, None] - v).astype(object) for v in (first, second))
        rows = units * units * (a * b).sum() - 2 * units * (a.sum(axis=1) * b.sum(axis=1)).sum()
        return int(rows + a.sum() * b.sum())

    assert exact_distance_sums(x, y) == (by_pairs(x, y), by_pairs(x, x), by_pairs(y, y))


def test_integers_of_too_wide_a_range_are_refused() -> None:
    with pytest.raises(ValueError, match="range"):
        exact_distance_sums(np.array([0, 2**31]), np.array([0, 1]))


@pytest.mark.parametrize("roots", [column_roots, lambda x, y: paired_roots(gram_of(x), gram_of(y))])
def test_roots_are_those_of_the_definition(roots: Callable[[Floats, Floats], DistanceRoots]) -> None:
    """Up to the grid of 2^-20 that columns are rounded to."""
    rng = np.random.default_rng(1)
    x = rng.random(500)
    for y in (x, 1 - x, (2 * x - 1) ** 2, rng.random(500), np.zeros(500)):
        assert values_of(roots(x, y)) == pytest.approx(by_definition(x, y), abs=3e-6)


def test_both_ways_agree_within_the_stated_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the grid, where columns are exact: independent ones, whose covariance all but cancels; in blocks."""
    monkeypatch.setattr(release, "BLOCK_ENTRIES", 1000)
    x = np.repeat(np.arange(16), 16) / 16
    y = np.tile(np.arange(16), 16) / 16
    exact, paired = column_roots(x, y), paired_roots(gram_of(x), gram_of(y))
    assert exact.steps[0] == 0
    parts = release_parts(256, True, DistanceKernel.error(1))
    slack = parts[0].sensitivity - covariance_sensitivity(256, True)
    assert np.abs(np.subtract(values_of(exact), values_of(paired))).max() < slack / 2


def movement(points: Floats, others: Floats) -> float:
    """|u v' - u1 v1'| with u, u1 = a - m, a' - m and v, v1 = b - p, b' - p, of rows a, a', m and b, b', p."""

    def gram(triple: Floats) -> Floats:
        centred = triple[:2] - triple[2]
        return np.asarray(centred @ centred.T)

    g, h = gram(points), gram(others)
    return math.sqrt(max(0.0, g[0, 0] * h[0, 0] + g[1, 1] * h[1, 1] - 2 * g[0, 1] * h[0, 1]))


def brownian(values: Floats, grid: int = 64) -> Floats:
    """Features of numbers on a grid in [0, 1] whose squared distances are their distances."""
    return np.asarray((np.arange(grid)[None, :] < np.rint(values * grid)[:, None]) / math.sqrt(grid))


def test_a_single_column_on_either_side_keeps_the_movement_below_1() -> None:
    """For all triples on a grid against random triangles; two equilateral triangles reach sqrt 1.5."""
    rng = np.random.default_rng(5)
    triangle = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]) / math.sqrt(2)
    assert movement(triangle, triangle) == pytest.approx(math.sqrt(1.5))
    lines = [brownian(np.array(values) / 4) for values in np.ndindex(5, 5, 5)]
    for _ in range(40):
        other = rng.standard_normal((3, 3)) ** 3
        sides = [np.linalg.norm(other[i] - other[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
        shapes = [other / max(sides), triangle, lines[rng.integers(len(lines))]]
        assert max(movement(line, shape) for line in lines for shape in shapes) <= 1 + 1e-12
    assert max(movement(line, triangle) for line in lines) > 0.999


def test_the_bounds_are_reached_all_three_at_once() -> None:
    """All units at 0 but one at 1, which joins them."""
    x = np.zeros(50)
    x[0] = 1.0
    assert values_of(column_roots(x, x)) == pytest.approx([deviation_sensitivity(50)] * 3, rel=1e-7)
    assert column_roots(np.zeros(50), np.zeros(50)).steps == (0, 0, 0)


def squared_variance_move(share: float, value: float, units: int = 4000) -> float:
    """n |dVar^2 - dVar'^2|: that share of units is at 1, the rest at 0, and one of the share is moved."""
    x = (np.arange(units) < round(share * units)).astype(np.float64)
    moved = x.copy()
    moved[0] = value
    return units * abs(distance_variance_sqr(x, "biased") - distance_variance_sqr(moved, "biased"))


@pytest.mark.parametrize("share", [0.1, 0.211, 0.25, 0.5, 0.8])
@pytest.mark.parametrize("value", [0.0, 0.25, 0.5])
def test_squared_variances_move_by_27_32nds_to_first_order(share: float, value: float) -> None:
    assert squared_variance_move(share, value) <= 27 / 32 + 8 / 4000


def test_that_is_reached() -> None:
    """The methods reference's search found .84/n: a quarter of the units apart, and one goes to the mean."""
    assert squared_variance_move(0.25, 0.25) > 27 / 32 - 1e-3


def test_layouts_hide_nothing_smaller_than_their_sensitivity() -> None:
    for units in (2, 100, 2**15, 2**15 + 1, 2**20):
        parts = release_parts(units, False, DistanceKernel.error(1))
        assert sum(part.share for part in parts) == pytest.approx(1)
        assert parts[0].name == COVARIANCE
        assert parts[0].sensitivity >= observed_sensitivity(units, 2)
        assert parts[1].sensitivity >= deviation_sensitivity(units)
        # The allowance for floating point is small beside it.
        assert parts[1].sensitivity < 1.05 * deviation_sensitivity(units)
