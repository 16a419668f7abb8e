"""Fetching: what a participant asks the tester for, studies, other owners' messages and verdicts.

The tester is not trusted: what it hands out is checked before it is kept, and asked for again where it does
not hold.
"""

from collections.abc import Callable

import structlog

from tacit_protocol.messages.encoding import MessageError, decode
from tacit_protocol.messages.study import VerdictMessage
from tacit_protocol.signing import VERDICT_TYPE, EnvelopeError, open_envelope
from tacit_services.agent.schema import State
from tacit_services.agent.study.intake import IntakeRefusedError
from tacit_services.agent.study.participant import Participant
from tacit_services.agent.study.studies import StudyRow, record_verdict, reopen_outbox, study_row
from tacit_services.agent.study.tester_client import InboxItem, TesterRefusedError, TesterUnavailableError
from tacit_services.shared.database import read_from, run_transaction
from tacit_services.shared.failpoints import AgentStep, reached

log = structlog.get_logger()

VERDICT_AWAITED_S = 7 * 24 * 3600
"""How long after a study's deadline its verdict is still asked for."""

ROLLED_BACK = (
    "the tester holds a release of this owner that the ledger does not know: the ledger was put back to an "
    "older copy. Put the newest copy back, or lower the account's cap by this study"
)


class Fetcher:
    """Asks the tester on behalf of a participant, and hands on to it what came."""

    def __init__(self, participant: Participant):
        self._participant, self._client = participant, participant.client

    def poll(self, wait_s: float) -> bool:
        """Ask the tester once and take in what is new; returns whether anything was.

        Raises:
            TesterError: the tester could not be asked.
        """
        items = self._client.inbox(wait_s)
        self._participant.last_poll_at = self._participant.now()
        taken_in = [self._take_in(item) for item in items]
        return any(taken_in)

    def _take_in(self, item: InboxItem) -> bool:
        participant = self._participant
        known = read_from(participant.engine, study_row, item.digest)
        if known is not None:
            # The tester asks again for what was answered: it gets the same bytes again.
            run_transaction(participant.engine, lambda connection: reopen_outbox(connection, item.digest))
            return False
        try:
            envelope = self._client.study_envelope(item.digest)
            # Asked about studies that will be refused, too: requests must not tell one refusal from another.
            held = self._client.holds_release(item.digest, participant.name)
        except TesterRefusedError as error:
            log.warning("study_not_given", study=item.digest, problem=error.slug)
            return False
        reached(AgentStep.STUDY_FETCHED)
        if not held:
            participant.confirmed.add(item.digest)
        decided = participant.take_in(item, envelope)
        reached(AgentStep.STUDY_STORED)
        return decided

    def confirm(self) -> bool:
        """Ask the tester about approved studies that it was not yet asked about; returns whether any may run.

        Raises:
            TesterUnavailableError: the tester could not be asked about some; the others have been.
        """
        participant = self._participant
        before = len(participant.confirmed)

        def ask(row: StudyRow) -> None:
            if row.digest in participant.confirmed:
                return
            if self._client.holds_release(row.digest, participant.name):
                participant.refuse(row, "conflicting-upload", ROLLED_BACK)
            else:
                participant.confirmed.add(row.digest)

        self._ask_about_approved(ask, "the tester no longer knows this study")
        return len(participant.confirmed) > before

    def collect(self) -> bool:
        """Fetch what other owners sent for this one's approved studies; returns whether anything came.

        Raises:
            TesterUnavailableError: the tester could not be asked about some; the others have been.
        """
        came = []

        def fetch(row: StudyRow) -> None:
            if self._participant.mailbox.fetch(self._participant.job_of(row)):
                came.append(row.digest)

        self._ask_about_approved(fetch, "what was to come of the other owner will not come")
        return bool(came)

    def _ask_about_approved(self, ask: Callable[[StudyRow], None], refused: str) -> None:
        """Ask about each approved study; one that the tester refuses to speak of is ``refused``."""
        unavailable: TesterUnavailableError | None = None
        for row in self._participant.rows(State.APPROVED):
            try:
                ask(row)
            except IntakeRefusedError as error:
                self._participant.refuse(row, error.problem, error.reason)
            except TesterRefusedError as error:
                self._participant.refuse(row, error.slug, refused)
            except TesterUnavailableError as error:
                unavailable = error
        if unavailable is not None:
            raise unavailable

    def fetch_verdicts(self) -> None:
        """Ask for the verdicts of studies that were answered, and keep those that the tester signed."""
        for row in self._participant.rows(State.SENT):
            if row.verdict is None and self._participant.now() < row.deadline + VERDICT_AWAITED_S:
                self._fetch_verdict(row)

    def _fetch_verdict(self, row: StudyRow) -> None:
        try:
            envelope = self._client.verdict_envelope(row.digest)
            if envelope is None:
                return
            payload = open_envelope(envelope, VERDICT_TYPE, self._participant.tester_key)
            matches = decode(VerdictMessage, payload).study == row.digest
        except (EnvelopeError, MessageError, TesterRefusedError) as error:
            log.warning("verdict_not_taken", study=row.digest, kind=type(error).__name__)
            return
        if not matches:
            log.warning("verdict_not_taken", study=row.digest, kind="other study")
            return
        run_transaction(self._participant.engine, lambda c: record_verdict(c, row.digest, envelope))

    def reused_by(self, digest: str) -> tuple[str, ...]:
        """Ask the tester which later studies read this party's release for a study again.

        They spend nothing here, so the ledger does not know of them; the tester's word is all there is.

        Raises:
            TesterError: the tester could not be asked, or does not know the study.
        """
        return self._client.reused_by(digest, self._participant.name)
