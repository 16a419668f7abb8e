"""Encoded tables: what a procedure sees of an owner's rows, chunk by chunk."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain.columns import Domain
from tacit_protocol.workers import Workers, workers_of


@dataclass(frozen=True)
class EncodedChunk:
    """Rows encoded in a :class:`~tacit_protocol.domain.columns.Domain`.

    ``numeric`` is (rows, numeric columns) float64 in [0, 1]; ``categorical`` is (rows, categorical columns)
    int32 category codes. ``unit`` is None where every row is its own privacy unit; otherwise it is (rows,)
    int64, numbering the chunk's units from 0 to ``units - 1``. ``positions`` (units,) int64 is the place of
    each of the chunk's units among all n, which two owners share; None where that is the order of the rows.
    """

    numeric: npt.NDArray[np.float64]
    categorical: npt.NDArray[np.int32]
    unit: npt.NDArray[np.int64] | None
    units: int
    positions: npt.NDArray[np.int64] | None = None

    @property
    def rows(self) -> int:
        """Number of rows in the chunk."""
        return int(self.numeric.shape[0])


class Table(Protocol):
    """An owner's data set, streamed in chunks. All rows of one privacy unit lie in one chunk."""

    @property
    def domain(self) -> Domain:
        """The domain the chunks are encoded in."""

    @property
    def units(self) -> int:
        """Number of privacy units n. Public."""

    def chunks(self) -> Iterator[EncodedChunk]:
        """Yield the rows, in any order and in chunks of any size. May be called again."""


@dataclass(frozen=True)
class PooledTable:
    """Several owners' tables in one place, at a curator; as a whole it is a table of all their units.

    ``parts`` holds each owner's table by name, in one domain. A person whom several owners hold is a unit of
    each of them.
    """

    domain: Domain
    parts: Mapping[str, Table]

    @property
    def units(self) -> int:
        """Number of privacy units of all owners together. Public."""
        return sum(part.units for part in self.parts.values())

    @property
    def units_by_owner(self) -> dict[str, int]:
        """Number of privacy units of each owner. Public."""
        return {owner: part.units for owner, part in self.parts.items()}

    @property
    def workers(self) -> Workers:
        """What the first owner's table is computed by: all are in one place."""
        return workers_of(next(iter(self.parts.values())))

    def chunks(self) -> Iterator[EncodedChunk]:
        """Yield every owner's rows, one owner after the other. May be called again."""
        for part in self.parts.values():
            yield from part.chunks()
