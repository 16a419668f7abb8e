"""From a command's options to a connected client or a service. Imports wait until a command runs."""

# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

import inspect
import os
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.command.output import answer, time_text
from tacit.errors import ConfigurationError, InputError
from tacit.setup.processes import ServiceKind, service_command

if TYPE_CHECKING:
    from tacit.client.agent import AgentClient
    from tacit.client.curator import CuratorClient
    from tacit.client.sign_in import Door
    from tacit.client.tester import Client

DIGEST_LENGTH = 64
PREFIX_LENGTH_MIN = 4
"""Shortest beginning of a digest that is taken for one."""

CaFile = Annotated[
    Path | None,
    typer.Option(
        "--ca-file",
        envvar="TACIT_CA_FILE",
        help="Certificates, in PEM, that the service's must chain to; comes before the configuration's.",
    ),
]

_told_ca_file: ContextVar[Path | None] = ContextVar("told_ca_file", default=None)


def connecting(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that also takes ``--ca-file``, for the clients that are made below while it runs.

    Every command that calls a tester or a curator is wrapped in this.
    """
    own = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for parameter in inspect.signature(command).parameters.values()
    ]
    option = inspect.Parameter("ca_file", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=CaFile)

    def run(**given: Any) -> None:
        told = _told_ca_file.set(given.pop("ca_file", None))
        try:
            command(**given)
        finally:
            _told_ca_file.reset(told)

    run.__doc__ = command.__doc__
    run.__signature__ = inspect.Signature([*own, option])  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in (*own, option)}
    return run


def told_ca_file() -> Path | None:
    """Return what the running command was told by ``--ca-file`` or TACIT_CA_FILE."""
    return _told_ca_file.get()


def party_client(party_file: Path) -> "Client":
    """Return a client for the party that a party.toml (or an agent.toml) describes."""
    from tacit.client.tester import Client
    from tacit.client.transport import way
    from tacit.setup.configuration import read_party

    party = read_party(party_file)
    return Client(
        party.tester.url,
        party.key_file,
        audience=party.tester.audience,
        tester_key=party.tester.key,
        **way(party.route.trusting(told_ca_file()), party.tester.url),
        insecure_plain_http=party.insecure_plain_http,
    )


def tester_client(tester_file: Path) -> "Client":
    """Return a client that uses the tester's own key, at the address that its tester.toml gives."""
    from tacit.client.tester import Client
    from tacit.client.transport import way
    from tacit.setup.configuration import TESTER_PORT, local_address, read_toml, route_of, text_field
    from tacit.setup.keys import load_key

    fields = read_toml(tester_file)
    key = load_key(tester_file.parent / text_field(fields, "key_file", tester_file))
    address = local_address(fields, tester_file, TESTER_PORT)
    return Client(
        address.url,
        key,
        audience=address.audience,
        tester_key=key.public_hex,
        **way(route_of(fields, "tester", tester_file).trusting(told_ca_file()), address.url),
        insecure_plain_http=fields.get("insecure_plain_http") is True,
    )


def agent_client(agent_file: Path) -> "AgentClient":
    """Return a client of the agent that an agent.toml describes."""
    from tacit.client.agent import AgentClient

    return AgentClient.from_configuration(agent_file)


def owner_client(owner_file: Path) -> "CuratorClient":
    """Return a client of the curator that an owner.toml names, for that owner."""
    from tacit.client.curator import CuratorClient

    return CuratorClient.of_owner(owner_file, told_ca_file())


def operator_client(curator_file: Path) -> "CuratorClient":
    """Return a client that uses the curator's own key, at the address that its curator.toml gives."""
    from tacit.client.curator import CuratorClient

    return CuratorClient.of_operator(curator_file, told_ca_file())


def whole_digest(beginning: str, client: "Client | AgentClient | CuratorClient") -> str:
    """Return the one digest of a service's studies that starts so; raises InputError where none does."""
    if len(beginning) == DIGEST_LENGTH:
        return beginning
    if len(beginning) < PREFIX_LENGTH_MIN:
        raise InputError(f"give at least {PREFIX_LENGTH_MIN} characters of the study's digest")
    known = (study["digest"] if isinstance(study, dict) else study.digest for study in client.studies())
    matching = [str(digest) for digest in known if digest.startswith(beginning)]
    if len(matching) != 1:
        found = "no study starts" if not matching else f"{len(matching)} studies start"
        raise InputError(f"{found} with {beginning}: list the studies and give more of the digest")
    return matching[0]


def print_link(door: "Callable[[Path], Door]", configuration: Path, as_json: bool) -> None:
    """Ask the service for a link, and print it."""
    from tacit.client.sign_in import make_sign_in_link

    link = make_sign_in_link(door(configuration), ca_file=told_ca_file())
    answer(
        as_json,
        {"url": link.url, "expires_at": link.expires_at},
        f"Open this in your browser, once, until {time_text(link.expires_at)}:",
        f"  {link.url}",
    )


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
