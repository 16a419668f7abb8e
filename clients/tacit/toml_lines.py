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
        for number, statement in _statements(text):
            if statement.startswith("[["):
                table = _placed(_keys(statement.strip("[]")), tables)
                tables[table] = tables.get(table, -1) + 1
                table = (*table, tables[table])
            elif statement.startswith("["):
                table = _placed(_keys(statement.strip("[]")), tables)
            else:
                self._note((*table, *_keys(statement)), number)
                continue
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


def _placed(keys: Place, tables: dict[Place, int]) -> Place:
    """Insert the index of the newest table wherever a key names an array of tables, but the last key."""
    place: Place = ()
    for index, key in enumerate(keys):
        place = (*place, key)
        if place in tables and index < len(keys) - 1:
            place = (*place, tables[place])
    return place


def _keys(written: str) -> Place:
    """Read a dotted key, with or without quotes, as TOML reads it."""
    try:
        value: Any = tomllib.loads(f"{written} = 0")
    except tomllib.TOMLDecodeError:
        return (written,)
    keys = []
    while isinstance(value, dict):
        key, value = next(iter(value.items()))
        keys.append(key)
    return tuple(keys)


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the key, or the header in its brackets, of each statement."""
    pending, quote, depth = "", "", 0
    for number, line in enumerate(text.splitlines(), start=1):
        if not quote and depth == 0:
            pending, rest = _beginning(line)
            if pending:
                yield number, pending
        else:
            rest = line
        quote, depth = _state_after(rest, quote, depth)


def _beginning(line: str) -> tuple[str, str]:
    """Split a statement's first line into its key, or its header, and the value that is left to read."""
    bare = line.strip()
    if not bare or bare.startswith("#"):
        return "", ""
    if bare.startswith("["):
        end = 0
        quote = ""
        for end, letter in enumerate(bare):  # noqa: B007 (used after the loop)
            quote = _toggled(quote, letter)
            if letter == "#" and not quote:
                break
        else:
            end += 1
        return bare[:end].strip(), ""
    quote = ""
    for index, letter in enumerate(bare):
        quote = _toggled(quote, letter)
        if letter == "=" and not quote:
            return bare[:index].strip(), bare[index + 1 :]
    return "", ""


def _toggled(quote: str, letter: str) -> str:
    if letter not in "\"'":
        return quote
    return "" if quote == letter else quote or letter


def _state_after(text: str, quote: str, depth: int) -> tuple[str, int]:
    """Return the open quote and the depth of brackets after some text of a value."""
    index = 0
    while index < len(text):
        letter = text[index]
        if quote:
            if letter == "\\" and quote[0] == '"':
                index += 1
            elif text.startswith(quote, index):
                index += len(quote) - 1
                quote = ""
        elif letter == "#":
            break
        elif letter in "\"'":
            quote = letter * 3 if text.startswith(letter * 3, index) else letter
            index += len(quote) - 1
        elif letter in "[{":
            depth += 1
        elif letter in "]}":
            depth -= 1
        index += 1
    return (quote if len(quote) == 3 else ""), depth
