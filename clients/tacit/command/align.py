"""`tacit data align`: compare units with another owner, past the tester."""
# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

from collections.abc import Sequence
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
    from tacit.keys import create_unit_key

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
    from tacit.agent_process import run_align
    from tacit.command.output import lines

    done = run_align(config, [*arguments, *(["--json"] if as_json else [])])
    if as_json:
        print(done.output)
    else:
        lines(*done.output.splitlines())
    if not done.passed:
        raise typer.Exit(1)
