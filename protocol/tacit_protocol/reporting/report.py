"""A one-page report of a completed study: HTML that stands alone, without scripts, printable on A4.

Titles and names are other people's: every word that is not this module's own is escaped.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.guarantee import ApproximateEvent, GaussianEvent, LaplaceEvent
from tacit_protocol.procedures.base import Fields, Procedure, StudyError
from tacit_protocol.procedures.discovery import PROCEDURES, procedure_named
from tacit_protocol.reporting.panels import NullPanel, Panel, PvaluePanel, panels_of
from tacit_protocol.reporting.svg import height_of, number, panel_svg, text
from tacit_protocol.verdicts.effects import effects_of
from tacit_protocol.verdicts.panels import BarsPanel, Null
from tacit_protocol.verdicts.words import Meaning, Work, joined, plain_meaning, pvalue_words, software_work

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #4d5761; --line: #c9d1d9; --accent: #0b57a4; }
* { box-sizing: border-box; }
body { margin: 0; font: 14px/1.4 system-ui, "DejaVu Sans", sans-serif; color: var(--ink); background: #fff; }
main { max-width: 60rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5em; line-height: 1.2; margin: 0 0 .2em; }
h2 { font-size: 1em; margin: .8em 0 .2em; border-top: 1px solid var(--line); padding-top: .5em; }
p { margin: .2em 0; }
.soft { color: var(--soft); font-size: .9em; }
.verdict { font-size: 1.15em; font-weight: 600; border-left: 4px solid var(--accent); padding: .2em .6em; }
.warnings { margin: .3em 0; padding-left: 1.2em; font-size: .9em; }
.columns { display: grid; gap: 0 1.5rem; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); }
figure { margin: .4em 0; }
figcaption { font-weight: 600; font-size: .9em; }
figure svg { display: block; width: 100%; height: auto; background: #fff; }
table { width: 100%; border-collapse: collapse; margin: .3em 0; font-size: .9em; }
caption { text-align: left; font-weight: 600; }
th, td { text-align: left; font-weight: normal; padding: .1em .4em .1em 0; }
tr { border-bottom: 1px solid var(--line); }
.cited { margin: .2em 0; padding-left: 1.2em; font-size: .9em; }
pre.bibtex { columns: 2 16rem; font-size: .7em; line-height: 1.25; white-space: pre-wrap; margin: .3em 0; }
code { font-size: .85em; }
@media (prefers-color-scheme: dark) { @media screen {
  :root { --ink: #e6edf3; --soft: #a8b3bd; --line: #3d444d; --accent: #6cb2ff; }
  body { background: #14181d; }
} }
@page { size: A4; margin: 12mm; }
@media print {
  body { font-size: 9.5px; }
  main { max-width: none; padding: 0; }
  .columns { grid-template-columns: 1fr 1fr; }
  figure, table, li { break-inside: avoid; }
}
"""

NAMED_MAX = 6


def meaning_of(study: Study, verdict: Fields) -> Meaning:
    """Say what a completed study's verdict means; of an unknown procedure, in the plainest words."""
    known = PROCEDURES.get(study.procedure)
    return plain_meaning(study, verdict) if known is None else known.meaning(study, verdict)


def works_of(study: Study, software: str) -> tuple[Work, ...]:
    """Return what to cite: the works that a study's method comes from, and the software with its version."""
    known = PROCEDURES.get(study.procedure)
    return (*(() if known is None else known.works(study)), software_work(software))


def methods_text(study: Study, verdict: Mapping[str, Any], software: str, null: Null | None) -> str:
    """Return the methods text: mechanism, sensitivity, guarantee, null distribution, level, software."""
    return " ".join(
        part
        for part in (
            _who(study, verdict),
            _mechanism(study),
            _guarantee(study),
            _reuse(study),
            _decision(study, verdict, null),
            f"All was computed with {software}.",
        )
        if part
    )


def _who(study: Study, verdict: Mapping[str, Any]) -> str:
    units = verdict.get("units") or {}
    counted = [f"{o.name} (n = {units[o.name]:,})" if o.name in units else o.name for o in study.owners]
    owners = joined(counted, NAMED_MAX)
    known = PROCEDURES.get(study.procedure)
    what = Procedure.released if known is None else known.released
    bounds = "Columns were brought to public bounds first, fixed without the data."
    if study.curator is not None:
        return f"A trusted curator held the data of {owners} and released {what}, with noise. {bounds}"
    who = "The data owner" if len(study.owners) == 1 else "Each data owner"
    return f"{who}, {owners}, computed next to its data, and released with noise, {what}. {bounds}"


def _mechanism(study: Study) -> str:
    try:
        events = procedure_named(study.procedure).cost(study).events
    except StudyError:
        return ""
    parts = []
    for event, times in Counter(events).items():
        often = "" if times == 1 else f", {times} times"
        match event:
            case GaussianEvent():
                parts.append(
                    f"discrete Gaussian noise with standard deviation {event.noise_multiplier:.4g} times the "
                    f"L2 sensitivity of all numbers together{often}"
                )
            case LaplaceEvent():
                parts.append(
                    f"discrete Laplace noise with scale {event.noise_multiplier:.4g} times the L1 "
                    f"sensitivity{often}"
                )
            case ApproximateEvent() if event.epsilon == 0:
                parts.append(f"a part of δ, {event.delta:.3g}, for the noise being discrete{often}")
            case ApproximateEvent():
                delta = "" if event.delta == 0 else f", {event.delta:.3g}"
                parts.append(f"a randomised choice that is ({event.epsilon:g}{delta})-private{often}")
    return f"The mechanism is {' and '.join(parts)}."


def _guarantee(study: Study) -> str:
    budget = study.budget
    unit = "one row" if study.unit_column is None else f"all rows of one value of {study.unit_column}"
    kind = f"ε = {budget.epsilon:g}" + (f", δ = {budget.delta:g}" if budget.delta else ", δ = 0 (pure)")
    return (
        f"Each owner's release satisfies differential privacy with {kind}; data sets are neighbours where "
        f"one privacy unit, {unit}, is replaced by any other, and the number of units is public."
        + (" Of each unit one row, drawn by lot, was used." if study.unit_rows == "one" else "")
    )


def _reuse(study: Study) -> str:
    if not study.reusing:
        return ""
    names = joined([owner.name for owner in study.reusing], NAMED_MAX)
    return f"Of {names} an earlier release was read again, at no further cost."


def _decision(study: Study, verdict: Mapping[str, Any], null: Null | None) -> str:
    method = f"Method: {verdict.get('method', study.procedure)}."
    if verdict.get("pvalue") is None:
        return method
    law = "" if null is None else f" The null distribution is {null.words}."
    statistic = f"statistic {float(verdict['statistic']):.4g}, {pvalue_words(float(verdict['pvalue']))}"
    return f"{method}{law} Result: {statistic}, level {study.level:g}."


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
    effects = effects_of([*verdict.get("effects", ()), *verdict.get("effects_by_owner", ())])[:LINES_MAX]
    if effects:
        lines = [(f"{effect.owner or 'all'}: {effect.named}", effect.words) for effect in effects]
        table += _table("Effects, each with its interval", (), lines)
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
