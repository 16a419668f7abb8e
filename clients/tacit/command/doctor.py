"""`tacit doctor`: look before anything runs."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from pathlib import Path
from typing import Annotated

import typer

from tacit.command.output import Json

CANDIDATES = ("agent.toml", "tester.toml", "curator.toml", "party.toml", "owner.toml")


def doctor(
    config: Annotated[
        Path | None, typer.Option(help="agent.toml, curator.toml, party.toml, ...; by default the one here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check clock, key file, tester, database and data. Exit code 1 where something is wrong."""
    from tacit.command.connect import told_ca_file
    from tacit.command.output import print_json, table
    from tacit.doctor import examine

    findings = list(examine(config or _found_here(), ca_file=told_ca_file()))
    if as_json:
        print_json([{"name": f.name, "state": f.state, "text": f.text} for f in findings])
    else:
        table(("Check", "State", ""), [(f.name, f.state, f.text) for f in findings])
    if any(finding.state == "failed" for finding in findings):
        raise typer.Exit(1)


def _found_here() -> Path:
    from tacit.errors import InputError

    for name in CANDIDATES:
        if Path(name).is_file():
            return Path(name)
    raise InputError(f"there is no {', '.join(CANDIDATES)} here: name one with --config")
