"""Accounts and debits: a privacy filter, whose cap holds for studies chosen after earlier releases were seen.

An account's cap is divided in advance into shares (tacit_protocol/privacy/accounting.py), and what was
spent of each is a sum of integers. A debit adds the study's charges, compares, and writes only if the
account's version is still the one it read (``UPDATE ... WHERE version = :seen``): reading a sum and then
inserting an entry would overspend on every engine below serializable isolation.

A study that is approved now and debited later, as it waits for another owner, has its cost *reserved*: nobody
else may take it, and its own debit takes it up. A reservation spends nothing and is given back.

All functions work inside a transaction that the caller opened, so that a debit, its noise and its release
stand or fall together.

The shares are fixed by the first debit. Until then any division may be set, and the first study itself, which
was chosen before anything was released, may be given room beyond the division that stands. Afterwards shares
may shrink; they grow only where the cap covers the high-water marks of all of them, which is what the account
has promised. The theorem is in docs/mathematics/privacy.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from typing import Literal

import sqlalchemy as sa

from tacit_protocol.messages.answers import BudgetBalance
from tacit_protocol.privacy.accounting import (
    APPROXIMATE_UNITS,
    EVERYTHING_MAY_RUN,
    PURE_UNITS,
    Amounts,
    Cap,
    Division,
    charge,
    gaussian_epsilon_micro,
)
from tacit_protocol.privacy.guarantee import DELTA_UNITS, EPSILON_MAX, EPSILON_UNITS, Guarantee
from tacit_services.ledger.entries import (
    ACCOUNTS,
    AMOUNTS,
    ENTRIES,
    FIRST_HASH,
    KINDS,
    RESERVATIONS,
    LedgerEntry,
    entry_of,
)


class LedgerError(Exception):
    """A ledger could not do what was asked; nothing was written."""


class UnknownAccountError(LedgerError):
    """There is no account of that data set: open it first."""


class BudgetExceededError(LedgerError):
    """The debit would pass the shares of the account's cap: ask for less, or raise the cap."""


class DivisionRefusedError(LedgerError):
    """Shares promised before and those asked for would pass the account's cap: write what the text says."""


class AlreadyDebitedError(LedgerError):
    """The study has been debited to this account before: use the stored release."""


class LedgerConflictError(LedgerError):
    """Another transaction wrote to the account since it was read: run the transaction again."""


class LedgerDamagedError(LedgerError):
    """The stored entries contradict each other, or the account: stop, and restore or investigate."""


MICRO = PURE_UNITS // EPSILON_UNITS
"""Units of the pure share in a micro-epsilon."""

PICO = APPROXIMATE_UNITS // DELTA_UNITS
"""Units of the approximate share in a pico-delta."""


NOTHING = Amounts()


@dataclass(frozen=True)
class Account:
    """What an account may spend, has spent and has promised of each share, and how many entries it has.

    ``promised`` holds the high-water marks of the shares since the first debit; all are 0 before it.
    ``reserved`` is what approved studies will take.
    """

    data_set: str
    cap: Cap
    division: str
    share: Amounts
    spent: Amounts
    promised: Amounts
    debits: int
    version: int
    head_hash: str
    reserved: Amounts = NOTHING

    @property
    def taken(self) -> Amounts:
        """What nobody else may take: spent, or reserved."""
        return self.spent + self.reserved

    def row(self) -> dict[str, object]:
        """Return the account as a row of the table."""
        amounts = {
            name.format(kind): value
            for kind in KINDS
            for name, value in zip(AMOUNTS, getattr(self, kind).all, strict=True)
        }
        return {
            "data_set": self.data_set,
            "epsilon_cap_micro": self.cap.epsilon_micro,
            "delta_cap_pico": self.cap.delta_pico,
            "division": self.division,
            "debits": self.debits,
            "version": self.version,
            "head_hash": self.head_hash,
            **amounts,
        }


Payer = Literal["pure", "gaussian", "both"]
"""The shares that pay for a study's epsilon."""


def set_caps(
    connection: sa.Connection,
    data_set: str,
    epsilon_cap_micro: int,
    delta_cap_pico: int,
    *,
    at: int,
    division: Division = EVERYTHING_MAY_RUN,
) -> Account:
    """Open the account, or change its caps and their division to these; a change is an entry like any other.

    A cap may be set below what is spent: then nothing is left until it is raised.

    Raises:
        DivisionRefusedError: an owner's stated division would give more to a share than the cap covers beside
            what was promised since the first debit.
        LedgerConflictError: another transaction wrote the account meanwhile; run the transaction again.
    """
    account, cap = _account_row(connection, data_set), Cap(epsilon_cap_micro, delta_cap_pico)
    if account is None:
        changed = new_account(data_set, cap, division)
        connection.execute(ACCOUNTS.insert().values(**changed.row()))
    else:
        changed = changed_account(account, cap, division)
    return account if account == changed else _change(connection, changed, at)


def new_account(data_set: str, cap: Cap, division: Division) -> Account:
    """Return an account to which nothing was debited, before its first entry."""
    nothing = Amounts()
    return Account(
        data_set, cap, division.stated, division.shares_of(cap), nothing, nothing, 0, 0, FIRST_HASH
    )


def changed_account(account: Account, cap: Cap, division: Division) -> Account:
    """Return what an account becomes by a change of caps or division, the same where nothing changes.

    Raises:
        DivisionRefusedError: as set_caps does.
    """
    if account.debits and (account.cap, account.division) == (cap, division.stated):
        return account
    share = _new_share(account, cap, division)
    return replace(account, cap=cap, division=division.stated, share=share)


def _new_share(account: Account, cap: Cap, division: Division) -> Amounts:
    """Return the shares of a changed cap, beside what was promised."""
    wanted = division.shares_of(cap)
    if not account.debits:
        return cap.shares_holding(wanted, account.reserved) or wanted
    if division.stated:
        if cap.covers(wanted.joined(account.promised)):
            return wanted
        if not wanted.within(account.promised):
            raise DivisionRefusedError(_refusal(account, division))
    else:
        held = cap.shares_holding(wanted, account.promised)
        if held is not None:
            return held
    # Less than was promised: what was spent, whatever its share, counts against the new cap.
    lowered = cap.shares_holding(wanted, account.spent) or account.spent
    return lowered.met(account.promised)


def _refusal(account: Account, division: Division) -> str:
    """Say what to write instead of a division that is refused."""
    words = (
        f"data set {account.data_set}: after a debit, shares move only where epsilon and delta cover what "
        "was promised to every share before; leave pure_share and approximate_share out to keep what stands"
    )

    def covers(hundredths: int) -> bool:
        cap = Cap(hundredths * (EPSILON_UNITS // 100), account.cap.delta_pico)
        return cap.covers(division.shares_of(cap).joined(account.promised))

    low, high = 0, EPSILON_MAX * 100
    if not covers(high):
        return words
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if covers(middle) else (middle, high)
    return f"{words}, or write epsilon = {high / 100:g} or more with this delta"


def debit(
    connection: sa.Connection,
    data_set: str,
    study: str,
    guarantee: Guarantee,
    *,
    at: int,
    approved_by: Sequence[str] = (),
) -> LedgerEntry:
    """Debit a study's guarantee to a data set's account; ``study`` is the digest, ``at`` Unix seconds.

    ``approved_by`` are the people who approved the study; none where the policy alone did.

    Raises:
        UnknownAccountError: there is no such account.
        AlreadyDebitedError: the study has been debited to it before.
        BudgetExceededError: the study would take more of a share than is left.
        LedgerConflictError: another transaction wrote the account meanwhile; run the transaction again.
    """
    own = (RESERVATIONS.c.data_set == data_set, RESERVATIONS.c.study == study)
    connection.execute(RESERVATIONS.delete().where(*own))
    account = account_of(connection, data_set)
    debited = sa.select(ENTRIES.c.sequence).where(ENTRIES.c.data_set == data_set, ENTRIES.c.study == study)
    if connection.execute(debited).first() is not None:
        raise AlreadyDebitedError("this study has been debited to this data set already")
    placed = _place(account, guarantee)
    if placed is None:
        raise BudgetExceededError(
            "the study would pass what is left of the data set's cap; nothing was spent"
        )
    share, charged = placed
    if share != account.share:
        account = _change(connection, replace(account, share=share), at)
    entry = LedgerEntry(
        data_set=data_set,
        sequence=account.version + 1,
        kind="debit",
        study=study,
        events=guarantee.events,
        epsilon_micro=guarantee.budget.epsilon_micro,
        delta_pico=guarantee.budget.delta_pico,
        at=at,
        previous_hash=account.head_hash,
        amounts=charged,
        approved_by=tuple(approved_by),
    )
    promised = account.promised if account.debits else account.share
    spent = account.spent + charged
    _append(connection, replace(account, spent=spent, promised=promised, debits=account.debits + 1), entry)
    return entry


def reserve(connection: sa.Connection, data_set: str, study: str, guarantee: Guarantee, *, at: int) -> None:
    """Keep what a study will cost a data set's account until it is debited, or given back; once only.

    Where nothing has been debited yet, the shares make room as they do for a debit.

    Raises:
        UnknownAccountError: there is no such account.
        BudgetExceededError: the study would take more of a share than is left.
        LedgerConflictError: another transaction wrote the account meanwhile; run the transaction again.
    """
    own = (RESERVATIONS.c.data_set == data_set, RESERVATIONS.c.study == study)
    if connection.execute(RESERVATIONS.select().where(*own)).first() is not None:
        return
    account = account_of(connection, data_set)
    placed = _place(account, guarantee)
    if placed is None:
        raise BudgetExceededError(
            "the study would pass what is left of the data set's cap; nothing was reserved"
        )
    share, charged = placed
    if share != account.share:
        _change(connection, replace(account, share=share), at)
    row = {"data_set": data_set, "study": study, "at": at, **asdict(charged)}
    connection.execute(RESERVATIONS.insert().values(**row))


def give_back(connection: sa.Connection, studies: Sequence[str] | sa.Select[tuple[str]]) -> None:
    """Give back whatever is reserved for studies that have ended."""
    connection.execute(RESERVATIONS.delete().where(RESERVATIONS.c.study.in_(studies)))


def _place(account: Account, guarantee: Guarantee) -> tuple[Amounts, Amounts] | None:
    """Return the shares with which a study fits the account, and what it takes; None where it does not fit.

    Pure events are paid by the pure share, else by the Gaussian one. For the first study the shares make
    room, as far as the owner has not stated them.
    """
    charged = charge(guarantee.events)
    if (account.taken + charged).within(account.share):
        return account.share, charged
    if charged.pure_pico:
        converted = charge(guarantee.events, pure_as_gaussian=True)
        if (account.taken + converted).within(account.share):
            return account.share, converted
    needed = account.reserved + charged
    room = None if account.debits else account.cap.shares_holding(account.share, needed)
    if room is None or _moves_stated(account, room):
        return None
    return room, charged


def _moves_stated(account: Account, share: Amounts) -> bool:
    """Say whether shares differ from the account's in what its owner has stated."""
    pure_moves = share.pure_pico != account.share.pure_pico
    approximate_moves = share.approximate_atto != account.share.approximate_atto
    return (pure_moves and "pure" in account.division) or (
        approximate_moves and "approximate" in account.division
    )


def payer(charged: Amounts) -> Payer:
    """Return which shares pay for what a study takes."""
    if not charged.pure_pico:
        return "gaussian"
    return "both" if charged.gaussian_femto else "pure"


def part_of_cap(account: Account, amounts: Amounts) -> Fraction:
    """Return what part of an account's cap amounts take: all of every share is 1.

    A share counts by its part of the cap's epsilon, and within it what adds up there (epsilon, mu squared):
    the parts of studies add up while the shares stand. Delta counts where there is no other share.
    """
    share, cap = account.share, account.cap
    pure = Fraction(min(share.pure_pico, cap.pure_pico), cap.pure_pico) if cap.pure_pico else Fraction(0)
    if not share.gaussian_femto:
        pure = Fraction(bool(share.pure_pico))
    is_of_delta = not share.pure_pico and not share.gaussian_femto
    weights = (pure, Fraction(bool(share.gaussian_femto)) * (1 - pure), Fraction(is_of_delta))
    return sum(
        (
            weight * min(Fraction(own, whole), Fraction(1))
            for weight, own, whole in zip(weights, amounts.all, share.all, strict=True)
            if whole
        ),
        Fraction(0),
    )


def payment_words(account: Account, guarantee: Guarantee) -> str:
    """Say what part of the cap a study would take, and what is left of it."""
    placed = _place(account, guarantee)
    if placed is None:
        return "costs more than is left of the share that would pay for it, and would be refused"
    share, charged = placed
    if not charged.pure_pico and not charged.gaussian_femto:
        return "takes delta alone"
    takes = _percent_up(part_of_cap(replace(account, share=share), charged))
    return f"takes {takes} % of the cap, of which {standing(account).left_percent:g} % is left"


def paid_words(account: Account, debit: LedgerEntry) -> str:
    """Say what a study has taken of an account."""
    part = part_of_cap(account, debit.amounts)
    return f"spent epsilon {debit.epsilon_micro / EPSILON_UNITS:g}, {_percent_up(part)} % of the cap"


def _percent_up(part: Fraction) -> str:
    return f"{math.ceil(1000 * part) / 10:g}"


def account_of(connection: sa.Connection, data_set: str) -> Account:
    """Return the account of a data set. Raises UnknownAccountError: there is none."""
    account = _account_row(connection, data_set)
    if account is None:
        raise UnknownAccountError("there is no account of that data set; add it to the configuration")
    return account


def all_accounts(connection: sa.Connection) -> dict[str, Account]:
    """Return every account, by its data set."""
    reserved = _reserved(connection)
    return {
        row.data_set: account_in(row, reserved.get(row.data_set, NOTHING))
        for row in connection.execute(ACCOUNTS.select())
    }


def standing_of(connection: sa.Connection, data_set: str) -> BudgetBalance:
    """Return what an account has spent and has left; raises UnknownAccountError as account_of does."""
    return standing(account_of(connection, data_set))


def standing(account: Account) -> BudgetBalance:
    """Return what an account has spent and what it has left, rounded toward more spent and less left.

    What is reserved is not left, and not spent. ``promised_micro`` is the epsilon that everything ever
    released is private at, with the cap's delta; ``left_percent`` is of :func:`part_of_cap`.
    """
    cap, share, spent, taken = account.cap, account.share, account.spent, account.taken
    gaussian_delta = cap.delta_atto - share.approximate_atto
    nothing_shared = not any(share.all)
    left = Fraction(0) if nothing_shared else 1 - part_of_cap(account, taken)
    return BudgetBalance(
        left_percent=math.floor(1000 * left) / 10,
        epsilon_cap_micro=cap.epsilon_micro,
        delta_cap_pico=cap.delta_pico,
        pure_share_micro=share.pure_pico // MICRO,
        pure_spent_micro=-(-spent.pure_pico // MICRO),
        pure_left_micro=max(0, share.pure_pico - taken.pure_pico) // MICRO,
        gaussian_delta_pico=max(0, gaussian_delta) // PICO,
        gaussian_share_micro=gaussian_epsilon_micro(share.gaussian_femto, gaussian_delta),
        gaussian_spent_micro=gaussian_epsilon_micro(spent.gaussian_femto, gaussian_delta),
        gaussian_left_micro=_gaussian_left_micro(account, gaussian_delta),
        approximate_share_pico=share.approximate_atto // PICO,
        approximate_spent_pico=-(-spent.approximate_atto // PICO),
        approximate_left_pico=max(0, share.approximate_atto - taken.approximate_atto) // PICO,
        promised_micro=cap.epsilon_of(account.promised if account.debits else share),
    )


def _gaussian_left_micro(account: Account, delta_atto: int) -> int:
    left = account.share.gaussian_femto - account.taken.gaussian_femto
    least = gaussian_epsilon_micro(left, delta_atto) if left > 0 else 0
    if not least:
        return 0
    # The study that is calibrated to this epsilon may take a little more than is left: then one less.
    whole = account.cap.gaussian(account.cap.pure_pico - least * MICRO, account.share.approximate_atto)
    return least if whole <= left else least - 1


def debits_of(connection: sa.Connection, data_set: str) -> list[LedgerEntry]:
    """Return the account's debits, oldest first."""
    rows = connection.execute(
        ENTRIES.select()
        .where(ENTRIES.c.data_set == data_set, ENTRIES.c.kind == "debit")
        .order_by(ENTRIES.c.sequence)
    )
    return [entry_of(row) for row in rows]


def debits_of_study(connection: sa.Connection, study: str) -> list[LedgerEntry]:
    """Return what a study was debited, in the order of the accounts' names."""
    query = ENTRIES.select().where(ENTRIES.c.study == study, ENTRIES.c.kind == "debit")
    return [entry_of(row) for row in connection.execute(query.order_by(ENTRIES.c.data_set))]


def account_in(row: sa.Row[tuple[object, ...]], reserved: Amounts) -> Account:
    """Return the account that a row of the table holds, beside which so much is reserved."""
    found = row._mapping

    def amounts(kind: str) -> Amounts:
        return Amounts(*(int(found[name.format(kind)]) for name in AMOUNTS))

    return Account(
        data_set=row.data_set,
        cap=Cap(row.epsilon_cap_micro, row.delta_cap_pico),
        division=row.division,
        share=amounts("share"),
        spent=amounts("spent"),
        promised=amounts("promised"),
        debits=row.debits,
        version=row.version,
        head_hash=row.head_hash,
        reserved=reserved,
    )


def _reserved(connection: sa.Connection, *where: sa.ColumnElement[bool]) -> Mapping[str, Amounts]:
    """Return what is reserved, by data set."""
    table = RESERVATIONS.c
    amounts = (
        sa.func.sum(column) for column in (table.pure_pico, table.gaussian_femto, table.approximate_atto)
    )
    query = sa.select(table.data_set, *amounts).where(*where).group_by(table.data_set)
    return {row[0]: Amounts(*(int(amount) for amount in row[1:])) for row in connection.execute(query)}


def _account_row(connection: sa.Connection, data_set: str) -> Account | None:
    row = connection.execute(ACCOUNTS.select().where(ACCOUNTS.c.data_set == data_set)).one_or_none()
    if row is None:
        return None
    reserved = _reserved(connection, RESERVATIONS.c.data_set == data_set)
    return account_in(row, reserved.get(data_set, NOTHING))


def _change(connection: sa.Connection, account: Account, at: int) -> Account:
    """Append the entry of an account's new caps and shares; returns the account after it."""
    change = LedgerEntry(
        data_set=account.data_set,
        sequence=account.version + 1,
        kind="cap",
        study=None,
        events=(),
        epsilon_micro=account.cap.epsilon_micro,
        delta_pico=account.cap.delta_pico,
        at=at,
        previous_hash=account.head_hash,
        amounts=account.share,
    )
    if account.debits:
        account = replace(account, promised=account.promised.joined(account.share))
    return _append(connection, account, change)


def _append(connection: sa.Connection, account: Account, entry: LedgerEntry) -> Account:
    """Store the entry and what the account becomes by it, if nobody else has written the account."""
    after = replace(account, version=entry.sequence, head_hash=entry.entry_hash)
    swapped = connection.execute(
        ACCOUNTS.update()
        .where(ACCOUNTS.c.data_set == account.data_set, ACCOUNTS.c.version == account.version)
        .values(**after.row())
    )
    if swapped.rowcount != 1:
        raise LedgerConflictError("another transaction wrote this account; run the transaction again")
    connection.execute(ENTRIES.insert().values(**entry.row()))
    return after
