"""Panels as SVG text, without any library: classes for stylesheets, and attributes that need none.

Every number that is drawn can be read back from a ``data-`` attribute. All text is escaped, whoever wrote it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from tacit_protocol.reporting.charts import (
    Chart,
    Item,
    Panel,
    Rule,
    chart_of,
    curve_words,
    percent,
    short,
    ticks_of,
)
from tacit_protocol.verdicts.presentation import LABELS_WIDTH, ROW_HEIGHT, BarsPanel, CurvesPanel, HeatPanel

WIDTH, HEIGHT = 440, 220
"""Size of a drawing's coordinates; what shows it scales it."""

LEFT, RIGHT, TOP, BOTTOM = 44, 428, 16, 180
"""Where the axes are."""


@dataclass(frozen=True)
class Tick:
    """A place on an axis, the value that is there, and how it is written."""

    at: float
    value: float
    text: str


@dataclass(frozen=True)
class LinearAxis:
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
        return [Tick(self.at(value), value, words) for value, words in ticks_of(self.low, self.high)]


def horizontal(low: float, high: float, start: float = LEFT) -> LinearAxis:
    """Return an axis along the bottom, from ``start`` to the right side."""
    return LinearAxis(low, high if high > low else low + 1.0, start, RIGHT)


def vertical(low: float, high: float) -> LinearAxis:
    """Return an axis up the left side."""
    return LinearAxis(low, high if high > low else low + 1.0, BOTTOM, TOP)


def path_of(points: Sequence[tuple[float, float]]) -> str:
    """Return the points of a polyline."""
    return " ".join(f"{x:g},{y:g}" for x, y in points)


@dataclass(frozen=True)
class Drawing:
    """What every chart has: its axes. ``x`` and ``y`` map values to coordinates."""

    x: LinearAxis
    y: LinearAxis

    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = RIGHT
    top: int = TOP
    bottom: int = BOTTOM


INK, SOFT, ACCENT, BAD, WARN = "#1b1f24", "#57606a", "#0b57a4", "#b3261e", "#8a5a00"

DASHES = ("", "7 3", "2 3", "9 3 2 3")
"""Of curves beside each other, for those who do not see colours."""

COLOURS = (ACCENT, BAD, WARN, "#1a7f37", "#8250df", "#bf3989", INK, SOFT)
"""Of curves beside each other."""


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


def bottom_axis(x: LinearAxis, down: float, ticks: Sequence[tuple[float, str]] | None = None) -> list[str]:
    """Draw an axis along the bottom, with its ticks or those given; each says its value and its place."""
    marked = x.ticks() if ticks is None else [Tick(x.at(value), value, words) for value, words in ticks]
    found = [f'<path class="axis" d="M{x.start},{down}H{x.end}" fill="none" stroke="{SOFT}"/>']
    found += [
        f'<text class="x-tick" data-value="{tick.value}" data-at="{tick.at}" x="{tick.at}" y="{down + 16}" '
        f'text-anchor="middle">{tick.text}</text>'
        for tick in marked
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


def text(words: str) -> str:
    """Escape words, whoever wrote them; what cannot be printed, or would turn the text round, is replaced."""
    return escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in words), quote=True)


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


CELL_HEIGHT = 34
"""Of a heat map: room for a share and, below it, what it is beyond independence."""

CELL_WRITTEN_MIN = 34
"""Narrower cells are coloured alone; their numbers are read where the pointer rests."""

HEAT_TOP, HEAT_FOOT = 44, 30
"""Room for the columns' labels above a heat map, and for words below it."""

HEAT_OPACITY = 0.55
"""Of the strongest colour: what is written on it keeps a contrast of 5 to 1."""

HEADING = 20
"""Room for a title above a panel."""


def panel_svg(panel: Panel) -> str:
    """Return one panel as an SVG element."""
    chart = chart_of(panel)
    match chart.kind:
        case "null":
            height, parts = float(HEIGHT), _null(chart)
        case "pvalue":
            height, parts = 84.0, _pvalue(chart)
        case "histogram":
            height, parts = float(HEIGHT), _histogram(chart)
        case "curves":
            height, parts = float(HEIGHT), _curves(chart)
        case "heat":
            height, parts = _heat_height(panel), _heat(chart)
        case "rows" | "bars":
            height, parts = _foot(chart.items) + BELOW, _lying(chart)
    data = " ".join(f'data-{name}="{value!r}"' for name, value in chart.data.items())
    title = chart.title if isinstance(panel, BarsPanel | CurvesPanel | HeatPanel) else ""
    return drawing(chart.kind, height, chart.words, parts, data, title=title)


def height_of(panel: BarsPanel | CurvesPanel | HeatPanel) -> float:
    """Return how high a panel is drawn, in a drawing's coordinates."""
    if isinstance(panel, HeatPanel):
        return _heat_height(panel)
    if isinstance(panel, CurvesPanel) or panel.edges:
        return float(HEIGHT)
    return float(_foot(panel.bars) + BELOW)


def _foot(rows: Sequence[object]) -> int:
    return 16 + ROW_HEIGHT * len(rows)


def _null(chart: Chart) -> list[str]:
    """Draw the curve with the statistic marked, what lies beyond it, and the critical values."""
    x, y = horizontal(*chart.x), vertical(*chart.y)
    curve, tail = (path_of([(x.at(a), y.at(b)) for a, b in each]) for each in (chart.curve, chart.tail))
    parts = [
        f'<polygon class="tail" points="{tail}" fill="{ACCENT}" opacity="0.3"/>',
        f'<polyline class="curve" points="{curve}" fill="none" stroke="{ACCENT}" stroke-width="2"/>',
        *bottom_axis(x, BOTTOM),
    ]
    for place, rule in enumerate(chart.rules):
        top = TOP if rule.mark else TOP + 24 + 14 * place
        data = "" if rule.mark else f'data-critical="{rule.at!r}"'
        parts.append(_rule(rule, x.at(rule.at), top, BOTTOM, data))
        kind, colour, down = ("marked", BAD, TOP + 8) if rule.mark else ("limited", WARN, top + 4)
        parts.append(beside(kind, x.at(rule.at), down, rule.words, colour, part=0.5 if rule.mark else 0.7))
    return [*parts, middle(BOTTOM + 34, chart.unit)]


def _rule(rule: Rule, at: float, top: float, bottom: float, data: str = "") -> str:
    kind, style = ("mark", f'stroke="{BAD}" stroke-width="2"') if rule.mark else ("limit", f'stroke="{WARN}"')
    dash = ' stroke-dasharray="4 3"' if rule.dashed else ""
    return f'<line class="{kind}" {data} x1="{at}" x2="{at}" y1="{top}" y2="{bottom}" {style}{dash}/>'


def _pvalue(chart: Chart) -> list[str]:
    """Draw the p-value against the level, both on a logarithmic axis."""
    x, (level, found) = horizontal(*chart.x), chart.rules
    limit, mark = x.at(level.at), x.at(found.at)
    parts = [
        _line(f"M{LEFT},50H{RIGHT}"),
        *(written("tick", x.at(value), 66, words) for value, words in chart.ticks),
        _rule(level, limit, 24, 50),
        written("limited", limit, 20, level.words, WARN),
        _rule(found, mark, 38, 56),
        written("marked", mark, 34, found.words, BAD, anchor=_anchor(mark, limit, LETTER * len(found.words))),
    ]
    if found.at <= chart.x[0]:
        arrow = f"{mark - 9:g},47 {mark:g},42 {mark:g},52"
        parts.append(f'<polygon class="beyond" points="{arrow}" fill="{BAD}"/>')
    return [*parts, middle(80, chart.unit)]


def _anchor(mark: float, limit: float, width: float) -> str:
    """Return how words of that width stand at a mark, so that no line at ``limit`` crosses them."""
    if mark <= limit:
        return "end" if mark - width > 0 else "start" if mark + width < limit else "middle"
    return "start" if mark + width < WIDTH else "end" if mark - width > limit else "middle"


def _lying(chart: Chart) -> list[str]:
    """Draw one item a line, around 0."""
    labelled = chart.kind == "bars" or len(chart.items) > 1
    x = horizontal(*chart.x, LABELS_WIDTH if labelled else LEFT)
    foot = _foot(chart.items)
    parts = bottom_axis(x, foot, chart.ticks)
    parts += [_rule(rule, x.at(rule.at), 8, foot) for rule in chart.rules]
    for place, item in enumerate(chart.items):
        down = 16 + ROW_HEIGHT * place
        parts.append(_group(item, (_filled if item.look == "fill" else _pointed)(item, x, down)))
        if labelled:
            label = short(item.label)
            parts.append(written("row-label", LABELS_WIDTH - 8, down + 4, label, SOFT, anchor="end"))
    if chart.kind == "bars":
        parts.append(_line(f"M{x.at(0.0):g},6V{foot}"))
    return [*parts, written("unit", (x.start + x.end) / 2, foot + 32, chart.unit, SOFT)]


def _filled(item: Item, x: LinearAxis, down: float) -> str:
    zero, end = x.at(0.0), x.at(item.value)
    drawn = _rectangle(min(zero, end), down - THICKNESS / 2, abs(end - zero), THICKNESS)
    if item.interval is not None:
        start, stop = (x.at(each) for each in item.interval)
        caps = "".join(f"M{at:g},{down - CAP}V{down + CAP}" for at in (start, stop))
        drawn += _stroke(f"M{start:g},{down}H{stop:g}{caps}")
    return drawn


def _pointed(item: Item, x: LinearAxis, down: float) -> str:
    colour = BAD if item.stands_out else ACCENT
    kind = "stands-out" if item.stands_out else "usual"
    shape, ends, style = "bar", (0.0, item.value), 'stroke-width="9"'
    if item.interval is not None:
        shape, ends, style = "interval", item.interval, 'stroke-width="4" stroke-linecap="round"'
    start, stop = (x.at(each) for each in ends)
    drawn = (
        f'<line class="{shape} {kind}" x1="{start}" x2="{stop}" y1="{down}" y2="{down}" '
        f'stroke="{colour}" {style}/>'
    )
    if item.look == "dot":
        drawn += f'<circle class="dot {kind}" cx="{x.at(item.value)}" cy="{down}" r="4" fill="{colour}"/>'
    return drawn


def _histogram(chart: Chart) -> list[str]:
    """Draw the bins over the column's values, and the bars of single values to the right of them."""
    single = chart.items[len(chart.edges) - 1 :]
    widths = [max(24.0, LETTER * len(item.label)) for item in single]
    start = RIGHT - sum(widths) - GAP * len(widths)
    x, y = LinearAxis(*chart.x, LEFT, round(start, 3)), vertical(*chart.y)
    bins = zip(chart.items, chart.edges[:-1], chart.edges[1:], strict=False)
    parts = [_group(item, _standing(item, x.at(a), x.at(b), y)) for item, a, b in bins]
    for item, width in zip(single, widths, strict=True):
        at = start + GAP + width / 2
        parts.append(_group(item, _standing(item, at - 8, at + 8, y)))
        parts.append(written("bar-label", at, BOTTOM + 16, item.label, SOFT))
        start += GAP + width
    parts += bottom_axis(x, BOTTOM)
    for tick in y.ticks():
        parts.append(
            f'<text class="y-tick" data-value="{tick.value}" data-at="{tick.at}" x="{LEFT - 5}" '
            f'y="{tick.at + 4:g}" text-anchor="end">{tick.text}</text>'
        )
    return [*parts, _line(f"M{LEFT},{y.at(0.0):g}H{RIGHT}"), middle(BOTTOM + 34, chart.unit)]


def _curves(chart: Chart) -> list[str]:
    """Draw curves with their intervals, and their names below each other."""
    x, y = horizontal(*chart.x), vertical(*chart.y)
    parts = bottom_axis(x, BOTTOM)
    parts += [written("y-tick", LEFT - 5, tick.at + 4, tick.text, anchor="end") for tick in y.ticks()]
    for place, curve in enumerate(chart.curves):
        colour, named = COLOURS[place % len(COLOURS)], f"nth-{place % len(DASHES) + 1}"
        dashes = f'stroke-dasharray="{DASHES[place % len(DASHES)]}"'
        down = BOTTOM - 8 - 14 * place
        line, low, high = (
            [(x.at(a), y.at(b)) for a, b in zip(curve.x, values, strict=True)]
            for values in (curve.y, curve.lower, curve.upper)
        )
        values = " ".join(f"{value:g}" for value in curve.y)
        parts.append(
            f'<g class="row" data-values="{values}"><title>{text(curve_words(curve))}</title>'
            f'<polygon class="interval {named}" points="{path_of([*high, *low[::-1]])}" fill="{colour}" '
            f'opacity="0.15"/><polyline class="curve {named}" points="{path_of(line)}" fill="none" '
            f'stroke="{colour}" stroke-width="2" {dashes}/></g>'
        )
        parts.append(
            f'<path class="curve {named}" d="M{LEFT + 8},{down - 4}h24" fill="none" stroke="{colour}" '
            f'stroke-width="2" {dashes}/>'
        )
        parts.append(written("named", LEFT + 38, down, curve.label, colour, anchor="start"))
    return [*parts, middle(BOTTOM + 34, chart.unit)]


def _heat_height(panel: Panel) -> float:
    rows = len(panel.rows) if isinstance(panel, HeatPanel) else 0
    return float(HEAT_TOP + CELL_HEIGHT * rows + HEAT_FOOT)


def _heat(chart: Chart) -> list[str]:
    """Draw a table as coloured cells, its columns' labels above them and its rows' at the left."""
    panel = chart.heat
    if panel is None:
        return []
    width = (RIGHT - LABELS_WIDTH) / len(panel.columns)
    parts = [
        written("axis-name", (LABELS_WIDTH + RIGHT) / 2, 12, short(panel.of[1])),
        written("axis-name", LABELS_WIDTH - 8, HEAT_TOP - 8, short(panel.of[0]), anchor="end"),
    ]
    for place, label in enumerate(panel.columns):
        lines = _two_lines(label, int(width / LETTER)) if width >= CELL_WRITTEN_MIN else []
        middle_at = LABELS_WIDTH + width * (place + 0.5)
        first = HEAT_TOP - 5 - 12 * (len(lines) - 1)
        parts += [
            written("column-label", middle_at, first + 12 * line, own) for line, own in enumerate(lines)
        ]
    for place, label in enumerate(panel.rows):
        centre = HEAT_TOP + CELL_HEIGHT * (place + 0.5) + 4
        parts.append(written("row-label", LABELS_WIDTH - 8, centre, short(label), anchor="end"))
    for place, item in enumerate(chart.items):
        row, column = divmod(place, len(panel.columns))
        at, down = LABELS_WIDTH + width * column, float(HEAT_TOP + CELL_HEIGHT * row)
        opacity = HEAT_OPACITY * abs(item.value) / chart.x[1]
        words = (f"{percent(panel.shown[row][column])} %", f"({item.value:+.1%})".replace("%", ""))
        parts.append(
            _group(item, _cell(ACCENT if item.value >= 0 else BAD, opacity, words, (at, down, width)))
        )
    foot = HEAT_TOP + CELL_HEIGHT * len(panel.rows) + 20
    return [*parts, written("unit", WIDTH / 2, foot, chart.unit)]


def _cell(colour: str, opacity: float, words: tuple[str, str], place: tuple[float, float, float]) -> str:
    """Draw a cell at a left side and a top, so wide, and write in it what has room."""
    left, top, width = place
    drawn = (
        f'<rect class="cell" x="{left:g}" y="{top:g}" width="{width - 1:g}" height="{CELL_HEIGHT - 1}" '
        f'fill="{colour}" fill-opacity="{opacity:.3f}" stroke="{SOFT}" stroke-opacity="0.3"/>'
    )
    if width < CELL_WRITTEN_MIN:
        return drawn
    at, (share, beyond) = left + width / 2, words
    return drawn + written("share", at, top + 14, share, INK) + written("beyond", at, top + 27, beyond, INK)


def _two_lines(label: str, letters: int) -> list[str]:
    """Break a label that is too long at the space nearest to its middle; cut what is too long still."""
    lines = [label]
    if len(label) > letters and " " in label:
        places = [place for place, letter in enumerate(label) if letter == " "]
        at = min(places, key=lambda place: abs(place - len(label) / 2))
        lines = [label[:at], label[at + 1 :]]
    return [line if len(line) <= letters else f"{line[: letters - 1]}…" for line in lines]


def _standing(item: Item, left: float, right: float, y: LinearAxis) -> str:
    zero, top = y.at(0.0), y.at(item.value)
    drawn = _rectangle(left + 0.5, min(zero, top), max(right - left - 1, 0.5), abs(top - zero))
    if item.interval is not None:
        drawn += _stroke(f"M{(left + right) / 2:g},{y.at(item.interval[0]):g}V{y.at(item.interval[1]):g}")
    return drawn


def _group(item: Item, drawn: str) -> str:
    data = f'data-value="{item.value!r}"'
    if item.interval is not None:
        data += f' data-lower="{item.lower!r}" data-upper="{item.upper!r}"'
    return f'<g class="row" {data}><title>{text(item.words)}</title>{drawn}</g>'


def _rectangle(left: float, top: float, width: float, height: float) -> str:
    return (
        f'<rect class="fill" x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" '
        f'fill="{ACCENT}" fill-opacity="0.5"/>'
    )


def _stroke(path: str) -> str:
    return f'<path class="whisker" d="{path}" fill="none" stroke="{INK}"/>'


def _line(path: str) -> str:
    return f'<path class="axis" d="{path}" fill="none" stroke="{SOFT}"/>'


def stacked_svg(panels: Sequence[Panel], across: int = 1) -> str:
    """Return one SVG document of all panels, so many beside each other, on white; empty without panels."""
    return stacked_documents([_headed(panel) for panel in panels], across) if panels else ""


def _headed(panel: Panel) -> str:
    """Return a panel under its title, where nothing in it says what it is of."""
    if not isinstance(panel, BarsPanel | CurvesPanel | HeatPanel):
        return panel_svg(panel)
    height, drawn = height_of(panel) + HEADING, panel_svg(panel)
    size = f'width="{WIDTH}" height="{height:g}" viewBox="0 0 {WIDTH} {height:g}"'
    title = (
        f'<text x="8" y="14" font-family="system-ui, sans-serif" font-size="12">{text(panel.title)}</text>'
    )
    below = drawn.replace("<svg ", f'<svg y="{HEADING}" ', 1)
    return f"<svg {size}>{title}{below}</svg>"


def stacked_documents(documents: Sequence[str], across: int = 1) -> str:
    """Return one SVG document with others in rows of so many, on white; each must have a ``viewBox``."""
    parts, down, right = [], 0.0, 0.0
    for first in range(0, len(documents), across):
        left, below = 0.0, down
        for document in documents[first : first + across]:
            width, height = (
                float(part) for part in document.split('viewBox="0 0 ', 1)[1].split('"', 1)[0].split()
            )
            parts.append(document.replace("<svg ", f'<svg x="{left:g}" y="{down:g}" ', 1))
            left, below, right = left + width + 10, max(below, down + height + 10), max(right, left + width)
        down = below
    size = f'width="{right:g}" height="{down:g}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {right:g} {down:g}">',
            f'<rect {size} fill="white"/>',
            *parts,
            "</svg>",
        ]
    )
