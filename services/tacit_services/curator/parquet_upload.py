"""Uploaded Parquet files: checked from their own directory before any page of them is read."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from tacit_services.agent.data.parquet_source import ParquetSource, column_of
from tacit_services.curator.incoming import RowShape, UploadRefusedError
from tacit_services.curator.spool import Spool

FOOTER_BYTES_MAX = 8 * 2**20
"""Largest footer, which is read whole and takes thirty times its size in memory. A thousand columns in tens
of row groups take less."""

CHUNK_BYTES_MAX = 256 * 2**20
"""Largest column of one row group once it is decompressed: its values may all lie in one page, which is
decompressed whole. Writers' defaults stay far below."""

MAGIC, TAIL_BYTES = b"PAR1", 8


def require_modest(spool: Spool) -> None:
    """Raise UploadRefusedError where the file is no plain Parquet, or its footer is out of all proportion."""
    spool.seek(max(0, spool.size_bytes - TAIL_BYTES))
    tail = spool.read(TAIL_BYTES)
    if tail[4:] != MAGIC:
        raise UploadRefusedError("the file is not Parquet, is encrypted, or was cut short")
    if int.from_bytes(tail[:4], "little") > min(FOOTER_BYTES_MAX, spool.size_bytes):
        raise UploadRefusedError("the Parquet file's footer is too large: write fewer, larger row groups")


def parquet_batches(spool: Spool, shape: RowShape, rows_max: int) -> Iterator[pa.RecordBatch]:
    """Yield the declared columns of a spooled Parquet file.

    Raises:
        UploadRefusedError: a declared column is not there, or its values are too large.
        DataError: the file is damaged.
    """
    with pa.PythonFile(spool, mode="r") as file:
        source = ParquetSource(file)
        shape.require_present(source.column_names())
        _require_small_chunks(source.metadata(), set(shape.wanted.names))
        yield from source.batches(shape.wanted, rows_max)


def _require_small_chunks(metadata: pq.FileMetaData, names: set[str]) -> None:
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index in range(metadata.num_columns):
            chunk = row_group.column(index)
            if column_of(chunk) in names and chunk.total_uncompressed_size > CHUNK_BYTES_MAX:
                raise UploadRefusedError("a row group of the Parquet file is too large: write smaller ones")
