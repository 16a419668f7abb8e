"""What a study would do with the owner's data, in words for a steward."""

from tacit_protocol.domain.columns import CategoricalColumn, Column
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.events import ApproximateEvent
from tacit_protocol.privacy.guarantee import DELTA_UNITS, EPSILON_UNITS, Guarantee

COLUMNS_LISTED_MAX = 30
"""Columns that are listed by name; of more, the number is given."""


def plain_words(study: Study, data_set: str, cost: Guarantee, numbers_released: int) -> str:
    """Return a few sentences: what is asked, what would leave, what it costs, what stays."""
    unit = (
        "One unit of privacy is one row."
        if study.unit_column is None
        else f"One unit of privacy is all rows that share a value of {study.unit_column}; they count as one."
    )
    others = len(study.owners) - 1
    sentences = [
        f"The study '{study.title}' ({study.procedure}) asks about {_columns(study)} of {data_set},",
        f"together with the data of {others} other owner{'s' if others > 1 else ''}."
        if others
        else "and of nobody else.",
        unit,
        f"What would leave: {_what_leaves(numbers_released, cost)}, and the number of units.",
        f"The curator {study.curator.name} computes it from all owners' rows together."
        if study.curator is not None
        else "",
        "No row, no value and no exact figure leaves.",
        f"It spends epsilon {cost.budget.epsilon_micro / EPSILON_UNITS:g} and delta "
        f"{cost.budget.delta_pico / DELTA_UNITS:g} of the data set's budget, once, and this cannot be "
        "taken back.",
        "A person who is in several owners' data is protected by the sum of what they spend.",
    ]
    return " ".join(sentence for sentence in sentences if sentence)


def _what_leaves(numbers_released: int, cost: Guarantee) -> str:
    # A decision counts as one number; it has no noise of its own, only a guarantee.
    if numbers_released == 1 and all(isinstance(event, ApproximateEvent) for event in cost.events):
        return "one decision, yes or no, drawn with random noise"
    return f"{numbers_released} numbers, each with random noise"


def _columns(study: Study) -> str:
    columns = study.domain.columns
    if len(columns) > COLUMNS_LISTED_MAX:
        return f"{len(columns)} columns"
    return ", ".join(_column(column) for column in columns)


def _column(column: Column) -> str:
    if isinstance(column, CategoricalColumn):
        return f"{column.name} ({len(column.levels)} levels)"
    return f"{column.name} ({column.lower:g} to {column.upper:g})"
