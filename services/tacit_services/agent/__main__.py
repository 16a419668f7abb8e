"""``python -m tacit_services.agent serve|answer|check|verify|copy|align --config FILE``."""

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tacit_protocol.decimals import read_number
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.terminal import printable
from tacit_services.agent.alignment import add_arguments, align, text_of_alignment
from tacit_services.agent.check import check, check_study, show_report, text_of_verification, verify_ledger
from tacit_services.agent.service import answer_carried, run
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
    "answer": "answer one study that was brought as a file",
    "check": "read configuration, policy and data",
    "verify": "check the ledger, without the agent",
    "copy": "copy the database into an empty one",
    "align": "compare units with another owner",
}


NOT_YET = 3
"""Exit status where a study is not answered in time: a steward has not decided, or it takes longer."""


def text_of_answer(report: Mapping[str, Any]) -> str:
    """Say what became of a study that was brought."""
    if report["ok"]:
        return f"study {report['digest'][:12]}: the answer is written; take it to the tester"
    waits = report["state"] == "waiting-for-approval"
    words = "it waits for a steward's decision" if waits else f"it is {report['state']}"
    if report["state"] == "held":
        words = "its release is made, and waits until a steward has looked at it"
    return f"study {report['digest'][:12]} is not answered yet: {words}; ask again later"


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
        if name == "check":
            command.add_argument("--study", help="hold the data against a study instead: its file, or digest")
        if name == "answer":
            command.add_argument("--study", type=Path, required=True, help="the signed study")
            command.add_argument("--output", type=Path, required=True, help="where its answer goes")
            command.add_argument(
                "--timeout-s", type=read_number, default=600.0, help="how long to wait for it"
            )
        if name == "align":
            add_arguments(command)
        if name == "verify":
            command.add_argument("--kept", action="append", default=[], help="a head hash kept elsewhere")
    chosen = parser.parse_args(arguments)
    if chosen.command == "check":
        asked = chosen.study
        report = check(chosen.config) if asked is None else check_study(chosen.config, asked)
        return show_report(report, lambda found: str(found["text"]), chosen.json)
    try:
        if chosen.command in {"align", "answer"}:
            return _aligned(chosen) if chosen.command == "align" else _answered(chosen)
        if chosen.command == "verify":
            report = verify_ledger(AgentSettings.load(chosen.config).database_url, chosen.kept)
            return show_report(report, text_of_verification, chosen.json)
        if chosen.command == "copy":
            show_copy(AgentSettings.load(chosen.config).database_url, chosen.to, "agent")
            return 0
        run(chosen.config, PROCEDURES.loaded())
    except (SettingsError, LedgerError, DatabaseError, CopyError) as error:
        sys.stderr.write(f"{printable(error)}\n")
        return 1
    return 0


def _answered(chosen: argparse.Namespace) -> int:
    report = answer_carried(chosen.config, PROCEDURES, chosen.study, chosen.output, chosen.timeout_s)
    show_report(report, text_of_answer, chosen.json)
    if not report["ok"]:
        # Threads may be reading data, and an ordinary end would wait for them.
        sys.stdout.flush()
        os._exit(NOT_YET)
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
