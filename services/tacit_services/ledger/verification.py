"""Check that a ledger's entries chain, add up, and agree with their accounts; write them out."""

from typing import Any

import sqlalchemy as sa

from tacit_protocol.privacy.accounting import compose_epsilon_micro
from tacit_services.ledger.accounts import Account, Compose, composed
from tacit_services.ledger.entries import FIRST_HASH, Entry, entry_of
from tacit_services.ledger.errors import LedgerDamagedError
from tacit_services.ledger.schema import ACCOUNTS, ENTRIES


def verify(
    connection: sa.Connection, compose: Compose = compose_epsilon_micro, *, every_amount: bool = True
) -> int:
    """Check every account; returns the number of entries.

    Without ``every_amount`` only each account's newest amount is composed again, which is what the next debit
    builds on; the hashes are always checked.

    What this cannot see is a ledger replaced as a whole by an older copy of itself: keep the head hashes
    that the agent logs, or that ``export`` writes, somewhere else.

    Raises:
        LedgerDamagedError: an entry was changed, removed, added or reordered, or an amount is wrong.
    """
    accounts = [Account(**row._mapping) for row in connection.execute(ACCOUNTS.select())]
    entries = 0
    for account in accounts:
        entries += _verify_account(connection, account, compose, every_amount)
    if entries != connection.execute(sa.select(sa.func.count()).select_from(ENTRIES)).scalar_one():
        raise LedgerDamagedError("there are entries of an account that does not exist")
    return entries


def _verify_account(connection: sa.Connection, account: Account, compose: Compose, every_amount: bool) -> int:
    rows = connection.execute(
        ENTRIES.select().where(ENTRIES.c.data_set == account.data_set).order_by(ENTRIES.c.sequence)
    ).all()
    previous, caps = FIRST_HASH, (0, 0)
    debits: list[Entry] = []
    for sequence, row in enumerate(rows, start=1):
        entry = entry_of(row)
        _require(entry.sequence == sequence, "an entry is missing")
        _require(entry.previous_hash == previous, "an entry does not follow the one before it")
        _require(entry.entry_hash == row.entry_hash, "an entry was changed after it was written")
        if entry.kind == "cap":
            caps = (entry.epsilon_micro, entry.delta_pico)
        else:
            debits.append(entry)
        if every_amount or sequence == len(rows):
            spent = composed(debits, caps[1], compose)
            _require(entry.spent_after_micro == spent, "an amount spent is wrong")
        previous = entry.entry_hash
    _require(account.version == len(rows), "the account's newest entries are missing")
    _require(account.head_hash == previous, "the account and its newest entry disagree")
    _require((account.epsilon_cap_micro, account.delta_cap_pico) == caps, "the account's caps were changed")
    return len(rows)


def _require(holds: bool, fault: str) -> None:
    if not holds:
        raise LedgerDamagedError(f"the ledger is damaged: {fault}")


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
