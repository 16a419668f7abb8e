"""Columns of a data set, with bounds from public knowledge: names and types are read, and no value."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tacit.configuration import toml_value
from tacit.public_knowledge import known_of, words_of
from tacit.schemas import ColumnSchema

CAUTION = (
    "Bounds and levels are public. Take them from what can be: a coding manual, an instrument's range, "
    "common knowledge. NEVER look at the data for them: the largest value in your table is one person's "
    "value, and a bound that follows it tells it to everyone."
)

_IDENTIFIERS = {
    *(
        "id",
        "uuid",
        "guid",
        "mrn",
        "ssn",
        "nhs_number",
        "name",
        "first_name",
        "last_name",
        "surname",
        "email",
    ),
    *("phone", "address", "index", "row", "row_number", "insurance_number", "passport"),
}


@dataclass(frozen=True)
class DescribedColumn:
    """A column and what is proposed for it.

    Attributes:
        name: as the data set has it.
        type: its type in words, or "unknown", as in CSV.
        fields: of a column in ``agent.toml``; blanks, "" and [], are where a person has to write something.
            None where the column had better be left out.
        complete: whether nothing is blank.
        why: where the proposal comes from, or what to write.
    """

    name: str
    type: str
    fields: Mapping[str, object] | None
    complete: bool
    why: str


def described(columns: Sequence[ColumnSchema]) -> list[DescribedColumn]:
    """Propose bounds and levels by names and types alone."""
    return [_described(column) for column in columns]


def _described(column: ColumnSchema) -> DescribedColumn:
    words = words_of(column.name)
    if words in _IDENTIFIERS or words.endswith("_id"):
        return _left_out(column, "looks like an identifier: leave it out; it may be the unit_column")
    if column.type == "other":
        return _left_out(column, "its type cannot be read as numbers or categories: leave it out")
    known = known_of(column.name)
    # Levels that many files use in words say nothing of files that use numbers for them.
    if known is not None and (known.bounds is not None or column.type in {"text", "unknown"}):
        proposed = known.column(column.name).model_dump(mode="json", exclude_none=True)
        return DescribedColumn(column.name, column.type, proposed, True, known.quantity)
    if column.type == "yes or no":
        levels = {"kind": "categorical", "name": column.name, "levels": ["false", "true"]}
        return DescribedColumn(column.name, column.type, levels, True, "its type has these two values alone")
    return _blank(column, is_coded=known is not None)


def _left_out(column: ColumnSchema, why: str) -> DescribedColumn:
    return DescribedColumn(column.name, column.type, None, True, why)


def _blank(column: ColumnSchema, is_coded: bool) -> DescribedColumn:
    """Leave to a person what is not known; an agent refuses it as it is."""
    name, fields = {"name": column.name}, dict[str, object]()
    if is_coded or column.type == "text":
        fields, what = {"kind": "categorical", **name, "levels": []}, "the levels of your coding manual"
    elif column.type == "number":
        fields = {"kind": "numeric", **name, "lower": "", "upper": ""}
        what = "the smallest and the largest value that there can be"
    else:
        fields = {"kind": "", **name}
        what = 'kind = "numeric" with lower and upper, or kind = "categorical" with levels'
    return DescribedColumn(column.name, column.type, fields, False, f"FILL IN: {what}")


def snippet(columns: Sequence[DescribedColumn], source: str, read: str) -> str:
    """Write the columns as they stand under ``[[data_sets]]`` of an ``agent.toml``, with comments."""
    open_ = sum(not column.complete for column in columns)
    lines = [
        f"# Proposed by `tacit data describe` from {read} of {_comment(source)}; no value was read.",
        *(f"# {line}" for line in textwrap.wrap(CAUTION, 100)),
        "# For agent.toml, below the [[data_sets]] it describes. Check every line: names may mislead.",
        *([f"# {open_} to FILL IN: the agent does not start before that is done."] if open_ else []),
        "columns = [",
    ]
    for column in columns:
        if column.fields is None:
            lines.append(f"    # {_comment(column.name)}: {column.why}")
        else:
            fields = ", ".join(f"{name} = {_value(value)}" for name, value in column.fields.items())
            lines.append(f"    {{ {fields} }},  # {column.why}")
    return "\n".join([*lines, "]"]) + "\n"


def _value(value: object) -> str:
    return toml_value(int(value) if isinstance(value, float) and value.is_integer() else value)


def _comment(text: str) -> str:
    """Write text that cannot end a comment."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
