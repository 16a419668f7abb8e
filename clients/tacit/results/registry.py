"""From a procedure's name to the type of its results."""

from collections.abc import Callable, Mapping
from typing import Any

from tacit.errors import VerificationFailedError
from tacit.results.common import Source
from tacit.results.counts import (
    CountsResult,
    homogeneity_result,
    independence_table_result,
    noisy_counts_result,
)
from tacit.results.curated_distance import CuratedDistanceCorrelationResult, curated_distance_result
from tacit.results.database import DatabaseResult, database_result
from tacit.results.decision import FINER_FIELDS, DecisionResult, decision_result
from tacit.results.distance import DistanceCorrelationResult, distance_correlation_result
from tacit.results.generic import ProcedureResult, procedure_result
from tacit.results.identity import DECISIONS, IdentityResult, identity_result
from tacit.results.peer import PeerResult, peer_result
from tacit.results.screening import ScreeningResult, screening_result
from tacit.results.two_sample import TwoSampleResult, two_sample_result
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study

Result = (
    TwoSampleResult
    | DecisionResult
    | DistanceCorrelationResult
    | CuratedDistanceCorrelationResult
    | PeerResult
    | ScreeningResult
    | IdentityResult
    | CountsResult
    | DatabaseResult
    | ProcedureResult
)


def result_of(
    study: Study,
    verdict: Mapping[str, Any],
    *,
    digest: str | None = None,
    releases: Mapping[str, Release] | None = None,
) -> Result:
    """Build the typed result from a study and its procedure's verdict, as plain values.

    ``digest`` is the study's, and ``releases`` are by owner as the study reads them, where they are at hand:
    a result's picture then shows the null distribution.

    Raises:
        VerificationFailedError: the verdict is not what the study's procedure reports.
    """
    try:
        return RESULTS.get(study.procedure, procedure_result)(Source(study, digest, releases or {}), verdict)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise VerificationFailedError("the verdict is not what the study's procedure reports") from error


def _joint_independence(source: Source, verdict: Mapping[str, Any]) -> DecisionResult:
    return decision_result(
        source,
        verdict,
        rejected="the columns are not jointly independent",
        not_rejected="no dependence of the columns shown",
    )


def _curated_two_sample(source: Source, verdict: Mapping[str, Any]) -> TwoSampleResult | DecisionResult:
    """Tell by the verdict: the permutation release is a decision, the others have a statistic."""
    if any(name in verdict for name in FINER_FIELDS):
        return two_sample_result(source, verdict)
    return decision_result(
        source,
        verdict,
        rejected="the owners' records differ",
        not_rejected="no difference between the owners' records shown",
    )


def _distance_correlation(
    source: Source, verdict: Mapping[str, Any]
) -> DistanceCorrelationResult | PeerResult:
    """Tell by the verdict: in peer mode it names the receiver, with whom the result stays."""
    return (peer_result if "receiver" in verdict else distance_correlation_result)(source, verdict)


def decides_only(study: Study) -> bool:
    """Whether the study's release is a decision, and no number leaves at all."""
    if study.procedure == "identity":
        return study.parameters.get("method") in DECISIONS
    return study.procedure == "joint_independence" or study.parameters.get("release") == "permutation"


RESULTS: dict[str, Callable[[Source, Mapping[str, Any]], Result]] = {
    "kernel_two_sample": two_sample_result,
    "curated_two_sample": _curated_two_sample,
    "joint_independence": _joint_independence,
    "distance_correlation": _distance_correlation,
    "curated_distance_correlation": curated_distance_result,
    "screening": screening_result,
    "identity": identity_result,
    "noisy_counts": noisy_counts_result,
    "homogeneity": homogeneity_result,
    "independence_table": independence_table_result,
    "embedding_release": database_result,
}
"""Builders by procedure; a procedure without one gets a :class:`ProcedureResult`."""
