"""From verdicts to typed results: every procedure's own, and no figure where a decision alone is private."""

from typing import Any

import pytest
from pydantic import ValidationError

from tacit.errors import VerificationFailedError
from tacit.in_process.runner import local_study, seed_text
from tacit.results import DecisionResult, ProcedureResult, Result, result_of
from tacit_protocol.domain.columns import Domain, NumericColumn
from tacit_protocol.messages.study import Study

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


def test_another_procedure_gets_what_all_of_them_report() -> None:
    found = result("something_new", FIGURES | {"own_figure": 7})
    assert isinstance(found, ProcedureResult)
    assert (found.reject, found.procedure, found.verdict["own_figure"]) == (True, "something_new", 7)


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
