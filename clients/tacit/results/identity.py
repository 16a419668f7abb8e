"""The outcome of a test of categories against a known distribution."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tacit.results.common import Source, StudyResult, common_fields, optional_number
from tacit.results.decision import FINER_FIELDS, DecisionResult, decision_result

DECISIONS = ("privit", "repetition")
"""Methods that release a decision and nothing finer."""


@dataclass(frozen=True)
class IdentityResult(StudyResult):
    """Outcome of ``identity`` where a number was released. Unpacks into ``statistic, pvalue``.

    Attributes:
        statistic: the test statistic, from the private release alone.
        pvalue: probability, where the categories follow the distribution, of a statistic at least as large.
        cells: number of cells k.
        rho: zero-concentrated differential privacy of Gaussian counts, or None.
    """

    statistic: float
    pvalue: float
    cells: int
    rho: float | None

    def __iter__(self) -> Iterator[float]:
        yield self.statistic
        yield self.pvalue

    def __str__(self) -> str:
        decision = "another distribution" if self.reject else "no other distribution shown"
        return (
            f"{decision}: p = {self.pvalue:.3g} at level {self.alpha:g}, epsilon {self.epsilon:g}, "
            f"delta {self.delta:g} ({self.method})"
        )


def identity_result(source: Source, verdict: Mapping[str, Any]) -> IdentityResult | DecisionResult:
    """Build the typed result from a study and the verdict of ``identity``, as plain values.

    Raises KeyError, TypeError, ValueError or AttributeError where the verdict is another procedure's.
    """
    if not any(name in verdict for name in FINER_FIELDS):
        return decision_result(
            source,
            verdict,
            rejected="the categories follow another distribution",
            not_rejected="no other distribution shown",
        )
    return IdentityResult(
        statistic=float(verdict["statistic"]),
        pvalue=float(verdict["pvalue"]),
        cells=int(verdict["cells"]),
        rho=optional_number(verdict.get("rho")),
        **common_fields(source, verdict),
    )
