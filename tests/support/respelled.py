"""Other bytes that say the same study: what must never be answered beside its canonical ones."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from tacit_protocol.messages.encoding import encode_json


def _json(payload: bytes, **options: Any) -> bytes:
    fields = {"sort_keys": True, "separators": (",", ":"), "ensure_ascii": False} | options
    return json.dumps(json.loads(payload), **fields).encode()


def _changed(payload: bytes, **changes: Any) -> bytes:
    return encode_json(json.loads(payload) | changes)


def _without(payload: bytes, *names: str) -> bytes:
    return encode_json({name: value for name, value in json.loads(payload).items() if name not in names})


def _bound(payload: bytes, spelling: bytes) -> bytes:
    """Write a lower bound of zero in another way."""
    assert b'"lower":0.0' in payload
    return payload.replace(b'"lower":0.0', b'"lower":' + spelling)


def _reversed_keys(payload: bytes) -> bytes:
    fields = dict(reversed(json.loads(payload).items()))
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


RESPELLINGS: Mapping[str, Callable[[bytes], bytes]] = {
    "a space at its end": lambda p: p + b" ",
    "a line end before it": lambda p: b"\n" + p,
    "indented": lambda p: _json(p, indent=1),
    "spaces after commas": lambda p: _json(p, separators=(", ", ":")),
    "keys in another order": _reversed_keys,
    "a letter escaped": lambda p: p.replace(b'"title":"W', b'"title":"\\u0057'),
    "a slash escaped": lambda p: p.replace(b"tacit/study/1", b"tacit\\/study\\/1"),
    "accents escaped": lambda p: _json(p, ensure_ascii=True),
    "a title in form NFD": lambda p: _changed(p, title=json.loads(p)["title"].replace("\xe4", "a\u0308")),
    "no point in a number": lambda p: _bound(p, b"0"),
    "two decimals": lambda p: _bound(p, b"0.00"),
    "an exponent": lambda p: _bound(p, b"0e1"),
    "a negative zero": lambda p: _bound(p, b"-0.0"),
    "less than a number can be": lambda p: _bound(p, b"1e-9999"),
    "defaults left out": lambda p: _without(p, "unit_column", "alignment", "curator"),
    "the format left out": lambda p: _without(p, "format"),
}
"""Each takes the canonical bytes of a study with the title below and a numeric column from zero."""

TITLE = "What is the mean? \xe4"


def respellings(payload: bytes) -> dict[str, bytes]:
    """Return the other spellings of a study by what is different in them; each reads as the same study."""
    found = {name: respell(payload) for name, respell in RESPELLINGS.items()}
    assert all(other != payload for other in found.values()), "every spelling is another"
    return found
