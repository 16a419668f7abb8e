"""A data source as the table that a procedure reads: encoded, in chunks, with whole privacy units.

Memory stays constant whatever the number of rows. Without a unit column one pass streams the rows. With
one, all rows of a unit must lie in one chunk although they may lie anywhere in the source: pass p of P
reads everything and keeps the units whose hash is p modulo P, P being chosen so that each part fits the
bound. Nothing is ever written to disk.

Sums over the table are reduced by several workers at once: threads of this process share out the parts of a
source that splits, or the chunks of one that does not; workers elsewhere read the parts themselves.
"""

from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from tacit_protocol.arrow_columns import text
from tacit_protocol.domain import (
    ONE_WORKER,
    CategoricalColumn,
    DataError,
    Domain,
    EncodedChunk,
    Reduction,
    Workers,
    encode_categorical,
)
from tacit_protocol.features.cell_counts import CellGrid
from tacit_services.agent.data.encoders import RowEncoders
from tacit_services.agent.data.reader import (
    CHANGED,
    DistinctHashes,
    Hasher,
    Reader,
    TableBounds,
    UnitHasher,
    UnitHashes,
)
from tacit_services.agent.data.source import Columns, GroupsRows, ReadsWithin, Source, Splits, require_columns

Item = TypeVar("Item")


def read_ahead(items: Generator[Item, None, None]) -> Generator[Item, None, None]:
    """Yield the same items in the same order; one more is made in a thread of its own meanwhile.

    Everything that ``items`` does, its clean-up included, happens in that one thread, since a database's
    connection may belong to a thread. Its errors reach the caller at the item that failed.
    """
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="read-ahead") as reader:
        try:
            upcoming = reader.submit(next, items, None)
            while (item := upcoming.result()) is not None:
                upcoming = reader.submit(next, items, None)
                yield item
        finally:
            reader.submit(items.close).result()


PartialT = TypeVar("PartialT")


@dataclass(frozen=True)
class SourcePart:
    """Some rows of a data set; ``first`` is the place of the first of them among all."""

    source: Source
    first: int


@dataclass(frozen=True)
class Read:
    """How many rows and units were read."""

    rows: int
    units: int


@dataclass(frozen=True)
class Result(Generic[PartialT]):
    """What a worker elsewhere sends back: whole numbers that are not private yet."""

    partial: PartialT
    read: Read


@dataclass(frozen=True)
class UnitsTask(Generic[PartialT]):
    """What every pass over a source needs: pass p of ``passes`` sums the units whose hash is p modulo it.

    ``order`` (units,) holds the hashes of all units, ordered, where they have places.
    """

    reduction: Reduction[PartialT]
    reader: Reader
    source: Source
    passes: int
    order: UnitHashes | None


class PartialSums(Generic[PartialT]):
    """Partial results that threads take, add to and put back: as many as are at work at once."""

    def __init__(self, reduction: Reduction[PartialT]) -> None:
        self.reduction = reduction
        self._free: deque[PartialT] = deque()

    def add(self, chunks: Iterable[EncodedChunk]) -> Read:
        """Add chunks to one of the partial results; returns how much was read."""
        try:
            partial = self._free.pop()
        except IndexError:
            partial = self.reduction.start()
        rows = units = 0
        for chunk in chunks:
            self.reduction.add(partial, chunk)
            rows += chunk.rows
            units += chunk.units
        self._free.append(partial)
        return Read(rows, units)

    def take_in(self, partial: PartialT) -> None:
        """Add a partial result from elsewhere."""
        if self._free:
            self.reduction.merge(self._free[0], partial)
        else:
            self._free.append(partial)

    def merged(self) -> PartialT:
        """Return everything that was added; no thread adds any more."""
        total = self._free.popleft() if self._free else self.reduction.start()
        while self._free:
            self.reduction.merge(total, self._free.popleft())
        return total


def reduce_chunk(sums: PartialSums[PartialT], chunk: EncodedChunk) -> Read:
    """Add one chunk, in this process."""
    return sums.add((chunk,))


def reduce_here(shared: tuple[PartialSums[PartialT], Reader], part: SourcePart) -> Read:
    """Read and add one part of a source, in this process."""
    sums, reader = shared
    return sums.add(reader.row_chunks(part.source, part.first))


def reduce_rows(shared: tuple[Reduction[PartialT], Reader], part: SourcePart) -> Result[PartialT]:
    """Read and sum one part of a source, wherever this runs."""
    reduction, reader = shared
    sums = PartialSums(reduction)
    seen = part.source.fingerprint()
    read = sums.add(reader.row_chunks(part.source, part.first))
    _require(part.source.fingerprint() == seen)
    return Result(sums.merged(), read)


def reduce_units(task: UnitsTask[PartialT], number: int) -> Result[PartialT]:
    """Read a source and sum the units of one pass, wherever this runs."""
    sums = PartialSums(task.reduction)
    seen = task.source.fingerprint()
    read = sums.add(task.reader.unit_chunks(task.source, number, task.passes, task.order))
    _require(task.source.fingerprint() == seen)
    return Result(sums.merged(), read)


def distinct_units(reader: Reader, part: SourcePart) -> tuple[int, UnitHashes]:
    """Return the number of rows of a part, and the distinct hashes of their units."""
    rows, distinct = 0, DistinctHashes()
    for hashes in reader.unit_hashes(part.source):
        rows += len(hashes)
        distinct.add(hashes)
    return rows, distinct.ordered()


def _require(unchanged: bool) -> None:
    if not unchanged:
        raise DataError(CHANGED)


PARTS_PER_WORKER = 4
"""Parts that each worker reads, of a source that splits: none waits long for the last one."""


class SourceTable:
    """A source encoded in a study's domain; implements :class:`~tacit_protocol.domain.Table`.

    ``ordered`` gives units their places in the order of their hashes, for a ``hasher`` that two owners share.
    Eight bytes for each unit are then kept. ``workers`` compute the sums over the table. ``draw`` (64 bits)
    draws one row of every unit; None keeps all of them. ``encoders`` make
    columns of the domain of others of the source.

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
        workers: Workers = ONE_WORKER,
        draw: int | None = None,
        encoders: RowEncoders = RowEncoders(()),  # noqa: B008 (frozen)
    ):
        bounds = bounds or TableBounds()
        # Sources without buffers of their own say nothing of them.
        self._source = source.reading_within(bounds.read_bytes) if isinstance(source, ReadsWithin) else source
        self._unit_column = unit_column
        self._reader = Reader(domain, unit_column, bounds, hasher or UnitHasher(), draw, encoders)
        # Elsewhere another kind of processor may round otherwise; which one a row comes to, others decide.
        self.workers = workers if workers.in_process or not encoders.encoders else ONE_WORKER
        require_columns(source, self._reader.columns.names)
        self._fingerprint = source.fingerprint()
        self._count: Read | None = None
        self._ordered, self._order = ordered, np.empty(0, dtype=np.uint64)

    @property
    def domain(self) -> Domain:
        """The domain the chunks are encoded in."""
        return self._reader.domain

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

    def require_readable(self) -> None:
        """Raise DataError where types of columns, or a file of an encoder, keep every row from being read.

        No row is read.
        """
        self._reader.require_readable(self._source)

    def _counted(self) -> Read:
        if self._count is None:
            self._require_unchanged()
            self._count = self._count_units() if self._unit_column is not None else self._count_rows()
            self._require_unchanged()
            if self._count.rows == 0:
                raise DataError("the data set has no rows")
        return self._count

    def _count_rows(self) -> Read:
        rows = self._source.rows()
        if rows is None:
            rows = sum(batch.num_rows for batch in self._reader.batches(self._source, Columns()))
        return Read(rows, rows)

    def _count_units(self) -> Read:
        rows, distinct = 0, DistinctHashes()
        for found, hashes in self.workers.map(distinct_units, self._reader, self._parts()):
            rows += found
            distinct.add(hashes)
        if self._ordered:
            self._order = distinct.ordered()
        return Read(rows, distinct.count())

    def _parts(self) -> Sequence[SourcePart]:
        """Return parts of the source that hold the rows in order; one where it does not split."""
        wanted = PARTS_PER_WORKER * self.workers.count
        # One worker reads on, and needs no part of its own.
        if wanted == PARTS_PER_WORKER or not isinstance(self._source, Splits):
            return [SourcePart(self._source, 0)]
        parts, first = [], 0
        for source in self._source.split(wanted):
            parts.append(SourcePart(source, first))
            first += source.rows() or 0
        return parts

    def _require_unchanged(self) -> None:
        if self._source.fingerprint() != self._fingerprint:
            raise DataError(CHANGED)

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
        batches = groups.grouped(grid.names, self._reader.chunk_rows)
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
        for chunk in read_ahead(self._chunks(expected.rows)):
            rows += chunk.rows
            units += chunk.units
            yield chunk
        self._require_expected([Read(rows, units)], expected)

    def _chunks(self, rows: int) -> Generator[EncodedChunk, None, None]:
        self._require_unchanged()
        if self._unit_column is None:
            yield from self._reader.row_chunks(self._source, 0)
        else:
            passes = self._reader.passes(rows)
            order = self._order if self._ordered else None
            for part in range(passes):
                yield from self._reader.unit_chunks(self._source, part, passes, order)
        self._require_unchanged()

    def reduce(self, reduction: Reduction[PartialT]) -> PartialT:
        """Return the reduction of all chunks, computed by the table's workers.

        Raises:
            DataError: the rows cannot be read, or changed since they were counted.
            WorkersUnavailableError: the workers cannot compute now.
        """
        expected = self._counted()
        parts = self._parts() if self._unit_column is None else []
        if not self.workers.in_process:
            return self._reduce_elsewhere(reduction, parts, expected)
        sums = PartialSums(reduction)
        if len(parts) > 1:
            self._require_unchanged()
            shared = sums, self._reader
            found = list(self.workers.map(reduce_here, shared, parts))
            self._require_unchanged()
        else:
            found = list(self.workers.map(reduce_chunk, sums, self.chunks()))
        self._require_expected(found, expected)
        return sums.merged()

    def _reduce_elsewhere(
        self, reduction: Reduction[PartialT], parts: Sequence[SourcePart], expected: Read
    ) -> PartialT:
        self._require_unchanged()
        sums = PartialSums(reduction)
        if self._unit_column is None:
            results = self.workers.map(reduce_rows, (reduction, self._reader), parts)
        else:
            passes = self._reader.passes(expected.rows)
            units = UnitsTask(
                reduction, self._reader, self._source, passes, self._order if self._ordered else None
            )
            results = self.workers.map(reduce_units, units, range(passes))
        found = []
        for result in results:
            sums.take_in(result.partial)
            found.append(result.read)
        self._require_unchanged()
        self._require_expected(found, expected)
        return sums.merged()

    def _require_expected(self, found: Sequence[Read], expected: Read) -> None:
        rows, units = sum(read.rows for read in found), sum(read.units for read in found)
        handed_out = expected.rows if self._reader.draw is None else expected.units
        if (rows, units) != (handed_out, expected.units):
            raise DataError(CHANGED)
