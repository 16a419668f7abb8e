"""`tacit data`: look at an owner's data, on its machine alone."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from dataclasses import asdict
from typing import Annotated

import typer

from tacit.command.align import align_app
from tacit.command.output import AGENT_FILE, AgentFile, Json

app = typer.Typer(
    name="data", help="Describe, check and align an owner's data, locally.", no_args_is_help=True
)
app.add_typer(align_app)


@app.command("check")
def check(config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Read configuration, policy and data as the agent would; nothing leaves this machine."""
    from tacit.command.output import lines, print_json
    from tacit.doctor import run_check

    found = run_check("agent", config)
    if as_json:
        print_json(found.report)
    else:
        lines(found.text)
    if not found.passed:
        raise typer.Exit(1)


@app.command("describe")
def describe(
    source: Annotated[
        str, typer.Argument(help="A .csv or .parquet file, a folder of .parquet files, or a database URL.")
    ],
    table: Annotated[str | None, typer.Option(help="The table, of a database.")] = None,
    as_json: Json = False,
) -> None:
    """Propose bounds and levels by columns' names and types. No value is read: bounds from data leak it."""
    from tacit.command.output import lines_to_errors, print_json
    from tacit.described_columns import CAUTION, described, snippet
    from tacit.schemas import columns_of

    found = columns_of(source, table)
    columns = described(found)
    read = "the names" if all(column.type == "unknown" for column in found) else "the names and types"
    text = snippet(columns, "the table" if "://" in source else source, read)
    blank = [column.name for column in columns if not column.complete]
    if as_json:
        print_json(
            {
                "read": read,
                "columns": [asdict(column) for column in columns],
                "fill_in": blank,
                "caution": CAUTION,
                "toml": text,
            }
        )
        return
    print(text, end="")
    lines_to_errors(f"WARNING: {CAUTION}")
    if blank:
        lines_to_errors(f"Fill in: {', '.join(blank)}. The agent refuses blanks.")
