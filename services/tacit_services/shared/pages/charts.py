"""The burn-down chart: what was left of an account over time, which templates write as SVG."""

from collections.abc import Sequence
from typing import Any

from tacit_protocol.reporting.axes import Drawing, horizontal, path_of, vertical


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
