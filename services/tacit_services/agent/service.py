"""Put an agent together from its settings, and run it."""

import threading
from importlib.metadata import version
from pathlib import Path

import structlog

from tacit_protocol.privacy.noise import NoiseSource, OpenDPNoise
from tacit_services.agent.agent import Agent
from tacit_services.agent.api import Surroundings, create_agent_app
from tacit_services.agent.data.reader import Computing
from tacit_services.agent.intake import Procedures
from tacit_services.agent.loops import Loops
from tacit_services.agent.policy import Policy
from tacit_services.agent.settings import AgentSettings
from tacit_services.agent.tester_client import TesterClient
from tacit_services.ledger.verification import verify
from tacit_services.shared.clock import system_clock
from tacit_services.shared.compute import make_workers
from tacit_services.shared.database import create_engine, run_transaction, upgrade
from tacit_services.shared.http_server import Stopping, serve
from tacit_services.shared.logging import configure_logging
from tacit_services.shared.settings import read_private_key
from tacit_services.shared.threads import prepare_to_compute

CONNECTIONS_MAX = 200
"""Most connections at once, on the owner's own machine: the steward's browser and commands."""

log = structlog.get_logger()


def build(
    settings: AgentSettings, procedures: Procedures, stop: threading.Event, noise: NoiseSource | None = None
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
    entries = run_transaction(engine, verify, read_only=True)
    log.info("ledger_verified", entries=entries)
    client = TesterClient(
        settings.tester_url,
        settings.audience,
        key,
        system_clock,
        stop.wait,
        ca_file=settings.tester_ca_file,
        insecure_plain_http=settings.insecure_plain_http,
    )
    agent = Agent(
        settings,
        policy,
        key,
        engine=engine,
        client=client,
        procedures=procedures,
        noise=noise or OpenDPNoise(),
        clock=system_clock,
        computing=Computing(make_workers(settings.compute), settings.compute.memory_bytes),
        stopping=stop.is_set,
    )
    agent.open_accounts()
    return agent


def run(config: Path | None, procedures: Procedures) -> None:
    """Serve until SIGTERM or SIGINT."""
    settings = AgentSettings.load(config)
    configure_logging(settings.log_level)
    prepare_to_compute()
    stop = threading.Event()
    agent = build(settings, procedures, stop)
    loops = Loops(agent, stop, settings.poll_wait_s)
    app = create_agent_app(agent, Surroundings(version("tacit"), loops.alive, loops.ring))
    loops.start()
    log.info("serving", party=settings.name, host=settings.host, port=settings.port)
    try:
        serve(app, settings.host, settings.port, Stopping(), CONNECTIONS_MAX)
    finally:
        loops.end()
