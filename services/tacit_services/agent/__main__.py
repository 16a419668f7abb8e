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
from tacit_services.agent.check import check, check_study
from tacit_services.agent.service import answer_carried, run
from tacit_services.agent.settings import AgentSettings
from tacit_services.ledger.accounts import LedgerError
from tacit_services.ledger.command import verifying
from tacit_services.shared.commands import Verb, copying, run_verb, show_report
from tacit_services.shared.database import CopyError, DatabaseError
from tacit_services.shared.logging import configure_logging
from tacit_services.shared.settings import SettingsError

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
    verbs = {
        "serve": Verb("run the agent", _serve),
        "answer": Verb(
            "answer one study that was brought as a file", _answer, _add_answer_arguments, reports=True
        ),
        "check": Verb("read configuration, policy and data", _check, _add_check_arguments, reports=True),
        "verify": verifying(AgentSettings),
        "copy": copying(AgentSettings, "agent"),
        "align": Verb("compare units with another owner", _align, add_arguments, reports=True),
    }
    try:
        return run_verb("agent", verbs, arguments, __doc__)
    except (SettingsError, LedgerError, DatabaseError, CopyError) as error:
        sys.stderr.write(f"{printable(error)}\n")
        return 1


def _serve(chosen: argparse.Namespace) -> int:
    run(chosen.config, PROCEDURES.loaded())
    return 0


def _add_check_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--study", help="hold the data against a study instead: its file, or digest")


def _check(chosen: argparse.Namespace) -> int:
    asked = chosen.study
    report = check(chosen.config) if asked is None else check_study(chosen.config, asked)
    return show_report(report, lambda found: str(found["text"]), chosen.json)


def _add_answer_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--study", type=Path, required=True, help="the signed study")
    command.add_argument("--output", type=Path, required=True, help="where its answer goes")
    command.add_argument("--timeout-s", type=read_number, default=600.0, help="how long to wait for it")


def _answer(chosen: argparse.Namespace) -> int:
    report = answer_carried(chosen.config, PROCEDURES, chosen.study, chosen.output, chosen.timeout_s)
    show_report(report, text_of_answer, chosen.json)
    if not report["ok"]:
        # Threads may be reading data, and an ordinary end would wait for them.
        sys.stdout.flush()
        os._exit(NOT_YET)
    return 0


def _align(chosen: argparse.Namespace) -> int:
    report = align(chosen)
    if "error" in report:
        sys.stderr.write(f"{printable(report['error'])}\n")
        return 1
    return show_report(report, text_of_alignment, chosen.json)


if __name__ == "__main__":
    configure_logging()  # stdout is for what commands print
    sys.exit(main())
