"""Where a key stands in a TOML file: the line that an error should name."""

import tomllib
from collections.abc import Iterator, Sequence
from typing import Any

Place = tuple[str | int, ...]
"""Keys, and indices of tables in an array of tables."""


class TomlLines:
    """The lines of a TOML text that tomllib can read.

    Keys in inline tables and in arrays have the line at which their whole value begins.
    """

    def __init__(self, text: str) -> None:
        self._lines: dict[Place, int] = {}
        table: Place = ()
        tables: dict[Place, int] = {}
        for number, statement, value in _statements(text):
            keys = _keys(value)
            if not statement.startswith("["):
                self._note((*table, *keys), number)
                continue
            table = ()
            for key in keys[:-1]:
                table = (*table, key)
                if table in tables:
                    table = (*table, tables[table])
            table = (*table, keys[-1])
            if statement.startswith("[["):
                tables[table] = tables.get(table, -1) + 1
                table = (*table, tables[table])
            self._note(table, number)

    def line_of(self, place: Sequence[str | int]) -> int | None:
        """Return the line of a place, from 1, or of the nearest one around it; None where there is none."""
        for length in range(len(place), 0, -1):
            if (found := self._lines.get(tuple(place[:length]))) is not None:
                return found
        return None

    def _note(self, place: Place, number: int) -> None:
        for length in range(1, len(place) + 1):
            self._lines.setdefault(place[:length], number)


def _keys(value: Any) -> Place:
    """Return the keys of a statement that was read alone."""
    keys: Place = ()
    while isinstance(value, dict) and value:
        key, value = next(iter(value.items()))
        keys = (*keys, key)
    return keys


def _statements(text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield each statement's first line, its text and its value: the fewest lines that are TOML alone."""
    begun, pending = 1, ""
    for number, line in enumerate(text.split("\n"), start=1):
        begun, pending = (begun, f"{pending}\n{line}") if pending else (number, line.lstrip())
        try:
            value = tomllib.loads(pending)
        except tomllib.TOMLDecodeError:
            continue
        if value:
            yield begun, pending, value
        pending = ""
