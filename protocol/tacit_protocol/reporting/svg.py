"""Panels as SVG text, without any library: classes for stylesheets, and attributes that need none.

Every number that is drawn can be read back from a ``data-`` attribute. All text is escaped, whoever wrote it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from tacit_protocol.reporting.panels import NullPanel, Panel, PvaluePanel
from tacit_protocol.verdicts.panels import (
    LABELS_WIDTH,
    ROW_HEIGHT,
    Bar,
    BarsPanel,
    CurvesPanel,
    DrawnCurve,
    Row,
    RowsPanel,
)

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


LABEL_LENGTH_MAX = 25

INK, SOFT, ACCENT, BAD, WARN = "#1b1f24", "#57606a", "#0b57a4", "#b3261e", "#8a5a00"


def drawing(
    kind: str, height: float, label: str, parts: Sequence[str], data: str = "", *, title: str = ""
) -> str:
    """Return a chart's element: an image that ``label`` says in words, under a ``title`` where it has one."""
    named = f' aria-label="{text(label)}"' if not title else ""
    told = [f"<title>{text(title)}</title>", f"<desc>{text(label)}</desc>"] if title else []
    size = f'width="{WIDTH}" height="{height:g}" viewBox="0 0 {WIDTH} {height:g}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="chart {kind}" {size} '
            f'role="img"{named} {data} font-family="system-ui, sans-serif" '
            f'font-size="11" fill="{SOFT}">',
            *told,
            *parts,
            "</svg>",
        ]
    )


def bottom_axis(x: Axis, down: float) -> list[str]:
    """Draw an axis along the bottom, with its ticks; each says its value and its place."""
    found = [f'<path class="axis" d="M{x.start},{down}H{x.end}" fill="none" stroke="{SOFT}"/>']
    found += [
        f'<text class="x-tick" data-value="{tick.value}" data-at="{tick.at}" x="{tick.at}" y="{down + 16}" '
        f'text-anchor="middle">{tick.text}</text>'
        for tick in x.ticks()
    ]
    return found


def beside(kind: str, at: float, down: float, words: str, colour: str, *, part: float = 0.5) -> str:
    """Write to the right of a mark, or to its left where it stands beyond that part of the width."""
    right = at > part * WIDTH
    return written(kind, at - 5 if right else at + 5, down, words, colour, anchor="end" if right else "start")


def middle(down: float, words: str) -> str:
    """Write below the middle of the axes."""
    return written("unit", (LEFT + RIGHT) / 2, down, words)


def written(
    kind: str, at: float, down: float, words: str, colour: str = SOFT, *, anchor: str = "middle"
) -> str:
    """Write words at a place."""
    return (
        f'<text class="{kind}" x="{at:g}" y="{down:g}" text-anchor="{anchor}" fill="{colour}">'
        f"{text(words)}</text>"
    )


def number(value: float) -> str:
    """Write a number with four digits."""
    return f"{value:.4g}"


def short(label: str) -> str:
    """Cut a label to what fits beside a row."""
    return label if len(label) <= LABEL_LENGTH_MAX else label[: LABEL_LENGTH_MAX - 1] + "…"


def text(words: str, *, lines: bool = False) -> str:
    """Escape words, whoever wrote them; what cannot be printed, or would turn the text round, is replaced.

    ``lines`` keeps the ends of lines.
    """
    kept = "\n" if lines else ""
    shown = (c if c.isprintable() or c in kept else "\N{REPLACEMENT CHARACTER}" for c in words)
    return escape("".join(shown), quote=True)


THICKNESS = 11
"""Of a lying bar."""

CAP = 3
"""Half the length of the strokes that end an interval."""

LETTER = 6.4
"""Width of a letter, about."""

BELOW = 40
"""Room for the axis of lying bars."""

GAP = 10
"""Between a histogram and the bars of single values beside it."""


def bars_svg(panel: BarsPanel) -> str:
    """Draw bars with their intervals: a histogram where the panel has edges, and else lying bars."""
    label = f"{panel.unit}: " + "; ".join(words_of(bar) for bar in panel.bars)
    return _histogram(panel, label) if panel.edges else _lying(panel, label)


def height_of(panel: BarsPanel) -> float:
    """Return how high a panel is drawn, in a drawing's coordinates."""
    return float(HEIGHT if panel.edges else _foot(panel) + BELOW)


def words_of(bar: Bar) -> str:
    """Say a bar in words."""
    if bar.lower is None or bar.upper is None:
        return f"{bar.label} {number(bar.value)}"
    return f"{bar.label} {number(bar.value)}, interval {number(bar.lower)} to {number(bar.upper)}"


def _lying(panel: BarsPanel, label: str) -> str:
    low, high = _ends(panel)
    x = horizontal(low, high, LABELS_WIDTH)
    foot, zero = _foot(panel), x.at(0.0)
    parts = bottom_axis(x, foot)
    for place, bar in enumerate(panel.bars):
        down, end = 16 + ROW_HEIGHT * place, x.at(bar.value)
        drawn = (
            f'<rect class="fill" x="{min(zero, end):g}" y="{down - THICKNESS / 2:g}" '
            f'width="{abs(end - zero):g}" height="{THICKNESS}" fill="{ACCENT}" fill-opacity="0.5"/>'
        )
        if bar.lower is not None and bar.upper is not None:
            start, stop = x.at(bar.lower), x.at(bar.upper)
            drawn += _stroke(
                f"M{start:g},{down}H{stop:g}M{start:g},{down - CAP}V{down + CAP}"
                f"M{stop:g},{down - CAP}V{down + CAP}"
            )
        parts.append(_bar_row(bar, drawn))
        parts.append(written("row-label", LABELS_WIDTH - 8, down + 4, short(bar.label), SOFT, anchor="end"))
    parts.append(_line(f"M{zero:g},6V{foot}"))
    parts.append(written("unit", (x.start + x.end) / 2, foot + 32, panel.unit, SOFT))
    return drawing("bars", foot + BELOW, label, parts, title=panel.title)


def _foot(panel: BarsPanel) -> int:
    return 16 + ROW_HEIGHT * len(panel.bars)


def _histogram(panel: BarsPanel, label: str) -> str:
    bins = len(panel.edges) - 1
    single = panel.bars[bins:]
    widths = [max(24.0, LETTER * len(bar.label)) for bar in single]
    end = RIGHT - sum(widths) - GAP * len(widths)
    low, high = _ends(panel)
    x, y = Axis(panel.edges[0], panel.edges[-1], LEFT, round(end, 3)), vertical(low, high)
    parts = [_bar_row(bar, _standing(bar, x.at(a), x.at(b), y)) for bar, a, b in _of_bins(panel)]
    start = end
    for bar, width in zip(single, widths, strict=True):
        start += GAP
        parts.append(_bar_row(bar, _standing(bar, start + width / 2 - 8, start + width / 2 + 8, y)))
        parts.append(written("bar-label", start + width / 2, BOTTOM + 16, bar.label, SOFT))
        start += width
    parts += bottom_axis(x, BOTTOM)
    for tick in y.ticks():
        parts.append(
            f'<text class="y-tick" data-value="{tick.value}" data-at="{tick.at}" x="{LEFT - 5}" '
            f'y="{tick.at + 4:g}" text-anchor="end">{tick.text}</text>'
        )
    parts.append(_line(f"M{LEFT},{y.at(0.0):g}H{RIGHT}"))
    parts.append(middle(BOTTOM + 34, panel.unit))
    return drawing("histogram", HEIGHT, label, parts, title=panel.title)


def _of_bins(panel: BarsPanel) -> list[tuple[Bar, float, float]]:
    return list(zip(panel.bars, panel.edges[:-1], panel.edges[1:], strict=False))


def _standing(bar: Bar, left: float, right: float, y: Axis) -> str:
    zero, top, width = y.at(0.0), y.at(bar.value), max(right - left - 1, 0.5)
    drawn = (
        f'<rect class="fill" x="{left + 0.5:g}" y="{min(zero, top):g}" width="{width:g}" '
        f'height="{abs(top - zero):g}" fill="{ACCENT}" fill-opacity="0.5"/>'
    )
    if bar.lower is not None and bar.upper is not None:
        drawn += _stroke(f"M{(left + right) / 2:g},{y.at(bar.lower):g}V{y.at(bar.upper):g}")
    return drawn


def _bar_row(bar: Bar, drawn: str) -> str:
    data = f'data-value="{bar.value!r}"'
    if bar.lower is not None and bar.upper is not None:
        data += f' data-lower="{bar.lower!r}" data-upper="{bar.upper!r}"'
    return f'<g class="row" {data}><title>{text(words_of(bar))}</title>{drawn}</g>'


def _stroke(path: str) -> str:
    return f'<path class="whisker" d="{path}" fill="none" stroke="{INK}"/>'


def _line(path: str) -> str:
    return f'<path class="axis" d="{path}" fill="none" stroke="{SOFT}"/>'


def _ends(panel: BarsPanel) -> tuple[float, float]:
    """Return what the axis of lengths spans: 0, every bar and every interval."""
    ends = [0.0]
    for bar in panel.bars:
        ends += [end for end in (bar.value, bar.lower, bar.upper) if end is not None]
    low, high = min(ends), max(ends)
    margin = 0.04 * (high - low)
    return low - margin if low < 0 else 0.0, high + margin


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
        case CurvesPanel():
            return curves_svg(panel)


COLOURS = (ACCENT, BAD, WARN, "#1a7f37", "#8250df", "#bf3989", INK, SOFT)
"""Of curves beside each other."""


def curves_svg(panel: CurvesPanel) -> str:
    """Draw curves of shares with their intervals, each named where it ends."""
    x, y = horizontal(panel.curves[0].x[0], panel.curves[0].x[-1]), vertical(0.0, 1.0)
    parts = bottom_axis(x, BOTTOM)
    for tick in y.ticks():
        parts.append(written("y-tick", LEFT - 5, tick.at + 4, tick.text, anchor="end"))
    for place, curve in enumerate(panel.curves):
        colour = COLOURS[place % len(COLOURS)]
        at = [x.at(value) for value in curve.x]
        line, low, high = (
            [(a, y.at(v)) for a, v in zip(at, values, strict=True)]
            for values in (curve.y, curve.lower, curve.upper)
        )
        ends = " ".join(f"{value:g}" for value in curve.y)
        parts.append(
            f'<g class="row" data-values="{ends}"><title>{text(_curve_words(curve))}</title>'
            f'<polygon class="interval" points="{path_of([*high, *low[::-1]])}" fill="{colour}" '
            f'opacity="0.15"/><polyline class="curve" points="{path_of(line)}" fill="none" '
            f'stroke="{colour}" stroke-width="2"/></g>'
        )
        parts.append(written("named", LEFT + 8, BOTTOM - 8 - 14 * place, curve.label, colour, anchor="start"))
    parts.append(middle(BOTTOM + 34, panel.unit))
    label = f"{panel.title}. " + " ".join(_curve_words(curve) for curve in panel.curves)
    return drawing("curves", HEIGHT, label, parts, title=panel.title)


def _curve_words(curve: DrawnCurve) -> str:
    """Say where a curve is in the middle and at its end."""
    said = []
    for place in sorted({len(curve.x) // 2, len(curve.x) - 1}):
        interval = f"{number(curve.lower[place])} to {number(curve.upper[place])}"
        said.append(f"{number(curve.y[place])} at {number(curve.x[place])}, interval {interval}")
    return f"{curve.label}: {'; '.join(said)}."


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
    if not isinstance(panel, BarsPanel | CurvesPanel):
        return panel_svg(panel)
    own = height_of(panel) if isinstance(panel, BarsPanel) else HEIGHT
    height, drawn = own + HEADING, panel_svg(panel)
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
