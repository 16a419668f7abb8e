"""What procedures on noisy counts share: the owner's part, reading releases again, and what verdicts show."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from tacit_protocol.domain.table import Table
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Owner, Study
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import Procedure, StudyError, parse_parameters, require_shared_columns
from tacit_protocol.procedures.count_plan import (
    CountParameters,
    CountPlan,
    count_plan,
    counted_part,
    grid_of,
)
from tacit_protocol.statistics.cell_counts import CellCounts, CellGrid
from tacit_protocol.statistics.contingency import IndependenceOutcome
from tacit_protocol.statistics.homogeneity import HomogeneityTest
from tacit_protocol.statistics.noisy_tables import NoisyTable
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import BaseVerdict, PvalueVerdict, Renderer, ShownTable, Source

REPLICATES_MIN, REPLICATES_DEFAULT, REPLICATES_MAX = 999, 1999, 100_000
"""Simulated null statistics: p-values down to 5e-4 by default."""

WORK_MAX = 2 * 10**9
"""Most simulated cells of one verdict: some minutes of one processor."""

DECIMALS = 3
"""Digits after the point of a noisy count in a verdict: far below the noise, and a third of the size."""

COUNT_WRITTEN_MAX = 1e13
"""Largest count that a verdict states: above all units with their noise, so that an owner that sends other
numbers cannot make a verdict too long to be sent."""

CELLS_SHOWN = 10
"""Most cells that a verdict names."""

HOPELESS = "Hopeless: "
"""What a warning starts with where the study should not be run as planned."""

TABLE_NUMBERS_MAX = 10_000
"""Most noisy counts that a test's verdict shows beside its findings."""


class CellComparison(StrictModel):
    """A cell that stands out: its label by column, its p-value adjusted for all cells, and noisy shares."""

    labels: dict[str, str]
    pvalue: float
    reject: bool
    shares: dict[str, float]


class ComparedPair(StrictModel):
    """Two owners, or two columns, compared: the p-value is adjusted for all pairs."""

    first: str
    second: str
    statistic: float
    pvalue: float
    reject: bool

    @property
    def names(self) -> tuple[str, str]:
        """Which two."""
        return self.first, self.second


@dataclass(frozen=True)
class NoisyTables:
    """Noisy counts of public cells, one array for each owner.

    Attributes:
        columns: the columns that are counted.
        labels: each column's labels, in the order of the arrays' axes.
        counts: arrays by owner, one axis a column. Noise makes some of them negative or fractional.
    """

    columns: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    counts: Mapping[str, npt.NDArray[np.float64]]
    renderer: Renderer = field(repr=False, compare=False)

    @property
    def table(self) -> npt.NDArray[np.float64]:
        """The noisy counts of all owners together, one axis a column."""
        return np.asarray(np.sum(list(self.counts.values()), axis=0))

    def to_rows(self) -> list[tuple[tuple[str, ...], tuple[float, ...]]]:
        """Return each cell's labels and its noisy counts, owner by owner."""
        flat = [counts.ravel().tolist() for counts in self.counts.values()]
        return list(zip(product(*self.labels), zip(*flat, strict=True), strict=True))

    def to_pandas(self) -> Any:
        """Return a pandas frame: one row a cell, one column for each owner."""
        columns = {name: counts.ravel() for name, counts in self.counts.items()}
        return self.renderer.frame(columns, dict(zip(self.columns, self.labels, strict=True)))

    def fields(self) -> dict[str, Any]:
        """Return the tables as plain values."""
        return {
            "columns": list(self.columns),
            "labels": [list(labels) for labels in self.labels],
            "counts": {name: counts.tolist() for name, counts in self.counts.items()},
        }


class TablesVerdict(BaseVerdict):
    """A verdict that may show the owners' noisy tables, cells in row-major order of ``shape``."""

    columns: tuple[str, ...]
    shape: tuple[int, ...]
    counts: dict[str, tuple[float, ...]] | None

    def bound(self, source: Source) -> Self:
        """Return the verdict with what it was made from; raises ValueError where that has other cells."""
        cells = grid_of(source.study, counted_part(source.study)).size
        if any(len(own) != cells for own in (self.counts or {}).values()):
            raise ValueError("the verdict has not one count for each cell")
        return super().bound(source)

    @property
    def tables(self) -> NoisyTables | None:
        """Every owner's noisy counts, or None where they are too large to be shown."""
        if self.counts is None:
            return None
        # Labels follow from the study, which the parties signed.
        grid = grid_of(self.source.study, counted_part(self.source.study))
        arrays = {name: np.array(own).reshape(grid.shape) for name, own in self.counts.items()}
        return NoisyTables(grid.names, grid.labels, arrays, self.source.drawn_by)


class CountsTestResult(PvalueVerdict, TablesVerdict):
    """Outcome of a test on noisy counts. Unpacks into ``statistic, pvalue``.

    Attributes:
        statistic: the test statistic, from noisy counts alone; about 0 under the null hypothesis.
        pvalue: simulated probability under the null hypothesis of a statistic at least as large.
        cells: the ten cells that stand out most.
        tables: every owner's noisy counts, or None where they are too large to be shown.
    """

    cells: tuple[CellComparison, ...]

    def fields(self) -> dict[str, Any]:
        """Return what the command lists beside the common fields."""
        tables = None if self.tables is None else self.tables.fields()
        return super().fields() | {"tables": tables, "cells": [cell.model_dump() for cell in self.cells]}

    def _shown(self, finding: str, *tables: ShownTable) -> Sequence[str | ShownTable]:
        """Return what the command shows: the finding, pairs, and the cells that are rejected."""
        outstanding = (
            f"  {', '.join(f'{name} {label}' for name, label in cell.labels.items())} stands out "
            f"(p = {cell.pvalue:.3g})"
            for cell in self.cells
            if cell.reject
        )
        statistic = f"  statistic {self.statistic:.5g}; {self.method}"
        return self._finding(finding), statistic, *tables, *outstanding


class CountTestParameters(CountParameters):
    """How owners count, and how many null statistics are simulated."""

    replicates: Annotated[int, Field(ge=REPLICATES_MIN, le=REPLICATES_MAX)] = Field(
        REPLICATES_DEFAULT,
        description="Simulated null statistics; the smallest p-value is 1/(replicates + 1).",
    )


class CountProcedure(Procedure):
    """Every owner releases one table of noisy counts; what is made of the tables is each procedure's own."""

    Parameters: ClassVar[type[BaseModel]] = CountParameters
    released: ClassVar[str] = "the number of units in each public cell"
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = ({"noise": "laplace"}, {"noise": "gaussian"})

    def parameters(self, study: Study) -> CountParameters:
        """Read the study's parameters. Raises StudyError where they are none of this procedure's."""
        return parse_parameters(CountParameters, study)

    def plan(self, study: Study) -> CountPlan:
        """Return what the study fixes before any data. Raises StudyError where it cannot be run."""
        return count_plan(study, self.parameters(study))

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        require_shared_columns(study)
        if study.curator is not None:
            raise StudyError("owners send their own releases here; leave the curator out")
        self.plan(study)

    def cost(self, study: Study) -> Guarantee:
        """Return what each owner spends: the study's whole budget, or rho of it, in one release."""
        return self.plan(study).guarantee

    def numbers_released(self, study: Study) -> int:
        """Return how many noisy numbers one owner sends: one a cell."""
        return self.plan(study).grid.size

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where the noise on a cell exceeds the count that an average cell has."""
        return noise_warnings(self.plan(study), units)

    def summarise(self, study: Study, table: Table) -> CellCounts:
        """Count one owner's units exactly. The counts never leave the owner."""
        return self.plan(study).summarise(table)

    def privatise(self, study: Study, summary: CellCounts, noise: NoiseSource) -> Release:
        """Add the noise that ``cost`` states."""
        return self.plan(study).privatise(summary, noise)

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes."""
        self.plan(study).check(release)

    def check_reread(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where an earlier release, read again, has not this study's cells."""
        self.plan(study).read(release)

    def reread(
        self,
        study: Study,
        owner: Owner,  # noqa: ARG002 (every owner's release is read alike)
        source: Study,
        release: Release,
    ) -> Release:
        """Return the same cells of an earlier release, or sums of them: a finer table's margins."""
        return self.plan(study).reread(source, release)


class CountTest(CountProcedure):
    """A test on the owners' tables, whose null distribution is simulated."""

    Parameters: ClassVar[type[BaseModel]] = CountTestParameters

    def parameters(self, study: Study) -> CountTestParameters:
        """Read the study's parameters. Raises StudyError where they are none of a test's."""
        return parse_parameters(CountTestParameters, study)


def simulation_seed(study: Study, stream: int) -> np.random.SeedSequence:
    """Return the public seed of one of a study's simulations."""
    return np.random.SeedSequence(int(study.seed, 16), spawn_key=(stream,))


def silent(part: float, step: str) -> None:
    """Report progress to nobody."""


def noise_warnings(plan: CountPlan, units: Mapping[str, int]) -> tuple[str, ...]:
    """Say which owners' tables will be mostly noise at these numbers of units."""
    advice = "ask for more units, a larger epsilon, or fewer cells"
    deviation = plan.noise.variance**0.5
    drowned = [name for name, count in units.items() if deviation * plan.grid.size > count]
    if drowned and len(drowned) == len(units):
        return (f"{HOPELESS}noise exceeds the count of an average cell at every owner; {advice}",)
    if drowned:
        return (f"noise exceeds the count of an average cell at {', '.join(drowned)}; {advice}",)
    return ()


def require_work(cells: int, replicates: int) -> None:
    """Raise StudyError where a verdict would simulate more than WORK_MAX cells."""
    if cells * replicates > WORK_MAX:
        raise StudyError("the verdict would take too long; use fewer replicates, owners or cells")


def shown_counts(tables: Mapping[str, NoisyTable]) -> dict[str, tuple[float, ...]] | None:
    """Return tables' noisy counts for a verdict; None where there are too many to show."""
    if sum(len(table.counts) for table in tables.values()) > TABLE_NUMBERS_MAX:
        return None
    return {name: written_counts(table) for name, table in tables.items()}


def written_counts(table: NoisyTable) -> tuple[float, ...]:
    """Return a table's noisy counts as verdicts state them."""
    counts = np.clip(table.counts, -COUNT_WRITTEN_MAX, COUNT_WRITTEN_MAX)
    return tuple(round(float(count), DECIMALS) for count in counts)


def striking_cells(
    grid: CellGrid,
    test: HomogeneityTest | IndependenceOutcome,
    shares: Mapping[str, npt.NDArray[np.float64]],
    level: float,
) -> tuple[CellComparison, ...]:
    """Return the cells with the smallest adjusted p-values, with up to CELLS_SHOWN owners' shares."""
    shown = dict(list(shares.items())[:CELLS_SHOWN])
    pvalues = test.cells
    order = np.argsort(-test.ratios, kind="stable")[:CELLS_SHOWN]
    return tuple(
        CellComparison(
            labels=dict(zip(grid.names, grid.label(int(cell)), strict=True)),
            pvalue=float(pvalues[cell]),
            reject=bool(pvalues[cell] <= level),
            shares={name: float(values[cell]) for name, values in shown.items()},
        )
        for cell in order
    )
