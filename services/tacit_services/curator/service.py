"""Put a curator together from its settings, and run it."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import sqlalchemy as sa
import structlog
from fastapi import FastAPI

from tacit_protocol.privacy.noise import NoiseSource, OpenDPNoise
from tacit_protocol.signing.keys import PrivateKey
from tacit_services.agent.data.reader import Computing
from tacit_services.agent.intake import Procedures
from tacit_services.agent.loops import Loops
from tacit_services.agent.participant import Identity
from tacit_services.agent.studies import count_by_state
from tacit_services.agent.tester_client import TesterClient
from tacit_services.curator.app import create_curator_app
from tacit_services.curator.curator import Curator
from tacit_services.curator.data_sets import DataSets
from tacit_services.curator.intake import CuratorIntake
from tacit_services.curator.opening import open_storage
from tacit_services.curator.owners import Access
from tacit_services.curator.pages.routes import add_curator_pages
from tacit_services.curator.settings import CuratorSettings
from tacit_services.curator.storage_keys import StorageKeyError, StorageKeys
from tacit_services.curator.store import RowStore
from tacit_services.curator.study_routes import add_study_routes
from tacit_services.curator.surroundings import CuratorIdentity, CuratorSurroundings
from tacit_services.curator.uploads import Uploads
from tacit_services.ledger.verification import verify
from tacit_services.shared.clock import Clock, system_clock
from tacit_services.shared.compute import make_workers
from tacit_services.shared.database import check_room, create_engine, run_transaction, upgrade
from tacit_services.shared.http_app import BearerToken
from tacit_services.shared.http_server import Stopping, serve, tls_context
from tacit_services.shared.logging import configure_logging
from tacit_services.shared.settings import SettingsError, read_private_key, read_secret
from tacit_services.shared.threads import prepare_to_compute

CONNECTIONS_MAX = 500
"""Most connections at once: owners ask now and then, and only the operator and they do."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Foundation:
    """What everything in a curator rests on: settings, key, database and rows."""

    settings: CuratorSettings
    key: PrivateKey
    engine: sa.Engine
    store: RowStore
    data_sets: DataSets
    clock: Clock


def open_foundation(settings: CuratorSettings, clock: Clock = system_clock) -> Foundation:
    """Read the keys, migrate the database, verify the ledger and take the folder of rows.

    Raises:
        SettingsError: a key cannot be read, or the folder of rows is not this curator's.
        LedgerDamagedError: the ledger does not add up; nothing may be spent from it.
    """
    key = read_private_key(settings.key_file)
    try:
        keys = StorageKeys.parse(read_secret(settings.storage_keys_file))
    except StorageKeyError as error:
        raise SettingsError(f"storage_keys_file: {error}") from None
    engine = create_engine(settings.database_url)
    upgrade(engine, "curator")
    entries = run_transaction(engine, verify, read_only=True)
    log.info("ledger_verified", entries=entries)
    store = RowStore(settings.storage_folder, keys)
    data_sets = DataSets(store, settings.data_sets)
    run_transaction(engine, lambda c: data_sets.divide_accounts(c, int(clock())))
    open_storage(engine, store, data_sets)
    return Foundation(settings, key, engine, store, data_sets, clock)


def make_curator(
    base: Foundation, procedures: Procedures, stop: threading.Event, noise: NoiseSource | None = None
) -> Curator:
    """Return what answers studies."""
    settings = base.settings
    identity = Identity(settings.name, base.key, settings.tester_key)
    client = TesterClient(
        settings.tester_url,
        settings.audience_of_tester,
        base.key,
        base.clock,
        stop.wait,
        ca_file=settings.tester_ca_file,
        insecure_plain_http=settings.insecure_plain_http,
    )
    return Curator(
        identity,
        CuratorIntake(identity, base.engine, base.data_sets, procedures, settings.respond_after_s_min),
        engine=base.engine,
        client=client,
        noise=noise or OpenDPNoise(),
        clock=base.clock,
        computing=Computing(make_workers(settings.compute), settings.compute.memory_bytes),
        stopping=stop.is_set,
    )


def make_app(base: Foundation, curator: Curator, loops: Loops, stopping: Stopping) -> FastAPI:
    """Return the owners' and the operator's interface."""
    settings, software = base.settings, f"tacit {version('tacit')}"
    access = Access(base.engine, base.key.public_hex, BearerToken(settings.token_audience, base.clock))
    surroundings = CuratorSurroundings(
        engine=base.engine,
        identity=CuratorIdentity(settings.name, base.key.public_hex, settings.token_audience, software),
        access=access,
        data_sets=base.data_sets,
        uploads=Uploads(
            base.engine,
            base.data_sets,
            base.store,
            clock=base.clock,
            stopping=stopping,
            uploads_max=settings.uploads_max,
        ),
        clock=base.clock,
    )

    def check_ready() -> None:
        check_room(base.store.folder)
        if not loops.alive():
            raise RuntimeError("a loop of the curator has stopped")

    def gauges() -> Mapping[str, float]:
        counts = run_transaction(base.engine, count_by_state, read_only=True)
        return {f'studies{{state="{state}"}}': float(count) for state, count in counts.items()}

    app = create_curator_app(
        surroundings,
        upload_bytes_max=settings.upload_bytes_max,
        check_ready=check_ready,
        gauges=gauges,
        hosts=settings.page_hosts,
    )
    add_study_routes(app, curator, access, loops.ring)
    add_curator_pages(app, curator, surroundings, settings.url, loops.ring)
    return app


def run(config: Path | None, procedures: Procedures) -> None:
    """Serve until SIGTERM or SIGINT."""
    settings = CuratorSettings.load(config)
    configure_logging(settings.log_level)
    prepare_to_compute()
    tls = tls_context(settings.tls_certificate_file, settings.tls_key_file)
    stop, stopping = threading.Event(), Stopping()
    base = open_foundation(settings)
    curator = make_curator(base, procedures, stop)
    loops = Loops(curator, stop, settings.poll_wait_s)
    app = make_app(base, curator, loops, stopping)
    loops.start()
    log.info("serving", party=settings.name, host=settings.host, port=settings.port)
    try:
        serve(app, settings.host, settings.port, stopping, CONNECTIONS_MAX, tls=tls)
    finally:
        loops.end()
        base.store.release()
