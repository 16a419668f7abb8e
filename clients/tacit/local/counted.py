"""Counts in the place of rows: what :mod:`tacit.local` takes where a table was counted already."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError
from tacit_protocol.domain.columns import Domain
from tacit_protocol.domain.table import EncodedChunk
from tacit_protocol.messages.study import UNITS_MAX
from tacit_protocol.statistics.cell_counts import CELLS_MAX, CellGrid


@dataclass(frozen=True)
class CountedTable:
    """A table of which only the counts are known: it is never read row by row.

    ``cells`` holds the place of each count among the cells of the grid.
    """

    domain: Domain
    counted: npt.NDArray[np.int64]
    cells: npt.NDArray[np.int64]

    @property
    def units(self) -> int:
        """Number of rows, each a unit."""
        return int(self.counted.sum())

    def counts(self, grid: CellGrid) -> npt.NDArray[np.int64]:
        """Return the number of rows of each cell."""
        found = np.zeros(grid.size, dtype=np.int64)
        found[self.cells] = self.counted
        return found

    def chunks(self) -> Iterator[EncodedChunk]:
        """Yield nothing: ``counts`` answers."""
        return iter(())


def whole_counts(values: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return counts of units by cell, of any shape.

    Raises:
        InputError: they are not whole numbers, none negative and at least one positive, or too many.
    """
    try:
        given = np.asarray(values)
    except ValueError:
        raise InputError("counts must be an array, its rows of one length") from None
    if given.dtype.kind not in "iuf" or not np.all(np.isfinite(given)):
        raise InputError("counts must be finite numbers")
    if given.size > CELLS_MAX:
        raise InputError(f"there are more than {CELLS_MAX} counts: use fewer cells")
    if np.any(given != np.floor(given)) or np.any(given < 0) or not np.any(given > 0):
        raise InputError("counts must be whole numbers, none negative, at least one of them positive")
    if float(given.sum(dtype=np.float64)) > UNITS_MAX:
        raise InputError(f"counts must add up to {UNITS_MAX} units at most")
    return given.astype(np.int64)
