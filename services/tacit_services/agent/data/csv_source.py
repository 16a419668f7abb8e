"""CSV files, plain or gzip, streamed with pyarrow."""

import csv
import gzip
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.csv as pa_csv

from tacit_services.agent.data.file_state import FileState, file_state
from tacit_services.agent.data.source import Columns, DataError

BLOCK_BYTES = 2 * 1024 * 1024
"""How much of the file is parsed at a time: bounds memory, and the longest row that can be read."""

HEADER_BYTES_MAX = 1024 * 1024
"""Longest header line: COLUMNS_MAX names of 128 characters fit several times."""

MISSING = ("", "NA")
"""How a CSV file spells a missing value."""

NO_HEADER = "the CSV file is missing or its header line cannot be read"


class CsvSource:
    """A CSV file with a header line, in UTF-8; compressed where its name ends in ``.gz``.

    All columns are read as text, so that a category keeps the spelling of the file (``01`` stays ``01``);
    numbers are parsed later, value by value.
    """

    def __init__(self, path: Path):
        self._path = path

    def _open(self) -> BinaryIO:
        if self._path.suffix == ".gz":
            return cast(BinaryIO, gzip.open(self._path, "rb"))
        return self._path.open("rb")

    def column_names(self) -> tuple[str, ...]:
        """Return the names in the header line."""
        try:
            with self._open() as stream:
                line = stream.readline(HEADER_BYTES_MAX)
        except (OSError, EOFError):
            raise DataError(NO_HEADER) from None
        return header_names(line)

    def fingerprint(self) -> FileState:
        """Return the file's size and modification time."""
        return file_state(self._path)

    def rows(self) -> None:
        """Return None: a CSV file has to be read to be counted."""

    def batches(self, columns: Columns, rows_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows as text columns, at most ``rows_max`` at a time."""
        names = list(columns.names) or list(self.column_names()[:1])
        yield from csv_batches(str(self._path), names, rows_max)


def header_names(line: bytes) -> tuple[str, ...]:
    """Return the names in a header line (bytes, with or without the line's end).

    Raises:
        DataError: the line is not UTF-8, or its quotes do not close.
    """
    try:
        return tuple(next(csv.reader([line.decode("utf-8-sig")]), ()))
    except (UnicodeDecodeError, csv.Error):
        raise DataError(NO_HEADER) from None


def csv_batches(
    file: str | pa.NativeFile,
    names: Sequence[str],
    rows_max: int,
    on_end: Callable[[], None] = lambda: None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a path or an open stream, the named columns as text.

    ``on_end`` is called before the parser is closed, whose own thread may be waiting for a stream.

    Raises:
        DataError: a row has too few or too many values, or the bytes are not UTF-8.
    """
    convert = pa_csv.ConvertOptions(
        include_columns=list(names),
        column_types=dict.fromkeys(names, pa.string()),
        null_values=list(MISSING),
        strings_can_be_null=True,
    )
    try:
        with (
            pa_csv.open_csv(
                file,
                # Its threads would come on top of the workers, and save no time.
                read_options=pa_csv.ReadOptions(block_size=BLOCK_BYTES, use_threads=False),
                parse_options=pa_csv.ParseOptions(newlines_in_values=True),
                convert_options=convert,
            ) as reader,
            _at_end(on_end),
        ):
            for batch in reader:
                for start in range(0, batch.num_rows, rows_max):
                    yield batch.slice(start, rows_max)
    except (OSError, pa.ArrowException):
        # Arrow's own message quotes the row it stumbled on.
        raise DataError(
            "the CSV file cannot be read: every row needs as many values as the header, in UTF-8"
        ) from None


@contextmanager
def _at_end(on_end: Callable[[], None]) -> Iterator[None]:
    try:
        yield
    finally:
        on_end()
