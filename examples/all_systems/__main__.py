"""Every system, from one command: `python -m examples.all_systems`, or `make demo DEMO_FLAGS=--all`."""

from typing import TYPE_CHECKING

from tacit.command import main

if TYPE_CHECKING:
    from typer import Typer


def program() -> "Typer":
    """Load the command."""
    from examples.all_systems.program import app  # noqa: PLC0415 (an interruption meanwhile ends quietly)

    return app


if __name__ == "__main__":
    main(program)
