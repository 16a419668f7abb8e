"""What is drawn of tables of counts: bars with the noise's intervals, and cells with their residuals."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.base import Fields, Releases
from tacit_protocol.procedures.count_plan import CountPlan
from tacit_protocol.statistics.cell_counts import CellGrid
from tacit_protocol.statistics.noisy_tables import CellNoise, NoisyTable, add_tables
from tacit_protocol.verdicts.bars import BARS_MAX, BarsPanel, Floats, bar, half_width, largest
from tacit_protocol.verdicts.rows import Row, RowsPanel

BESIDE_MAX = 3
"""Most owners of whom each is drawn; of more, all together come first."""

PANELS_MAX = 8
"""Most panels of one verdict; the last one's note says how many there are."""

ALL = "all owners together"

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
        return [plan.read_owner(owner, releases) for owner in study.owners]
    counts = verdict.get("counts")
    if counts is None or study.reusing:
        return None
    return [_table(plan, counts[owner.name], verdict["units"][owner.name]) for owner in study.owners]


def _table(plan: CountPlan, counts: Sequence[float], units: int) -> NoisyTable:
    return NoisyTable(np.array(counts, dtype=np.float64), units, (plan.noise,))


def simulations(count: int, of: str) -> str:
    """Say what was simulated how often."""
    return f"{count} simulations of {of}, with the noise"


def residual_panel(
    title: str, labels: Sequence[str], values: Floats, striking: Sequence[bool]
) -> list[RowsPanel]:
    """Return the cells with the largest residuals, (k,); those that are ``striking`` stand out."""
    order = np.argsort(-np.abs(values), kind="stable")[:CELLS_MAX]
    rows = tuple(Row(labels[i], float(values[i]), None, None, striking[i]) for i in order)
    some = "" if len(values) <= CELLS_MAX else f", the {CELLS_MAX} largest of {len(values)}"
    return [RowsPanel(title + some, RESIDUAL, rows, (-UNUSUAL, UNUSUAL))]


def striking(verdict: Fields) -> list[str]:
    """Return the cells that the verdict rejects, adjusted for all cells."""
    return [", ".join(cell["labels"].values()) for cell in verdict.get("cells") or () if cell["reject"]]


def cell_text(grid: CellGrid, cell: int) -> str:
    """Return a cell's levels, in the order of the columns."""
    return ", ".join(grid.label(cell))


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
    for place, owner in enumerate(study.owners):
        counts = np.array(verdict["counts"][owner.name], dtype=np.float64)
        noises = None if known is None else known[place].noises
        found.append(_Drawn(owner.name, counts, noises, bound, study.level))
    if known is None or len(found) == 1:
        return found
    noises = add_tables(known).noises
    together = _Drawn(ALL, sum((t.counts for t in found[1:]), found[0].counts), noises, bound, study.level)
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
    note += "." if table.name == ALL else f": all counts together are within {bound_of_all:.4g}."
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
