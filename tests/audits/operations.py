"""What a computation does, counted: calls of every function, and entries of the arrays that it is given."""

import gc
import sys
import threading
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import numpy as np

Operations = Counter[tuple[str, str]]
"""Of each function of Python its calls, and entries of all arrays handed to it, over all calls."""


OF_FRACTIONS = "fractions.py"
"""Python's exact fractions, which leave out a division where it would change nothing: nanoseconds each."""


def entries(value: Any) -> int:
    """Return how many entries arrays have, also those in tuples and lists."""
    if isinstance(value, np.ndarray):
        return value.size
    return sum(map(entries, value)) if isinstance(value, tuple | list) else 0


def handed(frame: FrameType) -> int:
    """Return how many entries the arguments of a call have."""
    code: CodeType = frame.f_code
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return sum(entries(frame.f_locals.get(name)) for name in names)


def operations(run: Callable[[], object]) -> Operations:
    """Count the calls of Python's and C's functions that a run makes, in all threads.

    Seconds would tell less: they vary from run to run, and counts do not. What garbage of earlier work calls
    when it is collected is not counted: nothing is collected meanwhile.
    """
    found: Operations = Counter()
    lock = threading.Lock()

    def count(frame: FrameType, event: str, argument: Any) -> None:
        if frame.f_code.co_filename.endswith(OF_FRACTIONS):
            return
        if event == "call":
            name = f"{frame.f_globals.get('__name__')}.{frame.f_code.co_qualname}"
            own = handed(frame) if name.startswith("tacit_protocol") else 0
            with lock:
                found[name, "calls"] += 1
                found[name, "entries"] += own
        elif event == "c_call":
            with lock:
                found[getattr(argument, "__qualname__", repr(type(argument))), "calls"] += 1

    before = sys.getprofile()
    gc.disable()
    threading.setprofile(count)
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
        gc.enable()
    return found


def apart(first: Operations, second: Operations) -> dict[tuple[str, str], tuple[int, int]]:
    """Return what one run does more often than another, and how often each."""
    return {key: (first[key], second[key]) for key in {*first, *second} if first[key] != second[key]}
