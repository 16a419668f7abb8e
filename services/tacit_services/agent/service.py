"""Assembly of an agent from its settings, its HTTP interface, and its run."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path as PathlibPath
from typing import Annotated, Any

import sqlalchemy as sa
import structlog
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
from tacit_protocol.privacy.noise import NoiseSource, OpenDPNoise
from tacit_protocol.procedures.masking import masking_of
from tacit_protocol.procedures.relay import relay_of
from tacit_protocol.signing import PrivateKey
from tacit_protocol.strict import StrictModel
from tacit_services.agent import views
from tacit_services.agent.agent import Agent, decide, require_row
from tacit_services.agent.data.reader import Computing
from tacit_services.agent.editing import DataSetEditor, PolicyEditor
from tacit_services.agent.fetching import Fetcher
from tacit_services.agent.intake import Procedures
from tacit_services.agent.loops import Loops, work
from tacit_services.agent.notices import Notifier
from tacit_services.agent.pages import DataSetPath, add_agent_pages, payment
from tacit_services.agent.participant import Participant
from tacit_services.agent.policy import Policy
from tacit_services.agent.releases import Dependencies
from tacit_services.agent.schema import REASON_LENGTH, SIGN_IN, State
from tacit_services.agent.settings import AgentSettings, ParticipantSettings
from tacit_services.agent.studies import count_by_state, finding_of, page_of_studies, study_row
from tacit_services.agent.tester_client import CarriedStudy, TesterClient, TesterError
from tacit_services.ledger.verification import export, inspect, verify
from tacit_services.shared.clock import Clock, system_clock
from tacit_services.shared.compute import prepare_to_compute
from tacit_services.shared.database import check_database, create_engine, read_from, upgrade
from tacit_services.shared.http_app import (
    BearerToken,
    DigestPath,
    answer_schema,
    body_schema,
    create_app,
    json_body,
    json_response,
)
from tacit_services.shared.http_server import Stopping, recognise, serve
from tacit_services.shared.logging import configure_logging
from tacit_services.shared.pages.site import Empty
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.shared.settings import SettingsError, read_private_key
from tacit_services.shared.workers import make_workers

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
        inspection = read_from(agent.engine, inspect, kept_hashes=hashes)
        return json_response(views.ledger_verification(inspection))


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


def pages_of(settings: AgentSettings) -> str:
    """Return the address at which a browser of this machine has the pages."""
    return f"http://127.0.0.1:{settings.port}"


def notifier_of(
    participant: Participant, settings: ParticipantSettings, link: str, stop: threading.Event
) -> Callable[[], None] | None:
    """Return what looks for news and tells stewards, where any channel is set up; raises SettingsError."""
    if not settings.notices:
        return None
    insecure = settings.insecure_plain_http
    return Notifier(participant, settings.notices, link, insecure=insecure, sleep=stop.wait).look


CONNECTIONS_MAX = 200
"""Most connections at once, on the owner's own machine: the steward's browser and commands."""

log = structlog.get_logger()


def dependencies_of(
    settings: ParticipantSettings,
    engine: sa.Engine,
    key: PrivateKey,
    stop: threading.Event,
    *,
    noise: NoiseSource | None,
    clock: Clock,
    client: TesterClient | None = None,
) -> Dependencies:
    """Return what an agent or a curator works with, until ``stop`` is set; noise is real unless given.

    ``client`` stands in the tester's place, for a study that someone brings.

    Raises:
        SettingsError: the certificates of the tester or of the cluster cannot be read.
    """
    client = client or TesterClient(
        settings.tester_url,
        settings.audience_of_tester,
        key,
        clock,
        stop.wait,
        route=settings.route_to_tester,
        insecure_plain_http=settings.insecure_plain_http,
    )
    computing = Computing(make_workers(settings.compute), settings.compute.memory_bytes)
    return Dependencies(engine, client, noise or OpenDPNoise(), clock, computing, stop.is_set)


def build(
    settings: AgentSettings,
    procedures: Procedures,
    stop: threading.Event,
    noise: NoiseSource | None = None,
    client: TesterClient | None = None,
) -> Agent:
    """Return the agent of these settings, its database migrated, its ledger verified, its accounts open.

    Raises:
        SettingsError: the key, the policy or the cluster's certificates cannot be read.
        LedgerDamagedError: the ledger does not add up; nothing may be spent from it.
        DivisionRefusedError: the configuration moves shares that were promised; says what to write.
    """
    key, policy = read_private_key(settings.key_file), Policy.load(settings.policy_file)
    engine = create_engine(settings.database_url)
    upgrade(engine, "agent")
    entries = read_from(engine, verify)
    log.info("ledger_verified", entries=entries)
    agent = Agent(
        settings,
        policy,
        key,
        procedures,
        dependencies_of(settings, engine, key, stop, noise=noise, clock=system_clock, client=client),
    )
    agent.open_accounts()
    for note in settings.accounts_on_one_database():
        log.warning("accounts_on_one_database", note=note)
    PolicyEditor(agent).note_file()
    DataSetEditor(agent).note_file()
    return agent


ANSWER_PAUSE_S = 0.2
"""Time between two looks at whether a study that was brought has been decided, computed, and may be told."""


def answer_carried(
    config: PathlibPath | None,
    procedures: Procedures,
    study: PathlibPath,
    output: PathlibPath,
    timeout_s: float,
) -> dict[str, Any]:
    """Answer one study that someone brings as a file, in the tester's place; returns what became of it.

    Policy, approval, ledger and the moment of the answer are those of every study. The answer, a release or a
    decline, is written to ``output`` for whoever takes it to the tester; asked again it is the same bytes.
    Without an answer it returns when the time is over, though data are still being read: how long that takes
    may depend on them. Then the caller ends the process at once, which may be done at any moment.

    Raises:
        SettingsError: there is no signed study in the file, or it cannot be answered this way.
    """
    settings = AgentSettings.load(config)
    try:
        carried = CarriedStudy(study.read_bytes())
    except OSError as error:
        raise SettingsError(f"cannot read {study}: {error.strerror}") from None
    asked = procedures.get(carried.study.procedure)
    if asked is not None and relay_of(asked, carried.study) is not None:
        raise SettingsError("owners answer this study one after the other: it needs a running agent")
    if asked is not None and masking_of(asked, carried.study) is not None:
        raise SettingsError("owners of this study first show each other keys: it needs a running agent")
    prepare_to_compute()
    stop = threading.Event()
    agent = build(settings, procedures, stop, client=carried)
    failed: list[Exception] = []

    def answer_it() -> None:
        try:
            while not carried.answer and not stop.is_set():
                Fetcher(agent).poll(0)  # again, as another process may have taken the same answer away
                with suppress(TesterError):  # of other studies, which wait for the tester
                    work(agent)
                stop.wait(ANSWER_PAUSE_S)
        except Exception as error:
            failed.append(error)

    working = threading.Thread(target=answer_it, name="answering", daemon=True)
    working.start()
    working.join(timeout_s)
    if failed:
        raise failed[0]
    answer = carried.answer
    if answer:
        written = output.with_name(f".{output.name}.new")
        written.write_bytes(answer)
        written.replace(output)
    row = read_from(agent.engine, study_row, carried.item.digest)
    state = "not-taken-in" if row is None else row.state.value
    return {"ok": bool(answer), "digest": carried.item.digest, "state": state}


def run(config: PathlibPath | None, procedures: Procedures) -> None:
    """Serve until SIGTERM or SIGINT."""
    settings = AgentSettings.load(config)
    configure_logging(settings.log_level)
    prepare_to_compute()
    stop = threading.Event()
    agent = build(settings, procedures, stop)
    loops = Loops(agent, stop, settings.poll_wait_s, notifier_of(agent, settings, pages_of(settings), stop))
    app = create_agent_app(agent, Runtime(version("tacit"), loops.alive, loops.ring, loops.republish))
    loops.start()
    log.info("serving", party=settings.name, host=settings.host, port=settings.port)
    try:
        serve(app, settings.host, settings.port, Stopping(), CONNECTIONS_MAX)
    finally:
        loops.end()
