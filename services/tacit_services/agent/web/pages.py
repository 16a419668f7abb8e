"""The owner's pages, for a browser on the agent's own machine that its key has signed in."""

import csv
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request
from fastapi import Path as InPath
from starlette.responses import Response

from tacit_protocol.decimals import read_number, read_whole
from tacit_protocol.messages.study import DataSetName
from tacit_protocol.names import folded
from tacit_protocol.public_knowledge import CAUTION, Proposal
from tacit_services.agent.agent import Agent, decide, require_row
from tacit_services.agent.check import study_report
from tacit_services.agent.data.column_facts import CAUTION as FACTS_CAUTION
from tacit_services.agent.data.opening import SourceSettings
from tacit_services.agent.schema import REASON_LENGTH, SIGN_IN, STUDIES, State
from tacit_services.agent.study.intake import IntakeRefusedError
from tacit_services.agent.study.studies import StudyRow, finding_of, newest_studies
from tacit_services.agent.web import views
from tacit_services.agent.web.editing import (
    COLUMNS_SHOWN,
    QUERY_LENGTH_MAX,
    TEXT_LENGTH_MAX,
    ChosenRows,
    DataSetEditor,
    EditFaultError,
    PolicyEditor,
    Preview,
)
from tacit_services.ledger.accounts import account_of
from tacit_services.ledger.verification import export
from tacit_services.shared.database import read_from
from tacit_services.shared.http_app import DigestPath
from tacit_services.shared.pages.formatting import burn_down
from tacit_services.shared.pages.openid import openid_of
from tacit_services.shared.pages.sessions import Sessions
from tacit_services.shared.pages.site import MenuEntry, Service, SignedIn, Site
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.shared.settings import SettingsError

CHECKING = "another check is reading data here: wait until it has ended"

NUMBERS_SHOWN = 40
"""Numbers of one vector of a held release that its page shows; the command has all."""

OTHERS_MAX = 100
"""Studies listed that wait for no decision, the newest; the command lists all."""


def inbox(agent: Agent) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the studies that wait for a decision, oldest first, and the newest others."""
    waiting = [row for row, _ in agent.waiting_for(None)]
    rest = STUDIES.c.digest.not_in([row.digest for row in waiting])
    others = read_from(agent.engine, newest_studies, OTHERS_MAX, rest)
    shown = [{**views.summary(agent, row), "payment": payment(agent, row)} for row in waiting]
    return shown, [views.summary(agent, row) for row in others]


def payment(agent: Agent, row: StudyRow) -> str | None:
    """Return in words what a study would take of its account, or has taken; None where it takes nothing."""
    data_set = agent.settings.data_set(row.data_set or "")
    return read_from(agent.engine, views.payment, agent, row, None if data_set is None else data_set.account)


def accounts(agent: Agent) -> list[dict[str, Any]]:
    """Return every data set: what its account holds, and what settings and policy say of it."""
    status = {data_set["name"]: data_set for data_set in views.status(agent)["data_sets"]}
    shown = []
    for data_set in agent.settings.data_sets:
        account = read_from(agent.engine, account_of, data_set.account)
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


DataSetPath = Annotated[DataSetName, InPath()]

MENU = (
    MenuEntry("Asked of us", "/"),
    MenuEntry("Ledger", "/ledger"),
    MenuEntry("Data sets", "/data-sets"),
    MenuEntry("Policy", "/policy"),
    MenuEntry("People", "/people"),
)


def add_agent_pages(
    app: FastAPI,
    agent: Agent,
    editors: tuple[PolicyEditor, DataSetEditor],
    ring: Callable[[], None],
    owner_key: Callable[..., Any],
) -> None:
    """Add the pages; ``ring`` wakes the loop that runs studies, ``owner_key`` admits the owner's requests."""

    def identify(key: str) -> None:
        if key != agent.key.public_hex:
            raise RegisteredProblemError("sign-in-needed")  # the agent has another key since

    name = agent.settings.name
    sessions, key = Sessions(agent.engine, SIGN_IN, agent.clock), agent.key.public_hex
    openid = openid_of(agent.settings.openid, None, sessions.people, key, agent.clock)
    service = Service(
        "agent",
        name,
        "tacit_services.agent.web",
        "tacit agent login",
        MENU,
        agent.settings.by_tls,
        openid=openid,
    )
    site = Site(service, sessions, identify, lambda _: "the owner's steward")
    _add_reading(site, agent)
    _add_deciding(site, agent, ring)
    _add_policy(site, agent, editors[0])
    _add_data_sets(site, agent, editors[1])
    site.add_to(app, owner_key)


def _add_reading(site: Site, agent: Agent) -> None:
    Steward = Annotated[SignedIn, Depends(site.signed_in)]

    @site.router.get("/")
    def show_inbox(request: Request, steward: Steward) -> Response:
        waiting, others = inbox(agent)
        status = views.status(agent)
        return site.page(request, "inbox.html", steward, waiting=waiting, others=others, status=status)

    checking = threading.Lock()

    @site.router.get("/studies/{digest}")
    def show_study(request: Request, digest: DigestPath, steward: Steward) -> Response:
        return study_page(request, digest, steward, None)

    @site.router.post("/studies/{digest}/data-check")
    def check_data(
        request: Request,
        digest: DigestPath,
        steward: Steward,
        _: Annotated[Mapping[str, str], Depends(site.form())],
    ) -> Response:
        """Hold the rows against a study that waits: shown once, and kept and logged nowhere."""
        row = require_row(agent, digest)
        if row.state is not State.WAITING or row.envelope is None:
            raise RegisteredProblemError("already-decided")
        if not checking.acquire(blocking=False):
            return study_page(request, digest, steward, {"error": CHECKING, "data_sets": []})
        try:
            study = agent.intake.read(digest, row.envelope)
            return study_page(request, digest, steward, study_report(agent.settings, study))
        except (SettingsError, IntakeRefusedError) as error:
            return study_page(request, digest, steward, {"error": str(error), "data_sets": []})
        finally:
            checking.release()

    def study_page(
        request: Request, digest: str, steward: SignedIn, checked: Mapping[str, Any] | None
    ) -> Response:
        row = require_row(agent, digest)
        found = read_from(agent.engine, finding_of, digest)
        return site.page(
            request,
            "study.html",
            steward,
            study=views.detail(agent, row, SIGN_IN.people, agent.name) | {"held": agent.held_view(row)},
            payment=payment(agent, row),
            finding=None if found is None else json.loads(found.finding),
            numbers_shown=NUMBERS_SHOWN,
            look_first=agent.policy.look_before_sending,
            reason_length=REASON_LENGTH,
            checked=checked,
            caution=FACTS_CAUTION,
        )

    @site.router.get("/ledger")
    def show_ledger(request: Request, steward: Steward) -> Response:
        entries = read_from(agent.engine, export)
        shown: dict[str, dict[str, Any]] = {}
        for data_set in accounts(agent):
            name = data_set["account"]
            own = [entry for entry in entries if entry["data_set"] == name]
            found = {**data_set, "entries": own, "chart": burn_down(own, int(agent.clock())), "pays_for": []}
            shown.setdefault(name, found)["pays_for"].append(data_set["name"])
        return site.page(request, "ledger.html", steward, accounts=list(shown.values()))


def _add_deciding(site: Site, agent: Agent, ring: Callable[[], None]) -> None:
    Steward = Annotated[SignedIn, Depends(site.signed_in)]

    @site.router.post("/studies/{digest}/approval")
    def approve(
        digest: DigestPath, steward: Steward, _: Annotated[Mapping[str, str], Depends(site.form())]
    ) -> Response:
        decide(agent, digest, lambda: agent.approve(digest, steward.person))
        ring()
        return site.redirect(f"/studies/{digest}")

    @site.router.post("/studies/{digest}/sending")
    def send(
        digest: DigestPath, steward: Steward, _: Annotated[Mapping[str, str], Depends(site.form())]
    ) -> Response:
        decide(agent, digest, lambda: agent.send(digest, steward.person))
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

    @site.router.post("/data-sets/{data_set}/unlocking")
    def unlock(
        data_set: DataSetPath,
        steward: Steward,
        _: Annotated[Mapping[str, str], Depends(site.form())],
    ) -> Response:
        agent.unlock(data_set, steward.person)
        ring()
        return site.redirect("/data-sets")


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
    def edit_policy(
        request: Request, officer: Officer, data_set: Annotated[DataSetName | None, Query()] = None
    ) -> Response:
        officer.person.require("officer")
        try:
            now = editor.read()
        except SettingsError as error:
            raise RegisteredProblemError("not-found", detail=str(error)) from None
        return show(request, officer, now.text + proposed(data_set), now.digest)

    def proposed(name: str | None) -> str:
        """Propose the lines that let studies use the declared columns of a data set."""
        data_set = agent.settings.data_set(name or "")
        if data_set is None or agent.policy.columns_of(data_set.name) is not None:
            return ""
        columns = json.dumps([column.name for column in data_set.columns], ensure_ascii=False)
        return f"\n[data_sets.{json.dumps(data_set.name)}]\ncolumns = {columns}\n"

    @site.router.post("/policy/preview")
    def preview_policy(request: Request, officer: Officer, form: Form) -> Response:
        text, seen = text_of(form), form.get("seen", "")
        try:
            return show(request, officer, text, seen, preview=editor.preview(text))
        except EditFaultError as error:
            return show(request, officer, text, seen, fault=str(error))

    @site.router.post("/policy")
    def change_policy(request: Request, officer: Officer, form: Form) -> Response:
        text, seen = text_of(form), form.get("seen", "")
        try:
            editor.change(text, seen, officer.person)
        except EditFaultError as error:
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


PARTS = ("column", "kind", "lower", "upper", "levels")
"""What a form says of each column, by its number: ``column-0``, ``kind-0``."""

SAID = ("name", "people", "about", "units", "unit_column", "epsilon", "delta")


def _add_data_sets(site: Site, agent: Agent, editor: DataSetEditor) -> None:
    Someone = Annotated[SignedIn, Depends(site.signed_in)]
    place = ("file", "connection", "query")
    parts = [f"{part}-{number}" for part in PARTS for number in range(COLUMNS_SHOWN)]
    Place = Annotated[Mapping[str, str], Depends(site.form(*place, least="admin"))]
    Form = Annotated[Mapping[str, str], Depends(site.form(*place, *SAID, *parts, least="admin"))]

    @site.router.get("/data-sets")
    def show_data_sets(request: Request, someone: Someone) -> Response:
        return site.page(
            request,
            "data_sets.html",
            someone,
            accounts=accounts(agent),
            changes=editor.changes(),
            allowed=editor.is_allowed,
        )

    @site.router.get("/data-sets/new")
    def choose_source(request: Request, someone: Someone) -> Response:
        someone.person.require("admin")
        return choose(request, someone, {})

    @site.router.post("/data-sets/columns")
    def describe_columns(request: Request, someone: Someone, form: Place) -> Response:
        chosen = chosen_of(form)
        try:
            columns = editor.columns(chosen)
        except EditFaultError as error:
            return choose(request, someone, form, str(error))
        return describe(request, someone, chosen, form_of(chosen, columns), columns)

    @site.router.post("/data-sets/preview")
    def preview_data_set(request: Request, someone: Someone, form: Form) -> Response:
        return look(request, someone, form, add=False)

    @site.router.post("/data-sets")
    def add_data_set(request: Request, someone: Someone, form: Form) -> Response:
        return look(request, someone, form, add=True)

    def look(request: Request, someone: SignedIn, form: Mapping[str, str], *, add: bool) -> Response:
        chosen = chosen_of(form)
        try:
            columns = editor.columns(chosen)
        except EditFaultError as error:
            return choose(request, someone, form, str(error))
        try:
            said = data_set_of(form, columns)
            if add:
                editor.add(chosen, said, someone.person)
                return site.redirect("/data-sets")
            return describe(request, someone, chosen, form, columns, diff=editor.preview(chosen, said))
        except EditFaultError as error:
            return describe(request, someone, chosen, form, columns, fault=str(error))

    def choose(
        request: Request, someone: SignedIn, form: Mapping[str, str], fault: str | None = None
    ) -> Response:
        files = editor.files() if editor.is_allowed else []
        taken = {
            one: data_set.name
            for one in files
            for data_set in agent.settings.data_sets
            if data_set.is_of_same_rows(SourceSettings(source=one))
        }
        page = site.page(
            request,
            "data_set_new.html",
            someone,
            allowed=editor.is_allowed,
            files=files,
            taken=taken,
            connections=sorted(agent.settings.connections),
            form={name: form.get(name, "") for name in place},
            fault=fault,
            query_length=QUERY_LENGTH_MAX,
        )
        page.status_code = 200 if fault is None else 422
        return page

    def describe(
        request: Request,
        someone: SignedIn,
        chosen: ChosenRows,
        form: Mapping[str, str],
        columns: Sequence[Proposal],
        *,
        diff: Sequence[str] = (),
        fault: str | None = None,
    ) -> Response:
        names = [*SAID, *(f"{part}-{number}" for part in PARTS for number in range(len(columns)))]
        page = site.page(
            request,
            "data_set_columns.html",
            someone,
            chosen=chosen,
            columns=columns,
            form={name: form.get(name, "") for name in names},
            caution=CAUTION,
            types={column.type for column in columns} != {"unknown"},
            diff=diff,
            fault=fault,
            writable=editor.read().writable,
            file=editor.file.name,
            accounts=sorted({data_set.account for data_set in agent.settings.data_sets}),
            beside=editor.beside(chosen),
        )
        page.status_code = 200 if fault is None else 422
        return page


def chosen_of(form: Mapping[str, str]) -> ChosenRows:
    """Return where a form says that a data set's rows are: a file, or else a query."""
    file = form.get("file", "")
    if file:
        return ChosenRows(file=file)
    return ChosenRows(
        connection=form.get("connection", ""), query=form.get("query", "").replace("\r\n", "\n")
    )


def form_of(chosen: ChosenRows, columns: Sequence[Proposal]) -> dict[str, str]:
    """Fill a form in with what is proposed by names and types."""
    stem = Path(chosen.file).name.partition(".")[0] if chosen.file else ""
    form = {"name": re.sub(r"[^a-z0-9._-]+", "-", folded(stem)).strip("-._")[:63]}
    for number, column in enumerate(columns):
        fields = column.fields or {}
        form[f"column-{number}"] = column.name
        form[f"kind-{number}"] = str(fields.get("kind", ""))
        form[f"levels-{number}"] = _joined(fields.get("levels", ()))
        for end in ("lower", "upper"):
            found = fields.get(end, "")
            form[f"{end}-{number}"] = f"{found:g}" if isinstance(found, int | float) else ""
    return form


def _joined(levels: Sequence[str]) -> str:
    return ", ".join(f'"{level}"' if {",", '"'} & set(level) else level for level in levels)


def data_set_of(form: Mapping[str, str], columns: Sequence[Proposal]) -> dict[str, Any]:
    """Return the fields of a data set as a form states them.

    Raises:
        EditFaultError: a number is none, or a column of the form is none of the source's.
    """
    said: dict[str, Any] = {"name": form.get("name", "").strip()}
    for name in ("people", "about", "unit_column"):
        if form.get(name, "").strip():
            said[name] = form[name].strip()
    if form.get("units", "").strip():
        try:
            said["units"] = read_whole(form["units"])
        except ValueError as error:
            raise EditFaultError(f"units: {error}, or leave it empty") from None
    said |= {name: _number(name, form.get(name, "")) for name in ("epsilon", "delta")}
    names = [column.name for column in columns]
    if said.get("unit_column", names[0]) not in names:
        raise EditFaultError("unit_column: the source has no such column")
    stated = []
    for number, name in enumerate(names):
        kind = form.get(f"kind-{number}", "")
        if form.get(f"column-{number}", name) != name:
            raise EditFaultError("the columns have changed meanwhile: begin again")
        if kind == "numeric":
            ends = {
                end: _number(f"{name}, {end}", form.get(f"{end}-{number}", "")) for end in ("lower", "upper")
            }
            if not ends["lower"] < ends["upper"]:
                raise EditFaultError(f"{name}: lower must be less than upper")
            stated.append({"kind": kind, "name": name, **ends})
        elif kind == "categorical":
            levels = _levels(form.get(f"levels-{number}", ""))
            if not levels or len(set(levels)) < len(levels):
                raise EditFaultError(f"{name}: write its levels, each once, with a comma between them")
            stated.append({"kind": kind, "name": name, "levels": levels})
    return said | ({"columns": stated} if stated else {})


def _levels(text: str) -> list[str]:
    try:
        (found,) = csv.reader([" ".join(text.split())], skipinitialspace=True, strict=True) or ([],)
    except (csv.Error, ValueError):
        raise EditFaultError("levels: a quotation mark does not close") from None
    return [level.strip() for level in found if level.strip()]


def _number(name: str, text: str) -> float:
    try:
        return read_number(text)
    except ValueError as error:
        raise EditFaultError(f"{name}: {error}") from None


def read_reason(form: Mapping[str, str]) -> str | None:
    """Return a steward's note from a form, or None; raises ``malformed-message`` where it is too long."""
    # Browsers count a line's end as one character, and send two.
    reason = form.get("reason", "").strip().replace("\r\n", "\n")
    if len(reason) > REASON_LENGTH:
        raise RegisteredProblemError("malformed-message", path="reason")
    return reason or None
