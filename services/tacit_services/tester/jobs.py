"""Verdict jobs: leased rows, so that one worker computes a verdict at a time, and another goes on if it dies.

Analysts take turns: the next job is of the analyst who has waited longest since one of theirs was taken, and
of that analyst's the one whose study was complete first. So nobody waits for more than one verdict of each
other analyst, however many they ask for.

A lease is a holder's name and an end in the job's row. Every change of the row names the holder that it
expects, so that a worker whose lease has passed to another changes nothing more. On PostgreSQL a free row is
locked before it is taken and rows that others are taking are passed over (``FOR UPDATE SKIP LOCKED``), and
all times are the database server's: workers' hosts need not agree on the time. SQLite's processes share one
machine and its clock, and take one another's place as writers.
"""

import json
import os
import secrets
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import sqlalchemy as sa
import structlog
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.procedures.base import Progress
from tacit_services.shared.clock import Clock, system_clock
from tacit_services.shared.database import DatabaseError, read_from, run_transaction
from tacit_services.shared.failpoints import TesterStep, reached
from tacit_services.shared.http_server import Stopping
from tacit_services.shared.logging import describe_exception
from tacit_services.tester.inboxes import RECHECK_S, Bell
from tacit_services.tester.reuse import received
from tacit_services.tester.studies import Studies, TesterIdentity
from tacit_services.tester.study_completion import Signer, end_overdue, fail, release_digests, store_verdict
from tacit_services.tester.tables import JOBS, PROGRESS, TURNS
from tacit_services.tester.verdict_process import (
    PROGRESS_PERIOD_S,
    VERDICT_LIMIT_S,
    ComputationError,
    Compute,
    TooLongError,
    compute,
)

LEASE_S = 30.0
"""How long after its worker's last sign of life a job may be taken by another."""

STANDSTILL_S = 30
"""How long a worker may stand still while it has a job's row locked; PostgreSQL then ends its session."""

ATTEMPTS_MAX = 5
"""Attempts at a verdict before the study counts as failed: more would crash testers for ever."""

RETRY_PAUSE_S = 5.0
"""How long a failed attempt waits for the next, times the attempts so far."""

FAILED = f"{ATTEMPTS_MAX} attempts failed; the tester's log says why"

TOO_LONG = (
    f"it took longer than {VERDICT_LIMIT_S / 60:g} minutes, which is the limit; ask for less in one study"
)

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
        taken = sa.select(TURNS.c.taken).where(TURNS.c.analyst_key == JOBS.c.analyst_key).scalar_subquery()
        free = (
            sa.select(JOBS.c.study, JOBS.c.analyst_key, JOBS.c.attempts)
            .where(JOBS.c.lease_until <= now)
            .order_by(sa.func.coalesce(taken, 0), JOBS.c.sequence)
            .limit(1)
            .with_for_update(skip_locked=True, of=JOBS)
        )
        while (job := connection.execute(free).one_or_none()) is not None:
            _bound_standstill(connection)
            if job.attempts >= ATTEMPTS_MAX:
                fail(connection, job.study, FAILED)
                continue
            connection.execute(_TAKE_TURN, {"analyst_key": job.analyst_key})
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
            fail(connection, study, FAILED)
            return
        until = self._present(connection) + RETRY_PAUSE_S * attempts
        free = JOBS.update().where(self._mine(study)).values(holder=None, lease_until=until)
        self._change(connection, free)

    def end(self, connection: Connection, study: str, reason: str) -> None:
        """End the study without a verdict; raises LeaseLostError."""
        self.require(connection, study)
        fail(connection, study, reason)

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


_TAKE_TURN = sa.text(
    "INSERT INTO turns (analyst_key, taken) SELECT :analyst_key, coalesce(max(taken), 0) + 1 FROM turns"
    " WHERE true ON CONFLICT (analyst_key) DO UPDATE SET taken = excluded.taken"
)

log = structlog.get_logger()


class Worker:
    """Ends overdue studies and computes verdicts, one at a time.

    Args:
        engine: the tester's database.
        studies: the tester's studies.
        signer: signs the verdicts.
        clock: tells which deadlines have passed.
        present: measures leases; the database's own time unless given.
        compute: computes verdicts; in this process, without a limit of time, unless given.
    """

    def __init__(
        self,
        engine: Engine,
        studies: Studies,
        signer: Signer,
        clock: Clock,
        *,
        present: Present = database_time,
        compute: Compute = compute,
    ) -> None:
        self._compute_verdict = compute
        self._engine = engine
        self._studies = studies
        self._signer = signer
        self._clock = clock
        self._leaves = self._was_interrupted = False
        self.leases = Leases(secrets.token_hex(16), present)

    def run_once(self) -> bool:
        """Do what is due; returns whether there was anything."""
        if self._was_interrupted:
            # The database was away: what this worker held is free again soon, not when its lease ends.
            run_transaction(self._engine, lambda c: self.leases.give_back(c, RETRY_PAUSE_S), locks_rows=True)
            self._was_interrupted = False
        ended = end_overdue(self._engine, self._signer, int(self._clock()))
        study = run_transaction(self._engine, self.leases.take, locks_rows=True)
        if study is None:
            return ended > 0
        reached(TesterStep.JOB_LEASED)
        if self._leaves:  # it was taken while the worker was told to leave
            self.leave()
            return True
        try:
            self._attempt(study)
        except LeaseLostError:
            log.warning("lease_lost", study=study)
        return True

    def leave(self) -> None:
        """Take no more jobs, and give back the one that will not be finished: another can take it at once."""
        self._leaves = True
        run_transaction(self._engine, self.leases.give_back, locks_rows=True)

    def _attempt(self, study: str) -> None:
        try:
            self._compute(study)
        except LeaseLostError:
            raise
        except DatabaseError:
            self._was_interrupted = True
            raise
        except TooLongError:
            log.error("verdict_took_too_long", study=study)
            run_transaction(self._engine, lambda connection: self.leases.end(connection, study, TOO_LONG))
        except Exception as error:
            fault = str(error) if isinstance(error, ComputationError) else describe_exception(error)
            log.error("verdict_failed", study=study, fault=fault)
            run_transaction(self._engine, lambda connection: self.leases.retry(connection, study))

    def _compute(self, study_digest: str) -> None:
        study = self._studies.parsed(study_digest)
        # The process may have stood still since it took the job: then nothing is computed in vain.
        read_from(self._engine, self.leases.require, study_digest)
        progress = self._progress(study_digest)
        read = received(self._engine, study_digest, study, self._studies.parsed, progress)
        result = json.loads(self._compute_verdict(study, read, progress))
        reached(TesterStep.VERDICT_COMPUTED)

        def store(connection: Connection) -> None:
            # The deletion comes first and decides: of all who ever computed this verdict, one stores it.
            self.leases.finish(connection, study_digest)
            digests = release_digests(connection, study_digest)
            envelope = self._signer.sign(study_digest, "completed", digests, result=result)
            store_verdict(connection, study_digest, "completed", envelope, int(self._clock()))
            _write_progress(connection, study_digest, 1.0, "completed")
            reached(TesterStep.VERDICT_INSERTED)

        run_transaction(self._engine, store)
        reached(TesterStep.VERDICT_STORED)

    def _progress(self, study_digest: str) -> Progress:
        """Return what writes progress, and renews the lease with it."""
        written_s = -PROGRESS_PERIOD_S

        def report(fraction: float, step: str) -> None:
            nonlocal written_s
            now_s = time.monotonic()
            if now_s - written_s < PROGRESS_PERIOD_S:
                return
            written_s = now_s

            def write(connection: Connection) -> None:
                self.leases.renew(connection, study_digest)
                _write_progress(connection, study_digest, min(max(fraction, 0.0), 1.0), step[:200])

            try:
                run_transaction(self._engine, write, locks_rows=True)
            except (
                DatabaseError
            ) as error:  # whether the lease still holds is decided when the verdict is stored
                log.warning("lease_not_renewed", study=study_digest, kind=type(error).__name__)

        return report


def _write_progress(connection: Connection, study_digest: str, fraction: float, step: str) -> None:
    connection.execute(
        PROGRESS.update().where(PROGRESS.c.study == study_digest).values(fraction=fraction, step=step)
    )


JOIN_S = 1.0
"""How long a stopping process waits for its worker; a job under way is then given back for another."""

GIVE_BACK_S = 2.0
"""How long giving back may take. A job that could not be given back is free when its lease ends."""

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Working:
    """A worker in a thread of its own. Nothing that goes wrong in it may end it for good.

    Args:
        worker: what works.
        bell: wakes it when something has come; without a ring it looks once in ``RECHECK_S``.
        stopping: whether it has been asked to stop.
        did: called after something was done, in the worker's thread.
        idle: called when no verdict is due; does a little of what can wait, and returns whether it did.
    """

    def __init__(
        self,
        worker: Worker,
        bell: Bell,
        stopping: Stopping,
        did: Callable[[], None] = lambda: None,
        idle: Callable[[], bool] = lambda: False,
    ) -> None:
        self._worker, self._bell, self._stopping, self._did = worker, bell, stopping, did
        self._idle = idle
        self._thread = threading.Thread(target=self._run, name="worker", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop working within ``JOIN_S + GIVE_BACK_S`` seconds; a job under way is given back."""
        self._stopping.requested = True
        self._bell.ring()
        self._thread.join(JOIN_S)
        if not self._thread.is_alive():
            return
        leaving = threading.Thread(target=self._leave, name="leaving", daemon=True)
        leaving.start()
        leaving.join(GIVE_BACK_S)

    def _run(self) -> None:
        while not self._stopping.requested:
            seen, was_busy = self._bell.rings, False
            try:
                was_busy = self._worker.run_once() or self._idle()
                if was_busy:
                    self._did()
            except DatabaseError as error:
                log.warning("worker_waits_for_database", kind=type(error).__name__)
            except Exception as error:
                log.error("worker_failed", fault=describe_exception(error))
            if not was_busy:
                self._bell.wait_blocking(seen, RECHECK_S)

    def _leave(self) -> None:
        try:
            self._worker.leave()
        except DatabaseError as error:
            log.warning("job_not_given_back", kind=type(error).__name__)


def work(
    engine: Engine,
    identity: TesterIdentity,
    signer: Signer,
    idle: Callable[[], bool] = lambda: False,
    compute: Compute = compute,
) -> None:
    """Compute verdicts until SIGTERM or SIGINT; call it in the main thread.

    Other processes' workers on the same database go on with whatever this one leaves. ``idle`` is as in
    :class:`Working`, ``compute`` as in :class:`Worker`.
    """
    with _stop_asked() as wait_for_stop:
        worker = Worker(engine, Studies(engine, identity), signer, system_clock, compute=compute)
        working = Working(worker, Bell(), Stopping(), idle=idle)
        working.start()
        log.info("working")
        wait_for_stop()
        working.stop()
    log.info("stopped_working")


@contextmanager
def _stop_asked() -> Iterator[Callable[[], object]]:
    """Take SIGTERM and SIGINT, and yield what waits for one; one that has come before counts.

    By a pipe, which also sees a signal that the system hands to a thread of a numerical library.
    """
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    previous = {number: signal.signal(number, lambda *_: None) for number in STOP_SIGNALS}
    signal.set_wakeup_fd(writer)
    try:
        yield lambda: os.read(reader, 1)
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in previous.items():
            signal.signal(number, handler)
        os.close(reader)
        os.close(writer)
