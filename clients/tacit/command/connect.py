"""From the command's options to a connected client. Imports wait until a command runs."""
# ruff: noqa: PLC0415

from pathlib import Path
from typing import TYPE_CHECKING

from tacit.errors import InputError

if TYPE_CHECKING:
    from tacit.agent_client import AgentClient
    from tacit.client import Client

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
    from tacit.configuration import TESTER_PORT, read_toml, text_field
    from tacit.keys import load_key

    fields = read_toml(tester_file)
    key = load_key(tester_file.parent / text_field(fields, "key_file", tester_file))
    host = str(fields.get("host", "127.0.0.1"))
    # The tester's own machine reaches it on its local address, whatever name the world knows it by.
    local_host = "127.0.0.1" if host in {"0.0.0.0", "::"} else host  # noqa: S104 (compared, not bound)
    public_url = text_field(fields, "url", tester_file)
    # A certificate names the public address, so a tester that serves TLS itself is asked there.
    serves_tls = "tls_certificate_file" in fields
    url = public_url if serves_tls else f"http://{local_host}:{fields.get('port', TESTER_PORT)}"
    audience = str(fields.get("audience") or public_url)
    return Client(url, key, audience=audience, tester_key=key.public_hex)


def agent_client(agent_file: Path) -> "AgentClient":
    """Return a client of the agent that an agent.toml describes."""
    from tacit.agent_client import AgentClient

    return AgentClient.from_configuration(agent_file)


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
