"""SQL the same way on SQLite and PostgreSQL: serializable transactions, retried whole; migrations; copies.

Group commit: what callers hand in while a commit waits for the disk is committed together by the next one,
and nobody is answered before the commit that holds what it handed in (docs/decisions/0014-group-commit.md).
"""

import errno
import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

import psycopg
import sqlalchemy as sa
import tenacity
from alembic import command
from alembic.config import Config
from sqlalchemy.engine import Connection, Engine, make_url

BUSY_TIMEOUT_S = 10
"""How long a transaction waits for SQLite's one writer before it is refused."""

STATEMENT_TIMEOUT_S = 30
"""How long one PostgreSQL statement may take: all of ours read or write a few rows."""

CONNECT_TIMEOUT_S = 5
"""How long opening a PostgreSQL connection may take."""

ATTEMPTS_MAX = 12
"""Attempts at one transaction. With jitter this settles dozens of writers of the same row."""

RETRY_PAUSE_MAX_S = 0.5
"""Longest pause between two attempts."""

REWRITE_WAIT_MS = 1000
"""How long PostgreSQL waits to write a table anew that others use."""

ROOM_BYTES = 2**22
"""Room that a service wants on its disk to count as ready: a few of the largest messages, and their log."""

ROOM_ROWS = 4000
"""Rows of the table for which PostgreSQL is asked to find room: 18 pages, which it takes from its disk."""

MIGRATION_LOCK = 7_216_348_201
"""PostgreSQL advisory lock that lets one process migrate at a time; an arbitrary number."""

P = ParamSpec("P")
Result = TypeVar("Result")

_READ_ONLY = "tacit_read_only"
_SQLITE_BUSY, _SQLITE_FULL, _SQLITE_PRIMARY_MASK = 5, 13, 0xFF
_SQLITE_CORRUPT, _SQLITE_NOT_A_DATABASE = 11, 26
_RETRIED_STATES = {"40001", "40P01", "23505"}
"""Serialization failure, deadlock, and the unique violation that PostgreSQL may report in their stead."""
_FULL_STATE, _FORBIDDEN_STATE, _LOCKED_STATE = "53100", "42501", "55P03"
_READERS = (
    "SELECT pid FROM pg_stat_activity"
    " WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()"
)
NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What the system says where a disk is full."""
_OTHERS = 0o077


class DatabaseError(Exception):
    """The database did not do what was asked. The text is constant."""


class DatabaseUnavailableError(DatabaseError):
    """Nothing can be read or written now; the transaction did not happen, or its commit was not confirmed."""


class StorageFullError(DatabaseError):
    """The database has no room left; the transaction did not happen."""


def create_engine(url: str) -> Engine:
    """Create an engine for ``sqlite:///file`` or ``postgresql://…``.

    SQLite: write-ahead log, synchronous=FULL, foreign keys, BEGIN IMMEDIATE for writers. PostgreSQL:
    SERIALIZABLE. Use :func:`run_transaction` for every access.
    """
    parsed = make_url(url)
    if parsed.get_backend_name() == "sqlite":
        return _sqlite_engine(parsed)
    if parsed.drivername in {"postgresql", "postgres"}:
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername != "postgresql+psycopg":
        raise ValueError("the database must be sqlite:///file or postgresql://host/name")
    # What was acknowledged must survive a power cut, whatever the server's own default is.
    options = f"-c statement_timeout={STATEMENT_TIMEOUT_S * 1000} -c timezone=UTC -c synchronous_commit=on"
    return sa.create_engine(
        parsed,
        isolation_level="SERIALIZABLE",
        pool_pre_ping=True,
        hide_parameters=True,
        connect_args={"connect_timeout": CONNECT_TIMEOUT_S, "options": options},
    )


def _sqlite_engine(url: sa.URL) -> Engine:
    engine = sa.create_engine(url, hide_parameters=True, connect_args={"timeout": BUSY_TIMEOUT_S})

    @sa.event.listens_for(engine, "do_connect")
    def keep_private(*_: Any) -> None:
        if url.database and url.database != ":memory:" and not url.query:
            keep_file_private(Path(url.database))

    @sa.event.listens_for(engine, "connect")
    def configure(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions are begun below, not by the driver
        for pragma in (
            f"busy_timeout={BUSY_TIMEOUT_S * 1000}",
            "synchronous=FULL",
            "foreign_keys=ON",
            "secure_delete=ON",  # a key that is deleted is overwritten
        ):
            connection.execute(f"PRAGMA {pragma}")
        # Processes that open a new file at once all turn its log on. SQLite refuses one that would wait
        # in a circle without asking busy_timeout, so the wait is ours.
        tenacity.Retrying(
            stop=tenacity.stop_after_delay(BUSY_TIMEOUT_S),
            wait=tenacity.wait_random(0.001, 0.02),
            retry=tenacity.retry_if_exception(_is_busy),
            reraise=True,
        )(connection.execute, "PRAGMA journal_mode=WAL")

    @sa.event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer takes the lock before it reads, so that what it read still holds when it writes.
        read_only = connection.get_execution_options().get(_READ_ONLY, False)
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    return engine


def keep_file_private(path: Path) -> None:
    """Make a database's file, its log and its index readable by their owner alone, whatever the umask.

    SQLite gives the log and the index the rights of the file. Neither is opened here: to close any handle of
    a database's file would drop the locks that this process holds on it.
    """
    if not path.exists():
        with suppress(OSError):  # SQLite itself says what is wrong with the folder
            handle, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
            os.close(handle)
            try:
                os.link(made, path)  # which never replaces a file that another process has made meanwhile
            finally:
                os.unlink(made)
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        with suppress(OSError):  # not there, or another user's: the doctor says so
            if file.stat().st_mode & _OTHERS:
                file.chmod(0o600)


def run_transaction(
    engine: Engine,
    work: Callable[[Connection], Result],
    *,
    read_only: bool = False,
    locks_rows: bool = False,
) -> Result:
    """Run ``work`` in one serializable transaction and commit it; on a conflict, run it again from its start.

    ``work`` must have no effect but on its connection, since it may run several times.

    Args:
        engine: the database.
        work: reads and writes on the connection that it is given.
        read_only: it writes nothing.
        locks_rows: it decides on nothing but rows that it has locked, or by the condition of the statement
            that writes. PostgreSQL then runs it as READ COMMITTED, in which those who change different rows
            of a small table never collide.

    Raises:
        DatabaseUnavailableError: the database cannot be reached, or conflicts did not settle.
        StorageFullError: there is no room left.
    """
    retrying = tenacity.Retrying(
        stop=tenacity.stop_after_attempt(ATTEMPTS_MAX),
        wait=tenacity.wait_random_exponential(multiplier=0.01, max=RETRY_PAUSE_MAX_S),
        retry=tenacity.retry_if_exception(_is_conflict),
        reraise=True,
    )
    with _named_failures():
        result: Result = retrying(_run_once, engine, work, read_only, locks_rows)
        return result


def read_from(
    engine: Engine, work: Callable[Concatenate[Connection, P], Result], *arguments: P.args, **named: P.kwargs
) -> Result:
    """Return what ``work`` reads on a connection of one moment, given these arguments besides."""
    return run_transaction(engine, lambda connection: work(connection, *arguments, **named), read_only=True)


def check_database(engine: Engine) -> None:
    """Return if the database answers and has room to write.

    Raises:
        DatabaseUnavailableError: it does not answer, or cannot be written.
        StorageFullError: there is no room.
    """
    if engine.dialect.name == "postgresql":
        run_transaction(engine, _take_room)
        return
    read_from(engine, lambda connection: connection.execute(sa.text("SELECT 1")).scalar())
    if engine.url.database and engine.url.database != ":memory:":
        check_room(Path(engine.url.database).parent)


def check_room(folder: Path) -> None:
    """Return if a folder's disk takes :data:`ROOM_BYTES` more; what is taken is given back at once.

    Raises:
        DatabaseUnavailableError: the folder cannot be written.
        StorageFullError: there is no room.
    """
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            os.posix_fallocate(file.fileno(), 0, ROOM_BYTES)
    except OSError as error:
        if error.errno in NO_ROOM:
            raise StorageFullError("the disk has no room left") from error
        raise DatabaseUnavailableError("the folder cannot be written") from error


def sync_folder(folder: Path) -> None:
    """Force a folder's names to the disk: what was made or renamed in it outlives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _take_room(connection: Connection) -> None:
    """Have PostgreSQL take room from its disk, for a table that ends with the transaction."""
    statement = f"CREATE TEMPORARY TABLE tacit_room ON COMMIT DROP AS SELECT generate_series(1, {ROOM_ROWS})"
    try:
        connection.exec_driver_sql(statement)
    except sa.exc.ProgrammingError as error:
        # Where the operator forbids temporary tables, an answer is all that there is to be had.
        if getattr(error.orig, "sqlstate", None) != _FORBIDDEN_STATE:
            raise


def forget_deleted(engine: Engine) -> None:
    """Have the database forget what was deleted; waits for readers that are in the way, as a writer does."""
    tenacity.Retrying(
        stop=tenacity.stop_after_delay(BUSY_TIMEOUT_S),
        wait=tenacity.wait_random(0.001, 0.02),
        retry=tenacity.retry_if_result(lambda done: not done),
        retry_error_callback=lambda _: None,
    )(try_to_forget, engine)


def try_to_forget(engine: Engine, *tables: sa.Table) -> bool:
    """Have the database forget what was deleted or emptied; returns whether it has, or is to be asked again.

    SQLite overwrites it at once, and its write-ahead log is emptied here unless a reader needs it. PostgreSQL
    writes these small tables anew without their dead rows, unless a reader may still see them; its own log,
    its replicas and its backups keep them (docs/curator-storage.md).
    """
    with _named_failures():
        if engine.dialect.name != "sqlite":
            return _rewrite(engine, tables)
        connection = engine.raw_connection()  # a checkpoint runs outside of transactions
        try:
            # A checkpoint that waits for a reader would hold up every writer meanwhile.
            connection.cursor().execute("PRAGMA busy_timeout=0")
            found = connection.cursor().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        finally:
            connection.cursor().execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_S * 1000}")
            connection.close()
    return not found[0][0]


def _rewrite(engine: Engine, tables: Sequence[sa.Table]) -> bool:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for table in tables:
            if connection.exec_driver_sql(_READERS).first() is not None:
                return False
            try:
                connection.exec_driver_sql(f"SET lock_timeout = {REWRITE_WAIT_MS}")
                connection.exec_driver_sql(f"VACUUM FULL {table.name}")
            except sa.exc.OperationalError as error:
                if getattr(error.orig, "sqlstate", None) != _LOCKED_STATE:
                    raise
                return False
            finally:
                connection.exec_driver_sql("RESET lock_timeout")
    return True


def upgrade(engine: Engine, component: str) -> None:
    """Bring the schema of ``tester`` or ``agent`` up to date; safe when several processes start at once.

    The migrations are the modules of ``tacit_services.<component>.migrations``; each component has its own
    version table, so that both may share a database.

    Raises:
        DatabaseUnavailableError: the database cannot be reached.
        StorageFullError: there is no room left.
    """
    with (
        _named_failures(),
        as_file(files("tacit_services") / "shared" / "alembic") as environment,
        as_file(files("tacit_services") / component / "migrations") as versions,
        _migrating(engine) as connection,
    ):
        config = Config(attributes={"connection": connection, "version_table": f"alembic_{component}"})
        config.set_main_option("script_location", str(environment).replace("%", "%%"))
        config.set_main_option("version_locations", str(versions).replace("%", "%%"))
        config.set_main_option("path_separator", "newline")
        command.upgrade(config, "head")


@contextmanager
def _named_failures() -> Iterator[None]:
    """Name the database's own failures. A broken rule of the schema is a mistake of ours and passes."""
    try:
        yield
    except (
        sa.exc.OperationalError,
        sa.exc.InterfaceError,
        sa.exc.InternalError,
        sa.exc.TimeoutError,
    ) as error:
        if _is_full(error):
            raise StorageFullError("the database has no room left") from error
        raise DatabaseUnavailableError("the database is unavailable") from error
    except sa.exc.DatabaseError as error:
        if not _is_damaged(error):
            raise
        raise DatabaseUnavailableError("the database is damaged") from error


@contextmanager
def _migrating(engine: Engine) -> Iterator[Connection]:
    """One transaction that no other migration runs beside."""
    if engine.dialect.name == "sqlite":
        with engine.begin() as connection:  # BEGIN IMMEDIATE is the lock
            yield connection
        return
    # READ COMMITTED: what is read after waiting for the lock includes what its last holder did.
    waiting = engine.connect().execution_options(isolation_level="READ COMMITTED")
    with waiting as connection, connection.begin():
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK})
        yield connection


def _run_once(
    engine: Engine, work: Callable[[Connection], Result], read_only: bool, locks_rows: bool
) -> Result:
    options: dict[str, Any] = {}
    if locks_rows and engine.dialect.name == "postgresql":
        options = {"isolation_level": "READ COMMITTED"}
    if read_only:
        options = {_READ_ONLY: True}
        if engine.dialect.name == "postgresql":
            # One snapshot is all that a reader needs; it never conflicts.
            options |= {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with engine.connect().execution_options(**options) as connection, connection.begin():
        return work(connection)


def _is_conflict(error: BaseException) -> bool:
    if not isinstance(error, sa.exc.DBAPIError):
        return False
    if isinstance(error.orig, psycopg.Error):
        return error.orig.sqlstate in _RETRIED_STATES
    return error.orig is not None and _is_busy(error.orig)


def _is_busy(error: BaseException) -> bool:
    code = getattr(error, "sqlite_errorcode", 0)
    return isinstance(error, sqlite3.OperationalError) and code & _SQLITE_PRIMARY_MASK == _SQLITE_BUSY


def _is_full(error: sa.exc.SQLAlchemyError) -> bool:
    if not isinstance(error, sa.exc.DBAPIError):
        return False
    if isinstance(error.orig, psycopg.Error):
        return error.orig.sqlstate == _FULL_STATE
    return _sqlite_code(error) == _SQLITE_FULL


def _is_damaged(error: sa.exc.DBAPIError) -> bool:
    return _sqlite_code(error) in {_SQLITE_CORRUPT, _SQLITE_NOT_A_DATABASE}


def _sqlite_code(error: sa.exc.DBAPIError) -> int:
    return int(getattr(error.orig, "sqlite_errorcode", 0)) & _SQLITE_PRIMARY_MASK


Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


@dataclass
class _HandedInWork(Generic[Item, Outcome]):
    """What one caller handed in, and what came of it."""

    item: Item
    turn: threading.Event = field(default_factory=threading.Event)
    """Set once there is an outcome, or once the piece is to lead the next group."""
    outcomes: Sequence[Outcome] = ()
    """One, once there is one."""
    error: BaseException | None = None


class GroupCommit(Generic[Item, Outcome]):
    """Stores items for callers in many threads, as many in one transaction as wait at once.

    A group is led by the thread of one of its pieces. It is no larger than the number of threads that serve
    requests, as each thread waits for its own piece.

    Args:
        engine: the database.
        store: stores items in a serializable transaction and returns the outcome of each. It may run several
            times for one item and must have no effect but on its connection.
    """

    def __init__(self, engine: Engine, store: Callable[[Connection, Sequence[Item]], list[Outcome]]) -> None:
        self._engine = engine
        self._store = store
        self._lock = threading.Lock()
        self._waiting: list[_HandedInWork[Item, Outcome]] = []
        self._is_led = False

    def run(self, item: Item) -> Outcome:
        """Return the outcome of an item once it is committed.

        Where storing a group raises, nothing of it is kept, and each item is stored in a transaction of its
        own: what one caller sends never decides what another is answered.

        Raises:
            DatabaseError: as :func:`run_transaction`; the whole group gets it.
        """
        piece: _HandedInWork[Item, Outcome] = _HandedInWork(item)
        with self._lock:
            self._waiting.append(piece)
            leads, self._is_led = not self._is_led, True
        if not leads:
            piece.turn.wait()
        if piece.error is None and not piece.outcomes:
            self._lead()
        if piece.error is not None:
            raise piece.error
        return piece.outcomes[0]

    def _lead(self) -> None:
        """Commit the group that waits now, then wake it and the leader of the next."""
        with self._lock:
            group, self._waiting = self._waiting, []
        self._commit(group)
        with self._lock:
            next_leader = self._waiting[:1]
            self._is_led = bool(next_leader)
        for piece in (*next_leader, *group):
            piece.turn.set()

    def _commit(self, group: list[_HandedInWork[Item, Outcome]]) -> None:
        items = [piece.item for piece in group]
        try:
            outcomes = run_transaction(self._engine, lambda connection: self._store(connection, items))
            if len(outcomes) != len(items):
                raise RuntimeError("storing a group must give each item an outcome")
        except BaseException as error:  # whatever it is, those who wait must be told
            if len(group) > 1 and not isinstance(error, DatabaseError):
                for piece in group:
                    self._commit([piece])
                return
            for piece in group:
                piece.error = error
        else:
            for piece, outcome in zip(group, outcomes, strict=True):
                piece.outcomes = (outcome,)


ROWS_AT_ONCE = 500
"""Rows in memory at once: a release may have a megabyte."""

NOTHING = "there is no database to copy: the service makes it when it first starts"


class CopyError(Exception):
    """The copy cannot be made; nothing was written. The text says what to do."""


def copy_database(source_url: str, target_url: str, component: str) -> dict[str, int]:
    """Copy the tables of ``tester``, ``agent`` or ``curator``; returns the number of rows of each.

    The copy is one consistent moment of the source, however much is written meanwhile. What is written after
    it is not in the copy: a service that is to go on with the copy must be stopped first, or debits are
    forgotten.

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
        return read_from(source, _copy, target)
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

    return read_from(engine, read)


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
    query, count = sa.select(*(table.c[column.name] for column in copy.columns)), 0
    result = reading.execution_options(yield_per=ROWS_AT_ONCE).execute(query)
    for rows in result.mappings().partitions():
        writing.execute(copy.insert(), [dict(row) for row in rows])
        count += len(rows)
    return count


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
