"""The registry of problem types is whole, and its documents hold what RFC 9457 asks for."""

import re
from pathlib import Path

import pytest

from tacit_protocol.messages.problems import PROBLEMS, problem_document


def test_every_problem_is_registered_under_its_own_name() -> None:
    assert all(slug == problem.slug for slug, problem in PROBLEMS.items())
    assert all(400 <= problem.status < 600 and problem.advice for problem in PROBLEMS.values())


def test_a_document_holds_type_title_status_and_advice() -> None:
    document = problem_document("study-expired", instance="abc", detail_path="$.deadline", retry_after_s=3)
    assert document["type"] == "urn:tacit:problem:study-expired"
    assert document["status"] == 409
    assert (document["instance"], document["path"], document["retry_after_s"]) == ("abc", "$.deadline", 3)
    assert document["title"]
    assert document["advice"]


def test_absent_members_are_left_out() -> None:
    assert set(problem_document("not-found")) == {"type", "title", "status", "advice"}


def test_an_unregistered_problem_cannot_be_sent() -> None:
    with pytest.raises(KeyError):
        problem_document("made-up")


REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "problems.md"


def missing_or_wrong(text: str) -> set[str]:
    """Compare the reference page's table with the registry; returns the types that differ."""
    lines = re.findall(r"^\| `([a-z-]+)` \| (\d+) \| ([^|]+) \|", text, re.MULTILINE)
    stated = {(slug, int(status), title.strip()) for slug, status, title in lines}
    registered = {(problem.slug, problem.status, problem.title) for problem in PROBLEMS.values()}
    return {slug for slug, _, _ in stated ^ registered}


def test_every_problem_type_has_its_line_in_the_reference() -> None:
    text = REFERENCE.read_text("utf-8")
    assert missing_or_wrong(text) == set()
    planted = text.replace("| `study-closed` |", "| `study-shut` |").replace("| 507 |", "| 500 |")
    assert missing_or_wrong(planted) == {"study-closed", "study-shut", "storage-full"}
