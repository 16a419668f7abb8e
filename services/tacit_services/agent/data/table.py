"""A data source as the table that a procedure reads: encoded, in chunks, with whole privacy units.

Memory stays constant whatever the number of rows. Without a unit column one pass streams the rows. With
one, all rows of a unit must lie in one chunk although they may lie anywhere in the source: pass p of P
reads everything and keeps the units whose hash is p modulo P, P being chosen so that each part fits the
bound. Nothing is ever written to disk.
"""

from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tacit_protocol.domain.columns import CategoricalColumn, Domain
from tacit_protocol.domain.encode import RawColumn, encode, encode_categorical
from tacit_protocol.domain.table import EncodedChunk
from tacit_protocol.statistics.cell_counts import CellGrid
from tacit_services.agent.data.arrow_columns import numbers, text
from tacit_services.agent.data.read_ahead import read_ahead
from tacit_services.agent.data.source import Columns, DataError, GroupsRows, Source, require_columns
from tacit_services.agent.data.units import DistinctHashes, Hasher, UnitHasher, UnitHashes

CHUNK_BYTES = 8 * 1024 * 1024
"""Encoded size of a chunk: large enough for matrix products, small enough for the processor's cache."""

CHUNK_ROWS_MAX = 65_536
"""Most rows of a chunk: a procedure holds arrays of (rows, features), whatever the number of columns."""

PART_BYTES = 64 * 1024 * 1024
"""Encoded size of the units held at once when units own several rows."""

CHANGED = "the data set changed while it was being read; it must stay as it is during a study"


@dataclass(frozen=True)
class TableBounds:
    """How much of a table is held in memory at once."""

    chunk_bytes: int = CHUNK_BYTES
    chunk_rows_max: int = CHUNK_ROWS_MAX
    part_bytes: int = PART_BYTES


@dataclass(frozen=True)
class _Count:
    rows: int
    units: int


@dataclass
class _Part:
    """The rows of some units, gathered during one pass."""

    chunks: list[EncodedChunk] = field(default_factory=list)
    hashes: list[UnitHashes] = field(default_factory=list)

    def add(self, chunk: EncodedChunk, hashes: UnitHashes, keep: npt.NDArray[np.bool_]) -> None:
        kept = EncodedChunk(chunk.numeric[keep], chunk.categorical[keep], None, int(keep.sum()))
        self.chunks.append(kept)
        self.hashes.append(hashes[keep])


class SourceTable:
    """A source encoded in a study's domain; implements :class:`~tacit_protocol.domain.table.Table`.

    ``ordered`` gives units their places in the order of their hashes, for a ``hasher`` that two owners share.
    Eight bytes for each unit are then kept.

    Raises:
        DataError: at once where a column is absent; on reading where rows cannot be read, there are none,
            or they changed since they were counted.
    """

    def __init__(
        self,
        source: Source,
        domain: Domain,
        unit_column: str | None = None,
        bounds: TableBounds | None = None,
        hasher: Hasher | None = None,
        *,
        ordered: bool = False,
    ):
        self._source = source
        self._domain = domain
        self._unit_column = unit_column
        self._bounds = bounds or TableBounds()
        self._hasher = hasher or UnitHasher()
        names = [column.name for column in domain.columns]
        require_columns(source, [*names, *([unit_column] if unit_column is not None else [])])
        self._fingerprint = source.fingerprint()
        self._count: _Count | None = None
        self._ordered, self._order = ordered, np.empty(0, dtype=np.uint64)

    @property
    def domain(self) -> Domain:
        """The domain the chunks are encoded in."""
        return self._domain

    @property
    def units(self) -> int:
        """Number of privacy units n, counted by one pass over the source. Public."""
        return self._counted().units

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self._counted().rows

    @property
    def order(self) -> UnitHashes:
        """Hashes of an ordered table's units, (units,), ordered and distinct."""
        self._counted()
        return self._order

    def _counted(self) -> _Count:
        if self._count is None:
            self._count = self._count_units() if self._unit_column is not None else self._count_rows()
            if self._count.rows == 0:
                raise DataError("the data set has no rows")
        return self._count

    def _count_rows(self) -> _Count:
        rows = self._source.rows()
        if rows is None:
            rows = sum(batch.num_rows for batch in self._read(Columns()))
        return _Count(rows, rows)

    def _count_units(self) -> _Count:
        assert self._unit_column is not None  # noqa: S101 (narrows the type)
        rows, distinct = 0, DistinctHashes()
        for batch in self._read(Columns(text=(self._unit_column,))):
            rows += batch.num_rows
            distinct.add(self._hasher.hashes(batch.column(self._unit_column)))
        if self._ordered:
            self._order = distinct.ordered()
        return _Count(rows, distinct.count())

    def _read(self, columns: Columns) -> Iterator[pa.RecordBatch]:
        self._require_unchanged()
        for batch in self._source.batches(columns, self._chunk_rows()):
            if batch.num_rows:
                yield batch
        self._require_unchanged()

    def _require_unchanged(self) -> None:
        if self._source.fingerprint() != self._fingerprint:
            raise DataError(CHANGED)

    def _row_bytes(self) -> int:
        return 8 * len(self._domain.numeric) + 4 * len(self._domain.categorical) + 8

    def _chunk_rows(self) -> int:
        rows = self._bounds.chunk_bytes // self._row_bytes()
        return max(1, min(rows, self._bounds.chunk_rows_max))

    def _columns(self) -> Columns:
        unit = () if self._unit_column is None else (self._unit_column,)
        return Columns(
            tuple(column.name for column in self._domain.numeric),
            tuple(column.name for column in self._domain.categorical) + unit,
        )

    def _encode(self, batch: pa.RecordBatch) -> EncodedChunk:
        raw: dict[str, RawColumn] = {}
        for numeric in self._domain.numeric:
            raw[numeric.name] = numbers(numeric.name, batch.column(numeric.name))
        for categorical in self._domain.categorical:
            raw[categorical.name] = text(batch.column(categorical.name))
        return encode(self._domain, raw)

    def counts(self, grid: CellGrid) -> npt.NDArray[np.int64] | None:
        """Return the number of rows of each of the grid's cells, (k,), counted where the rows are stored.

        None where they cannot be, where rows do not make units, or where numbers are cut. Whatever distinct
        texts there are, memory is that of a chunk and of k numbers; each goes through the same encoding as a
        row that is read.
        """
        columns = [axis.column for axis in grid.axes if isinstance(axis.column, CategoricalColumn)]
        groups = self._source if isinstance(self._source, GroupsRows) else None
        if groups is None or self._unit_column is not None or len(columns) < len(grid.axes):
            return None
        expected = self._counted()
        batches = groups.grouped(grid.names, self._chunk_rows())
        if batches is None:
            return None
        counted = np.zeros(grid.size, dtype=np.int64)
        for batch, repeats in batches:
            codes = [
                axis.fold(encode_categorical(column, text(batch.column(column.name))))
                for axis, column in zip(grid.axes, columns, strict=True)
            ]
            index = np.ravel_multi_index(tuple(codes), grid.shape)
            np.add.at(counted, index, np.array(repeats, dtype=np.int64))
        if int(counted.sum()) != expected.rows:
            raise DataError(CHANGED)
        return counted

    def chunks(self) -> Iterator[EncodedChunk]:
        """Yield the rows; every unit's rows lie in one chunk. May be called again."""
        expected = self._counted()
        rows = units = 0
        chunks = self._row_chunks() if self._unit_column is None else self._unit_chunks(expected.rows)
        for chunk in read_ahead(chunks):
            rows += chunk.rows
            units += chunk.units
            yield chunk
        if (rows, units) != (expected.rows, expected.units):
            raise DataError(CHANGED)

    def _row_chunks(self) -> Generator[EncodedChunk, None, None]:
        for batch in self._read(self._columns()):
            yield self._encode(batch)

    def _unit_chunks(self, rows: int) -> Generator[EncodedChunk, None, None]:
        parts = -(-rows * self._row_bytes() // self._bounds.part_bytes)
        for part in range(parts):
            yield from self._chunks_of_part(self._gather(part, parts))

    def _gather(self, part: int, parts: int) -> _Part:
        assert self._unit_column is not None  # noqa: S101 (narrows the type)
        gathered = _Part()
        for batch in self._read(self._columns()):
            hashes = self._hasher.hashes(batch.column(self._unit_column))
            keep = hashes % np.uint64(parts) == part
            if keep.any():
                gathered.add(self._encode(batch), hashes, keep)
        return gathered

    def _chunks_of_part(self, part: _Part) -> Iterator[EncodedChunk]:
        if not part.chunks:
            return
        hashes = np.concatenate(part.hashes)
        order = np.argsort(hashes, kind="stable")
        numeric = np.concatenate([chunk.numeric for chunk in part.chunks])
        categorical = np.concatenate([chunk.categorical for chunk in part.chunks])
        part.chunks.clear()
        first_rows = np.flatnonzero(np.diff(hashes[order], prepend=~hashes[order[:1]]))
        for start, stop in _whole_unit_slices(first_rows, len(order), self._chunk_rows()):
            rows = order[start:stop]
            own, unit = np.unique(hashes[rows], return_inverse=True)
            unit = unit.astype(np.int64)
            yield EncodedChunk(numeric[rows], categorical[rows], unit, len(own), self._places(own))

    def _places(self, own: UnitHashes) -> npt.NDArray[np.int64] | None:
        if not self._ordered:
            return None
        places = np.searchsorted(self._order, own)
        if places[-1] >= len(self._order) or not np.array_equal(self._order[places], own):
            raise DataError(CHANGED)
        return places.astype(np.int64)


def _whole_unit_slices(
    first_rows: npt.NDArray[np.intp], rows: int, rows_max: int
) -> Iterator[tuple[int, int]]:
    """Cut sorted rows into slices of at most ``rows_max`` rows that split no unit.

    ``first_rows`` holds each unit's first row. A unit with more rows than that has a slice of its own.
    """
    ends = np.append(first_rows[1:], rows)
    start = 0
    while start < rows:
        last = int(np.searchsorted(ends, start + rows_max, side="right")) - 1
        first_end = int(np.searchsorted(ends, start, side="right"))
        stop = int(ends[max(last, first_end)])
        yield start, stop
        start = stop
