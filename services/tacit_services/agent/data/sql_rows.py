"""Rows of a query as Arrow batches: by COPY on PostgreSQL, by a cursor on other databases.

COPY sends the text of every value, as the database spells it, from which Arrow makes columns several times as
fast as a cursor makes an object of each. And no value of any type is one that a driver cannot make.
"""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, TypeVar, cast

import psycopg
import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from tacit_services.agent.data.arrow_columns import UNDECODED, text_of
from tacit_services.agent.data.csv_source import parsed_block
from tacit_services.agent.data.source import Columns, DataError

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

LONG_CHARACTERS, LONG_BYTES = 4096, 2**14
"""Longer texts are cut by the database, but for ids: none is a level, and one could fill the memory."""

TEXT = pa.binary()
"""Text as it comes: a database may hold bytes that are no UTF-8."""

COUNT = ""
"""Names the column of counts: no column of a study has an empty name."""

NOT_READ = "the source's rows cannot be read"


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
            selected.append(_as_text(column, kind, whole=name == columns.unit))
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


def shortened(column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
    """Return a column of SQLite whose long texts and bytes are cut."""
    size = sa.func.length(sa.cast(column, sa.BLOB))
    return sa.case((size > LONG_BYTES, sa.func.substr(column, 1, LONG_CHARACTERS)), else_=column)


def _kinds(connection: sa.Connection, query: sa.Select[Any]) -> list[int]:
    """Return the numbers of the types of a query's columns."""
    with connection.execute(query.where(sa.false())) as empty:
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


def _as_text(column: sa.ColumnElement[Any], kind: int, *, whole: bool = False) -> sa.ColumnElement[Any]:
    """Return a column as COPY sends it for a category, or ``whole`` for an id.

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
    return spelled if whole or kind in INTEGERS | BOOLEANS else sa.func.left(spelled, LONG_CHARACTERS)


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
