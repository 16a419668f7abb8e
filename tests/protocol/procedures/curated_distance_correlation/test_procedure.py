"""The procedure: what it accepts, its estimates, intervals and level, what leaves, and what never does."""

import math
from typing import Any

import numpy as np
import pytest
from made_studies import made_study, release_of, rows_table
from two_sample_cases import MemoryTable, SeededNoise, domain_of
from two_sample_cases import NoNoise as Nothing

from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.distance_covariance import distance_correlation_sqr, distance_covariance_sqr
from tacit_protocol.privacy.noise import NoiseSource, OpenDPNoise
from tacit_protocol.procedures.base import StudyError
from tacit_protocol.procedures.curated_distance_correlation import (
    CuratedDistanceCorrelation,
    CuratedDistanceCorrelationResult,
)
from tacit_protocol.procedures.independence.verdict import JointIndependenceResult
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


@pytest.mark.parametrize(
    ("study", "message"),
    [
        (study_of(3), "share them out"),
        (study_of(2, {"groups": [["n0"], ["n0"]]}), "one group only"),
        (study_of(3, {"groups": [["n0"], ["n1"]]}), "all of them"),
        (study_of(2, delta=0.0), "delta above 0"),
        (study_of(2, level=0.001, parameters={"permutations": 99}), "more permutations"),
        (study_of(owners=2), "in one place"),
        (study_of(units=1), "at least two units"),
        (study_of(3, {"groups": [["n0"], ["n1", "n2"]]}, units=2**15 + 1), "pairs of units"),
        (study_of(units=2**15 + 1).model_copy(update={"unit_column": "person"}), "pairs of units"),
    ],
)
def test_studies_that_cannot_be_run_are_refused(study: Study, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        PROCEDURE.check(study)


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


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "table", "test": False}, "of method permutation"),
        ({"method": "aggregate", "test_share": 0.7}, "of method permutation"),
        ({"categories": 3}, "of methods aggregate and table"),
        ({"method": "aggregate", "categories": 3}, "of method table"),
        ({"method": "table", "blocks": 3}, "of method aggregate"),
    ],
)
def test_parameters_of_another_method_are_refused(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        PROCEDURE.check(study_of(2, parameters))
