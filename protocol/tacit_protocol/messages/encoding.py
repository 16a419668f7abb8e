"""Bytes to message and back: one encoding for each message, and JSON with only one reading.

Python's and pydantic's JSON readers let through what other readers take differently: duplicate keys, NaN,
numbers beyond their type, nesting that exhausts the stack, NUL characters. :func:`decode` refuses all of
these first.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from itertools import islice
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

MESSAGE_BYTES_MAX = 2**20
"""Largest message. The largest release (36 000 numbers of up to 19 digits) takes 720 kB, 960 kB sealed."""

DEPTH_MAX = 32
"""Deepest nesting. A study's deepest value lies 6 levels down; readers' stacks give out near 1000."""

VALUES_MAX = 3 * 2**14
"""Most values of one message. A release has 36 000 numbers, and so has the largest vector of a study. Each
takes a reader thirty bytes, and again as many for each error that quotes what holds it."""

KEYS_MAX = 2**15
"""Most keys of one message: each takes a reader a hundred bytes and more. A study of 1000 columns and 1000
owners has 9000, a verdict on them 20 000."""

OBJECT_KEYS_MAX = 2**11
"""Most keys of one object. Each that the format does not have takes a kilobyte to report; a release, a
verdict and a transcript may have one for each of 1000 owners."""

CONTAINERS_MAX = 2**13
"""Most arrays and objects of one message: each takes a reader half a kilobyte. A study of 1000 categorical
columns and 1000 owners has 3000, a verdict on them 4000."""

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
"""Integers are 64-bit, so that every reader holds them exactly."""

DIGITS_SURE, DIGITS_MAX = 18, len(str(INTEGER_MIN))
"""An integer written with so few characters fits in 64 bits; one with more than the most does not."""

Model = TypeVar("Model", bound=BaseModel)

# Possessive, and with the closing quote optional: one pass whatever the bytes are.
_STRINGS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)

# An escaped NUL: the backslash before the "u" is not itself escaped.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")

_FAULTS: Mapping[str, str] = {
    "missing": "a required field is missing",
    "extra_forbidden": "there is a field that this format does not have",
    "union_tag_invalid": "the kind is not one that this format knows",
    "union_tag_not_found": "the kind is missing",
    "literal_error": "the value is not one of those allowed here",
    "string_pattern_mismatch": "the text does not have the form asked for",
    "string_too_long": "the text is too long",
    "string_too_short": "the text is too short",
    "too_long": "there are too many items",
    "too_short": "there are too few items",
    "finite_number": "the number must be finite",
    "json_invalid": "this is not valid JSON",
}


class MessageError(ValueError):
    """The bytes are not a message of the format expected.

    ``reason`` is constant text and ``path`` is a JSON path made of declared names; neither holds anything
    that was submitted.
    """

    def __init__(self, reason: str, path: str = "$") -> None:
        super().__init__(f"{reason} (at {path})")
        self.reason = reason
        self.path = path


class MessageTooLargeError(MessageError):
    """The bytes exceed the size that is allowed for this message."""


def encode(model: BaseModel) -> bytes:
    """Encode a message: UTF-8 JSON, keys sorted, no spaces, every field present.

    Raises:
        MessageError: a value cannot be written in JSON (NaN, infinity, an unpaired surrogate).
    """
    # Not mode="json", which writes NaN as null.
    return encode_json(model.model_dump(mode="python"))


def digest(payload: bytes) -> str:
    """SHA-256 of the exact bytes, as 64 lower-case hexadecimal digits."""
    return hashlib.sha256(payload).hexdigest()


def encode_json(value: Any) -> bytes:
    """Encode plain JSON data as :func:`encode` does."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        return text.encode("utf-8")
    except (ValueError, TypeError) as error:
        raise MessageError("a value cannot be written as JSON") from error


def decode(model: type[Model], data: bytes, *, size_bytes_max: int = MESSAGE_BYTES_MAX) -> Model:
    """Read a message strictly.

    Raises:
        MessageTooLargeError: there are more than ``size_bytes_max`` bytes.
        MessageError: the bytes are not JSON with one reading, or do not fit the model.
    """
    if len(data) > size_bytes_max:
        raise MessageTooLargeError("the message is too large")
    _require_keys(model, _refuse_ambiguous_json(data))
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        # Without its input: a constant reason and a path of declared names.
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        kind, reason = first["type"], _FAULTS.get(first["type"], f"the value is not valid ({first['type']})")
        if kind == "value_error":
            reason = first["msg"].removeprefix("Value error, ")
        raise MessageError(reason, json_path(model, first["loc"])) from None


def json_path(model: type[BaseModel], location: tuple[int | str, ...]) -> str:
    """Write a location as a JSON path; what no model declares, such as a dictionary's key, becomes ``*``."""
    declared = _declared_names(model)
    steps = (
        f"[{part}]" if isinstance(part, int) else f".{part}" if part in declared else ".*"
        for part in location
    )
    return "$" + "".join(steps)


@cache
def _declared_names(model: type[BaseModel]) -> frozenset[str]:
    names: set[str] = set()
    schema = model.model_json_schema()
    for definition in (schema, *schema.get("$defs", {}).values()):
        names.update(definition.get("properties", {}))
    return frozenset(names)


def _require_keys(model: type[BaseModel], keys: frozenset[str]) -> None:
    """Refuse an object that lacks a field: pydantic keeps a copy of the whole for each that it misses."""
    for name, field in model.model_fields.items():
        if field.is_required() and name not in keys:
            raise MessageError("a required field is missing", f"$.{name}")


def _refuse_ambiguous_json(data: bytes) -> frozenset[str]:
    """Return the keys of the outermost object; raises MessageError."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise MessageError("the message is not UTF-8") from None
    _refuse_too_many(_without_strings(data))
    # The plain search first: it takes microseconds, the pattern tens of them a kilobyte.
    if b"\\u0000" in data and _NUL.search(data):
        raise MessageError("text may not hold the NUL character, which databases cannot keep")
    keys: frozenset[str] = frozenset()

    def look_at(pairs: list[tuple[str, Any]]) -> None:
        nonlocal keys
        if len(pairs) > OBJECT_KEYS_MAX:
            raise MessageError("an object has too many keys")
        keys = frozenset(key for key, _ in pairs)  # the outermost object ends last
        if len(keys) != len(pairs):
            raise MessageError("an object has the same key twice")

    try:
        json.loads(
            text,
            object_pairs_hook=look_at,
            parse_constant=_refuse_constant,
            parse_float=_finite_float,
            parse_int=_bounded_integer,
        )
    except json.JSONDecodeError:
        raise MessageError("this is not valid JSON") from None
    return keys


def _without_strings(data: bytes) -> bytes:
    """Return JSON without its strings. Not re.sub, which holds every piece between them at once."""
    bare, end = bytearray(), 0
    for string in _STRINGS.finditer(data):
        bare += data[end : string.start()]
        end = string.end()
    return bytes(bare + data[end:])


def _refuse_too_many(bare: bytes) -> None:
    """Refuse what a reader would need much memory for, by the JSON without its strings."""
    if _depth(bare) > DEPTH_MAX:
        raise MessageError("the message is nested too deeply")
    too_many = (
        bare.count(b",") >= VALUES_MAX
        or bare.count(b":") > KEYS_MAX
        or bare.count(b"[") + bare.count(b"{") > CONTAINERS_MAX
    )
    if too_many:
        raise MessageError("the message holds too many values")


def _depth(bare: bytes) -> int:
    """Return how deep JSON without its strings is nested, or a depth beyond the deepest allowed."""
    deepest = depth = 0
    for bracket in islice(re.finditer(rb"[\[\]{}]", bare), 2 * CONTAINERS_MAX + 1):
        depth += 1 if bracket[0] in b"[{" else -1
        deepest = max(deepest, depth)
        if deepest > DEPTH_MAX:
            break
    return deepest


def _refuse_constant(_: str) -> None:
    raise MessageError("numbers must be finite")


def _finite_float(digits: str) -> None:
    if float(digits) in (float("inf"), float("-inf")):
        raise MessageError("numbers must be finite")


def _bounded_integer(digits: str) -> None:
    # The length is looked at first: most are short, and Python itself refuses to convert thousands of digits.
    if len(digits) <= DIGITS_SURE:
        return
    if len(digits) > DIGITS_MAX or not INTEGER_MIN <= int(digits) <= INTEGER_MAX:
        raise MessageError("an integer does not fit in 64 bits")
