"""The model of N workers is that of its derivation, and its simulation schedules as the agent does."""

from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks import cost_owners_page, costs
from benchmarks.cost_limits import LARGE, study_bytes
from benchmarks.cost_studies import QUESTIONS, Parties
from benchmarks.resumable import Counts

from tacit_protocol.messages.encoding import MESSAGE_BYTES_MAX
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


def test_the_largest_studies_fit_one_message() -> None:
    sizes = {name: study_bytes(study) for name, study in LARGE.items()}
    assert max(sizes.values()) <= MESSAGE_BYTES_MAX
    assert min(sizes.values()) > 200_000


@pytest.mark.parametrize(
    ("name", "text"), [("costs", costs.text), ("thousand-owners", cost_owners_page.text)]
)
def test_pages_are_made_of_the_rows_that_were_measured(name: str, text: Callable[[Counts], str]) -> None:
    folder = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"
    written, made = (folder / f"{name}.md").read_text(), text(Counts(folder / f"{name}.jsonl"))
    # What comes first names the machine.
    assert written.partition("\n## ")[2] == made.partition("\n## ")[2] != ""
