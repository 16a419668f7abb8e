"""From verdicts to typed results: every procedure's own, and no figure where a decision alone is private."""

from typing import Any

import pytest
from pydantic import ValidationError

from tacit.command.result_view import print_result, result_fields
from tacit.errors import VerificationFailedError
from tacit.in_process.runner import local_study, seed_text
from tacit.results import DecisionResult, ProcedureResult, Result, TwoSampleResult, result_of
from tacit.studies.draft import HOPELESS
from tacit_protocol.domain.columns import Domain, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.discovery import procedure_named

DECISION: dict[str, Any] = {
    "method": "a method",
    "reject": True,
    "level": 0.01,
    "units": {"north": 700, "south": 500},
    "epsilon": 2.0,
    "delta": 0.0,
    "warnings": ["few units"],
}
FIGURES = DECISION | {"statistic": 3.5, "pvalue": 0.002}


def study_of(procedure: str, **parameters: Any) -> Study:
    domain = Domain(columns=(NumericColumn(name="age", lower=0, upper=120),))
    choices = {"epsilon": 2.0, "delta": 0.0, "alpha": 0.01, "seed": seed_text(1)}
    return local_study(procedure, domain, ["north", "south"], parameters, curated=True, **choices)


def result(procedure: str, verdict: dict[str, Any]) -> Result:
    """Read a verdict; a curator's without a statistic is one of a study that releases a decision."""
    decides = procedure == "curated_two_sample" and "statistic" not in verdict
    return result_of(study_of(procedure, **({"release": "permutation"} if decides else {})), verdict)


@pytest.mark.parametrize("procedure", ["joint_independence", "curated_two_sample"])
def test_a_decision_has_nothing_finer_and_cannot_be_unpacked(procedure: str) -> None:
    found = result(procedure, DECISION)
    assert isinstance(found, DecisionResult)
    assert (found.reject, found.alpha, found.n) == (True, 0.01, {"north": 700, "south": 500})
    assert (found.epsilon, found.delta, found.warnings) == (2.0, 0.0, ("few units",))
    assert not hasattr(found, "statistic")
    assert not hasattr(found, "pvalue")
    with pytest.raises(TypeError):
        _, _ = found  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        found.reject = False  # type: ignore[misc]


def test_a_decision_says_in_words_what_it_means() -> None:
    rejected = result("joint_independence", DECISION)
    assert str(rejected) == (
        "the columns are not jointly independent at level 0.01, epsilon 2, delta 0 (a method)"
    )
    kept = result("joint_independence", DECISION | {"reject": False})
    assert "no dependence of the columns shown" in str(kept)
    assert "records differ" in str(result("curated_two_sample", DECISION))


def test_a_curators_figures_unpack_like_any_two_sample_result() -> None:
    found = result("curated_two_sample", FIGURES)
    assert isinstance(found, TwoSampleResult)
    assert tuple(found) == (3.5, 0.002)
    assert (found.estimate, found.interval, found.pairs, found.columns) == (None, None, (), ())


def test_another_procedure_gets_what_all_of_them_report() -> None:
    found = result("something_new", FIGURES | {"own_figure": 7})
    assert isinstance(found, ProcedureResult)
    assert (found.reject, found.procedure, found.verdict["own_figure"]) == (True, "something_new", 7)


def test_locations_are_told_in_the_columns_own_units(capsys: pytest.CaptureFixture[str]) -> None:
    here = {
        "first": "north",
        "second": "south",
        "values": {"age": 61.5, "sex": None},
        "difference": -0.2,
        "standard_error": 0.01,
        "pvalue": 0.001,
        "reject": True,
    }
    elsewhere = here | {"values": {"age": 5, "sex": "F"}, "reject": False}
    found = result("kernel_two_sample", FIGURES | {"locations": [here, elsewhere]})
    assert isinstance(found, TwoSampleResult)
    assert str(found.locations[0]) == "near age 61.5, sex missing: more of south (p = 0.001)"
    print_result(found)
    printed = capsys.readouterr().out
    assert "near age 61.5" in printed
    assert "near age 5" not in printed
    assert result_fields(found)["locations"][1]["values"] == {"age": 5.0, "sex": "F"}


@pytest.mark.parametrize(
    ("procedure", "verdict"),
    [
        ("joint_independence", DECISION | {"pvalue": 0.03}),
        ("joint_independence", DECISION | {"statistic": 1.0}),
        ("joint_independence", DECISION | {"reject": 1}),
        ("joint_independence", DECISION | {"units": None}),
        ("curated_two_sample", DECISION | {"pvalue": 0.03}),
        ("kernel_two_sample", DECISION),
        ("something_new", {"reject": True}),
    ],
)
def test_a_verdict_that_its_procedure_does_not_report_is_refused(
    procedure: str, verdict: dict[str, Any]
) -> None:
    with pytest.raises(VerificationFailedError, match="not what the study's procedure reports"):
        result(procedure, verdict)


@pytest.mark.parametrize(
    ("procedure", "verdict", "words"),
    [
        ("joint_independence", DECISION, "Verdict: the columns are not jointly independent (level 0.01)"),
        ("joint_independence", DECISION, "the decision alone is private"),
        ("curated_two_sample", FIGURES, "Verdict: DIFFERENT populations (p = 0.002, level 0.01)"),
        ("something_new", FIGURES, "Verdict of something_new: the hypothesis is rejected"),
    ],
)
def test_every_kind_of_result_is_printed_decision_first(
    procedure: str, verdict: dict[str, Any], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_result(result(procedure, verdict))
    printed = capsys.readouterr().out
    assert words in printed
    assert printed.startswith("Verdict")
    assert "every owner spent epsilon 2, delta 0" in printed
    assert "Note: few units" in printed


@pytest.mark.parametrize("procedure", ["kernel_two_sample", "curated_two_sample", "joint_independence"])
def test_every_procedure_says_hopeless_with_the_word_that_stops_a_study(procedure: str) -> None:
    domain = Domain(columns=tuple(NumericColumn(name=name, lower=0, upper=1) for name in ("a", "b")))
    study = local_study(
        procedure,
        domain,
        ["north", "south"],
        {},
        epsilon=0.01,
        delta=1e-9,
        alpha=0.01,
        seed=seed_text(1),
        curated=procedure != "kernel_two_sample",
    )
    warnings = procedure_named(procedure).warnings(study, {"north": 5, "south": 5})
    assert [warning for warning in warnings if warning.startswith(HOPELESS)]


def test_a_decision_has_no_figure_as_json() -> None:
    fields = result_fields(result("joint_independence", DECISION))
    assert not {"statistic", "pvalue", "estimate", "interval"} & set(fields)
    assert fields["finding"] == "the columns are not jointly independent"
