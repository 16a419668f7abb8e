"""``python -m tacit_services.tester serve|work|copy|archive --config FILE``, or ``verify-archive``."""

import argparse
import sys
from pathlib import Path

from tacit_protocol.terminal import printable, printable_lines
from tacit_services.shared.clock import system_clock
from tacit_services.shared.compute import prepare_to_compute
from tacit_services.shared.database import (
    CopyError,
    DatabaseError,
    add_copy_arguments,
    create_engine,
    show_copy,
    upgrade,
)
from tacit_services.shared.http_server import serve, tls_context
from tacit_services.shared.logging import configure_logging
from tacit_services.shared.settings import SettingsError
from tacit_services.tester.app import create_tester, open_key
from tacit_services.tester.archive import ArchiveError
from tacit_services.tester.archiving import (
    add_archive_arguments,
    add_verification_arguments,
    archive,
    idle_of,
    text_of_archive,
    verify_archive,
)
from tacit_services.tester.jobs import work
from tacit_services.tester.settings import TesterSettings


def main(arguments: list[str] | None = None) -> int:
    """Run the tester; returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tacit_services.tester", description="A Tacit tester.")
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve", help="serve until SIGTERM")
    working = commands.add_parser("work", help="compute verdicts until SIGTERM, and serve nothing")
    copying = commands.add_parser("copy", help="copy the database into an empty one")
    archiving = commands.add_parser("archive", help="move ended studies into a folder of verifiable files")
    verifying = commands.add_parser("verify-archive", help="check a whole archive, without a tester")
    for command in (serving, working, copying, archiving):
        command.add_argument("--config", type=Path, help="TOML file; TACIT_CONFIG unless given")
    add_copy_arguments(copying)
    add_archive_arguments(archiving)
    add_verification_arguments(verifying)
    options = parser.parse_args(arguments)
    try:
        if options.command == "verify-archive":
            return 0 if verify_archive(options, sys.stdout.write) else 1
        settings = TesterSettings.load(options.config)
        if options.command == "copy":
            show_copy(settings.database_url, options.to, "tester")
        elif options.command == "archive":
            return _archive(settings, options)
        elif options.command == "work":
            _work(settings)
        else:
            _serve(settings)
    except (SettingsError, DatabaseError, CopyError, ArchiveError, ValueError) as error:
        sys.stderr.write(f"tester: {printable(error)}\n")
        return 2
    return 0


def _serve(settings: TesterSettings) -> None:
    configure_logging(settings.log_level)
    prepare_to_compute()
    tls = tls_context(settings.tls_certificate_file, settings.tls_key_file)
    engine = create_engine(settings.database_url)
    upgrade(engine, "tester")
    app = create_tester(settings, engine)
    serve(app, settings.host, settings.port, app.state.stopping, settings.connections_max, tls=tls)
    engine.dispose()


def _work(settings: TesterSettings) -> None:
    configure_logging(settings.log_level)
    prepare_to_compute()
    identity, signer = open_key(settings)
    engine = create_engine(settings.database_url)
    upgrade(engine, "tester")
    work(engine, identity, signer, idle_of(settings, engine, system_clock))
    engine.dispose()


def _archive(settings: TesterSettings, options: argparse.Namespace) -> int:
    configure_logging(settings.log_level)
    engine = create_engine(settings.database_url)
    upgrade(engine, "tester")
    try:
        done = archive(engine, options, system_clock)
    finally:
        engine.dispose()
    sys.stdout.write(printable_lines(text_of_archive(done)))
    return 1 if done.refused else 0


if __name__ == "__main__":
    sys.exit(main())
