"""The pages of benchmarks are made of the rows that were measured, and every procedure has its costs."""

import importlib

import pytest
from benchmarks.cost_studies import QUESTIONS, Parties
from benchmarks.harness import PAGES, PART, Counts, fill

from tacit_protocol.procedures.base import check_study
from tacit_protocol.procedures.discovery import PROCEDURES, procedure_named


def test_every_procedure_has_its_costs() -> None:
    assert {question.procedure for question in QUESTIONS.values()} == set(PROCEDURES)


@pytest.mark.parametrize("name", QUESTIONS)
def test_every_study_whose_cost_is_measured_is_one_that_owners_take(name: str) -> None:
    question = QUESTIONS[name]
    extremes = [point for varied, point in question.points() if varied != "owners" or point.owners <= 100]
    for point in extremes[:: max(1, len(extremes) // 4)]:
        study = question.study(point, Parties.of(point.owners), seed=1)
        check_study(procedure_named(study.procedure), study)


COUNTED = (
    ("categorical", "categorical_levels"),
    ("costs", "costs"),
    ("coverage", "coverage"),
    ("curated-distance", "curated_distance"),
    ("curator", "curator"),
    ("database-comparison", "database_comparison"),
    ("database-errors", "database_errors"),
    ("database-queries", "database_queries"),
    ("database-release", "database_release"),
    ("distance-correlation", "distance_correlation"),
    ("identity-levels", "identity_levels"),
    ("joint-independence", "joint_independence"),
    ("p4-data-sets", "p4_data_sets"),
    ("planning", "planning"),
    ("screening", "screening"),
    ("thousand-owners", "cost_owners"),
    ("two-sample", "two_sample"),
)
"""Pages with counts beside them, and the benchmarks that write them."""


@pytest.mark.parametrize(("name", "module"), COUNTED)
def test_pages_are_made_of_the_rows_that_were_measured(name: str, module: str) -> None:
    page = (PAGES / f"{name}.md").read_text()
    parts = importlib.import_module(f"benchmarks.{module}").parts(Counts(PAGES / f"{name}.jsonl"))
    if "machine" in parts:
        parts["machine"] = {match["name"]: match["old"] for match in PART.finditer(page)}["machine"]
    assert fill(page, parts) == page
