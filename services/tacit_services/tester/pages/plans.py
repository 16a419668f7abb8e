"""The page of plans: a form, and the power curve of a simulated study with its numbers and its words."""

import math
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Depends, Request
from starlette.responses import Response

from tacit_protocol.procedures.registry import PROCEDURES
from tacit_protocol.reporting.axes import Drawing, horizontal, path_of, vertical
from tacit_services.shared.pages.site import SignedIn, Site
from tacit_services.tester.pages.planner import Planner

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
