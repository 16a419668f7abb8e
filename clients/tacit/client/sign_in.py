"""One-time links to a service's pages, asked for with a party's own key."""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.client.http import HttpRequest, check, json_object
from tacit.client.tester import token_source
from tacit.client.transport import HttpTransport, Transport, way
from tacit.errors import ResponseError
from tacit.setup.configuration import (
    AGENT_PORT,
    OwnService,
    own_url,
    read_own_service,
    read_owner,
    read_party,
    read_toml,
    text_field,
)
from tacit.setup.keys import load_key
from tacit_protocol.addresses import DIRECT, Route
from tacit_protocol.messages.encoding import encode_json
from tacit_protocol.signing import PrivateKey

_PATH = re.compile(r"/sign-in\?link=[A-Za-z0-9_-]{20,100}")


@dataclass(frozen=True)
class Door:
    """Where a party signs in: ``asked`` is the address for the request, ``shown`` the one for the browser."""

    asked: str
    shown: str
    audience: str
    key: PrivateKey
    route: Route = DIRECT
    insecure_plain_http: bool = False


@dataclass(frozen=True)
class SignInLink:
    """A link that works once, until ``expires_at`` (Unix seconds)."""

    url: str
    expires_at: int


def agent_door(path: Path) -> Door:
    """Return the door of an owner's agent; raises ConfigurationError where its file cannot be read."""
    fields = read_toml(path)
    url = own_url(fields, AGENT_PORT)
    key = load_key(path.parent / text_field(fields, "key_file", path))
    insecure = fields.get("insecure_plain_http") is True
    return Door(url, url, f"agent:{text_field(fields, 'name', path)}", key, insecure_plain_http=insecure)


def tester_door(path: Path) -> Door:
    """Return the tester's door for its operator; raises ConfigurationError as :func:`agent_door` does."""
    return _own_door(read_own_service(path, "tester"))


def party_door(path: Path) -> Door:
    """Return the tester's door for an analyst or an owner; raises as :func:`agent_door` does."""
    party = read_party(path)
    url, key = party.tester.url.rstrip("/"), load_key(party.key_file)
    return Door(url, url, party.tester.audience or url, key, party.route, party.insecure_plain_http)


def curator_door(path: Path) -> Door:
    """Return the curator's door for its operator; raises as :func:`agent_door` does."""
    return _own_door(read_own_service(path, "curator"))


def _own_door(own: OwnService) -> Door:
    return Door(own.url, own.shown, own.audience, own.key, own.route, own.insecure_plain_http)


def curator_owner_door(path: Path) -> Door:
    """Return the curator's door for an owner; raises as :func:`agent_door` does."""
    owner = read_owner(path)
    url, key = owner.curator.url.rstrip("/"), load_key(owner.key_file)
    return Door(url, url, owner.curator.audience or url, key, owner.route, owner.insecure_plain_http)


def curator_any_door(path: Path) -> Door:
    """Return the curator's door for whoever a file describes: an owner.toml's owner, or else its operator."""
    return (curator_owner_door if "curator_url" in read_toml(path) else curator_door)(path)


def ask_door(
    door: Door,
    request: HttpRequest,
    *,
    ca_file: Path | None = None,
    transport: Transport | None = None,
    clock: Callable[[], float] = time.time,
) -> dict[str, Any]:
    """Ask a service something with the key of a door; raises as :func:`make_sign_in_link` does."""
    tokens = token_source(door.key, door.audience, clock)
    chosen = transport or HttpTransport(
        door.asked,
        tokens,
        **way(door.route.trusting(ca_file), door.asked),
        insecure_plain_http=door.insecure_plain_http,
    )
    try:
        return json_object(check(chosen.send(request)))
    finally:
        chosen.close()


def make_sign_in_link(
    door: Door,
    user: str | None = None,
    *,
    ca_file: Path | None = None,
    clock: Callable[[], float] = time.time,
) -> SignInLink:
    """Ask the service for a link for one of the party's people; ``ca_file`` comes before the door's own.

    Without ``user`` the link is for whoever holds the key.

    Raises:
        TransportError: no answer came.
        ProblemError: the service refuses.
        ResponseError: the answer is no link.
    """
    asked = HttpRequest("POST", "/v1/sign-in-links", body=encode_json({} if user is None else {"user": user}))
    answer = ask_door(door, asked, ca_file=ca_file, clock=clock)
    path, expires_at = answer.get("path"), answer.get("expires_at")
    # A tester is not trusted: what it says is printed for a browser to open.
    if not isinstance(path, str) or not _PATH.fullmatch(path) or type(expires_at) is not int:
        raise ResponseError("the service's answer is no sign-in link")
    return SignInLink(door.shown.rstrip("/") + path, expires_at)
