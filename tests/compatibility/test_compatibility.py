"""Transcripts made by earlier code verify, and say what they said: verdict, SDK, command, report, picture."""

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from compatibility_cases import CASES, FIXTURES, stated

from tacit_protocol.procedures.discovery import PROCEDURES

KEPT = sorted(FIXTURES.glob("*.json"))

FIRST = {CASES[name].procedure: name for name in reversed(CASES)}
"""One case of each procedure: those that the default tier looks at."""


TOLERANCE = 2e-8
"""Relative, of numbers rounded to DIGITS digits: processors differ in the last one."""


def differences(found: Any, before: Any, place: str) -> Iterator[str]:
    """Yield where two plain values differ; numbers, by more than ``TOLERANCE``."""
    if isinstance(found, dict) and isinstance(before, dict) and found.keys() == before.keys():
        for key in found:
            yield from differences(found[key], before[key], f"{place}/{key}")
    elif isinstance(found, list) and isinstance(before, list) and len(found) == len(before):
        for index, (one, other) in enumerate(zip(found, before, strict=True)):
            yield from differences(one, other, f"{place}/{index}")
    elif isinstance(found, float) and isinstance(before, float):
        if not math.isclose(found, before, rel_tol=TOLERANCE):
            yield f"{place}: {found} was {before}"
    elif found != before:
        yield f"{place}: {str(found)[:300]} was {str(before)[:300]}"


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
