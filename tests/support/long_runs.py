"""Whether tests take their longest forms: ``make audit`` sets TACIT_LONG=1.

The marker ``long`` is another matter: ``make test`` leaves those tests out, ``make test-all`` runs them in
their usual form.
"""

import os
from typing import TypeVar

Value = TypeVar("Value")

LONG = os.environ.get("TACIT_LONG") == "1"


def choose(usual: Value, long: Value) -> Value:
    """Return the amount for this run."""
    return long if LONG else usual
