"""Verification of a ledger: entries chain, add up, and agree with their accounts; and its export.

What a debit took of each share follows from its mechanism events alone, by sums of integers.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import sqlalchemy as sa
from pydantic import ValidationError

from tacit_protocol.messages.answers import BudgetBalance
from tacit_protocol.messages.encoding import MessageError
from tacit_protocol.privacy.accounting import Amounts, Cap, charge
from tacit_services.ledger.accounts import (
    Account,
    LedgerDamagedError,
    all_accounts,
    payer,
    standing,
)
from tacit_services.ledger.entries import ENTRIES, FIRST_HASH, LedgerEntry, entry_of


@dataclass(frozen=True)
class InspectedAccount:
    """What an account's entries say: ``fault`` is the first that was found, or None.

    ``head_hash`` is the hash of the newest entry, over everything before it. Whoever keeps it in another
    place can tell later whether the ledger still goes on from there.
    """

    data_set: str
    entries: int
    head_hash: str
    standing: BudgetBalance
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

    def view(self) -> dict[str, Any]:
        """Return whether the ledger is whole, each account's head hash, and what is wrong."""
        return {
            "ok": not self.faults,
            "accounts": [vars(each) | {"standing": each.standing.model_dump()} for each in self.accounts],
            "faults": list(self.faults),
        }


def inspect(connection: sa.Connection, *, kept_hashes: Iterable[str] = ()) -> Inspection:
    """Check every account: entries that were changed, removed, added or reordered, and wrong amounts.

    What the entries alone cannot show is a ledger replaced by an older copy of itself, one whose newest
    entries were removed together with what the account says of them, or one whose hashes were all computed
    anew. ``kept_hashes``, heads of any account that were kept in another place, show these: each must still
    be the hash of an entry.
    """
    accounts = all_accounts(connection)
    inspected = tuple(_inspect_account(connection, account) for account in accounts.values())
    faults = []
    stray = sa.select(ENTRIES.c.data_set).where(ENTRIES.c.data_set.not_in(list(accounts))).limit(1)
    if connection.execute(stray).first() is not None:
        faults.append("there are entries of an account that does not exist")
    kept = set(kept_hashes)
    query = sa.select(ENTRIES.c.entry_hash).where(ENTRIES.c.entry_hash.in_(kept))
    missing = len(kept.difference(connection.execute(query).scalars()))
    if missing:
        faults.append(f"{missing} kept hashes are those of no entry: entries were removed or rewritten")
    return Inspection(inspected, tuple(faults))


def verify(connection: sa.Connection) -> int:
    """Check every account, as :func:`inspect` does; returns the number of entries.

    Raises:
        LedgerDamagedError: an entry was changed, removed, added or reordered, or an amount is wrong.
    """
    inspection = inspect(connection)
    if inspection.faults:
        raise LedgerDamagedError(f"the ledger is damaged: {inspection.faults[0]}")
    return sum(account.entries for account in inspection.accounts)


def _inspect_account(connection: sa.Connection, account: Account) -> InspectedAccount:
    rows = connection.execute(
        ENTRIES.select().where(ENTRIES.c.data_set == account.data_set).order_by(ENTRIES.c.sequence)
    ).all()
    fault = None
    try:
        _verify_account(rows, account)
    except LedgerDamagedError as error:
        fault = str(error)
    return InspectedAccount(account.data_set, len(rows), account.head_hash, standing(account), fault)


def _verify_account(rows: Sequence[sa.Row[Any]], account: Account) -> None:
    previous, cap, debits = FIRST_HASH, Cap(0, 0), 0
    share, spent, promised = Amounts(), Amounts(), Amounts()
    for sequence, row in enumerate(rows, start=1):
        entry = _readable(row)
        _require(entry.sequence == sequence, "an entry is missing", sequence)
        _require(entry.previous_hash == previous, "an entry does not follow the one before it", sequence)
        if entry.kind == "debit":
            spent += _charged(entry)
            debits += 1
        else:
            cap, share = Cap(entry.epsilon_micro, entry.delta_pico), entry.amounts
        promised = promised.joined(share) if debits else promised
        previous = entry.entry_hash
    _require(account.version == len(rows), "the account's newest entries are missing")
    _require(account.head_hash == previous, "the account and its newest entry disagree")
    _require(account.cap == cap, "the account's caps were changed")
    _require(account.share == share, "the account's shares were changed")
    _require(
        (account.spent, account.debits) == (spent, debits), "the account's sums are not those of its debits"
    )
    _require(account.promised == promised, "the account's high-water marks were changed")


def _charged(entry: LedgerEntry) -> Amounts:
    """Return what a debit took of each share, by its events."""
    charged = charge(entry.events)
    if entry.amounts == charged:
        return charged
    converted = charge(entry.events, pure_as_gaussian=True)
    _require(entry.amounts == converted, "an amount spent is not what its events cost", entry.sequence)
    return converted


def _readable(row: sa.Row[Any]) -> LedgerEntry:
    """Return a row's entry; what is hashed is the entry, so the row must have no other spelling."""
    fault = "an entry was changed after it was written"
    try:
        entry = entry_of(row)
        same = entry.row() == dict(row._mapping)
    except (ValidationError, MessageError, TypeError, ValueError):  # SQLite keeps any type in any column
        raise LedgerDamagedError(f"{fault} (entry {row.sequence})") from None
    _require(same, fault, row.sequence)
    return entry


def _require(holds: bool, fault: str, sequence: int | None = None) -> None:
    if not holds:
        raise LedgerDamagedError(fault if sequence is None else f"{fault} (entry {sequence})")


def export(connection: sa.Connection, data_set: str | None = None) -> list[dict[str, Any]]:
    """Return the entries, oldest first within each data set, as plain data for JSON.

    Added to what is stored: ``taken``, what a debit took of each share, and ``paid_by``, the shares that paid
    its epsilon.
    """
    query = ENTRIES.select().order_by(ENTRIES.c.data_set, ENTRIES.c.sequence)
    if data_set is not None:
        query = query.where(ENTRIES.c.data_set == data_set)
    exported = []
    for row in connection.execute(query):
        entry = entry_of(row)
        events = [event.model_dump() for event in entry.events]
        taken = Amounts() if entry.kind == "cap" else entry.amounts
        paid_by = payer(taken) if entry.kind == "debit" else None
        derived = {"events": events, "taken": asdict(taken), "paid_by": paid_by}
        exported.append({**row._mapping, **derived, "approved_by": list(entry.approved_by)})
    return exported
