"""One state of a PostgreSQL database for several reads, on as many connections as there are readers.

A transaction that exports its snapshot is kept open for as long as the data set is read, and every read takes
the snapshot over. So the pass that counts and the pass that sums see the same rows, and so do parts of a
query that are read at once, here or elsewhere.
"""

import threading
import weakref
from contextlib import suppress
from functools import partial
from typing import Any

import sqlalchemy as sa

from tacit_services.agent.data.arrow_columns import UNDECODED
from tacit_services.agent.data.source import DataError

UNREACHABLE = "the database cannot be reached: check the source's URL"
LET_GO = (
    "the database no longer holds the state in which the data set was first read, since the connection that "
    "kept it was closed; ask again with a new study"
)
NOT_HELD = "the database cannot hold one state for several reads: pg_export_snapshot() is refused"

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

    def connect(self) -> sa.Connection:
        """Return a new connection that sees the state, in a transaction that cannot write.

        Raises:
            DataError: the database cannot be reached, or has let go of the state.
        """
        held = self._held()
        connection = _connect(self._url)
        if held is None:
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
    except (sa.exc.SQLAlchemyError, ImportError):
        raise DataError(UNREACHABLE) from None
    if engine.dialect.name == "postgresql":
        return connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
    return connection
