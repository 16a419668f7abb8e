"""Puts a tester together."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

import structlog
from fastapi import FastAPI
from sqlalchemy.engine import Engine

from tacit_services.shared.clock import Clock, system_clock
from tacit_services.shared.database import DatabaseError, check_database
from tacit_services.shared.http_app import BearerToken, create_app
from tacit_services.shared.http_server import Stopping
from tacit_services.shared.logging import describe_exception
from tacit_services.shared.settings import read_private_key
from tacit_services.tester.access import Access
from tacit_services.tester.answers import Answers
from tacit_services.tester.endings import Signer
from tacit_services.tester.jobs import Worker
from tacit_services.tester.pages.routes import add_tester_pages
from tacit_services.tester.routes import Tester, make_router
from tacit_services.tester.settings import TesterSettings
from tacit_services.tester.studies import Identity, Studies
from tacit_services.tester.waiting import RECHECK_S, Bell, Watch

JOIN_S = 1.0
"""How long a stopping service waits for its worker; a job under way is given back for the next tester."""

log = structlog.get_logger()


def create_tester(settings: TesterSettings, engine: Engine, clock: Clock = system_clock) -> FastAPI:
    """Make the tester's app. Its database must have been upgraded.

    ``app.state`` holds ``worker`` (a :class:`Worker`) and ``watch``, which the app's lifespan runs in threads
    of their own, ``bell`` and ``stopping``.

    Raises:
        SettingsError: the key file cannot be read.
    """
    key, software = read_private_key(settings.key_file), f"tacit {version('tacit')}"
    signer, identity = Signer(key, software), Identity(settings.name, key.public_hex)
    studies = Studies(engine, identity)
    worker, bell, stopping = Worker(engine, studies, signer, clock), Bell(), Stopping()
    watch = Watch(studies.fingerprint, bell)
    tester = Tester(
        engine=engine,
        identity=identity,
        audience=settings.token_audience,
        software=software,
        studies=studies,
        answers=Answers(engine, studies, signer, clock),
        access=Access(engine, key.public_hex, BearerToken(settings.token_audience, clock)),
        bell=bell,
        watch=watch,
        stopping=stopping,
        clock=clock,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        working = threading.Thread(target=_work, args=(worker, bell, watch, stopping), daemon=True)
        watching = threading.Thread(target=watch.run, args=(stopping,), daemon=True)
        working.start()
        watching.start()
        yield
        stopping.requested = True
        bell.ring()
        working.join(JOIN_S)
        if working.is_alive():
            worker.abandon()

    app = create_app(
        title="Tacit tester",
        version=version("tacit"),
        metrics_prefix="tacit_tester",
        check_ready=lambda: check_database(engine),
        gauges=studies.counts,
        lifespan=lifespan,
    )
    app.include_router(make_router(tester))
    add_tester_pages(app, tester, settings.url)
    app.state.worker, app.state.bell = worker, bell
    app.state.watch, app.state.stopping = watch, stopping
    return app


def _work(worker: Worker, bell: Bell, watch: Watch, stopping: Stopping) -> None:
    """Run the worker until the service stops. Nothing that goes wrong in it may end it for good."""
    while not stopping.requested:
        seen, was_busy = bell.rings, False
        try:
            was_busy = worker.run_once()
            if was_busy:
                watch.check()
        except DatabaseError as error:
            log.warning("worker_waits_for_database", kind=type(error).__name__)
        except Exception as error:
            log.error("worker_failed", fault=describe_exception(error))
        if not was_busy:
            bell.wait_blocking(seen, RECHECK_S)
