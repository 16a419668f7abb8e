"""Verbs of a service's program (``python -m tacit_services.agent verify``), those of all services too."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit_protocol.terminal import printable_lines
from tacit_services.shared.database import copy_database
from tacit_services.shared.settings import DatabaseSettings

Report = dict[str, Any]
"""What a verb found; ``ok`` says whether all is well."""


@dataclass(frozen=True)
class Verb:
    """One verb of a program; ``run`` returns the exit status."""

    help: str
    run: Callable[[argparse.Namespace], int]
    add_arguments: Callable[[argparse.ArgumentParser], object] = lambda _: None
    takes_config: bool = True
    reports: bool = False
    """Whether it prints a report, and takes ``--json``."""


def run_verb(
    service: str, verbs: Mapping[str, Verb], arguments: Sequence[str] | None, description: str | None
) -> int:
    """Run the verb that the arguments name; returns its exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m tacit_services.{service}", description=description)
    commands = parser.add_subparsers(dest="verb", required=True)
    for name, verb in verbs.items():
        command = commands.add_parser(name, help=verb.help)
        if verb.takes_config:
            command.add_argument(
                "--config", type=Path, help=f"{service}.toml; what TACIT_CONFIG names unless given"
            )
        if verb.reports:
            command.add_argument("--json", action="store_true", help="print the report as JSON")
        verb.add_arguments(command)
    chosen = parser.parse_args(arguments)
    return verbs[chosen.verb].run(chosen)


def copying(settings: type[DatabaseSettings], service: str) -> Verb:
    """Return the verb ``copy`` of a service."""

    def add_arguments(command: argparse.ArgumentParser) -> None:
        command.add_argument(
            "--to", required=True, help="an empty database: sqlite:///file or postgresql://..."
        )

    def run(chosen: argparse.Namespace) -> int:
        counts = copy_database(settings.load(chosen.config).database_url, chosen.to, service)
        lines = (*(f"{name}: {rows} rows" for name, rows in counts.items()), "copied")
        sys.stdout.write(printable_lines("\n".join(lines) + "\n"))
        return 0

    return Verb("copy the database into an empty one", run, add_arguments)


def show_report(report: Report, text: Callable[[Report], str], as_json: bool) -> int:
    """Print a report; returns the exit status."""
    sys.stdout.write((json.dumps(report) if as_json else printable_lines(text(report))) + "\n")
    return 0 if report["ok"] else 1
