"""The tester's pages, for whoever may read at the tester: its operator and every enrolled party."""

from typing import Annotated, Any

import sqlalchemy as sa
from fastapi import Depends, FastAPI, Path, Query, Request
from starlette.responses import HTMLResponse, Response

from tacit_protocol.messages.encoding import decode
from tacit_protocol.messages.verdict import VerdictMessage
from tacit_protocol.procedures.registry import procedure_named
from tacit_protocol.signing.envelope import VERDICT_TYPE, open_envelope
from tacit_services.shared.database import run_transaction
from tacit_services.shared.http_app import json_response
from tacit_services.shared.pages.sessions import Sessions
from tacit_services.shared.pages.site import Page, Service, SignedIn, Site
from tacit_services.shared.pages.words import short
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester.access import EVERYONE
from tacit_services.tester.pages.planner import Planner
from tacit_services.tester.pages.plans import add_plans
from tacit_services.tester.pages.progress import OPEN, Streams, revision
from tacit_services.tester.pages.verdicts import ShownVerdicts
from tacit_services.tester.routes import VERDICT_RETRY_S, Tester
from tacit_services.tester.studies import State, verdict_of
from tacit_services.tester.tables import SIGN_IN
from tacit_services.tester.transcripts import transcript_of

MENU = (Page("Studies", "/"), Page("Plan", "/plan"))

RECORDS = {
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
    streams, verdicts = Streams(tester), ShownVerdicts(tester)

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
            {"title": RECORDS[name], "rows": found[:RECORDS_MAX], "more": max(0, len(found) - RECORDS_MAX)}
            for name, found in records.items()
        ],
        "rest": rest,
    }


def _is_records(found: Any) -> bool:
    # An identity test's "cells" is their number, and no list of them.
    return isinstance(found, list) and bool(found) and all(isinstance(record, dict) for record in found)
