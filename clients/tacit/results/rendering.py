"""What the SDK draws, tabulates and writes results with."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.atomic_write import written_whole
from tacit.errors import InputError, PlottingError
from tacit_protocol.reporting.panels import NullPanel, Panel, PvaluePanel, panels_of
from tacit_protocol.reporting.report import Reported, report_html
from tacit_protocol.reporting.svg import COLOURS, short, stacked_svg
from tacit_protocol.terminal import printable
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.panels import BarsPanel, CurvesPanel, RowsPanel

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
        return figure_of(panels)

    def report_html(self, verdict: BaseVerdict, question: str | None) -> str:
        """Return a verdict's report as HTML text."""
        from tacit import __version__  # noqa: PLC0415 (the package imports this module)

        source = verdict.source
        reported = Reported(source.study, verdict.verdict, source.releases, source.digest)
        picture = verdict.picture()
        return report_html(reported, f"tacit {__version__}", question=question, picture=picture)

    def report(self, verdict: BaseVerdict, path: str | Path, question: str | None) -> Path:
        """Write a verdict's report; raises InputError where the file cannot be written."""
        target = Path(path)
        with written_whole(target) as file:
            file.write(self.report_html(verdict, question).encode())
        return target

    def notebook_html(self, verdict: BaseVerdict) -> str:
        """Show a notebook the result in a line, and its picture."""
        line = f"<p>{escape(printable(str(verdict)))}</p>"
        try:
            return line + verdict.to_svg()
        except InputError:
            return line

    def frame(
        self, columns: Mapping[str, Any], levels: Mapping[str, Sequence[str]] | None = None
    ) -> "pd.DataFrame":
        """Return a pandas frame of these columns; its rows are the combinations of ``levels``, if any."""
        import pandas as pd  # noqa: PLC0415 (optional)

        index = None
        if levels is not None:
            index = pd.MultiIndex.from_product(list(levels.values()), names=list(levels))
        return pd.DataFrame(dict(columns), index=index)


WIDTH, HEIGHTS = 7.0, {NullPanel: 3.2, PvaluePanel: 1.3, CurvesPanel: 3.2}
"""Inches."""

STANDS_OUT, USUAL = "tab:red", "tab:blue"


def figure_of(panels: Sequence[Panel]) -> "Figure":
    """Return one figure with every panel below the last.

    Raises:
        PlottingError: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 (an optional dependency)
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise PlottingError("plot() needs matplotlib: pip install matplotlib; or use to_svg()") from error
    heights = [HEIGHTS.get(type(panel), 1.3) + 0.25 * _lines(panel) for panel in panels]
    with mpl.rc_context({"text.parse_math": False}):  # a name is no formula
        return _figure(Figure(figsize=(WIDTH, sum(heights)), layout="constrained"), panels, heights)


def _figure(figure: "Figure", panels: Sequence[Panel], heights: Sequence[float]) -> "Figure":
    all_axes = figure.subplots(len(panels), squeeze=False, height_ratios=heights)
    for panel, axes in zip(panels, all_axes[:, 0], strict=True):
        _draw(panel, axes)
    return figure


def _lines(panel: Panel) -> int:
    if isinstance(panel, BarsPanel):
        return 8 if panel.edges else len(panel.bars)
    return len(panel.rows) if isinstance(panel, RowsPanel) else 0


def _draw(panel: Panel, axes: "Axes") -> None:
    match panel:
        case NullPanel():
            _draw_null(panel, axes)
        case PvaluePanel():
            _draw_pvalue(panel, axes)
        case RowsPanel():
            _draw_rows(panel, axes)
        case BarsPanel():
            (_draw_histogram if panel.edges else _draw_bars)(panel, axes)
        case CurvesPanel():
            _draw_curves(panel, axes)


def _draw_null(panel: NullPanel, axes: "Axes") -> None:
    null = panel.null
    axes.plot(null.t, null.density, color=USUAL)
    beyond = null.t >= panel.statistic
    axes.fill_between(null.t, null.density, where=list(beyond), color=USUAL, alpha=0.3)
    axes.axvline(panel.statistic, color=STANDS_OUT, label=f"statistic {panel.statistic:.4g}")
    for critical in null.criticals:
        of = f" of {critical.of}" if critical.of else ""
        label = f"critical value{of} {critical.value:.4g}"
        axes.axvline(critical.value, color="black", linestyle="--", label=label)
    axes.set_title(f"Null distribution: {null.words}", fontsize="small")
    axes.set_ylim(bottom=0)
    axes.set_yticks([])
    axes.legend(fontsize="small")


def _draw_pvalue(panel: PvaluePanel, axes: "Axes") -> None:
    axes.axvline(panel.pvalue, color=STANDS_OUT, label=f"p = {panel.pvalue:.3g}")
    axes.axvline(panel.level, color="black", linestyle="--", label=f"level {panel.level:g}")
    axes.set_xscale("log")
    axes.set_xlim(min(panel.pvalue, panel.level) / 3, 1)
    axes.set_yticks([])
    axes.set_xlabel("p-value")
    axes.legend(fontsize="small")


def _draw_rows(panel: RowsPanel, axes: "Axes") -> None:
    for place, row in enumerate(reversed(panel.rows)):
        colour = STANDS_OUT if row.stands_out else USUAL
        if row.lower is None or row.upper is None:
            axes.barh([place], [row.value], color=colour, height=0.5)
        else:
            axes.plot([row.lower, row.upper], [place, place], color=colour, linewidth=3)
            axes.plot([row.value], [place], "o", color=colour)
    for value in (0.0, *panel.guides):
        axes.axvline(value, color="black", linewidth=0.8, linestyle="--" if value else "-")
    labels = [printable(short(row.label)) for row in reversed(panel.rows)]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_title(printable(panel.title), fontsize="small")
    axes.set_xlabel(panel.unit)


def _draw_curves(panel: CurvesPanel, axes: "Axes") -> None:
    for place, curve in enumerate(panel.curves):
        axes.plot(curve.x, curve.y, color=COLOURS[place % len(COLOURS)], label=printable(curve.label))
        axes.fill_between(curve.x, curve.lower, curve.upper, color=COLOURS[place % len(COLOURS)], alpha=0.15)
    axes.set_ylim(0, 1)
    axes.set_title(printable(panel.title), fontsize="small")
    axes.set_xlabel(printable(panel.unit))
    axes.legend(fontsize="small")


def _draw_bars(panel: BarsPanel, axes: "Axes") -> None:
    bars = panel.bars[::-1]
    places = range(len(bars))
    axes.barh(places, [bar.value for bar in bars], color=USUAL, alpha=0.5, height=0.6)
    for place, bar in enumerate(bars):
        if bar.lower is not None and bar.upper is not None:
            axes.plot([bar.lower, bar.upper], [place, place], color="black", linewidth=1)
    axes.axvline(0.0, color="black", linewidth=0.8)
    axes.set_yticks(places, [printable(short(bar.label)) for bar in bars])
    axes.set_title(printable(panel.title), fontsize="small")
    axes.set_xlabel(panel.unit)


def _draw_histogram(panel: BarsPanel, axes: "Axes") -> None:
    """Draw the bins over the column's values, and the bars of single values to the right of them."""
    low, high = panel.edges[0], panel.edges[-1]
    step = 0.08 * (high - low)
    bins = len(panel.edges) - 1
    middles = [(a + b) / 2 for a, b in zip(panel.edges[:-1], panel.edges[1:], strict=True)]
    places = middles + [high + (1 + 2 * place) * step for place in range(len(panel.bars) - bins)]
    widths = [b - a for a, b in zip(panel.edges[:-1], panel.edges[1:], strict=True)]
    widths += [step] * (len(panel.bars) - bins)
    axes.bar(places, [bar.value for bar in panel.bars], width=widths, color=USUAL, alpha=0.5)
    for place, bar in zip(places, panel.bars, strict=True):
        if bar.lower is not None and bar.upper is not None:
            axes.plot([place, place], [bar.lower, bar.upper], color="black", linewidth=1)
    axes.axhline(0.0, color="black", linewidth=0.8)
    ticks = [(low, f"{low:g}"), ((low + high) / 2, f"{(low + high) / 2:g}")]
    ticks += [
        (place, printable(bar.label)) for place, bar in zip(places[bins:], panel.bars[bins:], strict=True)
    ]
    if len(panel.bars) == bins:
        ticks.append((high, f"{high:g}"))
    axes.set_xticks([place for place, _ in ticks], [words for _, words in ticks])
    axes.set_title(printable(panel.title), fontsize="small")
    axes.set_ylabel(panel.unit, fontsize="small")
