"""The outcome of a test of which the decision alone is private: no statistic and no p-value exist for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.results.common import Source, StudyResult, common_fields

FINER_FIELDS = ("statistic", "pvalue")
"""Fields that a verdict of a decision alone must not have: they would not be private."""


@dataclass(frozen=True)
class DecisionResult(StudyResult):
    """Outcome of a test that releases its decision and nothing finer. It cannot be unpacked.

    Attributes:
        finding: what the decision means, in words.
    """

    finding: str

    def __str__(self) -> str:
        return (
            f"{self.finding} at level {self.alpha:g}, epsilon {self.epsilon:g}, delta {self.delta:g} "
            f"({self.method})"
        )


def decision_result(
    source: Source, verdict: Mapping[str, Any], *, rejected: str, not_rejected: str
) -> DecisionResult:
    """Build the typed result from a study and a verdict that holds a decision alone, as plain values.

    Args:
        source: the study, and what is at hand of its transcript.
        verdict: the verdict.
        rejected: what a rejection means, in words.
        not_rejected: what it means that the hypothesis was not rejected.

    Raises KeyError, TypeError, ValueError or AttributeError where the verdict is no such procedure's;
    ValueError also where it states something finer than the decision.
    """
    if any(name in verdict for name in FINER_FIELDS):
        raise ValueError("a verdict of a decision alone states something finer")
    fields = common_fields(source, verdict)
    return DecisionResult(finding=rejected if fields["reject"] else not_rejected, **fields)
