"""``python -m tacit_services.agent serve|check --config FILE``."""

import argparse
import json
import sys
from pathlib import Path

from tacit_protocol.procedures.registry import PROCEDURES
from tacit_services.agent.check import check, text_of_report
from tacit_services.agent.service import run
from tacit_services.ledger.errors import LedgerDamagedError
from tacit_services.shared.database import DatabaseError
from tacit_services.shared.settings import SettingsError


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tacit_services.agent", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, words in (("serve", "run the agent"), ("check", "read configuration, policy and data")):
        command = commands.add_parser(name, help=words)
        command.add_argument("--config", type=Path, default=None, help="agent.toml")
        if name == "check":
            command.add_argument("--json", action="store_true", help="print the report as JSON")
    chosen = parser.parse_args(arguments)
    if chosen.command == "check":
        report = check(chosen.config)
        sys.stdout.write((json.dumps(report) if chosen.json else text_of_report(report)) + "\n")
        return 0 if report["ok"] else 1
    try:
        run(chosen.config, PROCEDURES)
    except (SettingsError, LedgerDamagedError, DatabaseError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
