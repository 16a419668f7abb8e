"""Faults of a draft, each with its line, what is allowed there, and the nearest spelling."""

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from tacit_protocol.terminal import printable

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


FAULTS_SHOWN_MAX = 10
"""Faults that are told at once: after more, a draft is another kind of file."""

VALUE_LENGTH_MAX = 60
"""Characters of a wrong value that are repeated."""


PLAIN = (
    ("input should", "this must"),
    ("string should", "this text must"),
    ("tuple should", "this list must"),
    (" after validation", ""),
    ("valid array", "list"),
    ("an object", "a table"),
)
"""Words of the validator's, and ours."""

FORMS = {
    r"^[a-z0-9][a-z0-9._-]{0,62}$": "a name has small letters, digits, '.', '_' and '-', at most 63 of them",
    r"^[0-9a-f]{64}$": "this must be 64 hexadecimal digits, in small letters",
    r"^[0-9a-f]{32}$": "this must be 32 hexadecimal digits, in small letters",
    r"^[0-9a-f]{128}$": "this must be 128 hexadecimal digits, in small letters",
}
"""What the protocol's patterns mean."""


@dataclass(frozen=True)
class Fault:
    """One fault: where it is in the draft, and what to write instead."""

    place: Place
    words: str


def faults_of(model: type[BaseModel], error: ValidationError, within: Place = ()) -> list[Fault]:
    """Describe every error of a model, in words for the person who wrote the values."""
    found = error.errors(include_url=False)
    # A list whose items are wrong is reported as too short as well.
    told_within = {place["loc"][:1] for place in found if len(place["loc"]) > 1}
    listed = [one for one in found if one["type"] != "too_short" or one["loc"][:1] not in told_within]
    # What is misspelt explains what is missing, and comes first.
    listed.sort(key=lambda one: one["type"] != "extra_forbidden")
    return [_fault(model, one, within) for one in listed]


def procedure_faults(named: str, parameters: Mapping[str, Any]) -> list[Fault]:
    """Find an unknown procedure, or parameters that it does not take."""
    from tacit_protocol.procedures.discovery import PROCEDURES  # noqa: PLC0415 (statistics load when needed)

    procedure = PROCEDURES.get(named)
    if procedure is None:
        return [Fault(("procedure",), f"there is no procedure {named!r}{_choices(named, PROCEDURES)}")]
    try:
        procedure.Parameters.model_validate_json(json.dumps(parameters, default=str))
    except ValidationError as error:
        return faults_of(procedure.Parameters, error, ("parameters",))
    return []


def told(faults: Sequence[Fault], source: str, lines: TomlLines | None = None) -> str:
    """Write faults for a person: one in a sentence, several one to a line."""
    words = [_told(fault, lines) for fault in faults[:FAULTS_SHOWN_MAX]]
    if len(faults) == 1:
        return f"{source}{', ' if words[0].startswith('line ') else ': '}{words[0]}"
    return "\n  ".join([f"{source} has {len(faults)} faults:", *words])


def nearest(word: str, known: Sequence[str]) -> str | None:
    """Return the known word that looks most like this one, or None."""
    found = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    return found[0] if found else None


def _told(fault: Fault, lines: TomlLines | None) -> str:
    line = None if lines is None else lines.line_of(fault.place)
    where = written(fault.place)
    return f"{'' if line is None else f'line {line}, '}{where}: {fault.words}"


def written(place: Place) -> str:
    """Write a place as TOML's reader thinks of it: ``columns[0].lower``."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return printable(text) or "the draft"


def _fault(model: type[BaseModel], error: Mapping[str, Any], within: Place) -> Fault:
    place = _without_tags(model, error["loc"])
    kind, context = error["type"], error.get("ctx") or {}
    given = printable(json.dumps(error["input"], default=str, ensure_ascii=False))
    given = given if len(given) <= VALUE_LENGTH_MAX else given[:VALUE_LENGTH_MAX] + "..."
    if kind == "extra_forbidden":
        known = sorted(_fields_at(model, error["loc"][:-1]))
        return Fault((*within, *place), f"there is no such key{_choices(str(place[-1]), known)}")
    if kind == "missing":
        return Fault((*within, *place), "this key is missing")
    if kind in {"literal_error", "union_tag_invalid"}:
        allowed = re.findall(r"'([^']*)'", str(context.get("expected", context.get("expected_tags", ""))))
        wrong = str(context.get("tag", error["input"]))
        tail = () if kind == "literal_error" else ("kind",)
        return Fault((*within, *place, *tail), f"{json.dumps(wrong)} is not known{_choices(wrong, allowed)}")
    if kind == "union_tag_not_found":
        return Fault((*within, *place), 'write kind = "numeric" or kind = "categorical"')
    words = FORMS.get(str(context.get("pattern"))) or error["msg"].removeprefix("Value error, ")
    words = words[0].lower() + words[1:]
    for theirs, plain in PLAIN:
        words = words.replace(theirs, plain)
    return Fault((*within, *place), words if kind == "value_error" else f"{words}, and not {given}")


def _choices(word: str, known: Any) -> str:
    names = list(known)
    near = nearest(word, names)
    meant = f"; did you mean {near}?" if near else ""
    listed = f" Known: {', '.join(names)}" if names else ""
    return f"{meant or '.'}{listed}"


def _fields_at(model: type[BaseModel], location: Sequence[str | int]) -> set[str]:
    """Return the names of the fields that may stand at a location of a model."""
    names: set[str] = set()
    for found in _models_at(model, tuple(location)):
        names |= set(found.model_fields)
    return names


def _models_at(model: type[BaseModel], location: tuple[str | int, ...]) -> Iterator[type[BaseModel]]:
    if not location:
        yield model
        return
    field = model.model_fields.get(str(location[0]))
    if field is None:
        return
    rest = tuple(part for part in location[1:] if not isinstance(part, int))
    for inner in _models_in(field.annotation):
        tag = _tag(inner)
        if rest and tag is not None and rest[0] in _tags_in(field.annotation):
            if rest[0] == tag:
                yield from _models_at(inner, rest[1:])
            continue
        yield from _models_at(inner, rest)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)


def _tag(model: type[BaseModel]) -> str | None:
    kind = model.model_fields.get("kind")
    return None if kind is None else str(kind.default)


def _tags_in(annotation: Any) -> set[str]:
    return {tag for model in _models_in(annotation) if (tag := _tag(model)) is not None}


def _without_tags(model: type[BaseModel], location: Sequence[str | int]) -> Place:
    """Leave out what pydantic adds to a location: which member of a union it tried."""
    kept: list[str | int] = []
    annotation = (
        None if not location else getattr(model.model_fields.get(str(location[0])), "annotation", None)
    )
    tags = _tags_in(annotation) if annotation is not None else set()
    for index, part in enumerate(location):
        if index and isinstance(part, str) and part in tags:
            continue
        if (
            index
            and isinstance(part, str)
            and re.search(r"[\[\](),]|^(constrained|function|float|int|str|bool|none)\b", part)
        ):
            continue
        kept.append(part)
    return tuple(kept)
