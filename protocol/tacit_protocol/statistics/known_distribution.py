"""A known distribution over public cells, read from the probabilities that a study states."""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tacit_protocol.statistics.cell_counts import CELLS_MAX, CellGrid

SUM_TOLERANCE = 1e-6
"""How far the stated probabilities may add up to another number than 1: six decimals of each are enough."""


class DistributionError(ValueError):
    """The probabilities do not fit the cells. The message says what to change; both are public."""


def cell_probabilities(grid: CellGrid, stated: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return the probability of each of the grid's cells, (k,), adding to 1.

    ``stated`` has one probability for every cell; or, where the categories "other" and "missing" of every
    column are to have probability 0, one for every combination of levels, or of numeric columns' intervals.

    Raises:
        DistributionError: there is another number of them, or they do not add up to 1.
    """
    total = math.fsum(stated)
    if abs(total - 1) > SUM_TOLERANCE:
        raise DistributionError("parameter probabilities: they must add up to 1")
    levels = tuple(axis.listed for axis in grid.axes)
    if len(stated) == grid.size:
        found = np.array(stated, dtype=np.float64)
    elif len(stated) == math.prod(levels):
        found = np.zeros(grid.shape)
        found[tuple(slice(size) for size in levels)] = np.reshape(stated, levels)
    else:
        every = f"give {math.prod(levels)}, one for every combination of levels"
        unlisted = "" if levels == grid.shape else f", or {grid.size} with other and missing values"
        raise DistributionError(f"parameter probabilities: {every}{unlisted}")
    return np.asarray(found.reshape(-1) / total)


def distribution(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return probabilities (k,), adding to 1; raises DistributionError where they are none."""
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DistributionError("a distribution is a vector of numbers") from None
    if found.ndim != 1 or len(found) < 2 or not np.all(found >= 0) or not abs(found.sum() - 1) <= 1e-6:
        raise DistributionError("a distribution is a vector of at least two probabilities that add up to 1")
    if len(found) > CELLS_MAX:
        raise DistributionError(f"a distribution has {CELLS_MAX} cells at most")
    return np.asarray(found / found.sum())


def total_variation(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    """Return the total variation distance of two distributions, (k,) each."""
    return float(np.abs(one - other).sum() / 2)
