"""Bounds, levels and probabilities as people type them."""

import math

from pydantic import ValidationError

from tacit.errors import InputError
from tacit_protocol.domain.columns import CategoricalColumn, Column, NumericColumn


def bounds_words(column: Column, form: str = "read") -> str:
    """Write a column's bounds or levels: to be read, or as :func:`parse_bounds` takes them ("typed")."""
    if isinstance(column, NumericColumn):
        return f"{column.lower:g}{' to ' if form == 'read' else ':'}{column.upper:g}"
    return ", ".join(column.levels)


def parse_bounds(name: str, text: str) -> Column:
    """Read ``0:120`` or ``0 to 120`` as bounds, and ``F, M`` as levels.

    Raises:
        InputError: it is neither.
    """
    try:
        low, colon, high = text.replace(" to ", ":").partition(":")
        if colon and _is_number(low) and _is_number(high):
            return NumericColumn(name=name, lower=float(low), upper=float(high))
        levels = tuple(level.strip() for level in text.split(",") if level.strip())
        if len(levels) < 2:
            raise InputError("write two bounds, such as 0:120, or at least two levels, such as F, M")
        return CategoricalColumn(name=name, levels=levels)
    except ValidationError as error:
        words = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise InputError(words) from None


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
