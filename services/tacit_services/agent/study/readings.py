"""Readings: which study reads an account's rows, how often it has tried, and what failed after that.

A failure that only the rows could bring about is an answer about them, exact and without noise. So it is paid
for in full, nothing is sent, and the account is locked: it answers no study until a person has unlocked it.
While a study reads an account, no other begins to: one failure closes one study.

A row of ``agent_readings`` is written before anything of the data is opened, in the transaction that reserves
the study's cost, and deleted by the transaction that stores its answer. A process that what it reads kills
again and again (of memory, for one) finds its attempts counted. An attempt that ended for a public reason,
which the configuration, the file as a whole, the database or a cluster that is away decides, is taken back.

All functions work inside the caller's transaction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from tacit_protocol.messages.encoding import decode, encode
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_services.agent.schema import READINGS, State
from tacit_services.agent.study.studies import approvers_of, move
from tacit_services.ledger.accounts import debit, debits_of_study, give_back
from tacit_services.shared.failpoints import ClosingStep, reached

ATTEMPTS_MAX = 5
"""Attempts to read rows for one study that may end without an answer; then it is closed. An update, a power
cut and a cluster's restart in one computation are three; what ends five does not end otherwise the sixth
time."""

CLOSED = (
    "it failed after rows were read: the budget is spent, nothing is sent, and the data set is locked until "
    "a steward unlocks it"
)

FAULT_LENGTH = 200

NEVER = 2**62
"""When others than the owner's own steward are told that a study was closed: they see one without an answer,
which expires."""


@dataclass(frozen=True)
class ReadingFailure:
    """What failed: the exception's class, or a few constant words, and its place in the code; no message."""

    kind: str
    place: str | None = None

    @classmethod
    def of(cls, error: BaseException) -> "ReadingFailure":
        """Describe an exception; its place is the innermost line of Tacit's own code."""
        place, traceback = None, error.__traceback__
        while traceback is not None:
            module = str(traceback.tb_frame.f_globals.get("__name__", ""))
            if place is None or module.partition(".")[0].startswith("tacit"):
                place = f"{module}:{traceback.tb_lineno}"
            traceback = traceback.tb_next
        return cls(type(error).__qualname__[:FAULT_LENGTH], None if place is None else place[-FAULT_LENGTH:])


KILLED = ReadingFailure(f"the process ended in {ATTEMPTS_MAX} attempts to read the rows")


@dataclass(frozen=True)
class AccountLock:
    """Why an account is locked. Its owner's alone: others are told nothing, or at ``shown_from``."""

    account: str
    owner: str
    study: str
    at: int
    shown_from: int
    fault: ReadingFailure

    def view(self) -> dict[str, Any]:
        """Return what those are shown who may see the rows."""
        return {"study": self.study, "at": self.at, "fault": self.fault.kind, "place": self.fault.place}


def begin(
    connection: sa.Connection, study: str, owners: Sequence[tuple[str, str]], guarantee: Guarantee | None
) -> int | None:
    """Count an attempt to read accounts' rows; returns which it is, or None where one of them is not free.

    Args:
        connection: the caller's.
        study: the digest.
        owners: each account and its owner's name.
        guarantee: what a failure costs each account; None where the study spends nothing here.
    """
    accounts = [account for account, _ in owners]
    rows = connection.execute(READINGS.select().where(READINGS.c.account.in_(accounts))).all()
    if any(row.study != study or row.closed_at is not None for row in rows):
        return None
    if not rows:
        cost = None if guarantee is None else encode(guarantee)
        for account, owner in sorted(owners):
            row = {"account": account, "study": study, "owner": owner, "guarantee": cost, "attempts": 1}
            connection.execute(READINGS.insert().values(**row))
        return 1
    attempts = int(rows[0].attempts) + 1
    connection.execute(READINGS.update().where(_under_way(study)).values(attempts=attempts))
    return attempts


def _under_way(study: str) -> sa.ColumnElement[bool]:
    return sa.and_(READINGS.c.study == study, READINGS.c.closed_at.is_(None))


def is_begun(connection: sa.Connection, study: str) -> bool:
    """Say whether rows may have been read for a study that has no answer yet."""
    return connection.execute(sa.select(READINGS.c.account).where(_under_way(study))).first() is not None


def take_back(connection: sa.Connection, study: str) -> None:
    """Take an attempt back that ended for a public reason."""
    begun = READINGS.update().where(_under_way(study))
    connection.execute(begun.values(attempts=READINGS.c.attempts - 1))
    connection.execute(READINGS.delete().where(_under_way(study), READINGS.c.attempts <= 0))


def forget_reading(connection: sa.Connection, study: str) -> None:
    """Forget a reading, in the transaction that stores what the study's answer is."""
    connection.execute(READINGS.delete().where(_under_way(study)))


def close(
    connection: sa.Connection,
    study: str,
    fault: ReadingFailure,
    *,
    at: int,
    shown_from: int,
    pays: bool = True,
) -> bool:
    """End a study that failed after rows were read: debit its cost, send nothing, lock its accounts.

    Returns False where its rows have not been read, or it has ended meanwhile. ``pays`` is False where an
    account has too little left by now, because its owner has lowered a cap: it is locked all the same.

    Raises:
        BudgetExceededError: an account has too little left.
    """
    query = READINGS.select().where(_under_way(study)).order_by(READINGS.c.account)
    rows = connection.execute(query).all()
    if not rows or not move(
        connection,
        study,
        before=[State.APPROVED],
        after=State.CLOSED,
        at=at,
        problem="internal-error",
        reason=CLOSED,
        shown_from=NEVER,
    ):
        return False
    is_paid = debits_of_study(connection, study)  # at a curator with the approval
    for row in () if is_paid or not pays else rows:
        if row.guarantee is not None:
            cost = decode(Guarantee, bytes(row.guarantee))
            approvers = approvers_of(connection, study, row.owner)
            debit(connection, row.account, study, cost, at=at, approved_by=approvers)
            reached(ClosingStep.DEBITED)
    give_back(connection, [study])
    locked = {"closed_at": at, "shown_from": shown_from, "place": fault.place, "fault": fault.kind}
    connection.execute(READINGS.update().where(_under_way(study)).values(**locked))
    reached(ClosingStep.LOCKED)
    return True


def lock_of(connection: sa.Connection, account: str) -> AccountLock | None:
    """Return why an account is locked; None where it is not."""
    query = READINGS.select().where(READINGS.c.account == account, READINGS.c.closed_at.is_not(None))
    row = connection.execute(query).one_or_none()
    return None if row is None else _lock_in(row)


def all_locks(connection: sa.Connection) -> list[AccountLock]:
    """Return every lock, in the order of the accounts' names."""
    query = READINGS.select().where(READINGS.c.closed_at.is_not(None)).order_by(READINGS.c.account)
    return [_lock_in(row) for row in connection.execute(query)]


def _lock_in(row: sa.Row[Any]) -> AccountLock:
    fault = ReadingFailure(row.fault, row.place)
    return AccountLock(row.account, row.owner, row.study, row.closed_at, row.shown_from, fault)


def unlock(connection: sa.Connection, account: str) -> AccountLock | None:
    """Unlock an account; returns why it was locked, or None where it was not."""
    lock = lock_of(connection, account)
    connection.execute(
        READINGS.delete().where(READINGS.c.account == account, READINGS.c.closed_at.is_not(None))
    )
    return lock
