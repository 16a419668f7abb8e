"""The geometry of charts: where values are on a drawing of fixed size, which templates write as SVG."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT = 440, 220
"""Size of a drawing's coordinates; the page scales it."""

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


def horizontal(low: float, high: float) -> Axis:
    """Return an axis along the bottom."""
    return Axis(low, high if high > low else low + 1.0, LEFT, RIGHT)


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


def burn_down(entries: Sequence[dict[str, Any]], now: int) -> dict[str, Any] | None:
    """Draw what was left of an account over time, from its ledger entries (oldest first).

    Amounts are in micro-epsilons. Returns None where there are no entries.
    """
    if not entries:
        return None
    cap, points = 0, []
    for entry in entries:
        cap = entry["epsilon_micro"] if entry["kind"] == "cap" else cap
        points.append({**entry, "cap": cap, "left": max(0, cap - entry["spent_after_micro"])})
    start = points[0]["at"]
    drawing = Drawing(
        horizontal(start, max(now, points[-1]["at"], start + 60)),
        vertical(0, max(point["cap"] for point in points) / 1e6),
    )
    steps: list[tuple[float, float]] = []
    for point in points:
        point["x"], point["y"] = drawing.x.at(point["at"]), drawing.y.at(point["left"] / 1e6)
        if steps:
            steps.append((point["x"], steps[-1][1]))
        steps.append((point["x"], point["y"]))
    steps.append((drawing.right, steps[-1][1]))
    return {"drawing": drawing, "points": points, "line": path_of(steps), "now": now, "cap": cap}
