"""Parquet files, streamed row group by row group with pyarrow; only the columns used are read."""

import copy
import itertools
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tacit_services.agent.data.arrow_columns import is_text
from tacit_services.agent.data.source import READ_BYTES, REPLACED, Columns, DataError, Run, file_state

DAMAGED = "the Parquet file cannot be read; it may be damaged"

VALUE_BYTES_MAX = 4096
"""Largest mean size of a column's values in a row group, from the footer: numbers and categories take less; a
few thousand huge ones could fill the memory from a small file."""

CHUNK_BYTES_FREE = 2**24
"""Column chunks up to this size are read whatever their values."""

BUFFER_BYTES_MIN, BUFFER_BYTES_MAX = 16 * 1024, 256 * 1024
"""Read buffer of a column: a row group of any size is decoded without being held in memory. Less makes reads
too small, more makes them no faster."""

BUFFER_SHARE = 4
"""Buffers take this part of the memory for reading: pages and dictionaries, decoded, take more."""


class ParquetSource:
    """One Parquet file. Integers, logical values and text may serve as categories or as numbers.

    Args:
        path: the file, or an open one that seeks.
    """

    def __init__(self, path: Path | pa.NativeFile):
        self._path = path
        self._run: Run | None = None
        self._read_bytes = READ_BYTES

    def decryption(self) -> Any:
        """Return the properties that decrypt the file; None where it is not encrypted."""
        return None

    def reading_within(self, bytes_max: int) -> Self:
        """Return the same source, whose buffers take a part of this memory."""
        source = copy.copy(self)
        source._read_bytes = bytes_max
        return source

    def _open(
        self, text: tuple[str, ...] = (), columns: int = 1, metadata: pq.FileMetaData | None = None
    ) -> pq.ParquetFile:
        """Open the file; text columns stay dictionaries, as which one long text is held once, not per row.

        With ``metadata`` the footer is not read again.
        """
        try:
            return pq.ParquetFile(
                self._path,
                metadata=metadata,
                buffer_size=buffer_bytes(self._read_bytes, columns),
                pre_buffer=False,
                read_dictionary=list(text) or None,
                decryption_properties=self.decryption(),
            )
        except (OSError, KeyError, UnicodeDecodeError, pa.ArrowException):
            raise DataError("the Parquet file is missing or its footer cannot be read") from None

    def column_names(self) -> tuple[str, ...]:
        """Return the names in the file's schema."""
        with self._open() as file, damage_refused():
            return tuple(file.schema_arrow.names)

    def fingerprint(self) -> Hashable:
        """Return the file's size and modification time."""
        return file_state(self._path)

    def metadata(self) -> pq.FileMetaData:
        """Return what the footer says."""
        with self._open() as file:
            return file.metadata

    def footer(self) -> tuple[pq.FileMetaData, pa.Schema]:
        """Return what the footer says, and its columns' types."""
        with self._open() as file, damage_refused():
            return file.metadata, file.schema_arrow

    def rows(self) -> int:
        """Return the number of rows, which the footer tells."""
        return int(self.metadata().num_rows) if self._run is None else self._run.rows

    def split(self, parts: int) -> Sequence[Self]:
        """Return sources of contiguous row groups, about equal in rows; an open file cannot be cut."""
        if not isinstance(self._path, Path):
            return [self]
        sizes = group_rows(self.metadata())
        first, stop = (0, len(sizes)) if self._run is None else (self._run.first, self._run.stop)
        return [
            self.row_groups(first + start, first + end, sum(sizes[first + start : first + end]))
            for start, end in balanced_runs(sizes[first:stop], parts)
        ] or [self]

    def row_groups(self, first: int, stop: int, rows: int) -> Self:
        """Return the source of a run of row groups that has so many rows, up to but without ``stop``."""
        part = copy.copy(self)
        if isinstance(self._path, Path):
            part._path = self._path.absolute()
        part._run = Run(first, stop, rows)
        return part

    def batches(self, columns: Columns, rows_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the named columns, at most ``rows_max`` at a time."""
        metadata, schema = self.footer()
        groups = self._groups(metadata)
        _require_small_values(metadata, groups, columns)
        strings = {field.name for field in schema if is_text(field.type)}
        kept = tuple(name for name in columns.names if name in strings)
        # What decrypts the pages of an encrypted file comes with its footer.
        known = metadata if self.decryption() is None else None
        with self._open(kept, len(columns.names), known) as file, damage_refused():
            # One thread: the table reads ahead in a thread of its own, and a procedure needs the others.
            for batch in file.iter_batches(
                batch_size=rows_max, row_groups=groups, columns=list(columns.names), use_threads=False
            ):
                _require_places_in_dictionaries(batch)
                yield batch

    def _groups(self, metadata: pq.FileMetaData) -> list[int]:
        """Return the row groups to read; raises DataError where the file is another than was cut."""
        if self._run is None:
            return list(range(metadata.num_row_groups))
        sizes = group_rows(metadata)[self._run.first : self._run.stop]
        if len(sizes) != self._run.stop - self._run.first or sum(sizes) != self._run.rows:
            raise DataError(REPLACED)
        return list(range(self._run.first, self._run.stop))


def buffer_bytes(read_bytes: int, columns: int) -> int:
    """Return the size of each column's read buffer, for a bound on all memory that reading takes."""
    share = read_bytes // (BUFFER_SHARE * max(1, columns))
    return max(BUFFER_BYTES_MIN, min(share, BUFFER_BYTES_MAX))


def group_rows(metadata: pq.FileMetaData) -> list[int]:
    """Return the number of rows of each row group."""
    with damage_refused():
        return [int(metadata.row_group(group).num_rows) for group in range(metadata.num_row_groups)]


def balanced_runs(sizes: Sequence[int], parts: int) -> list[tuple[int, int]]:
    """Return at most ``parts`` contiguous runs (first, stop) of items, about equal in size; none has size 0.

    ``sizes`` are at least 0. An item belongs to the part that its middle falls into.
    """
    total, parts = sum(sizes), max(1, parts)
    if total == 0:
        return []
    places = [
        min(parts - 1, (2 * end - size) * parts // (2 * total))
        for end, size in zip(itertools.accumulate(sizes), sizes, strict=True)
    ]
    runs = [list(run) for _, run in itertools.groupby(range(len(sizes)), key=lambda index: places[index])]
    return [(run[0], run[-1] + 1) for run in runs if any(sizes[index] for index in run)]


@contextmanager
def damage_refused() -> Iterator[None]:
    """Raise DataError where pyarrow cannot read what it is asked for; names may be no UTF-8."""
    try:
        yield
    except MemoryError:  # Arrow's is one of its own errors, too
        raise
    except (OSError, UnicodeDecodeError, pa.ArrowException):
        raise DataError(DAMAGED) from None


def column_of(chunk: pq.ColumnChunkMetaData) -> str:
    """Return the name of a chunk's column; raises DataError where the footer holds none."""
    with damage_refused():
        return str(chunk.path_in_schema)


def _require_places_in_dictionaries(batch: pa.RecordBatch) -> None:
    """Raise DataError where a place leads out of its column's dictionary: Arrow's reader does not look."""
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            ends = pc.min_max(column.indices).as_py()
            if ends["min"] is not None and not 0 <= ends["min"] <= ends["max"] < len(column.dictionary):
                raise DataError(DAMAGED)


def _require_small_values(metadata: pq.FileMetaData, groups: Sequence[int], columns: Columns) -> None:
    with damage_refused():
        paths = [str(metadata.schema.column(index).path) for index in range(metadata.num_columns)]
    used = [index for index, path in enumerate(paths) if path in columns.names]
    for group in groups:
        for index in used:
            chunk = metadata.row_group(group).column(index)
            if (
                chunk.total_uncompressed_size > CHUNK_BYTES_FREE
                and chunk.total_uncompressed_size > VALUE_BYTES_MAX * chunk.num_values
            ):
                raise DataError(
                    "a column of the Parquet file holds values too large for numbers or categories"
                )
