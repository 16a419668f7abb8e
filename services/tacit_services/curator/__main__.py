"""``python -m tacit_services.curator serve|check|verify|copy --config FILE``."""

import argparse
import sys
from pathlib import Path

from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.terminal import printable, printable_lines
from tacit_services.agent.check import show_report, text_of_verification, verify_ledger
from tacit_services.curator.service import check, run, text_of_report
from tacit_services.curator.settings import CuratorSettings
from tacit_services.ledger.accounts import LedgerError
from tacit_services.shared.database import (
    CopyError,
    DatabaseError,
    add_copy_arguments,
    copy_database,
    text_of_copy,
)
from tacit_services.shared.logging import configure_logging
from tacit_services.shared.settings import SettingsError

COMMANDS = {
    "serve": "run the curator",
    "check": "read configuration, and look at what computes",
    "verify": "check the ledger, without the curator",
    "copy": "copy the database into an empty one",
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tacit_services.curator", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, words in COMMANDS.items():
        command = commands.add_parser(name, help=words)
        command.add_argument("--config", type=Path, default=None, help="curator.toml")
        if name in {"check", "verify"}:
            command.add_argument("--json", action="store_true", help="print the report as JSON")
        if name == "verify":
            command.add_argument("--kept", action="append", default=[], help="a head hash kept elsewhere")
        if name == "copy":
            add_copy_arguments(command)
    chosen = parser.parse_args(arguments)
    if chosen.command == "check":
        return show_report(check(chosen.config), text_of_report, chosen.json)
    try:
        if chosen.command == "verify":
            report = verify_ledger(CuratorSettings.load(chosen.config).database_url, chosen.kept)
            return show_report(report, text_of_verification, chosen.json)
        if chosen.command == "copy":
            counts = copy_database(CuratorSettings.load(chosen.config).database_url, chosen.to, "curator")
            sys.stdout.write(printable_lines(text_of_copy(counts)))
            return 0
        run(chosen.config, PROCEDURES)
    except (SettingsError, LedgerError, DatabaseError, CopyError) as error:
        sys.stderr.write(f"{printable(error)}\n")
        return 1
    return 0


if __name__ == "__main__":
    configure_logging()  # stdout is for what commands print
    sys.exit(main())
