"""What a verdict on two owners' sums says."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from tacit_protocol.procedures.distance_covariance.statistic import correlation_words
from tacit_protocol.verdicts.base import (
    COVARIANCE_ESTIMATE,
    Interval,
    PvalueVerdict,
    ShownTable,
    estimate_shown,
    interval_of,
    unbiased_shown,
)
from tacit_protocol.verdicts.presentation import Shown


class DistanceCorrelationResult(PvalueVerdict):
    """Whether the owners' columns depend on each other, and how strongly.

    Distances are over a public diameter. Intervals cover, with probability 1 - alpha in large samples, the
    values of the frequencies kept and the directions drawn: neither what ``truncation`` bounds nor another
    draw. For ``pnc`` estimates are of the noisy projections, and have no interval.

    Attributes:
        statistic: the test statistic, from private releases alone.
        pvalue: probability under independence of a statistic at least as large; exact.
        distance_covariance_sqr: squared distance covariance, cut to [0, 1/4].
        distance_covariance_sqr_unbiased: the same before it is cut: what to average over studies. It is
            unbiased for the sketch, up to ``truncation``, and may be negative.
        covariance_interval: contains the one, and covers what both estimate; None for pnc.
        distance_correlation: its root over both distance deviations, in [0, 1]; None where a column hardly
            varies.
        interval: covers the distance correlation, or None.
        truncation: the most that ``distance_covariance_sqr``, and its interval, leave out; or None.
        attenuation: what part of a squared correlation the noise has left, for pnc alone.
        aligned: whether either owner checked, before it spent anything, that both hold the same units.
    """

    listed: ClassVar[tuple[str, ...]] = (
        "statistic",
        "pvalue",
        "distance_covariance_sqr",
        "distance_covariance_sqr_unbiased",
        "covariance_interval",
        "distance_correlation",
        "interval",
        "truncation",
        "attenuation",
        "aligned",
    )

    distance_covariance_sqr: Annotated[float, COVARIANCE_ESTIMATE]
    distance_covariance_sqr_unbiased: Annotated[float, unbiased_shown("squared distance covariance")]
    covariance_lower: float | None
    covariance_upper: float | None
    distance_correlation: Annotated[float | None, estimate_shown("distance correlation")]
    lower: float | None
    upper: float | None
    truncation: float | None
    attenuation: float | None
    buckets: int | None
    aligned: Annotated[bool, Shown("records aligned")]

    @property
    def covariance_interval(self) -> Interval | None:
        """That of both squared distance covariances; None for pnc."""
        return interval_of(self.covariance_lower, self.covariance_upper)

    @property
    def interval(self) -> Interval | None:
        """That of the distance correlation, or None."""
        return interval_of(self.lower, self.upper)

    def __str__(self) -> str:
        decision = self._decided("dependent" if self.reject else "no dependence shown")
        return self._told(f"{decision}, squared distance covariance {self.distance_covariance_sqr:.4g}")

    def summary(self) -> Sequence[str | ShownTable]:
        finding = "the columns depend on each other" if self.reject else "no dependence of the columns shown"
        covariance = f"  squared distance covariance {self.distance_covariance_sqr:.4g}"
        correlation = correlation_words(self.distance_correlation, self.interval)
        return self._finding(finding), f"  {self.method}", covariance, *correlation
