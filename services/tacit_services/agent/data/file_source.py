"""Files of spreadsheets and statistics packages: Excel by openpyxl, SPSS, Stata and SAS by pyreadstat.

What holds for CSV holds here: a row is a row, whatever it holds, each value is read by itself, and what
cannot be read is missing. Only what is wrong with a file as a whole is an error. Both libraries are extras
(``tacit[files]``). docs/how-to/databases-and-files.md.
"""

import codecs
import copy
import datetime
import io
import re
import warnings
import zipfile
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tacit_protocol.arrow_columns import UNDECODED, text_of
from tacit_protocol.domain import DataError
from tacit_services.agent.data.regular_files import FileState, OpenedFile, file_state, opened
from tacit_services.agent.data.source import LONG_CHARACTERS, READ_BYTES, Columns, installed
from tacit_services.agent.data.sql_source import VALUE_BYTES, batch_of

NOT_READ = "the file cannot be read: it is damaged, has a password, or is not of the kind that its name says"

SHEET_ROWS_MAX = 2**20
"""Most rows of a sheet, its header among them: Excel's own limit."""

ROW_BYTES_MAX = 4 * 2**20
"""Most bytes of a sheet between the ends of two rows."""

PART_BYTES_MAX, PART_TAGS_MAX = 32 * 2**20, 2_000_000
"""Most bytes and tags of every other part, such as the texts that cells share: these are held whole."""

TOO_LARGE = "the file's texts or rows are too large to be read within memory: write it as CSV or Parquet"

BATCH_BYTES = 8 * 2**20
"""How much text a batch of a sheet's rows holds."""

SHEET_ERRORS = {"#DIV/0!", "#N/A", "#NAME?", "#NULL!", "#NUM!", "#REF!", "#VALUE!", "#SPILL!", "#CALC!"}
"""What a cell holds in the place of a value that a formula could not make."""

EXCEL = (".xlsx", ".xlsm")


class ExcelSource:
    """The rows of one sheet below its first row, which holds the names of the columns.

    A row that the file leaves out, since all its cells are empty, is there, unless it is behind the last that
    the file holds. A formula has the value that it had when the file was saved.

    Args:
        path: an ``.xlsx`` or ``.xlsm`` file.
        sheet: the sheet's name; None for the first one.
    """

    def __init__(self, path: Path, sheet: str | None = None):
        self._path = path
        self._sheet = sheet

    def column_names(self) -> tuple[str, ...]:
        """Return the texts of the sheet's first row, up to the last one that is not empty."""
        with closing(self._rows()) as rows:
            header = next(rows, {})
        names = [text_of(header.get(place)) or "" for place in range(1, max(header, default=0) + 1)]
        while names and not names[-1]:
            names.pop()
        return tuple(names)

    def fingerprint(self) -> FileState:
        """Return the file's size and modification time."""
        return file_state(self._path)

    def rows(self) -> None:
        """Return None: a sheet has to be read to be counted."""

    def batches(self, columns: Columns, rows_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the named columns, at most ``rows_max`` at a time."""
        header = self.column_names()
        names = columns if columns.names else Columns(text=header[:1])
        places = [header.index(name) + 1 for name in names.names]
        unit = names.names.index(columns.unit) if columns.unit is not None else None
        held: list[list[object]] = []
        size = 0
        with closing(self._rows()) as rows:
            next(rows, None)
            for cells in rows:
                row = [_cell(cells.get(place)) for place in places]
                row = [_cut(value) if place != unit else value for place, value in enumerate(row)]
                held.append(row)
                size += VALUE_BYTES * len(row) + sum(len(value) for value in row if isinstance(value, str))
                if len(held) == rows_max or size >= BATCH_BYTES:
                    yield batch_of(names, held)
                    held, size = [], 0
        if held:
            yield batch_of(names, held)

    def _rows(self) -> Generator[Mapping[int, object], None, None]:
        """Yield every row's cells, by column from 1; a row that is left out has none."""
        count = 0
        with self._open() as (parser, guard):
            for number, cells in parser.parse():
                guard.passed = 0
                parser.row_dimensions.clear()
                left_out = max(0, number - count - 1)
                count += left_out + 1
                if count > SHEET_ROWS_MAX:
                    raise DataError(TOO_LARGE)
                for _ in range(left_out):
                    yield {}
                yield {cell["column"]: cell["value"] for cell in cells}

    @contextmanager
    def _open(self) -> Iterator[tuple[Any, "_Guard"]]:
        """Open the sheet by openpyxl's own parts, each of which is read within a bound.

        ``load_workbook`` reads ahead in every sheet, whatever lies there.
        """
        try:
            from openpyxl.reader.excel import ExcelReader  # noqa: PLC0415 (an extra)
            from openpyxl.styles.stylesheet import apply_stylesheet  # noqa: PLC0415
            from openpyxl.worksheet._reader import WorkSheetParser  # noqa: PLC0415
        except ImportError:
            raise DataError(installed("openpyxl", "files")) from None
        # Its warnings quote cells.
        warnings.filterwarnings("ignore", module=r"openpyxl\b.*")
        try:
            with opened(self._path) as file, file.stream() as stream, _Archive(stream) as archive:
                book = ExcelReader(stream, read_only=True, data_only=True, keep_links=False)
                book.archive.close()
                book.archive = archive
                book.read_manifest()
                book.read_strings()
                book.read_workbook()
                apply_stylesheet(archive, book.wb)
                sheets = book.parser.find_sheets()
                found = {one.name: rel.target for one, rel in sheets if "chartsheet" not in rel.Type}
                with archive.sheet(found, self._sheet) as guard:
                    yield (
                        WorkSheetParser(
                            guard,
                            book.shared_strings,
                            data_only=True,
                            epoch=book.wb.epoch,
                            date_formats=book.wb._date_formats,
                            timedelta_formats=book.wb._timedelta_formats,
                        ),
                        guard,
                    )
        except DataError:
            raise
        # What a library stumbles on in a file that no spreadsheet wrote: its own words may quote it.
        except Exception:
            raise DataError(NOT_READ) from None


class _Archive(zipfile.ZipFile):
    """A workbook's parts, none of which is larger than may be held whole, but for the sheet that is read."""

    def open(self, name: str | zipfile.ZipInfo, *args: Any, **options: Any) -> IO[bytes]:
        """Return a part, whole. Raises DataError: it is too large."""
        size = (name if isinstance(name, zipfile.ZipInfo) else self.getinfo(name)).file_size
        if size > PART_BYTES_MAX:
            raise DataError(TOO_LARGE)
        with super().open(name, *args, **options) as part:
            content = part.read()
        if content.count(b"<") > PART_TAGS_MAX:
            raise DataError(TOO_LARGE)
        if b"<!DOCTYPE" in content:
            raise DataError(NOT_READ)
        return io.BytesIO(content)

    @contextmanager
    def sheet(self, found: Mapping[str, str], name: str | None) -> Iterator["_Guard"]:
        """Open a sheet as a stream."""
        if name is not None and name not in found:
            raise DataError("the workbook has no sheet of that name: correct sheet")
        target = found[name] if name is not None else next(iter(found.values()))
        with super().open(target) as stream:
            yield _Guard(stream)


class _Guard:
    """A sheet's bytes, of which no more than so many may come between two rows."""

    def __init__(self, stream: IO[bytes]):
        self._stream = stream
        self.passed = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes. Raises DataError: a row has too many."""
        piece = self._stream.read(size if size > 0 else ROW_BYTES_MAX)
        if self.passed == 0 and b"<!DOCTYPE" in piece:
            raise DataError(NOT_READ)
        self.passed += len(piece)
        if self.passed > ROW_BYTES_MAX:
            raise DataError(TOO_LARGE)
        return piece


def _cell(value: object) -> object:
    return None if isinstance(value, str) and (not value or value in SHEET_ERRORS) else value


def _cut(value: object) -> object:
    return value[:LONG_CHARACTERS] if isinstance(value, str) else value


WITHOUT_AN_END = (
    "a SAS transport file of version 5 with columns of text alone does not tell empty rows at its end from "
    "none: save it in version 8, or add a column of numbers"
)
"""A row would be there or not for what it holds."""

READERS = {
    ".sav": "read_sav",
    ".zsav": "read_sav",
    ".dta": "read_dta",
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}
"""pyreadstat's function for each kind of file."""

_BYTES = "LATIN1"
"""The encoding that has a character for every byte. In any other one text that does not decode would end the
reading of all rows."""

_EPOCHS = {".sav": datetime.date(1582, 10, 14), ".zsav": datetime.date(1582, 10, 14)}
"""Day 0 of SPSS; of the others it is the first one of 1960."""

_UNIX_DAY = datetime.date(1970, 1, 1)
_DAY_S = 86_400

_DATES = re.compile(
    r"[AEJS]?DATE\d*|(DD|MM|YY)(MM|DD|YY)(DD|MM|YY)(YY)?[BCDNPS]?\d*|E8601DA\d*|B8601DA\d*"
    r"|(NL|IS8601|WEEK)DATE\w*|%-?(t?d).*",
    re.IGNORECASE,
)
_MOMENTS = re.compile(
    r"DATETIME\d*(\.\d+)?|YMDHMS\d*(\.\d+)?|[EB]8601DT\d*(\.\d+)?|%-?t[cC].*", re.IGNORECASE
)
"""Formats of variables whose numbers are days, or moments; in SPSS both count seconds."""


class StatisticsSource:
    """The rows of a file of SPSS, Stata or SAS.

    A number that the file declares missing (SPSS's user-missing values, Stata's ``.a``, SAS's ``.A``) is
    missing. A date is a category in ISO form, and refused as a number.

    Args:
        path: a ``.sav``, ``.zsav``, ``.dta``, ``.sas7bdat`` or ``.xpt`` file.
        value_labels: whether categories are the labels of values that have one; otherwise the values.
    """

    def __init__(self, path: Path, *, value_labels: bool = False):
        self._path = path
        self._value_labels = value_labels
        self._read_bytes = READ_BYTES
        self._described: tuple[FileState, Any] | None = None

    def reading_within(self, bytes_max: int) -> Self:
        """Return the same source, of which about this many bytes are read at a time."""
        source = copy.copy(self)
        source._read_bytes = bytes_max
        return source

    def column_names(self) -> tuple[str, ...]:
        """Return the names of the file's variables."""
        return tuple(name or "" for name in self._metadata().column_names)

    def fingerprint(self) -> FileState:
        """Return the file's size and modification time."""
        return file_state(self._path)

    def rows(self) -> int | None:
        """Return the number of rows that the file states; None where it states none."""
        stated = self._metadata().number_rows
        return None if stated is None or stated < 0 else int(stated)

    def _metadata(self) -> Any:
        with opened(self._path) as file:
            if self._described is None or self._described[0] != file.state:
                described = self._read(file, metadataonly=True)[1]
                kinds = set(described.readstat_variable_types.values())
                if self._path.suffix == ".xpt" and kinds == {"string"} and not _is_of_version_8(file):
                    raise DataError(WITHOUT_AN_END)
                self._described = file.state, described
            return self._described[1]

    def _read(self, file: OpenedFile, **options: Any) -> tuple[Mapping[str, Sequence[Any]], Any]:
        try:
            import pyreadstat  # noqa: PLC0415 (an extra)
        except ImportError:
            raise DataError(installed("pyreadstat", "files")) from None
        try:
            read = getattr(pyreadstat, READERS[self._path.suffix])
            values, described = read(
                file.name, output_format="dict", disable_datetime_conversion=True, **options
            )
        # What it stumbles on, its own words may quote.
        except Exception:
            raise DataError(NOT_READ) from None
        return values, described

    def batches(self, columns: Columns, rows_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the named columns, at most ``rows_max`` at a time."""
        described = self._metadata()
        state = None if self._described is None else self._described[0]
        names = columns if columns.names else Columns(text=tuple(described.column_names[:1]))
        encoding = _codec(described.file_encoding)
        stored = {name.encode(encoding, UNDECODED).decode("latin-1"): name for name in names.names}
        widths = described.variable_storage_width
        row_bytes = sum(VALUE_BYTES + 4 * min(widths.get(name) or 8, 2**16) for name in names.names)
        size, first = max(1, self._read_bytes // row_bytes), 0
        while True:
            with opened(self._path, state) as file:
                found, _ = self._read(
                    file, usecols=list(stored), row_offset=first, row_limit=size, encoding=_BYTES
                )
            values = {stored[name]: column for name, column in found.items() if name in stored}
            if set(values) != set(names.names):
                raise DataError(NOT_READ)
            arrays = [self._column(described, name, values[name], encoding, names) for name in names.names]
            read = len(arrays[0])
            for start in range(0, read, rows_max):
                slices = [array.slice(start, rows_max) for array in arrays]
                yield pa.RecordBatch.from_arrays(slices, names=list(names.names))
            if read < size:
                return
            first += read

    def _column(
        self, described: Any, name: str, values: Sequence[Any], encoding: str, asked: Columns
    ) -> pa.Array:
        form = described.original_variable_types.get(name) or ""
        labels = described.variable_value_labels.get(name) if self._value_labels else None
        if described.readstat_variable_types.get(name) == "string":
            raw = [None if value is None else value.encode("latin-1", "replace") for value in values]
            texts = [None if one is None else one.decode(encoding, UNDECODED) for one in raw]
            if name != asked.unit:
                texts = [None if one is None else one[:LONG_CHARACTERS] for one in texts]
            if labels and name in asked.text:
                texts = [labels.get(one, one) if one is not None else None for one in texts]
            coded = [None if not one else one.encode(errors=UNDECODED) for one in texts]
            return pa.array(coded, pa.binary()).view(pa.string())
        numbers = np.array([np.nan if value is None else value for value in values], dtype=np.float64)
        if _DATES.fullmatch(form) or _MOMENTS.fullmatch(form):
            return self._moments(numbers, form)
        if labels and name in asked.text:
            by_code = {float(code): label for code, label in labels.items()}
            return pa.array(
                [by_code.get(n, text_of(n)) if n == n else None for n in numbers.tolist()],  # noqa: PLR0124
                pa.string(),
            )
        return pa.array(numbers)

    def _moments(self, numbers: npt.NDArray[np.float64], form: str) -> pa.Array:
        """Return days, or moments in microseconds; missing where the year is none of 1 to 9999."""
        kind = self._path.suffix
        epoch = (_EPOCHS.get(kind, datetime.date(1960, 1, 1)) - _UNIX_DAY).days
        in_days = kind not in _EPOCHS and _DATES.fullmatch(form) is not None
        per_second = 1000 if kind == ".dta" and not in_days else 1
        seconds = numbers * _DAY_S if in_days else numbers / per_second
        seconds = seconds + epoch * _DAY_S
        first = (datetime.date.min - _UNIX_DAY).days * _DAY_S
        last = ((datetime.date.max - _UNIX_DAY).days + 1) * _DAY_S
        missing = ~((seconds >= first) & (seconds < last))
        known = np.where(missing, 0.0, seconds)
        if _DATES.fullmatch(form):
            days = np.floor(known / _DAY_S).astype(np.int32)
            return pa.array(days, mask=missing).view(pa.date32())
        return pa.array(np.rint(known * 1e6).astype(np.int64), mask=missing).view(pa.timestamp("us"))


def _is_of_version_8(file: OpenedFile) -> bool:
    with file.stream() as stream:
        return b"LIBV8" in stream.read(80)


def _codec(name: str | None) -> str:
    """Return Python's name of a file's encoding; UTF-8 where the file states none that is known."""
    try:
        return codecs.lookup(name or "utf-8").name
    except LookupError:
        return "utf-8"
