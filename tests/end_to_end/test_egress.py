"""Every message of a federation of real processes is in the table of docs/security/egress.md, field by field.

A proxy stands before each service and keeps what passes.
"""

import base64
import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import declared_egress as egress
import jwt
import numpy as np
import pytest
from declared_egress import ROUTES, Fields, Service, declared, paths_in, verdicts_of
from recording_proxy import Recorded, Recording, behind_a_proxy
from service_apps import misfits

from tacit.client.agent import AgentClient, finding_result
from tacit.client.data_set import DataSetDescription
from tacit.client.tester import Client
from tacit.errors import ProblemError
from tacit.results import DistanceCorrelationResult
from tacit.setup.configuration import DataSetSetup, PolicySetup
from tacit.setup.federation import CuratedOwnerSetup, LocalFederation, OwnerSetup
from tacit.setup.keys import load_key
from tacit.studies.draft import StudyDraft
from tacit_protocol.messages.problems import MEDIA_TYPE
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.signing import CLAIMS, RELEASE_TYPE, STUDY_TYPE, VERDICT_TYPE, certify

pytestmark = pytest.mark.long

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
UNITS = 300
COLUMN: dict[str, Any] = {"kind": "numeric", "name": "x", "lower": 0, "upper": 1}
VERDICTS = [verdict for procedure in PROCEDURES.values() for verdict in verdicts_of(procedure)]
GROUP: dict[str, Any] = {"kind": "categorical", "name": "g", "levels": ["a", "b"]}
ALL = ("*",)


@dataclass(frozen=True)
class Seen:
    """An exchange, with the service that answered, and the route of its interface."""

    service: Service
    route: str
    exchange: Recorded


def write_rows(folder: Path) -> None:
    rng = np.random.default_rng(3)
    values = rng.random((UNITS, 2)).tolist()
    rows = [f"{x!r},{y!r},{'ab'[int(x > 0.6)]}" for x, y in values]
    for name in ("north", "south", "east", "west"):
        (folder / f"{name}.csv").write_text("\n".join(["x,y,g", *rows]) + "\n")


def agents(folder: Path) -> list[OwnerSetup]:
    policy = PolicySetup("automatic", 20.0, 1e-5, procedures=ALL, columns=("x", "y", "g"), catalogue=True)
    return [
        OwnerSetup(name, DataSetSetup("people", str(folder / f"{name}.csv"), 100.0, 1e-3), policy)
        for name in ("north", "south")
    ]


def curated(folder: Path) -> list[CuratedOwnerSetup]:
    fields = {
        "name": "people",
        "columns": [COLUMN, GROUP],
        "epsilon": 20.0,
        "delta": 1e-3,
        "policy": {
            "approval": "automatic",
            "epsilon_per_study_max": 10.0,
            "delta_per_study_max": 1e-5,
            "analysts": ["*"],
        },
    }
    described = DataSetDescription.from_dict(fields)
    return [CuratedOwnerSetup(name, described, folder / f"{name}.csv") for name in ("east", "west")]


def run_studies(federation: LocalFederation) -> None:
    """One study for every way in which something leaves."""
    owners = [{"name": name, "data_set": "people", "units": UNITS} for name in ("north", "south")]
    south = next(site for site in federation.agents if site.name == "south")
    certificate = certify(load_key(south.folder / "agent.pem")).model_dump()
    split = [owners[0] | {"columns": ["x"]}, owners[1] | {"columns": ["y"], "sealing": certificate}]
    held = {"owners": federation.curator.draft_owners(["east", "west"]), "curator": "curator"}
    both = [COLUMN, COLUMN | {"name": "y"}]
    peer = partial(dict, method="pnc", mode="peer", receiver="south")
    me = {"features": "me", "n_features": 4}
    masked = {"noise": "gaussian", "aggregation": "masked", "colluders": 0}
    choices = {"method": "exponential", "bandwidth": 0.2, "candidates": [[[0.1]], [[0.5]], [[0.9]]]}
    asked: dict[str, tuple[str, dict[str, Any]]] = {
        "Gaussian vectors": ("kernel_two_sample", {"columns": [COLUMN], "owners": owners, "parameters": me}),
        "Laplace counts": ("noisy_counts", {"columns": [GROUP], "owners": owners, "delta": 0.0}),
        "a decision": (
            "joint_independence",
            {
                "columns": [COLUMN, GROUP],
                "owners": owners[:1],
                "delta": 0.0,
                "parameters": {"method": "permutation"},
            },
        ),
        "a choice": ("embedding_release", {"columns": [COLUMN], "owners": owners[:1], "parameters": choices}),
        "a curator's decision": (
            "curated_two_sample",
            held | {"columns": [COLUMN], "parameters": {"release": "permutation", "permutations": 199}},
        ),
        "a curator's vectors": ("curated_distance_correlation", held | {"columns": [COLUMN, GROUP]}),
        "a decline": (
            "kernel_two_sample",
            {"columns": [COLUMN | {"name": "z"}], "owners": owners, "parameters": me},
        ),
        "a receipt": (
            "distance_correlation",
            {"columns": both, "owners": split, "parameters": peer(publish=False)},
        ),
        "answers in two rounds": (
            "distance_correlation",
            {"columns": both, "owners": [owners[0] | {"columns": ["x"]}, owners[1] | {"columns": ["y"]}]},
        ),
        "a masked sum": (
            "noisy_counts",
            {"columns": [GROUP], "owners": owners, "epsilon": 0.5, "parameters": masked},
        ),
        "a cancellation": ("noisy_counts", {"columns": [GROUP], "owners": owners, "respond_after_s": 600}),
    }
    with federation.analyst_client() as client:
        digests = {title: ask(client, title, *question) for title, question in asked.items()}
        client.cancel(digests["a cancellation"])
        outcomes = {t: client.wait_for_verdict(d, timeout_s=300).outcome for t, d in digests.items()}
        ended = {"a decline": "incomplete", "a cancellation": "cancelled"}
        assert outcomes == dict.fromkeys(asked, "completed") | ended
        again = [owner | {"reuses": digests["Gaussian vectors"]} for owner in owners]
        reused = ask(
            client,
            "a reuse",
            "kernel_two_sample",
            {"columns": [COLUMN], "owners": again, "parameters": me, "level": 0.01},
        )
        assert client.wait_for_verdict(reused, timeout_s=300).outcome == "completed"
        for digest in (*digests.values(), reused):
            client.verify(digest)
            client.study(digest)
        assert {use.study for use in client.study(digests["Gaussian vectors"]).reused_by} == {reused}
        client.studies()
        client.parties()
    for site in federation.agents:
        with AgentClient.from_configuration(site.configuration) as agent:
            # Nobody pays for a release twice, and a result in peer mode stays with its receiver.
            assert reused not in {entry["study"] for entry in agent.ledger()}
            if site.name == "south":
                found = finding_result(agent.finding(digests["a receipt"]))
                assert isinstance(found, DistanceCorrelationResult)
            else:
                with pytest.raises(ProblemError, match="nothing"):
                    agent.finding(digests["a receipt"])


def ask(client: Client, title: str, procedure: str, fields: dict[str, Any]) -> str:
    plain = {"title": title, "procedure": procedure, "epsilon": 4.0, "delta": 1e-5}
    return client.create_study(StudyDraft.from_dict(plain | fields), force=True)


def look_around(federation: LocalFederation) -> None:
    """What owners and operators ask their own services."""
    for site in federation.agents:
        with AgentClient(site.url, site.name, load_key(site.folder / "agent.pem")) as agent:
            agent.status()
            for study in agent.studies():
                agent.study(study["digest"])
            agent.ledger()
            assert agent.verify_ledger()["ok"]
    curator = federation.curator
    with curator.operator_client() as operator, curator.owner_client("east") as east:
        for client in (operator, east):
            client.data_sets()
            for study in client.studies():
                client.study(study["digest"])
            client.ledger()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Seen]]:
    folder = tmp_path_factory.mktemp("egress")
    write_rows(folder)
    federation = LocalFederation(folder / "federation", agents(folder), curated(folder))
    with ExitStack() as stack:
        recordings: list[tuple[Service, Recording]] = [
            ("tester", behind_a_proxy(stack, federation.tester.configuration)),
            ("curator", behind_a_proxy(stack, federation.curator.configuration)),
            *(("agent", behind_a_proxy(stack, site.configuration)) for site in federation.agents),
        ]
        with federation:
            federation.wait_until_ready()
            federation.enrol_all()
            run_studies(federation)
            look_around(federation)
        yield [
            Seen(service, route_of(service, exchange), exchange)
            for service, recording in recordings
            for exchange in recording.seen()
        ]


def route_of(service: Service, exchange: Recorded) -> str:
    """The route that a request went to, as the table names it."""
    path = urlsplit(exchange.path).path
    for route in ROUTES[service]:
        method, _, template = route.partition(" ")
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
        if method == exchange.method and re.fullmatch(pattern, path):
            return route
    raise AssertionError(f"{service} has no {exchange.method} {path} in the table")


def undeclared(document: Any, fields: Fields, place: str) -> Iterator[str]:
    """Every path of a document, and of the envelopes in it, that the table does not have."""
    for path in set(paths_in(document)):
        if not declared(path, fields):
            yield f"{place}: {'.'.join(path)}"
    yield from undeclared_inside(document, place)


def undeclared_inside(document: Any, place: str) -> Iterator[str]:
    if isinstance(document, dict) and "payloadType" in document:
        kind = document["payloadType"]
        payload = json.loads(base64.b64decode(document["payload"]))
        yield from undeclared(payload, dict(egress.egress_of(egress.PAYLOADS[kind])), f"{place}, {kind}")
        if kind == STUDY_TYPE:
            known = PROCEDURES[payload["procedure"]].Parameters.model_fields
            yield from (f"{place}, parameters: {name}" for name in set(payload["parameters"]) - set(known))
        result = set(payload.get("result") or ()) if kind == VERDICT_TYPE else set()
        if not any(result <= set(model.model_fields) for model in VERDICTS):
            yield f"{place}, result: {sorted(result)}"
    elif isinstance(document, dict | list):
        for value in document.values() if isinstance(document, dict) else document:
            yield from undeclared_inside(value, place)
    elif isinstance(document, str) and document.startswith('{"payload"'):
        yield from undeclared(json.loads(document), egress.ENVELOPE, place)


def problems_with(seen: Seen) -> Iterator[str]:
    """What of an exchange the table does not have."""
    exchange, place = seen.exchange, f"{seen.service} {seen.route} {seen.exchange.status}"
    stated = ROUTES[seen.service][seen.route]
    if exchange.request and exchange.request_headers.get("content-type") == "application/json":
        yield from undeclared(json.loads(exchange.request), stated.request, f"{place}, asked")
    kind = exchange.answer_headers.get("content-type", "")
    if kind == MEDIA_TYPE:
        yield from undeclared(json.loads(exchange.answer), egress.PROBLEM, place)
    elif kind == "application/json":
        yield from undeclared(json.loads(exchange.answer), stated.answer, place)
    yield from (f"{place}: {name}" for name in set(exchange.request_headers) - set(egress.REQUEST_HEADERS))
    yield from (f"{place}: {name}" for name in set(exchange.answer_headers) - set(egress.ANSWER_HEADERS))
    if "authorization" in exchange.request_headers:
        token = exchange.request_headers["authorization"].removeprefix("Bearer ")
        claims = jwt.decode(token, options={"verify_signature": False})
        yield from (f"{place}, token: {name}" for name in set(claims) ^ set(CLAIMS))
        yield from (
            f"{place}, token: {name}" for name in set(jwt.get_unverified_header(token)) - {"alg", "typ"}
        )


def test_every_message_of_a_running_federation_is_in_the_table(seen: list[Seen]) -> None:
    assert sorted({problem for one in seen for problem in problems_with(one)}) == []


def test_every_answer_of_a_running_federation_fits_the_published_document(seen: list[Seen]) -> None:
    found = set()
    for one in seen:
        document = json.loads((REFERENCE / f"{one.service}.openapi.json").read_text("utf-8"))
        exchange, kind = one.exchange, one.exchange.answer_headers.get("content-type", "")
        path = urlsplit(exchange.path).path
        if path.startswith("/v1/") and path != "/v1/openapi.json":
            found |= set(misfits(document, exchange.method, path, exchange.status, kind, exchange.answer))
    assert sorted(found) == []


def test_agents_and_curator_ask_the_tester_nothing_but_what_the_table_says(seen: list[Seen]) -> None:
    """Their requests are known by the key that signed the token."""
    asked = {
        (one.route, tuple(sorted(parse_qs(urlsplit(one.exchange.path).query))))
        for one in seen
        if one.service == "tester" and issuer(one.exchange) in holders(seen)
    }
    enrolment = {("POST /v1/enrolments", ()), ("GET /v1/identity", ())}
    assert {route for route, _ in asked - enrolment} <= set(egress.REQUESTS)
    assert {query for route, query in asked if route == "GET /v1/inbox"} == {("wait_s",)}
    assert {query for route, query in asked if route != "GET /v1/inbox"} == {()}


def issuer(exchange: Recorded) -> str:
    token = exchange.request_headers.get("authorization", "").removeprefix("Bearer ")
    return str(jwt.decode(token, options={"verify_signature": False})["iss"]) if token else ""


def holders(seen: list[Seen]) -> set[str]:
    """The keys of those who hold data: everyone who asked for an inbox."""
    return {issuer(one.exchange) for one in seen if one.route == "GET /v1/inbox"}


def test_something_of_every_kind_was_seen(seen: list[Seen]) -> None:
    """A recording that misses a way of leaving would show nothing about it."""
    routes = {(one.service, one.route) for one in seen if one.exchange.status in (200, 201)}
    assert {("tester", route) for route in egress.REQUESTS} - routes == {
        # Asked only where a release's fate is unknown.
        ("tester", "GET /v1/studies/{digest}")
    } - routes
    kinds, releases = set(), []
    for one in seen:
        if one.route in egress.REQUESTS and one.exchange.method == "PUT":
            body = json.loads(one.exchange.request)
            envelope = json.loads(body["statement"]) if "statement" in body else body
            kinds.add(envelope["payloadType"])
            if envelope["payloadType"] == RELEASE_TYPE:
                releases.append(json.loads(base64.b64decode(envelope["payload"]))["release"])
    types = {"release", "sealed-release", "receipt", "acceptance", "decline", "catalogue", "mask-key"}
    assert kinds == {f"application/vnd.tacit.{name}.v1+json" for name in types}
    assert {vector["noise"] for one in releases for vector in one["vectors"].values()} == {
        "gaussian",
        "laplace",
    }
    assert any(one["decision"] is not None and not one["units_by_owner"] for one in releases)
    assert any(one["decision"] is not None and one["units_by_owner"] for one in releases)
    assert any(one["choice"] is not None for one in releases)
    assert ("tester", "PUT /v1/studies/{digest}/cancellation") in routes
    assert ("curator", "PUT /v1/data-sets/{owner}/{name}/rows") in routes
    assert ("agent", "GET /v1/ledger") in routes


@pytest.mark.parametrize("planted", ["rows_read", "release.mean"])
def test_a_field_that_the_table_does_not_have_is_seen(seen: list[Seen], planted: str) -> None:
    """In an answer, and deep in a signed payload."""
    one = next(
        one
        for one in seen
        if one.route == "PUT /v1/studies/{digest}/releases/{owner}"
        and json.loads(one.exchange.request).get("payloadType") == RELEASE_TYPE
    )
    envelope, answer = json.loads(one.exchange.request), json.loads(one.exchange.answer)
    if planted == "rows_read":
        answer[planted] = 300
    else:
        payload = json.loads(base64.b64decode(envelope["payload"]))
        payload["release"]["mean"] = [0.5]
        envelope["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()
    changed = Recorded(
        **vars(one.exchange)
        | {"request": json.dumps(envelope).encode(), "answer": json.dumps(answer).encode()}
    )
    (found,) = problems_with(Seen(one.service, one.route, changed))
    assert planted.rpartition(".")[2] in found
