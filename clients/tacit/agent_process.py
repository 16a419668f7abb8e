"""The agent's own commands, each run in a process of its own: no service is ever imported here."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import ServiceError
from tacit.processes import service_command

ALIGN_TIMEOUT_S = 3600.0
"""How long reading every id of a data set may take."""


@dataclass(frozen=True)
class Alignment:
    """What the agent's ``align`` printed, and whether it was done."""

    passed: bool
    output: str


def run_align(configuration: Path, arguments: Sequence[str]) -> Alignment:
    """Run a step of the agent's ``align``: ``make`` or ``compare``, with what it takes.

    Raises:
        ServiceError: it could not be run.
    """
    command = [*service_command("agent", "align", configuration), *arguments]
    try:
        done = subprocess.run(  # noqa: S603 (our own module, by an argument list)
            command, capture_output=True, text=True, timeout=ALIGN_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ServiceError(f"reading the ids took longer than {ALIGN_TIMEOUT_S:g} s") from error
    if not done.stdout:
        said = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
        raise ServiceError(said[0] if done.returncode == 1 else f"the ids could not be compared: {said[0]}")
    return Alignment(done.returncode == 0, done.stdout.rstrip("\n"))
