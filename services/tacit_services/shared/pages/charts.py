"""The burn-down chart: what was left of an account's shares over time, which templates write as SVG."""

from collections.abc import Sequence
from typing import Any

from tacit_protocol.reporting.axes import Drawing, horizontal, path_of, vertical

SHARES = {"pure": "pure_pico", "gaussian": "gaussian_femto"}
"""The shares that are drawn, and the fields of an entry that hold their amounts."""


def burn_down(entries: Sequence[dict[str, Any]], now: int) -> dict[str, Any] | None:
    """Draw what was left of each share of an account over time, from its ledger entries (oldest first).

    In per cent of the share as it was then. What an older release debited is spent when the first shares are
    set. Returns None where no shares were set yet.
    """
    first = next((n for n, entry in enumerate(entries) if entry["form"] > 1), None)
    if first is None:
        return None
    start = entries[first]["at"]
    drawing = Drawing(horizontal(start, max(now, entries[-1]["at"], start + 60)), vertical(0, 100))
    lines = [_line(name, column, entries, first, drawing) for name, column in SHARES.items()]
    shown = [line for line in lines if line is not None]
    return {"drawing": drawing, "lines": shown, "start": start, "now": now} if shown else None


def _line(
    name: str, column: str, entries: Sequence[dict[str, Any]], first: int, drawing: Drawing
) -> dict[str, Any] | None:
    spent, share, points = sum(entry["taken"][column] for entry in entries[:first]), 0, []
    for entry in entries[first:]:
        if entry["kind"] == "cap":
            share = entry[column]
        else:
            spent += entry["taken"][column]
        left = 100 * max(0, share - spent) / share if share else 0.0
        points.append({**entry, "left": left, "x": drawing.x.at(entry["at"]), "y": drawing.y.at(left)})
    if not any(entry[column] for entry in entries[first:] if entry["kind"] == "cap"):
        return None
    steps: list[tuple[float, float]] = []
    for point in points:
        if steps:
            steps.append((point["x"], steps[-1][1]))
        steps.append((point["x"], point["y"]))
    steps.append((drawing.right, steps[-1][1]))
    return {"name": name, "points": points, "line": path_of(steps), "left": points[-1]["left"]}
