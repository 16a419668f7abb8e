"""The owner's pages, for a browser on the agent's own machine that its key has signed in."""

import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from starlette.responses import Response

from tacit_services.agent import views
from tacit_services.agent.agent import Agent, decide, require_row
from tacit_services.agent.policy_editing import TEXT_LENGTH_MAX, PolicyEditor, PolicyFaultError, Preview
from tacit_services.agent.schema import REASON_LENGTH, SIGN_IN, STUDIES, State
from tacit_services.agent.studies import StudyRow, finding_of, newest_studies, studies_in
from tacit_services.ledger.accounts import account_of
from tacit_services.ledger.verification import export
from tacit_services.shared.database import read_from
from tacit_services.shared.http_app import DigestPath
from tacit_services.shared.pages.formatting import burn_down
from tacit_services.shared.pages.openid import openid_of
from tacit_services.shared.pages.sessions import Sessions
from tacit_services.shared.pages.site import Page, Service, SignedIn, Site
from tacit_services.shared.problem_responses import ProblemError

OTHERS_MAX = 100
"""Studies listed that wait for no decision, the newest; the command lists all."""


def inbox(agent: Agent) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the studies that wait for a decision, oldest first, and the newest others."""
    waiting = read_from(agent.engine, studies_in, [State.WAITING])
    rest = STUDIES.c.state != State.WAITING.value
    others = read_from(agent.engine, newest_studies, OTHERS_MAX, rest)
    shown = [{**views.summary(agent, row), "payment": payment(agent, row)} for row in waiting]
    return shown, [views.summary(agent, row) for row in others]


def payment(agent: Agent, row: StudyRow) -> str | None:
    """Return in words which share of its account would pay for a study, or None where none would."""
    return read_from(agent.engine, views.payment, agent, row, row.data_set)


def accounts(agent: Agent) -> list[dict[str, Any]]:
    """Return every data set: what its account holds, and what settings and policy say of it."""
    status = {data_set["name"]: data_set for data_set in views.status(agent)["data_sets"]}
    shown = []
    for data_set in agent.settings.data_sets:
        account = read_from(agent.engine, account_of, data_set.name)
        shown.append(
            {
                **status[data_set.name],
                "head_hash": account.head_hash,
                "unit_column": data_set.unit_column,
                "columns": [column.model_dump() for column in data_set.columns],
                "allowed": agent.policy.columns_of(data_set.name),
            }
        )
    return shown


MENU = (
    Page("Asked of us", "/"),
    Page("Ledger", "/ledger"),
    Page("Data sets", "/data-sets"),
    Page("Policy", "/policy"),
)


def add_agent_pages(
    app: FastAPI,
    agent: Agent,
    editor: PolicyEditor,
    ring: Callable[[], None],
    owner_key: Callable[..., Any],
) -> None:
    """Add the pages; ``ring`` wakes the loop that runs studies, ``owner_key`` admits the owner's requests."""

    def identify(key: str) -> None:
        if key != agent.key.public_hex:
            raise ProblemError("sign-in-needed")  # the agent has another key since

    name = agent.settings.name
    sessions, key = Sessions(agent.engine, SIGN_IN, agent.clock), agent.key.public_hex
    openid = openid_of(agent.settings.openid, None, sessions.people, key, agent.clock)
    service = Service("agent", name, "tacit_services.agent", "tacit agent login", MENU, openid=openid)
    site = Site(service, sessions, identify, lambda _: "the owner's steward")
    _add_reading(site, agent)
    _add_deciding(site, agent, ring)
    _add_policy(site, agent, editor)
    site.add_to(app, owner_key)


def _add_reading(site: Site, agent: Agent) -> None:
    Steward = Annotated[SignedIn, Depends(site.signed_in)]

    @site.router.get("/")
    def show_inbox(request: Request, steward: Steward) -> Response:
        waiting, others = inbox(agent)
        status = views.status(agent)
        return site.page(request, "inbox.html", steward, waiting=waiting, others=others, status=status)

    @site.router.get("/studies/{digest}")
    def show_study(request: Request, digest: DigestPath, steward: Steward) -> Response:
        row = require_row(agent, digest)
        found = read_from(agent.engine, finding_of, digest)
        return site.page(
            request,
            "study.html",
            steward,
            study=views.detail(agent, row, agent.name),
            payment=payment(agent, row),
            finding=None if found is None else json.loads(found.finding),
            reason_length=REASON_LENGTH,
        )

    @site.router.get("/ledger")
    def show_ledger(request: Request, steward: Steward) -> Response:
        entries = read_from(agent.engine, export)
        shown = []
        for account in accounts(agent):
            own = [entry for entry in entries if entry["data_set"] == account["name"]]
            shown.append({**account, "entries": own, "chart": burn_down(own, int(agent.clock()))})
        return site.page(request, "ledger.html", steward, accounts=shown)

    @site.router.get("/data-sets")
    def show_data_sets(request: Request, steward: Steward) -> Response:
        return site.page(request, "data_sets.html", steward, accounts=accounts(agent))


def _add_deciding(site: Site, agent: Agent, ring: Callable[[], None]) -> None:
    Steward = Annotated[SignedIn, Depends(site.signed_in)]

    @site.router.post("/studies/{digest}/approval")
    def approve(
        digest: DigestPath, steward: Steward, _: Annotated[Mapping[str, str], Depends(site.form())]
    ) -> Response:
        decide(agent, digest, lambda: agent.approve(digest, steward.person))
        ring()
        return site.redirect(f"/studies/{digest}")

    @site.router.post("/studies/{digest}/decline")
    def decline(
        digest: DigestPath, steward: Steward, form: Annotated[Mapping[str, str], Depends(site.form("reason"))]
    ) -> Response:
        reason = read_reason(form)
        decide(agent, digest, lambda: agent.decline(digest, reason, steward.person))
        ring()
        return site.redirect(f"/studies/{digest}")


def _add_policy(site: Site, agent: Agent, editor: PolicyEditor) -> None:
    Officer = Annotated[SignedIn, Depends(site.signed_in)]
    Form = Annotated[Mapping[str, str], Depends(site.form("text", "seen", least="officer"))]
    file = agent.settings.policy_file.name

    @site.router.get("/policy")
    def show_policy(request: Request, officer: Officer) -> Response:
        shown, changes = agent.policy.model_dump(mode="json"), editor.changes()
        return site.page(
            request,
            "policy.html",
            officer,
            policy=shown,
            file=file,
            changes=changes,
            taken_up=editor.is_taken_up(),
        )

    @site.router.get("/policy/edit")
    def edit_policy(request: Request, officer: Officer) -> Response:
        officer.person.require("officer")
        now = editor.read()
        return show(request, officer, now.text, now.digest)

    @site.router.post("/policy/preview")
    def preview_policy(request: Request, officer: Officer, form: Form) -> Response:
        text, seen = text_of(form), form.get("seen", "")
        try:
            return show(request, officer, text, seen, preview=editor.preview(text))
        except PolicyFaultError as error:
            return show(request, officer, text, seen, fault=str(error))

    @site.router.post("/policy")
    def change_policy(request: Request, officer: Officer, form: Form) -> Response:
        text, seen = text_of(form), form.get("seen", "")
        try:
            editor.change(text, seen, officer.person)
        except PolicyFaultError as error:
            return show(request, officer, text, seen, fault=str(error))
        return site.redirect("/policy")

    def text_of(form: Mapping[str, str]) -> str:
        # Browsers end lines with two characters.
        text = form.get("text", "").replace("\r\n", "\n")
        return text if text.endswith("\n") else f"{text}\n"

    def show(
        request: Request,
        officer: SignedIn,
        text: str,
        seen: str,
        *,
        preview: Preview | None = None,
        fault: str | None = None,
    ) -> Response:
        writable = editor.read().writable
        shown = {"file": file, "text": text, "seen": seen, "preview": preview, "fault": fault}
        page = site.page(
            request, "policy_edit.html", officer, writable=writable, length_max=TEXT_LENGTH_MAX, **shown
        )
        if fault is not None:
            page.status_code = 422
        return page


def read_reason(form: Mapping[str, str]) -> str | None:
    """Return a steward's note from a form, or None; raises ``malformed-message`` where it is too long."""
    # Browsers count a line's end as one character, and send two.
    reason = form.get("reason", "").strip().replace("\r\n", "\n")
    if len(reason) > REASON_LENGTH:
        raise ProblemError("malformed-message", path="reason")
    return reason or None
