"""What a verdict on columns in one place says."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from tacit_protocol.procedures.distance_covariance.statistic import correlation_words
from tacit_protocol.verdicts.base import (
    COVARIANCE_ESTIMATE,
    BaseVerdict,
    Interval,
    ShownTable,
    estimate_shown,
    interval_of,
    unbiased_shown,
)
from tacit_protocol.verdicts.presentation import Shown


class CuratedDistanceCorrelationResult(BaseVerdict):
    """Whether X and Y depend on each other, and how strongly. Distances are over a public diameter.

    It cannot be unpacked: the decision has no p-value. ``statistic`` is the noisy dCov; every interval
        contains its estimate.

    Attributes:
        distance_covariance_sqr: squared distance covariance of the units, cut to [0, 1/4].
        distance_covariance_sqr_unbiased: the same before it is cut: what to average over studies. It is
            unbiased for the units' own V-statistic, whose mean exceeds the population's by ``bias_max`` at
            most.
        covariance_interval: covers the population's with probability 1 - alpha or more in large samples.
        distance_variances: squared distance variances of X and of Y.
        distance_correlation: in [0, 1], or None where a side hardly varies.
        interval: covers the population's distance correlation with probability 1 - alpha or more in large
            samples, or None.
        held_interval: covers that of the units held, counting the noise alone, or None.
    """

    private_decision: ClassVar[bool] = True
    listed: ClassVar[tuple[str, ...]] = (
        "distance_covariance_sqr",
        "distance_covariance_sqr_unbiased",
        "covariance_interval",
        "distance_variances",
        "distance_correlation",
        "interval",
        "held_interval",
    )

    statistic: Annotated[float, Shown("statistic", "test")]
    variables: tuple[tuple[str, ...], tuple[str, ...]]
    distance_covariance_sqr: Annotated[float, COVARIANCE_ESTIMATE]
    distance_covariance_sqr_unbiased: Annotated[float, unbiased_shown("squared distance covariance")]
    covariance_lower: float
    covariance_upper: float
    distance_variances: tuple[float, float]
    distance_correlation: Annotated[float | None, estimate_shown("distance correlation")]
    lower: float | None
    upper: float | None
    held_lower: Annotated[float | None, Shown("of the units held: at least")]
    held_upper: Annotated[float | None, Shown("of the units held: at most")]
    bias_max: Annotated[float, Shown("bias at most")]

    @property
    def covariance_interval(self) -> Interval:
        """That of the squared distance covariance."""
        return self.covariance_lower, self.covariance_upper

    @property
    def interval(self) -> Interval | None:
        """That of the population's distance correlation, or None."""
        return interval_of(self.lower, self.upper)

    @property
    def held_interval(self) -> Interval | None:
        """That of the distance correlation of the units held, or None."""
        return interval_of(self.held_lower, self.held_upper)

    def __str__(self) -> str:
        decision = "dependent" if self.reject else "no dependence shown"
        correlation = "unknown" if self.distance_correlation is None else f"{self.distance_correlation:.3f}"
        return self._told(
            f"{decision} at level {self.alpha:g}: distance correlation {correlation}, squared distance "
            f"covariance {self.distance_covariance_sqr:.4g}"
        )

    def summary(self) -> Sequence[str | ShownTable]:
        finding = "the columns depend on each other" if self.reject else "no dependence of the columns shown"
        low, high = self.covariance_interval
        return (
            f"Verdict: {finding} (level {self.alpha:g}; the decision has no p-value)",
            f"  {self.method}",
            f"  squared distance covariance {self.distance_covariance_sqr:.4g}, [{low:.4g}, {high:.4g}]",
            *correlation_words(self.distance_correlation, self.interval),
        )
