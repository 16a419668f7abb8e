"""A study's draft from the command line's flags, or from a TOML file with flags on top."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit.draft import StudyDraft
from tacit.errors import InputError


def draft_from(
    file: Path | None,
    fields: Mapping[str, Any],
    columns: Sequence[str],
    owners: Sequence[str],
    parameters: Sequence[str],
) -> StudyDraft:
    """Build a draft from a file or from flags.

    Raises:
        InputError: both or neither are given, or a flag cannot be read.
    """
    given = {name: value for name, value in fields.items() if value is not None}
    if file is not None:
        if given or columns or owners or parameters:
            raise InputError("give a TOML file or flags, not both")
        return StudyDraft.from_toml(file)
    if not columns or not owners:
        raise InputError("give a TOML file, or at least --title, --column, --owner, --epsilon and --delta")
    return StudyDraft.from_dict(
        {
            **given,
            "columns": [parse_column(column) for column in columns],
            "owners": [parse_owner(owner) for owner in owners],
            "parameters": dict(parse_parameter(parameter) for parameter in parameters),
        }
    )


def parse_column(text: str) -> dict[str, Any]:
    """Read ``age:0:120`` (numeric, with bounds) or ``sex=F,M`` (categorical, with levels)."""
    name, equals, levels = text.partition("=")
    if equals and name and levels:
        return {"kind": "categorical", "name": name, "levels": levels.split(",")}
    try:
        name, lower, upper = text.rsplit(":", 2)
        return {"kind": "numeric", "name": name, "lower": float(lower), "upper": float(upper)}
    except ValueError:
        raise InputError(
            f"--column {text}: write name:lower:upper for numbers, or name=level,level for categories"
        ) from None


def parse_owner(text: str) -> dict[str, Any]:
    """Read ``cleveland/patients``, optionally with the number of units expected and the owner's key.

    All of it: ``cleveland/patients:303@KEY``.
    """
    place, at, key = text.partition("@")
    place, _, units = place.partition(":")
    name, slash, data_set = place.partition("/")
    if not slash or (units and not units.isdigit()) or (at and not key):
        raise InputError(f"--owner {text}: write owner/data-set, owner/data-set:units, or either with @key")
    found: dict[str, Any] = {"name": name, "data_set": data_set}
    return found | ({"units": int(units)} if units else {}) | ({"key": key} if key else {})


def parse_parameter(text: str) -> tuple[str, Any]:
    """Read ``name=value``; the value is JSON, or text where it is not JSON."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InputError(f"--parameter {text}: write name=value")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value
