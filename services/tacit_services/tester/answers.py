"""Answers to a study: an owner's release or decline, and the analyst's cancellation.

All three are idempotent: the same bytes again are answered as the first time, whatever has happened since;
other bytes never replace what is stored.
"""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.messages.cancellation import CancellationMessage
from tacit_protocol.messages.decline import DeclineMessage
from tacit_protocol.messages.encoding import decode
from tacit_protocol.messages.release import ReleaseMessage
from tacit_protocol.procedures.base import ReleaseError
from tacit_protocol.procedures.registry import procedure_named
from tacit_protocol.signing.envelope import (
    CANCELLATION_TYPE,
    DECLINE_TYPE,
    RELEASE_TYPE,
    digest,
    open_envelope,
)
from tacit_services.shared.clock import Clock
from tacit_services.shared.database import run_transaction
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester.endings import Signer, end, end_if_answered
from tacit_services.tester.steps import Step, reached
from tacit_services.tester.studies import Studies
from tacit_services.tester.tables import CANCELLATIONS, DECLINES, RELEASES, STUDIES


def _envelope_of(table: sa.Table) -> sa.Select[Any]:
    """Select the envelope of a study, and of an owner where the table has one."""
    query = sa.select(table.c.envelope).where(table.c.study == sa.bindparam("study"))
    return query.where(table.c.owner == sa.bindparam("owner")) if "owner" in table.c else query


# Written once: to put a statement together takes as long as SQLite takes to run it.
_ENVELOPES = {table.name: _envelope_of(table) for table in (RELEASES, DECLINES, CANCELLATIONS)}
_STATE = sa.select(STUDIES.c.state, STUDIES.c.deadline).where(STUDIES.c.digest == sa.bindparam("study"))


class Answers:
    """Takes answers; each method returns False where these very bytes were taken before."""

    def __init__(self, engine: Engine, studies: Studies, signer: Signer, clock: Clock) -> None:
        self._engine = engine
        self._studies = studies
        self._signer = signer
        self._clock = clock

    def take_release(self, study_digest: str, owner: str, envelope: bytes, caller_key: str) -> bool:
        """Take an owner's release: signature first, by the study's roster; then what it says."""
        owner_key = self._roster_key(study_digest, owner, caller_key)
        payload = open_envelope(envelope, RELEASE_TYPE, owner_key)
        message = decode(ReleaseMessage, payload)
        if (message.study, message.party) != (study_digest, owner):
            raise ProblemError("digest-mismatch")
        if self._is_stored(RELEASES, study_digest, owner, envelope):
            return False
        study = self._studies.parsed(study_digest)
        try:
            procedure_named(study.procedure).check_release(study, message.release)
        except ReleaseError as error:
            raise ProblemError("release-refused", detail=str(error)) from None
        reached(Step.RELEASE_CHECKED)
        values = {"digest": digest(payload), "units": message.release.units}
        stored = self._store_answer(RELEASES, DECLINES, study_digest, owner, envelope, values=values)
        reached(Step.RELEASE_STORED)
        return stored

    def take_decline(self, study_digest: str, owner: str, envelope: bytes, caller_key: str) -> bool:
        """Take an owner's decline."""
        owner_key = self._roster_key(study_digest, owner, caller_key)
        message = decode(DeclineMessage, open_envelope(envelope, DECLINE_TYPE, owner_key))
        if (message.study, message.party) != (study_digest, owner):
            raise ProblemError("digest-mismatch")
        return self._store_answer(DECLINES, RELEASES, study_digest, owner, envelope, values={})

    def take_cancellation(self, study_digest: str, envelope: bytes, caller_key: str) -> bool:
        """Take the analyst's cancellation, while the study still collects."""
        study = self._studies.parsed(study_digest)
        if caller_key != study.analyst.key:
            raise ProblemError("forbidden", detail="only the study's analyst may cancel it")
        message = decode(CancellationMessage, open_envelope(envelope, CANCELLATION_TYPE, study.analyst.key))
        if message.study != study_digest:
            raise ProblemError("digest-mismatch")

        def work(connection: Connection) -> bool:
            if _is_stored(connection, CANCELLATIONS, study_digest, None, envelope):
                return False
            now = self._require_collecting(connection, study_digest)
            connection.execute(
                CANCELLATIONS.insert().values(study=study_digest, envelope=envelope, received_at=now)
            )
            end(connection, study_digest, "cancelled", self._signer, now)
            return True

        return run_transaction(self._engine, work)

    def _roster_key(self, study_digest: str, owner: str, caller_key: str) -> str:
        """Return the key that the study's roster gives for this owner, which must be the caller's."""
        study = self._studies.parsed(study_digest)
        keys = {party.name: party.key for party in study.owners}
        if owner not in keys:
            raise ProblemError("forbidden", detail="the study does not name this owner")
        if keys[owner] != caller_key:
            raise ProblemError("forbidden", detail="an owner answers for itself alone")
        return keys[owner]

    def _is_stored(self, table: sa.Table, study_digest: str, owner: str, envelope: bytes) -> bool:
        """Look before the costly checks; a repeated or a late answer needs none of them."""

        def work(connection: Connection) -> bool:
            if _is_stored(connection, table, study_digest, owner, envelope):
                return True
            self._require_collecting(connection, study_digest)
            return False

        return run_transaction(self._engine, work, read_only=True)

    def _store_answer(
        self,
        table: sa.Table,
        other: sa.Table,
        study_digest: str,
        owner: str,
        envelope: bytes,
        *,
        values: dict[str, object],
    ) -> bool:
        def work(connection: Connection) -> bool:
            if _is_stored(connection, table, study_digest, owner, envelope):
                return False
            if _stored(connection, other, study_digest, owner) is not None:
                raise ProblemError("already-decided")
            now = self._require_collecting(connection, study_digest)
            row = {"study": study_digest, "owner": owner, "envelope": envelope, "received_at": now}
            connection.execute(table.insert(), row | values)
            end_if_answered(connection, study_digest, self._signer, now)
            if table is RELEASES:
                reached(Step.RELEASE_INSERTED)
            return True

        return run_transaction(self._engine, work)

    def _require_collecting(self, connection: Connection, study_digest: str) -> int:
        """Return the time now; raises where the study takes nothing more."""
        now = int(self._clock())
        row = connection.execute(_STATE, {"study": study_digest}).one()
        if row.state in {"collecting", "incomplete"} and now >= row.deadline:
            raise ProblemError("study-expired")
        if row.state != "collecting":
            raise ProblemError("study-closed")
        return now


def _stored(connection: Connection, table: sa.Table, study_digest: str, owner: str | None) -> bytes | None:
    query = _ENVELOPES[table.name]
    return connection.execute(query, {"study": study_digest, "owner": owner}).scalar_one_or_none()


def _is_stored(
    connection: Connection, table: sa.Table, study_digest: str, owner: str | None, envelope: bytes
) -> bool:
    stored = _stored(connection, table, study_digest, owner)
    if stored is not None and bytes(stored) != envelope:
        raise ProblemError("conflicting-upload")
    return stored is not None
