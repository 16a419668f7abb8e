"""The settings that say where a data set's rows are, in agents and in curators. docs/data-sources.md."""

from itertools import pairwise
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StrictInt, model_validator

from tacit_protocol.domain.columns import ColumnName
from tacit_services.agent.data.csv_source import CsvSource
from tacit_services.agent.data.parquet_folder import ParquetFolder
from tacit_services.agent.data.parquet_source import ParquetSource
from tacit_services.agent.data.source import DataError, Source
from tacit_services.agent.data.sql_source import Ranges, SqlSource


def is_database(source: str) -> bool:
    """Say whether a setting names a database."""
    return "://" in source


def open_source(
    source: str,
    query: str | None,
    folder: Path,
    ranges: Ranges | None = None,
    *,
    quoted_line_breaks: bool = False,
) -> Source:
    """Return the source that a setting names.

    ``source`` is a path to ``*.csv``, ``*.csv.gz``, ``*.parquet`` or a folder of Parquet files, relative to
    ``folder``, or a SQLAlchemy URL, which needs a ``query`` and may be cut by ``ranges``. Values of a CSV
    file hold no line breaks unless it is said that they do, between quotes.

    Raises:
        DataError: the setting names no known kind of source.
    """
    if is_database(source):
        if query is None:
            raise DataError("a database source needs a query")
        return SqlSource(_absolute_sqlite(source, folder), query, ranges)
    if query is not None:
        raise DataError("a file source takes no query")
    path = folder / source
    if source.endswith((".csv", ".csv.gz")):
        return CsvSource(path, quoted_line_breaks=quoted_line_breaks)
    if source.endswith("/") or path.is_dir():
        return ParquetFolder(path)
    if source.endswith(".parquet"):
        return ParquetSource(path)
    raise DataError(
        "a source is a .csv, .csv.gz or .parquet file, a folder of .parquet files (is it there?), or a "
        "database URL with a query"
    )


def _absolute_sqlite(url: str, folder: Path) -> str:
    prefix = "sqlite:///"
    if url.startswith(prefix) and not url.startswith(prefix + "/"):
        return prefix + str((folder / url.removeprefix(prefix)).absolute())
    return url


BOUNDS_MAX = 1000
"""Most places at which a query is cut: there are never so many workers."""


class SourceSettings(BaseModel):
    """Where rows are, and where a query may be cut so that several workers read it."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    source: str
    query: str | None = None
    partition_column: ColumnName | None = None
    """A column of numbers of the query, by whose values it is cut."""

    partition_bounds: Annotated[tuple[StrictInt, ...], Field(max_length=BOUNDS_MAX)] = ()
    """Where it is cut. Public: chosen, never looked up in the data."""

    quoted_line_breaks: bool = False
    """Whether values of a CSV file may hold line breaks, between quotes. Otherwise a line is a row."""

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
            self.source, self.query, self.folder, ranges, quoted_line_breaks=self.quoted_line_breaks
        )
