"""Verdict jobs: leased rows, so that a job whose worker died is taken up again by any tester."""

import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa
import structlog
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.registry import procedure_named
from tacit_protocol.procedures.relay import OwnAnswer, conclude, read_answer, relay_of
from tacit_services.shared.clock import Clock
from tacit_services.shared.database import DatabaseError, run_transaction
from tacit_services.shared.logging import describe_exception
from tacit_services.tester.endings import Signer, end_overdue, fail, release_digests, store_verdict
from tacit_services.tester.reuse import reread_all
from tacit_services.tester.steps import Step, reached
from tacit_services.tester.studies import Studies
from tacit_services.tester.tables import JOBS, PROGRESS, RELEASES

LEASE_S = 30.0
"""How long after its worker's last sign of life a job may be taken by another."""

RENEWAL_S = LEASE_S / 3
"""How often a worker renews its lease: twice may fail."""

ATTEMPTS_MAX = 5
"""Attempts at a verdict before the study counts as failed: more would crash testers for ever."""

RETRY_PAUSE_S = 5.0
"""How long a failed attempt waits for the next, times the attempts so far."""

PROGRESS_PERIOD_S = 0.25
"""Least time between two writes of progress."""

log = structlog.get_logger()


class LeaseLostError(Exception):
    """Another worker has taken the job."""


class Worker:
    """Ends overdue studies and computes verdicts, one at a time."""

    def __init__(self, engine: Engine, studies: Studies, signer: Signer, clock: Clock) -> None:
        self._engine = engine
        self._studies = studies
        self._signer = signer
        self._clock = clock
        self._name = secrets.token_hex(16)

    def run_once(self) -> bool:
        """Do what is due; returns whether there was anything."""
        ended = end_overdue(self._engine, self._signer, int(self._clock()))
        study = run_transaction(self._engine, self._lease)
        if study is None:
            return ended > 0
        reached(Step.JOB_LEASED)
        try:
            self._compute(study)
        except LeaseLostError:
            log.warning("lease_lost", study=study)
        except DatabaseError:
            raise
        except Exception as error:
            log.error("verdict_failed", study=study, fault=describe_exception(error))
            run_transaction(self._engine, lambda connection: self._give_back(connection, study))
        return True

    def abandon(self) -> None:
        """Give back a job that this worker will not finish, so that another can take it at once."""
        held = JOBS.update().where(JOBS.c.holder == self._name)
        free = held.values(holder=None, lease_until=0.0, attempts=JOBS.c.attempts - 1)
        run_transaction(self._engine, lambda connection: connection.execute(free))

    def _lease(self, connection: Connection) -> str | None:
        """Take the first free job; a job that was tried too often ends here."""
        now = self._clock()
        free = sa.select(JOBS.c.study, JOBS.c.attempts).where(JOBS.c.lease_until <= now)
        for job in connection.execute(free.order_by(JOBS.c.lease_until, JOBS.c.study).limit(10)).all():
            if job.attempts >= ATTEMPTS_MAX:
                fail(connection, job.study)
                continue
            connection.execute(
                JOBS.update()
                .where(JOBS.c.study == job.study)
                .values(holder=self._name, lease_until=now + LEASE_S, attempts=job.attempts + 1)
            )
            return str(job.study)
        return None

    def _compute(self, study_digest: str) -> None:
        study = self._studies.parsed(study_digest)
        procedure = procedure_named(study.procedure)
        with self._renewing(study_digest):
            answers = self._answers(study_digest, study)
            releases = {name: a.release for name, a in answers.items() if a.release is not None}
            releases |= reread_all(self._engine, study, self._studies.parsed)
            units = {name: answer.units for name, answer in answers.items()}
            verdict = conclude(procedure, study, releases, units, self._progress(study_digest))
        reached(Step.VERDICT_COMPUTED)
        result = json.loads(encode(verdict))

        def store(connection: Connection) -> None:
            self._require_lease(connection, study_digest)
            digests = release_digests(connection, study_digest)
            envelope = self._signer.sign(study_digest, "completed", digests, result=result)
            store_verdict(connection, study_digest, "completed", envelope, int(self._clock()))
            connection.execute(JOBS.delete().where(JOBS.c.study == study_digest))
            _write_progress(connection, study_digest, 1.0, "completed")
            reached(Step.VERDICT_INSERTED)

        run_transaction(self._engine, store)
        reached(Step.VERDICT_STORED)

    def _answers(self, study_digest: str, study: Study) -> dict[str, OwnAnswer]:
        relay = relay_of(procedure_named(study.procedure), study)
        keys = {sender.name: sender.key for sender in study.senders}
        query = sa.select(RELEASES.c.owner, RELEASES.c.envelope).where(RELEASES.c.study == study_digest)
        rows = run_transaction(
            self._engine, lambda connection: connection.execute(query).all(), read_only=True
        )
        envelopes = {row.owner: bytes(row.envelope) for row in rows}
        return {name: read_answer(relay, envelopes[name], name, key) for name, key in keys.items()}

    def _progress(self, study_digest: str) -> Progress:
        written_s = -PROGRESS_PERIOD_S

        def report(fraction: float, step: str) -> None:
            nonlocal written_s
            now_s = time.monotonic()
            if now_s - written_s < PROGRESS_PERIOD_S:
                return
            written_s = now_s

            def write(connection: Connection) -> None:
                self._require_lease(connection, study_digest)
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
                    run_transaction(self._engine, lambda connection: self._renew(connection, study_digest))
                except DatabaseError as error:
                    log.warning("lease_not_renewed", study=study_digest, kind=type(error).__name__)

        thread = threading.Thread(target=renew, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _renew(self, connection: Connection, study_digest: str) -> None:
        connection.execute(
            JOBS.update()
            .where(JOBS.c.study == study_digest, JOBS.c.holder == self._name)
            .values(lease_until=self._clock() + LEASE_S)
        )

    def _give_back(self, connection: Connection, study_digest: str) -> None:
        query = sa.select(JOBS.c.attempts).where(JOBS.c.study == study_digest, JOBS.c.holder == self._name)
        attempts = connection.execute(query).scalar_one_or_none()
        if attempts is None:
            return  # another worker has it
        if attempts >= ATTEMPTS_MAX:
            fail(connection, study_digest)
            return
        connection.execute(
            JOBS.update()
            .where(JOBS.c.study == study_digest)
            .values(holder=None, lease_until=self._clock() + RETRY_PAUSE_S * attempts)
        )

    def _require_lease(self, connection: Connection, study_digest: str) -> None:
        query = sa.select(JOBS.c.holder).where(JOBS.c.study == study_digest)
        if connection.execute(query).scalar_one_or_none() != self._name:
            raise LeaseLostError


def _write_progress(connection: Connection, study_digest: str, fraction: float, step: str) -> None:
    connection.execute(
        PROGRESS.update().where(PROGRESS.c.study == study_digest).values(fraction=fraction, step=step)
    )
