"""``python -m tacit_services.tester serve --config FILE``."""

import argparse
import sys
from pathlib import Path

from tacit_services.shared.database import DatabaseError, create_engine, upgrade
from tacit_services.shared.http_server import serve
from tacit_services.shared.logging import configure_logging
from tacit_services.shared.settings import SettingsError
from tacit_services.tester.app import create_tester
from tacit_services.tester.settings import TesterSettings


def main(arguments: list[str] | None = None) -> int:
    """Run the tester; returns the process's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tacit_services.tester", description="A Tacit tester.")
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve", help="serve until SIGTERM")
    serving.add_argument("--config", type=Path, help="TOML file; TACIT_CONFIG unless given")
    options = parser.parse_args(arguments)
    try:
        _serve(TesterSettings.load(options.config))
    except (SettingsError, DatabaseError, ValueError) as error:
        sys.stderr.write(f"tester: {error}\n")
        return 2
    return 0


def _serve(settings: TesterSettings) -> None:
    configure_logging(settings.log_level)
    engine = create_engine(settings.database_url)
    upgrade(engine, "tester")
    app = create_tester(settings, engine)
    tls = {
        "ssl_certfile": settings.tls_certificate_file,
        "ssl_keyfile": settings.tls_key_file,
    }
    serve(app, settings.host, settings.port, app.state.stopping, **tls)
    engine.dispose()


if __name__ == "__main__":
    sys.exit(main())
