"""Run a service's own command in the place of this one."""

import os
from collections.abc import Sequence
from pathlib import Path

from tacit.errors import ConfigurationError
from tacit.processes import ServiceKind, service_command


def become(
    kind: ServiceKind, configuration: Path | None, verb: str = "serve", arguments: Sequence[str] = ()
) -> None:
    """Replace this process by the service's own command, so that signals and exit codes are its own.

    Raises:
        ConfigurationError: there is no such configuration file.
    """
    if configuration is not None and not configuration.is_file():
        raise ConfigurationError(f"there is no {configuration}: make one with `tacit {kind} init`")
    command = [*service_command(kind, verb, configuration), *arguments]
    os.execv(command[0], command)  # noqa: S606 (our own module, by an argument list)
