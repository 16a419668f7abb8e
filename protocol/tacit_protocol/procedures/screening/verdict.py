"""What a verdict of screening says of every pair of an outcome and a column, and which of them are found."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from tacit_protocol.procedures.randomised_answers.verdict import MeasuresOfCells
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import (
    COVARIANCE_ESTIMATE,
    PVALUE,
    QVALUE,
    REJECTED,
    BaseVerdict,
    Interval,
    ShownTable,
    estimate_shown,
    interval_of,
)
from tacit_protocol.verdicts.presentation import Shown

Floats = npt.NDArray[np.float64]

Control = Literal["by", "bh"]


def expected_rank_sum(pairs: int) -> float:
    """Return 1 + 1/2 + ... + 1/m: what Benjamini and Yekutieli's procedure divides the level by."""
    return float(np.sum(1 / np.arange(1, pairs + 1)))


def smallest_level(level: float, pairs: int, control: Control) -> float:
    """Return the p-value that a single discovery among so many pairs must not exceed."""
    return level / pairs / (expected_rank_sum(pairs) if control == "by" else 1.0)


def false_discovery_values(pvalues: Floats, control: Control) -> Floats:
    """Return each p-value's smallest level of the false discovery rate at which it is rejected.

    ``by`` (Benjamini and Yekutieli 2001) holds under any dependence; ``bh`` (Benjamini and Hochberg 1995)
    where p-values are independent or positively dependent on each one of the true hypotheses.
    """
    # Loading scipy.stats takes half a second, which every service would pay when it starts.
    from scipy.stats import false_discovery_control  # noqa: PLC0415

    return np.asarray(false_discovery_control(pvalues.ravel(), method=control)).reshape(pvalues.shape)


class ScreenedPair(StrictModel):
    """One column against one outcome, by whatever method. Intervals cover each by itself.

    Attributes:
        outcome: the outcome's name.
        column: the column's name.
        distance_correlation: in [0, 1]; None where either column hardly varies.
        interval: covers it with probability 1 - alpha in large samples; None with it.
        sign: whether the column rises or falls with the outcome; 0 where either has no order.
        pvalue: of the test of independence of this pair alone.
        qvalue: smallest level of the false discovery rate at which the pair is found.
        reject: whether it is found at the study's level.
    """

    outcome: str
    column: str
    distance_correlation: Annotated[float | None, estimate_shown("distance correlation")]
    lower: float | None
    upper: float | None
    sign: Annotated[int, Shown("direction")]
    statistic: float
    pvalue: Annotated[float, PVALUE]
    qvalue: Annotated[float, QVALUE]
    reject: Annotated[bool, REJECTED]

    @property
    def interval(self) -> Interval | None:
        """That of the distance correlation, or None."""
        return interval_of(self.lower, self.upper)

    def words(self) -> tuple[str, ...]:
        """Return its line in the command's table."""
        correlation = "unknown"
        if self.distance_correlation is not None and self.interval is not None:
            sign, (low, high) = {1: "+", -1: "-", 0: ""}[self.sign], self.interval
            correlation = f"{sign}{self.distance_correlation:.2f}, {low:.2f} to {high:.2f}"
        found = "found" if self.reject else ""
        return self.column, self.outcome, correlation, f"{self.pvalue:.2g}", f"{self.qvalue:.2g}", found


class ScreenedColumn(ScreenedPair):
    """One column against one outcome, by sketches.

    Intervals count noise and sampling, and cover each by itself.

    Attributes:
        outcome: the outcome's name.
        column: the column's name.
        distance_covariance_sqr: squared distance covariance, over public diameters, cut to [0, 1/4].
        distance_covariance_sqr_unbiased: the same before it is cut: what to average over studies. It is
            unbiased up to ``truncation``, and may be negative.
        covariance_interval: contains the one, and covers what both estimate with probability 1 - alpha in
            large samples, as far as the kept frequencies show it: ``truncation`` is not in it.
        distance_correlation: in [0, 1]; None where either column hardly varies.
        interval: covers the distance correlation of the kept frequencies with probability 1 - alpha in large
            samples; None with it.
        sign: of the covariance of the leading monotone features, 0 where a column has no order.
        truncation: the most that ``distance_covariance_sqr``, and its interval, leave out.
        pvalue: of the test of independence of this pair alone; exact.
        qvalue: smallest level of the false discovery rate at which the pair is found.
        reject: whether it is found at the study's level.
    """

    distance_covariance_sqr: Annotated[float, COVARIANCE_ESTIMATE]
    distance_covariance_sqr_unbiased: Annotated[float, Shown("")]
    covariance_lower: float
    covariance_upper: float
    truncation: Annotated[float, Shown("")]

    @property
    def covariance_interval(self) -> Interval:
        """That of both squared distance covariances."""
        return self.covariance_lower, self.covariance_upper


class AnsweredColumn(MeasuresOfCells, ScreenedPair):
    """One column against one outcome, by randomised answers: measures are of the cells.

    Intervals count sampling, randomisation and noise.

    Attributes:
        cramers_v: Cramer's V of the cells, in [0, 1], or None; ``cramers_v_interval`` covers it.
        correlation: the rank correlation of the cells, or None where either has no order;
            ``correlation_interval`` covers it.
        sign: of the rank correlation, 0 where there is none.
        cells: how many the outcome was cut into, and the column.
    """

    cells: Annotated[tuple[int, int], Shown("")]


class SignedCorrelations(StrictModel):
    """Signed distance correlations of all columns of both owners, row by row below the diagonal.

    None where a column hardly varies. Not a positive semidefinite matrix by itself.
    """

    columns: tuple[str, ...]
    correlations: tuple[float | None, ...]


NOT_FOUND_SHOWN = 10
"""Pairs that were not found and are shown all the same: the list may have a thousand."""


SCREENED = Shown("columns screened, by their q-values", "test")


class RankedPairs(BaseVerdict):
    """Which columns depend on the outcomes. Iterating yields the ranked pairs, the surest first.

    Among the rejected pairs the expected share of independent ones is at most ``level``. ``reject`` says that
    there are any.

    Attributes:
        ranking: every pair of an outcome and a column, the surest first.
        aligned: whether either owner checked, before it spent anything, that both hold the same units.
    """

    listed: ClassVar[tuple[str, ...]] = ("aligned",)
    tabulated: ClassVar[tuple[str, ...]] = ("ranking",)
    listed_of_pair: ClassVar[tuple[str, ...]]
    """What the command lists of every pair."""

    pairs: Annotated[tuple[ScreenedPair, ...], SCREENED]
    aligned: Annotated[bool, Shown("records aligned")]

    @property
    def ranking(self) -> tuple[ScreenedPair, ...]:
        """Every pair of an outcome and a column, the surest first."""
        return self.pairs

    @property
    def found(self) -> tuple[ScreenedPair, ...]:
        """The pairs found: among them the expected share of independent ones is at most ``alpha``."""
        return tuple(pair for pair in self.ranking if pair.reject)

    def __iter__(self) -> Iterator[ScreenedPair]:  # type: ignore[override]
        return iter(self.ranking)

    def __len__(self) -> int:
        return len(self.ranking)

    def __str__(self) -> str:
        names = ", ".join(pair.column for pair in self.found) or "none"
        return self._told(
            f"{len(self.found)} of {len(self.ranking)} pairs found at false discovery rate {self.alpha:g}: "
            f"{names}"
        )

    def hypotheses(self) -> Mapping[str, float]:
        return {f"{pair.column} – {pair.outcome}": pair.pvalue for pair in self.ranking}

    def fields(self) -> dict[str, Any]:
        return super().fields() | {
            "ranking": [{name: getattr(pair, name) for name in self.listed_of_pair} for pair in self.ranking],
        }

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first: the columns found, then the best of the others."""
        found = len(self.found)
        shown = self.ranking[: found + NOT_FOUND_SHOWN]
        left = len(self.ranking) - len(shown)
        return (
            f"Verdict: {found} of {len(self.ranking)} pairs of columns depend on each other "
            f"(false discovery rate at most {self.alpha:g})",
            f"  {self.method}",
            ShownTable(
                ("Column", "Outcome", "Distance correlation", "p", "q", ""),
                tuple(pair.words() for pair in shown),
            ),
            *((f"  {left} more were not found: --json lists them",) if left else ()),
        )


class ScreeningVerdict(RankedPairs):
    """Which columns depend on the outcomes, and a correlation matrix, by sketches: see RankedPairs."""

    listed_of_pair: ClassVar[tuple[str, ...]] = (
        "outcome",
        "column",
        "distance_covariance_sqr",
        "distance_covariance_sqr_unbiased",
        "covariance_interval",
        "distance_correlation",
        "interval",
        "sign",
        "pvalue",
        "qvalue",
        "reject",
    )

    pairs: Annotated[tuple[ScreenedColumn, ...], SCREENED]
    matrix: Annotated[SignedCorrelations, Shown("")]
    buckets: int

    def fields(self) -> dict[str, Any]:
        return super().fields() | {"matrix": self.matrix.model_dump()}


class AnsweredScreeningVerdict(RankedPairs):
    """Which columns depend on the outcomes, by randomised answers: see RankedPairs."""

    listed_of_pair: ClassVar[tuple[str, ...]] = (
        "outcome",
        "column",
        "distance_correlation",
        "interval",
        "cramers_v",
        "cramers_v_interval",
        "correlation",
        "correlation_interval",
        "pvalue",
        "qvalue",
        "reject",
    )

    pairs: Annotated[tuple[AnsweredColumn, ...], SCREENED]
