"""What workers do for a table: count units, and sum chunks or parts of a source into partial results."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from tacit_protocol.domain.reduction import Reduction
from tacit_protocol.domain.table import EncodedChunk
from tacit_services.agent.data.reader import CHANGED, Reader
from tacit_services.agent.data.source import DataError, Source
from tacit_services.agent.data.units import DistinctHashes, UnitHashes

PartialT = TypeVar("PartialT")


@dataclass(frozen=True)
class SourcePart:
    """Some rows of a data set; ``first`` is the place of the first of them among all."""

    source: Source
    first: int


@dataclass(frozen=True)
class Read:
    """How much a worker read."""

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
