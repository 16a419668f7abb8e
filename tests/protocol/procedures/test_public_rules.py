"""Public rules: refusals that follow from a study and numbers of units alone, and may be told to everyone."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, get_args

import pytest
from made_studies import domain_of, made_study

from tacit_protocol.messages.study import PUBLIC_RULES, PublicRule, Study
from tacit_protocol.procedures.base import PublicRuleError, check_study, require_units
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.procedures.plan import Plan

TWO_SIDED = {"owners": 2, "columns": (("n0",), ("n1",)), "numeric": 2}
SCREENED = {"owners": 2, "columns": (("n0", "n1", "n2"), ("n3",)), "numeric": 4}
APART = {"owners": 3, "columns": (("n0",), ("n1",), ("n2",)), "numeric": 3}
WIDE = {"owners": 2, "columns": (("n0", "n1", "n2", "n3", "n4", "n5", "n6"), ("n7",)), "numeric": 8}
CURATED = {"owners": 2, "curated": True, "numeric": 2}
PAPER = {"calibration": "paper", "features": "me", "n_features": 3}
KERNEL = {"release": "permutation", "features": "kernel", "permutations": 99}
ONE = {"owners": 1, "numeric": 2}
CELLS = {"owners": 1, "numeric": 0, "sizes": (4,)}
KNOWN = {"probabilities": [0.5, 0.5]}
PAIRED = {"owners": 2, "numeric": 2}
BESIDE = {"owners": 2, "columns": (("c0",), ("n0",)), "numeric": 1, "sizes": (4,)}
TABLE = {"owners": 2, "columns": (("c0",), ("c1",)), "numeric": 0, "sizes": (4, 4)}
STRATA = {"owners": 2, "columns": (("c0",), ("c1", "c2")), "numeric": 0, "sizes": (4, 4, 4)}
DIED = {"group": "c0", "time": "n0", "event": "c1", "cuts": {"n0": [0.5]}}
SUMMED = {"aggregation": "masked", "colluders": 1}
MASKED = {"n_points": 5, "placement": "uniform"} | SUMMED
POOLED = {"owners": 2, "numeric": 1}
TIMES = {"owners": 2, "columns": (("c0",), ("n0", "c1")), "numeric": 1, "sizes": (4, 4)}

Units = tuple[int, ...]
Fields = Mapping[str, Any]

CASES: list[tuple[str, Fields, Fields, Units, Units, PublicRule]] = [
    ("kernel_two_sample", {}, POOLED, (2**50, 2**50), (500, 500), "no-plan"),
    ("curated_two_sample", PAPER, CURATED, (500, 501), (500, 500), "unequal-sizes"),
    ("curated_two_sample", KERNEL, CURATED, (30_000, 20_001), (30_000, 20_000), "too-many-units"),
    ("distance_correlation", {}, TWO_SIDED, (4, 4), (5000, 5000), "too-few-units"),
    ("distance_correlation", {}, TWO_SIDED, (2**40, 2**40), (5000, 5000), "too-many-units"),
    (
        "distance_correlation",
        {"method": "pnc", "n_projections": 8},
        WIDE,
        (4898, 4898),
        (4500, 4500),
        "too-many-numbers",
    ),
    (
        "distance_correlation",
        {"method": "pnc-disjoint", "n_projections": 50},
        WIDE,
        (150, 150),
        (5000, 5000),
        "too-few-units",
    ),
    ("screening", {"outcome": "o1"}, TWO_SIDED, (4, 4), (5000, 5000), "too-few-units"),
    ("screening", {"outcome": "o1", "categories": 2}, SCREENED, (59, 59), (60, 60), "too-few-units"),
    ("mutual_independence", {}, APART, (10, 10, 10), (500, 500, 500), "too-few-units"),
    ("mutual_independence", {}, APART, (10**8,) * 3, (500, 500, 500), "too-many-units"),
    ("joint_independence", {}, ONE, (1,), (500,), "too-few-units"),
    ("joint_independence", {"method": "permutation"}, ONE, (10**7,), (500,), "too-many-units"),
    ("curated_distance_correlation", {}, ONE | {"curated": True}, (1,), (500,), "too-few-units"),
    ("curated_distance_correlation", {}, ONE | {"curated": True}, (2**40,), (500,), "too-many-units"),
    ("aggregated_test", {"test": "pearson"}, PAIRED, (9, 500), (500, 500), "too-few-units"),
    ("aggregated_test", {"test": "pearson", "blocks": 1}, PAIRED, (500, 10**6), (500, 500), "too-many-units"),
    ("group_comparison", {}, BESIDE, (1, 1), (500, 500), "too-few-units"),
    ("group_comparison", {}, BESIDE, (10**9, 10**9), (500, 500), "too-many-units"),
    ("independence_table", {}, TABLE, (1, 1), (500, 500), "too-few-units"),
    ("stratified_table", {}, STRATA, (1, 1), (500, 500), "too-few-units"),
    ("survival", DIED, TIMES, (1, 1), (500, 500), "too-few-units"),
    ("association", SUMMED, PAIRED, (2**43, 2**43), (500, 500), "too-many-units"),
    ("embedding_release", MASKED, POOLED, (2**43, 2**43), (500, 500), "too-many-units"),
    ("identity", KNOWN | {"method": "repetition"}, CELLS, (3,), (5000,), "too-few-units"),
    ("identity", KNOWN | {"method": "privit", "distance": 0.3}, CELLS, (10,), (10**7,), "no-plan"),
]


def study_of(procedure: str, parameters: Fields, shape: Fields) -> Study:
    count = shape["owners"]
    columns = shape.get("columns", (None,) * count)
    domain = domain_of(shape["numeric"], shape.get("sizes", ()))
    names = [f"o{place}" for place in range(count)]
    curated = bool(shape.get("curated"))
    return made_study(procedure, domain, parameters, owners=names, held=columns, curated=curated)


def by_owner(study: Study, units: tuple[int, ...]) -> dict[str, int]:
    return {owner.name: count for owner, count in zip(study.owners, units, strict=True)}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[5]}")
def test_units_alone_break_a_rule_and_other_numbers_do_not(case: Any) -> None:
    name, parameters, shape, broken, fitting, rule = case
    procedure, study = PROCEDURES[name], study_of(name, parameters, shape)
    check_study(procedure, study)
    with pytest.raises(PublicRuleError) as refused:
        require_units(procedure, study, by_owner(study, broken))
    assert refused.value.rule == rule
    require_units(procedure, study, by_owner(study, fitting))
    require_units(procedure, study, {})


def test_every_rule_has_words_and_is_raised_by_some_procedure_or_the_agent() -> None:
    installed = {"no-encoder"}  # tests/services/agent/test_encoders.py
    assert set(PUBLIC_RULES) == set(get_args(PublicRule)) == {case[5] for case in CASES} | installed


def test_no_plan_is_handed_data_where_it_says_why() -> None:
    def every(kind: type[Plan]) -> Iterator[type[Plan]]:
        yield kind
        for further in kind.__subclasses__():
            yield from every(further)

    for found in every(Plan):
        assert list(inspect.signature(found.check_units).parameters) == ["self", "units"], found
