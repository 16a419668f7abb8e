"""What ``check`` tells the steward beside whether all can be read: what is left, and whether bounds fit.

Whether values lie within the declared bounds is a fact of the data. It is for the steward's eyes on this
machine: bounds that are changed after a look at the data tell what was seen.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from tacit_protocol.domain.columns import CategoricalColumn, Column, NumericColumn
from tacit_protocol.domain.encode import encode_categorical
from tacit_protocol.privacy.shares import Cap, Family
from tacit_services.agent.data.arrow_columns import numbers, text
from tacit_services.agent.data.source import Columns, Source
from tacit_services.agent.settings import AgentSettings, DataSetSettings
from tacit_services.ledger.accounts import (
    Account,
    Standing,
    account_of,
    changed_account,
    new_account,
    standing,
)
from tacit_services.ledger.errors import DivisionRefusedError, UnknownAccountError
from tacit_services.shared.database import DatabaseError, create_engine, run_transaction

BATCH_ROWS = 65_536
"""Rows that are read at a time."""

FEW = 0.01
"""Share of values beyond the bounds up to which clipping does little."""

CAUTION = (
    "for your eyes alone, on this machine; do not change bounds or levels because of it: "
    "those that follow the data leak it"
)


def bounds_report(source: Source, columns: tuple[Column, ...]) -> dict[str, str]:
    """Say in words, for each declared column, whether its values lie within what is declared.

    No count is told: a word for none, for few and for many is enough to find a unit that was mistaken.

    Raises:
        DataError: the rows cannot be read.
    """
    if not columns:
        return {}
    asked = Columns(
        tuple(column.name for column in columns if isinstance(column, NumericColumn)),
        tuple(column.name for column in columns if isinstance(column, CategoricalColumn)),
    )
    beyond, present = dict.fromkeys(asked.names, 0), dict.fromkeys(asked.names, 0)
    for batch in source.batches(asked, BATCH_ROWS):
        for column in columns:
            outside, there = _outside(column, batch.column(column.name))
            beyond[column.name] += outside
            present[column.name] += there
    return {name: _words(beyond[name], present[name]) for name in asked.names}


def _outside(column: Column, values: Any) -> tuple[int, int]:
    """Return how many values lie beyond what is declared, and how many there are."""
    if isinstance(column, NumericColumn):
        found = numbers(column.name, values)
        there = np.isfinite(found)
        return int(((found < column.lower) | (found > column.upper))[there].sum()), int(there.sum())
    codes = encode_categorical(column, text(values))
    other, missing = len(column.levels), len(column.levels) + 1
    return int((codes == other).sum()), int((codes != missing).sum())


def _words(beyond: int, present: int) -> str:
    if not present:
        return "no value can be read"
    if not beyond:
        return "all values lie within"
    return "a few values lie beyond" if beyond <= FEW * present else "many values lie beyond"


@dataclass(frozen=True)
class BudgetReport:
    """What a data set's account may spend once the agent starts with this configuration.

    ``standing`` is None where the ledger cannot be read; ``error`` says what is wrong with the configuration.
    """

    standing: Standing | None
    error: str | None = None


def budget_report(settings: AgentSettings, families: frozenset[Family]) -> dict[str, BudgetReport]:
    """Return what each data set's account may spend; nothing is opened that is not there, nothing written.

    ``families`` are the kinds of mechanism events that the policy's studies may cost.
    """
    if not _is_there(settings.database_url):
        return {item.name: _report_of(None, item, families) for item in settings.data_sets}
    engine = create_engine(settings.database_url)
    try:
        accounts = run_transaction(
            engine,
            lambda connection: {item.name: _account(connection, item.name) for item in settings.data_sets},
            read_only=True,
        )
    except (DatabaseError, sa.exc.SQLAlchemyError):
        return {item.name: BudgetReport(None) for item in settings.data_sets}
    finally:
        engine.dispose()
    return {item.name: _report_of(accounts[item.name], item, families) for item in settings.data_sets}


def _account(connection: sa.Connection, name: str) -> Account | None:
    try:
        return account_of(connection, name)
    except UnknownAccountError:
        return None  # it is opened when the agent starts


def _report_of(account: Account | None, item: DataSetSettings, families: frozenset[Family]) -> BudgetReport:
    cap, division = Cap.of(item.caps), item.division(families)
    if account is None:
        account = new_account(item.name, cap, division)
    try:
        after = changed_account(account, cap, division)
    except DivisionRefusedError as error:
        return BudgetReport(standing(account), str(error))
    return BudgetReport(standing(after))


def _is_there(url: str) -> bool:
    parsed = make_url(url)
    return parsed.get_backend_name() != "sqlite" or (
        bool(parsed.database) and Path(str(parsed.database)).exists()
    )
