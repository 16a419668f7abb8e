"""Entries of the ledger, each with a hash that chains it to the one before, and the ledger's tables.

An account row is a summary of its entries: ``version`` is the number of entries, ``debits`` that of debits,
``head_hash`` the hash of the last, the caps and shares those of the last change, the amounts spent the sums
of the debits', and the amounts promised the high-water marks of the shares since the first debit. It exists
to be compared and swapped, so that a debit reads one row however many entries there are. ``division`` is
what the owner last stated of the shares, empty where nothing.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Literal

import sqlalchemy as sa
from pydantic import TypeAdapter

from tacit_protocol.messages.encoding import encode_json
from tacit_protocol.privacy.accounting import Amounts
from tacit_protocol.privacy.guarantee import MechanismEvent

FIRST_HASH = "0" * 64
"""What the first entry of an account has in place of a previous hash."""

_EVENTS: TypeAdapter[tuple[MechanismEvent, ...]] = TypeAdapter(tuple[MechanismEvent, ...])


@dataclass(frozen=True)
class LedgerEntry:
    """A debit, or a change of the account's caps or of their division.

    For a debit ``epsilon_micro`` and ``delta_pico`` are the study's budget, ``study`` its digest, and
    ``amounts`` what it took of each share: where its pure events took nothing of the pure share, the Gaussian
    share has paid for them. For a change of cap they are the new caps, ``amounts`` the new shares, ``study``
    is None and ``events`` is empty. ``at`` is in Unix seconds. ``approved_by`` are the people who approved
    the study; without any, policy alone did.
    """

    data_set: str
    sequence: int
    kind: Literal["debit", "cap"]
    study: str | None
    events: tuple[MechanismEvent, ...]
    epsilon_micro: int
    delta_pico: int
    at: int
    previous_hash: str
    amounts: Amounts
    approved_by: tuple[str, ...] = ()

    @property
    def approved_by_json(self) -> str | None:
        """The people who approved, as they are stored and hashed; None where there are none."""
        return encode_json(list(self.approved_by)).decode() if self.approved_by else None

    @property
    def events_json(self) -> str:
        """The mechanism events as they are stored and hashed."""
        return encode_json([event.model_dump() for event in self.events]).decode()

    @property
    def entry_hash(self) -> str:
        """SHA-256 of everything in the entry, with the previous entry's hash among it."""
        return hashlib.sha256(encode_json(self._fields())).hexdigest()

    def _fields(self) -> dict[str, Any]:
        return {
            "data_set": self.data_set,
            "sequence": self.sequence,
            "kind": self.kind,
            "study": self.study,
            "events": self.events_json,
            "epsilon_micro": self.epsilon_micro,
            "delta_pico": self.delta_pico,
            "at": self.at,
            "previous_hash": self.previous_hash,
            **asdict(self.amounts),
            "approved_by": self.approved_by_json,
        }

    def row(self) -> dict[str, Any]:
        """Return the entry as a row of the table, with its hash."""
        return {**self._fields(), "entry_hash": self.entry_hash}


def entry_of(row: Any) -> LedgerEntry:
    """Return the entry that a row of the table holds; its stored hash is not looked at."""
    return LedgerEntry(
        data_set=row.data_set,
        sequence=row.sequence,
        kind=row.kind,
        study=row.study,
        events=_EVENTS.validate_json(row.events),
        epsilon_micro=row.epsilon_micro,
        delta_pico=row.delta_pico,
        at=row.at,
        previous_hash=row.previous_hash,
        amounts=Amounts(row.pure_pico, row.gaussian_femto, row.approximate_atto),
        approved_by=() if row.approved_by is None else tuple(json.loads(row.approved_by)),
    )


METADATA = sa.MetaData()

NAME_LENGTH = 63
"""Longest data set name, as in the protocol's ``DataSetName``."""

DIGEST_LENGTH = 64
"""Hexadecimal digits of a SHA-256."""

DIVISION_LENGTH = 40
"""Longest statement of a division: two names and two numbers."""

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
    sa.Column("division", sa.String(DIVISION_LENGTH), nullable=False),
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
    sa.Column("previous_hash", sa.String(DIGEST_LENGTH), nullable=False),
    sa.Column("entry_hash", sa.String(DIGEST_LENGTH), nullable=False),
    sa.Column("pure_pico", sa.BigInteger, nullable=False),
    sa.Column("gaussian_femto", sa.BigInteger, nullable=False),
    sa.Column("approximate_atto", sa.BigInteger, nullable=False),
    sa.Column("approved_by", sa.Text, nullable=True),
    sa.UniqueConstraint("data_set", "study", name="uq_ledger_entries_study"),
)
"""``approved_by`` is a JSON list of people, or null."""

RESERVATIONS = sa.Table(
    "ledger_reservations",
    METADATA,
    sa.Column(
        "data_set",
        sa.String(NAME_LENGTH),
        sa.ForeignKey("ledger_accounts.data_set", name="fk_ledger_reservations_account"),
        primary_key=True,
    ),
    sa.Column("study", sa.String(DIGEST_LENGTH), primary_key=True),
    sa.Column("pure_pico", sa.BigInteger, nullable=False),
    sa.Column("gaussian_femto", sa.BigInteger, nullable=False),
    sa.Column("approximate_atto", sa.BigInteger, nullable=False),
    sa.Column("at", sa.BigInteger, nullable=False),
)
"""What an approved study will take of each share, until it is debited or ends: a row is written with the
approval, and deleted with the debit or with the study's end. Nothing is promised by it: it keeps room, and is
not among what is hashed."""
