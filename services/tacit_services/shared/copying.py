"""Copy a service's whole database into an empty one: for a backup, or to move from SQLite to PostgreSQL.

The copy is one consistent moment of the source, however much is written meanwhile. What is written to the
source *after* that moment is not in the copy: a service that is to go on with the copy must be stopped first,
or debits are forgotten.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine, make_url

from tacit_services.shared.database import create_engine, run_transaction, upgrade

ROWS_AT_ONCE = 500
"""Rows in memory at once: a release may have a megabyte."""

NOTHING = "there is no database to copy: the service makes it when it first starts"


class CopyError(Exception):
    """The copy cannot be made; nothing was written. The text says what to do."""


def copy_database(source_url: str, target_url: str, component: str) -> dict[str, int]:
    """Copy the tables of ``tester``, ``agent`` or ``curator``; returns the number of rows of each.

    Raises:
        CopyError: the source has no tables, or those of another version; the target is not empty, or its URL
            is none of SQLite's or PostgreSQL's.
        DatabaseError: a database cannot be reached, or is full; the target holds no row then.
    """
    url = make_url(source_url)
    if url.get_backend_name() == "sqlite" and not Path(str(url.database)).is_file():
        raise CopyError(NOTHING)
    try:
        source, target = create_engine(source_url), create_engine(target_url)
    except (sa.exc.ArgumentError, ValueError):
        raise CopyError("--to must be sqlite:///file or postgresql://user:password@host/name") from None
    try:
        version = _version(source, component)
        if version is None:
            raise CopyError(NOTHING)
        _create_private(target)
        upgrade(target, component)
        if version != _version(target, component):
            raise CopyError("the database is of an older release: start the service on it once, then copy")
        return run_transaction(source, lambda reading: _copy(reading, target), read_only=True)
    finally:
        source.dispose()
        target.dispose()


def _create_private(target: Engine) -> None:
    """Make SQLite's file for its owner's eyes alone: it may hold exact findings and alignment keys."""
    if target.dialect.name == "sqlite" and target.url.database:
        try:
            Path(target.url.database).touch(mode=0o600)
        except OSError as error:
            raise CopyError(f"the database to copy to cannot be written: {error.strerror}") from None


def _version(engine: Engine, component: str) -> str | None:
    table = f"alembic_{component}"

    def read(connection: Connection) -> str | None:
        if not sa.inspect(connection).has_table(table):
            return None
        return connection.execute(sa.select(sa.column("version_num")).select_from(sa.table(table))).scalar()

    return run_transaction(engine, read, read_only=True)


def _copy(reading: Connection, target: Engine) -> dict[str, int]:
    found = sa.MetaData()
    found.reflect(reading)
    copies = sa.MetaData()
    copies.reflect(target)
    # Two services may share a database: only what both sides have is of this one.
    tables = [
        copy
        for copy in copies.sorted_tables
        if copy.name in found.tables and not copy.name.startswith("alembic_")
    ]

    def write(writing: Connection) -> dict[str, int]:
        if any(writing.execute(sa.select(copy).limit(1)).first() is not None for copy in tables):
            raise CopyError("the database to copy to is not empty: name a new one")
        counts = {copy.name: _copy_table(reading, writing, found.tables[copy.name], copy) for copy in tables}
        if writing.dialect.name == "postgresql":
            for copy in tables:
                _continue_numbers(writing, copy)
        return counts

    return run_transaction(target, write)


def _copy_table(reading: Connection, writing: Connection, table: sa.Table, copy: sa.Table) -> int:
    columns = [table.c[column.name] for column in copy.columns]
    count = 0
    for rows in _pieces(reading, sa.select(*columns)):
        writing.execute(copy.insert(), rows)
        count += len(rows)
    return count


def _pieces(reading: Connection, query: sa.Select[Any]) -> Iterator[list[dict[str, Any]]]:
    result = reading.execution_options(yield_per=ROWS_AT_ONCE).execute(query)
    for piece in result.mappings().partitions():
        yield [dict(row) for row in piece]


def _continue_numbers(writing: Connection, copy: sa.Table) -> None:
    """Let PostgreSQL's own numbers go on after those that were copied."""
    for column in copy.primary_key.columns:
        if column.server_default is None or "nextval" not in str(getattr(column.server_default, "arg", "")):
            continue
        largest = sa.select(sa.func.max(column)).scalar_subquery()
        sequence = sa.func.pg_get_serial_sequence(copy.name, column.name)
        writing.execute(
            sa.select(sa.func.setval(sequence, sa.func.coalesce(largest, 1), largest.is_not(None)))
        )


def add_copy_arguments(command: argparse.ArgumentParser) -> None:
    """Add what ``copy`` needs to a service's own command line."""
    command.add_argument("--to", required=True, help="an empty database: sqlite:///file or postgresql://...")


def text_of_copy(counts: Mapping[str, int]) -> str:
    """Return what was copied as lines for a terminal."""
    return "\n".join([*(f"{name}: {rows} rows" for name, rows in counts.items()), "copied"]) + "\n"
