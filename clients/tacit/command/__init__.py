"""The `tacit` command: noun, then verb. Exit codes: 0 done, 1 refused or failed, 2 wrong use."""

import sys


def main() -> None:
    """Run the command on this process's arguments, and exit."""
    from tacit.command.app import run  # noqa: PLC0415 (so that importing the package stays free)

    sys.exit(run(sys.argv[1:]))
