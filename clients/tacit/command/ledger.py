"""`tacit ledger`: every budget spent on every data set of an owner."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from pathlib import Path
from typing import Annotated

import typer

from tacit.command.output import AGENT_FILE, AgentFile, Json

app = typer.Typer(name="ledger", help="Show and export an owner's ledger.", no_args_is_help=True)

DataSet = Annotated[str | None, typer.Option(help="Only this data set.")]
FIELDS = ("sequence", "at", "data_set", "kind", "study", "epsilon_micro", "delta_pico", "spent_after_micro")


@app.command("show")
def show(data_set: DataSet = None, config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Show what was spent, when, on which study."""
    from tacit.command.connect import agent_client
    from tacit.command.output import delta_text, epsilon_text, print_json, table

    with agent_client(config) as client:
        entries = client.ledger(data_set)
    if as_json:
        print_json(entries)
        return
    table(
        ("#", "At", "Data set", "What", "Epsilon", "Delta", "Epsilon spent so far"),
        [
            (
                entry["sequence"],
                _when(entry["at"]),
                entry["data_set"],
                "cap set" if entry["study"] is None else f"study {entry['study'][:12]}",
                epsilon_text(entry["epsilon_micro"]),
                delta_text(entry["delta_pico"]),
                epsilon_text(entry["spent_after_micro"]),
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

    from tacit.command.connect import agent_client
    from tacit.command.output import lines, print_json, write_file
    from tacit.errors import InputError

    if output.suffix not in {".csv", ".json"}:
        raise InputError("--output must end in .csv or .json")
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


def _when(at: object) -> str:
    from tacit.command.output import time_text

    return time_text(at) if isinstance(at, int | float) else str(at)
