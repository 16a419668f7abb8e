"""What a study's page shows of its verdict: meaning, charts and report, worked out once for each study."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from importlib.metadata import version

from markupsafe import Markup

from tacit_protocol.messages.study import Study
from tacit_protocol.messages.verdict import VerdictMessage
from tacit_protocol.reporting.methods import meaning_of
from tacit_protocol.reporting.panels import NullPanel, Panel, PvaluePanel, panels_of
from tacit_protocol.reporting.report import Reported, report_html
from tacit_protocol.reporting.svg import panel_svg
from tacit_protocol.reporting.svg_parts import number
from tacit_protocol.verdicts.bars import Bar, BarsPanel
from tacit_protocol.verdicts.rows import RowsPanel
from tacit_protocol.verdicts.words import Meaning
from tacit_services.tester.received import received
from tacit_services.tester.routes import Tester

KEPT_MAX = 64
"""Verdicts whose charts are kept: some hundred kilobytes each at most. Simulated nulls take a second."""


@dataclass(frozen=True)
class Chart:
    """A chart with its title, what it shows in words, and its numbers where nothing else has them."""

    title: str
    svg: Markup
    note: str = ""
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class ShownVerdict:
    """A completed study's verdict as its page and its report show it."""

    meaning: Meaning
    charts: tuple[Chart, ...]
    report: str


class ShownVerdicts:
    """Works out what is shown of verdicts; a verdict never changes, so that what was worked out is kept."""

    def __init__(self, tester: Tester) -> None:
        self._tester = tester
        self._kept: OrderedDict[str, ShownVerdict] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, digest: str, study: Study, verdict: VerdictMessage) -> ShownVerdict | None:
        """Return what is shown of a study's verdict; None where it has no result."""
        if verdict.result is None:
            return None
        with self._lock:
            if digest in self._kept:
                self._kept.move_to_end(digest)
                return self._kept[digest]
        shown = self._work_out(digest, study, verdict)
        with self._lock:
            self._kept[digest] = shown
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return shown

    def _work_out(self, digest: str, study: Study, verdict: VerdictMessage) -> ShownVerdict:
        tester, result = self._tester, verdict.result or {}
        releases = received(tester.engine, digest, study, tester.studies.parsed).releases
        reported = Reported(study, result, releases, digest)
        panels = panels_of(study, result, releases)
        report = report_html(reported, f"tacit {version('tacit')}", panels=panels)
        return ShownVerdict(meaning_of(study, result), tuple(_chart(panel) for panel in panels), report)


def _chart(panel: Panel) -> Chart:
    svg = Markup(panel_svg(panel))  # noqa: S704 (made there, with every word of others escaped)
    match panel:
        case NullPanel():
            note = f"Drawn: {panel.null.words}. Shaded: what lies beyond the statistic."
            return Chart("The statistic and its null distribution", svg, note)
        case PvaluePanel():
            return Chart("The p-value and the level", svg)
        case RowsPanel():
            return Chart(panel.title, svg)
        case BarsPanel():
            headings = ("", panel.unit, "from", "to") if _bounded(panel) else ("", panel.unit)
            return Chart(panel.title, svg, panel.note, headings, tuple(_cells(bar) for bar in panel.bars))


def _bounded(panel: BarsPanel) -> bool:
    return any(bar.lower is not None for bar in panel.bars)


def _cells(bar: Bar) -> tuple[str, ...]:
    found = (bar.label, number(bar.value))
    return found if bar.lower is None or bar.upper is None else (*found, number(bar.lower), number(bar.upper))
