"""The curator's part in studies: an agent's work, with several owners who decide."""

import sqlalchemy as sa
import structlog

from tacit_protocol.messages.study import Study
from tacit_services.agent.intake import Job, StudyRefusedError
from tacit_services.agent.participant import AlreadyDecidedError, Participant
from tacit_services.agent.schema import State
from tacit_services.agent.studies import StudyRow, expire, move, study_row
from tacit_services.curator.decisions import Decision, decide, record_parts, waits_for_someone
from tacit_services.curator.intake import CuratorIntake
from tacit_services.curator.steps import Step, reached
from tacit_services.shared.database import run_transaction

log = structlog.get_logger()


class Curator(Participant):
    """Answers curated studies for the owners whose data it holds.

    The arguments are those of :class:`Participant`, with a :class:`CuratorIntake`.
    """

    intake: CuratorIntake

    def units_of(self, study: Study) -> dict[str, int]:
        """Return the number of units of each owner, as counted when its rows were uploaded."""
        counted = run_transaction(self.engine, lambda c: self.intake.units_held(c, study), read_only=True)
        return super().units_of(study) | counted

    def _record_job(self, connection: sa.Connection, job: Job, now: int) -> None:
        record_parts(connection, job, now)

    def approve(self, digest: str, owner: str) -> None:
        """Record an owner's yes; the study runs once every owner has said yes.

        Raises:
            AlreadyDecidedError: the owner has decided, or the study waits for nobody, or its deadline has
                passed.
        """

        def approve(connection: sa.Connection) -> bool:
            now = self._now()
            expire(connection, now)
            row = study_row(connection, digest)
            if row is None or row.state is not State.WAITING:
                return False
            if not decide(connection, digest, owner, Decision.APPROVED, now):
                return False
            if not waits_for_someone(connection, digest):
                move(connection, digest, before=[State.WAITING], after=State.APPROVED, at=now)
            reached(Step.DECISION_WRITTEN)
            return True

        if not run_transaction(self.engine, approve):
            raise AlreadyDecidedError("the study is not waiting for this owner's approval")
        self._confirmed.discard(digest)  # long may have passed since it came in
        reached(Step.DECISION_STORED)
        log.info("approved", study=digest, owner=owner)

    def decline(self, digest: str, owner: str, note: str | None) -> None:
        """Decline a study for all of its owners, as one of them decided; the note stays here.

        Raises:
            AlreadyDecidedError: it has been released, refused or declined, or its deadline has passed.
        """

        def decline(connection: sa.Connection) -> bool:
            ended = self._end_in(connection, digest, State.DECLINED, None, note or f"declined by {owner}")
            if ended:
                decide(connection, digest, owner, Decision.DECLINED, self._now())
                reached(Step.DECISION_WRITTEN)
            return ended

        if not run_transaction(self.engine, decline):
            raise AlreadyDecidedError("the study has been decided on already")
        reached(Step.DECISION_STORED)
        log.info("declined", study=digest, owner=owner)

    def run_approved(self) -> None:
        """Release what is approved, and decline what waits in vain."""
        self._decline_without_data()
        super().run_approved()

    def _decline_without_data(self) -> None:
        """Decline the waiting studies of which an owner has deleted its data set."""
        for row in self._rows(State.WAITING):
            try:
                run_transaction(self.engine, lambda c, row=row: self._require_held(c, row), read_only=True)  # type: ignore[misc]
            except StudyRefusedError as error:
                self._refuse(row, error.problem, error.reason)

    def _require_held(self, connection: sa.Connection, row: StudyRow) -> None:
        if row.envelope is not None:
            self.intake.require_held(connection, self.intake.read(row.digest, row.envelope))
