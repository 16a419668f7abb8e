"""Transactions are serializable on both databases, conflicts are retried whole, and failures have names."""

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from tacit_services.shared.database import (
    DatabaseUnavailableError,
    StorageFullError,
    check_database,
    create_engine,
    run_transaction,
    upgrade,
)

pytestmark = pytest.mark.both_databases

METADATA = sa.MetaData()
ACCOUNTS = sa.Table(
    "accounts",
    METADATA,
    sa.Column("name", sa.String, primary_key=True),
    sa.Column("amount", sa.Integer, nullable=False),
)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = create_engine(database_url)
    run_transaction(engine, METADATA.create_all)
    yield engine
    engine.dispose()


def _amounts(connection: Connection) -> list[int]:
    return list(connection.execute(sa.select(ACCOUNTS.c.amount)).scalars())


def test_read_then_write_never_loses_an_update(engine: Engine) -> None:
    """Sum-then-insert, the pattern that overspends below serializable isolation."""
    barrier = threading.Barrier(8, timeout=120)

    def spend(connection: Connection, name: str) -> None:
        if sum(_amounts(connection)) < 3:
            connection.execute(ACCOUNTS.insert().values(name=name, amount=1))

    def worker(index: int) -> None:
        barrier.wait()
        run_transaction(engine, lambda connection: spend(connection, f"n{index}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(worker, range(8)))
    assert sum(run_transaction(engine, _amounts, read_only=True)) == 3


def test_a_database_that_is_away_is_unavailable(tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path}/missing/a.sqlite3", "postgresql://127.0.0.1:1/none"):
        engine = create_engine(url)
        with pytest.raises(DatabaseUnavailableError):
            check_database(engine)
        with pytest.raises(DatabaseUnavailableError):
            upgrade(engine, "tester")
        engine.dispose()


def test_a_full_database_says_so_and_keeps_what_it_had(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path}/a.sqlite3")
    run_transaction(engine, METADATA.create_all)

    def fill(connection: Connection) -> None:
        connection.exec_driver_sql("PRAGMA max_page_count=10")
        connection.execute(ACCOUNTS.insert().values(name="x" * 100_000, amount=1))

    with pytest.raises(StorageFullError):
        run_transaction(engine, fill)
    assert run_transaction(engine, _amounts, read_only=True) == []
    engine.dispose()


def test_other_databases_are_refused() -> None:
    with pytest.raises(ValueError, match="sqlite"):
        create_engine("mysql://localhost/x")


def test_a_new_file_that_another_process_is_writing_is_waited_for(tmp_path: Path) -> None:
    """SQLite refuses at once, whatever busy_timeout says, to turn the log on beside a writer."""
    path = tmp_path / "new.sqlite3"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as writer:
        writer.execute("CREATE TABLE other (x INTEGER)")
        writer.execute("BEGIN IMMEDIATE")
        with closing(sqlite3.connect(path, timeout=10)) as hasty, pytest.raises(sqlite3.OperationalError):
            hasty.execute("PRAGMA journal_mode=WAL")
        finishing = threading.Timer(0.3, writer.execute, ["COMMIT"])
        finishing.start()
        engine = create_engine(f"sqlite:///{path}")
        mode = run_transaction(
            engine, lambda connection: connection.exec_driver_sql("PRAGMA journal_mode").scalar()
        )
        engine.dispose()
        finishing.join()
    assert mode == "wal"


def test_processes_that_start_at_once_migrate_once(database_url: str) -> None:
    barrier = threading.Barrier(4, timeout=120)

    def start(_: int) -> None:
        engine = create_engine(database_url)
        barrier.wait()
        upgrade(engine, "tester")
        engine.dispose()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(start, range(4)))
    engine = create_engine(database_url)
    names = run_transaction(engine, lambda connection: sa.inspect(connection).get_table_names())
    engine.dispose()
    assert {"alembic_tester", "studies", "releases"} <= set(names)
