"""Answers to a study: an owner's release or decline, and the analyst's cancellation.

All three are idempotent: the same bytes again are answered as the first time, whatever has happened since;
other bytes never replace what is stored.
"""

from enum import Enum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.messages.cancellation import CancellationMessage
from tacit_protocol.messages.decline import DeclineMessage
from tacit_protocol.messages.encoding import decode
from tacit_protocol.messages.release import ReleaseMessage
from tacit_protocol.procedures.base import ReleaseError, check_release
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
from tacit_services.shared.group_commit import GroupCommit
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester.endings import COUNTED, Counted, Signer, end, end_if_answered
from tacit_services.tester.steps import Step, reached
from tacit_services.tester.studies import Studies
from tacit_services.tester.tables import CANCELLATIONS, DECLINES, RELEASES, STUDIES


class Taken(Enum):
    """What became of an answer."""

    BEFORE = "these very bytes were taken before"
    NOW = "stored"
    LAST = "stored, and the study collects no more"


def _same_place(table: sa.Table) -> sa.ColumnElement[bool]:
    """Say that a row is that of the study, and of the owner where the table has one."""
    same = table.c.study == sa.bindparam("study")
    return sa.and_(same, table.c.owner == sa.bindparam("owner")) if "owner" in table.c else same


def _case_of(table: sa.Table, other: sa.Table | None = None) -> sa.Select[Any]:
    """Select what decides on an answer: the study's state, what is stored in its place, and who was heard."""
    stored = sa.select(table.c.envelope).where(_same_place(table)).scalar_subquery()
    query = sa.select(STUDIES.c.state, STUDIES.c.deadline, stored.label("stored"))
    if other is not None:
        query = query.add_columns(sa.exists().where(_same_place(other)).label("decided"), *COUNTED)
    return query.where(STUDIES.c.digest == sa.bindparam("study"))


# Written once: to put a statement together takes longer than SQLite takes to run it.
_CASES = {
    RELEASES.name: _case_of(RELEASES, DECLINES),
    DECLINES.name: _case_of(DECLINES, RELEASES),
    CANCELLATIONS.name: _case_of(CANCELLATIONS),
}


class Answers:
    """Takes answers. Releases and declines that arrive together are committed together."""

    def __init__(self, engine: Engine, studies: Studies, signer: Signer, clock: Clock) -> None:
        self._engine = engine
        self._commits = GroupCommit(engine)
        self._studies = studies
        self._signer = signer
        self._clock = clock

    def take_release(self, study_digest: str, owner: str, envelope: bytes, caller_key: str) -> Taken:
        """Take an owner's release: signature first, by the study's roster; then what it says."""
        owner_key = self._roster_key(study_digest, owner, caller_key)
        payload = open_envelope(envelope, RELEASE_TYPE, owner_key)
        message = decode(ReleaseMessage, payload)
        if (message.study, message.party) != (study_digest, owner):
            raise ProblemError("digest-mismatch")
        study = self._studies.parsed(study_digest)
        try:
            check_release(procedure_named(study.procedure), study, message.release)
        except ReleaseError as error:
            # What was taken before stays taken, and what is late is late, whatever the checks say today.
            if self._was_taken(RELEASES, study_digest, owner, envelope):
                return Taken.BEFORE
            raise ProblemError("release-refused", detail=str(error)) from None
        reached(Step.RELEASE_CHECKED)
        values = {"digest": digest(payload), "units": message.release.units}
        taken = self._store(RELEASES, study_digest, owner, envelope, values)
        reached(Step.RELEASE_STORED)
        return taken

    def take_decline(self, study_digest: str, owner: str, envelope: bytes, caller_key: str) -> Taken:
        """Take an owner's decline."""
        owner_key = self._roster_key(study_digest, owner, caller_key)
        message = decode(DeclineMessage, open_envelope(envelope, DECLINE_TYPE, owner_key))
        if (message.study, message.party) != (study_digest, owner):
            raise ProblemError("digest-mismatch")
        return self._store(DECLINES, study_digest, owner, envelope, {})

    def take_cancellation(self, study_digest: str, envelope: bytes, caller_key: str) -> Taken:
        """Take the analyst's cancellation, while the study still collects."""
        study = self._studies.parsed(study_digest)
        if caller_key != study.analyst.key:
            raise ProblemError("forbidden", detail="only the study's analyst may cancel it")
        message = decode(CancellationMessage, open_envelope(envelope, CANCELLATION_TYPE, study.analyst.key))
        if message.study != study_digest:
            raise ProblemError("digest-mismatch")

        def work(connection: Connection) -> Taken:
            case = connection.execute(_CASES[CANCELLATIONS.name], {"study": study_digest}).one()
            if _is_stored(case.stored, envelope):
                return Taken.BEFORE
            now = self._require_collecting(case)
            connection.execute(
                CANCELLATIONS.insert().values(study=study_digest, envelope=envelope, received_at=now)
            )
            end(connection, study_digest, "cancelled", self._signer, now)
            return Taken.LAST

        return run_transaction(self._engine, work)

    def _roster_key(self, study_digest: str, owner: str, caller_key: str) -> str:
        """Return the key that the study's roster gives for this owner, which must be the caller's."""
        study = self._studies.parsed(study_digest)
        keys = {party.name: party.key for party in study.senders}
        if owner not in keys:
            raise ProblemError("forbidden", detail="the study does not name this owner")
        if keys[owner] != caller_key:
            raise ProblemError("forbidden", detail="an owner answers for itself alone")
        return keys[owner]

    def _was_taken(self, table: sa.Table, study_digest: str, owner: str, envelope: bytes) -> bool:
        """Return whether these very bytes were taken before; raises where the study takes nothing more."""
        place = {"study": study_digest, "owner": owner}

        def work(connection: Connection) -> bool:
            case = connection.execute(_CASES[table.name], place).one()
            if _is_stored(case.stored, envelope):
                return True
            self._require_collecting(case)
            return False

        return run_transaction(self._engine, work, read_only=True)

    def _store(
        self, table: sa.Table, study_digest: str, owner: str, envelope: bytes, values: dict[str, Any]
    ) -> Taken:
        place = {"study": study_digest, "owner": owner}

        def work(connection: Connection) -> Taken:
            case = connection.execute(_CASES[table.name], place).one()
            if _is_stored(case.stored, envelope):
                return Taken.BEFORE
            if case.decided:
                raise ProblemError("already-decided")
            now = self._require_collecting(case)
            connection.execute(table.insert(), place | {"envelope": envelope, "received_at": now} | values)
            is_release = table is RELEASES
            counted = Counted(case.owners, case.releases + is_release, case.declines + (not is_release))
            has_ended = end_if_answered(connection, study_digest, counted, self._signer, now)
            if is_release:
                reached(Step.RELEASE_INSERTED)
            return Taken.LAST if has_ended else Taken.NOW

        return self._commits.run(work)

    def _require_collecting(self, case: Any) -> int:
        """Return the time now; raises where the study takes nothing more."""
        now = int(self._clock())
        if case.state in {"collecting", "incomplete"} and now >= case.deadline:
            raise ProblemError("study-expired")
        if case.state != "collecting":
            raise ProblemError("study-closed")
        return now


def _is_stored(stored: bytes | None, envelope: bytes) -> bool:
    if stored is not None and bytes(stored) != envelope:
        raise ProblemError("conflicting-upload")
    return stored is not None
