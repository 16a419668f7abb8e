"""From a command's options to a connected client or a service. Imports wait until a command runs."""

# ruff: noqa: PLC0415 (imports wait until a command runs, so that --help is quick)

import inspect
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.command.output import (
    AGENT_FILE,
    OWNER_FILE,
    PARTY_FILE,
    Json,
    answer,
    lines,
    print_json,
    table,
    time_text,
)
from tacit.errors import ConfigurationError, InputError
from tacit.setup.processes import ServiceKind, service_command
from tacit_protocol.terminal import printable

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
    from tacit.setup.configuration import read_own_service

    own = read_own_service(tester_file, "tester")
    return Client(
        own.url,
        own.key,
        audience=own.audience,
        tester_key=own.key.public_hex,
        **way(own.route.trusting(told_ca_file()), own.url),
        insecure_plain_http=own.insecure_plain_http,
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


# What a shell completes: whatever cannot be known, for want of a file or a service, is not offered.


def procedures(incomplete: str) -> list[tuple[str, str]]:
    """Complete a procedure's name."""
    from tacit_protocol.procedures.discovery import PROCEDURES

    return [(name, found.title) for name, found in PROCEDURES.items() if name.startswith(incomplete)]


def digests(ctx: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Complete a study's digest, of those at the service that the command asks."""
    with suppress(Exception), _client_of(ctx) as client:
        studies = [vars(study) if not isinstance(study, dict) else study for study in client.studies()]
        return [
            (study["digest"], printable(study["title"] or ""))
            for study in studies
            if study["digest"].startswith(incomplete)
        ]
    return []


def _client_of(ctx: typer.Context) -> "Client | AgentClient | CuratorClient":
    given, path = ctx.params, ctx.command_path.split()
    config, owner = given.get("config"), given.get("owner")
    if "agent" in path:
        return agent_client(config or AGENT_FILE)
    if "curator" in path:
        return owner_client(owner or OWNER_FILE) if config is None else operator_client(config)
    return party_client(given.get("party") or PARTY_FILE)


def published(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete ``owner/data-set``, of those that the tester's catalogue has."""
    with suppress(Exception), party_client(ctx.params.get("party") or PARTY_FILE) as client:
        named = [f"{found.owner}/{own.name}" for found in client.catalogues() for own in found.data_sets]
        return [name for name in named if name.startswith(incomplete)]
    return []


def data_sets_here(ctx: typer.Context, incomplete: str) -> list[str]:
    """Complete a data set's name, of those in agent.toml."""
    from tacit.setup.configuration import read_toml

    with suppress(Exception):
        config = ctx.params.get("config") or AGENT_FILE
        settings, found = read_toml(config), list[Any]()
        added = config.parent / str(settings.get("data_sets_file", "data-sets.toml"))
        for tables in (settings, read_toml(added) if added.exists() else {}):
            found += tables.get("data_sets", [])
        names = [str(each["name"]) for each in found]
        return [name for name in names if name.startswith(incomplete)]
    return []


Digest = Annotated[str, typer.Argument(help="The study's digest, or its beginning.", autocompletion=digests)]


ForUser = Annotated[
    str | None,
    typer.Option("--user", help="For whom, as `users list` names them; else whoever holds the key."),
]


def print_link(door: "Callable[[Path], Door]", configuration: Path, user: str | None, as_json: bool) -> None:
    """Ask the service for a link for one of the party's people, and print it."""
    from tacit.client.sign_in import make_sign_in_link

    link = make_sign_in_link(door(configuration), user, ca_file=told_ca_file())
    answer(
        as_json,
        {"url": link.url, "expires_at": link.expires_at},
        f"Open this in your browser, once, until {time_text(link.expires_at)}:",
        f"  {link.url}",
    )


DETAILS = ("name", "role", "email", "file")
"""What is told of a recorded change, where it has it."""


def users_app(door: str, file: Any, default: Path) -> typer.Typer:
    """Return the commands ``users list|add|remove|record`` of one kind of party.

    Args:
        door: the function of tacit.client.sign_in that returns the door of the service where the party's
            people are kept, from the party's own file.
        file: the option that names that file.
        default: which file it is unless told.
    """
    app = typer.Typer(
        name="users", help="The people who sign in to the pages, and what they changed.", no_args_is_help=True
    )

    def ask(
        config: Path,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        query: dict[str, str] | None = None,
    ) -> dict[str, Any]:
        from tacit.client import sign_in
        from tacit.client.http import HttpRequest
        from tacit_protocol.messages.encoding import encode_json

        sent = None if body is None else encode_json(body)
        asked: Door = getattr(sign_in, door)(config)
        return sign_in.ask_door(asked, HttpRequest(method, path, query or {}, sent), ca_file=told_ca_file())

    def path_of(name: str) -> str:
        if not re.fullmatch("[a-z0-9][a-z0-9._-]{0,62}", name):
            raise InputError("a person's name has small letters, digits, '.', '_' and '-', at most 63")
        return f"/v1/users/{name}"

    @app.command("list")
    @connecting
    def list_users(config: file = default, as_json: Json = False) -> None:
        """List the people, those who were removed among them."""
        from tacit.client.http import parse_item
        from tacit_protocol.messages.answers import User

        found = [parse_item(User, item) for item in ask(config, "GET", "/v1/users").get("items", ())]
        if as_json:
            print_json([user.model_dump() for user in found])
            return
        table(
            ("Name", "Role", "E-mail", "Added", "Removed"),
            [
                (
                    user.name,
                    user.role,
                    user.email or "",
                    time_text(user.added_at),
                    "" if user.removed_at is None else time_text(user.removed_at),
                )
                for user in found
            ],
        )
        lines("Besides, whoever holds the key is the admin key-holder.")

    @app.command("add")
    @connecting
    def add_user(
        name: Annotated[str, typer.Argument(help="Small letters, digits, '.', '_' and '-'.")],
        role: Annotated[str, typer.Option(help="viewer, steward, officer or admin.")],
        email: Annotated[
            str | None, typer.Option(help="The address by which your OpenID provider knows the person.")
        ] = None,
        config: file = default,
        as_json: Json = False,
    ) -> None:
        """Add a person, or change the role or the address of one: the person has to sign in again."""
        if role not in {"viewer", "steward", "officer", "admin"}:
            raise InputError("--role must be viewer, steward, officer or admin")
        done = ask(config, "PUT", path_of(name), {"role": role, "email": email})
        answer(as_json, done, f"{name} is a {role}. A link for {name}: login --user {name}")

    @app.command("remove")
    @connecting
    def remove_user(
        name: Annotated[str, typer.Argument(help="Whom.")], config: file = default, as_json: Json = False
    ) -> None:
        """Remove a person: signed out at once. The name stays theirs."""
        done = ask(config, "DELETE", path_of(name))
        answer(as_json, done, f"Removed {name}, whose sessions have ended.")

    @app.command("record")
    @connecting
    def record(config: file = default, as_json: Json = False) -> None:
        """Show who changed people or an agent's policy, oldest first. Exit code 1 where it is damaged."""
        from tacit.client.http import parse_item
        from tacit_protocol.messages.answers import ChangeRecord

        found = parse_item(ChangeRecord, ask(config, "GET", "/v1/record"))
        last = found.next
        while last is not None:
            more = parse_item(ChangeRecord, ask(config, "GET", "/v1/record", query={"after": str(last)}))
            found = more.model_copy(update={"entries": (*found.entries, *more.entries)})
            last = more.next if more.next is not None and more.next > last else None
        if as_json:
            print_json(found.model_dump())
        else:
            table(
                ("When", "Who", "What", "Of"),
                [
                    (
                        time_text(entry.at),
                        entry.person,
                        entry.action,
                        ", ".join(str(entry.detail[name]) for name in DETAILS if entry.detail.get(name)),
                    )
                    for entry in found.entries
                ],
            )
            lines("The record is whole." if found.fault is None else f"Damaged: {found.fault}")
        if found.fault is not None:
            raise typer.Exit(1)

    return app


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
