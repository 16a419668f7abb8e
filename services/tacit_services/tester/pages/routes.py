"""The tester's pages, for whoever may read at the tester: its operator and every enrolled party."""

import asyncio
import hashlib
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import Depends, FastAPI, Path, Query, Request
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, Response, StreamingResponse

from tacit_protocol.messages.encoding import decode
from tacit_protocol.messages.study import Study
from tacit_protocol.messages.transcript import VerdictMessage
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.reporting.charts import NullPanel, Panel, PvaluePanel, number, panels_of
from tacit_protocol.reporting.report import Reported, meaning_of, report_html
from tacit_protocol.reporting.svg import panel_svg
from tacit_protocol.signing.envelope import VERDICT_TYPE, open_envelope
from tacit_protocol.verdicts.effects import effects_of, effects_table
from tacit_protocol.verdicts.panels import Bar, BarsPanel, CurvesPanel, RowsPanel
from tacit_protocol.verdicts.words import Meaning
from tacit_services.shared.database import DatabaseError, run_transaction
from tacit_services.shared.http_app import json_response
from tacit_services.shared.pages.formatting import short
from tacit_services.shared.pages.sessions import Sessions
from tacit_services.shared.pages.site import Page, Service, SignedIn, Site
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester.pages.planner import Planner, add_plans
from tacit_services.tester.parties import EVERYONE
from tacit_services.tester.reuse import received
from tacit_services.tester.routes import VERDICT_RETRY_S, Tester
from tacit_services.tester.studies import State, transcript_of, verdict_of
from tacit_services.tester.tables import SIGN_IN

STREAMS_MAX = 100
"""Streams at once; beyond them pages ask every ten seconds."""

LOOK_S = 1.0
"""Time between two looks: one short query each."""

STREAM_S = 600.0
"""How long one stream lasts; the browser opens the next by itself, and is asked for its session again."""

KEEP_ALIVE_LOOKS = 15
"""Looks without news after which a comment is sent, so that proxies keep the connection."""

RETRY_S = 30

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
            raise ProblemError("rate-limited", retry_after_s=RETRY_S)
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
            except (DatabaseError, ProblemError):
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
            await self._tester.bell.wait(rings, LOOK_S)


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
class VerdictView:
    """A completed study's verdict as its page and its report show it."""

    meaning: Meaning
    charts: tuple[Chart, ...]
    report: str


class VerdictViews:
    """Works out what is shown of verdicts; a verdict never changes, so that what was worked out is kept."""

    def __init__(self, tester: Tester) -> None:
        self._tester = tester
        self._kept: OrderedDict[str, VerdictView] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, digest: str, study: Study, verdict: VerdictMessage) -> VerdictView | None:
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

    def _work_out(self, digest: str, study: Study, verdict: VerdictMessage) -> VerdictView:
        tester, result = self._tester, verdict.result or {}
        releases = received(tester.engine, digest, study, tester.studies.parsed).releases
        reported = Reported(study, result, releases, digest)
        panels = panels_of(study, result, releases)
        report = report_html(reported, f"tacit {version('tacit')}", panels=panels)
        return VerdictView(meaning_of(study, result), tuple(_chart(panel) for panel in panels), report)


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
        case CurvesPanel():
            return Chart(panel.title, svg)
        case BarsPanel():
            bounded = any(bar.lower is not None for bar in panel.bars)
            headings = ("", panel.unit, "from", "to") if bounded else ("", panel.unit)
            return Chart(panel.title, svg, panel.note, headings, tuple(_cells(bar) for bar in panel.bars))


def _cells(bar: Bar) -> tuple[str, ...]:
    found = (bar.label, number(bar.value))
    return found if bar.lower is None or bar.upper is None else (*found, number(bar.lower), number(bar.upper))


MENU = (Page("Studies", "/"), Page("Plan", "/plan"))

RECORDS = {
    "effects": "Effects, each with its interval",
    "effects_by_owner": "Effects of each owner's own units",
    "curves": "Curves in numbers",
    "pairs": "Pairs compared, p-values adjusted for all of them",
    "columns": "Columns compared, p-values adjusted for all of them",
    "locations": "Where the owners differ",
    "cells": "Cells compared, p-values adjusted for all of them",
}
"""Tables that verdicts of several procedures have, and their titles."""

RECORDS_MAX = 50
"""Lines of one table that are shown; the transcript has all."""

FACTS = ("method", "statistic", "pvalue", "level", "epsilon", "delta")
"""What is said of every verdict that has it, in this order."""

Digest = Annotated[str, Path(pattern="^[0-9a-f]{64}$")]


def add_tester_pages(app: FastAPI, tester: Tester, public_url: str) -> None:
    """Add the pages to the tester's app."""
    service = Service(
        "tester",
        tester.identity.name,
        "tacit_services.tester.pages",
        "tacit tester login, or tacit party login",
        MENU,
        public_url,
    )
    site = Site(service, Sessions(tester.engine, SIGN_IN, tester.clock), tester.access.role)
    _add_studies(site, tester)
    add_plans(site, Planner(tester.stopping))
    site.add_to(app, tester.access.require(*EVERYONE))


def _add_studies(site: Site, tester: Tester) -> None:
    Reader = Annotated[SignedIn, Depends(site.signed_in)]
    streams, verdicts = Streams(tester), VerdictViews(tester)

    @site.router.get("/")
    def show_studies(
        request: Request,
        reader: Reader,
        before: Annotated[int | None, Query(ge=1, le=2**53)] = None,
        state: Annotated[State | None, Query()] = None,
    ) -> Response:
        listed = tester.studies.listing(before, state)
        return site.page(
            request, "studies.html", reader, studies=listed["items"], following=listed["next"], state=state
        )

    @site.router.get("/studies/{digest}")
    def show_study(request: Request, digest: Digest, reader: Reader) -> Response:
        summary = tester.studies.summary(digest)
        study = tester.studies.parsed(digest)
        verdict = _verdict(tester, digest) if summary["state"] != "failed" else None
        result = None if verdict is None else verdict.result
        return site.page(
            request,
            "study.html",
            reader,
            summary=summary,
            study=study.model_dump(mode="json"),
            question=procedure_named(study.procedure).title,
            is_open=summary["state"] in OPEN,
            revision=revision(summary),
            verdict=None if verdict is None else verdict.model_dump(mode="json"),
            told=None if verdict is None else verdicts.of(digest, study, verdict),
            shown=None if result is None else _shown(result),
            tester_key=tester.identity.key,
            file_name=_file_name(digest, "json"),
        )

    @site.router.get("/studies/{digest}/events")
    async def follow_study(
        digest: Digest, _: Reader, seen: Annotated[str, Query(pattern="^[0-9a-f]{16}$")]
    ) -> Response:
        return streams.response(digest, seen)

    @site.router.get("/studies/{digest}/transcript")
    def download_transcript(digest: Digest, _: Reader) -> Response:
        content = run_transaction(tester.engine, lambda c: transcript_of(c, digest), read_only=True)
        if content is None:
            raise ProblemError("verdict-pending", retry_after_s=VERDICT_RETRY_S)
        response = json_response(content)
        return _download(response, _file_name(digest, "json"))

    @site.router.get("/studies/{digest}/report")
    def download_report(digest: Digest, _: Reader) -> Response:
        verdict = _verdict(tester, digest)
        if verdict is None:
            raise ProblemError("verdict-pending", retry_after_s=VERDICT_RETRY_S)
        told = verdicts.of(digest, tester.studies.parsed(digest), verdict)
        if told is None:
            raise ProblemError("not-found", detail="the study ended without a result")
        return _download(HTMLResponse(told.report), _file_name(digest, "html"))


def _download(response: Response, file_name: str) -> Response:
    response.headers["Content-Disposition"] = f'attachment; filename="{file_name}"'
    return response


def _file_name(digest: str, kind: str) -> str:
    return f"tacit-{short(digest)}.{kind}"


def _verdict(tester: Tester, digest: str) -> VerdictMessage | None:
    def read(connection: sa.Connection) -> bytes | None:
        return verdict_of(connection, digest)

    envelope = run_transaction(tester.engine, read, read_only=True)
    if envelope is None:
        return None
    return decode(VerdictMessage, open_envelope(envelope, VERDICT_TYPE, tester.identity.key))


def _shown(result: dict[str, Any]) -> dict[str, Any]:
    """Sort a verdict's fields into what is shown: facts, tables of records, and the rest."""
    records = {name: result[name] for name in RECORDS if _is_records(result.get(name))}
    special = {*records, *FACTS, "reject", "units", "warnings", "counts"}
    rest = {
        name: found for name, found in result.items() if name not in special and found not in (None, [], ())
    }
    return {
        "facts": {name: result[name] for name in FACTS if result.get(name) is not None},
        "records": [
            {
                "title": RECORDS[name],
                "rows": _rows(name, found[:RECORDS_MAX]),
                "more": max(0, len(found) - RECORDS_MAX),
            }
            for name, found in records.items()
        ],
        "rest": rest,
    }


def _rows(name: str, records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return records as lines of a table: effects in words, and of curves what is not drawn."""
    if name.startswith("effects"):
        shown = effects_table(effects_of(records))
        return [dict(zip(shown.headings, row, strict=True)) for row in shown.rows]
    if name == "curves":
        kept = ("median", "restricted_mean")
        return [{"group": r["group"]} | {n: _with_ends(r, n) for n in kept} for r in records]
    return records


def _with_ends(record: dict[str, Any], name: str) -> str:
    ends = (record[name], record[f"{name}_lower"], record[f"{name}_upper"])
    value, low, high = ("–" if end is None else number(end) for end in ends)
    return f"{value} ({low} to {high})"


def _is_records(found: Any) -> bool:
    # An identity test's "cells" is their number, and no list of them.
    return isinstance(found, list) and bool(found) and all(isinstance(record, dict) for record in found)
