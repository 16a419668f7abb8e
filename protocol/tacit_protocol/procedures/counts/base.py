"""What procedures on noisy counts share: the owner's part, what verdicts show, and simulated counts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from tacit_protocol.domain import Domain, EncodedChunk, Table, encode
from tacit_protocol.features.cell_counts import CellCounts, CellGrid, count_cells
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.numerics.noisy_tables import (
    CellNoise,
    DistributionError,
    NoisyTable,
    SimulatedTest,
    TableTest,
    add_tables,
    cell_probabilities,
    distribution,
    half_width,
    paninski,
    total_variation,
)
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Progress,
    Releases,
    StudyError,
    SumsOfOwners,
    common_fields,
    parse_parameters,
    require_shared_columns,
    reuse_warnings,
)
from tacit_protocol.procedures.counts.release import (
    CountParameters,
    CountPlan,
    count_plan,
    counted_part,
    counting,
    grid_of,
    plan_beside,
)
from tacit_protocol.procedures.counts.unlisted import IN_NO_EFFECT, left_out_of, left_out_warnings
from tacit_protocol.procedures.masking import TOGETHER, SharedNoise
from tacit_protocol.procedures.populations import Columns, EffectError, Held, SimulationModel, rows_of
from tacit_protocol.procedures.randomised_answers.answered_column import (
    AnswerCounts,
    AnsweredColumnPlan,
    BesideAnswers,
    OwnCodes,
    OwnSums,
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
)
from tacit_protocol.verdicts.presentation import (
    BARS_MAX,
    BarsPanel,
    Floats,
    Null,
    Row,
    RowsPanel,
    Shown,
    affordable,
    bar,
    from_draws,
    largest,
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


class CountProcedure(SumsOfOwners, BesideAnswers):
    """Every owner releases one table of noisy counts; what is made of the tables is each procedure's own."""

    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure"))
    masked_numbers: ClassVar[str] = "tables"

    Parameters: ClassVar[type[BaseModel]] = CountParameters
    released: ClassVar[str] = "the number of units in each public cell"
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = ({"noise": "laplace"}, {"noise": "gaussian"})

    takes_answers: ClassVar[bool] = False
    """Whether one of its columns may be another owner's, of which that one released randomised answers."""

    def parameters(self, study: Study) -> CountParameters:
        """Read the study's parameters. Raises StudyError where they are none of this procedure's."""
        model = self.Parameters
        return parse_parameters(model if issubclass(model, CountParameters) else CountParameters, study)

    def counted(self, study: Study) -> CountPlan:
        """Return what the study fixes before any data. Raises StudyError where it cannot be run."""
        return count_plan(study, self.parameters(study))

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        if self.beside(study) is None:
            require_shared_columns(study)
        if study.curator is not None:
            raise StudyError("owners send their own releases here; leave the curator out")
        self.counted(study)

    def require_group(self, study: Study, name: str | None) -> None:
        """Raise StudyError where it is not the group's owner who would release answers."""
        if (beside := self.beside(study)) is not None and name != beside.column.name:
            raise StudyError(
                f"{beside.sender.name} would release answers of {beside.column.name}, which is not the "
                "group: list the group's owner first, who holds no other column"
            )

    def beside(self, study: Study) -> AnsweredColumnPlan | None:
        """Return what a study fixes one of whose columns is another owner's; None of any other."""
        return plan_beside(study, self.parameters(study)) if self.takes_answers else None

    def verdict_type(self, study: Study) -> type[BaseVerdict]:  # noqa: ARG002
        """Return the type of a study's verdict: the same in two rounds."""
        return self.Verdict

    def conclude_beside(
        self, plan: AnsweredColumnPlan, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> BaseVerdict:
        """Compute the verdict from the answers and the counts beside them."""
        return self.assemble(plan.study, releases, progress)

    def read(
        self, study: Study, releases: Mapping[str, Release]
    ) -> tuple[dict[str, NoisyTable], AnswerCounts | None]:
        """Return the noisy tables by who counted, and what is known of the answers beside them, if any.

        Raises ReleaseError where releases do not fit the study, or each other.
        """
        plan, beside = self.counted(study), self.beside(study)
        known = None if beside is None else beside.known(releases)
        return plan.tables(study, releases), known

    def cost(self, study: Study) -> Guarantee:
        """Return what each owner spends: the study's whole budget, or rho of it, in one release."""
        if (beside := self.beside(study)) is not None:
            return beside.costs[beside.sender.name]
        return self.counted(study).guarantee

    def shared_noise(self, study: Study) -> SharedNoise | None:
        """Return the noise of masked tables; None where every owner's table is read by itself."""
        return None if self.beside(study) is not None else self.counted(study).shared

    def describe_request(self, study: Study) -> tuple[str, ...]:
        """Say of masked tables what is gained and hidden, and what it costs."""
        return self.asked_of_masks(study)

    def check_units(self, study: Study, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where these numbers of units, by owner, do not suit the study."""
        super().check_units(study, units)
        self.require_room(study, units)

    def release_size(self, study: Study) -> int:
        """Return how many noisy numbers one owner sends: one a cell; of answers, at most."""
        if (beside := self.beside(study)) is not None:
            return beside.numbers_sent()
        return self.counted(study).grid.size

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where the noise on a cell exceeds the count that an average cell has."""
        if (beside := self.beside(study)) is not None and (hopeless := beside.warnings(units)):
            return hopeless
        return noise_warnings(self.counted(study), units)

    def summarise(self, study: Study, table: Table) -> CellCounts | OwnCodes | OwnSums:
        """Count one owner's units, or read the sender's levels, exactly. They never leave the owner."""
        if (beside := self.beside(study)) is not None:
            return beside.read(table)
        return self.counted(study).summarise(table)

    def privatise(
        self, study: Study, summary: CellCounts | OwnCodes | OwnSums, noise: NoiseSource
    ) -> Release:
        """Add the noise that ``cost`` states, or draw answers."""
        if isinstance(summary, OwnCodes | OwnSums):
            return self._plan_beside(study).release(summary, noise)
        return self.counted(study).privatise(summary, noise)

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes.

        In two rounds it is the receiver's: the counts by answer.
        """
        if (beside := self.beside(study)) is not None:
            beside.check_sums(release)
        else:
            self.counted(study).check(release)

    def check_reread(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where an earlier release, read again, has not this study's cells, or answers."""
        if (beside := self.beside(study)) is not None:
            beside.check_answers(release)
        else:
            self.counted(study).read(release)

    def reread(
        self,
        study: Study,
        owner: Owner,  # noqa: ARG002 (of two rounds none but the sender's is read again)
        source: Study,
        release: Release,
    ) -> Release:
        """Return the same cells of an earlier release, or sums of a finer table's; or a sender's answers."""
        if (beside := self.beside(study)) is not None:
            return beside.reread(source, release)
        return self.counted(study).reread(source, release)


class CountTest(CountProcedure):
    """A test on the owners' tables, whose null distribution is simulated."""

    Parameters: ClassVar[type[BaseModel]] = CountTestParameters

    simulated: ClassVar[str]
    """What its null simulates, in words: "tables of one distribution"."""

    added: ClassVar[bool] = False
    """Whether it tests all owners' tables added up."""

    def parameters(self, study: Study) -> CountTestParameters:
        """Read the study's parameters. Raises StudyError where they are none of a test's."""
        model = self.Parameters
        return parse_parameters(
            model if issubclass(model, CountTestParameters) else CountTestParameters, study
        )

    def test(
        self,
        study: Study,
        tables: Sequence[NoisyTable],
        replicates: int,
        progress: Callable[[float], None] | None = None,
    ) -> SimulatedTest:
        """Test the owners' tables; the null's first simulations do not depend on how many there are."""
        raise NotImplementedError

    def drawn_at_once(
        self,
        study: Study,
        laws: Sequence[Floats],
        units: Sequence[int],
        rng: np.random.Generator,
    ) -> Callable[[int], list[NoisyTable]] | None:
        """Return what draws noisy tables of so many studies, counts (n, k): each owner's, or their sums.

        None where tables are masked, or beside another owner's answers.
        """
        plan = self.counted(study)
        if plan.masking is not None or self.beside(study) is not None:
            return None
        none = np.zeros(plan.grid.size)
        tables = [NoisyTable(none, count, (plan.noise,), plan.compared) for count in units]

        def draw(size: int) -> list[NoisyTable]:
            drawn = [
                replace(own, counts=rng.multinomial(own.units, law, size=size) + own.draw_noise(rng, size))
                for own, law in zip(tables, laws, strict=True)
            ]
            return [add_tables(drawn)] if self.added else drawn

        return draw

    def null(self, study: Study, verdict: Fields, releases: Releases) -> Null | None:
        """Work out the null distribution again; simulations are the first of the verdict's."""
        tables = tables_of(self.counted(study), study, verdict, releases)
        if tables is None or verdict.get("pvalue") is None:
            return None
        tables = [add_tables(tables)] if self.added else tables
        replicates = affordable(self.parameters(study).replicates, sum(len(t.counts) for t in tables))
        if replicates is None:
            return None
        words = f"{replicates} simulations of {self.simulated}, with the noise"
        return from_draws(words, self.test(study, tables, replicates).simulated, study.level)

    def caveats(self, study: Study) -> tuple[str, ...]:  # noqa: ARG002
        """Say what a verdict leaves out, whatever the numbers of units."""
        return ()

    def listed_alone(self, study: Study) -> tuple[str, ...]:  # noqa: ARG002
        """Name the columns of which units with another value than a listed one take no part at all."""
        return ()

    def left_out(self, study: Study, tables: Mapping[str, NoisyTable]) -> tuple[str, ...]:
        """Say how many units hold no listed value, where the tables show it."""
        grid = self.counted(study).grid
        found = list(left_out_of(grid, tables, self.listed_alone(study), IN_NO_EFFECT))
        return left_out_warnings(found, study.level)

    def shown(self, study: Study, tables: Mapping[str, NoisyTable], releases: Releases) -> dict[str, Any]:
        """Return the fields of a verdict that every test on the owners' tables states alike."""
        plan, beside = self.counted(study), self.beside(study)
        grid, units = plan.grid, units_counted(tables, plan, releases)
        caveats = masked_caveats(plan)
        if beside is not None:
            units = {owner.name: table.units for owner in study.owners for table in tables.values()}
            caveats = (
                f"counts are by randomised answer of {beside.sender.name}: effects, curves and strengths are "
                f"of {beside.column.name} itself",
                *beside.caveats,
            )
        return common_fields(study, units, plan.guarantee if plan.masking is not None else None) | {
            "columns": grid.names,
            "shape": grid.shape,
            "counts": shown_counts(tables),
            "warnings": (
                *self.left_out(study, tables),
                *self.warnings(study, units),
                *self.caveats(study),
                *caveats,
                *reuse_warnings(study),
            ),
        }


def masked_caveats(plan: CountPlan) -> tuple[str, ...]:
    """Say in a verdict on masked tables what they hide."""
    return () if plan.shared is None else plan.shared.caveats("tables")


def noise_warnings(plan: CountPlan, units: Mapping[str, int]) -> tuple[str, ...]:
    """Say which owners' tables will be mostly noise at these numbers of units."""
    if plan.masking is not None:
        if len(units) < len(plan.masking.names):
            return ()
        units = {TOGETHER: sum(units.values())}
    advice = "ask for more units, a larger epsilon, or fewer cells"
    deviation = plan.noise.variance**0.5
    drowned = [name for name, count in units.items() if deviation * plan.grid.size > count]
    if drowned and len(drowned) == len(units):
        where = "in the sum of all owners" if plan.masking is not None else "at every owner"
        return (f"{HOPELESS}noise exceeds the count of an average cell {where}; {advice}",)
    if drowned:
        return (f"noise exceeds the count of an average cell at {', '.join(drowned)}; {advice}",)
    return ()


def units_counted(tables: Mapping[str, NoisyTable], plan: CountPlan, releases: Releases) -> dict[str, int]:
    """Return the number of units of every owner, also where only the sum of their tables can be read."""
    if plan.masking is not None:
        return {name: release.units for name, release in releases.items()}
    return {name: table.units for name, table in tables.items()}


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


BESIDE_MAX = 3
"""Most owners of whom each is drawn; of more, all together come first."""

PANELS_MAX = 8
"""Most panels of one verdict; the last one's note says how many there are."""

CELLS_MAX = 12
"""Most residuals of one panel, the largest."""

UNUSUAL = 2.0
"""Where lines are drawn: a cell chosen beforehand is beyond them with probability 0.05."""

RESIDUAL = "residual, in standard deviations (noise counted)"


def tables_of(plan: CountPlan, study: Study, verdict: Fields, releases: Releases) -> list[NoisyTable] | None:
    """Return the owners' noisy tables: from the releases, or else from the verdict if it shows them.

    None where neither has them, or where it is not known what noise an earlier release has.
    """
    if releases:
        return list(plan.tables(study, releases).values())
    counts = verdict.get("counts")
    if counts is None or study.reusing:
        return None
    if plan.masking is not None:
        return [_table(plan, counts[TOGETHER], sum(verdict["units"].values()))]
    return [_table(plan, counts[owner.name], verdict["units"][owner.name]) for owner in counting(study)]


def _table(plan: CountPlan, counts: Sequence[float], units: int) -> NoisyTable:
    return NoisyTable(np.array(counts, dtype=np.float64), units, (plan.noise,), plan.compared)


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


@dataclass(frozen=True)
class _Drawn:
    """A noisy table (k,) and whose it is. ``noises`` are on each cell, or None where they are not known."""

    name: str
    counts: Floats
    noises: tuple[CellNoise, ...] | None
    bound: float
    """The interval's half width that the verdict states, of one count."""

    level: float

    def half(self, cells: int) -> float | None:
        """Return the half width of the interval of a sum of so many counts; None where it is not known."""
        if self.noises is None:
            return self.bound if cells == 1 else None
        return half_width(self.noises, cells, self.level)


def count_panels(plan: CountPlan, study: Study, verdict: Fields, releases: Releases) -> list[BarsPanel]:
    """Return the bars of all owners' tables, ``PANELS_MAX`` at most."""
    grid = plan.grid
    found: list[BarsPanel] = []
    tables = _tables(plan, study, verdict, releases)
    for table in tables:
        found += _of_table(table, grid, float(verdict["half_width_all"]))
    if len(found) > PANELS_MAX:
        last, more = found[PANELS_MAX - 1], len(found) - PANELS_MAX
        note = f"{last.note} And {more} more charts like these: the transcript has every count."
        found[PANELS_MAX - 1] = replace(last, note=note)
    return found[:PANELS_MAX]


def _tables(plan: CountPlan, study: Study, verdict: Fields, releases: Releases) -> list[_Drawn]:
    known = tables_of(plan, study, verdict, releases)
    bound, found = float(verdict["half_width"]), []
    names = [TOGETHER] if plan.masking is not None else [owner.name for owner in study.owners]
    for place, name in enumerate(names):
        counts = np.array(verdict["counts"][name], dtype=np.float64)
        noises = None if known is None else known[place].noises
        found.append(_Drawn(name, counts, noises, bound, study.level))
    if known is None or len(found) == 1:
        return found
    noises = add_tables(known).noises
    together = _Drawn(
        TOGETHER, sum((t.counts for t in found[1:]), found[0].counts), noises, bound, study.level
    )
    return [*found, together] if len(found) <= BESIDE_MAX else [together, *found]


def _of_table(table: _Drawn, grid: CellGrid, bound_of_all: float) -> list[BarsPanel]:
    if len(table.counts) != grid.size:
        raise ValueError("the verdict has not one count for each cell")
    labels = [", ".join(grid.label(cell)) for cell in range(grid.size)]
    if grid.size <= BARS_MAX:
        return [_panel(f"Noisy counts of {table.name}", labels, table.counts, table, 1)]
    found = []
    if len(grid.shape) > 1:
        shaped = table.counts.reshape(grid.shape)
        for place, name in enumerate(grid.names):
            others = tuple(axis for axis in range(len(grid.shape)) if axis != place)
            added, cells = shaped.sum(axis=others), grid.size // grid.shape[place]
            if table.half(cells) is not None:
                title = f"{name}: noisy counts of {table.name}"
                found.append(_panel(title, list(grid.labels[place]), added, table, cells))
    title = f"The {BARS_MAX} largest of {grid.size} cells: {table.name}"
    panel = _panel(title, labels, table.counts, table, 1)
    note = f"{panel.note} These were picked for their size, which noise tends to raise"
    note += "." if table.name == TOGETHER else f": all counts together are within {bound_of_all:.4g}."
    return [*found, replace(panel, note=note)]


def _panel(title: str, labels: list[str], values: Floats, table: _Drawn, cells: int) -> BarsPanel:
    half, percent = table.half(cells), f"{100 * (1 - table.level):g} %"
    shown = largest(values)
    some = "" if len(shown) == len(values) or cells == 1 else f", the {len(shown)} largest of {len(values)}"
    return BarsPanel(
        title + some,
        f"units, with {percent} noise intervals",
        tuple(bar(labels[i], float(values[i]), half) for i in shown),
        f"The count in the data is within its interval with probability {1 - table.level:g} at least."
        + (f" Each bar adds up {cells} noisy counts." if cells > 1 else ""),
    )


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
        """Draw every owner's counts."""
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
