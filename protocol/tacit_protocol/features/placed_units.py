"""Contributions of units with their places among all n: what two owners sum or send unit by unit.

A place depends on the unit's id alone, or on the order of the rows, and never on a value: replacing a unit's
values leaves every place as it was.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain.reduction import reduce_table
from tacit_protocol.domain.table import EncodedChunk, Table
from tacit_protocol.features.base import FeatureMap, FloatMatrix
from tacit_protocol.features.sums import UnitCountError, contributions

CHANGED = "the data changed while they were read"

Integers = npt.NDArray[np.int64]


class TakenPlaces:
    """Which of the places 0..n - 1 have been taken; each may be taken once."""

    def __init__(self, units: int) -> None:
        self._taken = np.zeros(units, dtype=np.bool_)
        self._done = 0

    def take(
        self, features: FeatureMap, chunk: EncodedChunk, bits: int
    ) -> Iterator[tuple[FloatMatrix, Integers]]:
        """Yield a chunk's contributions, (units, dimension) each, and the units' places, (units,).

        Raises UnitCountError for a place that there is not, or that is taken.
        """
        places = _places(chunk, self._done)
        for rows in contributions(features, chunk, bits):
            own, places = places[: len(rows)], places[len(rows) :]
            if (
                len(own) != len(rows)
                or own.min() < 0
                or own.max() >= len(self._taken)
                or self._taken[own].any()
            ):
                raise UnitCountError(CHANGED)
            self._taken[own] = True
            yield rows, own
        self._done += chunk.units

    def merge(self, other: "TakenPlaces") -> None:
        """Take what another part of the table took; raises UnitCountError where a place is taken twice."""
        if len(other._taken) != len(self._taken) or (self._taken & other._taken).any():
            raise UnitCountError(CHANGED)
        self._taken |= other._taken
        self._done += other._done

    def require_all(self) -> None:
        """Raise UnitCountError unless every place is taken once."""
        if self._done != len(self._taken) or not self._taken.all():
            raise UnitCountError(CHANGED)

    def __getstate__(self) -> tuple[int, int, npt.NDArray[np.uint8]]:
        return len(self._taken), self._done, np.packbits(self._taken)

    def __setstate__(self, state: tuple[int, int, npt.NDArray[np.uint8]]) -> None:
        units, self._done, packed = state
        self._taken = np.unpackbits(packed, count=units).view(np.bool_)


class PlacedSums(Protocol):
    """What is summed exactly over placed units."""

    def add(self, rows: FloatMatrix, places: Integers) -> None:
        """Add contributions, (units, dimension), of the units at those places, (units,)."""

    def merge(self, other: Self) -> None:
        """Add the sums over another part of the table."""


SumsT = TypeVar("SumsT", bound=PlacedSums)


@dataclass
class _Placed(Generic[SumsT]):
    sums: SumsT
    taken: TakenPlaces


@dataclass(frozen=True)
class _PlacedReduction(Generic[SumsT]):
    features: FeatureMap
    units: int
    bits: int
    empty: Callable[[], SumsT]

    def start(self) -> _Placed[SumsT]:
        return _Placed(self.empty(), TakenPlaces(self.units))

    def add(self, partial: _Placed[SumsT], chunk: EncodedChunk) -> None:
        for rows, places in partial.taken.take(self.features, chunk, self.bits):
            partial.sums.add(rows, places)

    def merge(self, partial: _Placed[SumsT], other: _Placed[SumsT]) -> None:
        partial.taken.merge(other.taken)
        partial.sums.merge(other.sums)


def sum_placed(features: FeatureMap, table: Table, bits: int, empty: Callable[[], SumsT]) -> SumsT:
    """Sum a table's placed contributions; ``empty``, which is picklable, makes the sums over no unit.

    How the table is cut into chunks, and in which order they come, changes no unit's place where chunks give
    positions. Raises UnitCountError unless every place is taken once.
    """
    found = reduce_table(table, _PlacedReduction(features, table.units, bits, empty))
    found.taken.require_all()
    return found.sums


def _places(chunk: EncodedChunk, done: int) -> Integers:
    if chunk.positions is not None:
        return chunk.positions
    return np.arange(done, done + chunk.units, dtype=np.int64)
