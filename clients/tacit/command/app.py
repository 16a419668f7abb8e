"""The tree of commands, and what becomes of an error. Imports wait until a command is named, or runs."""

# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

import json
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from tacit.command import connect
from tacit.command.connect import connecting
from tacit.command.output import Json, foreign, print_checks
from tacit.errors import InputError, TacitError
from tacit_protocol.decimals import read_number
from tacit_protocol.terminal import printable_lines

CANDIDATES = ("agent.toml", "tester.toml", "curator.toml", "party.toml", "owner.toml")


def doctor(
    config: Annotated[
        Path | None, typer.Option(help="agent.toml, curator.toml, party.toml, ...; by default the one here.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Check clock, key file, tester, database and data. Exit code 1 where something is wrong."""
    from tacit.setup.doctor import examine

    checks = examine(config or _found_here(), ca_file=connect.told_ca_file())
    print_checks(((one.name, one.state, one.text) for one in checks), as_json)


def _found_here() -> Path:

    for name in CANDIDATES:
        if Path(name).is_file():
            return Path(name)
    raise InputError(f"there is no {', '.join(CANDIDATES)} here: name one with --config")


DONE, FAILED, WRONG_USE, INTERRUPTED = 0, 1, 2, 130

SHELLS = ("bash", "zsh", "fish", "powershell")
"""Shells that can complete the command."""

NOUNS = {
    "tester": ("party", "tester_app"),
    "agent": ("agent", "app"),
    "curator": ("curator", "app"),
    "owner": ("curator", "owner_app"),
    "party": ("party", "app"),
    "study": ("study", "app"),
    "data": ("agent", "data_app"),
    "ledger": ("agent", "ledger_app"),
    "plan": ("plan", "app"),
    "release": ("release", "app"),
}
"""The module of every noun, and its commands there."""


def command_tree(noun: str | None = None) -> typer.Typer:
    """Return the commands of one noun, without importing the others'; by default all commands."""
    tree = typer.Typer(
        name="tacit",
        help="Private statistical tests between institutions that cannot share their data.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    tree.callback()(tacit)
    for name, (module, commands) in NOUNS.items():
        if noun in (None, name):
            tree.add_typer(getattr(import_module(f"tacit.command.{module}"), commands))
    if noun is None:
        from tacit.command import demo, study

        tree.command("demo")(demo.demo)
        tree.command("doctor")(connecting(doctor))
        tree.command("verify", help=VERIFY)(study.verify)
        tree.command("version")(version)
    return tree


VERIFY = "Recompute everything in a transcript, the verdict included (the same as `tacit study verify`)."


def _print_version(told: bool) -> None:
    if told:
        version()
        raise typer.Exit


def tacit(
    told: Annotated[
        bool,
        typer.Option("--version", "-V", help="Print the version.", is_eager=True, callback=_print_version),
    ] = False,
) -> None:
    """Private statistical tests between institutions that cannot share their data."""


def version(as_json: Json = False) -> None:
    """Print the version."""
    from tacit import __version__

    print(json.dumps({"version": __version__}) if as_json else f"tacit {__version__}")


UsageError: type[Exception] = typer.BadParameter.__mro__[1]
"""What a command line that cannot be used raises; typer exports its subclass alone."""


def run(arguments: Sequence[str], program: typer.Typer | None = None) -> int:
    """Run a program, by default the command itself, on arguments; returns the exit code."""
    as_json = "--json" in arguments
    try:
        if len(arguments) > 1 and arguments[0] == "--show-completion":
            print(_completion(arguments[1]))
            return DONE
        # Not standing alone: typer would print what it was given as it is, escapes and all.
        noun = arguments[0] if arguments and arguments[0] in NOUNS else None
        program = program or command_tree(noun)
        tree = get_command(program)
        _read_numbers_alike(tree)
        ended = tree(args=list(arguments), prog_name=program.info.name, standalone_mode=False)
    except (SystemExit, BrokenPipeError) as end:
        return _ended(end)
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except TacitError as error:
        _report(error, as_json)
        return WRONG_USE if isinstance(error, InputError) else FAILED
    except UsageError as error:
        _report_wrong_use(error, as_json)
        return WRONG_USE
    return ended if isinstance(ended, int) else DONE


def _read_numbers_alike(command: Any) -> None:
    """Have every option that is a number read as forms read theirs: Python takes ``1_0`` for ten."""
    for parameter in command.params:
        parameter.process_value = partial(_processed, parameter, parameter.process_value)
    for inner in getattr(command, "commands", {}).values():
        _read_numbers_alike(inner)


def _processed(parameter: Any, process: Callable[[Any, Any], Any], context: Any, value: Any) -> Any:
    found = process(context, value)
    given, read = (one if isinstance(one, list | tuple) else [one] for one in (value, found))
    for text, number in zip(given, read, strict=False):
        if isinstance(text, str) and isinstance(number, int | float) and not isinstance(number, bool):
            try:
                read_number(text)
            except ValueError as error:
                raise typer.BadParameter(str(error), context, parameter) from None
    return found


def _ended(end: SystemExit | BrokenPipeError) -> int:
    """Return the exit code of a command that ended by itself, or whose reader has read enough."""
    if isinstance(end, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return end.code if isinstance(end.code, int) else FAILED


def _completion(shell: str) -> str:
    """Return the script that lets a shell complete the command."""
    from typer._completion_shared import get_completion_script

    if shell not in SHELLS:
        raise InputError(f"there is no completion for {shell}: write one of {', '.join(SHELLS)}")
    return get_completion_script(prog_name="tacit", complete_var="_TACIT_COMPLETE", shell=shell)


def _report_wrong_use(error: Exception, as_json: bool) -> None:
    """Report a command line that cannot be used, as typer does, or to a program."""
    words = str(getattr(error, "format_message", lambda: str(error))())
    if not as_json:
        from typer.rich_utils import rich_format_error

        error.format_message = lambda: printable_lines(words)  # type: ignore[attr-defined]
        rich_format_error(error)  # type: ignore[arg-type]
        return
    context = getattr(error, "ctx", None)
    command = getattr(context, "command_path", "tacit")
    said = words.splitlines()[0].rstrip(".") if words else "this cannot be used"
    message = f"{said}. See {command} --help"
    print(json.dumps({"error": "UsageError", "message": message}), file=sys.stderr)


def _report(error: TacitError, as_json: bool) -> None:
    if as_json:
        fields = {"error": type(error).__name__, "message": str(error)}
        problem = getattr(error, "problem", None)
        print(json.dumps(fields | ({"problem": problem} if problem else {})), file=sys.stderr)
        return
    from rich.console import Console

    console = Console(stderr=True)
    console.print("[red]tacit:[/red] ", end="")
    console.print(foreign(error), highlight=False, soft_wrap=True)
