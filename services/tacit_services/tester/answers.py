"""Answers to a study: an owner's release or decline, and the analyst's cancellation.

All three are idempotent: the same bytes again are answered as the first time, whatever has happened since;
other bytes never replace what is stored.
"""

from collections.abc import Sequence

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.messages.cancellation import CancellationMessage
from tacit_protocol.messages.decline import DeclineMessage
from tacit_protocol.messages.encoding import decode
from tacit_protocol.procedures.base import ReleaseError
from tacit_protocol.procedures.registry import procedure_named
from tacit_protocol.procedures.relay import check_answer, read_answer, relay_of, require_received
from tacit_protocol.signing.envelope import CANCELLATION_TYPE, DECLINE_TYPE, open_envelope
from tacit_services.shared.clock import Clock
from tacit_services.shared.database import run_transaction
from tacit_services.shared.group_commit import GroupCommit
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester.archived import not_here
from tacit_services.tester.endings import Signer, end, release_digests
from tacit_services.tester.relaying import parted, require_ciphertext
from tacit_services.tester.steps import Step, reached
from tacit_services.tester.storing import (
    Answer,
    Taken,
    is_stored,
    require_collecting,
    store_answers,
    was_taken,
)
from tacit_services.tester.studies import Studies
from tacit_services.tester.tables import CANCELLATIONS, DECLINES, RELEASES, STUDIES

_CANCELLATION = (
    sa.select(STUDIES.c.state, STUDIES.c.deadline, CANCELLATIONS.c.envelope)
    .outerjoin(CANCELLATIONS, CANCELLATIONS.c.study == STUDIES.c.digest)
    .where(STUDIES.c.digest == sa.bindparam("study"))
)


class Answers:
    """Takes answers. Releases and declines that arrive together are committed together."""

    def __init__(self, engine: Engine, studies: Studies, signer: Signer, clock: Clock) -> None:
        self._engine = engine
        self._studies = studies
        self._signer = signer
        self._clock = clock
        self._commits = GroupCommit(engine, self._store)

    def take_release(self, study_digest: str, owner: str, body: bytes, caller_key: str) -> Taken:
        """Take an owner's release: signature first, by the study's roster; then what it says.

        Where the study relays, the sender's comes sealed, and the receiver's may be a receipt.
        """
        owner_key = self._roster_key(study_digest, owner, caller_key)
        study = self._studies.parsed(study_digest)
        procedure = procedure_named(study.procedure)
        relay = relay_of(procedure, study)
        envelope, ciphertext = parted(relay, owner, body)
        read = read_answer(relay, envelope, owner, owner_key)
        if (read.study, read.party) != (study_digest, owner):
            raise ProblemError("digest-mismatch")
        row = {"study": study_digest, "owner": owner, "envelope": envelope}
        answer = Answer(RELEASES, row | {"digest": read.digest, "units": read.units}, ciphertext)
        try:
            check_answer(procedure, study, read)
            require_ciphertext(read, ciphertext)
            if relay is not None:
                require_received(relay, self._sent(study_digest, relay.sender.name), read)
        except ReleaseError as error:
            # What was taken before stays taken, and what is late is late, whatever the checks say today.
            if run_transaction(self._engine, lambda c: was_taken(c, answer, self._now()), read_only=True):
                return Taken.BEFORE
            raise ProblemError("release-refused", detail=str(error)) from None
        reached(Step.RELEASE_CHECKED)
        taken = self._take(answer)
        reached(Step.RELEASE_STORED)
        return taken

    def take_decline(self, study_digest: str, owner: str, envelope: bytes, caller_key: str) -> Taken:
        """Take an owner's decline."""
        owner_key = self._roster_key(study_digest, owner, caller_key)
        message = decode(DeclineMessage, open_envelope(envelope, DECLINE_TYPE, owner_key))
        if (message.study, message.party) != (study_digest, owner):
            raise ProblemError("digest-mismatch")
        return self._take(Answer(DECLINES, {"study": study_digest, "owner": owner, "envelope": envelope}))

    def take_cancellation(self, study_digest: str, envelope: bytes, caller_key: str) -> Taken:
        """Take the analyst's cancellation, while the study still collects."""
        study = self._studies.parsed(study_digest)
        if caller_key != study.analyst.key:
            raise ProblemError("forbidden", detail="only the study's analyst may cancel it")
        message = decode(CancellationMessage, open_envelope(envelope, CANCELLATION_TYPE, study.analyst.key))
        if message.study != study_digest:
            raise ProblemError("digest-mismatch")

        def work(connection: Connection) -> Taken:
            row = connection.execute(_CANCELLATION, {"study": study_digest}).one_or_none()
            if row is None:
                raise not_here(connection, study_digest)
            if is_stored(row.envelope, envelope):
                return Taken.BEFORE
            now = self._now()
            require_collecting(row, now)
            connection.execute(
                CANCELLATIONS.insert().values(study=study_digest, envelope=envelope, received_at=now)
            )
            end(connection, study_digest, "cancelled", self._signer, now)
            return Taken.LAST

        return run_transaction(self._engine, work)

    def _sent(self, study_digest: str, sender: str) -> str | None:
        """Return the digest of what the sender of a relay sent, or None. Once there, it never changes."""
        digests = run_transaction(
            self._engine, lambda connection: release_digests(connection, study_digest), read_only=True
        )
        return digests.get(sender)

    def _roster_key(self, study_digest: str, owner: str, caller_key: str) -> str:
        """Return the key that the study's roster gives for this owner, which must be the caller's."""
        study = self._studies.parsed(study_digest)
        keys = {party.name: party.key for party in study.senders}
        if owner not in keys:
            raise ProblemError("forbidden", detail="the study does not name this owner")
        if keys[owner] != caller_key:
            raise ProblemError("forbidden", detail="an owner answers for itself alone")
        return keys[owner]

    def _take(self, answer: Answer) -> Taken:
        """Store an answer, together with those of others that wait; returns once it is durable."""
        outcome = self._commits.run(answer)
        if isinstance(outcome, ProblemError):
            raise outcome
        return outcome

    def _store(self, connection: Connection, answers: Sequence[Answer]) -> list[Taken | ProblemError]:
        return store_answers(connection, answers, self._signer, self._now())

    def _now(self) -> int:
        return int(self._clock())
