"""Rows of a source encoded in a domain, chunk by chunk and unit by unit, wherever they are read.

A reader is picklable: it goes to whoever reads a part of the data, with the key that hashes units. A privacy
unit is known by a 64-bit hash of its column's value.
"""

import hashlib
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tacit_protocol.arrow_columns import UNDECODED, is_bytes, numbers, text
from tacit_protocol.domain import ONE_WORKER, DataError, Domain, EncodedChunk, RawColumn, Workers, encode
from tacit_protocol.messages.alignment import AlignmentError, UnitKey, canonical_id
from tacit_services.agent.data.encoders import EncodingRun, RowEncoders
from tacit_services.agent.data.source import READ_BYTES, Columns, HasTypes, Source

HASH_BYTES = 8
"""Size of a unit's hash. Among 10^8 units the chance that any two share one is 3e-4; two that did would be
counted, and averaged, as one."""

FLOAT_EXACT_MAX = 2.0**53
"""Whole floating numbers up to this one are distinct integers; larger ones may be several in one."""

UnitHashes = npt.NDArray[np.uint64]


class Hasher(Protocol):
    """Tells units apart by hashes of their ids."""

    def hashes(self, column: pa.Array) -> UnitHashes:
        """Return the hash of each row's unit, (rows,) uint64; raises DataError for ids it cannot take."""


class UnitHasher:
    """Hashes unit values under a key of its own, so that no one can choose values that collide.

    All rows whose unit value is missing hash alike, and so belong to one unit. Were each its own unit, a
    person with many such rows would weigh as many units, and replacing that one person would change more
    than the privacy bound allows; dropped, the number of units would depend on them.
    """

    def __init__(self, key: bytes | None = None):
        self._key = secrets.token_bytes(16) if key is None else key
        self._offset = np.uint64(int.from_bytes(self._digest(b"integer"), "little"))
        self._missing = np.uint64(int.from_bytes(self._digest(b"missing"), "little"))

    def _digest(self, value: bytes) -> bytes:
        return hashlib.blake2b(value, digest_size=HASH_BYTES, key=self._key).digest()

    def hashes(self, column: pa.Array) -> UnitHashes:
        """Return the hash of each row's unit, (rows,) uint64; a whole floating number's is the integer's.

        One missing value in a column of integers, or in one of a data set's files, is often what made it
        floating.
        """
        if pa.types.is_integer(column.type):
            return self._of_integers(column)
        if pa.types.is_floating(column.type):
            return self._of_floats(column)
        return self._of_texts(column)

    def _of_texts(self, column: pa.Array) -> UnitHashes:
        values = text(column)
        known = [
            self._missing
            if value is None
            else np.uint64(int.from_bytes(self._digest(b"text:" + value.encode(errors=UNDECODED)), "little"))
            for value in values.distinct
        ]
        # The last place is what an index of -1, a missing value, reaches.
        return np.array([*known, self._missing], dtype=np.uint64)[values.indices]

    def _of_integers(self, column: pa.Array) -> UnitHashes:
        present = column.cast(pa.int64(), safe=False).fill_null(0)
        scattered = mixed(present.to_numpy(zero_copy_only=False).view(np.uint64) + self._offset)
        if column.null_count:
            scattered[column.is_null().to_numpy(zero_copy_only=False)] = self._missing
        return scattered

    def _of_floats(self, column: pa.Array) -> UnitHashes:
        values = numbers("", column)
        whole = (np.abs(values) <= FLOAT_EXACT_MAX) & (values == np.rint(values))
        integers = np.where(whole, values, 0).astype(np.int64)
        return np.where(whole, self._of_integers(pa.array(integers)), self._of_texts(column))


def row_draw(seed: str, owner: str) -> int:
    """Return the 64 bits by which one row of each of an owner's units is drawn, in a study of that seed.

    Owners draw apart: the same place among both owners' rows would relate what they hold through its order.
    """
    drawn = hashlib.blake2b(owner.encode(), digest_size=HASH_BYTES, key=bytes.fromhex(seed)).digest()
    return int.from_bytes(drawn, "little")


def mixed(values: UnitHashes) -> UnitHashes:
    """Scatter whole numbers, (n,), over 64 bits without collisions: splitmix64's finaliser, a bijection."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class DistinctHashes:
    """Counts distinct hashes in a stream, at eight bytes each (and twice that while it merges).

    Nothing is merged before more than ``unmerged_max`` are pending.
    """

    def __init__(self, unmerged_max: int = 1_000_000) -> None:
        self._unmerged_max = unmerged_max
        self._merged: UnitHashes = np.empty(0, dtype=np.uint64)
        self._pending: list[UnitHashes] = []
        self._pending_count = 0

    def add(self, hashes: UnitHashes) -> None:
        """Take in one batch of hashes."""
        distinct = np.unique(hashes)
        self._pending.append(distinct)
        self._pending_count += len(distinct)
        # Merging only once as much is pending as is merged keeps the whole count near n log n.
        if self._pending_count > max(len(self._merged), self._unmerged_max):
            self._merge()

    def _merge(self) -> None:
        self._merged = np.unique(np.concatenate([self._merged, *self._pending]))
        self._pending, self._pending_count = [], 0

    def count(self) -> int:
        """Return the number of distinct hashes so far."""
        self._merge()
        return len(self._merged)

    def ordered(self) -> UnitHashes:
        """Return the distinct hashes so far, (units,), in their order."""
        self._merge()
        return self._merged


NOT_ALIGNED = "the data set cannot be aligned"
WRONG_KIND = f"{NOT_ALIGNED}: ids are text or whole numbers"

DECIMAL_DIGITS = 76
"""Most digits of an Arrow decimal."""


class AlignedUnits:
    """Hashes ids under the key that two owners share.

    A missing id is refused: it would be a unit of its own kind at either owner, and match any other one.
    """

    def __init__(self, key: UnitKey):
        self.key = key

    def hashes(self, column: pa.Array) -> UnitHashes:
        """Return the hash of each row's unit, (rows,) uint64.

        Raises:
            DataError: a row has no id, or one that cannot be compared.
        """
        values = text(_readable(column))
        try:
            ids = [None if value is None else canonical_id(value) for value in values.distinct]
        except AlignmentError as error:
            raise DataError(f"{NOT_ALIGNED}: {error}") from None
        # An index of -1, a missing value, reaches the last place.
        present = np.array([*(known is not None for known in ids), False])
        if not present[values.indices].all():
            raise DataError(f"{NOT_ALIGNED}: a row has no id")
        return self.key.hashes(known or "" for known in ids)[values.indices]


def _readable(column: pa.Array) -> pa.Array:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_integer(column.type):
        coded = column.dictionary_encode()
        return pa.DictionaryArray.from_arrays(coded.indices, coded.dictionary.cast(pa.string()))
    if pa.types.is_decimal(kind):
        return _whole_decimals(column)
    if pa.types.is_floating(kind):
        _require_whole(column)
    elif pa.types.is_boolean(kind) or pa.types.is_nested(kind) or is_bytes(kind):
        raise DataError(WRONG_KIND)
    return column


def _whole_decimals(column: pa.Array) -> pa.Array:
    try:
        return column.cast(pa.decimal256(DECIMAL_DIGITS, 0))
    except pa.ArrowInvalid:
        raise DataError(WRONG_KIND) from None


def _require_whole(column: pa.Array) -> None:
    values = column.cast(pa.float64()).drop_null().to_numpy(zero_copy_only=False)
    known = values[~np.isnan(values)]
    if (np.abs(known) > FLOAT_EXACT_MAX).any() or (known != np.rint(known)).any():
        raise DataError(WRONG_KIND)


CHUNK_BYTES = 8 * 1024 * 1024
"""Encoded size of a chunk: large enough for matrix products, small enough for the processor's cache."""

CHUNK_ROWS_MAX = 65_536
"""Most rows of a chunk: a procedure holds arrays of (rows, features), whatever the number of columns."""

PART_BYTES = 64 * 1024 * 1024
"""Encoded size of the units held at once when units own several rows."""


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

    def add(self, chunk: EncodedChunk, hashes: UnitHashes) -> None:
        self.chunks.append(chunk)
        self.hashes.append(hashes)


@dataclass(frozen=True)
class Reader:
    """How a source's rows are read: the domain they are encoded in, their units, the memory they may take.

    ``draw`` (64 bits) draws one row of every unit, which is then all there is of it; None keeps all rows.
    ``encoders`` make columns of the domain that the source has not.
    """

    domain: Domain
    unit_column: str | None
    bounds: TableBounds
    hasher: Hasher
    draw: int | None = None
    encoders: RowEncoders = RowEncoders(())  # noqa: RUF009 (frozen)

    def batches(self, source: Source, columns: Columns) -> Iterator[pa.RecordBatch]:
        """Yield a source's rows with the named columns; no batch is empty."""
        for batch in source.batches(columns, self.chunk_rows):
            if batch.num_rows:
                yield batch

    @property
    def chunk_rows(self) -> int:
        """Most rows of a chunk."""
        rows = self.bounds.chunk_bytes // (self._row_bytes + self.encoders.row_bytes)
        return max(1, min(rows, self.bounds.chunk_rows_max))

    def require_readable(self, source: Source) -> None:
        """Raise DataError where types of columns, or a file of an encoder, keep every row from being read."""
        with self.encoders.running() as run:
            if isinstance(source, HasTypes):
                self._encode(source.no_rows(self.columns), run)

    def row_chunks(self, source: Source, first: int) -> Iterator[EncodedChunk]:
        """Yield a source's rows, each a unit; their places count from ``first``."""
        with self.encoders.running() as run:
            for batch in self.batches(source, self.columns):
                positions = np.arange(first, first + batch.num_rows, dtype=np.int64)
                first += batch.num_rows
                yield self._encode(batch, run, positions)

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
        with self.encoders.running() as run:
            for batch in self.batches(source, self.columns):
                hashes = self.hasher.hashes(batch.column(self._unit))
                keep = hashes % np.uint64(parts) == part
                if keep.any():
                    # No row is encoded in more than one pass.
                    gathered.add(self._encode(batch.filter(pa.array(keep)), run), hashes[keep])
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

    @property
    def columns(self) -> Columns:
        """The columns of the source that are read."""
        unit = () if self.unit_column is None else (self.unit_column,)
        return self.encoders.columns(
            tuple(column.name for column in self.domain.numeric if column.name not in self.encoders.made),
            tuple(column.name for column in self.domain.categorical) + unit,
            self.unit_column,
        )

    def _encode(
        self, batch: pa.RecordBatch, run: EncodingRun, positions: npt.NDArray[np.int64] | None = None
    ) -> EncodedChunk:
        raw: dict[str, RawColumn] = dict(run.made_of(batch))
        for numeric in self.domain.numeric:
            if numeric.name in raw:
                continue
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
