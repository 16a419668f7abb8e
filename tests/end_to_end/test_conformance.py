"""The conformance kit: real processes keep to the contract; testers with a planted mistake each do not."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import served
from service_apps import misfits
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from tools import conformance
from tools.conformance import CheckedService, CheckResult, TesterKit

from tacit.command.app import run
from tacit.setup.configuration import DataSetSetup, PolicySetup, init_tester
from tacit.setup.federation import LocalFederation, OwnerSetup
from tacit.setup.keys import load_key
from tacit.setup.processes import free_ports, service_command
from tacit_protocol import signing
from tacit_protocol.signing import PrivateKey, sign_envelope
from tacit_services.shared.database import create_engine, upgrade
from tacit_services.tester import answers, studies, verdicts
from tacit_services.tester.__main__ import create_tester
from tacit_services.tester.settings import TesterSettings
from tacit_services.tester.web import routes

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"

Plant = Callable[[pytest.MonkeyPatch], None]
Wrap = Callable[[ASGIApp], ASGIApp]


def rewriting(change: Callable[[Scope, bytes, int, dict[bytes, bytes], bytes], tuple[int, bytes]]) -> Wrap:
    """Return what changes answers: by the request, its body, the answer's status, headers and body."""

    def wrap(app: ASGIApp) -> ASGIApp:
        async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            asked, begun, told = b"", {}, b""

            async def hear() -> Message:
                nonlocal asked
                message = await receive()
                asked += message.get("body", b"")
                return message

            async def tell(message: Message) -> None:
                nonlocal begun, told
                if message["type"] == "http.response.start":
                    begun = dict(message)
                    return
                told += message.get("body", b"")
                if message.get("more_body", False):
                    return
                headers = dict(begun["headers"])
                status, body = change(scope, asked, begun["status"], headers, told)
                headers[b"content-length"] = str(len(body)).encode()
                await send(begun | {"status": status, "headers": list(headers.items())})
                await send({"type": "http.response.body", "body": body})

            await app(scope, hear, tell)

        return wrapped

    return wrap


def checked(folder: Path, wrap: Wrap = lambda app: app) -> dict[str, CheckResult]:
    """Serve a tester, run the kit against it, and return what it found by the check's name."""
    (port,) = free_ports(1)
    settings = TesterSettings.load(init_tester(folder / "tester", "tester", "127.0.0.1", port))
    engine = create_engine(settings.database_url)
    upgrade(engine, "tester")
    app: Any = wrap(create_tester(settings, engine))
    with served.serving(app, port) as url, CheckedService(url, None) as service:
        kit = TesterKit(service, load_key(folder / "tester" / "tester.pem"))
        found = {finding.name: finding for finding in kit.run()}
    engine.dispose()
    return found


def broken(found: dict[str, CheckResult]) -> set[str]:
    return {name for name, finding in found.items() if finding.state != "ok"}


# Mistakes in what a tester checks.


def no_clock(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(signing, "_check_times", lambda claims, now: None)


def any_spelling(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(studies, "require_canonical", lambda procedure, study, digest: None)


def any_release(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(answers, "check_answer", lambda procedure, study, answer: None)


def first_or_last(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(answers, "is_stored", lambda stored, envelope: stored is not None)


def another_key(patch: pytest.MonkeyPatch) -> None:
    stranger = PrivateKey.generate()
    patch.setattr(
        verdicts, "sign_envelope", lambda payload, kind, key: sign_envelope(payload, kind, stranger)
    )


def always_new(patch: pytest.MonkeyPatch) -> None:
    genuine = routes.Tester.stored

    def stored(self: Any, study: str, *, is_new: bool, is_news: bool) -> Any:
        return genuine(self, study, is_new=True, is_news=is_news)

    patch.setattr(routes.Tester, "stored", stored)


ENDS = ("declines: end a study, and are listed", "cancellations: end a study, and are in the transcript")

PLANTED: dict[str, tuple[Plant, set[str]]] = {
    "any spelling of a study": (
        any_spelling,
        {"studies: refuses a parameter left out", "studies: refuses another spelling"},
    ),
    "no look at a token's times": (
        no_clock,
        {"tokens: refuses a token that has expired", "tokens: refuses a token of tomorrow"},
    ),
    "a release that fits nothing": (
        any_release,
        {
            "releases: refuses less noise than the study fixes",
            "releases: refuses fewer numbers than the study fixes",
            # What was taken first stays, so that the good one comes too late.
            "releases: takes a good one, and again",
        },
    ),
    "other bytes in the place of the first": (first_or_last, {"releases: keeps the first"}),
    "verdicts of another key": (another_key, {"verdicts: signed, for this study", *ENDS}),
    "an upload that is always new": (always_new, {"studies: takes a good one, and again"}),
}


def test_our_tester_keeps_to_the_contract(tmp_path: Path) -> None:
    """And every answer that the kit gets, refusals too, fits the published OpenAPI document."""
    document = json.loads((REFERENCE / "tester.openapi.json").read_text("utf-8"))
    wrong: set[str] = set()
    seen: set[tuple[str, str, int]] = set()

    def compare(
        scope: Scope, _: bytes, status: int, headers: dict[bytes, bytes], told: bytes
    ) -> tuple[int, bytes]:
        method, path = str(scope["method"]), str(scope["path"])
        if path.startswith("/v1/"):
            seen.add((method, path, status))
            wrong.update(misfits(document, method, path, status, headers[b"content-type"].decode(), told))
        return status, told

    found = checked(tmp_path, rewriting(compare))
    assert broken(found) == set(), found
    assert len(found) > 75
    assert wrong == set()
    assert len(seen) > 50


def test_an_answer_that_does_not_fit_the_document_is_seen() -> None:
    document = json.loads((REFERENCE / "tester.openapi.json").read_text("utf-8"))
    of = partial(misfits, document, "GET", "/v1/identity")
    assert list(of(200, "application/json", b'{"name":"tester","key":"00"}'))
    assert list(of(200, "text/plain", b"x"))
    assert list(of(404, "application/problem+json", b'{"type":"urn:tacit:problem:not-found"}'))
    assert list(misfits(document, "GET", "/v1/nothing", 200, "application/json", b"{}"))


@pytest.mark.sweep(1)
@pytest.mark.parametrize("mistake", PLANTED)
def test_a_tester_that_checks_too_little_is_told_where(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, named = PLANTED[mistake]
    plant(monkeypatch)
    monkeypatch.setattr(conformance, "STEPS", 2)
    assert named <= broken(checked(tmp_path))


# Mistakes in how it answers.


def echoes(_: Scope, asked: bytes, status: int, __: dict[bytes, bytes], told: bytes) -> tuple[int, bytes]:
    if status < 400 or not asked:
        return status, told
    return status, json.dumps(json.loads(told) | {"detail": asked[:5000].decode("latin-1")}).encode()


def plain(_: Scope, __: bytes, status: int, headers: dict[bytes, bytes], told: bytes) -> tuple[int, bytes]:
    if status == 404:
        headers[b"content-type"] = b"application/json"
    return status, told


def forgets(scope: Scope, _: bytes, status: int, __: dict[bytes, bytes], told: bytes) -> tuple[int, bytes]:
    if scope["path"] == "/v1/inbox" and status == 200:
        return 200, b'{"items":[]}'
    return status, told


def impatient(
    _: Scope, __: bytes, status: int, headers: dict[bytes, bytes], told: bytes
) -> tuple[int, bytes]:
    headers.pop(b"retry-after", None)
    return status, told


def shortens(scope: Scope, _: bytes, status: int, __: dict[bytes, bytes], told: bytes) -> tuple[int, bytes]:
    if scope["path"].endswith("/transcript") and status == 200:
        found = json.loads(told)
        return 200, json.dumps(found | {"releases": {}, "declines": {}}).encode()
    return status, told


REWRITTEN: dict[str, tuple[Any, set[str]]] = {
    "errors that repeat what was sent": (
        echoes,
        {"errors: a body of no JSON", "errors: a body of a field more"},
    ),
    "errors of another media type": (plain, {"errors: an unknown address", "verdicts: none yet"}),
    "an empty inbox": (forgets, {"inbox: shows it to its owners, and to nobody else"}),
    "no Retry-After": (impatient, {"verdicts: none yet"}),
    "a transcript without its answers": (
        shortens,
        {"verdicts: the transcript verifies, figures and all", ENDS[0]},
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("mistake", REWRITTEN)
def test_a_tester_that_answers_otherwise_is_told_where(mistake: str, tmp_path: Path) -> None:
    change, named = REWRITTEN[mistake]
    assert named <= broken(checked(tmp_path, rewriting(change)))


# Real processes.


@pytest.mark.long
def test_real_processes_keep_to_the_contract_and_say_so_by_the_command(
    start_federation: Callable[[Sequence[OwnerSetup]], LocalFederation],
    patients: Callable[..., Iterator[tuple[str, str]]],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    def say(*arguments: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = run([*arguments, "--json"], conformance.app)
        return code, json.loads(capsys.readouterr().out)

    policy = PolicySetup("automatic", 4.0, 1e-5, procedures=("noisy_counts",), columns=("sex",))
    owners = [
        OwnerSetup(name, DataSetSetup("patients", source, 8.0, 1e-4), policy)
        for name, source in patients(tmp_path, {"north": 40}, 300, 1)
    ]
    federation = start_federation(owners)
    site = federation.agents[0]
    key = str(federation.tester.folder / "tester.pem")
    code, found = say("tester", federation.tester.url, "--key", key)
    assert (code, {one["state"] for one in found}) == (0, {"ok"}), found
    column = {"kind": "categorical", "name": "sex", "levels": ["F", "M"]}
    asked = {
        "title": "Carried",
        "procedure": "noisy_counts",
        "epsilon": 1.0,
        "delta": 0.0,
        "columns": [column],
    }
    study = tmp_path / "study.dsse"
    with federation.analyst_client() as analyst:
        digest = analyst.create_study(
            asked | {"owners": [{"name": "north", "data_set": "patients", "units": 300}]}
        )
        study.write_bytes(analyst.study_envelope(digest))
    own = [site.url, "--key", str(site.folder / "agent.pem"), "--name", "north"]
    answer = " ".join([*map(str, service_command("agent", "answer", site.configuration)), "--study {study}"])
    code, found = say("agent", *own, "--study", str(study), "--answer", f"{answer} --output {{output}}")
    assert [one for one in found if one["state"] != "ok"] == []
    assert code == 0
    # An owner that hands on whatever it is given answers nothing that its key signed.
    code, found = say("agent", *own, "--study", str(study), "--answer", "cp {study} {output}")
    wrong = {one["name"] for one in found if one["state"] == "failed"}
    assert code == 1
    assert "answers: refuses a study that nobody of it signed" in wrong
    assert "answers: a release that fits its study, or a decline; once" in wrong
    # Another party's key is no owner's: everything that its own key may is refused.
    code, found = say("agent", site.url, "--key", key, "--name", "north")
    assert code == 1
    assert "status: who it is and what it holds" in {one["name"] for one in found if one["state"] == "failed"}
    code, found = say("tester", federation.tester.url, "--key", str(site.folder / "agent.pem"))
    assert code == 1
    assert {one["name"] for one in found if one["state"] == "failed"} >= {
        "identity: name, key, audience, software"
    }
