"""The outcome of a distance correlation of columns in one place: estimates, and a decision."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.results.common import Source, StudyResult, common_fields, optional_interval, optional_number


@dataclass(frozen=True)
class CuratedDistanceCorrelationResult(StudyResult):
    """Outcome of ``curated_distance_correlation``. It cannot be unpacked: the decision has no p-value.

    Attributes:
        distance_covariance_sqr: squared distance covariance of the units, of distances over a public
            diameter, cut to [0, 1/4].
        distance_covariance_sqr_unbiased: the same before it is cut: what to average over studies.
        covariance_interval: covers the population's with probability 1 - alpha or more in large samples.
        distance_variances: squared distance variances of X and of Y.
        distance_correlation: in [0, 1], or None where a side hardly varies.
        interval: covers the population's distance correlation with probability 1 - alpha or more in large
            samples, or None.
        held_interval: covers that of the units held, counting the noise alone, or None.
    """

    distance_covariance_sqr: float
    distance_covariance_sqr_unbiased: float | None
    covariance_interval: tuple[float, float]
    distance_variances: tuple[float, float]
    distance_correlation: float | None
    interval: tuple[float, float] | None
    held_interval: tuple[float, float] | None

    def __str__(self) -> str:
        decision = "dependent" if self.reject else "no dependence shown"
        correlation = "unknown" if self.distance_correlation is None else f"{self.distance_correlation:.3f}"
        return (
            f"{decision} at level {self.alpha:g}: distance correlation {correlation}, squared distance "
            f"covariance {self.distance_covariance_sqr:.4g}, epsilon {self.epsilon:g}, delta {self.delta:g} "
            f"({self.method})"
        )


def curated_distance_result(source: Source, verdict: Mapping[str, Any]) -> CuratedDistanceCorrelationResult:
    """Build the typed result from a study and the verdict of its procedure, as plain values.

    Raises KeyError, TypeError, ValueError or AttributeError where the verdict is another procedure's.
    """
    first, second = (float(value) for value in verdict["distance_variances"])
    return CuratedDistanceCorrelationResult(
        distance_covariance_sqr=float(verdict["distance_covariance_sqr"]),
        distance_covariance_sqr_unbiased=optional_number(verdict.get("distance_covariance_sqr_unbiased")),
        covariance_interval=(float(verdict["covariance_lower"]), float(verdict["covariance_upper"])),
        distance_variances=(first, second),
        distance_correlation=optional_number(verdict["distance_correlation"]),
        interval=optional_interval(verdict["lower"], verdict["upper"]),
        held_interval=optional_interval(verdict["held_lower"], verdict["held_upper"]),
        **common_fields(source, verdict),
    )
