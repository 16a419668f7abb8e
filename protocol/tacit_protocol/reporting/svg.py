"""Panels as SVG text, without any library: classes for stylesheets, and attributes that need none.

Every number that is drawn can be read back from a ``data-`` attribute. All text is escaped, whoever wrote it.
"""

import math
from collections.abc import Sequence

import numpy as np

from tacit_protocol.reporting.axes import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    horizontal,
    path_of,
    vertical,
)
from tacit_protocol.reporting.bars_svg import bars_svg, height_of
from tacit_protocol.reporting.panels import NullPanel, Panel, PvaluePanel
from tacit_protocol.reporting.svg_parts import (
    ACCENT,
    BAD,
    SOFT,
    WARN,
    beside,
    bottom_axis,
    drawing,
    middle,
    number,
    short,
    text,
    written,
)
from tacit_protocol.verdicts.bars import BarsPanel
from tacit_protocol.verdicts.rows import LABELS_WIDTH, ROW_HEIGHT, Row, RowsPanel

HEADING = 20
"""Room for a title above a panel."""

PVALUE_DRAWN_MIN = 1e-30
"""Smaller p-values are drawn at the axis' end."""


def panel_svg(panel: Panel) -> str:
    """Return one panel as an SVG element."""
    match panel:
        case NullPanel():
            return null_svg(panel)
        case PvaluePanel():
            return pvalue_svg(panel)
        case RowsPanel():
            return rows_svg(panel)
        case BarsPanel():
            return bars_svg(panel)


def null_svg(panel: NullPanel) -> str:
    """Draw a null distribution with the statistic marked, what lies beyond it, and the critical values."""
    null, statistic = panel.null, panel.statistic
    marked = [statistic, *(critical.value for critical in null.criticals)]
    low, high = min(0.0, float(null.t[0]), *marked), max(float(null.t[-1]), *marked)
    margin = 0.02 * (high - low)
    x = horizontal(low if low == 0 else low - margin, high + margin)
    y = vertical(0, 1.08 * float(null.density.max()))
    points = [(x.at(float(a)), y.at(float(b))) for a, b in zip(null.t, null.density, strict=True)]
    mark = x.at(statistic)
    height = float(np.interp(statistic, null.t, null.density, right=0.0))
    tail = [(mark, BOTTOM), (mark, y.at(height)), *(point for point in points if point[0] > mark)]
    tail.append((max(mark, points[-1][0]), BOTTOM))
    label = f"Null distribution: {null.words}. The statistic is {number(statistic)}."
    label += "".join(f" Critical value{_of(c.of)} {number(c.value)}." for c in null.criticals)
    lines = []
    for place, critical in enumerate(null.criticals):
        at, down = x.at(critical.value), TOP + 24 + 14 * place
        lines.append(
            f'<line class="limit" data-critical="{critical.value!r}" x1="{at}" x2="{at}" y1="{down}" '
            f'y2="{BOTTOM}" stroke="{WARN}" stroke-dasharray="4 3"/>'
        )
        lines.append(
            beside(
                "limited",
                at,
                down + 4,
                f"critical{_of(critical.of)} {number(critical.value)}",
                WARN,
                part=0.7,
            )
        )
    parts = [
        f'<polygon class="tail" points="{path_of(tail)}" fill="{ACCENT}" opacity="0.3"/>',
        f'<polyline class="curve" points="{path_of(points)}" fill="none" stroke="{ACCENT}" '
        'stroke-width="2"/>',
        *bottom_axis(x, BOTTOM),
        *lines,
        f'<line class="mark" x1="{mark}" x2="{mark}" y1="{TOP}" y2="{BOTTOM}" stroke="{BAD}" '
        'stroke-width="2"/>',
        beside("marked", mark, TOP + 8, f"statistic {number(statistic)}", BAD),
        middle(BOTTOM + 34, "statistic, if the null hypothesis holds"),
    ]
    return drawing("null", HEIGHT, label, parts, f'data-statistic="{statistic!r}"')


def pvalue_svg(panel: PvaluePanel) -> str:
    """Draw the p-value against the level, both on a logarithmic axis."""
    pvalue, level = panel.pvalue, panel.level
    decades = math.ceil(-math.log10(max(min(pvalue, level), PVALUE_DRAWN_MIN))) + 1
    axis = horizontal(-decades, 0)
    mark, limit = axis.at(math.log10(max(pvalue, 10.0**-decades))), axis.at(math.log10(level))
    ticks = [
        written("tick", axis.at(-i), 66, f"1e-{i}" if i else "1")
        for i in range(0, decades + 1, max(1, decades // 5))
    ]
    parts = [
        f'<path class="axis" d="M{LEFT},50H{RIGHT}" fill="none" stroke="{SOFT}"/>',
        *ticks,
        f'<line class="limit" x1="{limit}" x2="{limit}" y1="24" y2="50" stroke="{WARN}" '
        'stroke-dasharray="4 3"/>',
        written("limited", limit, 20, f"level {number(level)}", WARN),
        f'<line class="mark" x1="{mark}" x2="{mark}" y1="38" y2="56" stroke="{BAD}" stroke-width="2"/>',
    ]
    if abs(mark - limit) > 90:
        anchor = "start" if mark < WIDTH / 4 else "end" if mark > 3 * WIDTH / 4 else "middle"
        parts.append(written("marked", mark, 34, f"p = {number(pvalue)}", BAD, anchor=anchor))
    parts.append(middle(80, "p-value, from 1 down; left of the level the null hypothesis is rejected"))
    label = f"The p-value is {number(pvalue)}; the level is {number(level)}."
    return drawing("pvalue", 84, label, parts, f'data-pvalue="{pvalue!r}" data-level="{level!r}"')


def rows_svg(panel: RowsPanel) -> str:
    """Draw values, with their intervals where they have them, one line each around 0."""
    ends = [0.0, *panel.guides]
    for row in panel.rows:
        ends += [end for end in (row.value, row.lower, row.upper) if end is not None]
    low, high = min(ends), max(ends)
    margin = 0.05 * (high - low or 1.0)
    single = len(panel.rows) == 1
    x = horizontal(low - margin, high + margin, LEFT if single else LABELS_WIDTH)
    foot = 16 + ROW_HEIGHT * len(panel.rows)
    parts = bottom_axis(x, foot)
    for value in (0.0, *panel.guides):
        at, dash = x.at(value), ' stroke-dasharray="4 3"' if value else ""
        parts.append(f'<line class="limit" x1="{at}" x2="{at}" y1="8" y2="{foot}" stroke="{WARN}"{dash}/>')
    for place, row in enumerate(panel.rows):
        parts += _row(row, x, 16 + ROW_HEIGHT * place, labelled=not single)
    parts.append(written("unit", (x.start + x.end) / 2, foot + 32, panel.unit, SOFT))
    label = f"{panel.title}: " + "; ".join(_words(row) for row in panel.rows)
    return drawing("rows", foot + 40, label, parts)


def _row(row: Row, x: Axis, down: float, *, labelled: bool) -> list[str]:
    colour = BAD if row.stands_out else ACCENT
    kind = "stands-out" if row.stands_out else "usual"
    data = f'data-value="{row.value!r}"'
    if row.lower is not None and row.upper is not None:
        data += f' data-lower="{row.lower!r}" data-upper="{row.upper!r}"'
        drawn = (
            f'<line class="interval {kind}" x1="{x.at(row.lower)}" x2="{x.at(row.upper)}" y1="{down}" '
            f'y2="{down}" stroke="{colour}" stroke-width="4" stroke-linecap="round"/>'
        )
    else:
        drawn = (
            f'<line class="bar {kind}" x1="{x.at(0.0)}" x2="{x.at(row.value)}" y1="{down}" y2="{down}" '
            f'stroke="{colour}" stroke-width="9"/>'
        )
    if row.lower is not None:
        drawn += f'<circle class="dot {kind}" cx="{x.at(row.value)}" cy="{down}" r="4" fill="{colour}"/>'
    found = [f'<g class="row" {data}><title>{text(_words(row))}</title>{drawn}</g>']
    if labelled:
        found.append(written("row-label", LABELS_WIDTH - 8, down + 4, short(row.label), SOFT, anchor="end"))
    return found


def _words(row: Row) -> str:
    interval = ""
    if row.lower is not None and row.upper is not None:
        interval = f", interval {number(row.lower)} to {number(row.upper)}"
    return f"{row.label} {number(row.value)}{interval}"


def _of(words: str) -> str:
    return f" of {words}" if words else ""


def stacked_svg(panels: Sequence[Panel]) -> str:
    """Return one SVG document with all panels below each other, on white; empty without panels."""
    return stacked_documents([_headed(panel) for panel in panels]) if panels else ""


def _headed(panel: Panel) -> str:
    """Return a panel under its title, where nothing in it says what it is of."""
    if not isinstance(panel, BarsPanel):
        return panel_svg(panel)
    height, drawn = height_of(panel) + HEADING, panel_svg(panel)
    size = f'width="{WIDTH}" height="{height:g}" viewBox="0 0 {WIDTH} {height:g}"'
    title = (
        f'<text x="8" y="14" font-family="system-ui, sans-serif" font-size="12">{text(panel.title)}</text>'
    )
    below = drawn.replace("<svg ", f'<svg y="{HEADING}" ', 1)
    return f"<svg {size}>{title}{below}</svg>"


def stacked_documents(documents: Sequence[str]) -> str:
    """Return one SVG document with others below each other, on white; each must have a ``viewBox``."""
    parts, down, across = [], 0.0, 0.0
    for document in documents:
        width, height = (
            float(part) for part in document.split('viewBox="0 0 ', 1)[1].split('"', 1)[0].split()
        )
        where = f'<svg x="0" y="{down:g}" '
        parts.append(document.replace("<svg ", where, 1))
        down, across = down + height + 10, max(across, width)
    size = f'width="{across:g}" height="{down:g}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {across:g} {down:g}">',
            f'<rect {size} fill="white"/>',
            *parts,
            "</svg>",
        ]
    )
