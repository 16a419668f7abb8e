"""``python -m tacit_services.curator serve|check|verify|copy --config FILE``.

Its settings (docs/reference/curator-configuration.md), its assembly from them, and its run.
"""

import argparse
import re
import secrets
import sys
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import sqlalchemy as sa
import structlog
from fastapi import FastAPI
from pydantic import Field, field_validator
from pydantic_settings import SettingsConfigDict
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.messages.study import RESPOND_AFTER_S, RespondAfter
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.signing import PrivateKey
from tacit_protocol.terminal import printable
from tacit_services.agent.check import locks_at
from tacit_services.agent.service import dependencies_of, notifier_of
from tacit_services.agent.settings import ParticipantSettings
from tacit_services.agent.study.intake import Procedures
from tacit_services.agent.study.loops import Loops
from tacit_services.agent.study.participant import ParticipantIdentity
from tacit_services.agent.study.studies import count_by_state
from tacit_services.curator.curator import Curator, CuratorIntake
from tacit_services.curator.data_sets import STORAGE, ConfiguredDataSet, DataSets
from tacit_services.curator.pages import add_curator_pages
from tacit_services.curator.routes import (
    CuratorAccess,
    CuratorContext,
    CuratorIdentity,
    OwnerRoutes,
    add_study_routes,
)
from tacit_services.curator.store import RowStore, StorageKeyError, StorageKeys
from tacit_services.curator.uploads import UPLOAD_BYTES_MAX, UPLOADS_MAX, Uploads
from tacit_services.ledger.accounts import LedgerError
from tacit_services.ledger.command import verifying
from tacit_services.ledger.verification import verify
from tacit_services.shared.clock import Clock, system_clock
from tacit_services.shared.commands import Verb, copying, run_verb, show_report
from tacit_services.shared.compute import prepare_to_compute
from tacit_services.shared.database import (
    CopyError,
    DatabaseError,
    check_database,
    check_room,
    create_engine,
    read_from,
    run_transaction,
    upgrade,
)
from tacit_services.shared.http_app import (
    BearerToken,
    BodyLimit,
    Gauges,
    Lifespan,
    StreamedBodies,
    create_app,
)
from tacit_services.shared.http_server import Stopping, serve, tls_context
from tacit_services.shared.logging import configure_logging
from tacit_services.shared.settings import PublicSettings, SettingsError, read_private_key, read_secret
from tacit_services.shared.workers import look_at_workers

PORT = 8720
"""Where the curator listens unless told otherwise."""


class CuratorSettings(ParticipantSettings, PublicSettings):
    """Everything a curator needs to know; environment variables begin with ``TACIT_CURATOR_``."""

    model_config = SettingsConfigDict(env_prefix="TACIT_CURATOR_")

    database_url: str = "sqlite:///curator.sqlite3"
    storage_folder: Path
    """Where uploaded rows are kept, encrypted."""
    storage_keys_file: Path
    """The keys that wrap the keys of the rows: 64 hexadecimal digits each, the one to use first."""
    upload_bytes_max: Annotated[int, Field(ge=1)] = UPLOAD_BYTES_MAX
    """Largest upload of rows."""
    uploads_max: Annotated[int, Field(ge=1)] = UPLOADS_MAX
    """Most uploads at once."""
    respond_after_s_min: RespondAfter = RESPOND_AFTER_S
    """When a study is declined that says nothing that could be believed."""
    curator_ca_file: Path | None = None
    """Certificates that this service's own must chain to, for the operator's commands alone."""
    curator_certificate_file: Path | None = None
    """A certificate chain that the operator's commands show, where ``tls_client_ca_file`` asks for one."""
    curator_certificate_key_file: Path | None = None
    """Its private key, PEM."""
    port: Annotated[int, Field(ge=0, le=65535)] = PORT
    data_sets: tuple[ConfiguredDataSet, ...] = ()
    """Data sets whose rows are in a database or a file of the operator's; their owners register them."""

    @field_validator("data_sets")
    @classmethod
    def _names_are_distinct(cls, value: tuple[ConfiguredDataSet, ...]) -> tuple[ConfiguredDataSet, ...]:
        if len({(data_set.owner, data_set.name) for data_set in value}) != len(value):
            raise ValueError("an owner's data sets must have distinct names")
        return value

    @property
    def token_audience(self) -> str:
        """The audience that owners' tokens must name."""
        return self.url.rstrip("/") if self.audience is None else self.audience


log = structlog.get_logger()


def open_storage(engine: Engine, store: RowStore, data_sets: DataSets) -> None:
    """Take the folder, remove what stopped uploads left, and wrap every data key by the first storage key.

    Raises:
        SettingsError: the folder is another's, or a storage key is missing that held rows need.
    """
    store.acquire()
    try:
        store.bind(run_transaction(engine, _storage_id))
        rewrapped = run_transaction(engine, partial(_rewrap, store=store, data_sets=data_sets))
        files = [stored.file for stored in read_from(engine, data_sets.stored)]
        log.info("storage_opened", files=len(files), removed=store.sweep(files), rewrapped=rewrapped)
    except StorageKeyError as error:
        store.release()
        raise SettingsError(f"storage_keys_file: {error}") from None
    except BaseException:
        store.release()
        raise


def _storage_id(connection: Connection) -> str:
    known = connection.execute(sa.select(STORAGE.c.id)).scalar_one_or_none()
    if known is not None:
        return str(known)
    made = secrets.token_hex(16)
    connection.execute(STORAGE.insert().values(id=made))
    return made


def _rewrap(connection: Connection, *, store: RowStore, data_sets: DataSets) -> int:
    rewrapped = 0
    for stored in data_sets.stored(connection):
        wrapped_key = store.rewrapped(stored)
        if wrapped_key is None:
            store.require_key(stored)
        else:
            data_sets.set_wrapped_key(connection, stored, wrapped_key)
            rewrapped += 1
    return rewrapped


IDLE_S = 30.0
"""How long an upload may stand still."""

BYTES_PER_S_MIN = 64_000.0
"""Slowest upload in the long run: below it, a few senders could keep every place for days."""

ROWS_PATH = re.compile(r"/v1/data-sets/[^/]+/[^/]+/rows")


def create_curator_app(
    curator: CuratorContext,
    *,
    upload_bytes_max: int = UPLOAD_BYTES_MAX,
    check_ready: Callable[[], None] = lambda: None,
    gauges: Gauges = dict,
    lifespan: Lifespan | None = None,
    hosts: Collection[str] | None = None,
    insists_on_tls: bool = False,
) -> FastAPI:
    """Create the app with everything but the routes of studies.

    Args:
        curator: what the routes work with; its database is up to date and its storage open.
        upload_bytes_max: largest upload.
        check_ready: more that has to hold for the service to be ready, beside its database.
        gauges: more figures for ``/metrics``, beside those of data sets and uploads.
        lifespan: what runs beside the app.
        hosts: the names by which browsers may reach the pages; None for any.
        insists_on_tls: whether browsers are told to come by https alone.
    """

    def ready() -> None:
        check_database(curator.engine)
        check_ready()

    def figures() -> Mapping[str, float | Mapping[str, float]]:
        def count(connection: Connection) -> int:
            return len(curator.data_sets.held_data_sets(connection))

        held = read_from(curator.engine, count)
        return {"data_sets": held, "uploads": curator.uploads.under_way, **gauges()}

    limit = BodyLimit(upload_bytes_max, IDLE_S, BYTES_PER_S_MIN, "upload-too-large")
    app = create_app(
        title="Tacit curator",
        version=version("tacit"),
        metrics_prefix="tacit_curator",
        check_ready=ready,
        gauges=figures,
        lifespan=lifespan,
        hosts=hosts,
        insists_on_tls=insists_on_tls,
        streamed=StreamedBodies("PUT", ROWS_PATH, limit),
    )
    app.include_router(OwnerRoutes(curator).router())
    return app


CONNECTIONS_MAX = 500
"""Most connections at once: owners ask now and then, and only the operator and they do."""


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
    entries = read_from(engine, verify)
    log.info("ledger_verified", entries=entries)
    store = RowStore(settings.storage_folder, keys)
    data_sets = DataSets(store, settings.data_sets)
    open_storage(engine, store, data_sets)
    return Foundation(settings, key, engine, store, data_sets, clock)


def make_curator(
    base: Foundation, procedures: Procedures, stop: threading.Event, noise: NoiseSource | None = None
) -> Curator:
    """Return what answers studies."""
    settings = base.settings
    identity = ParticipantIdentity(settings.name, base.key, settings.tester_key)
    intake = CuratorIntake(identity, base.engine, base.data_sets, procedures, settings.respond_after_s_min)
    uses = dependencies_of(settings, base.engine, base.key, stop, noise=noise, clock=base.clock)
    return Curator(identity, intake, uses)


def make_app(base: Foundation, curator: Curator, loops: Loops, stopping: Stopping) -> FastAPI:
    """Return the owners' and the operator's interface."""
    settings, software = base.settings, f"tacit {version('tacit')}"
    access = CuratorAccess(base.engine, base.key.public_hex, BearerToken(settings.token_audience, base.clock))
    context = CuratorContext(
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

    def gauges() -> Mapping[str, Mapping[str, int]]:
        return {"studies": read_from(base.engine, count_by_state, curator.shown())}

    app = create_curator_app(
        context,
        upload_bytes_max=settings.upload_bytes_max,
        check_ready=check_ready,
        gauges=gauges,
        hosts=settings.page_hosts,
        insists_on_tls=settings.insists_on_tls,
    )
    add_study_routes(app, curator, access, loops.ring)
    add_curator_pages(app, curator, context, settings.url, loops.ring, openid=settings.openid)
    return app


def run(config: Path | None, procedures: Procedures) -> None:
    """Serve until SIGTERM or SIGINT."""
    settings = CuratorSettings.load(config)
    configure_logging(settings.log_level)
    prepare_to_compute()
    tls = tls_context(settings.tls_certificate_file, settings.tls_key_file, settings.tls_client_ca_file)
    stop, stopping = threading.Event(), Stopping()
    base = open_foundation(settings)
    curator = make_curator(base, procedures, stop)
    loops = Loops(curator, stop, settings.poll_wait_s, notifier_of(curator, settings, settings.url, stop))
    app = make_app(base, curator, loops, stopping)
    loops.start()
    log.info("serving", party=settings.name, host=settings.host, port=settings.port)
    try:
        serve(app, settings.host, settings.port, stopping, CONNECTIONS_MAX, tls=tls)
    finally:
        loops.end()
        base.store.release()


def check(config: Path | None) -> dict[str, Any]:
    """Return a report; its ``error`` is the first thing that keeps the curator from working, or absent."""
    try:
        settings = CuratorSettings.load(config)
    except SettingsError as error:
        return {"ok": False, "error": str(error)}
    compute = look_at_workers(settings.compute)
    report: dict[str, Any] = {"party": settings.name, "tester": settings.tester_url, "compute": compute}
    report["locked"] = locks_at(settings.database_url)
    report["ok"] = compute["error"] is None
    if compute["error"] is not None:
        report["error"] = f"compute: {compute['error']}"
    return report


def text_of_report(report: dict[str, Any]) -> str:
    """Return the report as lines for a terminal."""
    lines = [f"{name}: {report[name]}" for name in ("party", "tester") if name in report]
    if "compute" in report:
        lines.append(f"compute: {report['compute']['error'] or report['compute']['text']}")
    lines.append("ready" if report["ok"] else f"not ready: {report['error']}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    verbs = {
        "serve": Verb("run the curator", _serve),
        "check": Verb("read configuration, and look at what computes", _check, reports=True),
        "verify": verifying(CuratorSettings),
        "copy": copying(CuratorSettings, "curator"),
    }
    try:
        return run_verb("curator", verbs, arguments, __doc__)
    except (SettingsError, LedgerError, DatabaseError, CopyError) as error:
        sys.stderr.write(f"{printable(error)}\n")
        return 1


def _serve(chosen: argparse.Namespace) -> int:
    run(chosen.config, PROCEDURES.loaded())
    return 0


def _check(chosen: argparse.Namespace) -> int:
    return show_report(check(chosen.config), text_of_report, chosen.json)


if __name__ == "__main__":
    configure_logging()  # stdout is for what commands print
    sys.exit(main())
