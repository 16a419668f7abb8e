"""Whether the long variants of tests run: ``make audit`` sets TACIT_LONG, ``make test`` does not."""

import os
from typing import TypeVar

Value = TypeVar("Value")

LONG = bool(os.environ.get("TACIT_LONG"))


def choose(usual: Value, long: Value) -> Value:
    """Return the amount for this run."""
    return long if LONG else usual
