"""What ``check`` tells the steward beside whether all can be read: what is left, and whether bounds fit.

Whether values lie within the declared bounds is a fact of the data. It is for the steward's eyes on this
machine: bounds that are changed after a look at the data tell what was seen.
"""

from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from sqlalchemy.engine import make_url

from tacit_protocol.domain.columns import CategoricalColumn, Column, NumericColumn
from tacit_protocol.domain.encode import encode_categorical
from tacit_protocol.privacy.guarantee import EPSILON_UNITS
from tacit_services.agent.data.arrow_columns import numbers, text
from tacit_services.agent.data.source import Columns, Source
from tacit_services.agent.settings import AgentSettings
from tacit_services.ledger.accounts import left_micro
from tacit_services.ledger.errors import UnknownAccountError
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


def budget_report(settings: AgentSettings) -> dict[str, dict[str, Any]]:
    """Return each data set's cap and what is left of it, in epsilons; nothing is opened that is not there.

    ``left`` is None where the ledger cannot be read.
    """
    caps = {data_set.name: data_set.caps.epsilon_micro for data_set in settings.data_sets}
    if not _is_there(settings.database_url):
        return {name: {"cap": cap / EPSILON_UNITS, "left": cap / EPSILON_UNITS} for name, cap in caps.items()}
    engine = create_engine(settings.database_url)
    try:
        left = run_transaction(engine, lambda connection: _left(connection, caps), read_only=True)
    except (DatabaseError, sa.exc.SQLAlchemyError):
        left = dict.fromkeys(caps)
    finally:
        engine.dispose()
    return {
        name: {
            "cap": cap / EPSILON_UNITS,
            "left": None if (micro := left[name]) is None else micro / EPSILON_UNITS,
        }
        for name, cap in caps.items()
    }


def _left(connection: sa.Connection, caps: dict[str, int]) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for name, cap in caps.items():
        try:
            found[name] = left_micro(connection, name)
        except UnknownAccountError:
            found[name] = cap  # it is opened when the agent starts
    return found


def _is_there(url: str) -> bool:
    parsed = make_url(url)
    return parsed.get_backend_name() != "sqlite" or (
        bool(parsed.database) and Path(str(parsed.database)).exists()
    )
