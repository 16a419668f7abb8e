"""`tacit ledger`: every budget spent on every data set of an owner."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.command.output import AGENT_FILE, AgentFile, Json

app = typer.Typer(name="ledger", help="Show, verify and export an owner's ledger.", no_args_is_help=True)

DataSet = Annotated[str | None, typer.Option(help="Only this data set.")]
FIELDS = (
    "sequence",
    "at",
    "data_set",
    "kind",
    "study",
    "epsilon_micro",
    "delta_pico",
    "paid_by",
    "pure_pico",
    "gaussian_femto",
    "approximate_atto",
)


@app.command("show")
def show(data_set: DataSet = None, config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Show what was spent, when, on which study, and what is left of each share."""
    from tacit.client.answers import Standing, parse_item
    from tacit.command.connect import agent_client
    from tacit.command.output import lines, print_json

    with agent_client(config) as client:
        entries = client.ledger(data_set)
        accounts = [] if as_json else client.status()["data_sets"]
    if as_json:
        print_json(entries)
        return
    print_entries(entries)
    for account in accounts:
        if data_set in {None, account["name"]}:
            lines(f"{account['name']}: epsilon {parse_item(Standing, account).left_words} left")


def print_entries(entries: Iterable[Mapping[str, Any]]) -> None:
    """Print a ledger's entries."""
    from tacit.command.output import delta_text, epsilon_text, table

    table(
        ("#", "At", "Data set", "What", "Epsilon", "Delta", "Paid by"),
        [
            (
                entry["sequence"],
                _when(entry["at"]),
                entry["data_set"],
                "cap set" if entry["study"] is None else f"study {entry['study'][:12]}",
                epsilon_text(entry["epsilon_micro"]),
                delta_text(entry["delta_pico"]),
                _payer(entry),
            )
            for entry in entries
        ],
    )


@app.command("export")
def export(
    output: Annotated[Path, typer.Option(help="A .csv or .json file to write.")],
    data_set: DataSet = None,
    config: AgentFile = AGENT_FILE,
    as_json: Json = False,
) -> None:
    """Write the ledger to a file: JSON with every mechanism event, or CSV with one line an entry."""
    import csv
    import io
    import json

    from tacit.atomic_write import require_writable
    from tacit.command.connect import agent_client
    from tacit.command.output import lines, print_json, write_file
    from tacit.errors import InputError

    if output.suffix not in {".csv", ".json"}:
        raise InputError("--output must end in .csv or .json")
    require_writable(output)
    with agent_client(config) as client:
        entries = client.ledger(data_set)
    text = io.StringIO()
    if output.suffix == ".json":
        json.dump(entries, text, indent=2)
    else:
        writer = csv.DictWriter(text, FIELDS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows(entries)
    write_file(output, text.getvalue().encode())
    if as_json:
        print_json({"output": str(output), "entries": len(entries)})
        return
    lines(f"Wrote {len(entries)} entries to {output}.")


@app.command("verify")
def verify(
    kept: Annotated[
        list[str] | None, typer.Option(help="A head hash that was kept elsewhere: it must still be there.")
    ] = None,
    config: AgentFile = AGENT_FILE,
    as_json: Json = False,
) -> None:
    """Check that no entry was changed, removed, added or reordered. Exit code 1 where one was."""
    from tacit.command.connect import agent_client
    from tacit.command.output import print_json

    hashes = checked_hashes(kept or [])
    with agent_client(config) as client:
        report = client.verify_ledger(hashes)
    if as_json:
        print_json(report)
    else:
        print_verification(report)
    if not report["ok"]:
        raise typer.Exit(1)


def checked_hashes(hashes: list[str]) -> list[str]:
    """Return the hashes; raises InputError where one is none."""
    from tacit.errors import InputError

    if not all(re.fullmatch("[0-9a-f]{64}", one) for one in hashes):
        raise InputError("--kept must be 64 hexadecimal digits, as this command shows them")
    return hashes


def print_verification(report: Mapping[str, Any]) -> None:
    """Print what checking a ledger has found."""
    from tacit.client.answers import Standing, parse_item
    from tacit.command.output import lines, table

    table(
        ("Head hash", "Data set", "Entries", "Epsilon left"),
        [
            (
                account["head_hash"],
                account["data_set"],
                account["entries"],
                parse_item(Standing, account["standing"]).left_words,
            )
            for account in report["accounts"]
        ],
    )
    lines(*(f"Damaged: {fault}" for fault in report["faults"]))
    if report["ok"]:
        lines("The ledger is whole. Keep the head hashes in another place: --kept compares them later.")


def _payer(entry: Mapping[str, Any]) -> str:
    payer = entry.get("paid_by")
    return "" if payer is None else "both shares" if payer == "both" else f"{str(payer).capitalize()} share"


def _when(at: object) -> str:
    from tacit.command.output import time_text

    return time_text(at) if isinstance(at, int | float) else str(at)
