"""From a procedure's name to the type of its results."""

from collections.abc import Callable, Mapping
from typing import Any

from tacit.errors import VerificationFailedError
from tacit.results.decision import FINER_FIELDS, DecisionResult, decision_result
from tacit.results.generic import ProcedureResult, procedure_result
from tacit.results.two_sample import TwoSampleResult, two_sample_result
from tacit_protocol.messages.study import Study

Result = TwoSampleResult | DecisionResult | ProcedureResult


def result_of(study: Study, verdict: Mapping[str, Any]) -> Result:
    """Build the typed result from a study and its procedure's verdict, as plain values.

    Raises:
        VerificationFailedError: the verdict is not what the study's procedure reports.
    """
    try:
        return RESULTS.get(study.procedure, procedure_result)(study, verdict)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VerificationFailedError("the verdict is not what the study's procedure reports") from error


def _joint_independence(study: Study, verdict: Mapping[str, Any]) -> DecisionResult:
    return decision_result(
        study,
        verdict,
        rejected="the columns are not jointly independent",
        not_rejected="no dependence of the columns shown",
    )


def _curated_two_sample(study: Study, verdict: Mapping[str, Any]) -> TwoSampleResult | DecisionResult:
    """Tell by the verdict: the permutation release is a decision, the others have a statistic."""
    if any(name in verdict for name in FINER_FIELDS):
        return two_sample_result(study, verdict)
    return decision_result(
        study,
        verdict,
        rejected="the owners' records differ",
        not_rejected="no difference between the owners' records shown",
    )


def decides_only(study: Study) -> bool:
    """Whether the study's release is a decision, and no number leaves at all."""
    return study.procedure == "joint_independence" or study.parameters.get("release") == "permutation"


RESULTS: dict[str, Callable[[Study, Mapping[str, Any]], Result]] = {
    "kernel_two_sample": two_sample_result,
    "curated_two_sample": _curated_two_sample,
    "joint_independence": _joint_independence,
}
"""Builders by procedure; a procedure without one gets a :class:`ProcedureResult`."""
