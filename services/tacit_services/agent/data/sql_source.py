"""SQL queries, streamed through a server-side cursor with SQLAlchemy."""

import math
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import sqlalchemy as sa

from tacit_services.agent.data.arrow_columns import text_of
from tacit_services.agent.data.source import Columns, DataError

BINARY_COLLATIONS = {"sqlite": "BINARY", "postgresql": "C"}
"""Where rows are counted in the database, and its collation that tells all different texts apart."""


class SqlSource:
    """The rows of one query. Each read runs in its own read transaction."""

    def __init__(self, url: str, query: str):
        self._url = url.replace("postgresql://", "postgresql+psycopg://", 1)
        # A lone colon before a word would be taken for a parameter; owners' queries have none.
        self._query = re.sub(r"(?<!:):(?=\w)", r"\:", query.strip().rstrip(";"))

    def _connect(self) -> sa.Connection:
        try:
            engine = sa.create_engine(self._url, poolclass=sa.NullPool, hide_parameters=True)
            connection = engine.connect()
        except (sa.exc.SQLAlchemyError, ImportError):
            raise DataError("the database cannot be reached: check the source's URL") from None
        if engine.dialect.name == "postgresql":
            connection = connection.execution_options(
                isolation_level="REPEATABLE READ", postgresql_readonly=True
            )
        return connection

    def _select(self, names: Sequence[str] | None = None) -> sa.Select[Any]:
        inner = sa.text(self._query).columns(*map(sa.column, names or ())).subquery("source")
        if names is None:
            return sa.select(sa.text("*")).select_from(inner).where(sa.false())
        return sa.select(*(inner.c[name] for name in names)).select_from(inner)

    def column_names(self) -> tuple[str, ...]:
        """Return the names of the query's columns, from a run that yields no row."""
        with self._connect() as connection:
            try:
                return tuple(connection.execute(self._select()).keys())
            except sa.exc.SQLAlchemyError:
                raise DataError("the source's query cannot be run: check it against the database") from None

    def fingerprint(self) -> None:
        """Return None: a database does not tell whether rows changed; the table compares what it read."""

    def rows(self) -> int:
        """Count the rows in the database."""
        inner = sa.text(self._query).columns().subquery("source")
        with self._connect() as connection:
            try:
                count = connection.execute(sa.select(sa.func.count()).select_from(inner)).scalar_one()
            except sa.exc.SQLAlchemyError:
                raise DataError("the source's rows cannot be counted") from None
        return int(count)

    def batches(self, columns: Columns, rows_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the named columns, at most ``rows_max`` at a time."""
        with self._connect() as connection:
            try:
                streaming = connection.execution_options(stream_results=True, yield_per=rows_max)
                for rows in streaming.execute(self._select(columns.names)).partitions():
                    yield _batch(columns, rows)
            except sa.exc.SQLAlchemyError:
                raise DataError("the source's rows cannot be read") from None

    def grouped(
        self, names: Sequence[str], rows_max: int
    ) -> Iterator[tuple[pa.RecordBatch, list[int]]] | None:
        """Yield distinct rows of the named columns, as text, each with how often it occurs; None elsewhere.

        Rows in one group have the same texts: beside the value, the database groups by its text in binary
        collation. A column's own collation may take ``a`` and ``A``, and a number type 1.0 and 1.00, for
        equal; a group would then be shown as one of them, which one depending on other rows.
        """
        dialect = sa.make_url(self._url).get_backend_name()
        if dialect not in BINARY_COLLATIONS:
            return None
        return self._grouped(names, rows_max, BINARY_COLLATIONS[dialect])

    def _grouped(
        self, names: Sequence[str], rows_max: int, collation: str
    ) -> Iterator[tuple[pa.RecordBatch, list[int]]]:
        inner = sa.text(self._query).columns(*map(sa.column, names)).subquery("source")
        columns = [inner.c[name] for name in names]
        texts = [sa.collate(sa.cast(column, sa.Text), collation) for column in columns]
        query = sa.select(*columns, sa.func.count()).select_from(inner).group_by(*columns, *texts)
        with self._connect() as connection:
            try:
                streaming = connection.execution_options(stream_results=True, yield_per=rows_max)
                for rows in streaming.execute(query).partitions():
                    batch = _batch(Columns(text=tuple(names)), [row[:-1] for row in rows])
                    yield batch, [int(row[-1]) for row in rows]
            except sa.exc.SQLAlchemyError:
                raise DataError("the source's rows cannot be counted") from None


def _batch(columns: Columns, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
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
