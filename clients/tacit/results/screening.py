"""The outcome of a screening: columns ranked by how surely they depend on an outcome."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tacit.correlation_matrix import (
    CorrelationMatrix,
    filled,
    nearest_correlation,
    normal_correlation,
    symmetric,
)
from tacit.errors import InputError
from tacit.results.common import Source, StudyResult, common_fields, optional_interval, optional_number, truth

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class ScreenedColumn:
    """One column against one outcome.

    Attributes:
        outcome: the outcome's name.
        column: the column's name.
        distance_covariance_sqr: squared distance covariance, over public diameters, cut to [0, 1/4].
        distance_covariance_sqr_unbiased: the same before it is cut: what to average over studies.
        covariance_interval: contains the one, and covers what both estimate, of this pair alone, with
            probability 1 - alpha in large samples, as far as the kept frequencies show it: ``truncation`` is
            not in it.
        distance_correlation: in [0, 1]; None where either column hardly varies.
        interval: covers the distance correlation of the kept frequencies, of this pair alone, with
            probability 1 - alpha in large samples; None with it.
        sign: of the covariance of the leading monotone features, 0 where a column has no order.
        truncation: the most that ``distance_covariance_sqr``, and its interval, leave out.
        pvalue: of the test of independence of this pair alone; exact.
        qvalue: smallest level of the false discovery rate at which the pair is found.
        reject: whether it is found at the study's level.
    """

    outcome: str
    column: str
    distance_covariance_sqr: float
    distance_covariance_sqr_unbiased: float | None
    covariance_interval: tuple[float, float]
    distance_correlation: float | None
    interval: tuple[float, float] | None
    sign: int
    truncation: float
    pvalue: float
    qvalue: float
    reject: bool


@dataclass(frozen=True)
class ScreeningResult(StudyResult):
    """Outcome of ``screening``. Iterating yields the ranked pairs, the surest first.

    Attributes:
        ranking: every pair of an outcome and a column, the surest first.
        aligned: whether either owner checked, before it spent anything, that both hold the same units.
    """

    ranking: tuple[ScreenedColumn, ...]
    aligned: bool

    @property
    def found(self) -> tuple[ScreenedColumn, ...]:
        """The pairs found: among them the expected share of independent ones is at most ``alpha``."""
        return tuple(pair for pair in self.ranking if pair.reject)

    def __iter__(self) -> Iterator[ScreenedColumn]:
        return iter(self.ranking)

    def __len__(self) -> int:
        return len(self.ranking)

    def __str__(self) -> str:
        names = ", ".join(pair.column for pair in self.found) or "none"
        return (
            f"{len(self.found)} of {len(self.ranking)} pairs found at false discovery rate {self.alpha:g}: "
            f"{names}, epsilon {self.epsilon:g}, delta {self.delta:g} ({self.method})"
        )

    def to_pandas(self) -> "pd.DataFrame":
        """Return the ranking as a data frame, a row for each pair, each interval as its two ends.

        They are ``lower`` and ``upper``, and ``covariance_lower`` and ``covariance_upper``.

        Raises ImportError where pandas is not installed.
        """
        import pandas as pd  # noqa: PLC0415 (optional)

        rows = []
        for pair in self.ranking:
            fields = asdict(pair)
            fields["covariance_lower"], fields["covariance_upper"] = fields.pop("covariance_interval")
            fields["lower"], fields["upper"] = fields.pop("interval") or (None, None)
            rows.append(fields)
        return pd.DataFrame(rows)

    def correlation_matrix(self, *, normal: bool = False, unknown: float | None = None) -> CorrelationMatrix:
        """Return the correlation matrix nearest to the signed distance correlations of all columns.

        Of both owners' columns, those of one owner among each other too; for columns without an order
        (groups) without sign. It is positive semidefinite with unit diagonal.

        Args:
            normal: first turn each distance correlation into the correlation of the bivariate normal that
                has it: what a Gaussian copula takes. Valid for columns with normal margins alone, whose
                bounds leave little of them out.
            unknown: what to put for columns whose own variance is lost in the noise.

        Raises:
            InputError: the study did not ask for the matrix, or a correlation is unknown.
        """
        asked = self.verdict["matrix"]
        if asked is None:
            raise InputError("the study asked for no correlation matrix: set its parameter matrix = true")
        columns = tuple(str(name) for name in asked["columns"])
        below = [float("nan") if value is None else float(value) for value in asked["correlations"]]
        signed = filled(symmetric(below, len(columns)), unknown)
        return CorrelationMatrix(
            columns, nearest_correlation(normal_correlation(signed) if normal else signed)
        )


def screening_result(source: Source, verdict: Mapping[str, Any]) -> ScreeningResult:
    """Build the typed result from a study and the verdict of ``screening``, as plain values.

    Raises KeyError, TypeError, ValueError or AttributeError where the verdict is another procedure's.
    """
    return ScreeningResult(
        ranking=tuple(_pair(pair) for pair in verdict["pairs"]),
        aligned=truth(verdict["aligned"]),
        **common_fields(source, verdict),
    )


def _pair(pair: Mapping[str, Any]) -> ScreenedColumn:
    return ScreenedColumn(
        outcome=str(pair["outcome"]),
        column=str(pair["column"]),
        distance_covariance_sqr=float(pair["distance_covariance_sqr"]),
        distance_covariance_sqr_unbiased=optional_number(pair.get("distance_covariance_sqr_unbiased")),
        covariance_interval=(float(pair["covariance_lower"]), float(pair["covariance_upper"])),
        distance_correlation=optional_number(pair["distance_correlation"]),
        interval=optional_interval(pair["lower"], pair["upper"]),
        truncation=float(pair["truncation"]),
        sign=int(pair["sign"]),
        pvalue=float(pair["pvalue"]),
        qvalue=float(pair["qvalue"]),
        reject=bool(pair["reject"]),
    )
