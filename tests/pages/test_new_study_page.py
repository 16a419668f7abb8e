"""The form of a new study in memory: what it proposes, what it makes, and what it refuses."""

import base64
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from study_parties import MeanProcedure, Parties
from tester_federation import URL, Federation
from window import Window

from tacit.studies.draft import EnrolledKeys, draft_of
from tacit_protocol.domain import (
    CategoricalColumn,
    Domain,
    Encoder,
    NumericColumn,
    Projection,
    VectorColumn,
)
from tacit_protocol.messages.catalogue import CatalogueMessage, PublishedDataSet
from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.study import Owner, Study, read_study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.signing import CATALOGUE_TYPE, STUDY_TYPE, PrivateKey, issue_token, sign_envelope
from tacit_services.tester.web import new_study
from tacit_services.tester.web.routes import Tester

HOSTILE = "<script>alert(1)</script>\"'&<b>"
AGE = NumericColumn(name="age", lower=0.123456789, upper=120.0)
SEX = CategoricalColumn(name="sex", levels=("F", "M", "not, known"))


class FormReader(HTMLParser):
    """Reads what a browser would send of a form, and where a page says what."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._form, self._inside, self._select = form, False, ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attributes}
        if tag == "form":
            self._inside = said.get("id") == self._form
        if not self._inside:
            return
        if tag == "input" and "name" in said and (said.get("type") != "checkbox" or "checked" in said):
            self.fields[said["name"]] = said.get("value", "")
        if tag == "select":
            self._select = said["name"]
        if tag == "option" and ("selected" in said or self._select not in self.fields):
            self.fields[self._select] = said["value"]


def form_of(page: str, form: str = "new-study") -> dict[str, str]:
    reader = FormReader(form)
    reader.feed(page)
    return reader.fields


def published(owner: str, parties: Parties, **changes: Any) -> bytes:
    """Return the envelope of what an owner publishes."""
    plain: dict[str, Any] = {
        "owner": owner,
        "tester": parties.tester.public_hex,
        "version": parties.now,
        "data_sets": (PublishedDataSet(name="patients", about=HOSTILE, units=1500, columns=(AGE, SEX)),),
        "procedures": ("*",),
        "per_study_max": Budget.of(0.5, 1e-6),
        "approval": "by-hand",
    }
    message = CatalogueMessage(**(plain | changes))
    return sign_envelope(encode(message), CATALOGUE_TYPE, parties.owners[owner])


@dataclass
class Asking:
    """A tester at which north and south publish, and west publishes nothing; the analyst is signed in."""

    federation: Federation
    window: Window

    def publish(self, owner: str, **changes: Any) -> None:
        parties = self.federation.parties
        envelope = published(owner, parties, **changes)
        answer = self.federation.put(f"/v1/catalogue/{owner}", parties.owners[owner], envelope)
        assert answer.status_code == 201, answer.text

    def question(
        self, title: str = "Are the patients alike?", owners: tuple[str, ...] = ("north", "south")
    ) -> Any:
        fields = form_of(self.window.get("/new").text)
        for name, text in list(fields.items()):
            if name.startswith("owner-") and text in owners:
                fields["ask-" + name.removeprefix("owner-")] = "yes"
        return fields | {"title": title}

    def columns(self, **changes: str) -> dict[str, str]:
        answer = self.window.post("/new", self.question() | changes | {"step": "columns"})
        assert answer.status_code == 200, answer.text
        return form_of(answer.text)

    def review(self, fields: dict[str, str]) -> Any:
        return self.window.post("/new", fields | {"step": "review"})

    def study(self, page: str) -> tuple[Study, bytes]:
        assert "data-payload" in page, unescape(page).partition('id="faults"')[2].partition("</div>")[0]
        payload = base64.b64decode(page.split('data-payload="')[1].split('"', maxsplit=1)[0])
        assert digest(payload) == page.split('data-digest="')[1].split('"', maxsplit=1)[0]
        return read_study(payload), payload


@pytest.fixture
def asking(tmp_path: Path, parties: Parties, mean_procedure: MeanProcedure) -> Iterator[Asking]:
    federation = Federation(tmp_path, f"sqlite:///{tmp_path / 'tester.sqlite3'}", parties)
    federation.enrol_everyone()
    found = Asking(federation, window_of(federation, parties.analyst))
    for owner in ("north", "south"):
        found.publish(owner)
    yield found
    federation.engine.dispose()


def window_of(federation: Federation, key: PrivateKey) -> Window:
    return Window(federation.app, URL, lambda: issue_token(key, URL, int(federation.now))).sign_in()


def test_a_question_and_two_ticks_make_the_bytes_of_a_study_that_the_tester_takes(asking: Asking) -> None:
    fields = asking.columns()
    assert (fields["epsilon"], fields["delta"], fields["procedure"]) == ("0.5", "1e-06", "kernel_two_sample")
    answer = asking.review(fields)
    assert answer.status_code == 200
    study, payload = asking.study(answer.text)
    parties = asking.federation.parties
    assert study.domain == Domain(columns=(AGE, SEX))  # to the last digit and comma, as it was published
    assert study.owners == tuple(
        Owner(name=name, key=parties.owners[name].public_hex, data_set="patients", units=1500)
        for name in ("north", "south")
    )
    assert (study.analyst.key, study.tester.key) == (parties.analyst.public_hex, parties.tester.public_hex)
    text = unescape(answer.text)
    assert "What the steward of <bdi>north, south</bdi> will read" in text
    assert "It spends epsilon 0.5 and delta 1e-06" in text
    stored = f"/v1/studies/{digest(payload)}"
    assert asking.federation.get(stored).status_code == 404  # nothing was sent
    envelope = sign_envelope(payload, STUDY_TYPE, parties.analyst)
    assert asking.federation.put(stored, parties.analyst, envelope).status_code == 201


def test_what_a_policy_would_refuse_is_said_before_anything_is_signed(asking: Asking) -> None:
    asking.publish("north", version=asking.federation.parties.now + 1, required_fields=("purpose",))
    fields = asking.columns()
    page = unescape(asking.review(fields | {"epsilon": "0.75", "bounds-0": "0 to 200"}).text)
    for words in (
        "north lets one study spend epsilon 0.5 at most",
        "north requires that a study states purpose",
        "south's column age has other bounds or levels than the study asks for",
    ):
        assert words in page
    page = unescape(asking.review(fields | {"purpose": "To plan beds"}).text)
    assert "would refuse it" not in page


def test_words_that_point_to_no_question_choose_no_procedure(asking: Asking) -> None:
    """At each step: what was written is kept, and the kind of question is asked for."""
    title = "Is blood pressure higher in smokers?"
    for fields in (
        asking.question(title, ("north",)) | {"step": "columns"},
        asking.columns() | {"title": title, "procedure": "", "step": "review"},
    ):
        answer = asking.window.post("/new", fields)
        assert answer.status_code == 422
        assert "your words do not say what kind of question it is: choose one below" in answer.text
        shown = form_of(answer.text)
        assert (shown["title"], shown["ask-0"]) == (title, "yes")
        chosen = asking.window.post("/new", shown | {"procedure": "group_comparison", "step": "columns"})
        assert "Do groups (men and women, cases and controls) differ in numbers" in chosen.text
    lost = asking.columns() | {"title": title, "procedure": "", "epsilon": "much", "step": "review"}
    assert form_of(asking.window.post("/new", lost).text)["epsilon"] == "much"


def test_a_draft_of_the_same_words_is_the_same_study(asking: Asking) -> None:
    study, payload = asking.study(asking.review(asking.columns() | {"purpose": "To plan beds"}).text)
    enrolled = EnrolledKeys({owner.name: owner.key for owner in study.owners}, {})
    again = draft_of(study).study(enrolled, study.tester, study.analyst, study.created_at)
    assert encode(again) == payload


WRONG: tuple[tuple[dict[str, str], str], ...] = (
    ({"epsilon": "much"}, "epsilon: write a number"),
    ({"epsilon": "0"}, "epsilon: this must be greater than 0"),
    ({"epsilon": "101"}, "epsilon must lie between"),
    ({"level": "0.7"}, "level: write a number from 0 to 0.5"),
    ({"open_for_hours": "9999"}, "open for hours: write a number from 0 to 2160"),
    ({"units-0": "some"}, "units of north: write a whole number, or nothing"),
    ({"bounds-0": "old"}, "column age: write two bounds, such as 0:120, or at least two levels"),
    ({"bounds-0": "5 to 1"}, "column age: lower must be less than upper"),
    ({"column-2": "age", "bounds-2": "0 to 1"}, "column age is chosen twice"),
    ({"use-0": "", "use-1": ""}, "choose a column"),
    ({"title": ""}, "title: this text must have at least 1 character"),
    ({"title": "x" * 201}, "title: this text must have at most 200 characters"),
    ({"contact": "x" * 201}, "contact: this text must have at most 200 characters"),
    ({"data_use": "research"}, "data use: "),
    ({"parameter-n_features": "[1, 2"}, "n features: write a number, a list with commas, or JSON"),
    ({"parameter-n_features": "9999"}, "n features: "),
    ({"parameter-features": "auot"}, 'features: "auot" is not known; did you mean auto?'),
    ({"curator": "nobody"}, "no curator named nobody is enrolled here"),
    ({"owner-0": "nobody"}, "no owner named nobody is enrolled here"),
    ({"unit_column": "x" * 200}, "unit column: "),
    ({"alignment": "x"}, "alignment: this must be 64 hexadecimal digits"),
)


def test_what_is_wrong_is_said_and_nothing_that_was_written_is_lost(asking: Asking) -> None:
    fields = asking.columns() | {"purpose": "To plan beds"}
    for changes, words in WRONG:
        answer = asking.review(fields | changes)
        assert (answer.status_code, words in unescape(answer.text)) == (422, True), changes
        kept = form_of(answer.text)
        assert (kept["purpose"], kept["bounds-1"]) == ("To plan beds", "F, M, not, known"), changes


def test_parameters_are_asked_by_their_types(asking: Asking) -> None:
    fields = asking.columns(procedure="identity")
    assert fields["parameter-probabilities"] == "equal"
    fields = {n: t for n, t in fields.items() if not n.startswith(("use-0", "ask-1"))} | {"use-1": "yes"}
    answer = asking.review(fields | {"parameter-probabilities": ".5, .3, .2", "parameter-method": "mcgof"})
    assert answer.status_code == 200, unescape(answer.text)
    study, _ = asking.study(answer.text)
    assert study.parameters["probabilities"] == [0.5, 0.3, 0.2]
    # A list with commas, a mapping, a choice and a yes or no of other procedures.
    independence = PROCEDURES["independence_table"]
    found = new_study.parameters_of(
        {
            "parameter-cuts": '{"age": [40, 65]}',
            "parameter-noise": "laplace",
        },
        independence,
        (AGE, SEX),
    )
    assert found == {"cuts": {"age": [40, 65]}, "noise": "laplace"}
    cycles = new_study.parameters_of({"parameter-cycles": "1, 2.5"}, PROCEDURES["kernel_two_sample"], (AGE,))
    assert cycles == {"cycles": [1, 2.5]}


@pytest.mark.parametrize("name", sorted(PROCEDURES))
def test_every_procedure_has_a_form_whose_own_answers_make_its_parameters(name: str) -> None:
    procedure = PROCEDURES[name]
    first, more = new_study.parameter_inputs({}, procedure, procedure.needs((AGE, SEX)))
    assert {each["name"] for each in first + more} == {
        f"parameter-{field}" for field in procedure.Parameters.model_fields
    }
    fields = {each["name"]: each["value"] or (each["options"] or [""])[0] for each in first}
    made = new_study.parameters_of(fields, procedure, (AGE, SEX))
    assert set(made) == {each["name"].removeprefix("parameter-") for each in first if fields[each["name"]]}


def test_owners_of_different_columns_hold_those_that_were_chosen_for_each(asking: Asking) -> None:
    fields = asking.columns(procedure="distance_correlation")
    of_each = {(fields[f"of-{i}"], fields[f"column-{i}"]) for i in range(12) if fields.get(f"column-{i}")}
    assert of_each == {(owner, column) for owner in ("north", "south") for column in ("age", "sex")}
    # Both publish both: whose column it is in the study is not guessed.
    assert [i for i in range(12) if f"use-{i}" in fields and fields[f"column-{i}"]] == []
    numbers = {pair: i for i in range(12) if (pair := (fields.get(f"of-{i}"), fields.get(f"column-{i}")))[1]}
    fields = {n: text for n, text in fields.items() if not n.startswith("use-")}
    fields |= {f"use-{numbers['north', 'age']}": "yes", f"use-{numbers['south', 'sex']}": "yes"}
    study, _ = asking.study(asking.review(fields).text)
    assert [(owner.name, owner.columns) for owner in study.owners] == [
        ("north", ("age",)),
        ("south", ("sex",)),
    ]


def test_three_owners_are_asked_for_one_column_each_and_two_are_too_few(asking: Asking) -> None:
    title = "Do columns of three registries depend on each other?"
    few = form_of(asking.window.post("/new", asking.question(title) | {"step": "columns"}).text)
    assert few["procedure"] == "mutual_independence"
    asked = asking.question(title, ("north", "south", "west"))
    number = next(n.removeprefix("owner-") for n, text in asked.items() if text == "west")
    asked |= {f"data_set-{number}": "school", "step": "columns"}
    fields = form_of(asking.window.post("/new", asked).text)
    rows = {(fields.get(f"of-{i}"), fields[f"column-{i}"]): i for i in range(30) if f"column-{i}" in fields}
    fields = {n: text for n, text in fields.items() if not n.startswith("use-")}
    fields |= {f"use-{rows['north', 'age']}": "yes", f"use-{rows['south', 'sex']}": "yes"}
    blank = rows["west", ""]
    fields |= {f"use-{blank}": "yes", f"column-{blank}": "grade", f"bounds-{blank}": "0 to 15"}
    study, _ = asking.study(asking.review(fields).text)
    assert [owner.columns for owner in study.owners] == [("age",), ("sex",), ("grade",)]
    assert study.budget.delta_pico == 0
    two = {(few.get(f"of-{i}"), few[f"column-{i}"]): i for i in range(30) if f"column-{i}" in few}
    few = {n: text for n, text in few.items() if not n.startswith("use-")}
    few |= {f"use-{two['north', 'age']}": "yes", f"use-{two['south', 'sex']}": "yes"}
    assert "of two ask distance_correlation" in unescape(asking.review(few).text)


def test_an_owner_that_publishes_nothing_is_asked_by_the_names_that_are_written(asking: Asking) -> None:
    asked = asking.question(owners=("north", "west"))
    number = next(n.removeprefix("owner-") for n, text in asked.items() if text == "west")
    answer = asking.window.post("/new", asked | {f"data_set-{number}": "registry", "step": "columns"})
    fields = form_of(answer.text)
    empty = next(i for i in range(20) if fields.get(f"column-{i}") == "")
    fields |= {f"column-{empty}": "pulse", f"bounds-{empty}": "20 to 250", "units-1": "900"}
    study, _ = asking.study(asking.review(fields).text)
    assert [(owner.name, owner.data_set) for owner in study.owners] == [
        ("north", "patients"),
        ("west", "registry"),
    ]
    assert study.domain.columns[-1] == NumericColumn(name="pulse", lower=20.0, upper=250.0)


def test_a_curator_answers_for_owners_with_the_keys_that_they_have_there(asking: Asking) -> None:
    curator, key = PrivateKey.generate(), PrivateKey.generate().public_hex
    assert asking.federation.enrol("registry", "curator", curator).status_code == 201
    asked = asking.question(owners=("north",)) | {"curator": "registry"}
    blank = next(i for i in range(9) if asked.get(f"owner-{i}") == "")
    asked |= {f"ask-{blank}": "yes", f"owner-{blank}": "clinic", f"data_set-{blank}": "visits"}
    fields = form_of(asking.window.post("/new", asked | {f"key-{blank}": key, "step": "columns"}).text)
    assert fields["procedure"] == "curated_two_sample"
    study, _ = asking.study(asking.review(fields | {"units-1": "1400"}).text)
    assert study.curator is not None
    assert (study.curator.name, study.curator.key) == ("registry", curator.public_hex)
    assert [owner.key for owner in study.owners] == [
        asking.federation.parties.owners["north"].public_hex,
        key,
    ]
    page = unescape(asking.review(fields | {"key-1": ""}).text)
    assert "no owner named clinic is enrolled here: write the key that it has at the curator" in page


def test_columns_that_no_owner_declares_are_left_blank(asking: Asking) -> None:
    """A name does not tell whether a sex is coded F and M, or 0 and 1."""
    other = (PublishedDataSet(name="patients", units=1500, other_columns=("heart_rate", "sex", "*")),)
    asking.publish("north", version=asking.federation.parties.now + 1, data_sets=other)
    answer = asking.window.post("/new", asking.question(owners=("north",)) | {"step": "columns"})
    fields = form_of(answer.text)
    assert (fields["column-0"], fields["bounds-0"], "use-0" in fields) == ("heart_rate", "", False)
    assert (fields["column-1"], fields["bounds-1"], "use-1" in fields) == ("sex", "", False)
    assert "commonly heart rate per minute" in answer.text


def test_a_study_asked_again_says_all_that_it_said(asking: Asking) -> None:
    first, payload = asking.study(
        asking.review(
            asking.columns() | {"purpose": "p", "parameter-n_features": "7", "parameter-features": "me"}
        ).text
    )
    parties = asking.federation.parties
    envelope = sign_envelope(payload, STUDY_TYPE, parties.analyst)
    assert (
        asking.federation.put(f"/v1/studies/{digest(payload)}", parties.analyst, envelope).status_code == 201
    )
    assert f"/new?from={digest(payload)}" in asking.window.get(f"/studies/{digest(payload)}").text
    fields = form_of(asking.window.get(f"/new?from={digest(payload)}").text)
    again, _ = asking.study(asking.review(fields | {"epsilon": "0.25"}).text)
    assert again.budget == Budget.of(0.25, 1e-6)
    same = {"budget": first.budget, "seed": first.seed}
    assert again.model_copy(update=same) == first
    assert again.seed != first.seed
    assert asking.window.get(f"/new?from={'0' * 64}").status_code == 404
    assert asking.window.get("/new?from=x").status_code == 400


def test_a_study_with_encoders_shows_them_and_is_asked_again_by_the_command(asking: Asking) -> None:
    """A form that left them out would ask for columns that nobody holds."""
    first, _ = asking.study(asking.review(asking.columns()).text)
    encoder = Encoder(
        inputs=(VectorColumn(name="<b>v</b>", length=9, norm=1.0),),
        projection=Projection(sha256="1" * 64, licence="CC0-1.0"),
        outputs=("a", "b"),
    )
    made = first.model_copy(update={"domain": Domain(columns=encoder.columns()), "encoders": (encoder,)})
    payload, parties = encode(made), asking.federation.parties
    envelope = sign_envelope(payload, STUDY_TYPE, parties.analyst)
    put = asking.federation.put(f"/v1/studies/{digest(payload)}", parties.analyst, envelope)
    assert put.status_code == 201, put.text
    page = asking.window.get(f"/studies/{digest(payload)}").text
    assert f"a public projection {'1' * 64} (licence CC0-1.0)" in page
    assert "&lt;b&gt;v&lt;/b&gt; (vector)" in page
    assert f"/new?from={digest(payload)}" not in page
    assert made.title not in asking.window.get(f"/new?from={digest(payload)}").text


def test_a_plan_fills_the_form_in(asking: Asking) -> None:
    page = asking.window.get(
        "/new?procedure=noisy_counts&columns=sex%3DF%2CM&epsilon=0.3&delta=0&alpha=0.01&n=500&cells=&over=n"
    ).text
    fields = form_of(page)
    asked = fields | {"title": "How many?", "ask-0": "yes", "step": "columns"}
    fields = form_of(asking.window.post("/new", asked).text)
    assert (fields["procedure"], fields["epsilon"], fields["delta"]) == ("noisy_counts", "0.3", "0")
    ticked = [fields[f"column-{i}"] for i in range(9) if f"use-{i}" in fields and fields[f"column-{i}"]]
    assert ticked == ["sex"]
    study, _ = asking.study(asking.review(fields).text)
    assert (study.procedure, study.level, study.domain) == ("noisy_counts", 0.01, Domain(columns=(SEX,)))


@pytest.mark.long
def test_hostile_words_are_escaped_in_every_field(asking: Asking) -> None:
    names = (
        *new_study.PLAIN,
        "bounds-0",
        "column-2",
        "units-0",
        "exact-0",
        "of-2",
        "owner-1",
        "data_set-1",
        "key-1",
    )
    fields = asking.columns() | dict.fromkeys(names, HOSTILE) | {"title": HOSTILE}
    parameters = {
        f"parameter-{name}": HOSTILE for name in PROCEDURES["kernel_two_sample"].Parameters.model_fields
    }
    for step in ("question", "columns", "review", "plan"):
        for sent in (fields | parameters, asking.columns() | {"purpose": HOSTILE, "title": HOSTILE}):
            page = asking.window.post("/new", sent | {"step": step}).text
            assert "<script>" not in page
            assert "<b>" not in page
    assert "<script>" not in asking.window.get(f"/new?columns={HOSTILE}&epsilon={HOSTILE}").text


def test_nobody_but_an_analyst_is_given_the_form(asking: Asking) -> None:
    fields = asking.columns() | {"step": "review"}
    stranger = Window(asking.federation.app, URL, lambda: "")
    assert stranger.get("/new").status_code == 401
    owner = window_of(asking.federation, asking.federation.parties.owners["north"])
    assert "Only a party that is enrolled as an analyst" in owner.get("/new").text
    assert owner.post("/new", fields | {"form_token": owner.token()}).status_code == 403


def test_more_than_a_page_would_send_is_refused(asking: Asking, capsys: pytest.CaptureFixture[str]) -> None:
    fields = asking.columns()
    window = asking.window
    assert (
        window.post("/new", fields | {"purpose": "x" * (new_study.FIELD_LENGTH_MAX + 1)}).status_code == 400
    )
    assert window.post("/new", fields | {"purpose": "x" * 2**20}).status_code == 413
    many = {f"column-{i}": "x" for i in range(new_study.COLUMNS_MAX + 1)}
    assert window.post("/new", fields | many).status_code == 400
    deep = fields | {"parameter-cuts": "[" * 100_000, "procedure": "homogeneity"}
    assert asking.review(deep).status_code == 422
    assert "Traceback" not in "".join(capsys.readouterr())


@pytest.mark.long
def test_planning_a_study_says_what_it_could_find(asking: Asking) -> None:
    fields = asking.columns(procedure="noisy_counts") | {"step": "plan", "epsilon": "0.5", "delta": "0"}
    page = unescape(asking.window.post("/new", fields).text)
    assert 'class="chart plan-curve"' in page
    values = [float(part.split('"')[0]) for part in page.split('data-value="')[1:]]
    assert len(values) > 5
    without = {n: text for n, text in fields.items() if not n.startswith("units-")}
    assert "does not say how many units north, south holds" in unescape(
        asking.window.post("/new", without).text
    )


def test_the_page_of_a_browsers_key_says_nothing_of_anyone(asking: Asking) -> None:
    page = Window(asking.federation.app, URL, lambda: "").get("/key")
    assert page.status_code == 200
    assert f'data-audience="{URL}"' in page.text
    for name in ("north", "analyst-key", asking.federation.parties.analyst.public_hex):
        assert name not in page.text
    assert "unsafe" not in page.headers["content-security-policy"]


def test_the_tester_has_no_part_that_could_sign_for_an_analyst() -> None:
    """What the pages work with holds one key, the tester's own, and its signer signs verdicts."""
    assert {name for name in Tester.__dataclass_fields__ if "key" in name or "sign" in name} == {"signer"}


STRANGE = (
    "1_0",
    "\uff11\uff12",
    "\u0661",
    "9" * 5000,
    "1e999",
    "nan",
    "0x10",
    "1,5",
    "\u00bd",
    "\u00b2",
    "[" * 5000,
)


OVERFLOWING = ("9" * 5000, "1e999", "nan", "[" * 5000)
"""Those of which a part may be read as something, and break what comes after."""


def test_no_number_that_is_written_strangely_is_taken_or_breaks_the_form(asking: Asking) -> None:
    """Every fault of a form is said at once, so that all of its numbers are written strangely together."""
    fields = asking.columns()
    numbers = {name: name.replace("_", " ") for name in ("epsilon", "delta", "level", "open_for_hours")}
    numbers |= {f"units-{place}": f"units of {owner}" for place, owner in enumerate(("north", "south"))}
    others = [name for name in fields if name.startswith(("bounds-", "parameter-"))]
    assert set(numbers) <= set(fields)
    assert len(others) > 5
    for text in STRANGE:
        page = asking.review(fields | dict.fromkeys((*numbers, *others), text))
        said = unescape(page.text.partition('id="faults"')[2].partition("</div>")[0])
        assert page.status_code == 422, text[:20]
        for label in numbers.values():
            assert f"{label}: " in said, (label, text[:20])
    for name, text in itertools.product(others, OVERFLOWING):
        assert asking.review(fields | {name: text}).status_code < 500, (name, text[:20])
