"""Panels of bars as SVG text: lying bars with their labels, and a numeric column's histogram."""

from tacit_protocol.reporting.axes import BOTTOM, HEIGHT, LEFT, RIGHT, Axis, horizontal, vertical
from tacit_protocol.reporting.svg_parts import (
    ACCENT,
    INK,
    SOFT,
    bottom_axis,
    drawing,
    middle,
    number,
    short,
    text,
    written,
)
from tacit_protocol.verdicts.bars import Bar, BarsPanel
from tacit_protocol.verdicts.rows import LABELS_WIDTH, ROW_HEIGHT

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
        parts.append(_row(bar, drawn))
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
    parts = [_row(bar, _standing(bar, x.at(a), x.at(b), y)) for bar, a, b in _of_bins(panel)]
    start = end
    for bar, width in zip(single, widths, strict=True):
        start += GAP
        parts.append(_row(bar, _standing(bar, start + width / 2 - 8, start + width / 2 + 8, y)))
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


def _row(bar: Bar, drawn: str) -> str:
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
