"""The `tacit` command: noun, then verb. Exit codes: 0 done, 1 refused or failed, 2 wrong use."""

import sys

INTERRUPTED = 130


def main() -> None:
    """Run the command on this process's arguments, and exit."""
    try:
        from tacit.command.app import run  # noqa: PLC0415 (so that importing the package stays free)

        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # before the command itself could take it, or while it was ending
        code = INTERRUPTED
    sys.exit(code)
