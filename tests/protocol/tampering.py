"""Every version of a message in which one leaf is changed."""

import copy
import json
from collections.abc import Iterator
from typing import Any

from tacit_protocol.messages.encoding import encode_json


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every leaf of a JSON document."""
    if isinstance(value, dict) and value:
        for name in value:
            yield from places(value[name], (*path, name))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from places(item, (*path, index))
    else:
        yield path


def changed(value: Any) -> Any:
    """Another value of the same kind, as near as an attacker would choose it."""
    if isinstance(value, bool) or value is None:
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * (1 + 2e-6) + 1e-12
    if isinstance(value, str):
        return value[:-1] + ("1" if value[-1:] != "1" else "2")
    return ["x"] if isinstance(value, list) else {"x": 1}


def tampered(payload: bytes) -> Iterator[tuple[str, bytes]]:
    """Every version of a payload in which one leaf is changed, by its place."""
    document = json.loads(payload)
    for path in places(document):
        copied = copy.deepcopy(document)
        parent = copied
        for step in path[:-1]:
            parent = parent[step]
        parent[path[-1]] = changed(parent[path[-1]])
        yield ".".join(map(str, path)), encode_json(copied)
