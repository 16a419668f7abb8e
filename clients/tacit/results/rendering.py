"""What the SDK draws, tabulates and writes results with."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tacit.errors import InputError
from tacit.whole_files import written_whole
from tacit_protocol.reporting.panels import Panel, panels_of
from tacit_protocol.reporting.report import Reported, report_html
from tacit_protocol.reporting.svg import stacked_svg
from tacit_protocol.terminal import printable
from tacit_protocol.verdicts.base import BaseVerdict

if TYPE_CHECKING:
    import pandas as pd
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
        from tacit.results.plotting import figure_of  # noqa: PLC0415 (draws with an optional dependency)

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
