"""Make a release: the data is read first, then one SQL transaction debits, draws noise, signs and stores.

So a crash before the commit has spent nothing and sent nothing, and one after it finds the release stored:
noise that could have been seen is drawn once.
"""

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
import structlog

from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.release import ReleaseMessage
from tacit_protocol.messages.sealed import Receipt
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import Adapts, check_release
from tacit_protocol.signing.envelope import RECEIPT_TYPE, RELEASE_TYPE, seal
from tacit_protocol.signing.keys import PrivateKey
from tacit_protocol.workers import WorkersUnavailableError
from tacit_services.agent.data.reader import Computing
from tacit_services.agent.data.source import DataError
from tacit_services.agent.findings import put_finding
from tacit_services.agent.intake import Job, JobOutdatedError, StudyIntake, StudyRefusedError
from tacit_services.agent.schedule import send_time
from tacit_services.agent.schema import State
from tacit_services.agent.sealed import Received, seal_release
from tacit_services.agent.steps import RelayStep, Step, reached
from tacit_services.agent.studies import Kind, move, put_in_outbox, study_row
from tacit_services.ledger.accounts import debit
from tacit_services.ledger.entries import Entry
from tacit_services.ledger.errors import BudgetExceededError, LedgerConflictError
from tacit_services.shared.clock import Clock
from tacit_services.shared.database import DatabaseError, run_transaction
from tacit_services.shared.logging import describe_exception

log = structlog.get_logger()


class StoppingError(Exception):
    """The agent is stopping; the study stays approved, and is run after the next start."""


class Releaser:
    """Runs accepted studies.

    Args:
        engine: the database of ledger, studies and outbox.
        key: the key that signs releases.
        intake: what may be released.
        noise: the only source of private noise.
        clock: Unix time in seconds.
        computing: what reads and sums the data.
        stopping: whether the process is on its way out. Reading data then fails in ways that say nothing
            about the data, and must not decline a study.
    """

    def __init__(
        self,
        engine: sa.Engine,
        key: PrivateKey,
        intake: StudyIntake,
        *,
        noise: NoiseSource,
        clock: Clock,
        computing: Computing,
        stopping: Callable[[], bool],
    ):
        self._engine, self._key, self._intake = engine, key, intake
        self._noise, self._clock, self._stopping = noise, clock, stopping
        self._computing = computing

    def release(self, job: Job, received: Received | None = None) -> dict[str, int] | None:
        """Spend the study's budget and store its release; with another owner's, what was found with it.

        Returns the number of units of each account, or None if the study is no longer approved.

        Raises:
            StudyRefusedError: the data cannot be read or is too small, or an account has too little left.
            JobOutdatedError: the data changed meanwhile; accept the study again.
            DatabaseError: nothing can be written now; try again later.
            WorkersUnavailableError: nothing can be computed now; try again later.
        """
        units, summary = self._summarise(job, received)
        reached(Step.DATA_SUMMARISED if received is None else RelayStep.COMBINED)
        try:
            entries = run_transaction(
                self._engine, lambda connection: self._spend(connection, job, summary, received)
            )
        except BudgetExceededError as error:
            raise StudyRefusedError("budget-exceeded", str(error)) from None
        except (DatabaseError, LedgerConflictError, sa.exc.SQLAlchemyError, StudyRefusedError):
            raise  # trouble with the database declines no study: it is tried again
        except JobOutdatedError:
            raise
        except Exception as error:
            if self._stopping():
                raise StoppingError("stopped while the release was made") from error
            log.error("release_failed", study=job.digest, fault=describe_exception(error))
            raise StudyRefusedError("internal-error", "the release could not be made; see the log") from None
        if entries is None:
            return None
        reached(Step.RELEASE_COMMITTED)
        # The head hash, kept in another place with the log, shows a ledger that was put back to an old copy.
        for entry in entries:
            log.info(
                "released",
                study=job.digest,
                data_set=entry.data_set,
                ledger_sequence=entry.sequence,
                ledger_head=entry.entry_hash,
                epsilon_micro=entry.epsilon_micro,
            )
        return units

    def _summarise(self, job: Job, received: Received | None) -> tuple[dict[str, int], Any]:
        """Count the units and compute the exact summary; data that cannot be used are a refusal."""
        try:
            table = job.table(self._computing)
            units = job.units_by_account(table)
            if received is None or job.relay is None:
                summary = job.procedure.summarise(job.study, table)
                if isinstance(job.procedure, Adapts):
                    # Noise before the ledger's entry: nothing of it leaves until that is written.
                    summary = job.procedure.adapt(job.study, summary, self._noise)
                return units, summary
            if received.release.units != table.units:
                raise StudyRefusedError("not-aligned", "the other owner counts another number of units")
            return units, job.relay.procedure.combine(job.study, received.release, table)
        except DataError as error:
            if self._stopping():
                raise StoppingError("stopped while the data were read") from error
            raise StudyRefusedError("data-unreadable", str(error)) from None
        except (StudyRefusedError, WorkersUnavailableError):
            raise
        except Exception as error:
            if self._stopping():
                raise StoppingError("stopped while the data were read") from error
            log.error("summary_failed", study=job.digest, fault=describe_exception(error))
            reason = "the data could not be summarised; the log names the place, not the value"
            raise StudyRefusedError("data-unreadable", reason) from None

    def _spend(
        self, connection: sa.Connection, job: Job, summary: Any, received: Received | None = None
    ) -> list[Entry] | None:
        now = int(self._clock())
        if now >= job.study.deadline:
            raise StudyRefusedError("study-expired", "the deadline passed while the data were read")
        row = study_row(connection, job.digest)
        moved = move(connection, job.digest, before=[State.APPROVED], after=State.RELEASED, at=now)
        if row is None or not moved:
            return None
        self._intake.require_current(connection, job)
        if received is not None:
            put_finding(connection, job.digest, summary.finding, now)
            reached(RelayStep.FINDING_STORED)
        entries = self._debit(connection, job, now) if job.spends else []
        if received is None or job.spends:
            envelope = self._sign(job, summary if received is None else summary.summary)
        else:
            envelope = self._acknowledge(job, received)
        reached(Step.RELEASE_SIGNED)
        # What was to be waited for says nothing about the data here: the schedule begins once it has come.
        since = row.changed_at if received is None else max(row.changed_at, received.at)
        send_at = send_time(since, job.study.respond_after_s, self._clock())
        if send_at >= job.study.deadline:
            raise StudyRefusedError(
                "study-expired", "the study's schedule leaves no moment before its deadline"
            )
        kind: Kind = "release" if job.spends else "receipt"
        put_in_outbox(connection, job.digest, kind, envelope, at=now, send_at=send_at)
        reached(Step.RELEASE_STORED)
        return entries

    def _sign(self, job: Job, summary: Any) -> bytes:
        """Draw the noise; return the release, signed, and sealed where it is for another owner."""
        release = job.procedure.privatise(job.study, summary, self._noise)
        reached(Step.NOISE_DRAWN)
        if release.guarantee != job.cost:
            raise StudyRefusedError("internal-error", "the release did not cost what the procedure stated")
        message = ReleaseMessage(study=job.digest, party=job.sender, release=release)
        if job.relay is None or job.receives:
            check_release(job.procedure, job.study, release)
            return seal(encode(message), RELEASE_TYPE, self._key)
        job.relay.procedure.check_received(job.study, release)
        return seal_release(job, job.relay, message, self._key)

    def _acknowledge(self, job: Job, received: Received) -> bytes:
        receipt = Receipt(
            study=job.digest, party=job.sender, units=received.release.units, received=received.statement
        )
        return seal(encode(receipt), RECEIPT_TYPE, self._key)

    def _debit(self, connection: sa.Connection, job: Job, now: int) -> list[Entry]:
        """Debit the study's whole cost to every account: each unit lies in one of their data sets."""
        entries = []
        for part in sorted(job.parts, key=lambda part: part.account):  # one order: no two wait in a ring
            entries.append(debit(connection, part.account, job.digest, job.cost, at=now))
            reached(Step.DEBITED)
        return entries
