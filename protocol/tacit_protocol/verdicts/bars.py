"""Panels of bars: noisy counts of cells, and the columns of databases, with the noise's intervals."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit_protocol.statistics.noisy_tables import CellNoise

Floats = npt.NDArray[np.float64]

BARS_MAX = 20
"""Most bars beside each other with labels of their own: of more the largest are drawn."""

BINS_MAX = 40
"""Most bars of a numeric column: more bins are added up to fewer."""


@dataclass(frozen=True)
class Bar:
    """One bar: what it is of, its height, and the interval of the noise where that is known."""

    label: str
    value: float
    lower: float | None = None
    upper: float | None = None


@dataclass(frozen=True)
class BarsPanel:
    """Bars from 0. ``unit`` says what their length is, ``note`` how they are read.

    ``edges`` are a numeric column's: the first bars are then the intervals between them, and the others
    stand for values where rows gather.
    """

    title: str
    unit: str
    bars: tuple[Bar, ...]
    note: str = ""
    edges: tuple[float, ...] = ()


def largest(values: Floats) -> list[int]:
    """Return which of (k,) values are drawn: all in their order, or the largest of too many, by size."""
    if len(values) <= BARS_MAX:
        return list(range(len(values)))
    return [int(place) for place in np.argsort(-values, kind="stable")[:BARS_MAX]]


def half_width(noises: tuple[CellNoise, ...], cells: int, level: float) -> float:
    """Return what the noise on the sum of so many cells exceeds with probability at most ``level``.

    Noises of several laws share the probability out.
    """
    return sum(noise.of_sums(cells).half_width(level / len(noises)) for noise in noises)


def bar(label: str, value: float, half: float | None) -> Bar:
    """Return a bar with the interval around it, where there is one."""
    return Bar(label, value) if half is None else Bar(label, value, value - half, value + half)
