"""Migrations that agents and curators share.

The ledger's second is from a cap that was checked by composing events to one that is divided into shares.

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


def create_ledger(account_length: int) -> None:
    """Create the ledger's first tables, for accounts with names of so many characters."""
    op.create_table(
        "ledger_accounts",
        sa.Column("data_set", sa.String(account_length), primary_key=True),
        sa.Column("epsilon_cap_micro", sa.BigInteger, nullable=False),
        sa.Column("delta_cap_pico", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("head_hash", sa.String(64), nullable=False),
    )
    op.create_table(
        "ledger_entries",
        sa.Column("data_set", sa.String(account_length), primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("study", sa.String(64), nullable=True),
        sa.Column("events", sa.Text, nullable=False),
        sa.Column("epsilon_micro", sa.BigInteger, nullable=False),
        sa.Column("delta_pico", sa.BigInteger, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("spent_after_micro", sa.BigInteger, nullable=False),
        sa.Column("previous_hash", sa.String(64), nullable=False),
        sa.Column("entry_hash", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(["data_set"], ["ledger_accounts.data_set"], name="fk_ledger_entries_account"),
        sa.UniqueConstraint("data_set", "study", name="uq_ledger_entries_study"),
    )


def create_studies() -> None:
    """Create the tables of studies and of what is to be sent, as an agent first had them."""
    op.create_table(
        "agent_studies",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("state", sa.String(24), nullable=False),
        sa.Column("data_set", sa.String(63), nullable=True),
        sa.Column("envelope", sa.LargeBinary, nullable=True),
        sa.Column("deadline", sa.BigInteger, nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
        sa.Column("problem", sa.String(32), nullable=True),
        sa.Column("reason", sa.String(500), nullable=True),
        sa.Column("verdict", sa.LargeBinary, nullable=True),
    )
    op.create_index("ix_agent_studies_state", "agent_studies", ["state"])
    op.create_table(
        "agent_outbox",
        sa.Column("study", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("envelope", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("closed_at", sa.BigInteger, nullable=True),
        sa.Column("outcome", sa.String(32), nullable=True),
        sa.ForeignKeyConstraint(["study"], ["agent_studies.digest"], name="fk_agent_outbox_study"),
    )


def create_reservations(account_length: int) -> None:
    """Create the table of what approved studies will take."""
    op.create_table(
        "ledger_reservations",
        sa.Column("data_set", sa.String(account_length), primary_key=True),
        sa.Column("study", sa.String(64), primary_key=True),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("pure_pico", "gaussian_femto", "approximate_atto", "at")
        ),
        sa.ForeignKeyConstraint(
            ["data_set"], ["ledger_accounts.data_set"], name="fk_ledger_reservations_account"
        ),
    )


def create_personal_decisions() -> None:
    """Create the table of what people decided on studies; debits say who approved them from now on."""
    op.create_table(
        "agent_personal_decisions",
        sa.Column("study", sa.String(64), sa.ForeignKey("agent_studies.digest"), primary_key=True),
        sa.Column("owner", sa.String(63), primary_key=True),
        sa.Column("person", sa.String(63), primary_key=True),
        sa.Column("decision", sa.String(16), nullable=False),
        sa.Column("decided_at", sa.BigInteger, nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("demotions", sa.BigInteger, nullable=False),
    )
    op.add_column("ledger_entries", sa.Column("approved_by", sa.Text, nullable=True))


def add_send_times() -> None:
    """Add when each answer is to be sent; what was stored before is due at once."""
    op.add_column("agent_outbox", sa.Column("send_at", sa.BigInteger, nullable=False, server_default="0"))


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
