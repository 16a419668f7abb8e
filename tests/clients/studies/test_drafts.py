"""Drafts in TOML: faults are named with their lines and what is allowed; the schema says the same."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tacit.command.app import run
from tacit.errors import InputError
from tacit.studies.draft import EnrolledKeys, StudyDraft, draft_schema, draft_text, schema_text
from tacit_protocol.domain import bounds_words
from tacit_protocol.messages.study import Party
from tacit_protocol.procedures.discovery import PROCEDURES

ROOT = Path(__file__).resolve().parents[3]

WRONG = """\
# what an analyst wrote
title = '''
epsilon = "not a key" # nor this
'''
epsilon = "one"
procedure = "kernel_two_sample"

[[columns]]
kind = "numeric"
name = "age"
lowr = 0
upper = 120

[[columns]]
kind = "categorial"
name = "sex"
levels = ["F", "M"]

[[owners]]
name = "North"
data_set = "patients"
units = -3
[owners.sealing]
key = "ab"
"""


@pytest.fixture(autouse=True)
def registered_procedures_alone(quick_procedure: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(PROCEDURES, "quick")


@pytest.fixture
def good(draft: dict[str, Any]) -> dict[str, Any]:
    return draft | {"procedure": "kernel_two_sample"}


def test_every_fault_of_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(WRONG)
    with pytest.raises(InputError) as raised:
        StudyDraft.from_toml(file)
    told = str(raised.value)
    assert "line 11, columns[0].lowr: there is no such key; did you mean lower?" in told
    assert 'line 15, columns[1].kind: "categorial" is not known; did you mean categorical?' in told
    assert "line 20, owners[0].name: a name has small letters" in told
    assert "line 22, owners[0].units: this must be greater than or equal to 1, and not -3" in told
    assert "line 24, owners[0].sealing.key: this must be 64 hexadecimal digits" in told
    assert 'line 5, epsilon: this must be a valid number, and not "one"' in told
    assert "delta: this key is missing" in told
    assert "title" not in told


def test_outputs_of_encoders_have_bounds_by_themselves(good: dict[str, Any]) -> None:
    """And keep those that are given; a draft is written and read as it was; a fault is told by its key."""
    encoder = {
        "inputs": [{"kind": "vector", "name": "v", "length": 100, "norm": 2.0}],
        "projection": {"seed": "0" * 32},
        "outputs": ["a", "b"],
    }
    narrow = {"kind": "numeric", "name": "b", "lower": -0.1, "upper": 0.1}
    made = StudyDraft.from_dict(good | {"encoders": [encoder], "columns": [narrow]})
    assert [(c.name, bounds_words(c)) for c in made.columns] == [("b", "-0.1 to 0.1"), ("a", "-0.8 to 0.8")]
    assert StudyDraft.from_dict(tomllib.loads(draft_text(made))) == made
    assert "encoders" not in draft_text(StudyDraft.from_dict(good))
    with pytest.raises(InputError, match=r"encoders\[0\].inputs\[0\]\S*length"):
        StudyDraft.from_dict(good | {"encoders": [encoder | {"inputs": [{"kind": "vector", "name": "v"}]}]})


def test_the_committed_schema_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    committed = (ROOT / "docs" / "reference" / "study.schema.json").read_text("utf-8")
    assert committed == schema_text(), "write it anew: tacit study schema > docs/reference/study.schema.json"
    assert run(["study", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == draft_schema()


def test_schema_and_reader_agree(good: dict[str, Any]) -> None:
    schema = draft_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    for change, fits in (
        ({}, True),
        ({"epsilon": "one"}, False),
        ({"parameters": {"features": "me"}}, True),
        ({"parameters": {"n_feature": 3}}, False),
        ({"procedure": "screening", "parameters": {"features": "me"}}, False),
        ({"procedure": "identity"}, False),
        ({"procedure": "screening", "parameters": {"control": "bh"}}, True),
        ({"procedure": "identity", "parameters": {"probabilities": [0.5, 0.5]}}, True),
        ({"columns": [{"name": "age", "lower": 0, "upper": 1}]}, False),
    ):
        fields = good | change
        assert validator.is_valid(fields) is fits, change
        try:
            StudyDraft.from_dict(fields)
            taken = True
        except InputError:
            taken = False
        assert taken is fits, change


def test_documented_drafts_fit_the_schema() -> None:
    validator = jsonschema.Draft202012Validator(draft_schema())
    found = 0
    for page in (ROOT / "docs").rglob("*.md"):
        for block in re.findall(r"^```toml\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
            try:
                fields = tomllib.loads(re.sub("(KEY|DIGEST)_[A-Z_]+|ALIGNMENT", "ab" * 32, block))
            except tomllib.TOMLDecodeError:
                continue
            # A page may tell of a procedure that it adds: the schema lists what is installed.
            if {"title", "columns", "owners"} <= set(fields) and fields.get("procedure") != "sign_test":
                found += 1
                faults = [error.message for error in validator.iter_errors(fields)]
                assert not faults, f"{page.name}: {faults}"
    assert found


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"owners": [{"name": "nroth", "data_set": "patients"}]}, "north"),
        ({"owners": [{"name": "clinic", "data_set": "patients"}]}, None),
        ({"curator": "curater"}, "curator"),
    ],
)
def test_a_party_that_is_not_enrolled_brings_the_nearest_name(
    written: dict[str, Any], meant: str | None
) -> None:
    plain = {
        "title": "Are they alike?",
        "columns": [{"kind": "numeric", "name": "age", "lower": 0, "upper": 120}],
        "owners": [{"name": "north", "data_set": "patients"}],
        "epsilon": 1.0,
        "delta": 1e-5,
    }
    enrolled = EnrolledKeys({"north": "1" * 64, "south": "2" * 64}, {"curator": "3" * 64})
    tester, analyst = Party(name="tester", key="4" * 64), Party(name="ann", key="5" * 64)
    with pytest.raises(InputError, match="is enrolled at the tester") as refused:
        StudyDraft.from_dict(plain | written).study(enrolled, tester, analyst, 1_000)
    said = str(refused.value)
    assert said.endswith(f"; did you mean {meant}?") if meant else "did you mean" not in said
