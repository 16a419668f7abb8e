"""What every result holds and can do: the decision and what it cost, pictures, and a report."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from tacit.errors import InputError
from tacit.whole_files import written_whole
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.reporting.panels import Panel, panels_of
from tacit_protocol.reporting.report import Reported, report_html
from tacit_protocol.reporting.svg import stacked_svg
from tacit_protocol.terminal import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NOTHING_TO_DRAW = "there is nothing to draw of this result: it is a decision, or stays with its receiver"


@dataclass(frozen=True)
class Source:
    """What a result was made from: the study, and of its transcript what is at hand.

    Attributes:
        study: the study; its title is the question.
        digest: the study's digest, or None of a study in this process.
        releases: by owner as the study reads them; empty where the verdict alone is known, as from a tester.
    """

    study: Study
    digest: str | None = None
    releases: Mapping[str, Release] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """What every result has.

    Attributes:
        reject: whether the null hypothesis is rejected at level ``alpha``; always False where nothing is
            tested.
        alpha: the level, in (0, 0.5).
        method: what was computed, in words.
        n: privacy units of each owner, by name.
        epsilon: what every owner that released something spent.
        delta: what every owner that released something spent.
        warnings: what limits the result, in words.
        verdict: everything that the procedure reports.
        source: the study, its digest, and its releases where they are at hand.
    """

    reject: bool
    alpha: float
    method: str
    n: Mapping[str, int]
    epsilon: float
    delta: float
    warnings: tuple[str, ...]
    verdict: Mapping[str, Any] = field(repr=False)
    source: Source = field(repr=False, compare=False)

    def panels(self) -> tuple[Panel, ...]:
        """Return what can be drawn, as numbers."""
        return panels_of(self.source.study, self.verdict, self.source.releases)

    def to_svg(self) -> str:
        """Return the result's picture as SVG text; needs no library.

        Where the null distribution can be worked out (from a transcript, or in one process) the statistic is
        marked on it, with the critical value; then the p-value and the level, effects with their intervals,
        and cells with their residuals. Noisy counts and databases are bars, with the noise's intervals.

        Raises:
            InputError: there is nothing to draw.
        """
        svg = stacked_svg(self.panels())
        if not svg:
            raise InputError(NOTHING_TO_DRAW)
        return svg

    def plot(self) -> "Figure":
        """Draw the same with matplotlib.

        Raises:
            InputError: there is nothing to draw.
            PlottingError: matplotlib is not installed.
        """
        from tacit.results.plotting import figure_of  # noqa: PLC0415 (draws with an optional dependency)

        panels = self.panels()
        if not panels:
            raise InputError(NOTHING_TO_DRAW)
        return figure_of(panels)

    def report(self, path: str | Path, *, question: str | None = None) -> Path:
        """Write a one-page report: HTML that stands alone and can be printed.

        It says the question, the verdict in plain words, what every owner spent, and how to verify it, with
        a methods text and citations for a paper. Whoever has the result may have the report: it holds
        nothing else.

        Args:
            path: the file to write; an existing one is replaced.
            question: the report's heading; by default the study's title.

        Raises:
            InputError: the file cannot be written.
        """
        target = Path(path)
        with written_whole(target) as file:
            file.write(self.report_html(question=question).encode())
        return target

    def report_html(self, *, question: str | None = None) -> str:
        """Return the report of :meth:`report` as HTML text."""
        from tacit import __version__  # noqa: PLC0415 (the package imports this module)

        source = self.source
        reported = Reported(source.study, self.verdict, source.releases, source.digest)
        return report_html(reported, f"tacit {__version__}", question=question, picture=self._picture())

    def _picture(self) -> str | None:
        """Return what the report shows in the place of charts, or None."""
        return None

    def _repr_html_(self) -> str:
        """Show a notebook the result in a line, and its picture."""
        line = f"<p>{escape(printable(str(self)))}</p>"
        try:
            return line + self.to_svg()
        except InputError:
            return line


class CommonFields(TypedDict):
    """The fields of :class:`StudyResult`."""

    reject: bool
    alpha: float
    method: str
    n: Mapping[str, int]
    epsilon: float
    delta: float
    warnings: tuple[str, ...]
    verdict: Mapping[str, Any]
    source: Source


def common_fields(source: Source, verdict: Mapping[str, Any]) -> CommonFields:
    """Read the fields that every procedure reports.

    What was agreed on (level and budget) comes from the study, which the parties signed.

    Raises KeyError, TypeError, ValueError or AttributeError where the verdict lacks one of them.
    """
    reject, study = verdict["reject"], source.study
    if not isinstance(reject, bool):
        raise TypeError("a verdict's decision is a truth value")
    return CommonFields(
        reject=reject,
        alpha=study.level,
        method=str(verdict["method"]),
        n={str(name): int(units) for name, units in verdict["units"].items()},
        epsilon=study.budget.epsilon,
        delta=study.budget.delta,
        warnings=tuple(str(warning) for warning in verdict["warnings"]),
        verdict=verdict,
        source=source,
    )


def optional_number(value: Any) -> float | None:
    """Read a number of a verdict that may be absent."""
    return None if value is None else float(value)


def optional_interval(low: Any, high: Any) -> tuple[float, float] | None:
    """Read an interval of a verdict that may be absent."""
    return None if low is None else (float(low), float(high))


def truth(value: Any) -> bool:
    """Read a truth value of a verdict; raises TypeError for anything else."""
    if not isinstance(value, bool):
        raise TypeError("the verdict states a truth value here")
    return value
