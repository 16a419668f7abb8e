"""A client of one's own agent: what the steward's command asks it. Only the agent's own key may call."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from tacit.client.http import HttpRequest, segment
from tacit.client.operation import Driver, ask_object, object_of, pages
from tacit.client.tester import token_source
from tacit.client.transport import HttpTransport, Transport
from tacit.errors import ResponseError
from tacit.results import Result, result_of
from tacit.setup.configuration import AGENT_PORT, own_url, read_toml, text_field
from tacit.setup.keys import load_key
from tacit_protocol.messages.encoding import encode_json
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.signing import PrivateKey

PAGES_MAX = 10_000
"""Most pages of one listing that are read."""


class AgentClient(Driver):
    """An agent's local interface. Use it as a context manager."""

    def __init__(
        self,
        url: str,
        name: str,
        key: PrivateKey,
        *,
        insecure_plain_http: bool = False,
        transport: Transport | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        tokens = token_source(key, f"agent:{name}", clock)
        chosen = transport or HttpTransport(url, tokens, insecure_plain_http=insecure_plain_http)
        super().__init__(chosen, time.sleep)

    @classmethod
    def from_configuration(cls, path: Path) -> Self:
        """Build a client from the agent's own agent.toml.

        Raises:
            ConfigurationError: the file or the key cannot be read.
        """
        fields = read_toml(path)
        url = own_url(fields, AGENT_PORT)
        key = load_key(path.parent / text_field(fields, "key_file", path))
        insecure = fields.get("insecure_plain_http") is True
        return cls(url, text_field(fields, "name", path), key, insecure_plain_http=insecure)

    def status(self) -> dict[str, Any]:
        """Read the agent's data sets and what is left of their budgets."""
        return self._object(HttpRequest("GET", "/v1/status"))

    def studies(self, state: str | None = None) -> list[dict[str, Any]]:
        """List what is asked of this owner."""
        return self._items("/v1/studies", {"state": state} if state else {})

    def study(self, digest: str) -> dict[str, Any]:
        """Read one study: in plain words, its warnings, and the verdict if it is known."""
        return self._object(HttpRequest("GET", f"/v1/studies/{segment(digest)}"))

    def reused_by(self, digest: str) -> list[str] | None:
        """List the later studies that read this owner's release again, at no cost.

        The agent asks the tester, whose word this is; None where it could not be asked.
        """
        answer = self._object(HttpRequest("GET", f"/v1/studies/{segment(digest)}/reuses"))
        later = answer.get("reused_by")
        return None if later is None else [str(study) for study in later]

    def finding(self, digest: str) -> dict[str, Any]:
        """Read what this agent found with another owner's release: ``study``, ``finding`` and ``found_at``.

        Exact in this owner's own data: it stays here.
        """
        return self._object(HttpRequest("GET", f"/v1/studies/{segment(digest)}/finding"))

    def approve(self, digest: str) -> dict[str, Any]:
        """Approve a study: the agent spends its budget and sends the release."""
        return self._post(f"/v1/studies/{segment(digest)}/approval", {})

    def send(self, digest: str) -> dict[str, Any]:
        """Send a release that is held until the owner has looked at it."""
        return self._post(f"/v1/studies/{segment(digest)}/sending", {})

    def decline(self, digest: str, reason: str | None = None) -> dict[str, Any]:
        """Decline a study. ``reason`` is a note for the owner's own records and is never sent."""
        body = {} if reason is None else {"reason": reason}
        return self._post(f"/v1/studies/{segment(digest)}/decline", body)

    def unlock(self, data_set: str) -> dict[str, Any]:
        """Let a data set answer studies again that a failure has locked; returns the agent's status."""
        return self._post(f"/v1/data-sets/{segment(data_set)}/unlocking", {})

    def ledger(self, data_set: str | None = None) -> list[dict[str, Any]]:
        """List the ledger's entries: every budget spent on every data set."""
        return self._items("/v1/ledger", {"data_set": data_set} if data_set else {})

    def verify_ledger(self, kept_hashes: Sequence[str] = ()) -> dict[str, Any]:
        """Have the agent check its whole ledger: ``ok``, ``accounts`` with their head hashes, and ``faults``.

        ``kept_hashes`` are head hashes that were kept in another place; each must still be an entry's.
        """
        query = {"kept": ",".join(kept_hashes)} if kept_hashes else {}
        return self._object(HttpRequest("GET", "/v1/ledger/verification", query))

    def _object(self, request: HttpRequest) -> dict[str, Any]:
        return self._run(ask_object(request))

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._object(HttpRequest("POST", path, body=encode_json(body)))

    def _items(self, path: str, query: dict[str, str]) -> list[dict[str, Any]]:
        return self._run(pages(path, query, object_of, PAGES_MAX))


def finding_result(found: dict[str, Any]) -> Result:
    """Build the typed result of a finding, as :meth:`AgentClient.finding` returns it.

    Raises:
        ResponseError: the agent's answer has not that form.
    """
    try:
        study = Study.model_validate_json(encode_json(found["study"]))
        kind = procedure_named(study.procedure).Verdict
        return result_of(study, found["finding"], kind=kind)
    except (KeyError, TypeError, ValueError) as error:
        raise ResponseError("the agent's answer is no finding") from error
