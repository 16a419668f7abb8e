"""A one-page report of a completed study: HTML that stands alone, without scripts, printable on A4.

Titles and names are other people's: the template escapes every word that is put into it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.guarantee import (
    ApproximateEvent,
    Budget,
    GaussianEvent,
    LaplaceEvent,
    MechanismEvent,
)
from tacit_protocol.procedures.base import Fields, Procedure, StudyError, spent_budget
from tacit_protocol.procedures.discovery import PROCEDURES, procedure_named
from tacit_protocol.procedures.relay import cost_for
from tacit_protocol.reporting.charts import (
    ESTIMATES,
    NullPanel,
    Panel,
    PvaluePanel,
    interval_fields,
    number,
    panels_of,
)
from tacit_protocol.reporting.svg import height_of, panel_svg, text
from tacit_protocol.verdicts.base import effects_of
from tacit_protocol.verdicts.presentation import (
    BarsPanel,
    CurvesPanel,
    HeatPanel,
    Meaning,
    Null,
    RowsPanel,
    gaps_words,
    joined,
    plain_meaning,
    pvalue_number,
    pvalue_words,
    software_work,
)

NAMED_MAX = 6


def meaning_of(study: Study, verdict: Fields) -> Meaning:
    """Say what a completed study's verdict means; of an unknown procedure, in the plainest words."""
    known = PROCEDURES.get(study.procedure)
    meaning = plain_meaning(study, verdict) if known is None else known.meaning(study, verdict)
    return replace(meaning, sentence=f"{meaning.sentence} {gaps_words(study)}".rstrip())


def methods_text(
    study: Study,
    verdict: Mapping[str, Any],
    software: str,
    null: Null | None,
    releases: Mapping[str, Release] = MappingProxyType({}),
) -> str:
    """Return the methods text: mechanism, sensitivity, guarantee, null distribution, level, software.

    ``releases``, by owner, tell which mechanisms a guarantee is of that events state alone.
    """
    again = [owner.name for owner in study.reusing]
    return " ".join(
        part
        for part in (
            _who(study, verdict),
            _mechanism(study, releases),
            _guarantee(study),
            f"Of {joined(again, NAMED_MAX)} an earlier release was read again, at no further cost."
            if again
            else "",
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
    what = Procedure.released if known is None else known.what_is_released(study)
    bounds = "Columns were brought to public bounds first, fixed without the data."
    if study.curator is not None:
        return f"A trusted curator held the data of {owners} and released {what}, with noise. {bounds}"
    who = "The data owner" if len(study.owners) == 1 else "Each data owner"
    return f"{who}, {owners}, computed next to its data, and released with noise, {what}. {bounds}"


def _mechanism(study: Study, releases: Mapping[str, Release]) -> str:
    """Say how noise is added, owner by owner where they spend, or send, differently."""
    curated = None if study.curator is None else releases.get(study.curator.name)
    try:
        procedure = procedure_named(study.procedure)
        words = {
            owner.name: _mechanism_words(
                cost_for(procedure, study, owner.name).events, releases.get(owner.name, curated)
            )
            for owner in study.owners
        }
    except StudyError:
        return ""
    if len(set(words.values())) == 1:
        return f"The mechanism is {next(iter(words.values()))}."
    return " ".join(f"The mechanism of {name} is {own}." for name, own in words.items())


def _pure_words(release: Release | None, *, noise_told: bool) -> str:
    """Name what in a release is private by a stated guarantee alone, of which no noise is told elsewhere."""
    if release is None:
        return "what it releases,"
    kinds = {vector.noise for vector in release.vectors.values()} if not noise_told else set()
    found = [
        words
        for words, there in (
            ("cuts between cells drawn by the exponential mechanism", bool(release.cuts)),
            ("one draw of the exponential mechanism", release.choice is not None),
            ("randomised response", bool(release.answers)),
            ("discrete Laplace noise", "laplace" in kinds),
            ("K-norm noise", "k-norm" in kinds),
            ("one private decision", release.decision is not None),
        )
        if there
    ]
    together = " together" if len(found) > 1 else ""
    return f"{joined(found, NAMED_MAX)},{together}" if found else "what it releases,"


def _mechanism_words(events: Sequence[MechanismEvent], release: Release | None) -> str:
    told = any(isinstance(event, GaussianEvent | LaplaceEvent) for event in events)
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
                own = _pure_words(release, noise_told=told)
                parts.append(f"{own} ({event.epsilon:g}{delta})-private{often}")
    return " and ".join(parts)


def _budget_of(study: Study) -> Budget:
    """Return what every owner spends; the study's budget where the procedure is not known here."""
    try:
        return spent_budget(procedure_named(study.procedure), study)
    except StudyError:
        return study.budget


def _guarantee(study: Study) -> str:
    budget, spent = study.budget, _budget_of(study)
    unit = "one row" if study.unit_column is None else f"all rows of one value of {study.unit_column}"
    kind = f"ε = {budget.epsilon:g}" + (f", δ = {budget.delta:g}" if budget.delta else ", δ = 0 (pure)")
    whose = "Each owner's release satisfies differential privacy with"
    if spent != budget:
        kind = (
            f"{kind} towards the tester with up to {study.parameters['colluders']} of the owners, and with "
            f"ε = {spent.epsilon:.4g} whoever colludes"
        )
        whose = "The sum of the owners' masked releases, which alone can be read, is private with"
    return (
        f"{whose} {kind}; data sets are neighbours where "
        f"one privacy unit, {unit}, is replaced by any other, and the number of units is public."
        + (" Of each unit one row, drawn by lot, was used." if study.unit_rows == "one" else "")
    )


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
    figures = [_figure(panel) for panel in _chosen(panels)]
    if picture is not None:
        figures = [_Figure(Markup(picture))]  # noqa: S704
    warnings = [str(warning) for warning in verdict.get("warnings") or ()]
    null = next((panel.null for panel in panels if isinstance(panel, NullPanel)), None)
    known = PROCEDURES.get(study.procedure)
    return _template().render(
        title=question or study.title,
        study=study,
        digest=reported.digest,
        meaning=meaning_of(study, verdict),
        warnings=warnings[:WARNINGS_MAX],
        warnings_left=max(0, len(warnings) - WARNINGS_MAX),
        figures=figures,
        tables=[_figures(study, verdict), *_effects(verdict), *_compared(verdict), _spent(reported)],
        methods=methods_text(study, verdict, software, null, reported.releases),
        works=(*(() if known is None else known.works(study)), software_work(software)),
    )


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("tacit_protocol.reporting"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_escaped,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("report.html")


def _escaped(value: Any) -> Markup:
    """Escape as charts do, which replace what would turn a text round; the page's own markup stays."""
    return value if isinstance(value, Markup) else Markup(text(str(value)))  # noqa: S704


@dataclass(frozen=True)
class _Figure:
    """A picture, made with every word of others escaped; bars have a title and a note beside it."""

    svg: Markup
    title: str = ""
    note: str = ""


def _figure(panel: Panel) -> _Figure:
    svg = Markup(panel_svg(panel))  # noqa: S704
    if isinstance(panel, BarsPanel):
        return _Figure(svg, panel.title, panel.note)
    if isinstance(panel, RowsPanel | CurvesPanel | HeatPanel):
        return _Figure(svg, panel.title)
    return _Figure(svg)


@dataclass(frozen=True)
class _Table:
    """A table of the page: the first of each row's words is what the others are of."""

    title: str
    rows: Sequence[Sequence[str]]
    headings: tuple[str, ...] = ()
    note: str = ""


def _chosen(panels: Sequence[Panel]) -> list[Panel]:
    """Choose what fits the page: an effect, then the null distribution or else the p-value; or bars."""
    bars = [panel for panel in panels if isinstance(panel, BarsPanel)]
    if not bars:
        tests = [panel for panel in panels if isinstance(panel, NullPanel | PvaluePanel)][:1]
        effects = [panel for panel in panels if not isinstance(panel, NullPanel | PvaluePanel)]
        # A table of cells says more than an estimate, which stands in numbers beside it.
        effects = sorted(effects, key=lambda panel: not isinstance(panel, HeatPanel))
        return [*effects[: PANELS_MAX - len(tests)], *tests]
    reached = list(accumulate(height_of(panel) for panel in bars))
    return list(bars[: max(1, sum(height <= BARS_HEIGHT_MAX for height in reached))])


def _figures(study: Study, verdict: Mapping[str, Any]) -> _Table:
    rows = []
    if verdict.get("pvalue") is not None:
        rows.append(("statistic", number(float(verdict["statistic"]))))
        rows.append(("p-value", pvalue_number(float(verdict["pvalue"]))))
    rows.append(("level", number(study.level)))
    if (width := verdict.get("half_width")) is not None:
        rows.append(("noise of one count within", number(width)))
        rows.append(("noise of all counts within", number(verdict["half_width_all"])))
    for name, words in ESTIMATES_SHOWN.items():
        if (value := verdict.get(name)) is not None:
            rows.append((words, _with_interval(value, *interval_fields(verdict, name, "lower", "upper"))))
    return _Table("In numbers", rows)


ESTIMATES_SHOWN = {name: ESTIMATES[name][0] for name in ("squared_mmd", "distance_correlation", "cramers_v")}
"""Estimates of a verdict's own, in words: those whose interval is from ``lower`` to ``upper``."""


def _effects(verdict: Mapping[str, Any]) -> list[_Table]:
    effects = effects_of([*verdict.get("effects", ()), *verdict.get("effects_by_owner", ())])[:LINES_MAX]
    lines = [(f"{effect.owner or 'all'}: {effect.named}", effect.words) for effect in effects]
    return [_Table("Effects, each with its interval", lines)] if lines else []


def _with_interval(value: float, lower: float | None, upper: float | None) -> str:
    found = number(value)
    return found if lower is None or upper is None else f"{found} [{number(lower)}, {number(upper)}]"


def _compared(verdict: Mapping[str, Any]) -> list[_Table]:
    """Return the surest comparisons of a verdict: pairs, columns or cells, with their adjusted p-values."""
    found: list[tuple[float, str, str]] = []
    is_of_one_pair = len(verdict.get("pairs") or ()) == 1 and verdict.get("pvalue") is not None
    for name in ("pairs", "columns", "cells"):
        records = verdict.get(name)
        if not isinstance(records, list | tuple) or (name == "pairs" and is_of_one_pair):
            continue  # an identity test's "cells" is their number
        for record in records:
            if isinstance(record, Mapping) and "pvalue" in record:
                adjusted = float(record.get("qvalue", record["pvalue"]))
                found.append((adjusted, _label(record), " *" if record["reject"] else ""))
    if not found:
        return []
    found.sort(key=lambda each: each[0])
    lines = [(label, f"{pvalue_number(adjusted)}{mark}") for adjusted, label, mark in found]
    more = len(lines) - LINES_MAX
    note = f"and {more} more, in the transcript" if more > 0 else ""
    return [_Table("Compared (adjusted p; * at the level)", lines[:LINES_MAX], note=note)]


def _label(record: Mapping[str, Any]) -> str:
    if "labels" in record:
        return ", ".join(str(label) for label in record["labels"].values())
    if "outcome" in record:
        return f"{record['column']} – {record['outcome']}"
    if "first" in record:
        return f"{record['first']} – {record['second']}"
    if "column" in record:
        return str(record["column"])
    return " and ".join(str(column) for column in record.get("columns", ()))


def _spent(reported: Reported) -> _Table:
    study, units = reported.study, reported.verdict.get("units") or {}
    told, each = reported.verdict.get("spent") or {}, _budget_of(study).epsilon
    rows = []
    for owner in study.owners[:OWNERS_MAX]:
        epsilon = 0.0 if owner.reuses is not None else float(told.get(owner.name, each))
        delta = study.budget.delta if epsilon else 0.0
        rows.append(
            (owner.name, owner.data_set, f"{units.get(owner.name, '–')}", f"{epsilon:g}", f"{delta:g}")
        )
    more = len(study.owners) - OWNERS_MAX
    note = f"and {more} more owners, each the same" if more > 0 else ""
    return _Table("What every owner spent", rows, ("owner", "data set", "units", "ε", "δ"), note)
