"""SQL queries, streamed with SQLAlchemy: by a server-side cursor, or by COPY on PostgreSQL."""

import copy
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import pyarrow as pa
import sqlalchemy as sa

from tacit_services.agent.data.parquet_source import balanced_runs
from tacit_services.agent.data.source import READ_BYTES, Columns, DataError
from tacit_services.agent.data.sql_snapshot import Snapshot

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


@dataclass(frozen=True)
class RangeRun:
    """Some ranges that follow one another, up to but without ``stop``, and how many rows they hold."""

    first: int
    stop: int
    rows: int


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
        self._snapshot = Snapshot(url.replace("postgresql://", "postgresql+psycopg://", 1))
        # A lone colon before a word would be taken for a parameter; owners' queries have none.
        self._query = re.sub(r"(?<!:):(?=\w)", r"\:", query.strip().rstrip(";"))
        self._ranges = ranges
        self._run: RangeRun | None = None
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
        with self._snapshot.connect() as connection:
            try:
                empty = sa.select(sa.text("*")).select_from(rows).where(sa.false())
                return tuple(connection.execute(empty).keys())
            except sa.exc.SQLAlchemyError:
                raise DataError("the source's query cannot be run: check it against the database") from None

    def fingerprint(self) -> None:
        """Return None: a database does not tell whether rows changed; the table compares what it read."""

    def rows(self) -> int:
        """Count the rows in the database; those of a part are known."""
        if self._run is not None:
            return self._run.rows
        with self._snapshot.connect() as connection:
            try:
                query = sa.select(sa.func.count()).select_from(self._rows())
                return int(connection.execute(query).scalar_one())
            except sa.exc.SQLAlchemyError:
                raise DataError("the source's rows cannot be counted") from None

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
            part._run = RangeRun(first, stop, sum(sizes[first:stop]))
            cut.append(part)
        return cut or [self]

    def _range_sizes(self, ranges: Ranges) -> list[int]:
        inner = sa.text(self._query).columns(sa.column(ranges.column)).subquery("source")
        numbered = sa.select(ranges.number().label("place")).select_from(inner).subquery("numbered")
        query = sa.select(numbered.c.place, sa.func.count()).group_by(numbered.c.place)
        sizes = [0] * (len(ranges.bounds) + 1)
        with self._snapshot.connect() as connection:
            try:
                for place, rows in connection.execute(query):
                    sizes[place] = int(rows)
            except sa.exc.SQLAlchemyError:
                raise DataError(CANNOT_CUT) from None
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
            except sa.exc.SQLAlchemyError:
                raise DataError("the source's rows cannot be read") from None
        if self._run is not None and read != self._run.rows:
            raise DataError("the data set changed while it was being read; it must stay as it is")

    def _places(self) -> Sequence[int | None]:
        """Return the ranges to read, each by a query of its own: in one order, whoever reads how many."""
        if self._ranges is None:
            return [None]
        return range(self._run.first, self._run.stop) if self._run else range(len(self._ranges.bounds) + 1)

    def _batches(
        self, connection: sa.Connection, columns: Columns, rows_max: int, place: int | None
    ) -> Iterator[pa.RecordBatch]:
        # The driver is loaded where a database is read.
        from tacit_services.agent.data.sql_rows import (  # noqa: PLC0415
            batch_of,
            fetched,
            read_by_copy,
            shortened,
        )

        inner = self._rows(columns.names, None if place is None else (place, place + 1))
        dialect = connection.dialect.name
        cut = dialect == "sqlite"
        query = sa.select(
            *(
                shortened(inner.c[name]) if cut and name != columns.unit else inner.c[name]
                for name in columns.names
            )
        ).select_from(inner)
        if dialect == "postgresql":
            yield from read_by_copy(connection, query, columns, rows_max, self._read_bytes)
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
        from tacit_services.agent.data.sql_rows import grouped_by_copy  # noqa: PLC0415

        inner = self._rows(names, (self._run.first, self._run.stop) if self._run else None)
        with self._snapshot.connect() as connection:
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
        from tacit_services.agent.data.sql_rows import batch_of, fetched, shortened  # noqa: PLC0415

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
