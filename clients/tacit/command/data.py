"""`tacit data`: describe, check and align an owner's data, on its machine alone."""

# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tacit.command.output import AGENT_FILE, AgentFile, Json

align_app = typer.Typer(
    name="align",
    help="Compare the units of a data set with another owner's, without the tester.",
    no_args_is_help=True,
)

DataSet = Annotated[str, typer.Option(help="A data set of agent.toml.")]
UnitColumn = Annotated[
    str | None, typer.Option(help="The id that both owners share; the data set's unit_column.")
]
SharedKey = Annotated[Path, typer.Option(help="The key that both owners share, from `tacit data align key`.")]


@align_app.command("key")
def key(
    out: Annotated[Path, typer.Option(help="A new file, for you and the other owner alone.")],
    as_json: Json = False,
) -> None:
    """Draw a key for two owners. Take it to the other owner yourself: the tester must never see it."""
    from tacit.command.output import lines, print_json
    from tacit.setup.keys import create_unit_key

    create_unit_key(out)
    if as_json:
        print_json({"key_file": str(out)})
    else:
        lines(f"{out}: for you and one other owner; never for the tester or an analyst")


@align_app.command("make")
def make(
    *,
    data_set: DataSet,
    key: SharedKey,
    out: Annotated[Path, typer.Option(help="The file to write, for the other owner.")],
    unit_column: UnitColumn = None,
    config: AgentFile = AGENT_FILE,
    as_json: Json = False,
) -> None:
    """Read the ids and write the file that the other owner compares with."""
    _run(config, ["make", *_of(data_set, key, unit_column), "--out", str(out)], as_json)


@align_app.command("compare")
def compare(
    *,
    data_set: DataSet,
    key: SharedKey,
    theirs: Annotated[Path, typer.Option("--with", help="The file that the other owner made.")],
    unit_column: UnitColumn = None,
    list_ids: Annotated[
        bool, typer.Option("--list", help="Name the ids that may differ, on this screen.")
    ] = False,
    config: AgentFile = AGENT_FILE,
    as_json: Json = False,
) -> None:
    """Compare with the other owner's file. Where the units are the same, the agent remembers it."""
    listed = ["--list"] if list_ids else []
    _run(config, ["compare", *_of(data_set, key, unit_column), "--with", str(theirs), *listed], as_json)


@align_app.command("list")
def list_alignments(config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """List what the agent has recorded: which data set is aligned with whose, by which digest."""
    _run(config, ["list"], as_json)


@align_app.command("forget")
def forget(
    *,
    digest: Annotated[str, typer.Argument(help="The alignment's digest, whole.")],
    config: AgentFile = AGENT_FILE,
    as_json: Json = False,
) -> None:
    """Forget an alignment and its key: the agent refuses studies that name it from then on."""
    _run(config, ["forget", "--digest", digest], as_json)


def _of(data_set: str, key: Path, unit_column: str | None) -> list[str]:
    of = ["--data-set", data_set, "--key", str(key)]
    return of if unit_column is None else [*of, "--unit-column", unit_column]


def _run(config: Path, arguments: Sequence[str], as_json: bool) -> None:
    from tacit.command.output import lines
    from tacit.setup.processes import run_align

    done = run_align(config, [*arguments, *(["--json"] if as_json else [])])
    if as_json:
        print(done.output)
    else:
        lines(*done.output.splitlines())
    if not done.passed:
        raise typer.Exit(1)


app = typer.Typer(
    name="data", help="Describe, check and align an owner's data, locally.", no_args_is_help=True
)
app.add_typer(align_app)


@app.command("check")
def check(config: AgentFile = AGENT_FILE, as_json: Json = False) -> None:
    """Read configuration, policy and data as the agent would; nothing leaves this machine."""
    from tacit.command.output import lines, print_json
    from tacit.setup.doctor import run_check

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
    from tacit.setup.column_description import CAUTION, columns_of, described, snippet

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
