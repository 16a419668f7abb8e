"""The geometry of charts: where values are on a drawing of fixed size."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 440, 220
"""Size of a drawing's coordinates; what shows it scales it."""

LEFT, RIGHT, TOP, BOTTOM = 44, 428, 16, 180
"""Where the axes are."""

TICKS = 4
"""About how many ticks an axis has."""


@dataclass(frozen=True)
class Tick:
    """A place on an axis, the value that is there, and how it is written."""

    at: float
    value: float
    text: str


@dataclass(frozen=True)
class Axis:
    """A linear axis from ``low`` to ``high``, drawn between two coordinates."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return where a value is drawn."""
        part = (value - self.low) / (self.high - self.low)
        return round(self.start + part * (self.end - self.start), 3)

    def ticks(self) -> list[Tick]:
        """Return round values along the axis."""
        step = round_step((self.high - self.low) / TICKS)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [Tick(self.at(i * step), i * step, f"{i * step:.6g}") for i in range(first, last + 1)]


def horizontal(low: float, high: float, start: float = LEFT) -> Axis:
    """Return an axis along the bottom, from ``start`` to the right side."""
    return Axis(low, high if high > low else low + 1.0, start, RIGHT)


def vertical(low: float, high: float) -> Axis:
    """Return an axis up the left side."""
    return Axis(low, high if high > low else low + 1.0, BOTTOM, TOP)


def round_step(step: float) -> float:
    """Return the next larger of 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(factor * power for factor in (1.0, 2.0, 5.0, 10.0) if factor * power >= step * (1 - 1e-9))


def path_of(points: Sequence[tuple[float, float]]) -> str:
    """Return the points of a polyline."""
    return " ".join(f"{x:g},{y:g}" for x, y in points)


@dataclass(frozen=True)
class Drawing:
    """What every chart has: its axes. ``x`` and ``y`` map values to coordinates."""

    x: Axis
    y: Axis

    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = RIGHT
    top: int = TOP
    bottom: int = BOTTOM
