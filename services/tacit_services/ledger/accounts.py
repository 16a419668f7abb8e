"""Accounts and debits.

A debit reads the account, composes its events with the new ones, and writes only if the account's version is
still the one it read (``UPDATE ... WHERE version = :seen``). Reading the sum and then inserting an entry
would overspend on every engine below serializable isolation: two transactions read the same sum.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import sqlalchemy as sa

from tacit_protocol.privacy.accounting import EPSILON_MICRO_MAX, AccountingError, compose_epsilon_micro
from tacit_protocol.privacy.events import MechanismEvent
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_services.ledger.entries import FIRST_HASH, Entry, entry_of
from tacit_services.ledger.errors import (
    AlreadyDebitedError,
    BudgetExceededError,
    LedgerConflictError,
    UnknownAccountError,
)
from tacit_services.ledger.schema import ACCOUNTS, ENTRIES

Compose = Callable[[Iterable[MechanismEvent], int], int]
"""Micro-epsilons that events spend together at a delta in picos: the accountant."""


@dataclass(frozen=True)
class Account:
    """What an account may spend and how many entries it has."""

    data_set: str
    epsilon_cap_micro: int
    delta_cap_pico: int
    version: int
    head_hash: str


def set_caps(
    connection: sa.Connection,
    data_set: str,
    epsilon_cap_micro: int,
    delta_cap_pico: int,
    *,
    at: int,
    compose: Compose = compose_epsilon_micro,
) -> Account:
    """Open the account, or change its caps to these; a change is an entry like any other.

    A cap may be set below what is spent: then nothing is left until it is raised.
    """
    account = _account_row(connection, data_set)
    if account is None:
        account = Account(data_set, epsilon_cap_micro, delta_cap_pico, 0, FIRST_HASH)
        connection.execute(ACCOUNTS.insert().values(**account.__dict__))
    elif (account.epsilon_cap_micro, account.delta_cap_pico) == (epsilon_cap_micro, delta_cap_pico):
        return account
    debits = debits_of(connection, data_set)
    change = Entry(
        data_set=data_set,
        sequence=account.version + 1,
        kind="cap",
        study=None,
        events=(),
        epsilon_micro=epsilon_cap_micro,
        delta_pico=delta_cap_pico,
        at=at,
        spent_after_micro=composed(debits, delta_cap_pico, compose),
        previous_hash=account.head_hash,
    )
    _append(connection, account, change, epsilon_cap_micro, delta_cap_pico)
    return account_of(connection, data_set)


def debit(
    connection: sa.Connection,
    data_set: str,
    study: str,
    guarantee: Guarantee,
    *,
    at: int,
    compose: Compose = compose_epsilon_micro,
) -> Entry:
    """Debit a study's guarantee to a data set's account; ``study`` is the digest, ``at`` Unix seconds.

    Raises:
        UnknownAccountError: there is no such account.
        AlreadyDebitedError: the study has been debited to it before.
        BudgetExceededError: the account's events and these would together pass its cap.
        LedgerConflictError: another transaction wrote the account meanwhile; run the transaction again.
    """
    account = account_of(connection, data_set)
    debits = debits_of(connection, data_set)
    if any(entry.study == study for entry in debits):
        raise AlreadyDebitedError("this study has been debited to this data set already")
    entry = Entry(
        data_set=data_set,
        sequence=account.version + 1,
        kind="debit",
        study=study,
        events=guarantee.events,
        epsilon_micro=guarantee.budget.epsilon_micro,
        delta_pico=guarantee.budget.delta_pico,
        at=at,
        spent_after_micro=0,
        previous_hash=account.head_hash,
    )
    spent = composed([*debits, entry], account.delta_cap_pico, compose)
    if spent > account.epsilon_cap_micro:
        raise BudgetExceededError("the study would pass the data set's cap; nothing was spent")
    entry = Entry(**{**entry.__dict__, "spent_after_micro": spent})
    _append(connection, account, entry, account.epsilon_cap_micro, account.delta_cap_pico)
    return entry


def composed(debits: Iterable[Entry], delta_pico: int, compose: Compose = compose_epsilon_micro) -> int:
    """Return the micro-epsilons that debits spend together at a delta.

    Two bounds hold at once and the smaller is taken: the accountant's, over the mechanism events, and the sum
    of the budgets where their deltas fit. The second matters for a single study: the accountant's rounding
    would otherwise put a study of epsilon 1 a little above a cap of 1.
    """
    entries = list(debits)
    if not entries:
        return 0
    try:
        by_events = compose([event for entry in entries for event in entry.events], delta_pico)
    except AccountingError:
        by_events = EPSILON_MICRO_MAX  # no finite epsilon describes them: more than any cap
    if sum(entry.delta_pico for entry in entries) <= delta_pico:
        return min(by_events, sum(entry.epsilon_micro for entry in entries))
    return by_events


def account_of(connection: sa.Connection, data_set: str) -> Account:
    """Return the account of a data set.

    Raises:
        UnknownAccountError: there is none.
    """
    account = _account_row(connection, data_set)
    if account is None:
        raise UnknownAccountError("there is no account of that data set; add it to the configuration")
    return account


def spent_micro(connection: sa.Connection, data_set: str) -> int:
    """Return what the account has spent, in micro-epsilons at its delta."""
    newest = (
        sa.select(ENTRIES.c.spent_after_micro)
        .where(ENTRIES.c.data_set == data_set)
        .order_by(ENTRIES.c.sequence.desc())
        .limit(1)
    )
    spent = connection.execute(newest).scalar_one_or_none()
    if spent is None:
        raise UnknownAccountError("there is no account of that data set; add it to the configuration")
    return int(spent)


def left_micro(connection: sa.Connection, data_set: str) -> int:
    """Return what the account may still spend, never below zero.

    Composition is not additive: a study may cost the account less than its own budget.
    """
    cap = account_of(connection, data_set).epsilon_cap_micro
    return max(0, cap - spent_micro(connection, data_set))


def debits_of(connection: sa.Connection, data_set: str) -> list[Entry]:
    """Return the account's debits, oldest first."""
    rows = connection.execute(
        ENTRIES.select()
        .where(ENTRIES.c.data_set == data_set, ENTRIES.c.kind == "debit")
        .order_by(ENTRIES.c.sequence)
    )
    return [entry_of(row) for row in rows]


def _account_row(connection: sa.Connection, data_set: str) -> Account | None:
    row = connection.execute(ACCOUNTS.select().where(ACCOUNTS.c.data_set == data_set)).one_or_none()
    return None if row is None else Account(**row._mapping)


def _append(
    connection: sa.Connection, account: Account, entry: Entry, epsilon_cap_micro: int, delta_cap_pico: int
) -> None:
    swapped = connection.execute(
        ACCOUNTS.update()
        .where(ACCOUNTS.c.data_set == account.data_set, ACCOUNTS.c.version == account.version)
        .values(
            version=entry.sequence,
            head_hash=entry.entry_hash,
            epsilon_cap_micro=epsilon_cap_micro,
            delta_cap_pico=delta_cap_pico,
        )
    )
    if swapped.rowcount != 1:
        raise LedgerConflictError("another transaction wrote this account; run the transaction again")
    connection.execute(ENTRIES.insert().values(**entry.row()))
