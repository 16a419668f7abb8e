"""Where a data set's rows are, as settings say it, and the source that reads them (docs/data-sources.md)."""

import re
from collections.abc import Collection, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    model_validator,
)
from sqlalchemy.engine import make_url

from tacit_protocol.addresses import is_loopback
from tacit_protocol.domain import ColumnName, DataError
from tacit_protocol.public_knowledge import ColumnSchema
from tacit_services.agent.data.csv_source import CsvSource
from tacit_services.agent.data.file_source import EXCEL, READERS, ExcelSource, StatisticsSource
from tacit_services.agent.data.parquet_source import ParquetFolder, ParquetSource, partition_files
from tacit_services.agent.data.regular_files import opened
from tacit_services.agent.data.source import HasSchema, Source
from tacit_services.agent.data.sql_source import Ranges, SqlSource
from tacit_services.shared.settings import (
    FILE_DATABASES,
    SettingsError,
    resolve_database_url,
)


def is_database(source: str) -> bool:
    """Say whether a setting names a database."""
    return "://" in source


SUFFIXES = (".csv", ".csv.gz", ".parquet", *EXCEL, *READERS)
"""What names of data files end in."""


def open_source(
    source: str,
    query: str | None,
    folder: Path,
    ranges: Ranges | None = None,
    *,
    quoted_line_breaks: bool = False,
    sheet: str | None = None,
    value_labels: bool = False,
) -> Source:
    """Return the source that a setting names.

    ``source`` is a path to a file of a known kind or a folder of Parquet files, relative to ``folder``, or a
    database's URL, which needs a ``query`` and may be cut by ``ranges``. Values of a CSV file hold no line
    breaks unless it is said that they do, between quotes.

    Raises:
        DataError: the setting names no known kind of source.
    """
    if is_database(source):
        if query is None:
            raise DataError("a database source needs a query")
        try:
            return SqlSource(resolve_database_url(source, folder), query, ranges)
        except SettingsError as error:
            raise DataError(str(error)) from None
    if query is not None:
        raise DataError("a file source takes no query")
    path = folder / source
    if source.endswith((".csv", ".csv.gz")):
        return CsvSource(path, quoted_line_breaks=quoted_line_breaks)
    if source.endswith("/") or path.is_dir():
        return ParquetFolder(path)
    if source.endswith(".parquet"):
        return ParquetSource(path)
    if path.suffix in EXCEL:
        return ExcelSource(path, sheet)
    if path.suffix in READERS:
        return StatisticsSource(path, value_labels=value_labels)
    raise DataError(
        "a source is a .csv, .csv.gz, .parquet, .xlsx, .sav, .dta, .sas7bdat or .xpt file, a folder of "
        ".parquet files (is it there?), or a database URL with a query"
    )


PORTS = {"postgresql": 5432, "mysql": 3306, "mssql": 1433, "oracle": 1521}
"""Where databases listen unless told otherwise."""


def database_of(url: str, folder: Path) -> tuple[object, ...]:
    """Return which database a URL leads to: its file, or its server and name."""
    try:
        parsed = make_url(resolve_database_url(url, folder))
    except SettingsError:
        return (url,)
    kind = parsed.get_backend_name().replace("mariadb", "mysql")
    if kind in FILE_DATABASES:
        return kind, _identity(Path(parsed.database or "").resolve())
    host = parsed.query.get("unix_socket") or parsed.query.get("host") or parsed.host or "localhost"
    host = "localhost" if is_loopback(str(host)) else host
    return kind, host, parsed.port or PORTS.get(kind), parsed.database


def share_files(one: Path, other: Path) -> bool:
    """Say whether two real paths are of one file, or one is a folder that holds the other."""
    if one == other or one in other.parents or other in one.parents or _identity(one) == _identity(other):
        return True
    folder, file = (one, other) if one.is_dir() else (other, one)
    try:
        if not folder.is_dir() or not file.is_file() or file.stat().st_nlink < 2:
            return False
        return any(_identity(found.path) == _identity(file) for found in partition_files(folder))
    except (OSError, DataError):
        return False


def _identity(path: Path) -> object:
    """Return what tells a file from others whatever its name is; its path where there is none."""
    try:
        status = path.stat()
    except OSError:
        return path
    return (status.st_dev, status.st_ino) if status.st_ino else path


_SQL_WORD = re.compile(
    r"""(?P<comment>--[^\n]*|/\*.*?\*/) | '(?:[^']|'')*' | "(?:[^"]|"")*" | `[^`]*` | \w+ | [^\w\s]""",
    re.DOTALL | re.VERBOSE,
)


def query_words(query: str) -> list[str]:
    """Return the words and signs of a query, in small letters but for what is quoted, without comments.

    Queries of the same words read the same rows. Queries of other words may as well, which no text tells.
    """
    found = [
        one[0] if one[0][0] in "'\"`" else one[0].lower()
        for one in _SQL_WORD.finditer(query)
        if one["comment"] is None
    ]
    while found[-1:] == [";"]:
        found.pop()
    return found


CONCEPTS_MAX = 10_000
"""Most numbers in a set of concepts."""

_CONCEPT_SET = re.compile(r"\(\s*:([a-z][a-z0-9_]*)\s*\)")
"""A set in a query, in the brackets of IN."""


def filled_in(query: str, concepts: Mapping[str, Collection[int]]) -> str:
    """Return a query with the numbers of each set of concepts in the place of its name.

    Raises:
        DataError: the query names a set that is not there, or a set is not in the query.
    """
    named = set(_CONCEPT_SET.findall(query))
    if absent := sorted(named - set(concepts)):
        raise DataError(f"concepts lacks the set {absent[0]!r} that the query names")
    if unused := sorted(set(concepts) - named):
        raise DataError(
            f"the query names no set {unused[0]!r} of concepts: it would stand there as (:{unused[0]})"
        )
    return _CONCEPT_SET.sub(lambda found: f"({', '.join(map(str, concepts[found[1]]))})", query)


BOUNDS_MAX = 1000
"""Most places at which a query is cut: there are never so many workers."""


class SourceSettings(BaseModel):
    """Where rows are, and where a query may be cut so that several workers read it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    source: str
    query: str | None = None
    query_file: Path | None = None
    """The file that holds the query."""

    concepts: dict[
        Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=63)],
        Annotated[
            tuple[Annotated[StrictInt, Field(ge=0, lt=2**63)], ...],
            Field(min_length=1, max_length=CONCEPTS_MAX),
        ],
    ] = Field(default_factory=dict)
    """Sets of whole numbers, which stand in the query as ``(:name)``: concepts of OMOP."""

    partition_column: ColumnName | None = None
    """A column of numbers of the query, by whose values it is cut."""

    partition_bounds: Annotated[tuple[StrictInt, ...], Field(max_length=BOUNDS_MAX)] = ()
    """Where it is cut. Public: chosen, never looked up in the data."""

    quoted_line_breaks: bool = False
    """Whether values of a CSV file may hold line breaks, between quotes. Otherwise a line is a row."""

    sheet: str | None = None
    """The sheet of an Excel file; the first one where none is named."""

    value_labels: bool = False
    """Whether a category of a file of SPSS, Stata or SAS is its value's label. Otherwise it is the value."""

    folder: Path = Path()
    """What a relative source is relative to: the folder of the configuration file."""

    @model_validator(mode="after")
    def _ranges_are_complete(self) -> Self:
        if (self.partition_column is None) == bool(self.partition_bounds):
            raise ValueError("partition_column and partition_bounds need each other")
        if self.partition_bounds and not is_database(self.source):
            raise ValueError("partition_column is of database sources: Parquet is cut by its row groups")
        if self.quoted_line_breaks and not self.source.endswith((".csv", ".csv.gz")):
            raise ValueError("quoted_line_breaks is of CSV files")
        if self.query is not None and self.query_file is not None:
            raise ValueError("query and query_file are the same thing said twice: leave one out")
        if (self.query_file is not None or self.concepts) and not is_database(self.source):
            raise ValueError("query_file and concepts are of database sources")
        if self.sheet is not None and not self.source.endswith(EXCEL):
            raise ValueError("sheet is of Excel files")
        if self.value_labels and not self.source.endswith(tuple(READERS)):
            raise ValueError("value_labels is of files of SPSS, Stata and SAS")
        if any(first >= second for first, second in pairwise(self.partition_bounds)):
            raise ValueError("partition_bounds must increase")
        return self

    def open(self) -> Source:
        """Return the data source; nothing is read yet.

        Raises:
            DataError: the settings name no known kind of source.
        """
        ranges = None
        if self.partition_column is not None:
            ranges = Ranges(self.partition_column, self.partition_bounds)
        return open_source(
            self.source,
            self.asked_query(),
            self.folder,
            ranges,
            quoted_line_breaks=self.quoted_line_breaks,
            sheet=self.sheet,
            value_labels=self.value_labels,
        )

    def asked_query(self) -> str | None:
        """Return the query, from its file where it stands in one, with its sets of concepts; None of a file.

        Raises:
            DataError: the file cannot be read, or the sets are not those that the query names.
        """
        if self.query_file is None:
            return None if self.query is None else filled_in(self.query, self.concepts)
        try:
            with opened(self.folder / self.query_file) as file, file.stream() as stream:
                text = stream.read().decode("utf-8-sig")
        except (DataError, OSError, UnicodeDecodeError):
            raise DataError("query_file is missing, is no file, may not be read or is not UTF-8") from None
        return filled_in(text, self.concepts)

    def is_of_same_rows(self, other: "SourceSettings") -> bool:
        """Say whether another data set has rows of this one, as far as files and texts of queries tell."""
        if is_database(self.source) or is_database(other.source):
            return self.is_of_same_database(other) and self._query_words() == other._query_words()
        if self.sheet != other.sheet and None not in (self.sheet, other.sheet):
            return False
        return share_files((self.folder / self.source).resolve(), (other.folder / other.source).resolve())

    def is_of_same_database(self, other: "SourceSettings") -> bool:
        """Say whether both are queries of one database, whoever signs in there."""
        if not (is_database(self.source) and is_database(other.source)):
            return False
        return database_of(self.source, self.folder) == database_of(other.source, other.folder)

    def _query_words(self) -> list[str]:
        try:
            return query_words(self.asked_query() or "")
        except DataError:
            return query_words(self.query or "")

    def open_schema(self) -> list[ColumnSchema]:
        """Return the names and types of the columns; no value is read.

        Raises:
            DataError: they cannot be read, or a name is missing or there twice.
        """
        source = self.open()
        if isinstance(source, HasSchema):
            found = source.schema()
        else:
            found = [ColumnSchema(name, "unknown") for name in source.column_names()]
        names = [column.name for column in found]
        if not names or not all(names):
            raise DataError("the data set has no header, or a column without a name: add one line of names")
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise DataError(f"the data set has more than one column {twice!r}: rename one")
        return found
