"""Check that a ledger's entries chain, add up, and agree with their accounts; write them out.

Amounts are composed anew by the accountant of today, which need not be the one that wrote them: a newer one
may know a smaller upper bound for the same events, or round otherwise. So an amount may be more than today's,
and less by no more than the accountant's rounding. Nothing is spent on the strength of a written amount:
every debit composes all events again.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from pydantic import ValidationError

from tacit_protocol.messages.encoding import MessageError
from tacit_protocol.privacy.accounting import LOSS_INTERVAL, compose_epsilon_micro
from tacit_protocol.privacy.events import ApproximateEvent, LaplaceEvent
from tacit_protocol.privacy.guarantee import EPSILON_UNITS
from tacit_services.ledger.accounts import Account, Compose, composed
from tacit_services.ledger.entries import FIRST_HASH, Entry, entry_of
from tacit_services.ledger.errors import LedgerDamagedError
from tacit_services.ledger.schema import ACCOUNTS, ENTRIES

EXACT_ROUNDING_MICRO = 2
"""Micro-epsilons by which two exact compositions of Gaussian events may differ: each is rounded up to one."""


@dataclass(frozen=True)
class InspectedAccount:
    """What an account's entries say: ``fault`` is the first that was found, or None.

    ``head_hash`` is the hash of the newest entry, over everything before it. Whoever keeps it in another
    place can tell later whether the ledger still goes on from there.
    """

    data_set: str
    entries: int
    head_hash: str
    spent_micro: int
    fault: str | None


@dataclass(frozen=True)
class Inspection:
    """What is left of a ledger's promise: every account, and faults that belong to none."""

    accounts: tuple[InspectedAccount, ...]
    other_faults: tuple[str, ...]

    @property
    def faults(self) -> tuple[str, ...]:
        """Every fault, with the data set where it was found."""
        found = (f"data set {a.data_set}: {a.fault}" for a in self.accounts if a.fault is not None)
        return (*found, *self.other_faults)


def inspect(
    connection: sa.Connection,
    compose: Compose = compose_epsilon_micro,
    *,
    every_amount: bool = True,
    kept_hashes: Iterable[str] = (),
) -> Inspection:
    """Check every account: entries that were changed, removed, added or reordered, and wrong amounts.

    Without ``every_amount`` only each account's newest amount is composed again, which is what the next debit
    builds on; the hashes are always checked.

    What the entries alone cannot show is a ledger replaced by an older copy of itself, one whose newest
    entries were removed together with what the account says of them, or one whose hashes were all computed
    anew. ``kept_hashes``, heads of any account that were kept in another place, show these: each must still
    be the hash of an entry.
    """
    accounts = [Account(**row._mapping) for row in connection.execute(ACCOUNTS.select())]
    inspected = tuple(_inspect_account(connection, account, compose, every_amount) for account in accounts)
    faults = []
    if _count(connection, ENTRIES.c.data_set.not_in([account.data_set for account in accounts])):
        faults.append("there are entries of an account that does not exist")
    kept = set(kept_hashes)
    query = sa.select(ENTRIES.c.entry_hash).where(ENTRIES.c.entry_hash.in_(kept))
    missing = len(kept.difference(connection.execute(query).scalars()))
    if missing:
        faults.append(f"{missing} kept hashes are those of no entry: entries were removed or rewritten")
    return Inspection(inspected, tuple(faults))


def verify(
    connection: sa.Connection, compose: Compose = compose_epsilon_micro, *, every_amount: bool = True
) -> int:
    """Check every account, as :func:`inspect` does; returns the number of entries.

    Raises:
        LedgerDamagedError: an entry was changed, removed, added or reordered, or an amount is wrong.
    """
    inspection = inspect(connection, compose, every_amount=every_amount)
    if inspection.faults:
        raise LedgerDamagedError(f"the ledger is damaged: {inspection.faults[0]}")
    return sum(account.entries for account in inspection.accounts)


def _count(connection: sa.Connection, condition: sa.ColumnElement[bool]) -> int:
    query = sa.select(sa.func.count()).select_from(ENTRIES).where(condition)
    return int(connection.execute(query).scalar_one())


def _inspect_account(
    connection: sa.Connection, account: Account, compose: Compose, every_amount: bool
) -> InspectedAccount:
    rows = connection.execute(
        ENTRIES.select().where(ENTRIES.c.data_set == account.data_set).order_by(ENTRIES.c.sequence)
    ).all()
    fault = None
    try:
        _verify_account(rows, account, compose, every_amount)
    except LedgerDamagedError as error:
        fault = str(error)
    spent = rows[-1].spent_after_micro if rows else 0
    return InspectedAccount(account.data_set, len(rows), account.head_hash, spent, fault)


def _verify_account(
    rows: Sequence[sa.Row[Any]], account: Account, compose: Compose, every_amount: bool
) -> None:
    previous, caps = FIRST_HASH, (0, 0)
    debits: list[Entry] = []
    for sequence, row in enumerate(rows, start=1):
        entry = _readable(row)
        _require(entry.sequence == sequence, "an entry is missing", sequence)
        _require(entry.previous_hash == previous, "an entry does not follow the one before it", sequence)
        if entry.kind == "cap":
            caps = (entry.epsilon_micro, entry.delta_pico)
        else:
            debits.append(entry)
        if every_amount or sequence == len(rows):
            spent = composed(debits, caps[1], compose)
            enough = entry.spent_after_micro + rounding_micro(debits) >= spent
            _require(enough, "an amount spent is less than its events cost", sequence)
        previous = entry.entry_hash
    _require(account.version == len(rows), "the account's newest entries are missing")
    _require(account.head_hash == previous, "the account and its newest entry disagree")
    _require((account.epsilon_cap_micro, account.delta_cap_pico) == caps, "the account's caps were changed")


def rounding_micro(debits: Iterable[Entry]) -> int:
    """Return the micro-epsilons by which two accountants may differ on the same events.

    Where all noise is Gaussian the composition is exact to ``EXACT_ROUNDING_MICRO``. Else each event is
    rounded up to the grid of the privacy loss distributions.
    """
    events = [event for entry in debits for event in entry.events]
    on_the_grid = sum(
        isinstance(event, LaplaceEvent) or (isinstance(event, ApproximateEvent) and event.epsilon > 0)
        for event in events
    )
    # One more for the Gaussian events of a mixture, which are put on the grid together.
    grids = on_the_grid + 1 if on_the_grid else 0
    return EXACT_ROUNDING_MICRO + math.ceil(LOSS_INTERVAL * EPSILON_UNITS) * grids


def _readable(row: sa.Row[Any]) -> Entry:
    """Return a row's entry; what is hashed is the entry, so the row must have no other spelling."""
    fault = "an entry was changed after it was written"
    try:
        entry = entry_of(row)
        same = (entry.events_json, entry.entry_hash) == (row.events, row.entry_hash)
    except (ValidationError, MessageError):  # SQLite keeps any type in any column
        raise LedgerDamagedError(f"{fault} (entry {row.sequence})") from None
    _require(same, fault, row.sequence)
    return entry


def _require(holds: bool, fault: str, sequence: int | None = None) -> None:
    if not holds:
        raise LedgerDamagedError(fault if sequence is None else f"{fault} (entry {sequence})")


def export(connection: sa.Connection, data_set: str | None = None) -> list[dict[str, Any]]:
    """Return the entries, oldest first within each data set, as plain data for JSON."""
    query = ENTRIES.select().order_by(ENTRIES.c.data_set, ENTRIES.c.sequence)
    if data_set is not None:
        query = query.where(ENTRIES.c.data_set == data_set)
    exported = []
    for row in connection.execute(query):
        entry = entry_of(row)
        exported.append({**row._mapping, "events": [event.model_dump() for event in entry.events]})
    return exported
