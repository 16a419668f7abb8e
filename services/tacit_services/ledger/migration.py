"""The migration from a cap that was checked by composing events to one that is divided into shares.

The sums of each account are computed from the events of its stored entries, by the charges of today: nothing
that was spent is forgotten. Its shares are what was spent, so that nothing is left, until the service
divides the cap anew when it starts; where more was spent of a share than the cap has for it, that share
refuses. Entries stay as they are, byte for byte, and their hashes verify as they did.
"""

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op
from pydantic import ValidationError

from tacit_protocol.privacy.accounting import Amounts, charge
from tacit_services.ledger.accounts import LedgerDamagedError
from tacit_services.ledger.entries import entry_of

_UNDIVIDED = "undivided"
_AMOUNTS = ("pure_{}_pico", "gaussian_{}_femto", "approximate_{}_atto")
_KINDS = ("share", "spent", "promised")


def divide_accounts() -> None:
    """Add the columns of the shares to accounts and entries, and compute what was spent.

    Raises:
        LedgerDamagedError: an entry's events cannot be read; nothing was changed.
    """
    with op.batch_alter_table("ledger_entries") as entries:
        entries.alter_column("spent_after_micro", existing_type=sa.BigInteger(), nullable=True)
        entries.add_column(sa.Column("form", sa.SmallInteger, nullable=False, server_default="1"))
        for name in ("pure_pico", "gaussian_femto", "approximate_atto"):
            entries.add_column(sa.Column(name, sa.BigInteger, nullable=True))
    division = sa.Column("division", sa.String(40), nullable=False, server_default=_UNDIVIDED)
    op.add_column("ledger_accounts", division)
    for name in ("debits", *(name.format(kind) for kind in _KINDS for name in _AMOUNTS)):
        op.add_column("ledger_accounts", sa.Column(name, sa.BigInteger, nullable=False, server_default="0"))
    _compute_spent(op.get_bind())


def _compute_spent(connection: sa.Connection) -> None:
    tables = sa.MetaData()
    tables.reflect(connection, only=["ledger_accounts", "ledger_entries"])
    accounts, entries = tables.tables["ledger_accounts"], tables.tables["ledger_entries"]
    for (data_set,) in connection.execute(sa.select(accounts.c.data_set)).all():
        debits = entries.select().where(entries.c.data_set == data_set, entries.c.kind == "debit")
        rows = connection.execute(debits).all()
        spent = _spent(rows)
        amounts = {
            name.format(kind): amount
            for kind in _KINDS
            for name, amount in zip(_AMOUNTS, spent.all, strict=True)
        }
        changed = accounts.update().where(accounts.c.data_set == data_set)
        connection.execute(changed.values(debits=len(rows), **amounts))


def _spent(rows: Sequence[sa.Row[Any]]) -> Amounts:
    spent = Amounts()
    for row in rows:
        try:
            spent += charge(entry_of(row).events)
        except ValidationError:
            raise LedgerDamagedError(
                f"the ledger is damaged: an entry was changed after it was written (entry {row.sequence})"
            ) from None
    return spent
