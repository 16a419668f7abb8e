"""Put a curator together from its settings, and run it."""

import threading

import sqlalchemy as sa
import structlog

from tacit_protocol.privacy.noise import NoiseSource, OpenDPNoise
from tacit_protocol.signing.keys import PrivateKey
from tacit_services.agent.intake import Procedures
from tacit_services.agent.participant import Identity
from tacit_services.agent.tester_client import TesterClient
from tacit_services.curator.curator import Curator
from tacit_services.curator.data_sets import DataSets
from tacit_services.curator.intake import CuratorIntake
from tacit_services.curator.settings import CuratorSettings
from tacit_services.ledger.verification import verify
from tacit_services.shared.clock import system_clock
from tacit_services.shared.database import run_transaction

log = structlog.get_logger()


def build_curator(
    settings: CuratorSettings,
    key: PrivateKey,
    engine: sa.Engine,
    *,
    data_sets: DataSets,
    procedures: Procedures,
    stop: threading.Event,
    noise: NoiseSource | None = None,
) -> Curator:
    """Return the curator of these settings on a database that is up to date, its ledger verified.

    Raises:
        LedgerDamagedError: the ledger does not add up; nothing may be spent from it.
    """
    entries = run_transaction(engine, lambda c: verify(c, every_amount=False), read_only=True)
    log.info("ledger_verified", entries=entries)
    identity = Identity(settings.name, key, settings.tester_key)
    client = TesterClient(
        settings.tester_url,
        settings.audience_of_tester,
        key,
        system_clock,
        stop.wait,
        ca_file=settings.tester_ca_file,
    )
    return Curator(
        identity,
        CuratorIntake(identity, engine, data_sets, procedures, settings.respond_after_s_min),
        engine=engine,
        client=client,
        noise=noise or OpenDPNoise(),
        clock=system_clock,
        stopping=stop.is_set,
    )
