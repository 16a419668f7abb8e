"""Choose the kind of source from its setting."""

from pathlib import Path

from tacit_services.agent.data.csv_source import CsvSource
from tacit_services.agent.data.parquet_source import ParquetSource
from tacit_services.agent.data.source import DataError, Source
from tacit_services.agent.data.sql_source import SqlSource


def open_source(source: str, query: str | None, folder: Path) -> Source:
    """Return the source that a setting names.

    ``source`` is a path to ``*.csv``, ``*.csv.gz`` or ``*.parquet``, relative to ``folder``, or a SQLAlchemy
    URL, which needs a ``query``.

    Raises:
        DataError: the setting names no known kind of source.
    """
    if "://" in source:
        if query is None:
            raise DataError("a database source needs a query")
        return SqlSource(_absolute_sqlite(source, folder), query)
    if query is not None:
        raise DataError("a file source takes no query")
    path = folder / source
    if source.endswith((".csv", ".csv.gz")):
        return CsvSource(path)
    if source.endswith(".parquet"):
        return ParquetSource(path)
    raise DataError("a source is a .csv, .csv.gz or .parquet file, or a database URL with a query")


def _absolute_sqlite(url: str, folder: Path) -> str:
    prefix = "sqlite:///"
    if url.startswith(prefix) and not url.startswith(prefix + "/"):
        return prefix + str((folder / url.removeprefix(prefix)).absolute())
    return url
