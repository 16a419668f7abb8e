"""Choose the kind of source from its setting."""

from pathlib import Path

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
