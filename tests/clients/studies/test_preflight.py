"""What a dry run shows before anything is sent: stewards' words, and a plan within its time."""

import time
from collections.abc import Mapping
from typing import Any

import pytest

from tacit.errors import StudyRefusedError
from tacit.studies import preflight as outlook_module
from tacit.studies.draft import EnrolledKeys, StudyDraft, prepare
from tacit.studies.preflight import POWER_HOPELESS, PlanningReport, is_hopeless, plan_in_process, preflight
from tacit.studies.preflight_process import plan
from tacit_protocol.messages.study import Party
from tacit_protocol.preparation import PreparedStudy
from tacit_protocol.signing import PrivateKey

PATIENCE_S = 300.0

SEX = {"kind": "categorical", "name": "sex", "levels": ["F", "M"]}
AGE = {"kind": "numeric", "name": "age", "lower": 0, "upper": 120}


def draft_of(units: int | None, procedure: str = "homogeneity", **fields: Any) -> StudyDraft:
    owners: list[Mapping[str, Any]] = [
        {"name": name, "data_set": "patients"} | ({} if units is None else {"units": units})
        for name in ("north", "south")
    ]
    base = {"title": "Alike?", "procedure": procedure, "columns": [SEX], "owners": owners}
    return StudyDraft.from_dict(base | {"epsilon": 1.0, "delta": 0.0} | fields)


def prepared(draft: StudyDraft) -> PreparedStudy:
    keys = {owner.name: owner.key or PrivateKey.generate().public_hex for owner in draft.owners}
    curators = {} if draft.curator is None else {draft.curator: PrivateKey.generate().public_hex}
    tester = Party(name="tester", key=PrivateKey.generate().public_hex)
    analyst = Party(name="ann", key=PrivateKey.generate().public_hex)
    return prepare(draft.study(EnrolledKeys(keys, curators), tester, analyst, 1))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> float:
    """Return the time that a plan may take on a machine that does much else; it may take as long to start."""
    monkeypatch.setattr(outlook_module, "START_SECONDS", PATIENCE_S)
    return PATIENCE_S


@pytest.mark.long
def test_a_study_is_planned_in_a_process_of_its_own(patient: float) -> None:
    planned = plan_in_process(draft_of(3000), None, patient)
    assert planned.unplanned == ""
    assert planned.runs >= 5
    # A distance of .15 between 3000 and 3000 units at epsilon 1 cannot be missed: 8 standard errors.
    assert planned.power == 1.0
    assert planned.found == planned.runs
    assert planned.often.startswith(
        f"in {planned.runs} of {planned.runs} simulated studies (95 % interval 0."
    )
    assert not planned.hopeless


def test_a_hopeless_study_is_told_what_would_help() -> None:
    poor = draft_of(250, "kernel_two_sample", epsilon=0.4, delta=1e-5, columns=[AGE])
    planned = PlanningReport()
    for item in plan(poor.model_dump(mode="json", exclude_none=True), None):
        planned.take(item)
    assert planned.hopeless
    assert planned.power < 2 * POWER_HOPELESS
    seen = preflight(poor, prepared(poor), planner=lambda *_: planned)
    reason = seen.hopeless[-1]
    assert reason.startswith("Hopeless: it found a shift of 0.5 standard deviations in age in ")
    assert f"in {planned.found} of {planned.runs} simulated studies (95 % interval" in reason
    # Seeds fix these plans: more budget and more units both are enough.
    assert "with epsilon" in reason
    assert "units each in " in reason
    assert reason.count("of 20 simulated studies (95 % interval") == 2


@pytest.mark.long
def test_a_plan_ends_when_its_time_is_up() -> None:
    began = time.monotonic()
    # n^2 work: a hundred studies of 9000 units take minutes.
    owner = [{"name": "north", "data_set": "patients", "units": 9000}]
    permuted = {"method": "permutation"}
    draft = draft_of(1, "joint_independence", columns=[AGE, SEX], owners=owner, parameters=permuted)
    planned = plan_in_process(draft, None, 0.5)
    assert time.monotonic() - began < PATIENCE_S
    assert planned.runs == 0
    assert "tacit plan" in planned.unplanned


def test_only_what_is_surely_poor_is_hopeless() -> None:
    assert is_hopeless(0, 25)
    assert not is_hopeless(0, 5)
    assert is_hopeless(1, 40)
    assert not is_hopeless(3, 40)
    assert not is_hopeless(8, 40)
    assert not is_hopeless(40, 40)


SCORE = {"kind": "numeric", "name": "score", "lower": 0, "upper": 10}
GRADE = {"kind": "numeric", "name": "grade", "lower": 0, "upper": 1}
UNEQUAL = [{"name": name, "data_set": "p", "units": n} for name, n in (("north", 500), ("south", 501))]
APART = [
    {"name": "north", "data_set": "p", "columns": ["age", "score"]},
    {"name": "south", "data_set": "p", "columns": ["grade"]},
]
CURATED = {"procedure": "curated_two_sample", "curator": "c", "owners": UNEQUAL}
FEW = {"release": "permutation", "permutations": 99}
REFUSED: list[tuple[dict[str, Any], str]] = [
    (CURATED | {"parameters": {"calibration": "paper", "features": "me"}}, "calibration 'paper' pairs units"),
    (
        {
            "procedure": "distance_correlation",
            "parameters": {"method": "pnc", "n_projections": 8},
            "owners": [owner | {"units": 4898} for owner in APART],
        },
        "n_projections = 7 or fewer",
    ),
    (CURATED | {"parameters": FEW, "level": 0.001}, r"the level is below 1 / \(permutations \+ 1\)"),
]


@pytest.mark.parametrize(("fields", "words"), REFUSED)
def test_what_public_numbers_refuse_is_said_before_anything_is_sent(
    fields: dict[str, Any], words: str
) -> None:
    draft = draft_of(500, **({"delta": 1e-5, "columns": [AGE, SCORE, GRADE]} | fields))
    with pytest.raises(StudyRefusedError, match=words):
        prepared(draft)


def test_a_level_that_no_permutation_reaches_is_said_where_no_units_are_declared() -> None:
    fields = {"owners": APART, "columns": [AGE, SCORE, GRADE], "delta": 1e-5, "level": 0.001}
    ready = prepared(draft_of(None, "distance_correlation", parameters={"permutations": 99}, **fields))
    assert any("nothing can be rejected at this level" in warning for warning in ready.warnings)


def test_a_new_study_between_owners_of_different_columns_states_answers_in_two_rounds() -> None:
    fields = {"owners": APART, "columns": [AGE, SCORE, GRADE], "delta": 0.0}
    ready = prepared(draft_of(None, "distance_correlation", **fields))
    assert ready.study.parameters["method"] == "two-round"
    sketch = prepared(
        draft_of(None, "distance_correlation", parameters={"n_features": 2}, **fields | {"delta": 1e-5})
    )
    assert sketch.study.parameters["method"] == "sketch"
