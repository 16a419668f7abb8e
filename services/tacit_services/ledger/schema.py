"""The ledger's tables.

An account row is a summary of its entries: ``version`` is the number of entries, ``head_hash`` the hash of
the last, the caps those of the last change. It exists to be compared and swapped.
"""

import sqlalchemy as sa

METADATA = sa.MetaData()

NAME_LENGTH = 63
"""Longest data set name, as in the protocol's ``DataSetName``."""

DIGEST_LENGTH = 64
"""Hexadecimal digits of a SHA-256."""

ACCOUNTS = sa.Table(
    "ledger_accounts",
    METADATA,
    sa.Column("data_set", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("epsilon_cap_micro", sa.BigInteger, nullable=False),
    sa.Column("delta_cap_pico", sa.BigInteger, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("head_hash", sa.String(DIGEST_LENGTH), nullable=False),
)

ENTRIES = sa.Table(
    "ledger_entries",
    METADATA,
    sa.Column(
        "data_set",
        sa.String(NAME_LENGTH),
        sa.ForeignKey("ledger_accounts.data_set", name="fk_ledger_entries_account"),
        primary_key=True,
    ),
    sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("kind", sa.String(8), nullable=False),
    sa.Column("study", sa.String(DIGEST_LENGTH), nullable=True),
    sa.Column("events", sa.Text, nullable=False),
    sa.Column("epsilon_micro", sa.BigInteger, nullable=False),
    sa.Column("delta_pico", sa.BigInteger, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
    sa.Column("spent_after_micro", sa.BigInteger, nullable=False),
    sa.Column("previous_hash", sa.String(DIGEST_LENGTH), nullable=False),
    sa.Column("entry_hash", sa.String(DIGEST_LENGTH), nullable=False),
    sa.UniqueConstraint("data_set", "study", name="uq_ledger_entries_study"),
)
