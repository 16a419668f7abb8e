"""The ledger's tables.

An account row is a summary of its entries: ``version`` is the number of entries, ``debits`` that of debits,
``head_hash`` the hash of the last, the caps and shares those of the last change, the amounts spent the sums
of the debits', and the amounts promised the high-water marks of the shares since the first debit. It exists
to be compared and swapped, so that a debit reads one row however many entries there are. ``division`` is what
the owner last stated of the shares, empty where nothing; ``UNDIVIDED`` on accounts of an older release until
the service, which knows what may run, divides their caps.
"""

import sqlalchemy as sa

METADATA = sa.MetaData()

NAME_LENGTH = 63
"""Longest data set name, as in the protocol's ``DataSetName``."""

DIGEST_LENGTH = 64
"""Hexadecimal digits of a SHA-256."""

DIVISION_LENGTH = 40
"""Longest statement of a division: two names and two numbers."""

UNDIVIDED = "undivided"
"""The division of an account of an older release: its shares are what was spent, so that nothing is left."""

AMOUNTS = ("pure_{}_pico", "gaussian_{}_femto", "approximate_{}_atto")
"""The three columns of an amount by share, in the order of ``Amounts``."""

KINDS = ("share", "spent", "promised")
"""The amounts that an account holds of each share."""

ACCOUNTS = sa.Table(
    "ledger_accounts",
    METADATA,
    sa.Column("data_set", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("epsilon_cap_micro", sa.BigInteger, nullable=False),
    sa.Column("delta_cap_pico", sa.BigInteger, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("head_hash", sa.String(DIGEST_LENGTH), nullable=False),
    sa.Column("division", sa.String(DIVISION_LENGTH), nullable=False, server_default=UNDIVIDED),
    sa.Column("debits", sa.BigInteger, nullable=False, server_default="0"),
    *(
        sa.Column(name.format(kind), sa.BigInteger, nullable=False, server_default="0")
        for kind in KINDS
        for name in AMOUNTS
    ),
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
    sa.Column("spent_after_micro", sa.BigInteger, nullable=True),
    sa.Column("previous_hash", sa.String(DIGEST_LENGTH), nullable=False),
    sa.Column("entry_hash", sa.String(DIGEST_LENGTH), nullable=False),
    sa.Column("form", sa.SmallInteger, nullable=False, server_default="1"),
    sa.Column("pure_pico", sa.BigInteger, nullable=True),
    sa.Column("gaussian_femto", sa.BigInteger, nullable=True),
    sa.Column("approximate_atto", sa.BigInteger, nullable=True),
    sa.UniqueConstraint("data_set", "study", name="uq_ledger_entries_study"),
)
"""Entries of form 1 are those of older releases, with ``spent_after_micro``; those of form 2 have amounts."""
