"""Leases of verdict jobs: at most one worker, of all processes on the database, computes a verdict at a time.

A lease is a holder's name and an end in the job's row. Every change of the row names the holder that it
expects, so that a worker whose lease has passed to another changes nothing more. On PostgreSQL a free row is
locked before it is taken and rows that others are taking are passed over (``FOR UPDATE SKIP LOCKED``), and
all times are the database server's: workers' hosts need not agree on the time. SQLite's processes share one
machine and its clock, and take one another's place as writers.
"""

from collections.abc import Callable

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tacit_services.shared.clock import Clock, system_clock
from tacit_services.tester.endings import fail
from tacit_services.tester.tables import JOBS

LEASE_S = 30.0
"""How long after its worker's last sign of life a job may be taken by another."""

RENEWAL_S = LEASE_S / 3
"""How often a worker renews its lease: twice may fail."""

STANDSTILL_S = 30
"""How long a worker may stand still while it has a job's row locked; PostgreSQL then ends its session."""

ATTEMPTS_MAX = 5
"""Attempts at a verdict before the study counts as failed: more would crash testers for ever."""

RETRY_PAUSE_S = 5.0
"""How long a failed attempt waits for the next, times the attempts so far."""

Present = Callable[[Connection], sa.ColumnElement[float]]
"""Returns the present, in Unix seconds, as SQL: the same for every worker on the database."""


class LeaseLostError(Exception):
    """The job has passed to another worker, or has been given back."""


def database_time(connection: Connection) -> sa.ColumnElement[float]:
    """Return the present by the clock that all processes on this database share."""
    if connection.dialect.name == "postgresql":
        return sa.cast(sa.extract("epoch", sa.func.statement_timestamp()), sa.Double)
    return sa.literal(system_clock())


def time_of(clock: Clock) -> Present:
    """Return a clock's time as SQL."""
    return lambda _: sa.literal(clock())


class Leases:
    """The leases of one worker. Every method runs inside the caller's transaction."""

    def __init__(self, holder: str, present: Present = database_time) -> None:
        self.holder = holder
        """The worker's name: no other worker, past or present, has the same."""
        self._present = present

    def take(self, connection: Connection) -> str | None:
        """Take a free job and return its study, or None; a job that was tried too often ends here."""
        now = self._present(connection)
        free = (
            sa.select(JOBS.c.study, JOBS.c.attempts)
            .where(JOBS.c.lease_until <= now)
            .order_by(JOBS.c.lease_until, JOBS.c.study)
            .limit(1)
            .with_for_update(skip_locked=True)
        )
        while (job := connection.execute(free).one_or_none()) is not None:
            _bound_standstill(connection)
            if job.attempts >= ATTEMPTS_MAX:
                fail(connection, job.study)
                continue
            lease = {"holder": self.holder, "lease_until": now + LEASE_S, "attempts": job.attempts + 1}
            connection.execute(JOBS.update().where(JOBS.c.study == job.study).values(lease))
            return str(job.study)
        return None

    def renew(self, connection: Connection, study: str) -> None:
        """Let the lease last from now on; raises LeaseLostError."""
        until = self._present(connection) + LEASE_S
        self._change(connection, JOBS.update().where(self._mine(study)).values(lease_until=until))

    def require(self, connection: Connection, study: str) -> None:
        """Return if the job is this worker's; raises LeaseLostError."""
        if connection.execute(sa.select(JOBS.c.study).where(self._mine(study))).one_or_none() is None:
            raise LeaseLostError

    def finish(self, connection: Connection, study: str) -> None:
        """Delete the job, whose verdict is stored in the same transaction; raises LeaseLostError."""
        _bound_standstill(connection)
        self._change(connection, JOBS.delete().where(self._mine(study)))

    def retry(self, connection: Connection, study: str) -> None:
        """Give back a job whose attempt failed, to be tried after a pause; the last attempt ends the study.

        Raises:
            LeaseLostError: the job is not this worker's.
        """
        query = sa.select(JOBS.c.attempts).where(self._mine(study))
        attempts = connection.execute(query).scalar_one_or_none()
        if attempts is None:
            raise LeaseLostError
        if attempts >= ATTEMPTS_MAX:
            fail(connection, study)
            return
        until = self._present(connection) + RETRY_PAUSE_S * attempts
        free = JOBS.update().where(self._mine(study)).values(holder=None, lease_until=until)
        self._change(connection, free)

    def give_back(self, connection: Connection, pause_s: float = 0.0) -> None:
        """Give back what this worker holds, as if never taken: it is free at once, or after a pause."""
        held = JOBS.update().where(JOBS.c.holder == self.holder)
        until = self._present(connection) + pause_s if pause_s else sa.literal(0.0)
        connection.execute(held.values(holder=None, lease_until=until, attempts=JOBS.c.attempts - 1))

    def _mine(self, study: str) -> sa.ColumnElement[bool]:
        return sa.and_(JOBS.c.study == study, JOBS.c.holder == self.holder)

    @staticmethod
    def _change(connection: Connection, change: sa.Update | sa.Delete) -> None:
        if connection.execute(change).rowcount != 1:
            raise LeaseLostError


def _bound_standstill(connection: Connection) -> None:
    """Let the row be free again soon if this process stops, or its machine is cut off, in mid-transaction."""
    if connection.dialect.name == "postgresql":
        limit = f"SET LOCAL idle_in_transaction_session_timeout = {STANDSTILL_S * 1000}"
        connection.exec_driver_sql(limit)
