"""The agent's interface: how an owner's commands read, decide and unlock."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Query, Request
from fastapi.responses import Response
from pydantic import Field

from tacit_protocol.messages.answers import (
    AgentStatus,
    AskedStudy,
    AskedStudyInFull,
    FoundHere,
    LaterStudies,
    LedgerEntries,
    LedgerVerification,
    ListPage,
)
from tacit_protocol.messages.study import Digest
from tacit_protocol.strict import StrictModel
from tacit_services.agent.agent import Agent, decide, require_row
from tacit_services.agent.schema import REASON_LENGTH, SIGN_IN, State
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.studies import count_by_state, finding_of, page_of_studies
from tacit_services.agent.study.tester_client import TesterError
from tacit_services.agent.web import views
from tacit_services.agent.web.editing import DataSetEditor, PolicyEditor
from tacit_services.agent.web.pages import DataSetPath, add_agent_pages, payment
from tacit_services.ledger.verification import export, inspect
from tacit_services.shared.database import check_database, read_from
from tacit_services.shared.http_app import (
    BearerToken,
    DigestPath,
    answer_schema,
    body_schema,
    create_app,
    json_body,
    json_response,
)
from tacit_services.shared.http_server import recognise
from tacit_services.shared.pages.site import Empty
from tacit_services.shared.problem_responses import RegisteredProblemError

PAGE_SIZE = 100
"""Studies in one page of a list."""

HASHES_MAX = 100
"""Kept hashes in one question."""

HashList = Annotated[str, Query(pattern=f"^[0-9a-f]{{64}}(,[0-9a-f]{{64}}){{0,{HASHES_MAX - 1}}}$")]


class Decline(StrictModel):
    """A steward's decline; the reason is a note for the owner's own record."""

    reason: Annotated[str, Field(max_length=REASON_LENGTH)] | None = None


@dataclass(frozen=True)
class Runtime:
    """What runs beside the interface: whether it does, and how to wake it."""

    version: str
    alive: Callable[[], bool]
    ring: Callable[[], None]
    republish: Callable[[], None] = lambda: None


def create_agent_app(agent: Agent, runtime: Runtime) -> FastAPI:
    """Create the agent's app."""

    def check_ready() -> None:
        check_database(agent.engine)
        if not runtime.alive():
            raise RuntimeError("a loop of the agent has stopped")

    def gauges() -> Mapping[str, Mapping[str, int]]:
        return {"studies": read_from(agent.engine, count_by_state, agent.shown())}

    app = create_app(
        title="Tacit agent",
        version=runtime.version,
        metrics_prefix="tacit_agent",
        check_ready=check_ready,
        gauges=gauges,
        hosts=agent.settings.page_hosts,
        insists_on_tls=agent.settings.insists_on_tls,
    )
    token = BearerToken(f"agent:{agent.settings.name}", agent.clock)

    async def require_owner(request: Request, key: Annotated[str, Depends(token)]) -> str:
        if key != agent.key.public_hex:
            raise RegisteredProblemError("forbidden")
        recognise(request.scope, key)
        return key

    owner = [Depends(require_owner)]
    _add_reading(app, agent, owner)
    _add_deciding(app, agent, runtime, owner)
    editors = PolicyEditor(agent, runtime.republish), DataSetEditor(agent, runtime.republish)
    add_agent_pages(app, agent, editors, runtime.ring, require_owner)
    return app


def _add_reading(app: FastAPI, agent: Agent, owner: list[Any]) -> None:
    @app.get("/v1/status", dependencies=owner, **answer_schema(AgentStatus))
    def show_status() -> Response:
        """Show who the agent is, what its accounts hold, and how many studies are in each state."""
        return json_response(views.status(agent))

    @app.get("/v1/studies", dependencies=owner, **answer_schema(ListPage[AskedStudy]))
    def list_studies(
        state: State | None = None, cursor: Annotated[Digest | None, Query()] = None
    ) -> Response:
        """List what is asked of this owner."""
        rows = read_from(agent.engine, page_of_studies, state, cursor, PAGE_SIZE)
        following = rows[-1].digest if len(rows) == PAGE_SIZE else None
        return json_response({"items": [views.summary(agent, row) for row in rows], "next": following})

    @app.get("/v1/studies/{digest}", dependencies=owner, **answer_schema(AskedStudyInFull))
    def show_study(digest: DigestPath) -> Response:
        """Show one study: what it asks, what would leave, what it costs, and its verdict if known."""
        row = require_row(agent, digest)
        shown = views.detail(agent, row, SIGN_IN.people, agent.name)
        return json_response(shown | {"held": agent.held_view(row), "payment": payment(agent, row)})

    @app.get("/v1/studies/{digest}/reuses", dependencies=owner, **answer_schema(LaterStudies))
    def show_reuses(digest: DigestPath) -> Response:
        """Show which later studies read this owner's release again, as the tester says."""
        require_row(agent, digest)
        try:
            later: list[str] | None = list(Fetcher(agent).reused_by(digest))
        except TesterError:
            later = None
        return json_response({"digest": digest, "reused_by": later})

    @app.get("/v1/studies/{digest}/finding", dependencies=owner, **answer_schema(FoundHere))
    def show_finding(digest: DigestPath) -> Response:
        """Show what was found with another owner's release: exact in this owner's data, it stays here."""
        row = require_row(agent, digest)
        found = read_from(agent.engine, finding_of, digest)
        if found is None:
            raise RegisteredProblemError("not-found", detail="nothing was found by this agent in that study")
        return json_response(views.finding(agent, row, bytes(found.finding), int(found.found_at)))

    @app.get("/v1/ledger", dependencies=owner, **answer_schema(LedgerEntries))
    def show_ledger(data_set: str | None = None) -> Response:
        """Show the ledger's entries, oldest first; of one data set those of the account that pays for it."""
        known = None if data_set is None else agent.settings.data_set(data_set)
        entries = read_from(agent.engine, export, data_set if known is None else known.account)
        return json_response({"entries": entries, "next": None})

    @app.get("/v1/ledger/verification", dependencies=owner, **answer_schema(LedgerVerification))
    def verify_ledger(kept: HashList | None = None) -> Response:
        """Check the whole ledger, and that each of the kept hashes (comma between) is still an entry's."""
        hashes = kept.split(",") if kept else []
        return json_response(read_from(agent.engine, inspect, kept_hashes=hashes).view())


def _add_deciding(app: FastAPI, agent: Agent, runtime: Runtime, owner: list[Any]) -> None:
    @app.post(
        "/v1/studies/{digest}/approval",
        dependencies=owner,
        openapi_extra=body_schema(Empty),
        **answer_schema(AskedStudy),
    )
    def approve(digest: DigestPath, body: Annotated[Empty, Depends(json_body(Empty))]) -> Response:  # noqa: ARG001
        """Let a study run: its budget is spent and its release sent."""
        return answer(digest, lambda: agent.approve(digest))

    @app.post(
        "/v1/studies/{digest}/sending",
        dependencies=owner,
        openapi_extra=body_schema(Empty),
        **answer_schema(AskedStudy),
    )
    def send(digest: DigestPath, body: Annotated[Empty, Depends(json_body(Empty))]) -> Response:  # noqa: ARG001
        """Send a release that is held: the owner has looked at it."""
        return answer(digest, lambda: agent.send(digest))

    @app.post(
        "/v1/studies/{digest}/decline",
        dependencies=owner,
        openapi_extra=body_schema(Decline),
        **answer_schema(AskedStudy),
    )
    def decline(digest: DigestPath, body: Annotated[Decline, Depends(json_body(Decline))]) -> Response:
        """Decline a study; the tester is told only that it was declined."""
        return answer(digest, lambda: agent.decline(digest, body.reason))

    @app.post(
        "/v1/data-sets/{data_set}/unlocking",
        dependencies=owner,
        openapi_extra=body_schema(Empty),
        **answer_schema(AgentStatus),
    )
    def unlock(
        data_set: DataSetPath,
        body: Annotated[Empty, Depends(json_body(Empty))],  # noqa: ARG001
    ) -> Response:
        """Let a data set answer studies again that a failure has locked."""
        agent.unlock(data_set)
        runtime.ring()
        return json_response(views.status(agent))

    def answer(digest: str, decision: Callable[[], None]) -> Response:
        row = decide(agent, digest, decision)
        runtime.ring()
        return json_response(views.summary(agent, row))
