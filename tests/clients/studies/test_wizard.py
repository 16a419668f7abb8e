"""`tacit study create` asks: it proposes, explains, asks again, and sends nothing that was not agreed to."""

import builtins
import json
import os
import shlex
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tacit import Client
from tacit.command.app import run
from tacit.setup.configuration import toml_text
from tacit.studies import preflight
from tacit.studies.draft import StudyDraft
from tacit.studies.wizard import KnownDataSet, PublishedDataSets, draft_by_asking, known_at
from tacit_protocol.domain import CategoricalColumn, NumericColumn
from tacit_protocol.procedures.discovery import PROCEDURES, answered_questions, proposed_question
from tacit_protocol.signing import PrivateKey

AGE = NumericColumn(name="age", lower=0, upper=120)
SEX = CategoricalColumn(name="sex", levels=("F", "M"))


class Script:
    """Answers from a list; an answer beside a part of the question it is meant for."""

    def __init__(self, *answers: tuple[str, str]) -> None:
        self.answers = list(answers)
        self.heard: list[str] = []

    def say(self, *texts: str) -> None:
        self.heard += texts

    def ask(self, question: str, default: str | None = None) -> str:
        self.heard.append(question)
        assert len(self.heard) < 200, f"asked for ever: {self.heard[-3:]}"
        if not self.answers or self.answers[0][0] not in question:
            assert default is not None or "empty" in question, f"nobody answers: {question}"
            return default or ""
        return self.answers.pop(0)[1]


def known(*owners: str, **fields: Any) -> PublishedDataSets:
    return PublishedDataSets(owners, **fields)


def asked(script: Script, of: PublishedDataSets) -> StudyDraft:
    draft = draft_by_asking(script, of)
    assert not script.answers, "not everything was asked"
    return draft


def test_two_owners_are_compared_by_pressing_enter() -> None:
    script = Script(
        ("What do you want to know", "Are our patients alike?"),
        ("data set of north", "patients"),
        ("does north have", "3000"),
        ("data set of south", "patients"),
        ("does south have", ""),
        ("Which columns", "age, sex"),
        ("age: bounds", "0:120"),
        ("sex: bounds", "F, M"),
    )
    draft = asked(script, known("north", "south"))
    assert (draft.procedure, draft.title) == ("kernel_two_sample", "Are our patients alike?")
    assert [(owner.name, owner.data_set, owner.units) for owner in draft.owners] == [
        ("north", "patients", 3000),
        ("south", "patients", None),
    ]
    # A name proposes neither: it does not tell how an owner codes the values.
    assert draft.columns == (AGE, SEX)
    assert (draft.epsilon, draft.delta, draft.level, draft.open_for_hours) == (1.0, 1e-5, 0.05, 168.0)
    assert "commonly age in years" in " ".join(script.heard)


def test_words_that_point_nowhere_choose_no_question() -> None:
    """It was a test of two samples, of one owner."""
    script = Script(
        ("What do you want to know", "Is blood pressure higher in smokers?"),
        ("Number", ""),
        ("Number", str(1 + [one.agents for one in answered_questions()].index("group_comparison"))),
        ("Which owners", "north"),
        ("data set of north", "patients"),
        ("does north have", "3000"),
        ("Which columns", "age, sex"),
        ("age: bounds", "0:120"),
        ("sex: bounds", "F, M"),
    )
    assert proposed_question("Is blood pressure higher in smokers?") is None
    draft = asked(script, known("north", "south", curators=("registry",)))
    assert draft.procedure == "group_comparison"
    assert "Your words do not say what kind of question it is." in script.heard


def test_what_cannot_be_read_is_asked_again() -> None:
    script = Script(
        ("What do you want to know", "Do they differ?"),
        ("Number", "99"),
        ("Which owners", "north, east"),
        ("Which owners", "north, south"),
        ("data set of north", "Patients!"),
        ("data set of north", "patients"),
        ("does north have", "-3"),
        ("does north have", "3000"),
        ("data set of south", "patients"),
        ("Which columns", "age, age"),
        ("Which columns", "dose"),
        ("dose: bounds", "5:1"),
        ("dose: bounds", "0:5"),
        ("epsilon", "0"),
        ("epsilon", "2"),
        ("delta", "1"),
        ("delta", "0"),
        ("level", "0.5"),
        ("level", "0.01"),
        ("Hours", "9999"),
        ("Hours", "24"),
    )
    draft = asked(script, known("north", "south"))
    assert draft.columns == (NumericColumn(name="dose", lower=0, upper=5),)
    assert (draft.epsilon, draft.delta, draft.level, draft.open_for_hours) == (2.0, 0.0, 0.01, 24.0)


def test_earlier_studies_say_what_data_sets_and_columns_there_are(
    memory_tester: Any, analyst_key: PrivateKey, draft: dict[str, Any]
) -> None:
    with Client("https://tester.example", analyst_key, transport=memory_tester) as client:
        client.create_study(draft | {"unit_column": "id"})
        found = known_at(client)
    assert found.owners == ("north", "south", "west")
    assert found.of("north", "patients") == KnownDataSet(1000, "id", {"age": AGE, "sex": SEX})
    assert found.of("west", "patients") == KnownDataSet()
    script = Script(("What do you want", "Are they alike?"), ("Which owners", "north, south"))
    made = asked(script, found)
    assert made.columns == (AGE, SEX)
    assert [owner.units for owner in made.owners] == [1000, 900]
    assert made.unit_column == "id"


def test_owners_of_different_columns_are_asked_for_their_own() -> None:
    script = Script(
        ("What do you want", "Which of their columns relate to our outcome?"),
        ("data set of north", "clinic"),
        ("data set of south", "registry"),
        ("Which columns of north", "age, sex"),
        ("age: bounds", "0:120"),
        ("sex: bounds", "F, M"),
        ("Which columns of south", "sex"),
        ("Which columns of south", "score"),
        ("score: bounds", "0 to 10"),
        ("The digest that it printed", "ab" * 32),
        ("The id column", "id"),
        ("Of several rows", "neither"),
        ("Of several rows", "one"),
    )
    draft = asked(script, known("north", "south"))
    assert draft.procedure == "screening"
    assert [owner.columns for owner in draft.owners] == [("age", "sex"), ("score",)]
    assert (draft.alignment, draft.unit_column, draft.unit_rows) == ("ab" * 32, "id", "one")


def test_three_owners_of_one_column_each_are_asked_for_them_and_two_are_too_few() -> None:
    script = Script(
        ("What do you want", "Do columns of three registries depend on each other?"),
        ("Which owners", "north, south"),
        ("Which owners", "north, south, west"),
        ("data set of north", "clinic"),
        ("data set of south", "registry"),
        ("data set of west", "school"),
        ("Which columns of north", "age"),
        ("age: bounds", "0:120"),
        ("Which columns of south", "age"),
        ("Which columns of south", "score"),
        ("score: bounds", "0 to 10"),
        ("Which columns of west", "grade"),
        ("grade: bounds", "0 to 15"),
        ("The digest that it printed", ""),
    )
    draft = asked(script, known("north", "south", "west"))
    assert draft.procedure == "mutual_independence"
    assert [owner.columns for owner in draft.owners] == [("age",), ("score",), ("grade",)]
    assert draft.delta == 0.0


def test_every_procedure_answers_some_question() -> None:
    answered = {name for one in answered_questions() for name in (one.agents, one.curator) if name}
    assert answered == set(PROCEDURES) - {"quick"}


@pytest.fixture
def at_terminal(client: Client, memory_tester: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Somebody at a terminal who types these lines, with the tester in memory."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)

    def type_in(*typed: str, planned: preflight.PlanningReport) -> Any:
        remaining = iter(typed)

        def answer(_: str) -> str:
            try:
                return next(remaining)
            except StopIteration:
                raise EOFError from None

        monkeypatch.setattr(builtins, "input", answer)
        monkeypatch.setattr(preflight, "plan_in_process", lambda *_: planned)
        return memory_tester

    return type_in


ANSWERS = (
    *("Are they alike?", "", "north, south", "patients", "3000", "patients", "3000"),
    *("age", "0:120", "", "1", "1e-5", "0.05", "168"),
)
OFTEN = "in 36 of 40 simulated studies (95 % interval 0.76 to 0.98)"

GOOD = preflight.PlanningReport(power=0.9, often=OFTEN, runs=40, effect="a shift")
POOR = preflight.PlanningReport(
    power=0.05,
    runs=100,
    effect="a shift",
    hopeless=True,
    helps=[
        {"what": "epsilon", "value": 2.0, "power": 0.85, "often": "in 34 of 40 simulated studies"},
        {"what": "units", "value": [6000, 6000], "power": 0.9, "often": OFTEN},
    ],
)


def test_nothing_is_sent_before_a_yes(at_terminal: Any, capsys: Any, tmp_path: Path) -> None:
    file = tmp_path / "asked.toml"
    tester = at_terminal(*ANSWERS, "no", planned=GOOD)
    assert run(["study", "create", "--save", str(file)]) == 0
    out = capsys.readouterr().out
    assert "What the steward of north, south will read:" in out
    assert "It spends epsilon 1 and delta 1e-05 of the data set's budget" in out
    assert OFTEN in " ".join(out.split())
    assert "Nothing was sent" in out
    assert tester.envelopes == {}
    # What was asked is a draft like any other.
    assert StudyDraft.from_toml(file).title == "Are they alike?"
    assert "units" in tomllib.loads(file.read_text())["owners"][0]
    assert run(["study", "create", str(file), "--save", str(file)]) == 2
    assert "exists already" in capsys.readouterr().err
    at_terminal(*ANSWERS, "yes", planned=GOOD)
    assert run(["study", "create", "--party", "ann's/party.toml"]) == 0
    (digest,) = tester.envelopes
    out = capsys.readouterr().out
    assert f"Created {digest}" in out
    (following,) = (line for line in out.splitlines() if line.startswith("Next: "))
    watch = ["Next:", "tacit", "study", "watch", digest[:12]]
    assert shlex.split(following) == [*watch, "--party", "ann's/party.toml"]


def test_a_study_that_the_plan_calls_hopeless_is_refused_with_what_would_help(
    at_terminal: Any, capsys: Any, draft: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "study.toml"
    file.write_text(toml_text(draft | {"procedure": "kernel_two_sample"}))
    tester = at_terminal(planned=POOR)
    assert run(["study", "create", str(file)]) == 1
    told = capsys.readouterr().err
    words = " ".join(told.split())
    assert "with epsilon 2 in 34 of 40 simulated studies" in words
    assert f"with 6000 units each {OFTEN}" in words
    assert "--force" in told
    assert tester.envelopes == {}
    assert run(["study", "create", str(file), "--dry-run", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["plan"]["power"] == 0.05
    assert shown["hopeless"]
    assert set(shown["plain_words"]) == {"north", "south"}
    assert run(["study", "create", str(file), "--force"]) == 0
    assert len(tester.envelopes) == 1


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_without_a_terminal_it_says_what_is_missing(
    more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        assert run(["study", "create", *more]) == 2
    told = capsys.readouterr().err
    for flag in ("--title", "--column", "--owner", "--epsilon", "--delta", "study.toml"):
        assert flag in told
    if more:
        assert json.loads(told)["error"] == "InputError"
