"""The tester's pages: studies, charts, live events, plans."""

import asyncio
import hashlib
import json
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache, partial
from importlib.metadata import version
from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlencode

from fastapi import Depends, FastAPI, Query, Request
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, Response, StreamingResponse

from tacit_protocol.messages.encoding import decode
from tacit_protocol.messages.study import PUBLIC_RULES, PartyName, Study, VerdictMessage
from tacit_protocol.procedures.base import StudyError
from tacit_protocol.procedures.discovery import PROCEDURES, procedure_named
from tacit_protocol.reporting.charts import NullPanel, Panel, PvaluePanel, number, panels_of, percent
from tacit_protocol.reporting.report import Reported, meaning_of, report_html
from tacit_protocol.reporting.svg import Drawing, horizontal, panel_svg, path_of, vertical
from tacit_protocol.signing import VERDICT_TYPE, open_envelope
from tacit_protocol.verdicts.base import (
    Effect,
    ProcedureResult,
    ShownTable,
    Summary,
    effects_table,
    summaries_table,
)
from tacit_protocol.verdicts.presentation import (
    Bar,
    BarsPanel,
    CurvesPanel,
    HeatPanel,
    Meaning,
    Part,
    RowsPanel,
    ShownField,
    joined,
    shown_fields,
)
from tacit_services.shared.database import DatabaseError, read_from
from tacit_services.shared.http_app import DigestPath, json_response
from tacit_services.shared.http_server import when_gone
from tacit_services.shared.pages.formatting import brief, capitalised, short, value
from tacit_services.shared.pages.openid import openid_of
from tacit_services.shared.pages.sessions import Sessions
from tacit_services.shared.pages.site import MenuEntry, Service, SignedIn, Site
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.shared.settings import OpenIdSettings
from tacit_services.tester.parties import EVERYONE, ROSTER, entries
from tacit_services.tester.studies import State, StudyFilter, received, transcript_of, verdict_of
from tacit_services.tester.tables import SIGN_IN
from tacit_services.tester.web.new_study import add_new_studies
from tacit_services.tester.web.routes import VERDICT_RETRY_S, OnGone, Planner, Tester

FIELDS: Mapping[str, str] = {
    "procedure": "kernel_two_sample",
    "columns": "age:0:120",
    "cells": "",
    "over": "epsilon",
    "n": "1000",
    "epsilon": "1",
    "delta": "1e-5",
    "alpha": "0.05",
    "effect": "",
    "shape": "linear",
    "target": "",
}
"""The form's fields, and what they say at first."""

FIELD_LENGTH_MAX = 2000


def add_plans(site: Site, planner: Planner) -> None:
    """Add the page to a site."""
    Reader = Annotated[SignedIn, Depends(site.signed_in)]

    @site.router.get("/plan")
    def show_form(request: Request, reader: Reader) -> Response:
        return _page(site, request, reader, FIELDS, {})

    @site.router.post("/plan")
    async def plan(
        request: Request,
        fields: Annotated[Mapping[str, str], Depends(site.form(*FIELDS, least="viewer"))],
        reader: Reader,
    ) -> Response:
        asked = {name: fields.get(name, "") for name in FIELDS}
        if any(len(text) > FIELD_LENGTH_MAX for text in asked.values()):
            answer: dict[str, Any] = {"refused": f"A field has {FIELD_LENGTH_MAX} characters at most."}
        else:
            answer = await planner.plan(reader.session.key, asked, partial(when_gone, request.scope))
        response = _page(site, request, reader, asked, answer)
        if "refused" in answer:
            response.status_code = 422
        return response


def _page(
    site: Site, request: Request, reader: SignedIn, fields: Mapping[str, str], answer: Mapping[str, Any]
) -> Response:
    return site.page(
        request,
        "plan.html",
        reader,
        fields=fields,
        procedures={name: procedure.title for name, procedure in PROCEDURES.items()},
        **_drawn_answer(answer),
    )


def _drawn_answer(answer: Mapping[str, Any]) -> dict[str, Any]:
    found = answer.get("plan")
    chart = None if found is None else drawn(found["curve"], found["target"])
    return {"refused": answer.get("refused"), "plan": found, "chart": chart}


def drawn(curve: Mapping[str, Any], target: float | None) -> dict[str, Any]:
    """Place a curve's points on a drawing: along a logarithmic axis, with whiskers of their intervals."""
    points = [
        {**point, "interval": point["interval"] or [point["value"]] * 2, "between": _between(point)}
        for point in curve["points"]
    ]
    highest = max(point["interval"][1] for point in points)
    top = 1.0 if curve["measure"] == "power" else max(highest, target or 0.0, 1e-9)
    logs = [math.log10(point["at"]) for point in points]
    drawing = Drawing(horizontal(min(logs), max(logs)), vertical(0, 1.05 * top))
    placed = [
        {
            **point,
            "x": drawing.x.at(log),
            "y": drawing.y.at(point["value"]),
            "low": drawing.y.at(point["interval"][0]),
            "high": drawing.y.at(point["interval"][1]),
        }
        for point, log in zip(points, logs, strict=True)
    ]
    fit = [(point["x"], drawing.y.at(point["fitted"])) for point in placed]
    limit = drawing.y.at(target) if target is not None and target <= 1.05 * top else None
    return {"drawing": drawing, "points": placed, "line": path_of(fit), "limit": limit}


def _between(point: Mapping[str, Any]) -> str:
    """Write a point's interval; what was refused was not simulated, and errors that never vary have none."""
    if point["refused"]:
        return "refused"
    return "" if point["interval"] is None else "{:.3g} to {:.3g}".format(*point["interval"])


STREAMS_MAX = 100
"""Streams at once; beyond them pages ask every ten seconds."""

STREAM_LOOK_S = 1.0
"""Time between two looks: one short query each."""

STREAM_S = 600.0
"""How long one stream lasts; the browser opens the next by itself, and is asked for its session again."""

KEEP_ALIVE_LOOKS = 15
"""Looks without news after which a comment is sent, so that proxies keep the connection."""

STREAM_RETRY_S = 30

OPEN = ("collecting", "computing")
"""States that a study leaves again."""


def revision(summary: dict[str, Any]) -> str:
    """Return what differs whenever a study's page would."""
    seen = repr((summary["state"], summary["owners"], summary["progress"]))
    return hashlib.sha256(seen.encode()).hexdigest()[:16]


class Streams:
    """The streams of one tester."""

    def __init__(self, tester: Tester) -> None:
        self._tester = tester
        self._open = 0

    def response(self, study: str, seen: str) -> Response:
        """Answer with a stream that begins where the page's own ``revision`` ends.

        Raises:
            ProblemError: ``rate-limited``.
        """
        if self._open >= STREAMS_MAX:
            raise RegisteredProblemError("rate-limited", retry_after_s=STREAM_RETRY_S)
        headers = {"X-Accel-Buffering": "no"}  # a proxy that gathers an answer would hold every event back
        return StreamingResponse(self._events(study, seen), 200, headers, "text/event-stream")

    async def _events(self, study: str, seen: str) -> AsyncIterator[str]:
        self._open += 1
        try:
            async for event in self._follow(study, seen):
                yield event
        finally:
            self._open -= 1

    async def _follow(self, study: str, seen: str) -> AsyncIterator[str]:
        loop, quiet = asyncio.get_running_loop(), 0
        ends_at = loop.time() + STREAM_S
        yield ": open\n\n"
        while loop.time() < ends_at and not self._tester.stopping.requested:
            rings = self._tester.bell.rings
            try:
                found = await run_in_threadpool(self._tester.studies.summary, study)
            except (DatabaseError, RegisteredProblemError):
                return  # the browser comes back, and is told of a study that is not here any more
            if found["state"] not in OPEN:
                yield "event: ended\ndata: \n\n"
                return
            now, quiet = revision(found), quiet + 1
            if now != seen:
                seen, quiet = now, 0
                yield "event: changed\ndata: \n\n"
            elif quiet % KEEP_ALIVE_LOOKS == 0:
                yield ": still\n\n"
            await self._tester.bell.wait(rings, STREAM_LOOK_S)


ENDED = ("completed", "incomplete", "cancelled")
"""States of studies that may have a verdict."""

LINES_KEPT, LINE_LENGTH_MAX, MISSING_NAMED_MAX = 4096, 240, 5
"""Verdicts in a line that are kept: a megabyte; the characters of one; and the owners that it names."""

KEPT_MAX = 64
"""Verdicts whose charts are kept: some hundred kilobytes each at most. Simulated nulls take a second."""


@dataclass(frozen=True)
class PageChart:
    """A chart with its title, what it shows in words, and its numbers where nothing else has them."""

    title: str
    svg: Markup
    note: str = ""
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    part: Part = "effects"


@dataclass(frozen=True)
class VerdictView:
    """A completed study's verdict as its page and its report show it."""

    meaning: Meaning
    charts: tuple[PageChart, ...]
    report: str


def _view(tester: Tester, digest: str) -> VerdictView | None:
    """Work out what is shown of a study's verdict; None where it has no result."""
    study, verdict = tester.studies.parsed(digest), _signed_verdict(tester, digest)
    if verdict.result is None:
        return None
    result = verdict.result
    releases = received(tester.engine, digest, study, tester.studies.parsed).releases
    reported = Reported(study, result, releases, digest)
    panels = panels_of(study, result, releases)
    report = report_html(reported, f"tacit {version('tacit')}", panels=panels)
    return VerdictView(meaning_of(study, result), tuple(_chart(panel) for panel in panels), report)


class VerdictLines:
    """Each ended study's verdict in a line, for lists; kept, as a verdict never changes."""

    def __init__(self, tester: Tester) -> None:
        self._said = lru_cache(LINES_KEPT)(partial(_said, tester))

    def of(self, summary: Mapping[str, Any]) -> str:
        """Return the line of a listed study; empty while it has no verdict."""
        if summary["state"] not in ENDED:
            return ""
        try:
            return self._said(summary["digest"])
        except RegisteredProblemError:  # archived since it was listed, or not yet signed
            return ""


def _said(tester: Tester, digest: str) -> str:
    verdict = _signed_verdict(tester, digest)
    if verdict.result is None:
        missing = list(verdict.missing)
        return f"No release came from {joined(missing, MISSING_NAMED_MAX)}." if missing else ""
    sentence = meaning_of(tester.studies.parsed(digest), verdict.result).sentence
    return sentence if len(sentence) <= LINE_LENGTH_MAX else f"{sentence[: LINE_LENGTH_MAX - 1]}…"


SHARES_NOTE = "Shares are estimated without bias from noisy answers, so that some may lie below 0."


def _chart(panel: Panel) -> PageChart:
    svg = Markup(panel_svg(panel))  # noqa: S704 (made there, with every word of others escaped)
    match panel:
        case NullPanel():
            note = f"Drawn: {panel.null.words}. Shaded: what lies beyond the statistic."
            return PageChart("The statistic and its null distribution", svg, note, part="test")
        case PvaluePanel():
            return PageChart("The p-value and the level", svg, part="test")
        case RowsPanel():
            odd = any(
                row.lower is not None and row.upper is not None and not row.lower <= row.value <= row.upper
                for row in panel.rows
            )
            return PageChart(panel.title, svg, f"A dot beside its line: {OUTSIDE}." if odd else "")
        case CurvesPanel():
            return PageChart(panel.title, svg)
        case HeatPanel():
            headings = (" \\ ".join(panel.of), *panel.columns)
            rows = zip(panel.rows, panel.shown, strict=True)
            cells = tuple((label, *(f"{percent(share)} %" for share in own)) for label, own in rows)
            return PageChart(panel.title, svg, SHARES_NOTE, headings, cells)
        case BarsPanel():
            bounded = any(bar.lower is not None for bar in panel.bars)
            headings = ("", panel.unit, "from", "to") if bounded else ("", panel.unit)
            return PageChart(panel.title, svg, panel.note, headings, tuple(_cells(bar) for bar in panel.bars))


OUTSIDE = "the estimate is unbiased and the interval is cut to what is possible, so that it may lie outside"
"""Why an estimate lies outside its own interval."""


def _cells(bar: Bar) -> tuple[str, ...]:
    found = (bar.label, number(bar.value))
    return found if bar.lower is None or bar.upper is None else (*found, number(bar.lower), number(bar.upper))


MENU = (
    MenuEntry("Studies", "/"),
    MenuEntry("New study", "/new"),
    MenuEntry("Data sets", "/data-sets"),
    MenuEntry("Plan", "/plan"),
    MenuEntry("People", "/people"),
)

RECORDS_MAX = 50
"""Lines of one table that are shown; the transcript has all."""

PAGE_SIZE = 25
"""Studies on one page of the list."""


def add_tester_pages(app: FastAPI, tester: Tester, public_url: str, openid: OpenIdSettings) -> None:
    """Add the pages to the tester's app."""
    sessions, key = Sessions(tester.engine, SIGN_IN, tester.clock), tester.identity.key
    service = Service(
        "tester",
        tester.identity.name,
        "tacit_services.tester.web",
        "tacit tester login, or tacit party login",
        MENU,
        public_url.startswith("https://"),
        public_url,
        openid_of(openid, public_url, sessions.people, key, tester.clock),
    )

    def named(key: str) -> str:
        if key == tester.identity.key:
            return "the operator"
        member = read_from(tester.engine, ROSTER.require_member, key)
        return f"{member.name}, {member.role}"

    site = Site(service, sessions, tester.access.role, named)
    _add_studies(site, tester)
    add_plans(site, tester.planner)

    async def shown(person: str, fields: Mapping[str, str], on_gone: OnGone) -> dict[str, Any]:
        return _drawn_answer(await tester.planner.plan(person, fields, on_gone))

    add_new_studies(site, tester, shown)
    site.add_to(app, tester.access.require(*EVERYONE))


def _chosen(
    state: Annotated[State | Literal[""], Query()] = "",
    procedure: Annotated[str, Query(max_length=63)] = "",
    owner: Annotated[str, Query(max_length=63)] = "",
    text: Annotated[str, Query(max_length=200)] = "",
) -> StudyFilter:
    """Read which studies are asked for (a dependency)."""
    return StudyFilter(state or None, procedure.strip(), owner.strip(), text.strip())


def _add_studies(site: Site, tester: Tester) -> None:
    Reader = Annotated[SignedIn, Depends(site.signed_in)]
    streams, lines = Streams(tester), VerdictLines(tester)
    view_of = lru_cache(KEPT_MAX)(partial(_view, tester))  # a verdict never changes

    @site.router.get("/")
    def show_studies(
        request: Request,
        reader: Reader,
        chosen: Annotated[StudyFilter, Depends(_chosen)],
        before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
    ) -> Response:
        listed = tester.studies.listing(before, chosen, PAGE_SIZE)
        kept = {n: part for n, part in asdict(chosen).items() if part}
        following = None if listed["next"] is None else urlencode({**kept, "before": listed["next"]})
        return site.page(
            request,
            "studies.html",
            reader,
            studies=[{**item, "said": lines.of(item)} for item in listed["items"]],
            chosen=chosen,
            newest=urlencode(kept),
            following=following,
            before=before,
            here=urlencode(kept if before is None else {**kept, "before": before}),
            states=get_args(State),
            procedures={name: known.title for name, known in PROCEDURES.items()},
        )

    @site.router.get("/data-sets")
    def show_data_sets(
        request: Request, reader: Reader, after: Annotated[PartyName | None, Query()] = None
    ) -> Response:
        shown, following = entries(tester.engine, after)
        published = [entry.model_dump(mode="json") for entry in shown if entry.data_sets]
        return site.page(request, "data_sets.html", reader, owners=published, following=following)

    @site.router.get("/studies/{digest}")
    def show_study(request: Request, digest: DigestPath, reader: Reader) -> Response:
        summary = tester.studies.summary(digest)
        study = tester.studies.parsed(digest)
        verdict = _verdict(tester, digest) if summary["state"] != "failed" else None
        result = None if verdict is None else verdict.result
        return site.page(
            request,
            "study.html",
            reader,
            summary=summary,
            rules=PUBLIC_RULES,
            study=study.model_dump(mode="json"),
            stated_purpose=study.stated_purpose,
            encoders=[encoder.words() for encoder in study.encoders],
            question=procedure_named(study.procedure).title,
            is_open=summary["state"] in OPEN,
            revision=revision(summary),
            verdict=None if verdict is None else verdict.model_dump(mode="json"),
            told=None if verdict is None else view_of(digest),
            sections=None if result is None else _sections(study, result),
            tester_key=tester.identity.key,
            file_name=_file_name(digest, "json"),
        )

    @site.router.get("/studies/{digest}/events")
    async def follow_study(
        digest: DigestPath, _: Reader, seen: Annotated[str, Query(pattern="^[0-9a-f]{16}$")]
    ) -> Response:
        return streams.response(digest, seen)

    @site.router.get("/studies/{digest}/transcript")
    def download_transcript(digest: DigestPath, _: Reader) -> Response:
        content = read_from(tester.engine, transcript_of, digest)
        if content is None:
            raise RegisteredProblemError("verdict-pending", retry_after_s=VERDICT_RETRY_S)
        response = json_response(content)
        return _download(response, _file_name(digest, "json"))

    @site.router.get("/studies/{digest}/report")
    def download_report(digest: DigestPath, _: Reader) -> Response:
        _signed_verdict(tester, digest)  # none of an archived study, of which something may still be kept
        told = view_of(digest)
        if told is None:
            raise RegisteredProblemError("not-found", detail="the study ended without a result")
        return _download(HTMLResponse(told.report), _file_name(digest, "html"))


def _download(response: Response, file_name: str) -> Response:
    response.headers["Content-Disposition"] = f'attachment; filename="{file_name}"'
    return response


def _file_name(digest: str, kind: str) -> str:
    return f"tacit-{short(digest)}.{kind}"


def _verdict(tester: Tester, digest: str) -> VerdictMessage | None:
    envelope = read_from(tester.engine, verdict_of, digest)
    if envelope is None:
        return None
    return decode(VerdictMessage, open_envelope(envelope, VERDICT_TYPE, tester.identity.key))


def _signed_verdict(tester: Tester, digest: str) -> VerdictMessage:
    """Return the verdict; raises ``verdict-pending`` while there is none, so that nothing is kept of it."""
    verdict = _verdict(tester, digest)
    if verdict is None:
        raise RegisteredProblemError("verdict-pending", retry_after_s=VERDICT_RETRY_S)
    return verdict


class _AsItIs(BaseModel):
    """A verdict whose procedure is not known here any more, or was another then: its fields by name."""

    model_config = ConfigDict(extra="allow")


@dataclass
class Section:
    """What a page says of one part of a verdict: terms, by field, and tables below them."""

    terms: list[tuple[str, str, str]] = field(default_factory=list)
    tables: list[dict[str, Any]] = field(default_factory=list)


def _sections(study: Study, result: dict[str, Any]) -> dict[Part, Section]:
    """Lay out a verdict's fields as its model says: by how much, how sure, and the rest."""
    known = PROCEDURES.get(study.procedure)
    try:
        kind = ProcedureResult if known is None else known.verdict_type(study)
        found: BaseModel = kind.model_validate_json(json.dumps(result))
    except (ValueError, StudyError):
        found = _AsItIs.model_validate(result)
    sections: dict[Part, Section] = {"effects": Section(), "test": Section(), "rest": Section()}
    for shown in shown_fields(found):
        section = sections[shown.part]
        if _is_records(shown.value):
            rows = _rows(shown.value[:RECORDS_MAX])
            more = max(0, len(shown.value) - RECORDS_MAX)
            section.tables.append({"title": capitalised(shown.label), "rows": rows, "more": more})
        else:
            section.terms.append((shown.name, shown.label, _term(shown)))
    return sections


def _term(shown: ShownField) -> str:
    """Write a field's value, with its interval and what is odd about that."""
    said = brief(shown.value) if shown.words is None else shown.words(shown.value)
    if shown.interval is None:
        return said
    lower, upper = shown.interval
    odd = "" if lower <= shown.value <= upper else f"; {OUTSIDE}"
    return f"{said} ({value(lower)} to {value(upper)}{odd})"


def _rows(records: Sequence[Any]) -> list[dict[str, Any]]:
    """Return records as lines of a table: what each is of, then its numbers; what is drawn is left out."""
    if all(isinstance(record, Effect) for record in records):
        return _lines(effects_table(records))
    if all(isinstance(record, Summary) for record in records):
        return _lines(summaries_table(records))
    lines = []
    for record in records:
        shown = shown_fields(record if isinstance(record, BaseModel) else _AsItIs.model_validate(record))
        kept = [each for each in shown if not _is_curve(each.value)]
        ordered = sorted(kept, key=lambda each: not isinstance(each.value, str | tuple | list | dict))
        lines.append({each.label: _term(each) for each in ordered})
    headings = dict.fromkeys(heading for line in lines for heading in line)
    return [{heading: line.get(heading, "–") for heading in headings} for line in lines]


def _lines(table: ShownTable) -> list[dict[str, Any]]:
    return [dict(zip(table.headings, row, strict=True)) for row in table.rows]


def _is_curve(found: Any) -> bool:
    return isinstance(found, tuple | list) and any(isinstance(part, float) for part in found)


def _is_records(found: Any) -> bool:
    """Say whether a field is a list of records; an identity test's "cells" is their number."""
    return (
        isinstance(found, list | tuple)
        and bool(found)
        and all(isinstance(record, BaseModel | dict) for record in found)
    )
