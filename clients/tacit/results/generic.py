"""The outcome of a procedure that this SDK has no type for: what all procedures report, and the verdict."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.results.common import common_fields
from tacit_protocol.messages.study import Study


@dataclass(frozen=True)
class ProcedureResult:
    """Outcome of some procedure; its own figures are in ``verdict``.

    Attributes:
        procedure: the procedure's name.
        reject: whether the null hypothesis is rejected at level ``alpha``.
        alpha: the level, in (0, 0.5).
        method: what was computed, in words.
        n: privacy units of each owner, by name.
        epsilon: what every owner spent.
        delta: what every owner spent.
        warnings: what limits the test, in words.
        verdict: everything that the procedure reports.
    """

    procedure: str
    reject: bool
    alpha: float
    method: str
    n: Mapping[str, int]
    epsilon: float
    delta: float
    warnings: tuple[str, ...]
    verdict: Mapping[str, Any]

    def __str__(self) -> str:
        decision = "rejected" if self.reject else "not rejected"
        return (
            f"{self.procedure}: {decision} at level {self.alpha:g}, epsilon {self.epsilon:g}, "
            f"delta {self.delta:g} ({self.method})"
        )


def procedure_result(study: Study, verdict: Mapping[str, Any]) -> ProcedureResult:
    """Build the result of any procedure whose verdict states what all of them state.

    Raises KeyError, TypeError, ValueError or AttributeError where it does not.
    """
    return ProcedureResult(procedure=study.procedure, **common_fields(study, verdict))
