"""A one-page report of a completed study: HTML that stands alone, without scripts, printable on A4.

Titles and names are other people's: every word that is not this module's own is escaped.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.reporting.bars_svg import height_of
from tacit_protocol.reporting.methods import meaning_of, methods_text, works_of
from tacit_protocol.reporting.panels import NullPanel, Panel, PvaluePanel, panels_of
from tacit_protocol.reporting.report_style import STYLE
from tacit_protocol.reporting.svg import panel_svg
from tacit_protocol.reporting.svg_parts import number, text
from tacit_protocol.verdicts.bars import BarsPanel
from tacit_protocol.verdicts.words import Meaning, pvalue_words

PANELS_MAX = 2
"""Pictures on the one page."""

BARS_HEIGHT_MAX = 640.0
"""Height of all panels of bars on the one page, in a drawing's coordinates; the first is drawn anyway."""

OWNERS_MAX, LINES_MAX, WARNINGS_MAX = 12, 8, 4
"""Rows of its tables, and warnings; what is left out is counted."""

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""What the page may load and run: nothing."""


@dataclass(frozen=True)
class Reported:
    """What a report is made of.

    ``verdict`` is a completed study's, as plain values; ``releases`` are by owner as the study reads them,
    and ``digest`` is the study's, where they are at hand.
    """

    study: Study
    verdict: Mapping[str, Any]
    releases: Mapping[str, Release] = field(default_factory=dict)
    digest: str | None = None


def report_html(
    reported: Reported,
    software: str,
    *,
    question: str | None = None,
    picture: str | None = None,
    panels: Sequence[Panel] | None = None,
) -> str:
    """Return the report as HTML text.

    Args:
        reported: the study and what is known of it.
        software: name and version of what computed it.
        question: the heading; by default the study's title.
        picture: an SVG document to show in the place of the verdict's own charts.
        panels: the verdict's, where they were worked out already.
    """
    study, verdict = reported.study, reported.verdict
    panels = panels_of(study, verdict, reported.releases) if panels is None else panels
    title, meaning = text(question or study.title), meaning_of(study, verdict)
    drawn = [picture] if picture is not None else [_figure(panel) for panel in _chosen(panels)]
    null = next((panel.null for panel in panels if isinstance(panel, NullPanel)), None)
    pictures = "".join(f"<figure>{each}</figure>" for each in drawn)
    methods = text(methods_text(study, verdict, software, null))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title} · Tacit report</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1><bdi>{title}</bdi></h1>\n{_subtitle(study)}\n{_verdict(meaning, verdict)}\n"
        f'<div class="columns">\n<div>{pictures}</div>\n<div>{_figures(study, verdict)}{_spent(reported)}'
        f"</div>\n</div>\n<h2>Methods</h2>\n<p>{methods}</p>\n"
        f"{_citations(study, software)}\n{_verify(reported)}\n</main>\n</body>\n</html>\n"
    )


def _chosen(panels: Sequence[Panel]) -> list[Panel]:
    """Choose what fits the page: the null distribution rather than the p-value, then effects, or bars."""
    known = any(isinstance(panel, NullPanel) for panel in panels)
    chosen = [panel for panel in panels if not (known and isinstance(panel, PvaluePanel))]
    bars = [panel for panel in chosen if isinstance(panel, BarsPanel)]
    if not bars:
        return chosen[:PANELS_MAX]
    reached = list(accumulate(height_of(panel) for panel in bars))
    return list(bars[: max(1, sum(height <= BARS_HEIGHT_MAX for height in reached))])


def _figure(panel: Panel) -> str:
    if not isinstance(panel, BarsPanel):
        return panel_svg(panel)
    note = f'<p class="soft">{text(panel.note)}</p>'
    return f"<figcaption><bdi>{text(panel.title)}</bdi></figcaption>{panel_svg(panel)}{note}"


def _subtitle(study: Study) -> str:
    return (
        f'<p class="soft">Procedure {text(study.procedure)} · asked by '
        f"<bdi>{text(study.analyst.name)}</bdi> · tester <bdi>{text(study.tester.name)}</bdi></p>"
    )


def _verdict(meaning: Meaning, verdict: Mapping[str, Any]) -> str:
    warnings = [str(warning) for warning in verdict.get("warnings") or ()]
    shown = "".join(f"<li><bdi>{text(warning)}</bdi></li>" for warning in warnings[:WARNINGS_MAX])
    if len(warnings) > WARNINGS_MAX:
        shown += f"<li>and {len(warnings) - WARNINGS_MAX} more, in the transcript</li>"
    listed = f'<ul class="warnings">{shown}</ul>' if shown else ""
    return (
        f'<p class="verdict"><bdi>{text(meaning.sentence)}</bdi></p>\n'
        f'<p class="care"><bdi>{text(meaning.care)}</bdi></p>{listed}'
    )


def _figures(study: Study, verdict: Mapping[str, Any]) -> str:
    rows = []
    if verdict.get("pvalue") is not None:
        rows.append(("statistic", number(float(verdict["statistic"]))))
        rows.append(("p-value", pvalue_words(float(verdict["pvalue"])).removeprefix("p ").removeprefix("= ")))
    rows.append(("level", number(study.level)))
    if (width := verdict.get("half_width")) is not None:
        rows.append(("noise of one count within", number(width)))
        rows.append(("noise of all counts within", number(verdict["half_width_all"])))
    if (squared := verdict.get("squared_mmd")) is not None:
        rows.append(("squared MMD", _with_interval(squared, verdict.get("lower"), verdict.get("upper"))))
    if (correlation := verdict.get("distance_correlation")) is not None:
        between = _with_interval(correlation, verdict.get("lower"), verdict.get("upper"))
        rows.append(("distance correlation", between))
    if (strength := verdict.get("cramers_v")) is not None:
        rows.append(("Cramér's V", _with_interval(strength, verdict.get("lower"), verdict.get("upper"))))
    table = _table("In numbers", (), rows)
    return table + _compared(verdict)


def _with_interval(value: float, lower: float | None, upper: float | None) -> str:
    found = number(value)
    return found if lower is None or upper is None else f"{found} [{number(lower)}, {number(upper)}]"


def _compared(verdict: Mapping[str, Any]) -> str:
    """Show the surest comparisons of a verdict: pairs, columns or cells, with their adjusted p-values."""
    found: list[tuple[float, str, str]] = []
    for name in ("pairs", "columns", "cells"):
        records = verdict.get(name)
        if not isinstance(records, list | tuple) or (name == "pairs" and _single(verdict)):
            continue  # an identity test's "cells" is their number
        for record in records:
            if isinstance(record, Mapping) and "pvalue" in record:
                adjusted = float(record.get("qvalue", record["pvalue"]))
                found.append((adjusted, _label(record), " *" if record["reject"] else ""))
    if not found:
        return ""
    found.sort(key=lambda each: each[0])
    lines = [(label, f"{adjusted:.3g}{mark}") for adjusted, label, mark in found]
    more = len(lines) - LINES_MAX
    note = f'<p class="soft">and {more} more, in the transcript</p>' if more > 0 else ""
    return _table("Compared (adjusted p; * at the level)", (), lines[:LINES_MAX]) + note


def _single(verdict: Mapping[str, Any]) -> bool:
    return len(verdict.get("pairs") or ()) == 1 and verdict.get("pvalue") is not None


def _label(record: Mapping[str, Any]) -> str:
    if "labels" in record:
        return ", ".join(str(label) for label in record["labels"].values())
    if "outcome" in record:
        return f"{record['column']} – {record['outcome']}"
    if "first" in record:
        return f"{record['first']} – {record['second']}"
    return " and ".join(str(column) for column in record.get("columns", ()))


def _spent(reported: Reported) -> str:
    study, units = reported.study, reported.verdict.get("units") or {}
    told = reported.verdict.get("spent") or {}
    rows = []
    for owner in study.owners[:OWNERS_MAX]:
        epsilon = 0.0 if owner.reuses is not None else float(told.get(owner.name, study.budget.epsilon))
        delta = study.budget.delta if epsilon else 0.0
        rows.append(
            (owner.name, owner.data_set, f"{units.get(owner.name, '–')}", f"{epsilon:g}", f"{delta:g}")
        )
    more = len(study.owners) - OWNERS_MAX
    note = f'<p class="soft">and {more} more owners, each the same</p>' if more > 0 else ""
    return _table("What every owner spent", ("owner", "data set", "units", "ε", "δ"), rows) + note


def _table(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{text(heading)}</th>' for heading in headings)
    body = "".join(
        f'<tr><th scope="row"><bdi>{text(row[0])}</bdi></th>'
        + "".join(f"<td><bdi>{text(cell)}</bdi></td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    top = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f"<table><caption>{text(title)}</caption>{top}<tbody>{body}</tbody></table>"


def _citations(study: Study, software: str) -> str:
    works = works_of(study, software)
    plain = "".join(f"<li>{text(work.plain)}</li>" for work in works)
    entries = text("\n".join(work.bibtex for work in works), lines=True)
    return f'<h2>Cite</h2>\n<ul class="cited">{plain}</ul>\n<pre class="bibtex">{entries}</pre>'


def _verify(reported: Reported) -> str:
    if reported.digest is None:
        return (
            "<h2>Verify</h2>\n<p>This was computed in one process, without signatures: there is no "
            "transcript that others could verify.</p>"
        )
    return (
        f"<h2>Verify</h2>\n<p>Study <code>{text(reported.digest)}</code>. Its transcript holds the study, "
        "every signed release and the verdict; anyone recomputes all of it, without a network, by "
        f"<code>tacit verify transcript.json --tester-key {text(reported.study.tester.key)}</code></p>"
    )
