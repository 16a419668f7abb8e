"""What commands print: JSON where --json asks for it, otherwise tables and lines for people."""
# ruff: noqa: PLC0415 (imports wait until something is printed, so that --help is quick)

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit_protocol.terminal import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.text import Text

Json = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it without asking, for scripts.")]
AgentFile = Annotated[
    Path, typer.Option("--config", envvar="TACIT_AGENT_CONFIG", help="The agent's agent.toml.")
]
TesterFile = Annotated[
    Path, typer.Option("--config", envvar="TACIT_TESTER_CONFIG", help="The tester's tester.toml.")
]
PartyFile = Annotated[
    Path, typer.Option("--party", envvar="TACIT_PARTY", help="The party.toml that says who you are.")
]
CuratorFile = Annotated[
    Path, typer.Option("--config", envvar="TACIT_CURATOR_CONFIG", help="The curator's curator.toml.")
]
OwnerFile = Annotated[
    Path, typer.Option("--owner", envvar="TACIT_OWNER", help="The owner.toml that says who you are.")
]

AGENT_FILE = Path("agent.toml")
TESTER_FILE = Path("tester.toml")
PARTY_FILE = Path("party.toml")
CURATOR_FILE = Path("curator.toml")
OWNER_FILE = Path("owner.toml")

EPSILON_UNITS, DELTA_UNITS = 10**6, 10**12


def foreign(text: object) -> "Text":
    """Return text that anyone may have written as rich prints it: no markup, no emoji codes, no escapes.

    Everything that a command prints for people goes through here, or is constant.
    """
    from rich.text import Text

    return Text(printable(text))


def console() -> "Console":
    """Return a console on standard output."""
    from rich.console import Console

    return Console(highlight=False)


def print_json(value: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(value, indent=2, default=str))


def answer(as_json: bool, fields: Any, *texts: str) -> None:
    """Print the fields as JSON for a program, or the lines for people."""
    if as_json:
        print_json(fields)
    else:
        lines(*texts)


def same(option: str, file: Path, default: Path) -> str:
    """Return the option by which a later command reads the same file; nothing where it does so by itself."""
    return "" if file == default else f" --{option} {shlex.quote(str(file))}"


ONE_BIT = (
    "Each time, the next failure tells those who ask one more bit about its rows: find the reason first."
)


def agreed(question: str, yes: bool, as_json: bool) -> None:
    """Ask the person at the terminal; return if the answer is yes, or where ``yes`` says so beforehand.

    Raises:
        InputError: the answer is another one, or nobody is there to be asked.
    """
    from tacit.errors import InputError

    if yes:
        return
    if as_json or not sys.stdin.isatty():
        raise InputError("nobody is there to be asked, and nothing was done: add --yes")
    lines(question)
    if typer.prompt("yes or no", default="no").strip().lower() not in {"y", "yes"}:
        raise InputError("nothing was done")


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; headings and cells are plain text, whoever wrote them.

    The first column is never cut or wrapped.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    grid = Table(box=SIMPLE_HEAD)
    for index, heading in enumerate(headings):
        grid.add_column(foreign(heading), no_wrap=index == 0, overflow="fold")
    for row in rows:
        grid.add_row(*(foreign(cell) for cell in row))
    console().print(grid)


def lines(*texts: str) -> None:
    """Print lines of plain text; whoever wrote them, they cannot steer the terminal."""
    out = console()
    for text in texts:
        out.print(foreign(text), soft_wrap=True)


def lines_to_errors(*texts: str) -> None:
    """Print lines of plain text on standard error, beside what programs read."""
    from rich.console import Console

    for text in texts:
        Console(stderr=True, highlight=False).print(foreign(text), soft_wrap=True)


@contextmanager
def progress(description: str, quiet: bool = False) -> Iterator[Callable[[float, str], None]]:
    """Show a bar on standard error while the block runs; yields what takes the part done and the step."""
    from rich.progress import TaskProgressColumn

    with _bar(TaskProgressColumn(), quiet) as bar:
        task = bar.add_task(printable(description), total=1.0)

        def report(part: float, step: str) -> None:
            bar.update(task, completed=part, description=printable(step or description))

        yield report


@contextmanager
def upload_progress(
    description: str, size_bytes: int, quiet: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show a bar of bytes, with rate and time left, meanwhile; yields what takes the bytes sent."""
    from rich.progress import DownloadColumn

    with _bar(DownloadColumn(), quiet) as bar:
        task = bar.add_task(printable(description), total=size_bytes)
        yield lambda sent: bar.update(task, completed=sent)


def _bar(done: "ProgressColumn", quiet: bool) -> "Progress":
    """Return a bar; there is none where ``quiet``, or where standard error is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    errors = Console(stderr=True)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), done, TimeRemainingColumn())
    return Progress(*columns, console=errors, transient=True, disable=quiet or not errors.is_terminal)


def write_file(path: Path, data: bytes) -> None:
    """Write a file that the user named, whole or not at all; raises InputError where it cannot be."""
    from tacit.atomic_write import written_whole

    with written_whole(path) as file:
        file.write(data)


def keys(rows: Iterable[tuple[str, str]]) -> None:
    """Print who has which public key, each whole and on one line, so that they can be compared."""
    listed = list(rows)
    width = max((len(name) for name, _ in listed), default=0)
    lines(*(f"  {name:{width}}  {key}" for name, key in listed))


def epsilon_text(micro: int) -> str:
    """Write micro-epsilons as an epsilon."""
    return f"{micro / EPSILON_UNITS:.6f}".rstrip("0").rstrip(".")


def delta_text(pico: int) -> str:
    """Write pico-deltas as a delta."""
    return f"{pico / DELTA_UNITS:.6g}"


def time_text(seconds: float | None) -> str:
    """Write Unix seconds as a time in UTC."""
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def print_checks(checks: Iterable[tuple[str, str, str]], as_json: bool) -> None:
    """Print checks, each its name, state and text; ends the command with exit code 1 where one ``failed``."""
    found = list(checks)
    if as_json:
        print_json([{"name": name, "state": state, "text": text} for name, state, text in found])
    else:
        table(("Check", "State", ""), found)
    if any(state == "failed" for _, state, _ in found):
        raise typer.Exit(1)
