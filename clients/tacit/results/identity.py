"""The outcome of a test of categories against a known distribution."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tacit.results.common import common_fields
from tacit.results.decision import FINER_FIELDS, DecisionResult, decision_result
from tacit_protocol.messages.study import Study

DECISIONS = ("privit", "repetition")
"""Methods that release a decision and nothing finer."""


@dataclass(frozen=True)
class IdentityResult:
    """Outcome of ``identity`` where a number was released. Unpacks into ``statistic, pvalue``.

    Attributes:
        statistic: the test statistic, from the private release alone.
        pvalue: probability, where the categories follow the distribution, of a statistic at least as large.
        reject: whether ``pvalue`` is at most ``alpha``.
        alpha: the level, in (0, 0.5).
        method: what was computed, in words.
        n: privacy units of the owner, by name.
        epsilon: what the owner spent.
        delta: what the owner spent.
        warnings: what limits the test, in words.
        cells: number of cells k.
        rho: zero-concentrated differential privacy of Gaussian counts, or None.
        verdict: everything that the procedure reports.
    """

    statistic: float
    pvalue: float
    reject: bool
    alpha: float
    method: str
    n: Mapping[str, int]
    epsilon: float
    delta: float
    warnings: tuple[str, ...]
    cells: int
    rho: float | None
    verdict: Mapping[str, Any]

    def __iter__(self) -> Iterator[float]:
        yield self.statistic
        yield self.pvalue

    def __str__(self) -> str:
        decision = "another distribution" if self.reject else "no other distribution shown"
        return (
            f"{decision}: p = {self.pvalue:.3g} at level {self.alpha:g}, epsilon {self.epsilon:g}, "
            f"delta {self.delta:g} ({self.method})"
        )


def identity_result(study: Study, verdict: Mapping[str, Any]) -> IdentityResult | DecisionResult:
    """Build the typed result from a study and the verdict of ``identity``, as plain values.

    Raises KeyError, TypeError, ValueError or AttributeError where the verdict is another procedure's.
    """
    if not any(name in verdict for name in FINER_FIELDS):
        return decision_result(
            study,
            verdict,
            rejected="the categories follow another distribution",
            not_rejected="no other distribution shown",
        )
    rho = verdict.get("rho")
    return IdentityResult(
        statistic=float(verdict["statistic"]),
        pvalue=float(verdict["pvalue"]),
        cells=int(verdict["cells"]),
        rho=None if rho is None else float(rho),
        **common_fields(study, verdict),
    )
