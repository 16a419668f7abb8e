"""Permutation statistics and votes of blocks have a value for every table, found in one way for all.

A failure, or a way that is taken for some values alone, would tell of the values, without any noise.
"""

import itertools
import math
from typing import Any, get_args

import numpy as np
import pytest
from long_runs import choose
from made_studies import Drawing, MemoryTable, SeededNoise, domain_of, made_study, release_of
from operations import Operations, apart, operations

from tacit_protocol.domain import Domain
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.aggregated_test import TestName
from tacit_protocol.procedures.aggregated_test.statistic import TESTS
from tacit_protocol.procedures.base import PublicRuleError, planned
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.procedures.joint_independence.plan import PermutedStatistics
from tacit_protocol.procedures.permutation import statistic
from tacit_protocol.procedures.permutation.statistic import (
    MarkovStatistic,
    observed_sensitivity,
    permuted_sensitivity,
    statistic_max,
)

Floats = np.typing.NDArray[np.float64]

FEW = 99
"""Permutations."""

KERNELS: dict[str, dict[str, Any]] = {
    "gaussian": {"kernel": "gaussian"},
    "gaussian, narrow": {"kernel": "gaussian", "bandwidth": 0.001},
    "gaussian, wide": {"kernel": "gaussian", "bandwidth": 1e6},
    "gaussian, mixed": {"kernel": "gaussian", "bandwidth": [0.05, 0.4], "category_similarity": 0.5},
    "laplacian": {"kernel": "laplacian"},
    "distance": {"kernel": "distance"},
    "linear": {"kernel": "linear"},
}

SHAPES: dict[str, tuple[Domain, list[list[str]] | None]] = {
    "two numbers": (domain_of(2), None),
    "three numbers": (domain_of(3), None),
    "a number and a category": (domain_of(1, (4,)), None),
    "two categories": (domain_of(0, (4, 5)), None),
    "groups": (domain_of(3, (4,)), [["n0", "n1"], ["n2", "c0"]]),
}


def tables(domain: Domain, units: int, listed: bool = False) -> dict[str, MemoryTable]:
    """Tables whose kernel matrices are 0, all equal, of low rank, or of as many values as there are units."""
    rng, numbers = np.random.default_rng(units), len(domain.numeric)
    codes = np.array([column.categories for column in domain.categorical], np.int32) - 2 * listed
    drawn = rng.integers(0, codes, (units, len(codes))).astype(np.int32)
    one = np.full((units, len(codes)), 0, np.int32)
    values: dict[str, tuple[Floats, Any]] = {
        "drawn": (rng.random((units, numbers)), drawn),
        "at the lower bound": (np.zeros((units, numbers)), one),
        "at the upper bound": (np.ones((units, numbers)), one),
        "in the middle, all missing": (np.full((units, numbers), 0.5), one + codes - 1),
        "constant": (np.full((units, numbers), 0.1), one + np.maximum(codes - 2, 0)),
        "two values": (rng.integers(0, 2, (units, numbers)) * 1.0, drawn % 2),
        "alike in all columns": (np.repeat(rng.random((units, 1)), numbers, axis=1), one),
        "one unit apart": (np.eye(units, max(1, numbers))[:, :1].repeat(numbers, axis=1), one),
        "nearly constant": (0.5 + 1e-15 * rng.integers(-1, 2, (units, numbers)), one),
    }
    return {name: MemoryTable(domain, *own) for name, own in values.items()}


def joint(kernel: str, shape: str, **parameters: Any) -> Study:
    domain, groups = SHAPES[shape]
    asked = KERNELS[kernel] | {"method": "permutation", "groups": groups, "permutations": FEW} | parameters
    return made_study("joint_independence", domain, {k: v for k, v in asked.items() if v is not None})


@pytest.mark.sweep(14)
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_table_has_statistics_in_their_range(kernel: str, shape: str) -> None:
    """Of 2, 3, 7 and 60 units, 9 kinds of table each; where nothing varies, T is 0."""
    study, procedure = joint(kernel, shape), PROCEDURES["joint_independence"]
    variables = len(SHAPES[shape][1] or study.domain.columns)
    for units in (2, 3, 7, 60):
        for name, table in tables(study.domain, units).items():
            summary = planned(procedure, study).summarise(table, np.random.default_rng(1))
            assert isinstance(summary, PermutedStatistics)
            assert len(summary.values) == FEW + 1
            assert np.all((summary.values >= 0) & (summary.values <= statistic_max(variables) + 1e-6))
            if name.startswith(("at the", "in the", "constant")):
                assert summary.values.max() < 1e-6
            assert procedure.privatise(study, summary, SeededNoise(1)).decision in (True, False)
        with pytest.raises(PublicRuleError):
            procedure.summarise(study, tables(study.domain, 1)["drawn"])


@pytest.mark.parametrize("kernel", KERNELS)
def test_sensitivities_hold_beside_tables_that_do_not_vary(kernel: str) -> None:
    """Every kind of table, its first unit replaced by every corner, the middle and the drawn ones."""
    shape = "three numbers"
    study, procedure, units = joint(kernel, shape), PROCEDURES["joint_independence"], 6
    others = [*itertools.product((0.0, 0.5, 1.0), repeat=3), (0.3, 0.7, 0.2)]

    def values(numeric: Floats) -> Floats:
        table = MemoryTable(study.domain, numeric, np.zeros((units, 0), np.int32))
        summary = planned(procedure, study).summarise(table, np.random.default_rng(1))
        return np.asarray(getattr(summary, "values"))  # noqa: B009

    for table in tables(study.domain, units).values():
        found = values(table.numeric)
        for other in choose(others[::3], others):
            moved = np.abs(values(np.concatenate([[other], table.numeric[1:]])) - found)
            assert moved[0] <= observed_sensitivity(units, 3) + 1e-5
            assert moved[1:].max() <= permuted_sensitivity(units, 3) + 1e-5


def other_studies() -> dict[str, Study]:
    """Blocks, tables and curated procedures, whose statistics or votes are made by permutations too."""
    numbers, mixed = domain_of(2), domain_of(2, (4,))
    found = {
        f"blocks, {kernel}": joint(kernel, "a number and a category", method="aggregate", permutations=None)
        for kernel in ("gaussian", "distance", "linear")
    }
    large = {"kernel": "gaussian", "method": "aggregate", "blocks": 1}
    found["a large block"] = made_study("joint_independence", numbers, large)
    graph = {"method": "aggregate", "graph": {"n0": ["n1", "c0"]}}
    found["a graph"] = made_study("joint_independence", mixed, graph)
    found["a table"] = made_study("joint_independence", numbers, {"method": "table"})
    asked: dict[str, Any] = {"permutations": FEW}
    found["distance correlation"] = made_study("curated_distance_correlation", numbers, asked)
    asked |= {"groups": [["n0", "c0"], ["n1"]]}
    found["distance correlation of groups"] = made_study("curated_distance_correlation", mixed, asked)
    columns = {"groups": (1, (4,)), "paired": (2, ()), "pair": (2, ()), "table": (0, (4, 4))}
    columns |= {"times": (1, (4, 4)), "given": (3, (4,))}
    for test in get_args(TestName):
        domain = domain_of(*columns[TESTS[test].takes])
        found[f"test {test}"] = made_study("aggregated_test", domain, {"test": test}, delta=0.0)
    return found


OTHERS = other_studies()


@pytest.mark.sweep(12)
@pytest.mark.parametrize("name", OTHERS)
def test_every_table_makes_a_release(name: str) -> None:
    """What a release is made of has a value whatever the rows, from the fewest units on that a test takes."""
    study = OTHERS[name]
    procedure = PROCEDURES[study.procedure]
    made = 0
    for units in (2, 3, 10, 40, 90):
        for table in tables(study.domain, units).values():
            given = {} if study.procedure.startswith("curated") else {"order": np.random.default_rng(1)}
            try:
                release = release_of(procedure, study, table, Drawing(), **given)
            except PublicRuleError:
                assert units < 40
                continue
            made += 1
            assert all(math.isfinite(scale.scale) for scale in release.vectors.values())
    assert made >= 9 * 2


@pytest.mark.parametrize("kind", ["rank", "distinct values"])
def test_a_division_by_what_data_have_would_be_caught(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a matrix's rank, as there was one; or by the number of distinct values less one."""
    chosen = statistic._statistic

    def planted(grams: Any, workers: Any, report: Any) -> Any:
        for gram in grams:
            rows = gram.rows(0, gram.size)
            found = np.linalg.matrix_rank(rows) if kind == "rank" else len(np.unique(rows)) - 1
            assert 1 // int(found) >= 0
        return chosen(grams, workers, report)

    monkeypatch.setattr(statistic, "_statistic", planted)
    with pytest.raises(ZeroDivisionError):
        test_every_table_has_statistics_in_their_range("linear", "two numbers")


def counted(study: Study, table: MemoryTable) -> Operations:
    """What a release of a table takes, in the same order of its units."""
    procedure = PROCEDURES[study.procedure]
    given = {} if study.procedure.startswith("curated") else {"order": np.random.default_rng(1)}

    def run() -> None:
        release_of(procedure, study, table, Drawing(), **given)

    return operations(run)


def as_long_whatever_the_rows(study: Study, units: int, listed: bool = False) -> None:
    made = tables(study.domain, units, listed)
    counted(study, made["drawn"])  # what is prepared once
    expected = counted(study, made["drawn"])
    assert sum(expected.values()) > 1000
    for name, table in made.items():
        assert apart(expected, counted(study, table)) == {}, name


@pytest.mark.sweep(12)
@pytest.mark.parametrize("units", [60, 400])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_same_is_done_whatever_the_rows(kernel: str, shape: str, units: int) -> None:
    """Calls of every function, and entries of arrays, of 9 kinds of table."""
    as_long_whatever_the_rows(joint(kernel, shape), units)


@pytest.mark.sweep(6)
@pytest.mark.parametrize("name", OTHERS)
def test_the_same_is_done_by_others_whatever_the_rows(name: str) -> None:
    """Units whose level is not listed take no part in known tests, so that there are none here."""
    as_long_whatever_the_rows(OTHERS[name], 120, listed=True)


def test_three_columns_in_cells_too() -> None:
    study = joint("gaussian", "three numbers")
    seen: list[int] = []
    cut = statistic.FeatureCells.cut

    def watched(*given: Any) -> Any:
        seen.append(len(given[2].each))
        return cut(*given)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(statistic.FeatureCells, "cut", watched)
        as_long_whatever_the_rows(study, 2000)
    assert seen
    assert seen[0] > 1


@pytest.mark.parametrize("kind", ["few values", "a constant"])
def test_a_way_that_data_choose_would_be_caught(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As there was one: explicit features where a column has few distinct values; or an early exit."""
    chosen = statistic._statistic

    def planted(grams: Any, workers: Any, report: Any) -> Any:
        columns = [gram.column for gram in grams]
        if max(len(np.unique(column)) for column in columns) <= {"few values": 2, "a constant": 1}[kind]:
            return MarkovStatistic([gram.markov for gram in grams], 2)
        return chosen(grams, workers, report)

    study = joint("distance", "two numbers")
    as_long_whatever_the_rows(study, 60)
    monkeypatch.setattr(statistic, "_statistic", planted)
    with pytest.raises(AssertionError, match="calls"):
        as_long_whatever_the_rows(study, 60)
