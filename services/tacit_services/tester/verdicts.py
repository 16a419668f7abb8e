"""Verdicts: how a study ends, and how a study whose releases are all here has its verdict computed.

A job is a leased row, so that one worker computes a verdict at a time, and another goes on if it dies.
Analysts take turns: the next job is of the analyst who has waited longest since one of theirs was taken, and
of that analyst's the one whose study was complete first. So nobody waits for more than one verdict of each
other analyst, however many they ask for.

A lease is a holder's name and an end in the job's row. Every change of the row names the holder that it
expects, so that a worker whose lease has passed to another changes nothing more. On PostgreSQL a free row is
locked before it is taken and rows that others are taking are passed over (``FOR UPDATE SKIP LOCKED``), and
all times are the database server's: workers' hosts need not agree on the time. SQLite's processes share one
machine and its clock, and take one another's place as writers.

Code inside a numerical library cannot be interrupted, and a process can be ended: a worker has its verdicts
computed, one after another, by a process that reads no database and has no key. A study and its releases go
to it, the verdict's bytes come back. ``python -m tacit_services.tester.verdicts FILE-DESCRIPTOR`` is the
process; it ends when its standard input does, and so with its parent.
"""

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Channel
from multiprocessing.connection import Pipe
from typing import Any, Literal

import sqlalchemy as sa
import structlog
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.study import Study, VerdictMessage
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.discovery import PROCEDURES, procedure_named
from tacit_protocol.procedures.relay import conclude
from tacit_protocol.signing import VERDICT_TYPE, PrivateKey, payload_of, sign_envelope
from tacit_services.shared.clock import Clock, system_clock
from tacit_services.shared.compute import prepare_to_compute
from tacit_services.shared.database import DatabaseError, read_from, run_transaction
from tacit_services.shared.failpoints import TesterStep, reached
from tacit_services.shared.http_server import Stopping
from tacit_services.shared.logging import describe_exception
from tacit_services.shared.roster import Member
from tacit_services.tester.inboxes import RECHECK_S, Bell
from tacit_services.tester.studies import (
    ReadReleases,
    Studies,
    TesterIdentity,
    received,
    release_digests,
    set_state,
)
from tacit_services.tester.tables import (
    DECLINES,
    JOBS,
    PROGRESS,
    RELEASES,
    SEALED,
    STUDIES,
    STUDY_OWNERS,
    TURNS,
    VERDICTS,
)

SWEPT_MAX = 100
"""Studies ended in one sweep of the deadlines; the next sweep follows within a second."""


@dataclass(frozen=True)
class Signer:
    """The tester's key, and the software that its verdicts name."""

    key: PrivateKey
    software: str

    def sign(
        self,
        study: str,
        outcome: Literal["completed", "incomplete", "cancelled"],
        releases: Mapping[str, str],
        missing: tuple[str, ...] = (),
        result: dict[str, Any] | None = None,
        *,
        declines: Mapping[str, str] | None = None,
        revoked: tuple[str, ...] = (),
    ) -> bytes:
        """Write and sign a verdict; returns its envelope."""
        message = VerdictMessage(
            study=study,
            outcome=outcome,
            releases=dict(releases),
            missing=missing,
            declines=None if declines is None else dict(declines),
            revoked=revoked,
            result=result,
            software=self.software,
        )
        return sign_envelope(encode(message), VERDICT_TYPE, self.key)


def end(
    connection: Connection,
    study: str,
    outcome: Literal["incomplete", "cancelled"],
    signer: Signer,
    now: int,
    *,
    revoked: tuple[str, ...] = (),
) -> None:
    """End a collecting study without a result; the verdict names whose release is missing, and who declined.

    ``revoked`` names the party because of whose revoked key it ends.
    """
    digests = release_digests(connection, study)
    owners = sa.select(STUDY_OWNERS.c.owner).where(STUDY_OWNERS.c.study == study)
    names = connection.execute(owners.order_by(STUDY_OWNERS.c.position)).scalars()
    missing = tuple(name for name in names if name not in digests)
    rows = connection.execute(
        sa.select(DECLINES.c.owner, DECLINES.c.envelope).where(DECLINES.c.study == study)
    )
    declines = {row.owner: digest(payload_of(bytes(row.envelope))) for row in rows}
    verdict = signer.sign(study, outcome, digests, missing, declines=declines, revoked=revoked)
    store_verdict(connection, study, outcome, verdict, now)


def end_all_of(connection: Connection, party: Member, now: int, signer: Signer) -> None:
    """End the collecting studies that a revoked key created, and those that miss its release."""
    sent = sa.select(RELEASES.c.owner).where(
        RELEASES.c.study == STUDY_OWNERS.c.study, RELEASES.c.owner == STUDY_OWNERS.c.owner
    )
    asked = sa.select(STUDY_OWNERS.c.study).where(STUDY_OWNERS.c.key == party.key, ~sa.exists(sent))
    theirs = sa.or_(STUDIES.c.analyst_key == party.key, STUDIES.c.digest.in_(asked))
    query = sa.select(STUDIES.c.digest).where(STUDIES.c.state == "collecting", theirs)
    for study in connection.execute(query).scalars().all():
        end(connection, study, "incomplete", signer, now, revoked=(party.name,))


def store_verdict(connection: Connection, study: str, outcome: str, envelope: bytes, now: int) -> None:
    """Store the study's one verdict and give the study its last state; what was sealed is needed no more."""
    connection.execute(SEALED.delete().where(SEALED.c.study == study))
    connection.execute(
        VERDICTS.insert().values(study=study, envelope=envelope, outcome=outcome, created_at=now)
    )
    set_state(connection, study, outcome)


def fail(connection: Connection, study: str, reason: str) -> None:
    """Give up on computing a verdict; everyone who may see the study reads the reason."""
    connection.execute(JOBS.delete().where(JOBS.c.study == study))
    connection.execute(PROGRESS.update().where(PROGRESS.c.study == study).values(step=reason))
    set_state(connection, study, "failed")


def end_overdue(engine: Engine, signer: Signer, now: int) -> int:
    """End the studies whose deadline has passed; returns how many were ended."""
    collecting = sa.select(STUDIES.c.digest).where(STUDIES.c.state == "collecting")
    overdue = collecting.where(STUDIES.c.deadline <= now).order_by(STUDIES.c.sequence).limit(SWEPT_MAX)
    studies = read_from(engine, lambda connection: connection.execute(overdue).scalars().all())
    for study in studies:

        def end_one(connection: Connection, study: str = study) -> None:
            if connection.execute(collecting.where(STUDIES.c.digest == study)).first() is not None:
                end(connection, study, "incomplete", signer, now)

        run_transaction(engine, end_one)
    return len(studies)


VERDICT_LIMIT_S = 3600.0
"""Longest that a verdict is computed: four times what the largest study that ``check`` takes needs."""

START_S = 20.0
"""How long the process may take to start; leases last longer."""

BEAT_S = 10.0
"""How often a computation that says nothing is reported as under way."""

PROGRESS_PERIOD_S = 0.25
"""Least time between two reports of progress."""

COMMAND = (sys.executable, "-P", "-m", "tacit_services.tester.verdicts")

Compute = Callable[[Study, ReadReleases, Progress], bytes]
"""Computes a verdict from what was received, reports its progress, and returns the verdict's bytes."""


class TooLongError(Exception):
    """The verdict took longer than VERDICT_LIMIT_S."""


class ComputationError(Exception):
    """The computation failed, or its process died; the text quotes no value."""


def compute(study: Study, read: ReadReleases, progress: Progress) -> bytes:
    """Compute a verdict in this process."""
    procedure = procedure_named(study.procedure)
    return encode(conclude(procedure, study, read.releases, read.units, progress))


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

        @_spaced
        def report(fraction: float, step: str) -> None:
            def write(connection: Connection) -> None:
                self.leases.renew(connection, study_digest)
                _write_progress(connection, study_digest, min(max(fraction, 0.0), 1.0), step[:200])

            try:
                run_transaction(self._engine, write, locks_rows=True)
            except DatabaseError as error:
                # Whether the lease still holds is decided when the verdict is stored.
                log.warning("lease_not_renewed", study=study_digest, kind=type(error).__name__)

        return report


def _spaced(report: Progress) -> Progress:
    """Let through of reports of progress those that come PROGRESS_PERIOD_S after the last."""
    reported_s = -PROGRESS_PERIOD_S

    def spaced(fraction: float, step: str) -> None:
        nonlocal reported_s
        now_s = time.monotonic()
        if now_s - reported_s >= PROGRESS_PERIOD_S:
            reported_s = now_s
            report(fraction, step)

    return spaced


def _write_progress(connection: Connection, study_digest: str, fraction: float, step: str) -> None:
    connection.execute(
        PROGRESS.update().where(PROGRESS.c.study == study_digest).values(fraction=fraction, step=step)
    )


class VerdictProcess:
    """Computes verdicts in a process of its own, started with the first, and again after it ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: Channel[Any, Any] | None = None

    def __call__(self, study: Study, read: ReadReleases, progress: Progress) -> bytes:
        """Compute a verdict. What ``progress`` raises ends the computation.

        Raises:
            TooLongError: it took longer than VERDICT_LIMIT_S, and was ended.
            ComputationError: it failed, or its process died.
        """
        try:
            connection = self._started()
            until = time.monotonic() + VERDICT_LIMIT_S
            connection.send((study, read))
            last = 0.0, "starting"
            while (left_s := until - time.monotonic()) > 0:
                if not connection.poll(min(left_s, BEAT_S)):
                    progress(*last)
                    continue
                kind, said = connection.recv()
                if kind == "verdict":
                    return bytes(said)
                if kind == "failed":
                    raise ComputationError(said)
                last = said
                progress(*last)
            raise TooLongError
        except (EOFError, OSError):
            self.close()
            raise ComputationError("the process that computed the verdict died") from None
        except ComputationError:
            raise
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the process, whatever it is doing. Any thread may call it."""
        process, connection = self._process, self._connection
        self._process = self._connection = None
        if process is not None:
            process.kill()
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        if connection is not None:
            connection.close()

    def _started(self) -> "Channel[Any, Any]":
        if self._process is not None and self._connection is not None and self._process.poll() is None:
            return self._connection
        self.close()
        ours, theirs = Pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 (our own module)
                [*COMMAND, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        finally:
            theirs.close()
        self._connection = ours
        if not ours.poll(START_S):
            raise EOFError
        ours.recv()
        return ours


def main(descriptor: int) -> None:
    """Compute what is sent until the parent ends."""
    for number in (signal.SIGTERM, signal.SIGINT):  # the parent, which has them too, gives the job back
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    prepare_to_compute()
    PROCEDURES.loaded()
    connection: Channel[Any, Any] = Channel(descriptor)

    def report(fraction: float, step: str) -> None:
        connection.send(("progress", (fraction, step)))

    connection.send("ready")
    while True:
        study, read = connection.recv()
        try:
            verdict = compute(study, read, _spaced(report))
        except Exception as error:
            connection.send(("failed", describe_exception(error)))
        else:
            connection.send(("verdict", verdict))


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(1)


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


if __name__ == "__main__":
    main(int(sys.argv[1]))
