"""SQL queries as a data source: by COPY on PostgreSQL, by Arrow on DuckDB, by a cursor on other databases.

On PostgreSQL every read sees one state: a transaction that exports its snapshot is kept open for as long as
the data set is read, and every read takes it over, here or elsewhere. COPY sends the text of every value, as
the database spells it, from which Arrow makes columns several times as fast as a cursor makes an object of
each. And no value of any type is one that a driver cannot make. MySQL's and MariaDB's drivers make nothing
either: values come as the server spells them. DuckDB is a library in this process, that reads a file.
"""

import copy
import math
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar, cast

import psycopg
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from tacit_protocol.arrow_columns import UNDECODED, text_of
from tacit_protocol.domain import DataError
from tacit_protocol.public_knowledge import ColumnSchema, ColumnType
from tacit_services.agent.data.csv_source import parsed_block
from tacit_services.agent.data.parquet_source import balanced_runs
from tacit_services.agent.data.regular_files import REPLACED, FileState, file_state
from tacit_services.agent.data.source import (
    LONG_BYTES,
    LONG_CHARACTERS,
    READ_BYTES,
    Columns,
    PartRange,
    installed,
)
from tacit_services.shared.settings import FILE_DATABASES

UNREACHABLE = "the database cannot be reached: check the source's URL"
LET_GO = (
    "the database no longer holds the state in which the data set was first read, since the connection that "
    "kept it was closed; ask again with a new study"
)
NOT_HELD = "the database cannot hold one state for several reads: pg_export_snapshot() is refused"

DRIVERS = {
    "postgresql": "psycopg",
    "mysql": "pymysql",
    "mariadb": "pymysql",
    "mssql": "pyodbc",
    "oracle": "oracledb",
}
"""The driver of each kind of database, where a URL names none."""

EXTRAS = {"mariadb": "mysql"}
"""Extras of Tacit that bring a driver and are not called as the database is."""

READ_SETTINGS = (
    "idle_in_transaction_session_timeout = 0",
    "synchronize_seqscans = off",
    "max_parallel_workers_per_gather = 0",
    "datestyle = 'ISO, YMD'",
    "intervalstyle = 'postgres'",
    "bytea_output = 'hex'",
    "extra_float_digits = 1",
)
"""A procedure may compute for long between two fetches. A large table is otherwise read from wherever another
reader has got to, and by several processes at once: the same rows in another order each time. The others say
how values are spelled, and floating numbers to the last digit."""

MYSQL_SETTINGS = (
    "SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
    "SESSION net_write_timeout = 86400",
    "SESSION time_zone = '+00:00'",
)
"""A server closes the connection of a reader that computes for longer than ``net_write_timeout``."""

TIME_LIMITS = {True: "max_statement_time", False: "max_execution_time"}
"""The limit on a statement's time that an administrator may have set: of MariaDB, and of MySQL."""

DUCKDB_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "enable_external_access": False,
    "threads": 1,
    "memory_limit": "1GB",
    "temp_directory": "",
    "lock_configuration": True,
}
"""A query reads its own file and no other, has one thread, so that rows keep their order, and writes nothing
to disk where it would need more memory: it fails."""


class Snapshot:
    """The state that the first read of a source saw.

    On other databases than PostgreSQL there is none, and each read sees its own.
    Picklable: elsewhere the state is that of the process that holds it, for as long as this lives there.
    """

    def __init__(self, url: str):
        self._url = url
        self._id: str | None = None
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"url": self._url, "id": self._held()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._url, self._id = state["url"], state["id"]
        self._lock = threading.Lock()

    @property
    def dialect(self) -> str:
        """The database's kind: ``postgresql``, ``sqlite``."""
        return sa.make_url(self._url).get_backend_name()

    @property
    def file(self) -> Path | None:
        """The file of DuckDB or SQLite; None for servers, and for SQLite in memory."""
        url = sa.make_url(self._url)
        known = url.get_backend_name() in FILE_DATABASES and "uri" not in url.query
        return Path(url.database) if known and url.database and url.database != ":memory:" else None

    def connect(self) -> "sa.Connection | DuckDbConnection":
        """Return a new connection that sees the state, in a transaction that cannot write.

        Raises:
            DataError: the database cannot be reached, or has let go of the state.
        """
        before = None if self.file is None else file_state(self.file)
        held = self._held()
        connection = (
            DuckDbConnection(self.file)
            if self.file is not None and self.dialect == "duckdb"
            else _connect(self._url)
        )
        # Drivers open a file by its path: another one, or a link, may have come there meanwhile.
        if self.file is not None and before is not None and file_state(self.file).inode != before.inode:
            connection.close()
            raise DataError(REPLACED)
        if held is None or isinstance(connection, DuckDbConnection):
            return connection
        try:
            # The name is the database's own: digits and hyphens.
            connection.exec_driver_sql(f"SET TRANSACTION SNAPSHOT '{held}'")
            _set_up(connection)
        except sa.exc.SQLAlchemyError:
            connection.close()
            raise DataError(LET_GO) from None
        return connection

    def _held(self) -> str | None:
        """Return the name of the snapshot, which the first call takes; None where there is none."""
        if self.dialect != "postgresql":
            return None
        with self._lock:
            if self._id is None:
                holder = _connect(self._url)
                try:
                    _set_up(holder)
                    self._id = str(holder.exec_driver_sql("SELECT pg_export_snapshot()").scalar_one())
                except sa.exc.SQLAlchemyError:
                    holder.close()
                    raise DataError(NOT_HELD) from None
                weakref.finalize(self, _let_go, holder)
            return self._id


def _set_up(connection: sa.Connection) -> None:
    for setting in READ_SETTINGS:
        connection.exec_driver_sql(f"SET LOCAL {setting}")


def _let_go(holder: sa.Connection) -> None:
    with suppress(sa.exc.SQLAlchemyError):
        holder.invalidate()  # ends the transaction by closing, which a server that has gone needs no word for
        holder.close()


def _connect(url: str) -> sa.Connection:
    try:
        engine = sa.create_engine(url, poolclass=sa.NullPool, hide_parameters=True)
        connection = engine.connect()
        if engine.dialect.name == "sqlite":
            # Its driver begins a transaction where rows are written, and not where several queries read.
            connection.exec_driver_sql("BEGIN")
            # Columns have no types there, and texts no encoding: what is no UTF-8 is a text like any other.
            sqlite: Any = connection.connection.driver_connection
            sqlite.text_factory = partial(str, encoding="utf-8", errors=UNDECODED)
        elif engine.dialect.name in MYSQL:
            _set_up_mysql(connection)
        elif engine.dialect.name == "oracle":
            connection.exec_driver_sql("SET TRANSACTION READ ONLY")
    except ImportError:
        kind = sa.make_url(url).get_backend_name()
        raise DataError(installed(f"the driver of {kind}", EXTRAS.get(kind, kind))) from None
    except sa.exc.SQLAlchemyError:
        raise DataError(UNREACHABLE) from None
    if engine.dialect.name == "postgresql":
        return connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    return connection


def _set_up_mysql(connection: sa.Connection) -> None:
    """Begin a transaction that reads one state, and have values come as the server spells them."""
    dialect: Any = connection.dialect
    for setting in (*MYSQL_SETTINGS, f"SESSION {TIME_LIMITS[bool(dialect.is_mariadb)]} = 0"):
        connection.exec_driver_sql(f"SET {setting}")
    connection.exec_driver_sql("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
    driver: Any = connection.connection.driver_connection
    driver.decoders, driver.use_unicode = {}, False


MadeT = TypeVar("MadeT")

FIRST_ROWS = 256
"""Rows of the first fetch, from which the size of a row is known."""

GROWTH = 16
"""A fetch is at most so many times larger than the one before."""

SAMPLED_ROWS = 100
"""Rows of a fetch whose sizes are looked at."""

VALUE_BYTES = 100
"""What a value takes besides itself, as measured: its places in tuples, as it arrived, in Arrow."""

COPY_SHARE = 8
"""A block of COPY's text takes this part of the memory for reading: it is held in rows, whole, and parsed."""

BOOLEANS, INTEGERS, FLOATS, NUMERIC, TEXTS = {16}, {20, 21, 23}, {700, 701}, {1700}, {25, 1042, 1043}
"""PostgreSQL's numbers of types: fixed in its catalogue."""

PADDED = {1042}
"""Text of a fixed length, whose blanks at the end a cast would drop."""

MOMENTS: dict[int, tuple[sa.types.TypeEngine[Any], str, str]] = {
    1082: (sa.Date(), "YYYY-MM-DD", ""),
    1114: (sa.TIMESTAMP(), 'YYYY-MM-DD"T"HH24:MI:SS', ""),
    1184: (sa.TIMESTAMP(timezone=True), 'YYYY-MM-DD"T"HH24:MI:SS', "TZH:TZM"),
}
"""Dates and times with a year, by the same numbers: the type, its ISO form before and behind a fraction."""

YEARS = "0001-01-01", "10000-01-01"
"""The years of ISO texts: from the first of these days, to before the second."""

TEXT = pa.binary()
"""Text as it comes: a database may hold bytes that are no UTF-8."""

COUNT = ""
"""Names the column of counts: no column of a study has an empty name."""

NOT_READ = "the source's rows cannot be read"

NO_ROW = sa.text("1 = 0")
"""No row fulfils it. Oracle has no false, and SQLAlchemy none that it takes."""


def fetched(
    result: sa.CursorResult[Any],
    rows_max: int,
    bytes_max: int,
    make: Callable[[Sequence[sa.Row[Any]]], MadeT],
) -> Iterator[MadeT]:
    """Yield what ``make`` makes of some rows at a time.

    At most ``rows_max`` are fetched at once, and as many as take about ``bytes_max`` in memory.
    """
    size = min(rows_max, FIRST_ROWS)
    while rows := result.fetchmany(size):
        size = max(1, min(rows_max, GROWTH * size, bytes_max // _row_bytes(rows)))
        made = make(rows)
        rows = ()  # they go before others come
        yield made


def _row_bytes(rows: Sequence[sa.Row[Any]]) -> int:
    sample = rows[:: max(1, len(rows) // SAMPLED_ROWS)]
    # A text is there once more as it arrived, and once in Arrow.
    sizes = (sum(3 * sys.getsizeof(value) + VALUE_BYTES for value in row) for row in sample)
    return max(1, sum(sizes) // len(sample))


def batch_of(columns: Columns, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Return a cursor's rows as columns; what is no number among numbers is missing."""
    by_column = list(zip(*rows, strict=True))
    arrays: list[pa.Array] = []
    for index in range(len(columns.names)):
        if index >= len(columns.numbers):
            arrays.append(_texts(map(text_of, by_column[index])))
        elif any(isinstance(value, str) for value in by_column[index]):
            arrays.append(_texts(map(_number_text, by_column[index])))
        else:
            arrays.append(pa.array([_number(value) for value in by_column[index]], pa.float64()))
    return pa.RecordBatch.from_arrays(arrays, names=list(columns.names))


def _texts(values: Iterable[str | None]) -> pa.Array:
    """Return texts as a column; what was not decoded is there as it was."""
    stored = [None if value is None else value.encode(errors=UNDECODED) for value in values]
    return pa.array(stored, TEXT).view(pa.string())


def _number(value: object) -> float:
    if isinstance(value, int | float | Decimal):
        try:
            return float(value)
        except (OverflowError, ValueError):
            return math.nan
    return math.nan


def _number_text(value: object) -> str | None:
    return value if isinstance(value, str) else repr(_number(value))


MYSQL = {"mysql", "mariadb"}

DECIMALS, INTEGERS_MYSQL, FLOATS_MYSQL = {0, 246}, {1, 2, 3, 8, 9, 13}, {4, 5}
MOMENTS_MYSQL, BITS, TEXTS_MYSQL = {7, 10, 12}, {16}, {15, 247, 248, 249, 250, 251, 252, 253, 254}
"""MySQL's numbers of types, fixed in its protocol, and MariaDB's."""


def read_as_spelled(
    connection: sa.Connection, query: sa.Select[Any], columns: Columns, rows_max: int, bytes_max: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a query of MySQL or MariaDB, at most ``rows_max`` at a time."""
    kinds = _kinds(connection, query)
    selected = [
        column if kind not in TEXTS_MYSQL else cut(column, columns.characters_of(name))
        for column, kind, name in zip(query.selected_columns, kinds, columns.names, strict=True)
    ]
    streaming = connection.execution_options(stream_results=True)
    with streaming.execute(query.with_only_columns(*selected)) as result:
        yield from fetched(result, rows_max, bytes_max, partial(spelled_batch, columns, kinds))


def spelled_batch(
    columns: Columns, kinds: Sequence[int], rows: Sequence[Sequence[bytes | None]]
) -> pa.RecordBatch:
    """Return rows of MySQL's own spellings as columns; what is no number among numbers is missing."""
    readable = DECIMALS | INTEGERS_MYSQL | FLOATS_MYSQL | BITS | TEXTS_MYSQL
    arrays: list[pa.Array] = []
    for place, (kind, column) in enumerate(zip(kinds, zip(*rows, strict=True), strict=True)):
        values: Iterable[bytes | None] = column
        if place < len(columns.numbers) and kind not in readable:
            values = [None] * len(column)
        elif kind in BITS:
            values = [None if v is None else str(int.from_bytes(v, "big")).encode() for v in column]
        elif kind in MOMENTS_MYSQL:
            values = map(_iso_moment, column)
        if kind in FLOATS_MYSQL:
            arrays.append(pa.array([None if v is None else float(v) for v in values], pa.float64()))
        else:
            arrays.append(pa.array(list(values), TEXT).view(pa.string()))
    return pa.RecordBatch.from_arrays(arrays, names=list(columns.names))


def _iso_moment(value: bytes | None) -> bytes | None:
    """Return MySQL's date or time in ISO form; missing in the year 0, or without a month or a day."""
    if value is None or value.startswith(b"0000") or b"-00" in value[:10]:
        return None
    day, _, time = value.partition(b" ")
    whole, _, fraction = time.rstrip(b"0").partition(b".") if b"." in time else (time, b"", b"")
    return day + (b"T" + whole if time else b"") + (b"." + fraction.ljust(6, b"0") if fraction else b"")


PLAIN_DUCKDB = re.compile(r"(U?(TINY|SMALL|BIG)INT|U?INTEGER|FLOAT|DOUBLE|DECIMAL.*|BOOLEAN)")
MOMENTS_DUCKDB = re.compile(r"DATE|TIMESTAMP(_S|_MS|_NS)?")
"""DuckDB's types that come as Arrow has them, of numbers and of days."""


class DuckDbConnection:
    """A connection to a DuckDB file, as far as a source needs one.

    Raises:
        DataError: the file cannot be opened, or the library is not installed.
    """

    def __init__(self, file: Path):
        try:
            import duckdb  # noqa: PLC0415 (an extra)
        except ImportError:
            raise DataError(installed("DuckDB", "duckdb")) from None
        self._error: type[Exception] = duckdb.Error
        try:
            self._driver = duckdb.connect(str(file), read_only=True, config=DUCKDB_SETTINGS)
        except duckdb.Error:
            raise DataError("the DuckDB file is missing, damaged, or open elsewhere for writing") from None
        self._driver.begin()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the transaction and close the file."""
        self._driver.close()

    def answer(self, statement: sa.Select[Any]) -> tuple[tuple[str, ...], Sequence[Sequence[Any]]]:
        """Return the names of a statement's columns and all its rows.

        Raises:
            sa.exc.SQLAlchemyError: it cannot be run. The text quotes nothing.
        """
        try:
            relation = self._driver.sql(_statement(statement))
            return tuple(relation.columns), relation.fetchall()
        except self._error:
            raise sa.exc.SQLAlchemyError(NOT_READ) from None

    def explain(self, query: str) -> None:
        """Let the database plan a text, and run nothing.

        Raises:
            sa.exc.SQLAlchemyError: it is no query. The text quotes nothing.
        """
        try:
            self._driver.execute(f"EXPLAIN {query}")
        except self._error:
            raise sa.exc.SQLAlchemyError(NOT_READ) from None

    def batches(
        self, query: sa.Select[Any], columns: Columns, rows_max: int, bytes_max: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the query's rows, at most ``rows_max`` at a time, fewer where long ones might not fit.

        Raises:
            sa.exc.SQLAlchemyError: they cannot be read. The text quotes nothing.
        """
        try:
            kinds = map(str, self._driver.sql(_statement(query)).types)
            selected = [
                _of_duckdb(column, kind, name in columns.numbers, columns.characters_of(name))
                for column, kind, name in zip(query.selected_columns, kinds, columns.names, strict=True)
            ]
            long = [columns.characters_of(name) or LONG_CHARACTERS for name in columns.text + columns.vectors]
            row_bytes = 8 * len(columns.numbers) + sum(long) + 1
            size = max(1, min(rows_max, bytes_max // row_bytes))
            relation = self._driver.sql(_statement(query.with_only_columns(*selected)))
            for batch in relation.to_arrow_reader(size):
                yield batch.rename_columns(list(columns.names))
        except (self._error, pa.ArrowException, OSError):
            raise sa.exc.SQLAlchemyError(NOT_READ) from None


def _of_duckdb(
    column: sa.ColumnElement[Any], kind: str, is_number: bool, characters: int | None
) -> sa.ColumnElement[Any]:
    """Return a column as it is asked for: missing as a number where its type is none; else its text, cut."""
    if PLAIN_DUCKDB.fullmatch(kind) or (MOMENTS_DUCKDB.fullmatch(kind) and not is_number):
        return column
    if is_number and kind not in {"HUGEINT", "UHUGEINT", "VARCHAR"}:
        return sa.cast(sa.null(), sa.Double)
    if kind == "TIMESTAMP WITH TIME ZONE":
        return sa.cast(column, sa.TIMESTAMP)
    return cut(sa.cast(column, sa.Text), characters)


def cut(text: sa.ColumnElement[Any], characters: int | None) -> sa.ColumnElement[Any]:
    """Return so many characters of a text; None for all."""
    return text if characters is None else sa.func.left(text, characters)


def read_by_copy(
    connection: sa.Connection, query: sa.Select[Any], columns: Columns, rows_max: int, bytes_max: int
) -> Iterator[pa.RecordBatch]:
    """Yield the query's rows by PostgreSQL's COPY, at most ``rows_max`` at a time.

    Raises:
        DataError: the rows cannot be read.
    """
    selected: list[sa.ColumnElement[Any]] = []
    types: dict[str, pa.DataType] = {}
    for column, kind, name in zip(
        query.selected_columns, _kinds(connection, query), columns.names, strict=True
    ):
        if len(selected) < len(columns.numbers):
            selected.append(_as_number(column, kind))
            types[name] = TEXT if kind in TEXTS else pa.float64()
        else:
            selected.append(_as_text(column, kind, columns.characters_of(name)))
            types[name] = pa.float64() if kind in FLOATS else TEXT
    statement = _statement(query.with_only_columns(*selected))
    return _copied(connection, statement, types, rows_max, max(1, bytes_max // COPY_SHARE))


def grouped_by_copy(
    connection: sa.Connection, rows: sa.Subquery, names: Sequence[str], rows_max: int, bytes_max: int
) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
    """Yield distinct texts of the named columns, each with how often it occurs, as :func:`read_by_copy` does.

    Rows are told apart by their texts' bytes, whatever a column's own collation or type takes for equal.
    """
    kinds = _kinds(connection, sa.select(*(rows.c[name] for name in names)))
    texts = []
    for name, kind in zip(names, kinds, strict=True):
        spelled = _as_text(rows.c[name], kind)
        texts.append(sa.collate(sa.cast(spelled, sa.Text) if kind in FLOATS else spelled, "C"))
    asked: list[sa.ColumnElement[Any]] = [*texts, sa.func.count()]
    counted = sa.select(*asked).select_from(rows).group_by(*texts)
    types = {name: pa.float64() if kind in FLOATS else TEXT for name, kind in zip(names, kinds, strict=True)}
    batches = _copied(
        connection,
        _statement(counted),
        types | {COUNT: pa.int64()},
        rows_max,
        max(1, bytes_max // COPY_SHARE),
    )
    for batch in batches:
        yield batch.select(list(names)), batch.column(COUNT).to_pylist()


def shortened(
    column: sa.ColumnElement[Any], characters: int | None = LONG_CHARACTERS
) -> sa.ColumnElement[Any]:
    """Return a column of SQLite whose long texts and bytes are cut, but where ``characters`` is None."""
    if characters is None:
        return column
    size = sa.func.length(sa.cast(column, sa.BLOB))
    return sa.case((size > max(LONG_BYTES, characters), sa.func.substr(column, 1, characters)), else_=column)


def _kinds(connection: sa.Connection, query: sa.Select[Any]) -> list[int]:
    """Return the numbers of the types of a query's columns."""
    with connection.execute(query.where(NO_ROW)) as empty:
        described = [] if empty.cursor is None else empty.cursor.description
        return [cast(int, kind) for _, kind, *_ in described]


def _statement(query: sa.Select[Any]) -> str:
    dialect = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]
    return str(query.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))


def _as_number(column: sa.ColumnElement[Any], kind: int) -> sa.ColumnElement[Any]:
    """Return a column as COPY sends it for a number: missing where its type has no numeric reading."""
    if kind in BOOLEANS:
        return sa.cast(column, sa.Integer)
    if kind in TEXTS:
        return sa.func.left(column, LONG_CHARACTERS)
    return column if kind in INTEGERS | FLOATS | NUMERIC else sa.null()


def _as_text(
    column: sa.ColumnElement[Any], kind: int, characters: int | None = LONG_CHARACTERS
) -> sa.ColumnElement[Any]:
    """Return a column as COPY sends it for a category, cut, or whole (None) for an id.

    PostgreSQL spells every value of every type itself. A driver makes Python's dates of its dates, and fails
    at those that Python has not, ``infinity`` for one: such are missing.
    """
    if kind in FLOATS or kind in PADDED:
        return column
    if kind in MOMENTS:
        return _iso(column, *MOMENTS[kind])
    if kind in NUMERIC:
        return sa.func.nullif(sa.cast(column, sa.Text), "NaN")
    spelled = sa.cast(column, sa.Text)
    return spelled if kind in INTEGERS | BOOLEANS else cut(spelled, characters)


def _iso(
    column: sa.ColumnElement[Any], kind: sa.types.TypeEngine[Any], form: str, zone: str
) -> sa.ColumnElement[Any]:
    first, last = (sa.cast(sa.literal(limit), kind) for limit in YEARS)
    known = sa.and_(column >= first, column < last)
    if isinstance(kind, sa.Date):
        return sa.case((known, sa.func.to_char(column, form)), else_=sa.null())
    is_whole = sa.func.date_trunc("second", column) == column
    return sa.case(
        (sa.and_(known, is_whole), sa.func.to_char(column, form + zone)),
        (known, sa.func.to_char(column, f"{form}.US{zone}")),
        else_=sa.null(),
    )


def _copied(
    connection: sa.Connection, query: str, types: dict[str, pa.DataType], rows_max: int, bytes_max: int
) -> Iterator[pa.RecordBatch]:
    driver = cast("psycopg.Connection[Any]", connection.connection.driver_connection)
    statement = f"COPY ({query}) TO STDOUT (FORMAT csv, ENCODING 'UTF8')"
    try:
        with driver.cursor() as cursor, cursor.copy(statement.encode()) as copy:
            rows: list[bytes] = []
            size = 0
            # Each message is a row, so that a block ends where a row does.
            while row := copy.read():
                rows.append(bytes(row))
                size += len(row)
                if len(rows) == rows_max or size >= bytes_max:
                    yield _parsed(b"".join(rows), types)
                    rows, size = [], 0
            if rows:
                yield _parsed(b"".join(rows), types)
    except psycopg.Error:
        raise DataError(NOT_READ) from None


def _parsed(block: bytes, types: dict[str, pa.DataType]) -> pa.RecordBatch:
    """Return the rows of a block; an empty field is missing, a quoted one the empty text."""
    try:
        batch = parsed_block(block, list(types), types, missing=[""], quoted_missing=False)
    except pa.ArrowException:
        raise DataError(NOT_READ) from None
    arrays = [
        column.view(pa.string()) if pa.types.is_binary(column.type) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(types))


BINARY_COLLATIONS = {"sqlite": "BINARY", "postgresql": "C"}
"""Where rows are counted in the database, and its collation that tells all different texts apart."""

CANNOT_CUT = "the source's query cannot be cut: partition_column must be a column of numbers of the query"


@dataclass(frozen=True)
class Ranges:
    """Public places at which a column of numbers is cut, increasing: k of them make k + 1 ranges, at least 2.

    A range begins at its place. Rows whose value is missing are in the last one.
    """

    column: str
    bounds: tuple[int, ...]

    def number(self) -> sa.ColumnElement[int]:
        """Return the expression for the number of a row's range, 0 to k."""
        value: sa.ColumnElement[Any] = sa.column(self.column)
        return sa.case(
            *((value < sa.literal_column(str(bound)), place) for place, bound in enumerate(self.bounds)),
            else_=len(self.bounds),
        )

    def within(self, first: int, stop: int) -> sa.ColumnElement[bool]:
        """Return the condition for the ranges ``first`` to ``stop``, without the latter."""
        value: sa.ColumnElement[Any] = sa.column(self.column)
        below = value < sa.literal_column(str(self.bounds[stop - 1])) if stop <= len(self.bounds) else None
        if first == 0:
            return sa.true() if below is None else below
        above = value >= sa.literal_column(str(self.bounds[first - 1]))
        return sa.or_(above, value.is_(None)) if below is None else sa.and_(above, below)


POSTGRESQL_TYPES: dict[ColumnType, tuple[int, ...]] = {
    "yes or no": (16,),
    "number": (20, 21, 23, 700, 701, 1700),
    "text": (19, 25, 1042, 1043),
}
"""The numbers by which PostgreSQL names its types (pg_type.dat)."""


def _type_of(oid: int) -> ColumnType:
    return next((kind for kind, oids in POSTGRESQL_TYPES.items() if oid in oids), "other")


NO_QUERY = "the query must be one SELECT (or WITH ... SELECT), without a semicolon"


def require_one_query(url: str, query: str) -> None:
    """Check that a text which a person has sent is one query to the database, and no more than that.

    What reads it puts it in parentheses, where nothing stands that writes: not INTO, nor DELETE behind WITH.
    A text could close these that is no query by itself, and so it has to be one without them too.

    Raises:
        DataError: it is not, or the database cannot be reached.
    """
    words = query.strip()
    if ";" in words or not re.match(r"(?i)(select|with)\b", words):
        raise DataError(NO_QUERY)
    source = SqlSource(url, query)
    if source._snapshot.dialect in ("mssql", "oracle"):
        raise DataError("queries of this kind of database stand in the agent's configuration alone")
    with source._snapshot.connect() as connection:
        try:
            wrapped = f"SELECT * FROM ({source._query}) AS source"  # noqa: S608 (an admin's own)
            for one in (wrapped, source._query):
                if isinstance(connection, DuckDbConnection):
                    connection.explain(one)
                else:
                    connection.execute(sa.text(f"EXPLAIN {one}")).close()
        except (sa.exc.SQLAlchemyError, ValueError):
            raise DataError("the database does not take the query: check its tables and columns") from None


class SqlSource:
    """The rows of one query.

    On PostgreSQL every read sees the state that the first one saw, for as long as the source, or a part of it
    in the same process, is there; elsewhere each read runs in its own read transaction.

    Args:
        url: SQLAlchemy's.
        query: it yields the rows, whatever their order.
        ranges: where the rows may be cut into parts.
    """

    def __init__(self, url: str, query: str, ranges: Ranges | None = None):
        kind, separator, rest = url.partition("://")
        driver = f"+{DRIVERS[kind]}" if kind in DRIVERS else ""
        self._snapshot = Snapshot(f"{kind}{driver}{separator}{rest}")
        # A lone colon before a word would be taken for a parameter; owners' queries have none. What follows
        # the query would be part of a comment that ends it.
        end = "\n" if "--" in query else ""
        self._query = re.sub(r"(?<!:):(?=\w)", r"\:", query.strip().rstrip(";")) + end
        self._ranges = ranges
        self._run: PartRange | None = None
        self._read_bytes = READ_BYTES

    def reading_within(self, bytes_max: int) -> Self:
        """Return the same source, whose rows are fetched as many at a time as this memory holds."""
        source = copy.copy(self)
        source._read_bytes = bytes_max
        return source

    def _rows(self, names: Sequence[str] = (), ranges: tuple[int, int] | None = None) -> sa.Subquery:
        """Return the query, or those of its ``ranges`` (first, stop), with the named columns."""
        query = sa.text(self._query)
        if ranges is None or self._ranges is None:
            return query.columns(*map(sa.column, names)).subquery("source")
        known = dict.fromkeys((*names, self._ranges.column))
        inner = query.columns(*map(sa.column, known)).subquery("source")
        kept = self._ranges.within(*ranges)
        return sa.select(*(inner.c[name] for name in known)).where(kept).subquery("part")

    def column_names(self) -> tuple[str, ...]:
        """Return the names of the query's columns, from a run that yields no row."""
        rows = sa.text(self._query).columns().subquery("source")
        empty = sa.select(sa.text("*")).select_from(rows).where(NO_ROW)
        return self._answer(empty, "the source's query cannot be run: check it against the database")[0]

    def _answer(
        self, statement: sa.Select[Any], fault: str
    ) -> tuple[tuple[str, ...], Sequence[Sequence[Any]]]:
        """Return the names of a statement's columns and all its rows; raises DataError with that text."""
        with self._snapshot.connect() as connection:
            try:
                if isinstance(connection, DuckDbConnection):
                    return connection.answer(statement)
                result = connection.execute(statement)
                return tuple(result.keys()), result.all()
            except (sa.exc.SQLAlchemyError, ValueError):
                raise DataError(fault) from None

    def schema(self) -> list[ColumnSchema]:
        """Return the names of the query's columns, on PostgreSQL with their types; the run yields no row."""
        if self._snapshot.dialect != "postgresql":
            return [ColumnSchema(name, "unknown") for name in self.column_names()]
        rows = sa.text(self._query).columns().subquery("source")
        with self._snapshot.connect() as connection:
            try:
                empty = sa.select(sa.text("*")).select_from(rows).where(NO_ROW)
                found = cast(Any, connection).execute(empty).cursor.description
            except sa.exc.SQLAlchemyError:
                raise DataError("the source's query cannot be run: check it against the database") from None
        return [ColumnSchema(str(one[0]), _type_of(one[1])) for one in found]

    def fingerprint(self) -> FileState | None:
        """Return the state of DuckDB's file; None elsewhere: the table compares what it read."""
        file = self._snapshot.file
        return None if file is None or self._snapshot.dialect != "duckdb" else file_state(file)

    def rows(self) -> int:
        """Count the rows in the database; those of a part are known."""
        if self._run is not None:
            return self._run.rows
        query = sa.select(sa.func.count()).select_from(self._rows())
        ((rows,),) = self._answer(query, "the source's rows cannot be counted")[1]
        return int(rows)

    def split(self, parts: int) -> Sequence[Self]:
        """Return sources of ranges that follow one another, about equal in rows; itself where none are given.

        The database counts all ranges' rows at once. Rows come range after range, whole or in parts.
        """
        if self._ranges is None or self._run is not None:
            return [self]
        sizes = self._range_sizes(self._ranges)
        cut = []
        for first, stop in balanced_runs(sizes, parts):
            part = copy.copy(self)
            part._run = PartRange(first, stop, sum(sizes[first:stop]))
            cut.append(part)
        return cut or [self]

    def _range_sizes(self, ranges: Ranges) -> list[int]:
        inner = sa.text(self._query).columns(sa.column(ranges.column)).subquery("source")
        numbered = sa.select(ranges.number().label("place")).select_from(inner).subquery("numbered")
        query = sa.select(numbered.c.place, sa.func.count()).group_by(numbered.c.place)
        sizes = [0] * (len(ranges.bounds) + 1)
        for place, rows in self._answer(query, CANNOT_CUT)[1]:
            sizes[int(place)] = int(rows)
        return sizes

    def batches(self, columns: Columns, rows_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the named columns, at most ``rows_max`` at a time."""
        read = 0
        with self._snapshot.connect() as connection:
            try:
                for place in self._places():
                    for batch in self._batches(connection, columns, rows_max, place):
                        read += batch.num_rows
                        yield batch
            # A driver may stumble on a value by an error of Python's own.
            except (sa.exc.SQLAlchemyError, ValueError, ArithmeticError):
                raise DataError(NOT_READ) from None
        if self._run is not None and read != self._run.rows:
            raise DataError("the data set changed while it was being read; it must stay as it is")

    def _places(self) -> Sequence[int | None]:
        """Return the ranges to read, each by a query of its own: in one order, whoever reads how many."""
        if self._ranges is None:
            return [None]
        return range(self._run.first, self._run.stop) if self._run else range(len(self._ranges.bounds) + 1)

    def _batches(
        self, connection: sa.Connection | DuckDbConnection, columns: Columns, rows_max: int, place: int | None
    ) -> Iterator[pa.RecordBatch]:
        inner = self._rows(columns.names, None if place is None else (place, place + 1))
        if isinstance(connection, DuckDbConnection):
            query = sa.select(*(inner.c[name] for name in columns.names)).select_from(inner)
            yield from connection.batches(query, columns, rows_max, self._read_bytes)
            return
        dialect = connection.dialect.name
        query = sa.select(
            *(
                shortened(inner.c[name], columns.characters_of(name))
                if dialect == "sqlite"
                else inner.c[name]
                for name in columns.names
            )
        ).select_from(inner)
        if dialect == "postgresql":
            yield from read_by_copy(connection, query, columns, rows_max, self._read_bytes)
            return
        if dialect in MYSQL:
            yield from read_as_spelled(connection, query, columns, rows_max, self._read_bytes)
            return
        streaming = connection.execution_options(stream_results=True)
        with streaming.execute(query) as result:
            yield from fetched(result, rows_max, self._read_bytes, partial(batch_of, columns))

    def grouped(
        self, names: Sequence[str], rows_max: int
    ) -> Iterator[tuple[pa.RecordBatch, list[int]]] | None:
        """Yield distinct rows of the named columns, as text, each with how often it occurs; None elsewhere.

        Rows in one group have the same texts: the database groups by texts in binary collation. A column's
        own collation may take ``a`` and ``A``, and a number type 1.0 and 1.00, for equal; a group would then
        be shown as one of them, which one depending on other rows.
        """
        if self._snapshot.dialect not in BINARY_COLLATIONS:
            return None
        return self._grouped(names, rows_max)

    def _grouped(self, names: Sequence[str], rows_max: int) -> Iterator[tuple[pa.RecordBatch, list[int]]]:

        inner = self._rows(names, (self._run.first, self._run.stop) if self._run else None)
        with cast(sa.Connection, self._snapshot.connect()) as connection:
            try:
                if connection.dialect.name == "postgresql":
                    yield from grouped_by_copy(connection, inner, names, rows_max, self._read_bytes)
                else:
                    yield from self._grouped_by_value(connection, inner, names, rows_max)
            except sa.exc.SQLAlchemyError:
                raise DataError("the source's rows cannot be counted") from None

    def _grouped_by_value(
        self, connection: sa.Connection, rows: sa.Subquery, names: Sequence[str], rows_max: int
    ) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
        """Yield SQLite's groups: beside the text, it groups by the value, whose type may differ by row."""
        columns = [shortened(rows.c[name]) for name in names]
        texts = [sa.collate(sa.cast(column, sa.Text), BINARY_COLLATIONS["sqlite"]) for column in columns]
        query = sa.select(*columns, sa.func.count()).select_from(rows).group_by(*columns, *texts)

        def make(rows: Sequence[sa.Row[Any]]) -> tuple[pa.RecordBatch, list[int]]:
            return batch_of(Columns(text=tuple(names)), [row[:-1] for row in rows]), [
                int(row[-1]) for row in rows
            ]

        streaming = connection.execution_options(stream_results=True)
        with streaming.execute(query) as result:
            yield from fetched(result, rows_max, self._read_bytes, make)
