"""From the command's options to a connected client. Imports wait until a command runs."""
# ruff: noqa: PLC0415

from pathlib import Path
from typing import TYPE_CHECKING

from tacit.errors import InputError

if TYPE_CHECKING:
    from tacit.agent_client import AgentClient
    from tacit.client import Client
    from tacit.curator_client import CuratorClient

DIGEST_LENGTH = 64
PREFIX_LENGTH_MIN = 4
"""Shortest beginning of a digest that is taken for one."""


def party_client(party_file: Path) -> "Client":
    """Return a client for the party that a party.toml (or an agent.toml) describes."""
    import ssl

    from tacit.client import Client
    from tacit.configuration import read_party

    party = read_party(party_file)
    tls = None if party.ca_file is None else ssl.create_default_context(cafile=str(party.ca_file))
    return Client(
        party.tester.url,
        party.key_file,
        audience=party.tester.audience,
        tester_key=party.tester.key,
        tls=tls,
    )


def tester_client(tester_file: Path) -> "Client":
    """Return a client that uses the tester's own key, at the address that its tester.toml gives."""
    from tacit.client import Client
    from tacit.configuration import TESTER_PORT, local_address, read_toml, text_field
    from tacit.keys import load_key

    fields = read_toml(tester_file)
    key = load_key(tester_file.parent / text_field(fields, "key_file", tester_file))
    address = local_address(fields, tester_file, TESTER_PORT)
    return Client(address.url, key, audience=address.audience, tester_key=key.public_hex)


def agent_client(agent_file: Path) -> "AgentClient":
    """Return a client of the agent that an agent.toml describes."""
    from tacit.agent_client import AgentClient

    return AgentClient.from_configuration(agent_file)


def owner_client(owner_file: Path) -> "CuratorClient":
    """Return a client of the curator that an owner.toml names, for that owner."""
    from tacit.curator_client import CuratorClient

    return CuratorClient.of_owner(owner_file)


def operator_client(curator_file: Path) -> "CuratorClient":
    """Return a client that uses the curator's own key, at the address that its curator.toml gives."""
    from tacit.curator_client import CuratorClient

    return CuratorClient.of_operator(curator_file)


def whole_digest(beginning: str, known: list[str]) -> str:
    """Return the one digest that starts so.

    Raises:
        InputError: there is none, or more than one.
    """
    if len(beginning) == DIGEST_LENGTH:
        return beginning
    if len(beginning) < PREFIX_LENGTH_MIN:
        raise InputError(f"give at least {PREFIX_LENGTH_MIN} characters of the study's digest")
    matching = [digest for digest in known if digest.startswith(beginning)]
    if len(matching) != 1:
        found = "no study starts" if not matching else f"{len(matching)} studies start"
        raise InputError(f"{found} with {beginning}: list the studies and give more of the digest")
    return matching[0]
