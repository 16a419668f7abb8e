"""CSV files, plain or gzip, streamed: cut into records by their line ends, and parsed with pyarrow.

A parser that trusts the rows lets one of them speak for others: a value too many ends the reading, an odd
quote swallows the lines that follow. Here how many records there are is settled first, by line ends alone,
and each is looked at by itself. One that does not have the header's values is a record whose values are all
missing; parsers see it only in that form. docs/security/declines.md.
"""

import csv
import gzip
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv

from tacit_protocol.domain import DataError
from tacit_protocol.public_knowledge import ColumnSchema, header_fault, line_fault
from tacit_services.agent.data.regular_files import FileState, file_state, opened
from tacit_services.agent.data.source import Columns

BLOCK_BYTES = 2 * 1024 * 1024
"""How much of the file is parsed at a time: bounds memory."""

RECORD_BYTES_MAX = BLOCK_BYTES
"""Longest record that is read; a longer one is passed over, and counts as one without values."""

HEADER_BYTES_MAX = 1024 * 1024
"""Longest header line: COLUMNS_MAX names of 128 characters fit several times."""

MISSING = ("", "NA")
"""How a CSV file spells a missing value."""

NO_HEADER = "the CSV file is missing or its header line cannot be read"
NOT_READ = "the CSV file cannot be read"
BROKEN_ROWS = "the CSV file cannot be read: every row needs as many values as the header, in UTF-8"

_UNCHECKED = pa.binary()

_COMMA, _LINE_FEED, _RETURN, _QUOTE = b',\n\r"'

ReadPiece = Callable[[int], bytes]
"""Returns the next bytes, at most so many; none at the end."""


class CsvSource:
    """A CSV file with a header line, in UTF-8; compressed where its name ends in ``.gz``.

    All columns are read as text, so that a category keeps the spelling of the file (``01`` stays ``01``);
    numbers are parsed later, value by value.

    Args:
        path: the file.
        quoted_line_breaks: whether a line end between quotes is part of a value. Otherwise each line is a
            record, whatever quotes it holds.
    """

    def __init__(self, path: Path, *, quoted_line_breaks: bool = False):
        self._path = path
        self._quoted_line_breaks = quoted_line_breaks

    @contextmanager
    def _open(self) -> Iterator[BinaryIO]:
        with opened(self._path) as file, file.stream() as stream:
            if self._path.suffix == ".gz":
                with gzip.open(stream, "rb") as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield stream

    def column_names(self) -> tuple[str, ...]:
        """Return the names in the header line."""
        try:
            with self._open() as stream:
                line = stream.readline(HEADER_BYTES_MAX)
        except (OSError, EOFError, zlib.error):
            raise DataError(NO_HEADER) from None
        return header_names(line)

    def schema(self) -> list[ColumnSchema]:
        """Return the names in the header line; a CSV file tells no types.

        A line that is no header may hold a person's values: nothing of it is repeated.
        """
        names = self.column_names()
        if fault := header_fault(names):
            raise DataError(f"the CSV file: {fault}")
        return [ColumnSchema(name, "unknown") for name in names]

    def fingerprint(self) -> FileState:
        """Return the file's size and modification time."""
        return file_state(self._path)

    def rows(self) -> None:
        """Return None: a CSV file has to be read to be counted."""

    def batches(self, columns: Columns, rows_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows as text columns, at most ``rows_max`` at a time."""
        header = self.column_names()
        names = list(columns.names) or list(header[:1])
        yield from self._read(header, names, rows_max, columns.unit)

    def row_faults(self) -> "RowFaults":
        """Count the records that do not have the header's values, by reading them all. Not public."""
        shape = RecordShape(self.column_names())
        faults = RowFaults(0, 0, 0)
        try:
            with self._open() as stream:
                stream.readline(HEADER_BYTES_MAX)
                for records in records_of(stream.read, self._quoted_line_breaks):
                    faults += shape.faults(records)
        except (OSError, EOFError, zlib.error):
            raise DataError(NOT_READ) from None
        return faults

    def _read(
        self, header: Sequence[str], names: Sequence[str], rows_max: int, unit_column: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        shape = RecordShape(tuple(header))
        try:
            with self._open() as stream:
                stream.readline(HEADER_BYTES_MAX)
                for records in records_of(stream.read, self._quoted_line_breaks):
                    readable, _ = shape.readable(records, unit_column)
                    parsed = shape.parsed(readable, names)
                    for start in range(0, parsed.num_rows, rows_max):
                        yield parsed.slice(start, rows_max)
        except (OSError, EOFError, zlib.error, pa.ArrowException):
            # Arrow's own message may quote the row it stumbled on.
            raise DataError(NOT_READ) from None


def header_names(line: bytes) -> tuple[str, ...]:
    """Return the names in a header line (bytes, with or without the line's end).

    Raises:
        DataError: the line is not UTF-8, or its quotes do not close.
    """
    if fault := line_fault(line):
        raise DataError(f"{NO_HEADER}: {fault}")
    try:
        return tuple(next(csv.reader([line.decode("utf-8-sig")]), ()))
    except csv.Error:
        raise DataError(NO_HEADER) from None


def sound_csv_batches(
    read: ReadPiece, header: Sequence[str], names: Sequence[str], rows_max: int
) -> Iterator[pa.RecordBatch]:
    """Yield the records that follow a header line, the named columns as text; line ends in quotes are values.

    Raises:
        DataError: a record is not as the header says, or its named columns are not UTF-8. Whoever sends a
            file is told so; a study is not the place for it.
    """
    shape = RecordShape(tuple(header))
    for records in records_of(read, quoted_line_breaks=True):
        readable, unreadable = shape.readable(records)
        if unreadable:
            raise DataError(BROKEN_ROWS)
        try:
            parsed = shape.parsed(readable, names, pa.string())  # as which it must be UTF-8
        except pa.ArrowException:
            # Arrow's own message quotes the row it stumbled on.
            raise DataError(BROKEN_ROWS) from None
        for start in range(0, parsed.num_rows, rows_max):
            yield parsed.slice(start, rows_max)


@dataclass(frozen=True)
class CsvRecords:
    """Whole records of a file, one after the other, each with its line end.

    ``ends`` (records,) int64 is the place of each one's last byte, a line feed.
    """

    content: bytes
    ends: npt.NDArray[np.int64]

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The place of each record's first byte, (records,)."""
        return np.concatenate([np.zeros(1, np.int64), self.ends[:-1] + 1])


def records_of(read: ReadPiece, quoted_line_breaks: bool) -> Iterator[CsvRecords]:
    """Cut what ``read`` returns into records: after each line feed, or after each that quotes do not enclose.

    A line feed is enclosed where an odd number of quotes stands before it in its record, as in every file
    that is written by RFC 4180. The last record needs no line end. Each piece of an endless record is
    forgotten; it comes as a record of one quote, which is none that can be read.
    """
    held, too_long = b"", False
    odd = False  # whether the record that has begun holds an odd number of quotes so far
    while True:
        piece = read(BLOCK_BYTES)
        if not piece:
            if (held or too_long) and not (too_long or held.endswith(b"\n")):
                held += b"\n"
            if held or too_long:
                content = b'"\n' if too_long else held
                yield CsvRecords(content, np.array([len(content) - 1]))
            return
        places = _places(piece, _LINE_FEED)
        if quoted_line_breaks:
            quotes = _places(piece, _QUOTE)
            places = places[(np.searchsorted(quotes, places) + odd) % 2 == 0]
            # Quotes behind the last record's end; before it their number is even, with what was held.
            behind = len(quotes) - (int(np.searchsorted(quotes, places[-1])) if len(places) else 0)
            odd = bool((behind + (odd if not len(places) else 0)) % 2)
        if not len(places):
            held = b"" if too_long else held + piece
        else:
            last = int(places[-1]) + 1
            first = int(places[0]) + 1
            if too_long or len(held) + first > RECORD_BYTES_MAX:
                content, ends = b'"\n' + piece[first:last], places - first + 2
            else:
                content, ends = held + piece[:last], places + len(held)
            yield CsvRecords(content, ends)
            held, too_long = piece[last:], False
        if len(held) > RECORD_BYTES_MAX:
            held, too_long = b"", True


def _places(content: bytes, byte: int) -> npt.NDArray[np.int64]:
    return np.flatnonzero(np.frombuffer(content, dtype=np.uint8) == byte)


@dataclass(frozen=True)
class RowFaults:
    """How many records there are, how many without the header's values, and of these with a comma more."""

    rows: int
    unreadable: int
    trailing: int

    def __add__(self, other: "RowFaults") -> "RowFaults":
        """Add up what was counted in two parts of a file."""
        return RowFaults(
            self.rows + other.rows, self.unreadable + other.unreadable, self.trailing + other.trailing
        )


@dataclass(frozen=True)
class RecordShape:
    """What a record looks like: the header's columns."""

    header: tuple[str, ...]

    def readable(self, records: CsvRecords, unit_column: str | None = None) -> tuple[CsvRecords, int]:
        """Return records that every parser cuts into the header's values, and how many were none.

        Records are looked at in bulk, and one by one where quotes are not plainly those of RFC 4180. In place
        of one that cannot be read stands one whose values are missing, but for its unit's: that is the value
        at its place, counted from the left.
        """
        odd = np.flatnonzero(~self._plain(records))
        if not len(odd):
            return records, 0
        pieces: list[bytes] = []
        unreadable, done = 0, 0
        starts, sizes = records.starts, np.diff(records.ends, prepend=-1)
        for index in odd.tolist():
            start, stop = int(starts[index]), int(records.ends[index]) + 1
            record = records.content[start:stop]
            values = self._values(record)
            unreadable += values is None
            written = _written(self._without_values(record, unit_column) if values is None else values)
            pieces += [records.content[done:start], written]
            sizes[index] = len(written)
            done = stop
        return CsvRecords(b"".join([*pieces, records.content[done:]]), np.cumsum(sizes) - 1), unreadable

    def faults(self, records: CsvRecords) -> RowFaults:
        """Count the records, and those that do not have the header's values."""
        unreadable = trailing = 0
        starts = records.starts
        for index in np.flatnonzero(~self._plain(records)).tolist():
            record = records.content[int(starts[index]) : int(records.ends[index]) + 1]
            if self._values(record) is None:
                unreadable += 1
                # Without its last comma, it would be one.
                shorter = _line(record).rstrip(" ").removesuffix(",").encode("latin-1")
                trailing += _line(record).rstrip(" ").endswith(",") and self._values(shorter) is not None
        return RowFaults(len(records.ends), unreadable, trailing)

    def _plain(self, records: CsvRecords) -> npt.NDArray[np.bool_]:
        """Say of which records any parser sees the header's values, (records,)."""
        content = np.frombuffer(records.content, dtype=np.uint8)
        commas = np.flatnonzero(content == _COMMA)
        odd = np.zeros(len(records.ends), dtype=np.bool_)
        if _QUOTE in records.content:
            quotes = np.flatnonzero(content == _QUOTE)
            owner = np.searchsorted(records.ends, quotes)
            first = np.searchsorted(quotes, records.starts)
            opening = (np.arange(len(quotes)) - first[owner]) % 2 == 0
            before = np.append(np.uint8(_LINE_FEED), content)[quotes]  # the byte before each
            after = content[np.minimum(quotes + 1, len(content) - 1)]
            begins = (before == _COMMA) | (before == _QUOTE) | (quotes == records.starts[owner])
            closes = (after == _COMMA) | (after == _QUOTE) | (after == _LINE_FEED) | (after == _RETURN)
            odd[owner[np.where(opening, ~begins, ~closes)]] = True
            odd |= np.diff(np.append(first, len(quotes))) % 2 == 1
            # Commas between quotes are part of a value.
            commas = commas[
                (np.searchsorted(quotes, commas) - first[np.searchsorted(records.ends, commas)]) % 2 == 0
            ]
        if _RETURN in records.content:
            returns = np.flatnonzero(content == _RETURN)
            alone = returns[content[np.minimum(returns + 1, len(content) - 1)] != _LINE_FEED]
            odd[np.searchsorted(records.ends, alone)] = True
        counts = np.diff(np.searchsorted(commas, np.append(records.starts, len(content))))
        plain: npt.NDArray[np.bool_] = ~odd & (counts == len(self.header) - 1)
        return plain

    def _values(self, record: bytes) -> list[str] | None:
        """Return a record's values, one character for each byte; None where they are not the header's."""
        try:
            rows = list(csv.reader([_line(record)], strict=True))
        except csv.Error:
            return None
        values = rows[0] if rows else [""]
        return values if len(values) == len(self.header) and len(rows) <= 1 else None

    def _without_values(self, record: bytes, unit_column: str | None) -> list[str]:
        values = [""] * len(self.header)
        if unit_column is None:
            return values
        place = self.header.index(unit_column)
        try:
            found = next(csv.reader([_line(record)]), [])
        except csv.Error:
            found = _line(record).split(",")
        values[place] = found[place] if place < len(found) else ""
        return values

    def parsed(
        self, records: CsvRecords, names: Sequence[str], kind: pa.DataType = _UNCHECKED
    ) -> pa.RecordBatch:
        """Return the named columns of readable records as text; read as bytes, it may be no UTF-8."""
        places = [str(self.header.index(name)) for name in names]
        batch = parsed_block(
            records.content,
            [str(place) for place in range(len(self.header))],
            dict.fromkeys(places, kind),
            missing=MISSING,
            quoted_missing=True,
        )
        if batch.num_rows != len(records.ends):
            raise DataError(NOT_READ)
        arrays = [batch.column(place).view(pa.string()) for place in places]
        return pa.RecordBatch.from_arrays(arrays, names=list(names))


def _line(record: bytes) -> str:
    return record.removesuffix(b"\n").removesuffix(b"\r").decode("latin-1")


def _written(values: Sequence[str]) -> bytes:
    return (",".join(['"' + value.replace('"', '""') + '"' for value in values]) + "\n").encode("latin-1")


def parsed_block(
    content: bytes,
    names: Sequence[str],
    kept: dict[str, pa.DataType],
    *,
    missing: Sequence[str],
    quoted_missing: bool,
) -> pa.RecordBatch:
    """Return the kept columns of whole rows without a header, in one piece.

    Raises:
        pa.ArrowException: a row has another number of values than there are names.
    """
    table = pa_csv.read_csv(
        pa.BufferReader(content),
        # Its threads would come on top of the workers, and save no time.
        read_options=pa_csv.ReadOptions(
            column_names=list(names), block_size=len(content) + 1, use_threads=False
        ),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pa_csv.ConvertOptions(
            include_columns=list(kept),
            column_types=kept,
            null_values=list(missing),
            strings_can_be_null=True,
            quoted_strings_can_be_null=quoted_missing,
        ),
    )
    (batch,) = table.combine_chunks().to_batches()
    return batch
