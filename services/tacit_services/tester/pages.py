"""The tester's pages: studies, charts, live events; and small plans in processes of their own.

Plans: one for each person, two in all, each with a time limit. The process is the SDK's: it simulates studies
of synthetic rows, and has neither this service's settings nor its keys, nor a connection
(docs/decisions/0018-plans-in-a-process-of-their-own.md).
"""

import asyncio
import hashlib
import json
import math
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, Response, StreamingResponse

from tacit_protocol.messages.encoding import decode
from tacit_protocol.messages.study import PUBLIC_RULES, PartyName, Study, VerdictMessage
from tacit_protocol.procedures.discovery import PROCEDURES, procedure_named
from tacit_protocol.reporting.charts import NullPanel, Panel, PvaluePanel, number, panels_of, percent
from tacit_protocol.reporting.report import Reported, meaning_of, report_html
from tacit_protocol.reporting.svg import Drawing, horizontal, panel_svg, path_of, vertical
from tacit_protocol.signing import VERDICT_TYPE, open_envelope
from tacit_protocol.verdicts.effects import Summary, effects_of, effects_table, summaries_table
from tacit_protocol.verdicts.presentation import Bar, BarsPanel, CurvesPanel, HeatPanel, Meaning, RowsPanel
from tacit_services.shared.database import DatabaseError, read_from
from tacit_services.shared.http_app import DigestPath, json_response
from tacit_services.shared.http_server import Stopping
from tacit_services.shared.pages.formatting import short
from tacit_services.shared.pages.sessions import Sessions
from tacit_services.shared.pages.site import Page, Service, SignedIn, Site
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester.catalogue import entries
from tacit_services.tester.parties import EVERYONE
from tacit_services.tester.reuse import received
from tacit_services.tester.routes import VERDICT_RETRY_S, Tester
from tacit_services.tester.studies import State, transcript_of, verdict_of
from tacit_services.tester.tables import SIGN_IN

COMMAND = (sys.executable, "-I", "-m", "tacit.planning.bounded")

AT_ONCE_MAX = 2
"""Plans at once in all: a tester's processors are for verdicts."""

LIMIT_S = 55.0
"""A plan still running then is killed; proxies commonly give up after sixty seconds."""

PLAN_LOOK_S = 0.2
"""How often it is looked whether the service is stopping."""

PLAN_RETRY_S = 20

ANSWER_BYTES_MAX = 2**18

TOO_SLOW = "This took too long: ask for fewer units or columns, or use tacit plan on your own machine."
FAILED = "The simulation failed. Ask for fewer units or columns, or use tacit plan on your own machine."


class Planner:
    """Runs plans for the people who are signed in.

    Args:
        stopping: whether the service has been asked to stop: no plan outlives that.
        command: starts the process; COMMAND by default.
        limit_s: how long one plan may take; LIMIT_S by default.
    """

    def __init__(
        self, stopping: Stopping, command: tuple[str, ...] | None = None, limit_s: float | None = None
    ) -> None:
        self._stopping, self._command = stopping, command or COMMAND
        self._limit_s = limit_s or LIMIT_S
        self._planning: set[str] = set()

    async def plan(self, person: str, fields: Mapping[str, str]) -> dict[str, Any]:
        """Return ``{"plan": ...}``, or ``{"refused": "what to change"}``.

        Args:
            person: whose plan; a person has one at a time.
            fields: the form's.

        Raises:
            ProblemError: ``rate-limited``: the person has a plan under way, or too many others have.
        """
        # Nothing is awaited between the look and the entry, so that two requests cannot both get in.
        if person in self._planning or len(self._planning) >= AT_ONCE_MAX:
            raise ProblemError("rate-limited", retry_after_s=PLAN_RETRY_S)
        self._planning.add(person)
        try:
            return await self._run(json.dumps(dict(fields)).encode())
        finally:
            self._planning.discard(person)

    async def _run(self, sent: bytes) -> dict[str, Any]:
        process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={"PATH": os.defpath, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            cwd="/",
            start_new_session=True,
        )
        answering = asyncio.ensure_future(process.communicate(sent))
        try:
            if not await self._ended(answering):
                return {"refused": TOO_SLOW}
            return _answer(process.returncode, (await answering)[0])
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            answering.cancel()
            with suppress(asyncio.CancelledError):
                await process.wait()

    async def _ended(self, answering: "asyncio.Future[Any]") -> bool:
        """Wait for the process; False where its time is up, or the service stops."""
        loop = asyncio.get_running_loop()
        limit = loop.time() + self._limit_s
        while not answering.done():
            if self._stopping.requested or loop.time() > limit:
                return False
            await asyncio.wait({answering}, timeout=PLAN_LOOK_S)
        return True


def _answer(code: int | None, written: bytes) -> dict[str, Any]:
    """Read what the process wrote. Its memory or processor limits may have ended it."""
    if code != 0 or len(written) > ANSWER_BYTES_MAX:
        return {"refused": FAILED}
    found = json.loads(written)
    return (
        found if isinstance(found, dict) and ("plan" in found or "refused" in found) else {"refused": FAILED}
    )


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
        request: Request, fields: Annotated[Mapping[str, str], Depends(site.form(*FIELDS))], reader: Reader
    ) -> Response:
        asked = {name: fields.get(name, "") for name in FIELDS}
        if any(len(text) > FIELD_LENGTH_MAX for text in asked.values()):
            answer: dict[str, Any] = {"refused": f"A field has {FIELD_LENGTH_MAX} characters at most."}
        else:
            answer = await planner.plan(reader.session.key, asked)
        response = _page(site, request, reader, asked, answer)
        if "refused" in answer:
            response.status_code = 422
        return response


def _page(
    site: Site, request: Request, reader: SignedIn, fields: Mapping[str, str], answer: Mapping[str, Any]
) -> Response:
    found = answer.get("plan")
    return site.page(
        request,
        "plan.html",
        reader,
        fields=fields,
        procedures={name: procedure.title for name, procedure in PROCEDURES.items()},
        refused=answer.get("refused"),
        plan=found,
        chart=None if found is None else drawn(found["curve"], found["target"]),
    )


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
            raise ProblemError("rate-limited", retry_after_s=STREAM_RETRY_S)
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
            await self._tester.bell.wait(rings, STREAM_LOOK_S)


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


SHARES_NOTE = "Shares are estimated without bias from noisy answers, so that some may lie below 0."


def _chart(panel: Panel) -> Chart:
    svg = Markup(panel_svg(panel))  # noqa: S704 (made there, with every word of others escaped)
    match panel:
        case NullPanel():
            note = f"Drawn: {panel.null.words}. Shaded: what lies beyond the statistic."
            return Chart("The statistic and its null distribution", svg, note)
        case PvaluePanel():
            return Chart("The p-value and the level", svg)
        case RowsPanel() | CurvesPanel():
            return Chart(panel.title, svg)
        case HeatPanel():
            headings = (" \\ ".join(panel.of), *panel.columns)
            rows = zip(panel.rows, panel.shown, strict=True)
            cells = tuple((label, *(f"{percent(share)} %" for share in own)) for label, own in rows)
            return Chart(panel.title, svg, SHARES_NOTE, headings, cells)
        case BarsPanel():
            bounded = any(bar.lower is not None for bar in panel.bars)
            headings = ("", panel.unit, "from", "to") if bounded else ("", panel.unit)
            return Chart(panel.title, svg, panel.note, headings, tuple(_cells(bar) for bar in panel.bars))


def _cells(bar: Bar) -> tuple[str, ...]:
    found = (bar.label, number(bar.value))
    return found if bar.lower is None or bar.upper is None else (*found, number(bar.lower), number(bar.upper))


MENU = (Page("Studies", "/"), Page("Data sets", "/data-sets"), Page("Plan", "/plan"))

RECORDS = {
    "effects": "Effects, each with its interval",
    "effects_by_owner": "Effects of each owner's own units",
    "summaries": "Each owner's own numbers, with their intervals",
    "curves": "Curves in numbers",
    "pairs": "Pairs compared, p-values adjusted for all of them",
    "columns": "Columns compared, p-values adjusted for all of them",
    "within_owners": "The same pairs within owners, p-values adjusted for all of them",
    "locations": "Where the owners differ",
    "cells": "Cells compared, p-values adjusted for all of them",
}
"""Tables that verdicts of several procedures have, and their titles."""

RECORDS_MAX = 50
"""Lines of one table that are shown; the transcript has all."""

FACTS = ("method", "statistic", "pvalue", "level", "epsilon", "delta")
"""What is said of every verdict that has it, in this order."""


def add_tester_pages(app: FastAPI, tester: Tester, public_url: str) -> None:
    """Add the pages to the tester's app."""
    service = Service(
        "tester",
        tester.identity.name,
        "tacit_services.tester",
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
        digest: DigestPath, _: Reader, seen: Annotated[str, Query(pattern="^[0-9a-f]{16}$")]
    ) -> Response:
        return streams.response(digest, seen)

    @site.router.get("/studies/{digest}/transcript")
    def download_transcript(digest: DigestPath, _: Reader) -> Response:
        content = read_from(tester.engine, transcript_of, digest)
        if content is None:
            raise ProblemError("verdict-pending", retry_after_s=VERDICT_RETRY_S)
        response = json_response(content)
        return _download(response, _file_name(digest, "json"))

    @site.router.get("/studies/{digest}/report")
    def download_report(digest: DigestPath, _: Reader) -> Response:
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
    envelope = read_from(tester.engine, verdict_of, digest)
    if envelope is None:
        return None
    return decode(VerdictMessage, open_envelope(envelope, VERDICT_TYPE, tester.identity.key))


def _shown(result: dict[str, Any]) -> dict[str, Any]:
    """Sort a verdict's fields into what is shown: facts, tables of records, and the rest."""
    records = {name: result[name] for name in RECORDS if _is_records(result.get(name))}
    special = {*records, *FACTS, "reject", "units", "warnings", "counts"}
    if "shape" in result:  # of tables of counts: the study says as much
        special |= {"shape", "columns"}
    rest = _in_words(
        {n: found for n, found in result.items() if n not in special and found not in (None, [], ())}
    )
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
    if name.startswith("effects") or name == "summaries":
        shown = (
            summaries_table([Summary.model_validate(record, strict=False) for record in records])
            if name == "summaries"
            else effects_table(effects_of(records))
        )
        return [dict(zip(shown.headings, row, strict=True)) for row in shown.rows]
    if name == "curves":
        kept = ("median", "restricted_mean")
        return [{"group": r["group"]} | {n: _with_ends(r, n) for n in kept} for r in records]
    return [_in_words(record) for record in records]


def _in_words(fields: dict[str, Any]) -> dict[str, Any]:
    """Order fields, which signed texts sort by name: what it is of, then numbers; ends are one interval."""
    ordered = sorted(fields, key=lambda name: not isinstance(fields[name], str | list | dict))
    found = {name: fields[name] for name in ordered}
    if isinstance(found.get("lower"), float) and isinstance(found.get("upper"), float):
        found["interval"] = f"{number(found.pop('lower'))} to {number(found.pop('upper'))}"
    return found


def _with_ends(record: dict[str, Any], name: str) -> str:
    ends = (record[name], record[f"{name}_lower"], record[f"{name}_upper"])
    value, low, high = ("–" if end is None else number(end) for end in ends)
    return f"{value} ({low} to {high})"


def _is_records(found: Any) -> bool:
    # An identity test's "cells" is their number, and no list of them.
    return isinstance(found, list) and bool(found) and all(isinstance(record, dict) for record in found)
