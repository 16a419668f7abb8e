"""What procedures on noisy counts share: the owner's part, what verdicts show, and simulated counts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import Field

from tacit_protocol.domain import Domain, EncodedChunk, encode
from tacit_protocol.features.cell_counts import CellGrid, count_cells
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.noisy_tables import (
    DistributionError,
    NoisyTable,
    NuisanceNull,
    SimulatedTest,
    TableTest,
    cell_probabilities,
    distribution,
    paninski,
    total_variation,
)
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.procedures.base import (
    Fields,
    Procedure,
    Releases,
    StudyError,
    common_fields,
    reuse_warnings,
)
from tacit_protocol.procedures.counts.release import CountParameters, TablesPlan, counted_part, grid_of
from tacit_protocol.procedures.counts.unlisted import IN_NO_EFFECT, left_out_of, left_out_warnings
from tacit_protocol.procedures.populations import (
    Columns,
    EffectError,
    Held,
    SimulationModel,
    fresh_seed,
    null_draws,
    rows_of,
    shared_rejections,
)
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import (
    PVALUE,
    REJECTED,
    BaseVerdict,
    PvalueVerdict,
    Renderer,
    ShownTable,
    VerdictSource,
    compared_shown,
    effects_of,
    told_between,
)
from tacit_protocol.verdicts.presentation import (
    Floats,
    Meaning,
    Null,
    Row,
    RowsPanel,
    Shown,
    affordable,
    decision_sentence,
    from_draws,
)

REPLICATES_MIN, REPLICATES_DEFAULT, REPLICATES_MAX = 999, 1999, 100_000
"""Simulated null statistics: p-values down to 5e-4 by default."""

DECIMALS = 3
"""Digits after the point of a noisy count in a verdict: far below the noise, and a third of the size."""

COUNT_WRITTEN_MAX = 1e13
"""Largest count that a verdict states: above all units with their noise, so that an owner that sends other
numbers cannot make a verdict too long to be sent."""

CELLS_SHOWN = 10
"""Most cells that a verdict names."""

TABLE_NUMBERS_MAX = 10_000
"""Most noisy counts that a test's verdict shows beside its findings."""


class CellComparison(StrictModel):
    """A cell that stands out: its label by column, its p-value adjusted for all cells, and noisy shares."""

    labels: Annotated[dict[str, str], Shown("cell")]
    pvalue: Annotated[float, PVALUE]
    reject: Annotated[bool, REJECTED]
    shares: Annotated[dict[str, float], Shown("share of each owner")]


class ComparedPair(StrictModel):
    """Two owners, or two columns, compared: the p-value is adjusted for all pairs."""

    first: str
    second: str
    statistic: float
    pvalue: Annotated[float, PVALUE]
    reject: Annotated[bool, REJECTED]

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

    columns: Annotated[tuple[str, ...], Shown("")]
    shape: Annotated[tuple[int, ...], Shown("")]
    counts: Annotated[dict[str, tuple[float, ...]] | None, Shown("")]

    def bound(self, source: VerdictSource) -> Self:
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

    cells: Annotated[tuple[CellComparison, ...], compared_shown("cells")]

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

    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure"))
    released: ClassVar[str] = "the number of units in each public cell"
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = ({"noise": "laplace"}, {"noise": "gaussian"})


class CountTestPlan(TablesPlan):
    """A test on noisy tables, whose null distribution is simulated.

    Attributes:
        simulated_null: what the null simulates, in words: "tables of one distribution".
        replicates: how many null statistics are simulated.
    """

    simulated_null: ClassVar[str]
    ratios: ClassVar[tuple[str, ...]] = ()
    """The ratios among its effects that a sentence tells after differences."""

    def __init__(self, study: Study, parameters: CountTestParameters) -> None:
        super().__init__(study, parameters)
        self.replicates = parameters.replicates

    def test(
        self,
        tables: Sequence[NoisyTable],
        replicates: int,
        progress: Callable[[float], None] | None = None,
    ) -> SimulatedTest:
        """Test the tables; the null's first simulations do not depend on how many there are."""
        raise NotImplementedError

    def tested(self, tables: Sequence[NoisyTable]) -> list[NoisyTable]:
        """Return the tables that are tested: those that can be read, or their sum."""
        return list(tables)

    def listed_alone(self) -> tuple[str, ...]:
        """Name the columns of which units with another value than a listed one take no part at all."""
        return ()

    def decision(self, verdict: Fields, rejected: str, not_rejected: str) -> Meaning:
        """Say which of both a verdict decided, and by how much its effects differ."""
        said = decision_sentence(self.study, verdict, rejected, not_rejected)
        told = ". ".join(told_between(effects_of(verdict.get("effects", ())), ratios=self.ratios))
        return Meaning(f"{said.sentence} In {told}." if told else said.sentence, said.care)

    def null(self, verdict: Fields, releases: Releases) -> Null | None:
        """Work out the null distribution again; simulations are the first of the verdict's."""
        known = self.known_tables(verdict, releases)
        if known is None or verdict.get("pvalue") is None:
            return None
        tables = self.tested(known)
        replicates = affordable(self.replicates, sum(len(t.counts) for t in tables))
        if replicates is None:
            return None
        words = simulations(replicates, self.simulated_null)
        return from_draws(words, self.test(tables, replicates).simulated, self.study.level)

    def left_out(self, tables: Mapping[str, NoisyTable]) -> tuple[str, ...]:
        """Say how many units hold no listed value, where the tables show it."""
        found = list(left_out_of(self.grid, tables, self.listed_alone(), IN_NO_EFFECT))
        return left_out_warnings(found, self.study.level)

    def shown(
        self, tables: Mapping[str, NoisyTable], releases: Releases, caveats: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return the fields of a verdict that every test states alike; ``caveats`` are what it leaves out."""
        units = units_of(self.study, releases)
        numbers = sum(len(table.counts) for table in tables.values())
        written = {name: written_counts(table) for name, table in tables.items()}
        return common_fields(self.study, units, self.guarantee) | {
            "columns": self.grid.names,
            "shape": self.grid.shape,
            "counts": None if numbers > TABLE_NUMBERS_MAX else written,
            "warnings": (
                *self.left_out(tables),
                *self.drowned(units),
                *caveats,
                *self.hidden(),
                *reuse_warnings(self.study),
            ),
        }


class SimulatedCountTest(CountTestPlan):
    """A test of which many studies are simulated at once; see ``SimulatedAtOnce``."""

    def statistics(self, tables: Sequence[NoisyTable]) -> Floats:
        """Return the test statistics (n,) of tables (n, k)."""
        raise NotImplementedError

    def null_of(self, tables: Sequence[NoisyTable], draws: int, seed: np.random.SeedSequence) -> NuisanceNull:
        """Simulate the null distribution of tables (k,)."""
        raise NotImplementedError

    def rejections(
        self,
        laws: Sequence[Floats],
        units: Sequence[int],
        lots: Sequence[int],
        rng: np.random.Generator,
    ) -> Floats | None:
        """Return 1 or 0 of each study, whether it rejects; None where whole studies have to be played."""
        drawn = self.simulated(laws, units)
        if drawn is None:
            return None
        draws = null_draws(self.study.level, self.replicates)

        def null() -> Floats:
            tables = [replace(table, counts=table.counts[0]) for table in self.tested(drawn(rng, 1))]
            return self.null_of(tables, draws, fresh_seed(rng)).statistics

        return shared_rejections(
            lambda size: self.statistics(self.tested(drawn(rng, size))), null, lots, self.study.level
        )


def units_of(study: Study, releases: Releases) -> dict[str, int]:
    """Return every owner's number of units, as its release states it."""
    return {owner.name: releases[owner.name].units for owner in study.owners}


def written_counts(table: NoisyTable) -> tuple[float, ...]:
    """Return a table's noisy counts as verdicts state them."""
    counts = np.clip(table.counts, -COUNT_WRITTEN_MAX, COUNT_WRITTEN_MAX)
    return tuple(round(float(count), DECIMALS) for count in counts)


def striking_cells(
    grid: CellGrid,
    test: TableTest,
    shares: Mapping[str, npt.NDArray[np.float64]],
    level: float,
) -> tuple[CellComparison, ...]:
    """Return the compared cells with the smallest p-values, with up to CELLS_SHOWN owners' shares."""
    shown = dict(list(shares.items())[:CELLS_SHOWN])
    pvalues, places = test.cells, grid.compared
    order = np.argsort(-test.ratios, kind="stable")[:CELLS_SHOWN]
    return tuple(
        CellComparison(
            labels=dict(zip(grid.names, grid.label(int(places[cell])), strict=True)),
            pvalue=float(pvalues[cell]),
            reject=bool(pvalues[cell] <= level),
            shares={name: float(values[cell]) for name, values in shown.items()},
        )
        for cell in order
    )


CELLS_MAX = 12
"""Most residuals of one panel, the largest."""

UNUSUAL = 2.0
"""Where lines are drawn: a cell chosen beforehand is beyond them with probability 0.05."""

RESIDUAL = "residual, in standard deviations (noise counted)"


def simulations(count: int, of: str) -> str:
    """Say what was simulated how often."""
    return f"{count} simulations of {of}, with the noise"


def residual_panel(
    title: str,
    grid: CellGrid,
    values: Mapping[str, Floats],
    verdict: Fields,
    places: npt.NDArray[np.int64] | None = None,
) -> list[RowsPanel]:
    """Return the cells with the largest residuals, (cells,) by owner; those that are rejected stand out.

    ``places`` (cells,) are in the grid; by default the residuals are of all its cells.
    ``verdict`` names the cells that it rejects, adjusted for all, by column in any order: signed texts sort
    columns by name. An owner named "" is all of them.
    """
    rejected = [cell["labels"] for cell in verdict.get("cells") or () if cell["reject"]]
    rows = []
    for owner, residuals in values.items():
        for cell, residual in enumerate(residuals.tolist()):
            labels = grid.label(cell if places is None else int(places[cell]))
            stands_out = dict(zip(grid.names, labels, strict=True)) in rejected
            label = ", ".join(labels) + (f": {owner}" if owner else "")
            rows.append(Row(label, residual, None, None, stands_out))
    shown = sorted(rows, key=lambda row: -abs(row.value))[:CELLS_MAX]
    some = "" if len(rows) <= CELLS_MAX else f", the {CELLS_MAX} largest of {len(rows)}"
    return [RowsPanel(title + some, RESIDUAL, tuple(shown), (-UNUSUAL, UNUSUAL))]


class CountsShift(SimulationModel):
    """Counts of owners of whom the last one's cells are larger and smaller in turn."""

    counted: ClassVar[bool] = True
    medium: ClassVar[float] = 0.15
    taken: ClassVar[frozenset[str]] = frozenset({"size", "other"})

    def check(self) -> None:
        """Raise EffectError where no cells are so far from these."""
        super().check()
        if not 0 <= self.size <= 1:
            raise EffectError("a distance lies between 0 and 1")
        self.cells  # noqa: B018 (raises where there are none)

    @cached_property
    def grid(self) -> CellGrid:
        """The cells that the study has."""
        try:
            return grid_of(self.study, counted_part(self.study))
        except StudyError as error:
            raise EffectError(str(error)) from None

    @cached_property
    def cells(self) -> tuple[Floats, Floats]:
        """The cells' probabilities without the effect and with it, (k,) each."""
        null = self.null
        if self.effect.other is not None:
            return null, self.probabilities(self.effect.other)
        return null, moved(null, self.size)

    @cached_property
    def null(self) -> Floats:
        """The cells' probabilities without an effect, (k,): the public sample's, or equal ones."""
        if self.public is not None:
            counts = count_cells(_Rows(self.study.domain, self.public), self.grid)
            return np.asarray(counts / counts.sum())
        levels = int(np.prod([axis.listed for axis in self.grid.axes]))
        return self.probabilities(np.full(levels, 1 / levels))

    def probabilities(self, stated: Any) -> Floats:
        """Return stated probabilities for the cells, those left out 0; raises EffectError."""
        try:
            return cell_probabilities(self.grid, distribution(np.ravel(stated)).tolist())
        except DistributionError as error:
            raise EffectError(
                str(error).replace("parameter probabilities", "probabilities of cells")
            ) from None

    @property
    def laws(self) -> Sequence[Floats]:
        """The probabilities of each owner's cells, (k,) each."""
        null, other = (cells / cells.sum() for cells in self.cells)
        return [null] * (len(self.study.owners) - 1) + [other]

    def draw(self, sizes: Sequence[int], rng: np.random.Generator) -> Sequence[Held]:
        return [
            rng.multinomial(size, law).astype(np.int64) for size, law in zip(sizes, self.laws, strict=True)
        ]

    def words(self) -> str:
        """Say how far the cells are from what they would be."""
        return f"a difference of {total_variation(*self.cells):.3g} in total variation"


@dataclass(frozen=True)
class _Rows:
    """A public sample as a table, every row a unit."""

    domain: Domain
    columns: Columns

    @property
    def units(self) -> int:
        return rows_of(self.columns)

    def chunks(self) -> Iterator[EncodedChunk]:
        yield encode(self.domain, dict(self.columns))


def moved(probabilities: Floats, distance: float) -> Floats:
    """Return the distribution at a total variation distance whose cells are larger and smaller in turn.

    Cells that no unit is in stay so. Raises EffectError where no such distribution is so far away.
    """
    held = np.flatnonzero(probabilities)
    if len(held) < 2:
        raise EffectError("at least two cells need units in them")
    # Cells of nearly equal size are paired, so that a distance is not cut short by the smallest of all.
    held = held[np.argsort(-probabilities[held], kind="stable")]
    found = probabilities.copy()
    largest = total_variation(paninski(probabilities[held], 1.0), probabilities[held])
    require_near(distance, largest)
    found[held] = paninski(probabilities[held], min(1.0, distance / largest))
    return found


def require_near(distance: float, largest: float) -> None:
    """Raise EffectError where a total variation distance is larger than any."""
    if not 0 <= distance <= largest * (1 + 1e-9):
        raise EffectError(f"distance must lie between 0 and {largest:.3g} here")
