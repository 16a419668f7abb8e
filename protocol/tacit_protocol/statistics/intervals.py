"""Estimates as results state them: within the range of what is estimated, and within their own intervals.

An unbiased estimate of a square is negative about half of the time where nothing is to be seen, while its
interval, which counts what the square can be, begins at 0. So results state the estimate cut to the range,
which is never further from the truth, and the unbiased one, whose averages over studies mean something, under
its own name. An interval that would leave the cut estimate out, as where variances that grow with the truth
make 0 less plausible than a little more, reaches to it: a longer interval covers no less.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Stated:
    """An estimate in [lower, upper] and in the range of what is estimated, and the unbiased one."""

    value: float
    unbiased: float
    lower: float
    upper: float


def stated(unbiased: float, interval: tuple[float, float], largest: float = math.inf) -> Stated:
    """State an unbiased estimate of what lies in [0, ``largest``], with its interval.

    >>> stated(-0.016, (0.0, 0.33))
    Stated(value=0.0, unbiased=-0.016, lower=0.0, upper=0.33)
    """
    value, (lower, upper) = min(largest, max(0.0, unbiased)), interval
    return Stated(value, unbiased, min(lower, value), max(min(upper, largest), value))
