"""Whether the tester knows a party's key, by the name and role that its configuration says."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tacit.answers import EnrolledParty
from tacit.client import Client
from tacit.configuration import text_field
from tacit.errors import ConfigurationError, ProblemError, ResponseError, TransportError
from tacit.findings import Finding
from tacit.keys import load_key
from tacit.transport import Transport

ENROL = "enrol with an invitation of the tester's operator"


def enrolment(
    configuration: Path,
    fields: Mapping[str, Any],
    clock: Callable[[], float],
    transport: Callable[[str], Transport],
) -> Finding:
    """Ask the tester, signed with the party's key, whether it lists that key by this name."""
    try:
        key = load_key(configuration.parent / text_field(fields, "key_file", configuration))
        name = text_field(fields, "name", configuration)
    except ConfigurationError:
        return Finding("enrolment", "skipped", "needs a name and a key that can be read")
    url = str(fields["tester_url"])
    audience = str(fields.get("tester_audience") or url.rstrip("/"))
    # The usual transport signs by itself; another one is a test's.
    inner = None if isinstance(transport, type) else transport(url)
    try:
        with Client(url, key, audience=audience, clock=clock, transport=inner) as client:
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
