"""Delivery: what a participant signed is offered to the tester when it is due."""

import sqlalchemy as sa
import structlog

from tacit_services.agent.schema import State
from tacit_services.agent.study.participant import Participant
from tacit_services.agent.study.studies import FOLLOWED, OutboxRow, close_outbox, due_outbox, move, study_row
from tacit_services.agent.study.tester_client import TesterRefusedError, TesterUnavailableError
from tacit_services.shared.database import read_from, run_transaction
from tacit_services.shared.failpoints import AgentStep, reached

log = structlog.get_logger()

DELIVERED = "delivered"
TOO_LATE = "study-expired"

GRACE_S = 3600
"""How long after the deadline a release is still offered, in case the tester's clock is behind."""


class Delivery:
    """Sends a participant's outbox to the tester."""

    def __init__(self, participant: Participant):
        self._participant, self._engine = participant, participant.engine

    def deliver(self) -> None:
        """Offer everything that is open and due once.

        Raises:
            TesterUnavailableError: the tester could not be reached; what is left stays for the next time.
        """
        self._participant.settle_due()
        unavailable: TesterUnavailableError | None = None
        for row in read_from(self._engine, due_outbox, self._participant.now()):
            try:
                self._offer(row)
            except TesterUnavailableError as error:
                unavailable = error  # one study that the tester cannot take must not hold up the others
        if unavailable is not None:
            raise unavailable

    def _offer(self, row: OutboxRow) -> None:
        participant, client = self._participant, self._participant.client
        put = {
            "decline": client.put_decline,
            "accept": client.put_acceptance,
            "mask-key": client.put_mask_key,
        }.get(row.kind, client.put_release)
        reached(AgentStep.BEFORE_SEND)
        try:
            put(row.study, participant.name, row.envelope)
        except TesterRefusedError as error:
            log.warning("not_taken", study=row.study, kind=row.kind, problem=error.slug)
            self._close(row, error.slug)
            if row.kind == "mask-key":  # without it no masks cancel: nobody need spend on this study
                reason = "the tester did not take this owner's key for the study's masks"
                participant.end(row.study, State.REFUSED, error.slug, reason)
            return
        except TesterUnavailableError:
            study = read_from(self._engine, study_row, row.study)
            if study is not None and participant.clock() <= study.deadline + GRACE_S:
                raise
            self._close(row, TOO_LATE)
            return
        reached(AgentStep.AFTER_SEND)
        self._close(row, DELIVERED)
        reached(AgentStep.ACKNOWLEDGED)
        log.info("delivered", study=row.study, kind=row.kind)

    def _close(self, row: OutboxRow, outcome: str) -> None:
        def close(connection: sa.Connection) -> None:
            now = self._participant.now()
            close_outbox(connection, row.study, row.kind, now, outcome)
            if row.kind in {"decline", *FOLLOWED}:
                return
            before = [State.RELEASED, State.SENT]
            if outcome == DELIVERED:
                move(connection, row.study, before=before, after=State.SENT, at=now)
                return
            spent = "the budget is spent" if row.kind == "release" else "nothing was spent"
            reason = f"the tester did not take the {row.kind}; {spent}"
            expired = State.EXPIRED
            move(connection, row.study, before=before, after=expired, at=now, problem=outcome, reason=reason)

        run_transaction(self._engine, close)
