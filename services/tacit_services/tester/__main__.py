"""``python -m tacit_services.tester serve|work|copy|archive --config FILE``, or ``verify-archive``.

A tester's assembly from its settings, and its run.
"""

import argparse
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from sqlalchemy.engine import Engine

from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.terminal import printable, printable_lines
from tacit_services.shared.clock import Clock, system_clock
from tacit_services.shared.commands import Verb, copying, run_verb
from tacit_services.shared.compute import prepare_to_compute
from tacit_services.shared.database import (
    CopyError,
    DatabaseError,
    check_database,
    create_engine,
    upgrade,
)
from tacit_services.shared.http_app import BearerToken, create_app
from tacit_services.shared.http_server import Stopping, serve, tls_context
from tacit_services.shared.logging import configure_logging
from tacit_services.shared.settings import SettingsError, read_private_key
from tacit_services.tester.answers import AnswerIntake
from tacit_services.tester.archive.archiving import (
    add_archive_arguments,
    add_verification_arguments,
    archive,
    idle_of,
    text_of_archive,
    verify_archive,
)
from tacit_services.tester.archive.folder import ArchiveError
from tacit_services.tester.inboxes import Bell, Inboxes, InboxQuery, Watch
from tacit_services.tester.settings import TesterSettings
from tacit_services.tester.studies import Studies, TesterIdentity
from tacit_services.tester.verdicts import (
    Compute,
    Signer,
    VerdictProcess,
    Worker,
    Working,
    compute,
    database_time,
    time_of,
    work,
)
from tacit_services.tester.web.pages import add_tester_pages
from tacit_services.tester.web.routes import CheckQueue, Planner, Tester, TesterAccess, make_router


def open_key(settings: TesterSettings) -> tuple[TesterIdentity, Signer]:
    """Return who the tester is, and what signs for it. Raises SettingsError: the key file cannot be read."""
    key = read_private_key(settings.key_file)
    return TesterIdentity(settings.name, key.public_hex), Signer(key, f"tacit {version('tacit')}")


def create_tester(
    settings: TesterSettings, engine: Engine, clock: Clock | None = None, compute: Compute = compute
) -> FastAPI:
    """Make the tester's app. Its database must have been upgraded.

    ``app.state`` holds ``worker`` (a :class:`Worker`) and ``watch``, which the app's lifespan runs in threads
    of their own (the worker not where the tester only serves), ``bell`` and ``stopping``.

    Args:
        settings: the tester's.
        engine: its database.
        clock: in place of the system's, and of the database's for leases.
        compute: computes verdicts; in this process, without a limit of time, unless given.

    Raises:
        SettingsError: the key file cannot be read, or studies are to be archived to nowhere.
    """
    idle = idle_of(settings, engine, clock or system_clock)
    identity, signer = open_key(settings)
    present = database_time if clock is None else time_of(clock)
    clock = clock or system_clock
    studies = Studies(engine, identity)
    worker = Worker(engine, studies, signer, clock, present=present, compute=compute)
    bell, stopping = Bell(), Stopping()
    access = TesterAccess(engine, identity.key, BearerToken(settings.token_audience, clock), studies)
    watch = Watch(access.look, bell)
    inboxes = Inboxes(InboxQuery(engine, clock), bell, stopping)
    tester = Tester(
        engine=engine,
        identity=identity,
        audience=settings.token_audience,
        software=signer.software,
        studies=studies,
        signer=signer,
        answers=AnswerIntake(engine, studies, signer, clock),
        access=access,
        checks=CheckQueue(stopping),
        inboxes=inboxes,
        bell=bell,
        watch=watch,
        planner=Planner(stopping),
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
        insists_on_tls=settings.insists_on_tls,
    )
    app.include_router(make_router(tester))
    add_tester_pages(app, tester, settings.url, settings.openid)
    app.state.worker, app.state.bell, app.state.inboxes = worker, bell, inboxes
    app.state.watch, app.state.planner, app.state.stopping = watch, tester.planner, stopping
    return app


def main(arguments: list[str] | None = None) -> int:
    """Run the tester; returns the process's exit code."""
    verbs = {
        "serve": Verb("serve until SIGTERM", _serve),
        "work": Verb("compute verdicts until SIGTERM, and serve nothing", _work),
        "copy": copying(TesterSettings, "tester"),
        "archive": Verb(
            "move ended studies into a folder of verifiable files", _archive, add_archive_arguments
        ),
        "verify-archive": Verb(
            "check a whole archive, without a tester",
            lambda chosen: 0 if verify_archive(chosen, sys.stdout.write) else 1,
            add_verification_arguments,
            takes_config=False,
        ),
    }
    try:
        return run_verb("tester", verbs, arguments, "A Tacit tester.")
    except (SettingsError, DatabaseError, CopyError, ArchiveError, ValueError) as error:
        sys.stderr.write(f"tester: {printable(error)}\n")
        return 2


def _serve(chosen: argparse.Namespace) -> int:
    settings = TesterSettings.load(chosen.config)
    configure_logging(settings.log_level)
    prepare_to_compute()
    PROCEDURES.loaded()
    tls = tls_context(settings.tls_certificate_file, settings.tls_key_file, settings.tls_client_ca_file)
    engine = create_engine(settings.database_url)
    upgrade(engine, "tester")
    app = create_tester(settings, engine, compute=VerdictProcess())
    serve(app, settings.host, settings.port, app.state.stopping, settings.connections_max, tls=tls)
    engine.dispose()
    return 0


def _work(chosen: argparse.Namespace) -> int:
    settings = TesterSettings.load(chosen.config)
    configure_logging(settings.log_level)
    prepare_to_compute()
    PROCEDURES.loaded()
    identity, signer = open_key(settings)
    engine = create_engine(settings.database_url)
    upgrade(engine, "tester")
    work(engine, identity, signer, idle_of(settings, engine, system_clock), VerdictProcess())
    engine.dispose()
    return 0


def _archive(chosen: argparse.Namespace) -> int:
    settings = TesterSettings.load(chosen.config)
    configure_logging(settings.log_level)
    engine = create_engine(settings.database_url)
    upgrade(engine, "tester")
    try:
        done = archive(engine, chosen, system_clock)
    finally:
        engine.dispose()
    sys.stdout.write(printable_lines(text_of_archive(done)))
    return 1 if done.refused else 0


if __name__ == "__main__":
    sys.exit(main())
