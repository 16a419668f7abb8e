"""A curator in memory: answers from a list, and keeps what was asked and uploaded."""

import json
from dataclasses import dataclass, field
from typing import Any

from tacit.client.http import HttpRequest, HttpResponse, Upload
from tacit_protocol.messages.problems import MEDIA_TYPE, problem_document
from tacit_protocol.signing import PrivateKey

DIGEST = "ab" * 32

HELD: dict[str, Any] = {
    "owner": "north",
    "name": "patients",
    "account": "north/patients",
    "columns": [
        {"kind": "numeric", "name": "age", "lower": 0, "upper": 120},
        {"kind": "categorical", "name": "sex", "levels": ["F", "M"]},
    ],
    "unit_column": None,
    "left_percent": 66.6,
    "epsilon_cap_micro": 3_000_000,
    "delta_cap_pico": 30_000_000,
    "pure_share_micro": 1_500_000,
    "pure_spent_micro": 1_000_000,
    "pure_left_micro": 500_000,
    "gaussian_delta_pico": 5_000_000,
    "gaussian_share_micro": 1_500_000,
    "gaussian_spent_micro": 0,
    "gaussian_left_micro": 1_500_000,
    "approximate_share_pico": 5_000_000,
    "approximate_spent_pico": 0,
    "approximate_left_pico": 5_000_000,
    "promised_micro": 3_000_000,
    "policy": {"approval": "by-hand"},
    "ready": False,
    "rows": 3,
    "units": 2,
    "uploaded_at": None,
}
STUDY: dict[str, Any] = {
    "digest": DIGEST,
    "title": "Alike? \x1b[2J",
    "state": "waiting-for-approval",
    "epsilon_micro": 1_000_000,
    "deadline": 5,
    "plain_words": "They ask whether patients are alike.",
    "warnings": ["few units"],
    "accounts": [{**HELD, "payment": "takes 13.4 % of the cap, of which 66.6 % is left"}],
    "owners": [
        {"owner": "north", "decision": "waiting", "decided_by": None},
        {"owner": "south", "decision": "approved", "decided_by": "policy"},
    ],
}
ENTRY = {
    "sequence": 1,
    "at": 5,
    "data_set": "north/patients",
    "study": DIGEST,
    "epsilon_micro": 1_000_000,
    "delta_pico": 0,
    "paid_by": "pure",
}
ACCOUNT = {"head_hash": "cd" * 32, "data_set": "north/patients", "entries": 1, "standing": HELD}
REPORT = {"ok": True, "accounts": [ACCOUNT], "faults": []}
ANSWERS: dict[str, Any] = {
    "GET /v1/identity": {"name": "registry", "key": "00" * 32, "audience": "a", "software": "tacit 9"},
    "POST /v1/invitations": {"invitation": "secret", "expires_at": 5},
    "POST /v1/enrolments": {"name": "north", "key": "00" * 32},
    "GET /v1/owners": {"items": [{"name": "north", "key": "00" * 32}], "next": None},
    "GET /v1/data-sets": {"items": [HELD], "next": None},
    "GET /v1/data-sets/north/patients": HELD,
    "PUT /v1/data-sets/north/patients": HELD,
    "PUT /v1/data-sets/north/patients/rows": HELD | {"ready": True},
    "DELETE /v1/data-sets/north/patients": {},
    "GET /v1/studies": {"items": [STUDY], "next": None},
    f"GET /v1/studies/{DIGEST}": STUDY,
    f"POST /v1/studies/{DIGEST}/approval": STUDY,
    f"POST /v1/studies/{DIGEST}/decline": STUDY,
    "GET /v1/ledger": {"entries": [ENTRY], "next": None},
    "GET /v1/ledger/verification": REPORT,
}


@dataclass
class MemoryCurator:
    """Answers as a curator does; ``sent`` keeps uploaded bytes."""

    key: PrivateKey = field(default_factory=PrivateKey.generate)
    answers: dict[str, Any] = field(default_factory=lambda: dict(ANSWERS))
    asked: list[HttpRequest] = field(default_factory=list)
    sent: bytes = b""

    def send(self, request: HttpRequest) -> HttpResponse:
        self.asked.append(request)
        found = self.answers.get(f"{request.method} {request.path}")
        if found is None:
            content = problem_document("unknown-study")
            return HttpResponse(404, {"content-type": MEDIA_TYPE}, json.dumps(content).encode())
        if isinstance(request.body, Upload):
            self.sent = b"".join(request.body.open())
        if request.path == "/v1/identity":
            found = found | {"key": self.key.public_hex}
        if request.path == "/v1/enrolments" and isinstance(request.body, bytes):
            found = {name: json.loads(request.body)[name] for name in ("name", "key")}
        return document(found)

    def close(self) -> None:
        pass


class AsyncMemory:
    """A service in memory, awaited."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def send(self, request: HttpRequest) -> HttpResponse:
        answer: HttpResponse = self.inner.send(request)
        return answer

    async def close(self) -> None:
        pass


def document(fields: dict[str, Any]) -> HttpResponse:
    return HttpResponse(200, {"content-type": "application/json"}, json.dumps(fields).encode())
