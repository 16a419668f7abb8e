"""Columns of a data set, by names and types alone: what is there, with bounds from public knowledge."""

import csv
import gzip
import io
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tacit.atomic_write import reason_of
from tacit.errors import InputError
from tacit.setup.configuration import toml_value
from tacit_protocol.public_knowledge import (
    CAUTION,
    ColumnSchema,
    ColumnType,
    Proposal,
    arrow_type,
    header_fault,
    line_fault,
    proposal,
)

HEADER_BYTES_MAX = 2**20
"""Longest header of a CSV file."""

FOLDERS_MAX = 32
"""Most folders within one another, as at an agent."""


def columns_of(source: str, table: str | None = None) -> list[ColumnSchema]:
    """Return the columns of a file that an agent reads, a folder of Parquet files, or a table of a database.

    Raises:
        InputError: it cannot be read, has no columns, or has two of one name.
    """
    if not source:
        raise InputError("name a file, a folder, or a database URL with --table")
    if "://" in source:
        found = _table_columns(source, table)
    elif table is not None:
        raise InputError("--table is of databases: leave it out, or give a database URL")
    elif source.endswith("/") or _is_folder(source):
        found = _folder_columns(Path(source))
    elif source.endswith(".parquet"):
        found = _parquet_columns(Path(source))
    elif source.endswith((".csv", ".csv.gz")):
        found = [ColumnSchema(name, "unknown") for name in _header(Path(source))]
    elif source.endswith((".xlsx", ".xlsm")):
        found = [ColumnSchema(name, "unknown") for name in _first_row(Path(source))]
    elif Path(source).suffix in _STATISTICS:
        found = _variables(Path(source))
    else:
        raise InputError(
            f"{source}: give a .csv, .parquet, .xlsx, .sav, .dta, .sas7bdat or .xpt file, a folder, or "
            "a database URL with --table"
        )
    names = [column.name for column in found]
    if not names or not all(names):
        raise InputError(f"{_safe(source)} has no header, or a column without a name: add one line of names")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"{_safe(source)} has more than one column {twice!r}: rename one")
    return found


def _is_folder(source: str) -> bool:
    try:
        return Path(source).is_dir()
    except (OSError, ValueError):  # a name too long for any file: reading it says so
        return False


def _header(path: Path) -> list[str]:
    """Read the first record, and no byte more than its line."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            text = ""
            while len(text) < HEADER_BYTES_MAX:
                line = file.readline(HEADER_BYTES_MAX)
                if fault := line_fault(line):
                    raise InputError(f"the header of {path} is not CSV in UTF-8: {fault}")
                text += line.decode("utf-8-sig" if not text else "utf-8")
                # An odd number of quotes: a name goes on in the next line.
                if not line or text.count('"') % 2 == 0:
                    break
        names = [name.strip() for name in next(csv.reader(io.StringIO(text), strict=True), [])]
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or 'it is no gzip file'}") from error
    except (UnicodeDecodeError, csv.Error, EOFError) as error:
        raise InputError(f"the header of {path} is not CSV in UTF-8") from error
    if fault := header_fault(names):
        raise InputError(f"{path}: {fault}")
    return names


def _folder_columns(folder: Path) -> list[ColumnSchema]:
    """Read the schema of the first of a folder's files, and the keys of the folders that it lies in.

    Of a folder named ``key=value`` the value may be a person's: nothing of it is repeated.
    """
    first = _first_file(folder)
    if first is None:
        raise InputError(f"{folder} is no folder of .parquet files")
    keys = [part.partition("=")[0] for part in first.relative_to(folder).parent.parts]
    try:
        found = _parquet_columns(first)
    except InputError:
        raise InputError(f"a file of {folder} cannot be read, or is no Parquet file") from None
    return found + [ColumnSchema(unquote(key), "unknown") for key in keys]


def _first_file(folder: Path, depth: int = 0) -> Path | None:
    """Return the first .parquet file in or below a folder, in the order in which an agent reads them."""
    try:
        entries = sorted(folder.iterdir(), key=lambda path: os.fsencode(path.name))
    except OSError as error:
        raise InputError(f"the folder cannot be read: {error.strerror}") from None
    for path in entries:
        if path.name.startswith(("_", ".")):
            continue
        if path.is_dir():
            found = _first_file(path, depth + 1) if "=" in path.name and depth < FOLDERS_MAX else None
            if found is not None:
                return found
        elif path.suffix == ".parquet":
            return path
    return None


def _parquet_columns(path: Path) -> list[ColumnSchema]:
    from pyarrow import ArrowException, parquet  # noqa: PLC0415 (loads where a Parquet file is named)

    try:
        schema = parquet.read_schema(path)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {reason_of(error) if error.errno else 'it is no Parquet file'}"
        ) from error
    except ArrowException as error:
        raise InputError(f"{path} is no Parquet file") from error
    return [ColumnSchema(field.name, arrow_type(str(field.type))) for field in schema]


def _missing(what: str, extra: str) -> InputError:
    return InputError(f'{what} is not installed here: pip install "tacit[{extra}]"')


def _first_row(path: Path) -> list[str]:
    """Read the first row of a workbook's first sheet."""
    try:
        from openpyxl import load_workbook  # noqa: PLC0415 (an extra)
    except ImportError:
        raise _missing("openpyxl", "files") from None
    try:
        book = load_workbook(path, read_only=True, keep_links=False)
        try:
            row = next(book.worksheets[0].iter_rows(max_row=1, values_only=True), ())
        finally:
            book.close()
    except OSError as error:
        raise InputError(f"cannot read {path}: {reason_of(error)}") from error
    except Exception as error:
        raise InputError(f"{path} is no workbook that can be read") from error
    if any(value is not None and not isinstance(value, str) for value in row):
        raise InputError(f"the first row of {path} has values where names should be: add a row of names")
    names = [value or "" for value in row]
    while names and not names[-1]:
        names.pop()
    return names


_STATISTICS = {
    ".sav": "read_sav",
    ".zsav": "read_sav",
    ".dta": "read_dta",
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
}
"""pyreadstat's function for each kind of file."""


def _variables(path: Path) -> list[ColumnSchema]:
    """Read the names and types of a statistics file's variables, and no row."""
    try:
        import pyreadstat  # noqa: PLC0415 (an extra)
    except ImportError:
        raise _missing("pyreadstat", "files") from None
    if not path.is_file():
        raise InputError(f"cannot read {path}: there is no such file")
    try:
        read = getattr(pyreadstat, _STATISTICS[path.suffix])
        described = read(str(path), metadataonly=True, output_format="dict")[1]
    except Exception as error:
        raise InputError(f"{path} is no {path.suffix} file that can be read") from error
    kinds = described.readstat_variable_types
    return [
        ColumnSchema(name, "text" if kinds.get(name) == "string" else "number")
        for name in described.column_names
    ]


def _duckdb_columns(file: str, table: str) -> list[ColumnSchema]:
    try:
        import duckdb  # noqa: PLC0415 (an extra)
    except ImportError:
        raise _missing("DuckDB", "duckdb") from None
    named = ".".join('"' + part.replace('"', '""') + '"' for part in table.split("."))
    try:
        with duckdb.connect(file, read_only=True, config={"enable_external_access": False}) as connection:
            described = connection.execute(f"DESCRIBE {named}").fetchall()
    except duckdb.Error as error:
        raise InputError("the DuckDB file cannot be asked: check the URL and the table") from error
    kinds: dict[str, ColumnType] = {
        "BOOLEAN": "yes or no",
        "VARCHAR": "text",
        "FLOAT": "number",
        "DOUBLE": "number",
    }
    return [
        ColumnSchema(
            str(name),
            "number"
            if kind.endswith("INT") or "INTEGER" in kind or kind.startswith("DECIMAL")
            else kinds.get(kind, "other"),
        )
        for name, kind, *_ in described
    ]


def _table_columns(url: str, table: str | None) -> list[ColumnSchema]:
    from sqlalchemy import create_engine, inspect, make_url, types  # noqa: PLC0415 (loads where a database is named)
    from sqlalchemy.exc import NoSuchTableError, SQLAlchemyError  # noqa: PLC0415

    if table is None:
        raise InputError("a database has several tables: name one with --table")
    schema, _, name = table.rpartition(".")
    try:
        if url.startswith("duckdb:///"):
            return _duckdb_columns(url.removeprefix("duckdb:///"), table)
        kind_, separator, rest = url.partition("://")
        driver = {"postgresql": "+psycopg", "mysql": "+pymysql", "mariadb": "+pymysql"}.get(kind_, "")
        address = make_url(f"{kind_}{driver}{separator}{rest}")
        _require_database_file(address.get_backend_name(), address.database)
        engine = create_engine(address)
        try:
            described = inspect(engine).get_columns(name, schema=schema or None)
        finally:
            engine.dispose()
    except NoSuchTableError as error:
        raise InputError(f"the database has no table {table}") from error
    except InputError:
        raise
    except (SQLAlchemyError, ImportError, ValueError) as error:
        # The URL may hold a password, and the driver's words the URL.
        raise InputError(f"the database cannot be asked ({type(error).__name__}): check the URL") from error

    def kind(type_: Any) -> ColumnType:
        if isinstance(type_, types.Boolean):
            return "yes or no"
        if isinstance(type_, types.Numeric | types.Integer):
            return "number"
        return "text" if isinstance(type_, types.String) else "other"

    return [ColumnSchema(str(column["name"]), kind(column["type"])) for column in described]


def _require_database_file(kind: str, file: str | None) -> None:
    """Refuse an SQLite file that is not there: asking it would make an empty one."""
    elsewhere = kind != "sqlite" or not file or file.startswith(("file:", ":memory:"))
    if not elsewhere and not Path(str(file)).is_file():
        raise InputError("the database's file does not exist: check the URL")


def _safe(source: str) -> str:
    """Name a source without what a database URL may hold of secrets."""
    return "the table" if "://" in source else source


def described(columns: Sequence[ColumnSchema]) -> list[Proposal]:
    """Propose bounds and levels by names and types alone."""
    return [proposal(column) for column in columns]


def snippet(columns: Sequence[Proposal], source: str, read: str) -> str:
    """Write the columns as they stand under ``[[data_sets]]`` of an ``agent.toml``, with comments."""
    open_ = sum(not column.complete for column in columns)
    lines = [
        f"# Proposed by `tacit data describe` from {read} of {_comment(source)}; no value was read.",
        *(f"# {line}" for line in textwrap.wrap(CAUTION, 100)),
        "# For agent.toml, below the [[data_sets]] it describes. Check every line: names may mislead.",
        *([f"# {open_} to FILL IN: the agent does not start before that is done."] if open_ else []),
        "columns = [",
    ]
    for column in columns:
        if column.fields is None:
            lines.append(f"    # {_comment(column.name)}: {column.why}")
        else:
            fields = ", ".join(f"{name} = {_value(value)}" for name, value in column.fields.items())
            lines.append(f"    {{ {fields} }},  # {column.why}")
    return "\n".join([*lines, "]"]) + "\n"


def _value(value: object) -> str:
    return toml_value(int(value) if isinstance(value, float) and value.is_integer() else value)


def _comment(text: str) -> str:
    """Write text that cannot end a comment."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
