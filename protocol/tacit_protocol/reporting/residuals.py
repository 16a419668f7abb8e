"""Which cells of a table depart from the null hypothesis: shares less what is expected, over their spread.

The spread under the null hypothesis counts sampling and privacy noise, so that a residual is near a standard
normal value where the cell departs from nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.noisy_counts import COUNTS
from tacit_protocol.procedures.count_tables import CountTest
from tacit_protocol.procedures.identity_plan import plan_of as identity_plan_of
from tacit_protocol.reporting.rows import Row, RowsPanel
from tacit_protocol.reporting.simulated_nulls import tables_of
from tacit_protocol.statistics.cell_counts import CellGrid
from tacit_protocol.statistics.contingency import residuals as table_residuals
from tacit_protocol.statistics.homogeneity import Weights
from tacit_protocol.statistics.noisy_tables import NoisyTable, add_tables, onto_simplex

CELLS_MAX = 12
"""Most residuals of one panel, the largest."""

UNUSUAL = 2.0
"""Where lines are drawn: a cell chosen beforehand is beyond them with probability 0.05."""

UNIT = "residual, in standard deviations (noise counted)"

Floats = npt.NDArray[np.float64]


def residuals_of(
    study: Study, verdict: Mapping[str, Any], releases: Mapping[str, Release]
) -> list[RowsPanel]:
    """Return the cells with the largest residuals; none for procedures without cells or tables at hand."""
    known = RESIDUALS.get(study.procedure)
    return [] if known is None else known(study, verdict, releases)


def _homogeneity(
    study: Study, verdict: Mapping[str, Any], releases: Mapping[str, Release]
) -> list[RowsPanel]:
    tables = tables_of(study, verdict, releases)
    if tables is None:
        return []
    found = between_owners(tables)
    names = [owner.name for owner in study.owners]
    if len(names) == 2:
        found, names = found[:1], names[:1]  # the other owner's are the same with the other sign
    grid = CountTest().plan(study).grid
    labels = [f"{_text(grid, cell)}: {name}" for name in names for cell in range(grid.size)]
    striking = _striking(verdict) * len(names)
    title = f"Cells of {names[0]} against both owners" if len(names) == 1 else "Owners' cells against all"
    return _panel(
        title, labels, found.ravel(), [_text(grid, c) in striking for c in range(grid.size)] * len(names)
    )


def between_owners(tables: Sequence[NoisyTable]) -> Floats:
    """Return every owner's residuals, (J, k), from the pooled shares.

    With public weights u, var(x_j - p) = (1 - 2 u_j) v_j + sum_l u_l^2 v_l, v_j = p (1 - p)/n_j + noise.
    """
    units = np.array([table.units for table in tables], dtype=np.float64)
    noise = np.array([table.noise_variance for table in tables])
    weights = Weights.of(units, noise, len(tables[0].counts))
    shares = np.stack([table.counts / table.units for table in tables])
    pooled = weights.pooled(shares)
    likely = np.maximum(onto_simplex(pooled), weights.floor)
    each = (likely * np.maximum(1 - likely, 0.0))[None, :] / units[:, None] + (noise / units**2)[:, None]
    spread = (1 - 2 * weights.mean)[:, None] * each + np.sum(weights.mean[:, None] ** 2 * each, axis=0)
    return np.asarray((shares - pooled) / np.sqrt(spread))


def _independence(
    study: Study, verdict: Mapping[str, Any], releases: Mapping[str, Release]
) -> list[RowsPanel]:
    tables = tables_of(study, verdict, releases)
    if tables is None:
        return []
    table, grid = add_tables(tables), CountTest().plan(study).grid
    found = from_independence(table, grid.shape)
    labels, striking = [_text(grid, cell) for cell in range(grid.size)], _striking(verdict)
    return _panel("Cells against independence", labels, found, [label in striking for label in labels])


def from_independence(table: NoisyTable, shape: tuple[int, ...]) -> Floats:
    """Return every cell's residual, (k,), from the product of the table's margins."""
    shares = table.counts / table.units
    found = table_residuals(shares, shape, table.units, table.noise_variance / table.units**2)
    floor = 1 / table.units**2  # where nothing is expected, one unit is the least that can be seen
    return np.asarray((shares - found.fitted) / np.sqrt(np.maximum(found.explained, floor)))


def _identity(study: Study, verdict: Mapping[str, Any], releases: Mapping[str, Release]) -> list[RowsPanel]:  # noqa: ARG001
    release = releases.get(study.owners[0].name)
    if release is None or not release.vectors or (COUNTS not in release.vectors and len(release.vectors) > 1):
        return []
    plan = identity_plan_of(study)
    if plan.method == "privit-laplace":
        return []
    table = plan.counted.read(release)
    expected = table.units * plan.probabilities
    spread = np.sqrt(np.maximum(expected * (1 - plan.probabilities) + table.noise_variance, 1.0))
    labels = [_text(plan.grid, cell) for cell in range(plan.grid.size)]
    residuals = (table.counts - expected) / spread
    return _panel("Cells against the distribution", labels, residuals, [False] * len(labels))


def _panel(title: str, labels: Sequence[str], values: Floats, striking: Sequence[bool]) -> list[RowsPanel]:
    order = np.argsort(-np.abs(values), kind="stable")[:CELLS_MAX]
    rows = tuple(Row(labels[i], float(values[i]), None, None, striking[i]) for i in order)
    some = "" if len(values) <= CELLS_MAX else f", the {CELLS_MAX} largest of {len(values)}"
    return [RowsPanel(title + some, UNIT, rows, (-UNUSUAL, UNUSUAL))]


def _striking(verdict: Mapping[str, Any]) -> list[str]:
    """Return the cells that the verdict rejects, adjusted for all cells."""
    return [", ".join(cell["labels"].values()) for cell in verdict.get("cells") or () if cell["reject"]]


def _text(grid: CellGrid, cell: int) -> str:
    return ", ".join(grid.label(cell))


RESIDUALS: dict[str, Callable[[Study, Mapping[str, Any], Mapping[str, Release]], list[RowsPanel]]] = {
    "homogeneity": _homogeneity,
    "independence_table": _independence,
    "identity": _identity,
}
"""By procedure."""
