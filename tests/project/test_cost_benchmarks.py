"""The pages of benchmarks are made of the rows that were measured, and every procedure has its costs."""

import importlib

import pytest
from benchmarks.cost_study import QUESTIONS, Parties
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


MODULES = (
    "categorical",
    "costs",
    "coverage",
    "database_errors",
    "database_queries",
    "database_release",
    "dependence",
    "distance_correlation",
    "identity",
    "joint_independence",
    "p0",
    "p4",
    "planning",
    "scale",
    "screening",
    "thousand_owners",
    "two_sample",
    "worker_model",
)
"""Benchmarks with counts beside the pages that they write."""


@pytest.mark.parametrize("module", MODULES)
def test_pages_are_made_of_the_rows_that_were_measured(module: str) -> None:
    for benchmark in importlib.import_module(f"benchmarks.{module}").BENCHMARKS:
        page, counts = (PAGES / f"{benchmark.page}.{end}" for end in ("md", "jsonl"))
        if counts.exists():
            text, parts = page.read_text(), benchmark.parts(Counts(counts))
            if "machine" in parts:
                parts["machine"] = {match["name"]: match["old"] for match in PART.finditer(text)}["machine"]
            assert fill(text, parts) == text
