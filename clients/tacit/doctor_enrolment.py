"""Whether the tester knows a party's key, by the name and role that its configuration says."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.answers import EnrolledParty
from tacit.client import Client, token_source
from tacit.configuration import text_field
from tacit.errors import ConfigurationError, ProblemError, ResponseError, TransportError
from tacit.findings import Finding
from tacit.keys import load_key
from tacit.transport import HttpTransport, TokenSource, Transport, tls_of

ENROL = "enrol with an invitation of the tester's operator"


@dataclass(frozen=True)
class Connection:
    """How a configuration reaches a service; ``replaced`` stands in for the network in tests."""

    url: str
    ca_file: Path | None = None
    insecure_plain_http: bool = False
    replaced: Callable[[str], Transport] | None = None

    def open(self, token: TokenSource | None = None) -> Transport:
        """Return what sends requests there.

        Raises:
            InputError: others could read what is sent to this address.
            ConfigurationError: the certificates cannot be read.
        """
        if self.replaced is not None:
            return self.replaced(self.url)
        tls, insecure = tls_of(self.ca_file), self.insecure_plain_http
        return HttpTransport(self.url, token, tls=tls, insecure_plain_http=insecure)


def enrolment(
    configuration: Path,
    fields: Mapping[str, Any],
    clock: Callable[[], float],
    connection: Connection,
) -> Finding:
    """Ask the tester, signed with the party's key, whether it lists that key by this name."""
    try:
        key = load_key(configuration.parent / text_field(fields, "key_file", configuration))
        name = text_field(fields, "name", configuration)
    except ConfigurationError:
        return Finding("enrolment", "skipped", "needs a name and a key that can be read")
    audience = str(fields.get("tester_audience") or connection.url.rstrip("/"))
    sender = connection.open(token_source(key, audience, clock))
    try:
        with Client(connection.url, key, audience=audience, clock=clock, transport=sender) as client:
            known = client.parties()
    except ProblemError as error:
        return Finding(
            "enrolment", "warning", f"the tester does not know this key [{error.problem}]: {ENROL}"
        )
    except (TransportError, ResponseError) as error:
        return Finding("enrolment", "skipped", f"the tester did not say: {error}")
    found = next((party for party in known if party.key == key.public_hex), None)
    role = "owner" if "policy_file" in fields else "curator" if "storage_keys_file" in fields else None
    return _compared(found, name, role)


def _compared(found: EnrolledParty | None, name: str, role: str | None) -> Finding:
    if found is None:
        return Finding("enrolment", "warning", f"the tester does not list this key yet: {ENROL}")
    if found.name != name:
        return Finding("enrolment", "failed", f"the tester knows this key as {found.name}: use that name")
    if role is not None and found.role != role:
        return Finding(
            "enrolment", "failed", f"the key is enrolled as {found.role} and not as {role}: {ENROL}"
        )
    return Finding("enrolment", "ok", f"enrolled at the tester as {found.role} {name}")
