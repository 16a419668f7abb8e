"""The outcome of a procedure that this SDK has no type for: what all procedures report, and the verdict."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.results.common import Source, StudyResult, common_fields


@dataclass(frozen=True)
class ProcedureResult(StudyResult):
    """Outcome of some procedure; its own figures are in ``verdict``.

    Attributes:
        procedure: the procedure's name.
    """

    procedure: str

    def __str__(self) -> str:
        decision = "rejected" if self.reject else "not rejected"
        return (
            f"{self.procedure}: {decision} at level {self.alpha:g}, epsilon {self.epsilon:g}, "
            f"delta {self.delta:g} ({self.method})"
        )


def procedure_result(source: Source, verdict: Mapping[str, Any]) -> ProcedureResult:
    """Build the result of any procedure whose verdict states what all of them state.

    Raises KeyError, TypeError, ValueError or AttributeError where it does not.
    """
    return ProcedureResult(procedure=source.study.procedure, **common_fields(source, verdict))
