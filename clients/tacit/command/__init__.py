"""The `tacit` command: noun, then verb. Exit codes: 0 done, 1 refused or failed, 2 wrong use."""

import gc
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typer import Typer

FAILED, INTERRUPTED = 1, 130

COLLECT_AFTER = 200_000
"""New objects after which garbage is looked for: those of imports stay, and looking took a tenth of the
time that a short command has."""


def main(load: "Callable[[], Typer] | None" = None) -> None:
    """Run the command, or the program that ``load`` loads, on this process's arguments, and exit."""
    sys.excepthook = _report_fault
    gc.set_threshold(COLLECT_AFTER)
    # httpx takes its own command, and the syntax colours that that loads, for not installed: none runs here.
    sys.modules["httpx._main"] = None  # type: ignore[assignment]
    try:
        from tacit.command.app import run  # noqa: PLC0415 (so that importing the package stays free)

        code = run(sys.argv[1:], None if load is None else load())
        sys.stdout.flush()
    except KeyboardInterrupt:  # before the command itself could take it, or while it was ending
        code = INTERRUPTED
    except OSError as error:
        if error.filename is not None:
            raise
        code = _output_lost(error)
    # `python -m` ends by the signal, whatever the exit code, where an interruption came while Python ran code
    # given as text, as dataclasses do. Running some text once more makes it forget that.
    exec("")  # noqa: S102
    sys.exit(code)


def _output_lost(error: OSError) -> int:
    """Say that standard output, which alone has no name, could not be written: a full disk, a pipe's end."""
    import json  # noqa: PLC0415 (seldom needed)
    import os  # noqa: PLC0415

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to write goes nowhere
    message = f"cannot write standard output: {os.strerror(error.errno or 0)}"
    if "--json" in sys.argv:
        message = json.dumps({"error": "OutputError", "message": message})
    sys.stderr.write(f"{message}\n")
    return FAILED


def _report_fault(kind: type[BaseException], error: BaseException, trace: "TracebackType | None") -> None:
    """Print the trace of a fault of our own; what its message quotes cannot steer the terminal."""
    import traceback  # noqa: PLC0415 (seldom needed)

    from tacit_protocol.terminal import printable_lines  # noqa: PLC0415

    for part in traceback.format_exception(kind, error, trace):
        sys.stderr.write(f"{printable_lines(part.rstrip(chr(10)))}\n")
