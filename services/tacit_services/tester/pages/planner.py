"""Small plans in processes of their own: one for each person, two in all, each with a time limit.

The process is the SDK's: it simulates studies of synthetic rows, and has neither this service's settings nor
its keys, nor a connection (docs/decisions/0018-plans-in-a-process-of-their-own.md).
"""

import asyncio
import json
import math
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.responses import Response

from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.reporting.svg import Drawing, horizontal, path_of, vertical
from tacit_services.shared.http_server import Stopping
from tacit_services.shared.pages.site import SignedIn, Site
from tacit_services.shared.problem_responses import ProblemError

COMMAND = (sys.executable, "-I", "-m", "tacit.planning.bounded")

AT_ONCE_MAX = 2
"""Plans at once in all: a tester's processors are for verdicts."""

LIMIT_S = 55.0
"""A plan still running then is killed; proxies commonly give up after sixty seconds."""

LOOK_S = 0.2
"""How often it is looked whether the service is stopping."""

RETRY_S = 20

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
            raise ProblemError("rate-limited", retry_after_s=RETRY_S)
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
            await asyncio.wait({answering}, timeout=LOOK_S)
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
