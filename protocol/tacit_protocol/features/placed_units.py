"""Contributions of units with their places among all n: what two owners sum or send unit by unit.

A place depends on the unit's id alone, or on the order of the rows, and never on a value: replacing a unit's
values leaves every place as it was.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain.table import EncodedChunk, Table
from tacit_protocol.features.base import FeatureMap, FloatMatrix
from tacit_protocol.features.sums import UnitCountError, contributions

CHANGED = "the data changed while they were read"


def placed_contributions(
    features: FeatureMap, table: Table, bits: int
) -> Iterator[tuple[FloatMatrix, npt.NDArray[np.int64]]]:
    """Yield contributions, (units, dimension) each, and the units' places, (units,) in 0..n - 1.

    How the table is cut into chunks, and in which order they come, changes no unit's place where chunks give
    positions. Raises UnitCountError, at the latest after the last item, unless every place is taken once.
    """
    taken = np.zeros(table.units, dtype=np.bool_)
    done = 0
    for chunk in table.chunks():
        places = _places(chunk, done)
        for rows in contributions(features, chunk, bits):
            own, places = places[: len(rows)], places[len(rows) :]
            if len(own) != len(rows) or own.min() < 0 or own.max() >= len(taken) or taken[own].any():
                raise UnitCountError(CHANGED)
            taken[own] = True
            yield rows, own
        done += chunk.units
    if done != len(taken) or not taken.all():
        raise UnitCountError(CHANGED)


def _places(chunk: EncodedChunk, done: int) -> npt.NDArray[np.int64]:
    if chunk.positions is not None:
        return chunk.positions
    return np.arange(done, done + chunk.units, dtype=np.int64)
