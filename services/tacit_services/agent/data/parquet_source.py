"""Parquet files, streamed row group by row group with pyarrow; only the columns used are read."""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tacit_services.agent.data.arrow_columns import is_text
from tacit_services.agent.data.file_state import file_state
from tacit_services.agent.data.source import Columns, DataError

DAMAGED = "the Parquet file cannot be read; it may be damaged"

VALUE_BYTES_MAX = 4096
"""Largest mean size of a column's values in a row group, from the footer: numbers and categories take less; a
few thousand huge ones could fill the memory from a small file."""

CHUNK_BYTES_FREE = 2**24
"""Column chunks up to this size are read whatever their values."""

READ_AHEAD_BYTES = 256 * 1024
"""Buffer per column: a row group of any size is decoded without being held in memory."""


class ParquetSource:
    """One Parquet file. Integers, logical values and text may serve as categories or as numbers.

    Args:
        path: the file, or an open one that seeks.
    """

    def __init__(self, path: Path | pa.NativeFile):
        self._path = path

    def decryption(self) -> Any:
        """Return the properties that decrypt the file; None where it is not encrypted."""
        return None

    def _open(self, text: tuple[str, ...] = ()) -> pq.ParquetFile:
        """Open the file; text columns stay dictionaries, as which one long text is held once, not per row."""
        try:
            return pq.ParquetFile(
                self._path,
                buffer_size=READ_AHEAD_BYTES,
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

    def rows(self) -> int:
        """Return the number of rows, which the footer tells."""
        return int(self.metadata().num_rows)

    def batches(self, columns: Columns, rows_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the named columns, at most ``rows_max`` at a time."""
        with self._open() as file, damage_refused():
            strings = [field.name for field in file.schema_arrow if is_text(field.type)]
        with self._open(tuple(name for name in columns.names if name in strings)) as file:
            _require_small_values(file.metadata, columns)
            with damage_refused():
                # One thread: the table reads ahead in a thread of its own, and a procedure needs the others.
                for batch in file.iter_batches(
                    batch_size=rows_max, columns=list(columns.names), use_threads=False
                ):
                    _require_places_in_dictionaries(batch)
                    yield batch


@contextmanager
def damage_refused() -> Iterator[None]:
    """Raise DataError where pyarrow cannot read what it is asked for; names may be no UTF-8."""
    try:
        yield
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


def _require_small_values(metadata: pq.FileMetaData, columns: Columns) -> None:
    for group in range(metadata.num_row_groups):
        for index in range(metadata.num_columns):
            chunk = metadata.row_group(group).column(index)
            if (
                column_of(chunk) in columns.names
                and chunk.total_uncompressed_size > CHUNK_BYTES_FREE
                and chunk.total_uncompressed_size > VALUE_BYTES_MAX * chunk.num_values
            ):
                raise DataError(
                    "a column of the Parquet file holds values too large for numbers or categories"
                )
