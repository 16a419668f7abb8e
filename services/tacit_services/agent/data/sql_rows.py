"""Rows of a query as Arrow batches: by a cursor on every database, by COPY on PostgreSQL.

A cursor makes an object of every value. COPY sends text, from which Arrow makes columns several times as
fast; it serves types whose text, parsed, is exactly what a cursor's value reads as.
"""

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any, TypeVar, cast

import psycopg
import pyarrow as pa
import pyarrow.csv as pa_csv
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from tacit_services.agent.data.arrow_columns import text_of
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
            arrays.append(pa.array([text_of(value) for value in by_column[index]], pa.string()))
        elif any(isinstance(value, str) for value in by_column[index]):
            arrays.append(pa.array([_number_text(value) for value in by_column[index]], pa.string()))
        else:
            arrays.append(pa.array([_number(value) for value in by_column[index]], pa.float64()))
    return pa.RecordBatch.from_arrays(arrays, names=list(columns.names))


def _number(value: object) -> float:
    if isinstance(value, int | float | Decimal):
        try:
            return float(value)
        except OverflowError:
            return math.inf
    return math.nan


def _number_text(value: object) -> str | None:
    return value if isinstance(value, str) else repr(_number(value))


def copied(
    connection: sa.Connection, query: sa.Select[Any], columns: Columns, rows_max: int, bytes_max: int
) -> Iterator[pa.RecordBatch] | None:
    """Yield the query's rows by PostgreSQL's COPY; None where a column's type needs a cursor.

    Raises:
        DataError: the rows cannot be read.
    """
    with connection.execute(query.where(sa.false())) as empty:
        described = [] if empty.cursor is None else empty.cursor.description
        kinds = [cast(int, kind) for _, kind, *_ in described]
    asked = _selected(query, kinds, len(columns.numbers))
    if asked is None:
        return None
    dialect = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]
    text = str(asked.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))
    types = {
        name: pa.float64() if kind in FLOATS else pa.string()
        for name, kind in zip(columns.names, kinds, strict=True)
    }
    return _copied(connection, text, types, rows_max, max(1, bytes_max // COPY_SHARE))


def _selected(query: sa.Select[Any], kinds: Sequence[int], numbers: int) -> sa.Select[Any] | None:
    """Return the query whose columns, as text, read as a cursor's values do; None where some cannot."""
    selected: list[sa.ColumnElement[Any]] = []
    for index, (column, kind) in enumerate(zip(query.selected_columns, kinds, strict=True)):
        if kind in BOOLEANS:
            selected.append(sa.cast(column, sa.Integer if index < numbers else sa.Text))
        elif kind in INTEGERS | FLOATS | TEXTS or (kind in NUMERIC and index < numbers):
            selected.append(column)
        else:
            return None
    return query.with_only_columns(*selected) if selected else None


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
        table = pa_csv.read_csv(
            pa.BufferReader(block),
            read_options=pa_csv.ReadOptions(
                column_names=list(types), block_size=len(block) + 1, use_threads=False
            ),
            parse_options=pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
            convert_options=pa_csv.ConvertOptions(
                column_types=types,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )
    except pa.ArrowException:
        raise DataError(NOT_READ) from None
    (batch,) = table.combine_chunks().to_batches()
    return batch
