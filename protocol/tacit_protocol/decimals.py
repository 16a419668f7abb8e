"""Numbers that people write, in a form or a command: decimal digits of ASCII, read in one way everywhere."""

import math
import re

LENGTH_MAX = 100
"""Longest number that is read."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


def read_number(text: str) -> float:
    """Read a finite number such as ``0.5``, ``-3`` or ``1e-5``; raises ValueError for all else."""
    text = text.strip(" \t")
    if len(text) > LENGTH_MAX or _NUMBER.fullmatch(text) is None or math.isinf(found := float(text)):
        raise ValueError("write a number, such as 0.5, with a point")
    return found


def read_whole(text: str) -> int:
    """Read a whole number of at most 18 digits; raises ValueError for all else."""
    text = text.strip(" \t")
    if _WHOLE.fullmatch(text) is None:
        raise ValueError("write a whole number")
    return int(text)
