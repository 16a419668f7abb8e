"""The outcome of a distance correlation between two owners' columns, unpackable like those of scipy.stats."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tacit.results.common import Source, StudyResult, common_fields, optional_interval, optional_number, truth


@dataclass(frozen=True)
class DistanceCorrelationResult(StudyResult):
    """Outcome of ``distance_correlation``. Unpacks into ``statistic, pvalue``.

    Attributes:
        statistic: the test statistic, from private releases alone.
        pvalue: probability under independence of a statistic at least as large; exact.
        distance_covariance_sqr: squared distance covariance, of distances over a public diameter, cut to
            [0, 1/4].
        distance_covariance_sqr_unbiased: the same before it is cut: what to average over studies.
        covariance_interval: contains the one, and covers what both estimate with probability 1 - alpha in
            large samples, as far as the kept frequencies and the public directions show it: ``truncation`` is
            not in it. None for pnc.
        distance_correlation: its root over both distance deviations, in [0, 1], or None.
        interval: covers the distance correlation of the kept frequencies and the public directions with
            probability 1 - alpha in large samples, or None.
        truncation: the most that ``distance_covariance_sqr``, and its interval, leave out; or None.
        attenuation: what part of a squared correlation the noise has left, for pnc alone.
        aligned: whether either owner checked, before it spent anything, that both hold the same units.
    """

    statistic: float
    pvalue: float
    distance_covariance_sqr: float
    distance_covariance_sqr_unbiased: float | None
    covariance_interval: tuple[float, float] | None
    distance_correlation: float | None
    interval: tuple[float, float] | None
    truncation: float | None
    attenuation: float | None
    aligned: bool

    def __iter__(self) -> Iterator[float]:
        yield self.statistic
        yield self.pvalue

    def __str__(self) -> str:
        decision = "dependent" if self.reject else "no dependence shown"
        return (
            f"{decision}: p = {self.pvalue:.3g} at level {self.alpha:g}, squared distance covariance "
            f"{self.distance_covariance_sqr:.4g}, epsilon {self.epsilon:g}, delta {self.delta:g} "
            f"({self.method})"
        )


def distance_correlation_result(source: Source, verdict: Mapping[str, Any]) -> DistanceCorrelationResult:
    """Build the typed result from a study and the verdict of ``distance_correlation``, as plain values.

    Raises KeyError, TypeError, ValueError or AttributeError where the verdict is another procedure's.
    """
    return DistanceCorrelationResult(
        statistic=float(verdict["statistic"]),
        pvalue=float(verdict["pvalue"]),
        distance_covariance_sqr=float(verdict["distance_covariance_sqr"]),
        distance_covariance_sqr_unbiased=optional_number(verdict.get("distance_covariance_sqr_unbiased")),
        covariance_interval=optional_interval(verdict["covariance_lower"], verdict["covariance_upper"]),
        distance_correlation=optional_number(verdict["distance_correlation"]),
        interval=optional_interval(verdict["lower"], verdict["upper"]),
        truncation=optional_number(verdict["truncation"]),
        attenuation=optional_number(verdict["attenuation"]),
        aligned=truth(verdict["aligned"]),
        **common_fields(source, verdict),
    )
