"""Rows of a source encoded in a domain, chunk by chunk and unit by unit, wherever they are read.

A reader is picklable: it goes to whoever reads a part of the data, with the key that hashes units.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tacit_protocol.domain.columns import Domain
from tacit_protocol.domain.table import EncodedChunk, RawColumn, encode
from tacit_protocol.workers import ONE_WORKER, Workers
from tacit_services.agent.data.arrow_columns import numbers, text
from tacit_services.agent.data.source import Columns, DataError, Source
from tacit_services.agent.data.units import Hasher, UnitHashes, mixed

CHUNK_BYTES = 8 * 1024 * 1024
"""Encoded size of a chunk: large enough for matrix products, small enough for the processor's cache."""

CHUNK_ROWS_MAX = 65_536
"""Most rows of a chunk: a procedure holds arrays of (rows, features), whatever the number of columns."""

PART_BYTES = 64 * 1024 * 1024
"""Encoded size of the units held at once when units own several rows."""

READ_BYTES = 64 * 1024 * 1024
"""What a source may hold besides the rows that it hands out."""

CHANGED = "the data set changed while it was being read; it must stay as it is during a study"

MEMORY_BYTES = 2**30
"""Memory for reading one data set, where nothing else is said."""

MEMORY_PARTS = 16
"""A chunk may take this part of the memory for one worker: it is held raw, encoded and as features, and more
are read ahead."""

READ_PARTS = 8
"""A source's buffers may take this part of it."""

GATHERED_PARTS = 4
"""Units gathered at once may take this part of it: they are held once as read, and once in their order."""


@dataclass(frozen=True)
class TableBounds:
    """How much of a table each worker holds in memory at once."""

    chunk_bytes: int = CHUNK_BYTES
    chunk_rows_max: int = CHUNK_ROWS_MAX
    part_bytes: int = PART_BYTES
    read_bytes: int = READ_BYTES

    @classmethod
    def within(cls, memory_bytes: int, workers: int) -> "TableBounds":
        """Return the bounds that keep so many workers within ``memory_bytes`` in all."""
        each = memory_bytes // workers
        return cls(
            chunk_bytes=min(CHUNK_BYTES, each // MEMORY_PARTS),
            part_bytes=each // GATHERED_PARTS,
            read_bytes=min(READ_BYTES, each // READ_PARTS),
        )


@dataclass(frozen=True)
class Computing:
    """What sums over a data set are computed by, and the memory that reading it may take.

    ``memory_bytes`` is for this process's threads together, and for each worker elsewhere.
    """

    workers: Workers = ONE_WORKER
    memory_bytes: int = MEMORY_BYTES

    @property
    def bounds(self) -> TableBounds:
        """How much of a table each worker holds in memory at once."""
        return TableBounds.within(self.memory_bytes, self.workers.count if self.workers.in_process else 1)


IN_THIS_THREAD = Computing()
"""The calling thread, and the usual memory."""


@dataclass
class _Gathered:
    """The rows of some units, gathered during one pass."""

    chunks: list[EncodedChunk] = field(default_factory=list)
    hashes: list[UnitHashes] = field(default_factory=list)

    def add(self, chunk: EncodedChunk, hashes: UnitHashes, keep: npt.NDArray[np.bool_]) -> None:
        kept = EncodedChunk(chunk.numeric[keep], chunk.categorical[keep], None, int(keep.sum()))
        self.chunks.append(kept)
        self.hashes.append(hashes[keep])


@dataclass(frozen=True)
class Reader:
    """How a source's rows are read: the domain they are encoded in, their units, the memory they may take.

    ``draw`` (64 bits) draws one row of every unit, which is then all there is of it; None keeps all rows.
    """

    domain: Domain
    unit_column: str | None
    bounds: TableBounds
    hasher: Hasher
    draw: int | None = None

    def batches(self, source: Source, columns: Columns) -> Iterator[pa.RecordBatch]:
        """Yield a source's rows with the named columns; no batch is empty."""
        for batch in source.batches(columns, self.chunk_rows):
            if batch.num_rows:
                yield batch

    @property
    def chunk_rows(self) -> int:
        """Most rows of a chunk."""
        rows = self.bounds.chunk_bytes // self._row_bytes
        return max(1, min(rows, self.bounds.chunk_rows_max))

    def row_chunks(self, source: Source, first: int) -> Iterator[EncodedChunk]:
        """Yield a source's rows, each a unit; their places count from ``first``."""
        for batch in self.batches(source, self._columns()):
            positions = np.arange(first, first + batch.num_rows, dtype=np.int64)
            first += batch.num_rows
            yield self._encode(batch, positions)

    def unit_hashes(self, source: Source) -> Iterator[UnitHashes]:
        """Yield the hash of each row's unit, (rows,)."""
        for batch in self.batches(source, Columns(text=(self._unit,), unit=self._unit)):
            yield self.hasher.hashes(batch.column(self._unit))

    def passes(self, rows: int) -> int:
        """Return how many passes gather all units of so many rows."""
        return max(1, -(-rows * self._row_bytes // self.bounds.part_bytes))

    def unit_chunks(
        self, source: Source, part: int, parts: int, order: UnitHashes | None
    ) -> Iterator[EncodedChunk]:
        """Yield the units whose hash is ``part`` modulo ``parts``, whole, from one pass over a source.

        ``order`` (units,) holds the hashes of all units, ordered, where units have places among them. Raises
        DataError for a unit that is not there.
        """
        gathered = _Gathered()
        for batch in self.batches(source, self._columns()):
            hashes = self.hasher.hashes(batch.column(self._unit))
            keep = hashes % np.uint64(parts) == part
            if keep.any():
                gathered.add(self._encode(batch), hashes, keep)
        yield from self._chunks_of(gathered, order)

    def _chunks_of(self, gathered: _Gathered, all_units: UnitHashes | None) -> Iterator[EncodedChunk]:
        if not gathered.chunks:
            return
        hashes = np.concatenate(gathered.hashes)
        order = np.argsort(hashes, kind="stable")
        numeric = np.concatenate([chunk.numeric for chunk in gathered.chunks])
        categorical = np.concatenate([chunk.categorical for chunk in gathered.chunks])
        gathered.chunks.clear()
        first_rows = np.flatnonzero(np.diff(hashes[order], prepend=~hashes[order[:1]]))
        for start, stop in whole_unit_slices(first_rows, len(order), self.chunk_rows):
            rows = order[start:stop]
            own, unit = np.unique(hashes[rows], return_inverse=True)
            positions = None if all_units is None else _places(own, all_units)
            if self.draw is not None:
                # By value, so that the source's order, which others' rows may change, has no say.
                rows = rows[np.lexsort((*categorical[rows].T, *numeric[rows].T, unit))]
                rows = rows[drawn_rows(unit, own, self.draw)]
                yield EncodedChunk(numeric[rows], categorical[rows], None, len(own), positions)
                continue
            yield EncodedChunk(numeric[rows], categorical[rows], unit.astype(np.int64), len(own), positions)

    @property
    def _unit(self) -> str:
        if self.unit_column is None:
            raise ValueError("the table's rows are units themselves")
        return self.unit_column

    @property
    def _row_bytes(self) -> int:
        return 8 * len(self.domain.numeric) + 4 * len(self.domain.categorical) + 8

    def _columns(self) -> Columns:
        unit = () if self.unit_column is None else (self.unit_column,)
        return Columns(
            tuple(column.name for column in self.domain.numeric),
            tuple(column.name for column in self.domain.categorical) + unit,
            self.unit_column,
        )

    def _encode(self, batch: pa.RecordBatch, positions: npt.NDArray[np.int64] | None = None) -> EncodedChunk:
        raw: dict[str, RawColumn] = {}
        for numeric in self.domain.numeric:
            raw[numeric.name] = numbers(numeric.name, batch.column(numeric.name))
        for categorical in self.domain.categorical:
            raw[categorical.name] = text(batch.column(categorical.name))
        chunk = encode(self.domain, raw)
        return EncodedChunk(chunk.numeric, chunk.categorical, None, chunk.units, positions)


def _places(own: UnitHashes, all_units: UnitHashes) -> npt.NDArray[np.int64]:
    places = np.searchsorted(all_units, own)
    if places[-1] >= len(all_units) or not np.array_equal(all_units[places], own):
        raise DataError(CHANGED)
    return places.astype(np.int64)


def drawn_rows(unit: npt.NDArray[np.int64], own: UnitHashes, draw: int) -> npt.NDArray[np.int64]:
    """Return the place of one row of each unit, (units,), each with the same chance.

    ``unit`` (rows,) numbers the units of rows that are ordered by it, ``own`` (units,) holds their hashes.
    The place depends on the unit's own hash, its own number of rows and ``draw``, not on other units.
    """
    counts = np.bincount(unit, minlength=len(own))
    share = mixed(own ^ np.uint64(draw)) >> np.uint64(11)
    return np.cumsum(counts) - counts + (share * 2.0**-53 * counts).astype(np.int64)


def whole_unit_slices(
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
