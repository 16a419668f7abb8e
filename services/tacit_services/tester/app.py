"""Assembly of a tester from its settings."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from sqlalchemy.engine import Engine

from tacit_services.shared.clock import Clock, system_clock
from tacit_services.shared.database import check_database
from tacit_services.shared.http_app import BearerToken, create_app
from tacit_services.shared.http_server import Stopping
from tacit_services.shared.settings import read_private_key
from tacit_services.tester.answers import Answers
from tacit_services.tester.archiving import idle_of
from tacit_services.tester.inboxes import Bell, Inboxes, InboxQuery, Watch
from tacit_services.tester.jobs import Worker, Working, database_time, time_of
from tacit_services.tester.pages import add_tester_pages
from tacit_services.tester.parties import Access
from tacit_services.tester.routes import Checks, Tester, make_router
from tacit_services.tester.settings import TesterSettings
from tacit_services.tester.studies import Identity, Studies
from tacit_services.tester.study_completion import Signer


def open_key(settings: TesterSettings) -> tuple[Identity, Signer]:
    """Return who the tester is, and what signs for it. Raises SettingsError: the key file cannot be read."""
    key = read_private_key(settings.key_file)
    return Identity(settings.name, key.public_hex), Signer(key, f"tacit {version('tacit')}")


def create_tester(settings: TesterSettings, engine: Engine, clock: Clock | None = None) -> FastAPI:
    """Make the tester's app. Its database must have been upgraded.

    ``app.state`` holds ``worker`` (a :class:`Worker`) and ``watch``, which the app's lifespan runs in threads
    of their own (the worker not where the tester only serves), ``bell`` and ``stopping``.

    Args:
        settings: the tester's.
        engine: its database.
        clock: in place of the system's, and of the database's for leases.

    Raises:
        SettingsError: the key file cannot be read, or studies are to be archived to nowhere.
    """
    idle = idle_of(settings, engine, clock or system_clock)
    identity, signer = open_key(settings)
    present = database_time if clock is None else time_of(clock)
    clock = clock or system_clock
    studies = Studies(engine, identity)
    worker, bell, stopping = Worker(engine, studies, signer, clock, present), Bell(), Stopping()
    access = Access(engine, identity.key, BearerToken(settings.token_audience, clock))

    def look() -> tuple[int, ...]:
        found = studies.fingerprint()
        access.note_revoked(found[-1])
        return found

    watch = Watch(look, bell)
    inboxes = Inboxes(InboxQuery(engine, clock), bell, stopping)
    tester = Tester(
        engine=engine,
        identity=identity,
        audience=settings.token_audience,
        software=signer.software,
        studies=studies,
        signer=signer,
        answers=Answers(engine, studies, signer, clock),
        access=access,
        checks=Checks(stopping),
        inboxes=inboxes,
        bell=bell,
        watch=watch,
        stopping=stopping,
        clock=clock,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        working = Working(worker, bell, stopping, watch.check, idle)
        watching = threading.Thread(target=watch.run, args=(stopping,), daemon=True)
        if not settings.serve_only:
            working.start()
        watching.start()
        yield
        stopping.requested = True
        bell.ring()
        if not settings.serve_only:
            working.stop()

    app = create_app(
        title="Tacit tester",
        version=version("tacit"),
        metrics_prefix="tacit_tester",
        check_ready=lambda: check_database(engine),
        gauges=lambda: {"studies": studies.counts(), "polls_waiting": inboxes.waiting + bell.waiting},
        lifespan=lifespan,
        hosts=settings.page_hosts,
    )
    app.include_router(make_router(tester))
    add_tester_pages(app, tester, settings.url)
    app.state.worker, app.state.bell, app.state.inboxes = worker, bell, inboxes
    app.state.watch, app.state.stopping = watch, stopping
    return app
