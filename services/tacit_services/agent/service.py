"""Assembly of an agent from its settings, and its run."""

import threading
from collections.abc import Callable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import structlog

from tacit_protocol.privacy.noise import NoiseSource, OpenDPNoise
from tacit_protocol.procedures.base import masking_of
from tacit_protocol.procedures.relay import relay_of
from tacit_protocol.signing import PrivateKey
from tacit_services.agent.agent import Agent
from tacit_services.agent.data.reader import Computing
from tacit_services.agent.notices import Notifier
from tacit_services.agent.settings import AgentSettings, ParticipantSettings
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.intake import Procedures
from tacit_services.agent.study.loops import Loops, work
from tacit_services.agent.study.participant import Participant
from tacit_services.agent.study.policy import Policy
from tacit_services.agent.study.releases import Dependencies
from tacit_services.agent.study.studies import study_row
from tacit_services.agent.study.tester_client import CarriedStudy, TesterClient, TesterError
from tacit_services.agent.web.editing import DataSetEditor, PolicyEditor
from tacit_services.agent.web.routes import Runtime, create_agent_app
from tacit_services.ledger.verification import verify
from tacit_services.shared.clock import Clock, system_clock
from tacit_services.shared.compute import prepare_to_compute
from tacit_services.shared.database import create_engine, read_from, upgrade
from tacit_services.shared.http_server import Stopping, serve
from tacit_services.shared.logging import configure_logging
from tacit_services.shared.settings import SettingsError, read_private_key
from tacit_services.shared.workers import make_workers


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
    config: Path | None,
    procedures: Procedures,
    study: Path,
    output: Path,
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


def run(config: Path | None, procedures: Procedures) -> None:
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
