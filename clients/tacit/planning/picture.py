"""A power curve drawn as SVG: simulated points with their errors, the monotone fit, and the target."""

import math
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING

from tacit.planning.words import number, units_words
from tacit_protocol.terminal import printable

if TYPE_CHECKING:
    from tacit.planning.curve import PowerCurve

WIDTH, HEIGHT = 560, 340
LEFT, RIGHT, TOP, BOTTOM = 62, 20, 46, 52

TICKS_MAX = 8
"""Most labels along the bottom; of more points some are left out."""

Scale = Callable[[float], float]


def curve_svg(curve: "PowerCurve", target: float | None = None) -> str:
    """Return a curve as SVG, with a text for screen readers; whiskers are intervals of confidence .95."""
    heights = [p.value if p.interval is None else p.interval[1] for p in curve.points]
    high = 1.0 if curve.measure == "power" else 1.1 * max(*heights, target or 0.0, 1e-9)
    logs = [math.log(point.at) for point in curve.points]
    low_x, span = logs[0], (logs[-1] - logs[0]) or 1.0

    def across(at: float) -> float:
        return LEFT + (math.log(at) - low_x) / span * (WIDTH - LEFT - RIGHT)

    def down(value: float) -> float:
        return TOP + (1 - min(high, max(0.0, value)) / high) * (HEIGHT - TOP - BOTTOM)

    title, said = heading(curve), curve.words(target)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{_text(f"{title}. {said}")}" '
            'font-family="sans-serif" font-size="12" fill="#222">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            f'<text x="{LEFT}" y="18" font-size="13">{_text(title)}</text>',
            f'<text x="{LEFT}" y="35" font-size="11" fill="#555">{_text(subtitle(curve))}</text>',
            *_rows(high, down),
            *_columns(curve, across),
            *_target(target, high, down),
            *_marks(curve, across, down),
            "</svg>",
        ]
    )


def heading(curve: "PowerCurve") -> str:
    """Say in a line what the picture shows."""
    return f"{curve.measure.capitalize()} of {curve.procedure} for {curve.effect}"


def subtitle(curve: "PowerCurve") -> str:
    """Say in a line under which conditions."""
    fixed = f"epsilon {curve.epsilon:g}" if curve.n is None else units_words(curve.n)
    return (
        f"{fixed}, delta {curve.delta:g}, level {curve.alpha:g}; {curve.runs} simulated studies a point, "
        "whiskers: 95 % intervals"
    )


def _rows(high: float, down: Scale) -> list[str]:
    parts = []
    for step in range(6):
        value = high * step / 5
        y = f"{down(value):.1f}"
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{down(value) + 4:.1f}" text-anchor="end">{value:.2g}</text>')
    return parts


def _columns(curve: "PowerCurve", across: Scale) -> list[str]:
    every = -(-len(curve.points) // TICKS_MAX)
    parts = [
        f'<text x="{across(point.at):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
        f"{number(point.at)}</text>"
        for point in curve.points[::every]
    ]
    name = "epsilon" if curve.over == "epsilon" else "units of each owner"
    middle = (LEFT + WIDTH - RIGHT) / 2
    return [*parts, f'<text x="{middle}" y="{HEIGHT - 12}" text-anchor="middle">{name}</text>']


def _target(target: float | None, high: float, down: Scale) -> list[str]:
    if target is None or not 0 <= target <= high:
        return []
    y = f"{down(target):.1f}"
    return [
        f'<line class="target" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="#a33" '
        'stroke-dasharray="5 4"/>'
    ]


def _marks(curve: "PowerCurve", across: Scale, down: Scale) -> list[str]:
    line = " ".join(f"{across(p.at):.1f},{down(p.fitted):.1f}" for p in curve.points)
    parts = [f'<polyline class="fit" points="{line}" fill="none" stroke="#4878a8" stroke-width="2"/>']
    for point in curve.points:
        x, (low, high) = f"{across(point.at):.1f}", point.interval or (point.value, point.value)
        parts.append(
            f'<line class="interval" x1="{x}" x2="{x}" y1="{down(low):.1f}" y2="{down(high):.1f}" '
            'stroke="#222"/>'
        )
        parts.append(
            f'<circle class="point" cx="{x}" cy="{down(point.value):.1f}" r="3.5" fill="#4878a8">'
            f"<title>{number(point.at)}: {point.value:.3g}</title></circle>"
        )
    return parts


def _text(text: str) -> str:
    return escape(printable(text), quote=True)
