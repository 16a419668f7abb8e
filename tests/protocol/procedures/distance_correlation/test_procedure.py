"""The procedure: unbiased, exact in level, seeing what it should, and refusing what it must."""

import math
from collections.abc import Sequence
from typing import Any

import made_studies
import numpy as np
import pytest
from made_studies import made_study, rows_table
from two_sample_cases import MemoryTable, NoNoise, SeededNoise, domain_of

from tacit_protocol.features.brownian import BrownianFeatures
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.numerics.distance_covariance import distance_covariance_sqr
from tacit_protocol.privacy.gaussian_mechanism import release_sums
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import StudyError
from tacit_protocol.procedures.distance_correlation import DistanceCorrelation, DistanceCorrelationResult
from tacit_protocol.procedures.distance_correlation.release import SketchPlan
from tacit_protocol.procedures.distance_covariance.statistic import (
    Permutations,
    Side,
    covariance_estimate,
    permutation_test,
    read_side,
)
from tacit_protocol.procedures.randomised_answers.sides import DESIGN_STREAM, public_generator

Floats = np.typing.NDArray[np.float64]

PROCEDURE = DistanceCorrelation()


def study_of(
    x: int = 1, y: int = 1, parameters: dict[str, Any] | None = None, *, groups: int = 0, **given: Any
) -> Study:
    """The first owner holds x numbers, the second y numbers or a column of so many ``groups``."""
    domain = domain_of(x + y, (groups,) if groups else ())
    names = [column.name for column in domain.columns]
    given = {"owners": ("a", "b"), "held": (names[:x], names[x:])} | given
    return made_study(PROCEDURE.name, domain, parameters, **given)


def table_of(study: Study, side: int, values: Any, unit: Any = None) -> MemoryTable:
    domain = study.domain_of(study.owners[side])
    if domain.categorical:
        return rows_table(domain, np.zeros((len(values), 0)), unit, np.asarray(values, np.int32)[:, None])
    return rows_table(domain, values, unit)


def releases_of(study: Study, x: Any, y: Any, noise: Any) -> dict[str, Release]:
    tables = [table_of(study, side, values) for side, values in enumerate((x, y))]
    return made_studies.releases_of(PROCEDURE, study, tables, noise)


def verdict_of(study: Study, x: Any, y: Any, noise: Any) -> DistanceCorrelationResult:
    return PROCEDURE.assemble(study, releases_of(study, x, y, noise))


def dependent(units: int, seed: int, kind: str = "linear") -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    x = rng.random(units)
    error = 0.13 * rng.standard_normal(units)
    return x, np.clip((x if kind == "linear" else (2 * x - 1) ** 2) + error, 0, 1)


def test_a_verdict_on_dependent_columns() -> None:
    """At n = 4000 and epsilon 20 the statistic is 31.57 give or take .005, and the interval's lower end .868
    give or take .020. (At epsilon 4 it is .48 give or take .07: below .3 in one of a hundred runs.)"""
    x, y = dependent(4000, 1)
    verdict = verdict_of(study_of(epsilon=20.0), x, y, OpenDPNoise())
    assert verdict.reject
    assert verdict.pvalue == pytest.approx(0.001)
    assert verdict.units == {"a": 4000, "b": 4000}
    assert 0 <= verdict.lower <= verdict.distance_correlation <= verdict.upper <= 1
    assert verdict.lower > 0.3


def sides_of(study: Study, plan: SketchPlan, columns: Sequence[Floats], run: int) -> list[Side]:
    """What a tester reads of both owners' sketches, with buckets and noise of that run."""
    design, noise, sides = plan.design(len(columns[0])), SeededNoise(run), []
    codes = design.assign(np.random.default_rng(run))
    for side, (sketch, values) in enumerate(zip(plan.sketches, columns, strict=True)):
        parts = sketch.parts(design, sketch.sum(table_of(study, side, values), design, codes))
        vectors = release_sums(parts, plan.guarantee, noise)
        release = Release(units=len(values), guarantee=plan.guarantee, vectors=vectors)
        sides.append(read_side(sketch, design, release))
    return sides


@pytest.mark.long
def test_the_estimate_is_unbiased_noise_and_all() -> None:
    """Each of the sides adds noise: 300 releases of 600 units at epsilon 4, six standard errors."""
    truth = distance_covariance_sqr(*dependent(60_000, 99))
    study = study_of(epsilon=4.0)
    plan, found = PROCEDURE.plan(study), []
    for run in range(300):
        first, second = sides_of(study, plan, dependent(600, run), run)
        found.append(covariance_estimate(first, second).value)
    error = float(np.std(found)) / math.sqrt(len(found))
    assert error < 0.003
    assert abs(np.mean(found) - truth) < 6 * error + 4e-4


def test_a_bias_correction_left_out_would_be_seen() -> None:
    """Without taking away h = h', the estimate on independent columns is many standard errors too large."""
    rng = np.random.default_rng(3)
    values, planted = [], []
    for _ in range(300):
        a, b = rng.standard_normal((2, 40, 3))
        first, second = (
            Side(own, 1.0, np.zeros((3, 3)), 0.0, 1.0, 0.0, 40, np.zeros(3), 0.0) for own in (a, b)
        )
        values.append(covariance_estimate(first, second).value)
        planted.append(4 * float(np.sum((a.T @ b / 40) ** 2)))
    assert abs(np.mean(values)) < 6 * np.std(values) / math.sqrt(300)
    assert np.mean(planted) > 20 * np.std(planted) / math.sqrt(300)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", ["heavy ties", "uniform"])
def test_independence_is_rejected_at_most_at_the_level(kind: str) -> None:
    """600 tables of 64 units, 19 permutations, level .05: more than 70 rejections have probability 1e-7."""
    rng, rejected = np.random.default_rng(5), 0
    study = study_of(parameters={"permutations": 99}, epsilon=4.0)
    plan = PROCEDURE.plan(study)
    for run in range(600):
        columns = rng.random((2, 64)) if kind == "uniform" else (rng.random((2, 64)) < 0.2).astype(float)
        first, second = sides_of(study, plan, columns, run)
        test = permutation_test(first, second, Permutations(19, np.random.default_rng(run)))
        rejected += test.pvalue <= 0.05
    assert rejected <= 70
    assert rejected >= 5, "the level is exact"


def test_without_noise_the_sketch_is_the_definition() -> None:
    study = study_of(parameters={"n_features": 3})
    x = np.random.default_rng(1).random(100)
    plan = PROCEDURE.plan(study)
    release = releases_of(study, x, x, NoNoise())["a"]
    design = plan.design(100)
    codes = design.assign(public_generator(study, DESIGN_STREAM))
    features = BrownianFeatures(np.ones((1, 1)), 3)(table_of(study, 0, x).chunks().__next__())
    expected = np.zeros((design.buckets, 3))
    for row, code in zip(features, codes, strict=True):
        if code >= 0:
            expected[code >> 1] += row * (1 if code & 1 else -1)
    found = release.vectors["sketch"].mean(1).reshape(design.buckets, 3)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("method", ["pnc", "pnc-disjoint"])
def test_projections_see_strong_dependence_where_the_noise_is_small(method: str) -> None:
    """A copy at epsilon 50 (noise .1 of the range) and 1500 units: dozens of standard deviations."""
    rows = np.random.default_rng(2).random((1500, 2))
    study = study_of(2, 2, {"method": method, "n_projections": 3, "permutations": 199}, epsilon=50.0)
    verdict = verdict_of(study, rows, rows, SeededNoise(1))
    assert verdict.reject
    assert 0 < verdict.attenuation < 1
    assert verdict.lower is None
    assert any("attenuation" in warning for warning in verdict.warnings)


@pytest.mark.parametrize(("units", "fitting"), [(4898, 7), (5875, 6), (8760, 4), (11_934, 3)])
def test_too_many_projections_are_refused_with_what_passes(units: int, fitting: int) -> None:
    """Row counts of four of P4's data sets, with its eight projections; no epsilon changes what fits."""

    def asked(epsilon: float = 1.0, **parameters: Any) -> Study:
        return study_of(5, 6, {"method": "pnc"} | parameters, units=(units, units), epsilon=epsilon)

    for epsilon in (0.1, 10.0):
        with pytest.raises(StudyError, match=f"at any epsilon: ask for n_projections = {fitting} or fewer"):
            PROCEDURE.check(asked(epsilon))
        with pytest.raises(StudyError, match="n_projections"):
            PROCEDURE.check(asked(epsilon, n_projections=fitting + 1))
        PROCEDURE.check(asked(epsilon, n_projections=fitting))
        PROCEDURE.check(asked(epsilon, method="pnc-disjoint"))
