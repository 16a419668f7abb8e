"""Transcripts made by earlier code verify, and say what they said: verdict, SDK, command, report, picture."""

import json

import pytest
from compatibility_cases import CASES, FIXTURES, differences, stated

from tacit_protocol.procedures.discovery import PROCEDURES

KEPT = sorted(FIXTURES.glob("*.json"))

FIRST = {CASES[name].procedure: name for name in reversed(CASES)}
"""One case of each procedure: those that the default tier looks at."""


@pytest.mark.parametrize(
    "name",
    [
        file.stem if file.stem in FIRST.values() else pytest.param(file.stem, marks=pytest.mark.long)
        for file in KEPT
    ],
)
def test_a_transcript_of_before_says_what_it_said(name: str) -> None:
    kept = json.loads((FIXTURES / f"{name}.json").read_text())
    found = stated(json.dumps(kept["transcript"]).encode(), kept["stated"].get("fields"))
    for part, before in kept["stated"].items():
        assert list(differences(found[part], before, part)) == []
    assert found.keys() == kept["stated"].keys()


def test_every_case_and_every_procedure_has_a_fixture() -> None:
    assert set(CASES) <= {file.stem for file in KEPT}
    assert {case.procedure for case in CASES.values()} == set(PROCEDURES)
