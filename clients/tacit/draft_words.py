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


def probabilities_of(text: str, cells: int) -> list[float]:
    """Read one probability for each cell, with commas; ``equal`` stands for equal ones.

    Raises:
        InputError: there are others than that many, or they do not add up to 1.
    """
    if text == "equal":
        return [1 / cells] * cells
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = []
    if len(found) != cells or not all(0 <= value <= 1 for value in found):
        raise InputError(f"write {cells} probabilities with commas between them, or equal")
    if abs(math.fsum(found) - 1) > 1e-6:
        raise InputError(f"they add up to {math.fsum(found):g}, and must add up to 1")
    return found


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
