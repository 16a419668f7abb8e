"""The outcome of a screening, as a data frame and as a correlation matrix."""

from typing import TYPE_CHECKING

from tacit.correlation_matrix import (
    CorrelationMatrix,
    filled,
    nearest_correlation,
    normal_correlation,
    symmetric,
)
from tacit.errors import InputError
from tacit_protocol.procedures.screening import ScreeningVerdict

if TYPE_CHECKING:
    import pandas as pd


class ScreeningResult(ScreeningVerdict):
    """Outcome of ``screening``. Iterating yields the ranked pairs, the surest first.

    Attributes:
        ranking: every pair of an outcome and a column, the surest first.
        aligned: whether either owner checked, before it spent anything, that both hold the same units.
    """

    def to_pandas(self) -> "pd.DataFrame":
        """Return the ranking as a data frame, a row for each pair, each interval as its two ends.

        They are ``lower`` and ``upper``, and ``covariance_lower`` and ``covariance_upper``.

        Raises ImportError where pandas is not installed.
        """
        import pandas as pd  # noqa: PLC0415 (optional)

        return pd.DataFrame([pair.model_dump(exclude={"statistic"}) for pair in self.ranking])

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
        if self.matrix is None:
            raise InputError("the study asked for no correlation matrix: set its parameter matrix = true")
        below = [float("nan") if value is None else value for value in self.matrix.correlations]
        signed = filled(symmetric(below, len(self.matrix.columns)), unknown)
        return CorrelationMatrix(
            self.matrix.columns, nearest_correlation(normal_correlation(signed) if normal else signed)
        )
