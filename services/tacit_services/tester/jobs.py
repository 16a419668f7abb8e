"""Verdict jobs: leased rows, so that a job whose worker died is taken up again by any other."""

import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import structlog
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.messages.encoding import encode
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.registry import procedure_named
from tacit_protocol.procedures.relay import conclude
from tacit_services.shared.clock import Clock
from tacit_services.shared.database import DatabaseError, run_transaction
from tacit_services.shared.logging import describe_exception
from tacit_services.tester.endings import Signer, end_overdue, release_digests, store_verdict
from tacit_services.tester.leases import (
    RENEWAL_S,
    RETRY_PAUSE_S,
    LeaseLostError,
    Leases,
    Present,
    database_time,
)
from tacit_services.tester.received import received
from tacit_services.tester.steps import Step, reached
from tacit_services.tester.studies import Studies
from tacit_services.tester.tables import PROGRESS

PROGRESS_PERIOD_S = 0.25
"""Least time between two writes of progress."""

log = structlog.get_logger()


class Worker:
    """Ends overdue studies and computes verdicts, one at a time.

    Args:
        engine: the tester's database.
        studies: the tester's studies.
        signer: signs the verdicts.
        clock: tells which deadlines have passed.
        present: measures leases; the database's own time unless given.
    """

    def __init__(
        self,
        engine: Engine,
        studies: Studies,
        signer: Signer,
        clock: Clock,
        present: Present = database_time,
    ) -> None:
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
        reached(Step.JOB_LEASED)
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
        except Exception as error:
            log.error("verdict_failed", study=study, fault=describe_exception(error))
            run_transaction(self._engine, lambda connection: self.leases.retry(connection, study))

    def _compute(self, study_digest: str) -> None:
        study = self._studies.parsed(study_digest)
        procedure = procedure_named(study.procedure)
        # The process may have stood still since it took the job: then nothing is computed in vain.
        run_transaction(self._engine, lambda c: self.leases.require(c, study_digest), read_only=True)
        with self._renewing(study_digest):
            read = received(self._engine, study_digest, study, self._studies.parsed)
            verdict = conclude(procedure, study, read.releases, read.units, self._progress(study_digest))
        reached(Step.VERDICT_COMPUTED)
        result = json.loads(encode(verdict))

        def store(connection: Connection) -> None:
            # The deletion comes first and decides: of all who ever computed this verdict, one stores it.
            self.leases.finish(connection, study_digest)
            digests = release_digests(connection, study_digest)
            envelope = self._signer.sign(study_digest, "completed", digests, result=result)
            store_verdict(connection, study_digest, "completed", envelope, int(self._clock()))
            _write_progress(connection, study_digest, 1.0, "completed")
            reached(Step.VERDICT_INSERTED)

        run_transaction(self._engine, store)
        reached(Step.VERDICT_STORED)

    def _progress(self, study_digest: str) -> Progress:
        written_s = -PROGRESS_PERIOD_S

        def report(fraction: float, step: str) -> None:
            nonlocal written_s
            now_s = time.monotonic()
            if now_s - written_s < PROGRESS_PERIOD_S:
                return
            written_s = now_s

            def write(connection: Connection) -> None:
                self.leases.require(connection, study_digest)
                _write_progress(connection, study_digest, min(max(fraction, 0.0), 1.0), step[:200])

            run_transaction(self._engine, write)

        return report

    @contextmanager
    def _renewing(self, study_digest: str) -> Iterator[None]:
        """Renew the lease in a thread of its own while a verdict is computed."""
        done = threading.Event()

        def renew() -> None:
            while not done.wait(RENEWAL_S):
                try:
                    run_transaction(
                        self._engine,
                        lambda connection: self.leases.renew(connection, study_digest),
                        locks_rows=True,
                    )
                except LeaseLostError:
                    return  # whoever computes is told where it reports its progress, or stores
                except DatabaseError as error:
                    log.warning("lease_not_renewed", study=study_digest, kind=type(error).__name__)

        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def _write_progress(connection: Connection, study_digest: str, fraction: float, step: str) -> None:
    connection.execute(
        PROGRESS.update().where(PROGRESS.c.study == study_digest).values(fraction=fraction, step=step)
    )
