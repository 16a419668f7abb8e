"""Outcomes of the procedures on noisy counts: the tables, a test of homogeneity, and one of independence."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.results.common import Source, StudyResult, common_fields, optional_interval, optional_number
from tacit.results.count_tables import CellComparison, NoisyTables, PairOfColumns, PairOfOwners
from tacit_protocol.procedures.count_plan import counted_part, grid_of


@dataclass(frozen=True)
class NoisyCountsResult(StudyResult):
    """Outcome of ``noisy_counts``: tables, and no test; ``reject`` is always False.

    Attributes:
        tables: every owner's noisy counts.
        noise: "laplace" or "gaussian".
        scale: Laplace scale, or standard deviation, of the noise on each cell.
        half_width: the noise of one cell is within it with probability 1 - alpha.
        half_width_all: that of all cells of an owner is, together, with probability 1 - alpha.
    """

    tables: NoisyTables
    noise: str
    scale: float
    half_width: float
    half_width_all: float

    @property
    def table(self) -> npt.NDArray[np.float64]:
        """The noisy counts of all owners together, one axis a column."""
        return self.tables.table

    def to_pandas(self) -> Any:
        """Return a pandas frame: one row a cell, one column for each owner."""
        return self.tables.to_pandas()

    def __str__(self) -> str:
        return (
            f"{self.method}: each within {self.half_width:.4g} at confidence {1 - self.alpha:g}, all within "
            f"{self.half_width_all:.4g}; epsilon {self.epsilon:g}, delta {self.delta:g}"
        )


@dataclass(frozen=True)
class CountsTestResult(StudyResult):
    """Outcome of a test on noisy counts. Unpacks into ``statistic, pvalue``.

    Attributes:
        statistic: the test statistic, from noisy counts alone; about 0 under the null hypothesis.
        pvalue: simulated probability under the null hypothesis of a statistic at least as large.
        cells: the ten cells that stand out most.
        tables: every owner's noisy counts, or None where they are too large to be shown.
    """

    statistic: float
    pvalue: float
    cells: tuple[CellComparison, ...]
    tables: NoisyTables | None

    def __iter__(self) -> Iterator[float]:
        yield self.statistic
        yield self.pvalue

    def _described(self, decision: str) -> str:
        return f"{decision}, epsilon {self.epsilon:g}, delta {self.delta:g} ({self.method})"


@dataclass(frozen=True)
class HomogeneityResult(CountsTestResult):
    """Outcome of ``homogeneity``: a :class:`CountsTestResult`.

    Attributes:
        pairs: owners compared with each other; empty for more than ten.
    """

    pairs: tuple[PairOfOwners, ...]

    def __str__(self) -> str:
        decision = "the distributions differ" if self.reject else "no difference shown"
        return self._described(f"{decision}: p = {self.pvalue:.3g} at level {self.alpha:g}")


@dataclass(frozen=True)
class IndependenceTableResult(CountsTestResult):
    """Outcome of ``independence_table``: a :class:`CountsTestResult`.

    Attributes:
        cramers_v: strength of the association of two columns, in [0, 1]; None for more columns.
        interval: of Cramér's V; counts the noise. None for more columns.
        pairs: columns compared with each other, with Cramér's V.
    """

    cramers_v: float | None
    interval: tuple[float, float] | None
    pairs: tuple[PairOfColumns, ...]

    def __str__(self) -> str:
        decision = "the columns depend on each other" if self.reject else "no dependence shown"
        strength = "" if self.cramers_v is None else f", Cramér's V {self.cramers_v:.3f}"
        return self._described(f"{decision}: p = {self.pvalue:.3g} at level {self.alpha:g}{strength}")


CountsResult = NoisyCountsResult | HomogeneityResult | IndependenceTableResult


def noisy_counts_result(source: Source, verdict: Mapping[str, Any]) -> NoisyCountsResult:
    """Build the typed result from a study and the verdict of ``noisy_counts``, as plain values.

    Raises KeyError, TypeError, ValueError or AttributeError where the verdict is another procedure's.
    """
    tables = _tables(source, verdict)
    if tables is None:
        raise ValueError("noisy counts have tables")
    return NoisyCountsResult(
        tables=tables,
        noise=str(verdict["noise"]),
        scale=float(verdict["scale"]),
        half_width=float(verdict["half_width"]),
        half_width_all=float(verdict["half_width_all"]),
        **common_fields(source, verdict),
    )


def homogeneity_result(source: Source, verdict: Mapping[str, Any]) -> HomogeneityResult:
    """Build the typed result from a study and the verdict of ``homogeneity``; raises likewise."""
    return HomogeneityResult(
        statistic=float(verdict["statistic"]),
        pvalue=float(verdict["pvalue"]),
        pairs=tuple(
            PairOfOwners(_names(pair), float(pair["pvalue"]), bool(pair["reject"]))
            for pair in verdict["pairs"]
        ),
        cells=_cells(verdict),
        tables=_tables(source, verdict),
        **common_fields(source, verdict),
    )


def independence_table_result(source: Source, verdict: Mapping[str, Any]) -> IndependenceTableResult:
    """Build the typed result from a study and the verdict of ``independence_table``; raises likewise."""
    return IndependenceTableResult(
        statistic=float(verdict["statistic"]),
        pvalue=float(verdict["pvalue"]),
        cramers_v=optional_number(verdict["cramers_v"]),
        interval=optional_interval(verdict["lower"], verdict["upper"]),
        pairs=tuple(
            PairOfColumns(
                _names(pair),
                float(pair["pvalue"]),
                bool(pair["reject"]),
                float(pair["cramers_v"]),
                (float(pair["lower"]), float(pair["upper"])),
            )
            for pair in verdict["pairs"]
        ),
        cells=_cells(verdict),
        tables=_tables(source, verdict),
        **common_fields(source, verdict),
    )


def _names(pair: Mapping[str, Any]) -> tuple[str, str]:
    return str(pair["first"]), str(pair["second"])


def _cells(verdict: Mapping[str, Any]) -> tuple[CellComparison, ...]:
    return tuple(
        CellComparison(
            {str(name): str(label) for name, label in cell["labels"].items()},
            float(cell["pvalue"]),
            bool(cell["reject"]),
            {str(name): float(share) for name, share in cell["shares"].items()},
        )
        for cell in verdict["cells"]
    )


def _tables(source: Source, verdict: Mapping[str, Any]) -> NoisyTables | None:
    """Read the noisy counts; their labels follow from the study, which the parties signed."""
    if verdict["counts"] is None:
        return None
    grid = grid_of(source.study, counted_part(source.study))
    return NoisyTables(
        grid.names,
        grid.labels,
        {
            str(name): np.array(counts, dtype=np.float64).reshape(grid.shape)
            for name, counts in verdict["counts"].items()
        },
    )
