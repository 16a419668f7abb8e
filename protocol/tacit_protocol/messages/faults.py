"""Faults of values that people write, in words: where each is, what is allowed, the nearest spelling."""

import difflib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from tacit_protocol.names import folded
from tacit_protocol.terminal import printable

Place = tuple[str | int, ...]
"""Keys, and indices of tables in an array of tables."""

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
class DraftFault:
    """One fault: where it is in the draft, and what to write instead."""

    place: Place
    words: str


def faults_of(model: type[BaseModel], error: ValidationError, within: Place = ()) -> list[DraftFault]:
    """Describe every error of a model, in words for the person who wrote the values."""
    found = error.errors(include_url=False)
    # A list whose items are wrong is reported as too short as well.
    told_within = {place["loc"][:1] for place in found if len(place["loc"]) > 1}
    listed = [one for one in found if one["type"] != "too_short" or one["loc"][:1] not in told_within]
    # What is misspelt explains what is missing, and comes first.
    listed.sort(key=lambda one: one["type"] != "extra_forbidden")
    return [_fault(model, one, within) for one in listed]


def nearest(word: str, known: Sequence[str]) -> str | None:
    """Return the known word that looks most like this one, or None."""
    found = difflib.get_close_matches(folded(word), known, n=1, cutoff=0.6)
    return found[0] if found else None


def written(place: Place) -> str:
    """Write a place as TOML's reader thinks of it: ``columns[0].lower``."""
    text = ""
    for part in place:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return printable(text) or "the draft"


def _fault(model: type[BaseModel], error: Mapping[str, Any], within: Place) -> DraftFault:
    place = _without_tags(model, error["loc"])
    kind, context = error["type"], error.get("ctx") or {}
    given = printable(json.dumps(error["input"], default=str, ensure_ascii=False))
    given = given if len(given) <= VALUE_LENGTH_MAX else given[:VALUE_LENGTH_MAX] + "..."
    if kind == "extra_forbidden":
        models = _models_at(model, tuple(error["loc"][:-1]))
        fields = {name for found in models for name in found.model_fields}
        known = choices_words(str(place[-1]), sorted(fields))
        return DraftFault((*within, *place), f"there is no such key{known}")
    if kind == "missing":
        return DraftFault((*within, *place), "this key is missing")
    if kind in {"literal_error", "union_tag_invalid"}:
        allowed = re.findall(r"'([^']*)'", str(context.get("expected", context.get("expected_tags", ""))))
        wrong = str(context.get("tag", error["input"]))
        tail = () if kind == "literal_error" else ("kind",)
        return DraftFault(
            (*within, *place, *tail), f"{json.dumps(wrong)} is not known{choices_words(wrong, allowed)}"
        )
    if kind == "union_tag_not_found":
        return DraftFault((*within, *place), 'write kind = "numeric" or kind = "categorical"')
    words = FORMS.get(str(context.get("pattern"))) or error["msg"].removeprefix("Value error, ")
    words = words[0].lower() + words[1:]
    for theirs, plain in PLAIN:
        words = words.replace(theirs, plain)
    return DraftFault((*within, *place), words if kind == "value_error" else f"{words}, and not {given}")


def choices_words(word: str, known: Any) -> str:
    """Say what is known in the place of a word, the nearest first."""
    names = list(known)
    near = nearest(word, names)
    meant = f"; did you mean {near}?" if near else ""
    listed = f" Known: {', '.join(names)}" if names else ""
    return f"{meant or '.'}{listed}"


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
