"""The registry of problem types is whole, and its documents hold what RFC 9457 asks for."""

import pytest

from tacit_protocol.messages.problems import problem_document


def test_a_document_holds_type_title_status_and_advice() -> None:
    document = problem_document("study-expired", instance="abc", detail_path="$.deadline", retry_after_s=3)
    assert document["type"] == "urn:tacit:problem:study-expired"
    assert document["status"] == 409
    assert (document["instance"], document["path"], document["retry_after_s"]) == ("abc", "$.deadline", 3)
    assert document["title"]
    assert document["advice"]


def test_an_unregistered_problem_cannot_be_sent() -> None:
    with pytest.raises(KeyError):
        problem_document("made-up")
