"""An honest tester in memory, which tests then make lie; and a quick procedure without statistics."""

import json
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel
from study_parties import MeanProcedure

from tacit import Client
from tacit.client.http import HttpRequest, HttpResponse
from tacit.command import connect
from tacit.command.app import run
from tacit.results import TwoSampleResult
from tacit.studies import preflight
from tacit_protocol.messages.encoding import decode, encode
from tacit_protocol.messages.problems import MEDIA_TYPE, problem_document
from tacit_protocol.messages.study import Study, VerdictMessage
from tacit_protocol.procedures.base import StudyError
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.signing import (
    STUDY_TYPE,
    VERDICT_TYPE,
    PrivateKey,
    open_envelope,
    peek_key_id,
    sign_envelope,
)

sys.path.insert(0, str(Path(__file__).parent))

RESULT: dict[str, Any] = {
    "statistic": 12.5,
    "pvalue": 0.001,
    "reject": True,
    "method": "a method",
    "units": {"north": 1000, "south": 900},
    "warnings": [],
    "squared_mmd": 0.02,
    "lower": 0.01,
    "upper": 0.03,
    "pairs": [
        {
            "first": "north",
            "second": "south",
            "pvalue": 0.002,
            "reject": True,
            "squared_mmd": 0.02,
            "squared_mmd_unbiased": 0.02,
            "lower": 0.01,
            "upper": 0.03,
        }
    ],
    "columns": [{"kind": "column", "columns": ["age"], "pvalue": 0.5, "reject": False}],
}


@pytest.fixture
def tacit(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run the command; returns its exit code and what it printed on either stream."""

    def run_it(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run_it


class QuickParameters(BaseModel):
    """Lets everything through, for the procedure itself to refuse."""


class QuickProcedure(MeanProcedure):
    """Takes any study whose parameters are empty; calls fewer than ten units hopeless."""

    name: ClassVar[str] = "quick"
    title: ClassVar[str] = "Quick"
    Parameters: ClassVar[type[BaseModel]] = QuickParameters
    Verdict: ClassVar[type[BaseModel]] = TwoSampleResult

    def check(self, study: Study) -> None:
        if study.parameters:
            raise StudyError("parameter *: there is no such parameter")

    def release_size(self, study: Study) -> int:
        return 7

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        return ("Hopeless: there are too few units",) if min(units.values()) < 10 else ()


@pytest.fixture(autouse=True)
def quick_procedure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROCEDURES, "quick", QuickProcedure())


@pytest.fixture(autouse=True)
def no_planning_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning has tests of its own; a process for each study that is made here would take minutes."""
    monkeypatch.setattr(
        preflight, "plan_in_process", lambda *_: preflight.PlanningReport(unplanned="not here")
    )


@dataclass
class MemoryTester:
    """Implements the client's Transport. ``lie`` may change any answer on its way out."""

    key: PrivateKey = field(default_factory=PrivateKey.generate)
    parties: dict[str, tuple[str, str]] = field(default_factory=dict)
    envelopes: dict[str, bytes] = field(default_factory=dict)
    verdicts: dict[str, bytes] = field(default_factory=dict)
    asked: list[HttpRequest] = field(default_factory=list)
    catalogue: dict[str, bytes] = field(default_factory=dict)
    """What owners published, by name: the bytes that the tester hands out."""
    polls_before_verdict: int = 0
    page_size: int = 2
    senders: list[dict[str, Any]] | None = None
    """What the tester says of who answers; by default every owner has sent nothing."""
    lie: Callable[[HttpRequest, HttpResponse], HttpResponse] = field(default=lambda _, answer: answer)
    result: ClassVar[dict[str, Any]] = RESULT

    def send(self, request: HttpRequest) -> HttpResponse:
        self.asked.append(request)
        return self.lie(request, self._answer(request))

    def close(self) -> None:
        pass

    def end(self, digest: str, **fields: Any) -> None:
        """End a study with a verdict."""
        message = {
            "outcome": "completed",
            "releases": {},
            "result": self.result,
            "software": "memory",
        } | fields
        payload = encode(VerdictMessage(study=digest, **message))
        self.verdicts[digest] = sign_envelope(payload, VERDICT_TYPE, self.key)

    def _answer(self, request: HttpRequest) -> HttpResponse:
        parts = request.path.strip("/").split("/")[1:]
        match request.method, parts:
            case "GET", ["identity"]:
                identity = {"name": "tester", "key": self.key.public_hex, "audience": "a", "software": "s"}
                return document(200, identity)
            case "GET", ["parties"]:
                items = [{"name": n, "key": k, "role": r} for n, (k, r) in self.parties.items()]
                return self._page(items, request)
            case "GET", ["catalogue"]:
                return self._page([{"owner": name, "version": 1} for name in self.catalogue], request)
            case "GET", ["catalogue", owner] if owner in self.catalogue:
                return HttpResponse(200, {}, self.catalogue[owner])
            case "GET", ["studies"]:
                return self._page([self._summary(digest) for digest in self.envelopes], request)
            case "PUT", ["studies", digest]:
                assert request.body is not None
                self.envelopes[digest] = request.body
                return document(201, {})
            case "GET", ["studies", digest] if digest in self.envelopes:
                return document(200, self._summary(digest))
            case "GET", ["studies", digest, "envelope"] if digest in self.envelopes:
                return HttpResponse(200, {}, self.envelopes[digest])
            case "GET", ["studies", digest, "verdict"]:
                self.polls_before_verdict -= 1
                if self.polls_before_verdict < 0 and digest in self.verdicts:
                    return HttpResponse(200, {}, self.verdicts[digest])
                return problem("verdict-pending")
            case "PUT", ["studies", digest, "cancellation"]:
                return document(201, {})
            case "POST", ["invitations"]:
                return document(201, {"invitation": "secret", "expires_at": 5})
            case "POST", ["enrolments"]:
                assert request.body is not None
                fields = json.loads(request.body)
                self.parties[fields["name"]] = (fields["key"], fields["role"])
                return document(201, {name: fields[name] for name in ("name", "key", "role")})
        return problem("unknown-study")

    def _page(self, items: list[dict[str, Any]], request: HttpRequest) -> HttpResponse:
        start = int(request.query.get("cursor", "0"))
        end = start + self.page_size
        following = str(end) if end < len(items) else None
        return document(200, {"items": items[start:end], "next": following})

    def _summary(self, digest: str) -> dict[str, Any]:
        envelope = self.envelopes[digest]
        study = decode(Study, open_envelope(envelope, STUDY_TYPE, peek_key_id(envelope)))
        return {
            "digest": digest,
            "title": study.title,
            "procedure": study.procedure,
            "state": "completed" if digest in self.verdicts else "collecting",
            "created_at": study.created_at,
            "deadline": study.deadline,
            "owners": self.senders
            or [{"name": owner.name, "sent": False, "declined": False} for owner in study.owners],
            "progress": {"fraction": 0.0, "step": ""},
        }


def document(status: int, fields: dict[str, Any]) -> HttpResponse:
    return HttpResponse(status, {"content-type": "application/json"}, json.dumps(fields).encode())


def problem(slug: str, **fields: Any) -> HttpResponse:
    content = problem_document(slug, **fields)
    return HttpResponse(content["status"], {"content-type": MEDIA_TYPE}, json.dumps(content).encode())


@pytest.fixture
def analyst_key() -> PrivateKey:
    return PrivateKey.generate()


@pytest.fixture
def memory_tester(analyst_key: PrivateKey) -> MemoryTester:
    tester = MemoryTester()
    tester.parties = {
        name: (PrivateKey.generate().public_hex, "owner") for name in ("north", "south", "west")
    }
    tester.parties["ann"] = (analyst_key.public_hex, "analyst")
    return tester


@pytest.fixture
def client(memory_tester: MemoryTester, analyst_key: PrivateKey, monkeypatch: pytest.MonkeyPatch) -> Client:
    """The analyst's client of the tester in memory, which ``--party`` leads to as well."""
    made = Client(
        "https://tester.example",
        analyst_key,
        tester_key=memory_tester.key.public_hex,
        transport=memory_tester,
        clock=lambda: 1_000_000.0,
        sleep=lambda _: None,
    )
    monkeypatch.setattr(connect, "party_client", lambda _: nullcontext(made))
    return made


@pytest.fixture
def draft() -> dict[str, Any]:
    return {
        "title": "Are they alike?",
        "procedure": "quick",
        "columns": [
            {"kind": "numeric", "name": "age", "lower": 0, "upper": 120},
            {"kind": "categorical", "name": "sex", "levels": ["F", "M"]},
        ],
        "owners": [
            {"name": "north", "data_set": "patients", "units": 1000},
            {"name": "south", "data_set": "patients", "units": 900},
        ],
        "epsilon": 1.0,
        "delta": 1e-5,
    }
