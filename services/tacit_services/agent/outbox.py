"""Send what is stored until the tester has answered for it: the same bytes, however often."""

import sqlalchemy as sa
import structlog

from tacit_services.agent.schema import State
from tacit_services.agent.steps import Step, reached
from tacit_services.agent.studies import OutboxRow, close_outbox, due_outbox, move, study_row
from tacit_services.agent.tester_client import TesterClient, TesterRefusedError, TesterUnavailableError
from tacit_services.shared.clock import Clock
from tacit_services.shared.database import run_transaction

log = structlog.get_logger()

DELIVERED = "delivered"
TOO_LATE = "study-expired"

GRACE_S = 3600
"""How long after the deadline a release is still offered, in case the tester's clock is behind."""


class Outbox:
    """Delivers releases and declines."""

    def __init__(self, engine: sa.Engine, party: str, client: TesterClient, clock: Clock):
        self._engine, self._party, self._client, self._clock = engine, party, client, clock

    def deliver(self) -> None:
        """Offer everything that is open and due once.

        Raises:
            TesterUnavailableError: the tester could not be reached; what is left stays for the next time.
        """
        unavailable: TesterUnavailableError | None = None
        now = int(self._clock())
        for row in run_transaction(self._engine, lambda c: due_outbox(c, now), read_only=True):
            try:
                self._deliver_one(row)
            except TesterUnavailableError as error:
                unavailable = error  # one study that the tester cannot take must not hold up the others
        if unavailable is not None:
            raise unavailable

    def _deliver_one(self, row: OutboxRow) -> None:
        put = self._client.put_decline if row.kind == "decline" else self._client.put_release
        reached(Step.BEFORE_SEND)
        try:
            put(row.study, self._party, row.envelope)
        except TesterRefusedError as error:
            log.warning("not_taken", study=row.study, kind=row.kind, problem=error.slug)
            self._close(row, error.slug)
            return
        except TesterUnavailableError:
            if not self._is_past(row.study):
                raise
            self._close(row, TOO_LATE)
            return
        reached(Step.AFTER_SEND)
        self._close(row, DELIVERED)
        reached(Step.ACKNOWLEDGED)
        log.info("delivered", study=row.study, kind=row.kind)

    def _is_past(self, digest: str) -> bool:
        study = run_transaction(
            self._engine, lambda connection: study_row(connection, digest), read_only=True
        )
        return study is None or self._clock() > study.deadline + GRACE_S

    def _close(self, row: OutboxRow, outcome: str) -> None:
        def close(connection: sa.Connection) -> None:
            now = int(self._clock())
            close_outbox(connection, row.study, now, outcome)
            if row.kind == "decline":
                return
            spent = "the budget is spent" if row.kind == "release" else "nothing was spent"
            after = State.SENT if outcome == DELIVERED else State.EXPIRED
            problem = None if outcome == DELIVERED else outcome
            reason = None if problem is None else f"the tester did not take the {row.kind}; {spent}"
            move(
                connection,
                row.study,
                before=[State.RELEASED, State.SENT],
                after=after,
                at=now,
                problem=problem,
                reason=reason,
            )

        run_transaction(self._engine, close)
