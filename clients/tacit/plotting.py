"""Pictures, frames and reports of verdicts, and pictures with matplotlib of what databases have to draw."""

from collections.abc import Mapping, Sequence
from html import escape
from importlib.metadata import version
from itertools import cycle, pairwise
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Any

from tacit.atomic_write import written_whole
from tacit.errors import InputError, PlottingError, pandas_module
from tacit_protocol.reporting.charts import Chart, Panel, chart_of, panels_of, percent, short
from tacit_protocol.reporting.report import Reported, report_html
from tacit_protocol.reporting.svg import COLOURS, stacked_svg
from tacit_protocol.terminal import printable
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.presentation import HeatPanel

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 7.0
HEIGHTS = {"null": 3.2, "histogram": 3.3, "curves": 3.2}
"""Inches; of other charts 1.3, and LINE_HEIGHT for each line."""
LINE_HEIGHT = 0.25
HEADING_WIDTH = 90
"""Characters in a line of a heading."""

STANDS_OUT, USUAL = "tab:red", "tab:blue"

HEAT_ALPHA, HEAT_WRITTEN_MAX = 0.6, 8
"""How strong the colours of cells are under what is written in them, and most columns with numbers."""


def figure_of(panels: Sequence[Panel], heading: str = "") -> "Figure":
    """Return one figure with every panel below the last, under a heading, if any.

    Raises:
        PlottingError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 (an optional dependency)
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise PlottingError("plot() needs matplotlib: pip install matplotlib; or use to_svg()") from error
    charts = [chart_of(panel) for panel in panels]
    lines = [len(chart.items if chart.heat is None else chart.heat.rows) for chart in charts]
    heights = [
        HEIGHTS.get(chart.kind, 1.3 + LINE_HEIGHT * own) for chart, own in zip(charts, lines, strict=True)
    ]
    with mpl.rc_context({"text.parse_math": False}):  # a name is no formula
        figure = Figure(figsize=(WIDTH, sum(heights)), layout="constrained")
        if heading:
            figure.suptitle(fill(printable(heading), HEADING_WIDTH), fontsize="small")
        all_axes = figure.subplots(len(charts), squeeze=False, height_ratios=heights)
        for chart, axes in zip(charts, all_axes[:, 0], strict=True):
            if chart.heat is None:
                _draw(chart, axes)
            else:
                _draw_heat(chart, chart.heat, axes)
    return figure


def _draw(chart: Chart, axes: "Axes") -> None:
    """Draw a chart's marks, whichever it has, on axes of its own."""
    axes.set_title(printable(chart.title), fontsize="small")
    axes.set_xlabel(chart.unit)
    axes.set_xlim(chart.x)
    axes.set_xticks([at for at, _ in chart.ticks], [words for _, words in chart.ticks])
    if chart.curve:
        axes.plot(*zip(*chart.curve, strict=True), color=USUAL)
        axes.fill(*zip(*chart.tail, strict=True), color=USUAL, alpha=0.3)
        axes.set_ylim(chart.y)
    for curve, colour in zip(chart.curves, cycle(COLOURS), strict=False):
        axes.plot(curve.x, curve.y, color=colour, label=printable(curve.label))
        axes.fill_between(curve.x, curve.lower, curve.upper, color=colour, alpha=0.15)
        axes.set_ylim(chart.y)
    for rule in chart.rules:
        line, colour = "--" if rule.dashed else "-", STANDS_OUT if rule.mark else "black"
        axes.axvline(rule.at, color=colour, linestyle=line, linewidth=1.5 if rule.words else 0.8)
        axes.lines[-1].set_label(rule.words or "_")
    if chart.curves or any(rule.words for rule in chart.rules):
        axes.legend(fontsize="small")
    if chart.kind == "histogram":
        _draw_histogram(chart, axes)
        return
    for place, item in enumerate(chart.items):
        colour = STANDS_OUT if item.stands_out else USUAL
        if item.look == "fill" or item.interval is None:
            axes.barh(place, item.value, color=colour, height=0.6, alpha=0.5 if item.look == "fill" else 1)
        if item.interval is not None:
            whisker = ("black", 1) if item.look == "fill" else (colour, 3)
            axes.plot(item.interval, [place, place], color=whisker[0], linewidth=whisker[1])
        if item.look == "dot":
            axes.plot([item.value], [place], "o", color=colour)
    if chart.kind == "bars":
        axes.axvline(0.0, color="black", linewidth=0.8)
    if not chart.curves:
        axes.set_yticks(range(len(chart.items)), [printable(short(item.label)) for item in chart.items])
    if chart.items:
        axes.set_ylim(len(chart.items) - 0.5, -0.5)


def _draw_heat(chart: Chart, heat: HeatPanel, axes: "Axes") -> None:
    """Draw a table as coloured cells with their shares, where there is room."""
    low, high = chart.x
    axes.set_title(printable(chart.title), fontsize="small")
    axes.imshow(heat.values, cmap="RdBu", vmin=low, vmax=high, aspect="auto", alpha=HEAT_ALPHA)
    axes.set_xticks(range(len(heat.columns)), [printable(short(label)) for label in heat.columns])
    axes.set_yticks(range(len(heat.rows)), [printable(short(label)) for label in heat.rows])
    axes.tick_params(labelsize="x-small")
    axes.set_ylabel(printable(short(heat.of[0])), fontsize="small")
    axes.set_xlabel(f"{printable(short(heat.of[1]))}: {chart.unit}", fontsize="small")
    for row, shares in enumerate(heat.shown if len(heat.columns) <= HEAT_WRITTEN_MAX else ()):
        for column, share in enumerate(shares):
            axes.text(column, row, f"{percent(share)} %", ha="center", va="center", fontsize="x-small")


def _draw_histogram(chart: Chart, axes: "Axes") -> None:
    """Draw the bins over the column's values, and the bars of single values to the right of them."""
    (low, high), bins = chart.x, len(chart.edges) - 1
    step = 0.08 * (high - low)
    beside = [high + (1 + 2 * place) * step for place in range(len(chart.items) - bins)]
    places = [(a + b) / 2 for a, b in pairwise(chart.edges)] + beside
    widths = [b - a for a, b in pairwise(chart.edges)] + [step] * len(beside)
    axes.bar(places, [item.value for item in chart.items], width=widths, color=USUAL, alpha=0.5)
    for place, item in zip(places, chart.items, strict=True):
        if item.interval is not None:
            axes.plot([place, place], item.interval, color="black", linewidth=1)
    axes.axhline(0.0, color="black", linewidth=0.8)
    ticks = [tick for tick in chart.ticks if not beside or tick[0] <= high - step]
    ticks += [(at, printable(item.label)) for at, item in zip(beside, chart.items[bins:], strict=True)]
    axes.set_xticks([at for at, _ in ticks], [words for _, words in ticks])
    axes.set_xlim(low, (beside[-1] if beside else high) + step)
    axes.set_xlabel("")
    axes.set_ylabel(chart.unit, fontsize="small")


NOTHING_TO_DRAW = "there is nothing to draw of this result: it is a decision, or stays with its receiver"


class Rendering:
    """The SDK's :class:`~tacit_protocol.verdicts.base.Renderer`: pandas and matplotlib where installed."""

    def panels(self, verdict: BaseVerdict) -> tuple[Panel, ...]:
        """Return what can be drawn, as numbers."""
        return panels_of(verdict.source.study, verdict.verdict, verdict.source.releases)

    def to_svg(self, verdict: BaseVerdict) -> str:
        """Draw a verdict as SVG text; raises InputError where there is nothing to draw."""
        svg = stacked_svg(verdict.panels())
        if not svg:
            raise InputError(NOTHING_TO_DRAW)
        return svg

    def plot(self, verdict: BaseVerdict) -> "Figure":
        """Draw a verdict with matplotlib; raises InputError, or PlottingError where it is not installed."""
        panels = verdict.panels()
        if not panels:
            raise InputError(NOTHING_TO_DRAW)
        return figure_of(panels, verdict.heading)

    def report_html(self, verdict: BaseVerdict, question: str | None) -> str:
        """Return a verdict's report as HTML text."""
        source = verdict.source
        reported = Reported(source.study, verdict.verdict, source.releases, source.digest)
        picture = verdict.picture()
        return report_html(reported, "tacit " + version("tacit"), question=question, picture=picture)

    def report(self, verdict: BaseVerdict, path: str | Path, question: str | None) -> Path:
        """Write a verdict's report; raises InputError where the file cannot be written."""
        target = Path(path)
        with written_whole(target) as file:
            file.write(self.report_html(verdict, question).encode())
        return target

    def notebook_html(self, verdict: BaseVerdict) -> str:
        """Show a notebook the result in a line, warnings before it, and its picture."""
        lines = [*str(verdict).splitlines(), verdict.heading]
        line = "".join(f"<p>{escape(printable(words))}</p>" for words in lines if words)
        try:
            return line + verdict.to_svg()
        except InputError:
            return line

    def frame(
        self, columns: Mapping[str, Any], levels: Mapping[str, Sequence[str]] | None = None
    ) -> "pd.DataFrame":
        """Return a pandas frame of these columns; its rows are the combinations of ``levels``, if any."""
        pandas, index = pandas_module(), None
        if levels is not None:
            index = pandas.MultiIndex.from_product(list(levels.values()), names=list(levels))
        found: pd.DataFrame = pandas.DataFrame(dict(columns), index=index)
        return found


RENDERING = Rendering()
