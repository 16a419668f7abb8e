"""Parquet files, streamed row group by row group with pyarrow; only the columns used are read."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tacit_services.agent.data.file_state import FileState, file_state
from tacit_services.agent.data.source import Columns, DataError

READ_AHEAD_BYTES = 256 * 1024
"""Buffer per column: a row group of any size is decoded without being held in memory."""


class ParquetSource:
    """One Parquet file. Integers, logical values and text may serve as categories or as numbers."""

    def __init__(self, path: Path):
        self._path = path

    def _open(self) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(self._path, buffer_size=READ_AHEAD_BYTES, pre_buffer=False)
        except (OSError, pa.ArrowException):
            raise DataError("the Parquet file is missing or its footer cannot be read") from None

    def column_names(self) -> tuple[str, ...]:
        """Return the names in the file's schema."""
        with self._open() as file:
            return tuple(file.schema_arrow.names)

    def fingerprint(self) -> FileState:
        """Return the file's size and modification time."""
        return file_state(self._path)

    def rows(self) -> int:
        """Return the number of rows, which the footer tells."""
        with self._open() as file:
            return int(file.metadata.num_rows)

    def batches(self, columns: Columns, rows_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the named columns, at most ``rows_max`` at a time."""
        with self._open() as file:
            try:
                # One thread: the table reads ahead in a thread of its own, and a procedure needs the others.
                yield from file.iter_batches(
                    batch_size=rows_max, columns=list(columns.names), use_threads=False
                )
            except (OSError, pa.ArrowException):
                raise DataError("the Parquet file cannot be read; it may be damaged") from None
