"""``python -m tacit_services.agent serve|check|verify|copy|align --config FILE``."""

import argparse
import sys
from pathlib import Path

from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.terminal import printable
from tacit_services.agent.alignment import add_arguments, align, text_of_alignment
from tacit_services.agent.check import check, show_report, text_of_report, text_of_verification, verify_ledger
from tacit_services.agent.service import run
from tacit_services.agent.settings import AgentSettings
from tacit_services.ledger.accounts import LedgerError
from tacit_services.shared.database import (
    CopyError,
    DatabaseError,
    add_copy_arguments,
    show_copy,
)
from tacit_services.shared.logging import configure_logging
from tacit_services.shared.settings import SettingsError

COMMANDS = {
    "serve": "run the agent",
    "check": "read configuration, policy and data",
    "verify": "check the ledger, without the agent",
    "copy": "copy the database into an empty one",
    "align": "compare units with another owner",
}


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tacit_services.agent", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, words in COMMANDS.items():
        command = commands.add_parser(name, help=words)
        command.add_argument("--config", type=Path, default=None, help="agent.toml")
        if name not in {"serve", "copy"}:
            command.add_argument("--json", action="store_true", help="print the report as JSON")
        if name == "copy":
            add_copy_arguments(command)
        if name == "align":
            add_arguments(command)
        if name == "verify":
            command.add_argument("--kept", action="append", default=[], help="a head hash kept elsewhere")
    chosen = parser.parse_args(arguments)
    if chosen.command == "check":
        return show_report(check(chosen.config), text_of_report, chosen.json)
    try:
        if chosen.command == "align":
            return _aligned(chosen)
        if chosen.command == "verify":
            report = verify_ledger(AgentSettings.load(chosen.config).database_url, chosen.kept)
            return show_report(report, text_of_verification, chosen.json)
        if chosen.command == "copy":
            show_copy(AgentSettings.load(chosen.config).database_url, chosen.to, "agent")
            return 0
        run(chosen.config, PROCEDURES)
    except (SettingsError, LedgerError, DatabaseError, CopyError) as error:
        sys.stderr.write(f"{printable(error)}\n")
        return 1
    return 0


def _aligned(chosen: argparse.Namespace) -> int:
    report = align(chosen)
    if "error" in report:
        sys.stderr.write(f"{printable(report['error'])}\n")
        return 1
    return show_report(report, text_of_alignment, chosen.json)


if __name__ == "__main__":
    configure_logging()  # stdout is for what commands print
    sys.exit(main())
