"""Stores owners' answers, those that arrive together in one transaction with a few statements for all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester.archived import not_here
from tacit_services.tester.endings import Signer, end_if_answered
from tacit_services.tester.steps import RelayStep, Step, reached
from tacit_services.tester.tables import DECLINES, RELEASES, SEALED, STUDIES


class Taken(Enum):
    """What became of an answer."""

    BEFORE = "these very bytes were taken before"
    NOW = "stored"
    LAST = "stored, and the study collects no more"


@dataclass(frozen=True)
class Answer:
    """An owner's checked answer: the table it goes to, and its row without the time."""

    table: sa.Table
    row: Mapping[str, Any]
    ciphertext: bytes | None = None
    """What the answer says is sealed to another owner: stored with it, and beside it."""

    @property
    def study(self) -> str:
        """The digest of the study that is answered."""
        return str(self.row["study"])

    @property
    def place(self) -> tuple[str, str]:
        """Whose answer to what: a study and an owner have one place."""
        return self.study, str(self.row["owner"])


# Written once: to put a statement together takes longer than SQLite takes to run it.
_STUDIES = sa.select(STUDIES.c.digest, STUDIES.c.state, STUDIES.c.deadline).where(
    STUDIES.c.digest.in_(sa.bindparam("studies", expanding=True))
)
_STORED = sa.union_all(
    *(
        sa.select(sa.literal(t.name).label("kind"), t.c.study, t.c.owner, t.c.envelope).where(
            sa.tuple_(t.c.study, t.c.owner).in_(sa.bindparam("places", expanding=True))
        )
        for t in (RELEASES, DECLINES)
    )
)
_INSERTS = {table.name: table.insert() for table in (RELEASES, DECLINES)}


def store_answers(
    connection: Connection, answers: Sequence[Answer], signer: Signer, now: int
) -> list[Taken | ProblemError]:
    """Store answers, in their order; returns what became of each, a refusal among them."""
    studies, stored = _read(connection, answers)
    outcomes = [
        _decide(answer, studies[answer.study], stored, now)
        if answer.study in studies
        else not_here(connection, answer.study)
        for answer in answers
    ]
    new = [answer for answer, outcome in zip(answers, outcomes, strict=True) if outcome is Taken.NOW]
    for name, insert in _INSERTS.items():
        if rows := [{**answer.row, "received_at": now} for answer in new if answer.table.name == name]:
            connection.execute(insert, rows)
    if sealed := [_sealed(answer) for answer in new if answer.ciphertext is not None]:
        connection.execute(SEALED.insert(), sealed)
        reached(RelayStep.SEALED_INSERTED)
    ended = end_if_answered(connection, {answer.study for answer in new}, signer, now) if new else set()
    for _ in (answer for answer in new if answer.table is RELEASES):
        reached(Step.RELEASE_INSERTED)
    return [
        Taken.LAST if outcome is Taken.NOW and answer.study in ended else outcome
        for answer, outcome in zip(answers, outcomes, strict=True)
    ]


def _sealed(answer: Answer) -> dict[str, Any]:
    return {"study": answer.study, "owner": answer.row["owner"], "ciphertext": answer.ciphertext}


def was_taken(connection: Connection, answer: Answer, now: int) -> bool:
    """Return whether these very bytes were taken before; raises where the study takes nothing more."""
    studies, stored = _read(connection, [answer])
    if is_stored(stored.get((answer.table.name, *answer.place)), answer.row["envelope"]):
        return True
    if answer.study not in studies:
        raise not_here(connection, answer.study)
    require_collecting(studies[answer.study], now)
    return False


def is_stored(stored: bytes | None, envelope: bytes) -> bool:
    """Return whether these very bytes are stored; raises ``conflicting-upload`` where others are."""
    if stored is not None and stored != envelope:
        raise ProblemError("conflicting-upload")
    return stored is not None


def require_collecting(study: Any, now: int) -> None:
    """Raise the problem that says why a study (a row with state and deadline) takes nothing more."""
    if study.state in {"collecting", "incomplete"} and now >= study.deadline:
        raise ProblemError("study-expired")
    if study.state != "collecting":
        raise ProblemError("study-closed")


_Stored = dict[tuple[str, str, str], bytes]
"""Envelopes by table, study and owner."""


def _read(connection: Connection, answers: Sequence[Answer]) -> tuple[dict[str, Any], _Stored]:
    """Read the answered studies' rows, by digest, and what is stored in the answers' places."""
    studies = connection.execute(_STUDIES, {"studies": list({answer.study for answer in answers})})
    found = {row.digest: row for row in studies}
    places = connection.execute(_STORED, {"places": list({answer.place for answer in answers})})
    return found, {(row.kind, row.study, row.owner): bytes(row.envelope) for row in places}


def _decide(answer: Answer, study: Any, stored: _Stored, now: int) -> Taken | ProblemError:
    """Decide on one answer, and note it for those after it where it is to be stored."""
    kind, other = answer.table.name, (DECLINES if answer.table is RELEASES else RELEASES).name
    try:
        if is_stored(stored.get((kind, *answer.place)), answer.row["envelope"]):
            return Taken.BEFORE
        if (other, *answer.place) in stored:
            raise ProblemError("already-decided")
        require_collecting(study, now)
    except ProblemError as refusal:
        return refusal
    stored[kind, *answer.place] = answer.row["envelope"]
    return Taken.NOW
