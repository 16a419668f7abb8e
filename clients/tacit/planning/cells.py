"""Counts of simulated studies: the cells of a study on counts, what is in them, and tables drawn from it."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError
from tacit.frames import Sample
from tacit.planning.sizes import Floats, distribution, total_variation
from tacit_protocol.domain.columns import Domain
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.count_plan import counted_part, grid_of
from tacit_protocol.statistics.cell_counts import CellGrid, count_cells
from tacit_protocol.statistics.identity_power import paninski
from tacit_protocol.statistics.known_distribution import DistributionError, cell_probabilities

if TYPE_CHECKING:
    from tacit.local.counted import CountedTable


def cells_of(study: Study) -> CellGrid:
    """Return the cells that a study on counts has. Raises StudyError where its columns have none such."""
    return grid_of(study, counted_part(study))


def null_probabilities(study: Study, grid: CellGrid, public: Sample | None) -> Floats:
    """Return the probability of each cell where there is no effect, (k,).

    An identity test's known distribution; the public sample's; or equally likely levels and intervals.
    """
    levels = [axis.listed for axis in grid.axes]
    stated = study.parameters.get("probabilities")
    if stated is not None:
        return probabilities_of(grid, stated)
    if public is not None:
        return _shares(public, study.domain, grid)
    return probabilities_of(grid, np.full(int(np.prod(levels)), 1 / np.prod(levels)))


def probabilities_of(grid: CellGrid, stated: Any) -> Floats:
    """Return stated probabilities for the cells, those left out 0; raises InputError."""
    try:
        return cell_probabilities(grid, distribution(np.ravel(stated)).tolist())
    except DistributionError as error:
        raise InputError(str(error).replace("parameter probabilities", "probabilities of cells")) from None


def _shares(public: Sample, domain: Domain, grid: CellGrid) -> Floats:
    # The array table loads narwhals, which nothing else here needs.
    from tacit.array_table import ArrayTable  # noqa: PLC0415

    counts = count_cells(ArrayTable.of(public, domain), grid)
    return np.asarray(counts / counts.sum())


def moved(probabilities: Floats, distance: float) -> Floats:
    """Return the distribution at a total variation distance whose cells are larger and smaller in turn.

    Cells that no unit is in stay so. Raises InputError where no such distribution is so far away.
    """
    held = np.flatnonzero(probabilities)
    if len(held) < 2:
        raise InputError("at least two cells need units in them")
    # Cells of nearly equal size are paired, so that a distance is not cut short by the smallest of all.
    held = held[np.argsort(-probabilities[held], kind="stable")]
    return _at_distance(probabilities, held, distance)


def _at_distance(probabilities: Floats, held: npt.NDArray[np.int64], distance: float) -> Floats:
    found = probabilities.copy()
    largest = total_variation(paninski(probabilities[held], 1.0), probabilities[held])
    if not 0 <= distance <= largest * (1 + 1e-9):
        raise InputError(f"distance must lie between 0 and {largest:.3g} here")
    found[held] = paninski(probabilities[held], min(1.0, distance / largest))
    return found


def dependent(probabilities: Floats, shape: tuple[int, ...], distance: float) -> Floats:
    """Return the joint distribution (k,) at a total variation distance from independent columns.

    In the first two columns, cells whose levels are both even or both odd in number are larger, the others
    smaller, with both columns' own distributions kept. Raises InputError where it cannot be so far away.
    """
    table = probabilities.reshape(shape)
    signs = []
    for axis in (0, 1):
        own = table.sum(axis=tuple(other for other in range(table.ndim) if other != axis))
        turns = np.where(np.cumsum(own > 0) % 2 == 1, 1.0, -1.0) * (own > 0)
        signs.append((turns - own @ turns) * (own > 0))
    pattern = np.multiply.outer(*signs).reshape(shape[:2] + (1,) * (table.ndim - 2)) * table
    unit = float(np.abs(pattern).sum() / 2)
    shrinking = pattern < 0
    largest = unit * float(np.min(table[shrinking] / -pattern[shrinking], initial=np.inf)) if unit else 0.0
    if not 0 <= distance <= largest * (1 + 1e-9):
        raise InputError(f"distance must lie between 0 and {largest:.3g} here")
    joint = table + pattern * (min(distance, largest) / unit if unit else 0.0)
    return np.asarray(np.maximum(joint, 0.0).ravel())


def draw_counts(
    probabilities: Floats, domain: Domain, units: int, rng: np.random.Generator
) -> "CountedTable":
    """Draw a table of so many units."""
    # tacit.local offers what is here, and so imports it.
    from tacit.local.counted import CountedTable  # noqa: PLC0415

    counts = rng.multinomial(units, probabilities / probabilities.sum()).astype(np.int64)
    return CountedTable(domain, counts, np.arange(len(counts)))
