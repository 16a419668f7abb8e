"""The curator's pages: to the operator everything and no decision, to an owner its own and its decisions."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from sqlalchemy.engine import Connection
from starlette.responses import Response

from tacit_services.agent.schema import REASON_LENGTH
from tacit_services.agent.study.studies import newest_studies
from tacit_services.agent.web.pages import read_reason
from tacit_services.curator import routes
from tacit_services.curator.curator import Curator, Decision, asking, decisions_on
from tacit_services.curator.data_sets import SIGN_IN, account_name, view
from tacit_services.curator.routes import Caller, CuratorContext, NamePath, OwnerPath, decide, require_study
from tacit_services.ledger.accounts import account_of, standing
from tacit_services.shared.database import read_from
from tacit_services.shared.http_app import DigestPath
from tacit_services.shared.pages.formatting import burn_down
from tacit_services.shared.pages.openid import openid_of
from tacit_services.shared.pages.sessions import Sessions
from tacit_services.shared.pages.site import MenuEntry, Service, SignedIn, Site
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.shared.settings import OpenIdSettings

MENU = (
    MenuEntry("Studies", "/"),
    MenuEntry("Data sets", "/data-sets"),
    MenuEntry("Ledger", "/ledger"),
    MenuEntry("People", "/people"),
)

STUDIES_MAX = 100
"""Studies listed, the newest; the command lists all."""


def add_curator_pages(
    app: FastAPI,
    curator: Curator,
    context: CuratorContext,
    public_url: str,
    ring: Callable[[], None],
    *,
    openid: OpenIdSettings | None = None,
) -> None:
    """Add the pages to the curator's app; ``ring`` wakes the loop that runs studies."""
    sessions, key = Sessions(curator.engine, SIGN_IN, context.clock), context.identity.key
    provider = openid_of(openid or OpenIdSettings(), public_url, sessions.people, key, context.clock)
    service = Service(
        "curator",
        curator.name,
        "tacit_services.curator",
        "tacit owner login, or tacit curator login",
        MENU,
        public_url.startswith("https://"),
        public_url,
        provider,
    )

    def named(key: str) -> str:
        owner = context.access.caller_of(key).owner
        return "the operator" if owner is None else f"{owner}, owner"

    site = Site(service, sessions, context.access.caller_of, named)

    def may_sign_in(caller: Annotated[Caller, Depends(context.access.caller)]) -> str:
        return caller.key

    _add_studies(site, curator)
    _add_holdings(site, curator, context)
    _add_deciding(site, curator, ring)
    site.add_to(app, may_sign_in)


def _add_studies(site: Site, curator: Curator) -> None:
    Someone = Annotated[SignedIn, Depends(site.signed_in)]

    @site.router.get("/")
    def show_studies(request: Request, someone: Someone) -> Response:
        owner = someone.who.owner

        def read(connection: Connection) -> list[dict[str, Any]]:
            studies = curator.shown()
            rows = newest_studies(connection, STUDIES_MAX, *asking(studies, owner), studies=studies)
            decisions = decisions_on(connection, [row.digest for row in rows])
            return [routes.summary(curator, row, decisions[row.digest], owner) for row in rows]

        return site.page(
            request, "studies.html", someone, studies=read_from(curator.engine, read), owner=owner
        )

    @site.router.get("/studies/{digest}")
    def show_study(request: Request, digest: DigestPath, someone: Someone) -> Response:
        owner = someone.who.owner

        def read(connection: Connection) -> dict[str, Any]:
            row, decisions = require_study(connection, digest, owner, curator.shown())
            return routes.detail(connection, curator, row, decisions, owner)

        study = read_from(curator.engine, read)
        waits = study["state"] == "waiting-for-approval" and any(
            part["owner"] == owner and part["decision"] == Decision.WAITING.value for part in study["owners"]
        )
        shown = {"study": study, "owner": owner, "waits": waits, "reason_length": REASON_LENGTH}
        return site.page(request, "study.html", someone, **shown)


def _add_holdings(site: Site, curator: Curator, context: CuratorContext) -> None:
    Someone = Annotated[SignedIn, Depends(site.signed_in)]

    @site.router.get("/data-sets")
    def show_data_sets(request: Request, someone: Someone) -> Response:
        owner = someone.who.owner

        def read(connection: Connection) -> list[dict[str, Any]]:
            held = context.data_sets.held_data_sets(connection, owner)
            now = context.now()
            return [view(connection, item, to_owner=owner is not None, now=now) for item in held]

        owners = read_from(curator.engine, context.enrolment.page, None) if owner is None else None
        return site.page(
            request,
            "data_sets.html",
            someone,
            data_sets=read_from(curator.engine, read),
            owners=owners,
            owner=owner,
        )

    @site.router.get("/ledger")
    def show_ledger(request: Request, someone: Someone) -> Response:
        now = context.now()

        def read(connection: Connection) -> list[dict[str, Any]]:
            shown = []
            for name in routes.accounts_of(connection, someone.who.owner):
                entries = routes.ledger(connection, [name])
                account = account_of(connection, name)
                found = {"entries": entries, "head_hash": account.head_hash, "chart": burn_down(entries, now)}
                shown.append({"name": name, **found, **standing(account).model_dump()})
            return shown

        return site.page(request, "ledger.html", someone, accounts=read_from(curator.engine, read))


def _add_deciding(site: Site, curator: Curator, ring: Callable[[], None]) -> None:
    Someone = Annotated[SignedIn, Depends(site.signed_in)]

    def owner_of(someone: SignedIn) -> str:
        if someone.who.owner is None:
            raise RegisteredProblemError("forbidden")
        return str(someone.who.owner)

    @site.router.post("/studies/{digest}/approval")
    def approve(
        digest: DigestPath, someone: Someone, _: Annotated[Mapping[str, str], Depends(site.form())]
    ) -> Response:
        owner = owner_of(someone)
        decide(curator, digest, owner, lambda: curator.approve(digest, owner, someone.person))
        ring()
        return site.redirect(f"/studies/{digest}")

    @site.router.post("/data-sets/{owner}/{name}/unlocking")
    def unlock(
        owner: OwnerPath,
        name: NamePath,
        someone: Someone,
        _: Annotated[Mapping[str, str], Depends(site.form())],
    ) -> Response:
        someone.who.require_may_see(owner)
        curator.unlock(account_name(owner, name), someone.person, hides=someone.who.owner is not None)
        ring()
        return site.redirect("/data-sets")

    @site.router.post("/studies/{digest}/decline")
    def decline(
        digest: DigestPath, someone: Someone, form: Annotated[Mapping[str, str], Depends(site.form("reason"))]
    ) -> Response:
        owner, reason = owner_of(someone), read_reason(form)
        decide(curator, digest, owner, lambda: curator.decline(digest, owner, reason, someone.person))
        ring()
        return site.redirect(f"/studies/{digest}")
