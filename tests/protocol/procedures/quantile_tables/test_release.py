"""What a table of cells releases: its cuts, its counts, what they move by, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest
from made_studies import Drawing, made_study, rows_table
from two_sample_cases import domain_of

from tacit_protocol.domain import PooledTable
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.accounting import fits
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.base import StudyError, check_release
from tacit_protocol.procedures.counts.release import COUNTS
from tacit_protocol.procedures.independence.plan import TableTested
from tacit_protocol.procedures.joint_independence import JointIndependence
from tacit_protocol.procedures.quantile_tables.release import TableLayout

PROCEDURE = JointIndependence()


def study_of(numeric: int, parameters: Any = None, categories: tuple[int, ...] = (), **given: Any) -> Study:
    chosen = {"method": "table", "permutations": 199} | (parameters or {})
    domain = domain_of(numeric, categories)
    return made_study(PROCEDURE.name, domain, chosen, **({"delta": 0.0} | given))


def plan_of(study: Study) -> TableLayout:
    plan = PROCEDURE.plan(study)
    assert isinstance(plan, TableTested)
    return plan.layout


def test_the_whole_costs_epsilon_alone() -> None:
    """Cuts have their part between them, counts the rest; both are pure."""
    for epsilon in (1e-5, 0.1, 1.0, 7.3):
        study = study_of(3, epsilon=epsilon)
        assert fits(PROCEDURE.cost(study).events, Budget.of(epsilon, 0))
        assert len(PROCEDURE.cost(study).events) == 2
    assert len(PROCEDURE.cost(study_of(0, categories=(4, 4))).events) == 1, (
        "categories have no cuts to be bought"
    )


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


@pytest.mark.sweep(1)
def test_replacing_a_unit_moves_the_counts_by_two_and_never_more() -> None:
    """Beside the same cuts; a unit of several rows counts by one of them."""
    rng, study = np.random.default_rng(4), study_of(2, {"categories": 2}, categories=(5,))
    largest = 0.0
    for _ in range(60):
        sizes = rng.integers(1, 4, 30)
        unit = np.repeat(np.arange(30), sizes)
        values = rng.random((len(unit), 2))
        codes = rng.integers(0, 5, (len(unit), 1)).astype(np.int32)
        other, others = values.copy(), codes.copy()
        other[unit == 7] = rng.integers(0, 2, 2)
        others[unit == 7] = rng.integers(0, 5)
        steps = []
        for rows, levels in ((values, codes), (other, others)):
            table = rows_table(study.domain, rows, unit, levels)
            held = PROCEDURE.plan(study).summarise(table, np.random.default_rng(1))
            release = PROCEDURE.privatise(study, held, FixedCuts())
            steps.append(np.array(release.vectors[COUNTS].mean(1)))
        largest = max(largest, float(np.abs(steps[0] - steps[1]).sum()))
    assert largest == 2


class FixedCuts(Drawing):
    """Draws the same cuts whatever the data are."""

    def choose(self, scores: Any, scale: float) -> int:
        return len(scores) // 2


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


def test_owners_may_each_send_a_table_and_a_curator_one_for_all() -> None:
    PROCEDURE.check(study_of(2, owners=3))
    study = study_of(2, owners=2, curated=True)
    PROCEDURE.check(study)
    rng = np.random.default_rng(0)
    parts = {f"owner-{i}": rows_table(study.domain, rng.random((50, 2)), None, None) for i in (0, 1)}
    held = PROCEDURE.summarise(study, PooledTable(study.domain, parts))
    release = PROCEDURE.privatise(study, held, Drawing())
    check_release(PROCEDURE, study, release)
    assert release.units_by_owner == {"owner-0": 50, "owner-1": 50}


@pytest.mark.parametrize(
    ("study", "message"),
    [
        (study_of(9), "at most 8 columns"),
        (study_of(8, {"categories": 4}), "too large a table"),
        (
            study_of(4, {"groups": [["n0", "n1", "n2"], ["n3"]], "categories": 4, "kernel": "linear"}),
            "kernel",
        ),
        (study_of(2, {"bandwidth": 0.1}), "kernel, bandwidth"),
        (study_of(2, {"blocks": 5}), "leave them out"),
        (study_of(2, {"categories": 5}), "parameter categories"),
        (study_of(2, {"method": "permutation", "categories": 2}), "of method table"),
        (study_of(2, units=19), "at least 20 units"),
    ],
)
def test_studies_that_make_no_table_are_refused(study: Study, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        PROCEDURE.check(study)


def test_a_table_that_even_equal_columns_would_not_fill_is_called_hopeless() -> None:
    study = study_of(2, epsilon=0.01)
    assert any("hardly be told" in words for words in PROCEDURE.warnings(study, {"owner-0": 100}))
    assert PROCEDURE.warnings(study_of(2), {"owner-0": 1000}) == ()
    assert math.isclose(plan_of(study_of(0, categories=(4, 4))).noise.scale, 2.0, rel_tol=1e-6)
