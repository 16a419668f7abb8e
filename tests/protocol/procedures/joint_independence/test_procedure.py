"""The procedure: what it accepts, its decision's level and power, what leaves, and what never does."""

import math
from typing import Any

import numpy as np
import pytest
from made_studies import made_study, rows_table
from threadpoolctl import threadpool_limits
from two_sample_cases import MemoryTable, SeededNoise, domain_of

from tacit_protocol.features.unit_gram import gather_units
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.permutation_test import permutation_decision
from tacit_protocol.procedures.base import ReleaseError, StudyError
from tacit_protocol.procedures.joint_independence import JointIndependence
from tacit_protocol.procedures.permutation.statistic import permuted_statistics

Floats = np.typing.NDArray[np.float64]

PROCEDURE = JointIndependence()


def study_of(
    numeric: int, parameters: dict[str, Any] | None = None, categories: tuple[int, ...] = (), **given: Any
) -> Study:
    asked = {"method": "permutation"} | (parameters or {})
    return made_study(PROCEDURE.name, domain_of(numeric, categories), asked, **({"delta": 0.0} | given))


def table_of(study: Study, values: Floats, unit: Any = None, codes: Any = None) -> MemoryTable:
    return rows_table(study.domain, values, unit, codes)


def dependent(kind: str, units: int, seed: int = 0) -> Floats:
    z = np.random.default_rng(seed).standard_normal((units, 3))
    if kind == "linear":
        z[:, 1] = 0.6 * z[:, 0] + 0.8 * z[:, 1]
    if kind == "quadratic":
        z[:, 1] = (z[:, 0] ** 2 - 1 + z[:, 1]) / math.sqrt(3)
    if kind == "three variables":
        z[:, 2] = np.abs(z[:, 2]) * np.sign(z[:, 0] * z[:, 1])
    return np.asarray(0.5 + 0.15 * z[:, : 3 if kind == "three variables" else 2])


@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", ["linear", "quadratic", "three variables"])
def test_dependence_is_found(kind: str) -> None:
    """By each of five private decisions: at 1500 units the statistic is many scales above the noise."""
    values = dependent(kind, 1500)
    study = study_of(values.shape[1], {"permutations": 199}, epsilon=4.0)
    summary = PROCEDURE.summarise(study, table_of(study, values))
    assert all(PROCEDURE.privatise(study, summary, SeededNoise(i)).decision for i in range(5))


def independent(kind: str, rng: np.random.Generator, units: int, variables: int) -> Floats:
    if kind == "ties":
        return np.asarray(rng.integers(0, 2, (units, variables)).astype(np.float64))
    if kind == "heavy tails":
        return np.asarray(0.5 + 0.02 * rng.standard_cauchy((units, variables)))
    return rng.random((units, variables))


LEVEL_RUNS = 1000


@pytest.mark.sweep(1)
@pytest.mark.parametrize("variables", [2, 3])
@pytest.mark.parametrize("kind", ["ties", "heavy tails", "uniform"])
def test_independence_is_rejected_at_most_at_the_level(kind: str, variables: int) -> None:
    """1000 tables of 12 units, 19 permutations each, level .1; each cell fails with probability below 1e-8.

    At epsilon 1 the noise decides, at 50 the data.
    """
    rng, noise = np.random.default_rng(7), SeededNoise(8)
    planned = study_of(variables, {"bandwidth": 0.3})
    plan = PROCEDURE.plan(planned)
    sensitivity, permuted = plan.sensitivities(12)
    rejected = {1.0: 0, 50.0: 0}
    with threadpool_limits(1):
        for run in range(LEVEL_RUNS):
            table = table_of(planned, independent(kind, rng, 12, variables))
            rows = gather_units(list(table.chunks()))
            grams = [plan.gram(names, rows) for names in plan.variables]
            values = permuted_statistics(grams, 19, np.random.SeedSequence(run))
            for epsilon in rejected:
                rejected[epsilon] += permutation_decision(
                    values, sensitivity, 0.1, Budget.of(epsilon, 0), noise, permuted_sensitivity=permuted
                )
    # Bernstein: P(Bin(1000, .1) > 100 + 60) < 1e-8.
    assert max(rejected.values()) <= 160
    if kind != "ties":
        assert min(rejected.values()) >= 50, "the level is exact where there are no ties"


def test_the_order_of_units_is_secret_so_that_the_tables_order_says_nothing() -> None:
    """The permutations are public: without a secret order, units that trade places would change them."""
    study = study_of(2, {"permutations": 99})
    table = table_of(study, dependent("linear", 30))
    one, other = (PROCEDURE.summarise(study, table).values for _ in range(2))
    assert one[0] == pytest.approx(other[0], abs=1e-12)
    assert not np.allclose(one[1:], other[1:])


def test_too_many_units_are_refused_before_any_row_is_read() -> None:
    class Unread:
        domain = domain_of(2)
        units = 150_000

        def chunks(self) -> Any:
            raise AssertionError("rows were read")

    with pytest.raises(StudyError, match="too many units"):
        PROCEDURE.summarise(study_of(2), Unread())
    with pytest.raises(StudyError, match="at least two units"):
        PROCEDURE.summarise(study_of(2), table_of(study_of(2), np.zeros((1, 2))))


@pytest.mark.parametrize("units", [1, 2**30])
def test_a_release_of_units_that_the_test_does_not_take_is_refused(units: int) -> None:
    study = study_of(2, {"permutations": 99})
    release = Release(units=units, guarantee=PROCEDURE.cost(study), decision=True)
    with pytest.raises(ReleaseError, match="number of units"):
        PROCEDURE.check_release(study, release)
