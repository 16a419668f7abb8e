"""What a test by a table of cells says, and its estimates of pairs of columns."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from tacit_protocol.domain import ColumnName
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import Interval, PvalueVerdict, ShownTable, estimate_shown, interval_of
from tacit_protocol.verdicts.presentation import Row, RowsPanel, Shown


class PairOfVariables(StrictModel):
    """Two columns of different variables: how strongly their cells depend on each other.

    None where a column's cells are lost in the noise, or have no order. Intervals cover with probability
    1 - alpha each, in large samples, and count sampling and noise.

    Attributes:
        correlation: the rank correlation of the cells, in [-1, 1].
        cramers_v: Cramer's V of the cells, in [0, 1].
        distance_correlation: of the cells' places, in [0, 1].
    """

    first: ColumnName
    second: ColumnName
    correlation: Annotated[float | None, Shown("rank correlation", "effects")]
    correlation_lower: float | None
    correlation_upper: float | None
    cramers_v: Annotated[float | None, Shown("Cramér's V", "effects")]
    cramers_v_lower: float | None
    cramers_v_upper: float | None
    distance_correlation: Annotated[float | None, estimate_shown("distance correlation")]
    lower: float | None
    upper: float | None

    @property
    def interval(self) -> Interval | None:
        """That of the distance correlation, or None."""
        return interval_of(self.lower, self.upper)

    @property
    def correlation_interval(self) -> Interval | None:
        """That of the rank correlation, or None."""
        return interval_of(self.correlation_lower, self.correlation_upper)

    @property
    def cramers_v_interval(self) -> Interval | None:
        """That of Cramer's V, or None."""
        return interval_of(self.cramers_v_lower, self.cramers_v_upper)


class CellsTableResult(PvalueVerdict):
    """Whether variables are jointly independent, from noisy tables of cells between private quantiles.

    Of several owners independence is tested within owners, and estimates are of dependence within owners.

    Attributes:
        statistic: the test statistic, from private releases alone.
        pvalue: probability under independence of a statistic at least as large.
        variables: the variables; columns that count as one stand together.
        pairs: every two columns of different variables, with measures of dependence of their cells and
            intervals: dependence within a cell is in none of them.
        labels: each sender's cells, by column.
    """

    listed: ClassVar[tuple[str, ...]] = ("statistic", "pvalue", "pairs", "labels")
    tabulated: ClassVar[tuple[str, ...]] = ("pairs",)

    if_rejected: ClassVar[str] = "the columns are not jointly independent"
    if_not_rejected: ClassVar[str] = "no dependence shown"

    variables: tuple[tuple[str, ...], ...]
    pairs: Annotated[tuple[PairOfVariables, ...], Shown("pairs of columns", "effects")]
    labels: Annotated[dict[str, dict[str, tuple[str, ...]]], Shown("cells of each column")]

    def __str__(self) -> str:
        return self._told(self._decided(self._found))

    @property
    def _found(self) -> str:
        return self.if_rejected if self.reject else self.if_not_rejected

    def fields(self) -> dict[str, Any]:
        return super().fields() | {"pairs": [pair.model_dump() for pair in self.pairs]}

    def summary(self) -> Sequence[str | ShownTable]:
        rows = tuple(
            (
                f"{pair.first} and {pair.second}",
                _stated(pair.correlation, pair.correlation_interval),
                _stated(pair.cramers_v, pair.cramers_v_interval),
            )
            for pair in self.pairs
        )
        return (
            self._finding(self._found),
            f"  {self.method}",
            ShownTable(("Columns", "rank correlation", "Cramér's V"), rows),
        )

    def details(self) -> Sequence[str | ShownTable]:
        rows = tuple(
            (sender, column, ", ".join(labels))
            for sender, columns in self.labels.items()
            for column, labels in columns.items()
        )
        return (ShownTable(("Holder", "column", "cells"), rows),)


def _stated(value: float | None, interval: Interval | None) -> str:
    if value is None or interval is None:
        return "not stated"
    return f"{value:.3f}, {interval[0]:.3f} to {interval[1]:.3f}"


def pair_panels(pairs: Sequence[Mapping[str, Any]]) -> Sequence[RowsPanel]:
    """Return rows of the pairs' rank correlations and Cramer's V, as a verdict states them."""
    found = []
    for name, words in (("correlation", "rank correlation"), ("cramers_v", "Cramér's V")):
        rows = [
            Row(
                f"{pair['first']} · {pair['second']}",
                float(pair[name]),
                pair[f"{name}_lower"],
                pair[f"{name}_upper"],
                False,
            )
            for pair in pairs
            if pair.get(name) is not None
        ]
        if rows:
            found.append(RowsPanel(f"Cells of two columns: {words}", words, tuple(rows)))
    return tuple(found)
