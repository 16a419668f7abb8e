"""The outcome of a test whether samples come from one population, unpackable like those of scipy.stats."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tacit.results.common import Source, StudyResult, common_fields, optional_interval, optional_number
from tacit.results.comparison import (
    Comparison,
    LocationComparison,
    compared_columns,
    compared_location,
    compared_owners,
)


@dataclass(frozen=True)
class TwoSampleResult(StudyResult):
    """Outcome of a kernel two-sample (or k-sample) test. Unpacks into ``statistic, pvalue``.

    Attributes:
        statistic: the test statistic, from private releases alone.
        pvalue: probability under the null hypothesis (one population) of a statistic at least as large.
        estimate: squared maximum mean discrepancy, averaged over pairs of owners, 0 where the unbiased one
            is negative, or None.
        estimate_unbiased: the same before it is cut at 0: what to average over studies.
        interval: contains ``estimate``, and covers what ``estimate`` estimates with probability 1 - alpha at
            least, or None.
        pairs: which owners differ (Holm).
        columns: which columns, and which pairs of columns, differ (Holm), where the features tell.
        locations: the test locations where owners differ most (Holm), with mean embeddings.
    """

    statistic: float
    pvalue: float
    estimate: float | None
    estimate_unbiased: float | None
    interval: tuple[float, float] | None
    pairs: tuple[Comparison, ...]
    columns: tuple[Comparison, ...]
    locations: tuple[LocationComparison, ...]

    def __iter__(self) -> Iterator[float]:
        yield self.statistic
        yield self.pvalue

    def __str__(self) -> str:
        decision = "differ" if self.reject else "no difference shown"
        return (
            f"{decision}: statistic {self.statistic:.4g}, p = {self.pvalue:.3g} at level {self.alpha:g}, "
            f"epsilon {self.epsilon:g}, delta {self.delta:g} ({self.method})"
        )


def two_sample_result(source: Source, verdict: Mapping[str, Any]) -> TwoSampleResult:
    """Build the typed result from a study and the verdict of a two-sample procedure, as plain values.

    Raises KeyError, TypeError, ValueError or AttributeError where the verdict is no such procedure's.
    """
    return TwoSampleResult(
        statistic=float(verdict["statistic"]),
        pvalue=float(verdict["pvalue"]),
        estimate=optional_number(verdict.get("squared_mmd")),
        estimate_unbiased=optional_number(verdict.get("squared_mmd_unbiased")),
        interval=optional_interval(verdict.get("lower"), verdict.get("upper")),
        pairs=tuple(compared_owners(pair) for pair in verdict.get("pairs", ())),
        columns=tuple(compared_columns(group) for group in verdict.get("columns", ())),
        locations=tuple(compared_location(location) for location in verdict.get("locations", ())),
        **common_fields(source, verdict),
    )
