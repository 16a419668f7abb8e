"""A tester and a procedure for the agent's tests: small, and recording everything they are given."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import httpx
import numpy as np
from pydantic import BaseModel
from study_parties import study_bytes

from tacit_protocol.domain.columns import Domain, NumericColumn
from tacit_protocol.domain.table import Table
from tacit_protocol.messages.problems import problem_document
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.guarantee import Budget, Guarantee, LaplaceEvent, NoisyVector
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import ReleaseError, StudyError
from tacit_protocol.signing.envelope import STUDY_TYPE, digest, seal
from tacit_protocol.signing.keys import PrivateKey
from tacit_protocol.strict import StrictModel

GRID = -20
"""The fake procedure's sums are integers on a grid of 2**-20."""


class FakeParameters(StrictModel):
    """None."""


class FakeSum:
    """Releases the sum of the first numeric column with Laplace noise: enough to be spent and sent."""

    origin: str | None = None
    name: ClassVar[str] = "fake_sum"
    title: ClassVar[str] = "Sum of a column, for tests"
    families: ClassVar[frozenset[Family]] = frozenset(("pure",))
    Parameters: ClassVar[type[BaseModel]] = FakeParameters
    Verdict: ClassVar[type[BaseModel]] = FakeParameters

    def check(self, study: Study) -> None:
        if study.parameters:
            raise StudyError("this procedure takes no parameters")
        if not study.domain.numeric:
            raise StudyError("this procedure needs a numeric column")

    def cost(self, study: Study) -> Guarantee:
        event = LaplaceEvent(noise_multiplier=1 / study.budget.epsilon)
        return Guarantee(budget=study.budget, events=(event,))

    def numbers_released(self, study: Study) -> int:
        return 1

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        return ("a sum says little",)

    def summarise(self, study: Study, table: Table) -> tuple[int, int]:
        total = sum(int(np.rint(chunk.numeric[:, 0] * 2.0**-GRID).sum()) for chunk in table.chunks())
        return table.units, total

    def privatise(self, study: Study, summary: tuple[int, int], noise: NoiseSource) -> Release:
        units, total = summary
        scale = 2.0**-GRID / study.budget.epsilon
        (noisy,) = noise.laplace(np.array([total], dtype=np.int64), scale)
        vector = NoisyVector(
            values=(int(noisy),), exponent=GRID, noise="laplace", scale=1 / study.budget.epsilon
        )
        return Release(units=units, guarantee=self.cost(study), vectors={"sum": vector})

    def check_release(self, study: Study, release: Release) -> None:
        if set(release.vectors) != {"sum"}:
            raise ReleaseError("the release has other vectors than the study asks for")

    def assemble(self, study: Study, releases: Mapping[str, Release], progress: Any = None) -> BaseModel:
        return FakeParameters()


FAKES = {FakeSum.name: FakeSum()}


@dataclass
class FakeTester:
    """Keeps studies and takes uploads as the tester's interface says; remembers every body it was sent."""

    studies: dict[str, bytes] = field(default_factory=dict)
    deadlines: dict[str, int] = field(default_factory=dict)
    releases: dict[str, bytes] = field(default_factory=dict)
    declines: dict[str, bytes] = field(default_factory=dict)
    verdicts: dict[str, bytes] = field(default_factory=dict)
    received: list[tuple[str, str, bytes]] = field(default_factory=list)
    """Every upload: study, kind, exact body."""
    unavailable: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, envelope: bytes, study_digest: str, deadline: int) -> None:
        self.studies[study_digest], self.deadlines[study_digest] = envelope, deadline

    def handle(self, method: str, url: str, body: bytes) -> tuple[int, bytes]:
        with self.lock:
            if self.unavailable:
                return _problem("not-ready")
            parts = urlsplit(url).path.strip("/").split("/")
            if parts[:2] == ["v1", "inbox"]:
                assert "wait_s" in parse_qs(urlsplit(url).query)
                open_ones = [d for d in self.studies if d not in self.releases and d not in self.declines]
                items = [{"digest": d, "deadline": self.deadlines[d]} for d in open_ones]
                return 200, json.dumps({"items": items}).encode()
            study_digest, rest = parts[2], parts[3:]
            if study_digest not in self.studies:
                return _problem("unknown-study")
            if method == "PUT":
                return self._upload(study_digest, rest[0], body)
            if rest == ["envelope"]:
                return 200, self.studies[study_digest]
            if rest == ["verdict"]:
                found = self.verdicts.get(study_digest)
                return _problem("verdict-pending") if found is None else (200, found)
            summary = {
                "digest": study_digest,
                "owners": [{"name": "north", "sent": study_digest in self.releases}],
            }
            return 200, json.dumps(summary).encode()

    def _upload(self, study_digest: str, kind: str, body: bytes) -> tuple[int, bytes]:
        self.received.append((study_digest, kind, body))
        held = self.releases if kind == "releases" else self.declines
        if study_digest not in held:
            held[study_digest] = body
            return 201, b"{}"
        return (200, b"{}") if held[study_digest] == body else _problem("conflicting-upload")

    def transport(self) -> httpx.MockTransport:
        """Return a transport that reaches this tester without a network."""

        def respond(request: httpx.Request) -> httpx.Response:
            status, content = self.handle(request.method, str(request.url), request.content)
            return httpx.Response(status, stream=httpx.ByteStream(content))

        return httpx.MockTransport(respond)

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve on a loopback port; yields the URL."""
        tester = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                size_bytes = int(self.headers.get("content-length", 0))
                body = self.rfile.read(size_bytes)
                if len(body) < size_bytes:  # its sender ended before it had sent everything
                    self.close_connection = True
                    return
                status, content = tester.handle(self.command, self.path, body)
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_PUT = _answer  # noqa: N815

            def log_message(self, *_: Any) -> None:
                return

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def _problem(slug: str) -> tuple[int, bytes]:
    document = problem_document(slug)
    return document["status"], json.dumps(document).encode()


@dataclass
class World:
    """The keys of one owner's small world, and the studies it is asked."""

    folder: Path
    agent: PrivateKey = field(default_factory=PrivateKey.generate)
    tester: PrivateKey = field(default_factory=PrivateKey.generate)
    analyst: PrivateKey = field(default_factory=PrivateKey.generate)

    def study(self, **changes: Any) -> Study:
        fields: dict[str, Any] = {
            "title": "How high is x?",
            "procedure": "fake_sum",
            "parameters": {},
            "domain": Domain(columns=(NumericColumn(name="x", lower=0.0, upper=10.0),)),
            "owners": (
                Owner(name="north", key=self.agent.public_hex, data_set="patients"),
                Owner(name="south", key="5" * 64, data_set="patients"),
            ),
            "tester": Party(name="tester", key=self.tester.public_hex),
            "analyst": Party(name="ada", key=self.analyst.public_hex),
            "budget": Budget.of("0.5", "1e-6"),
            "level": 0.05,
            "created_at": 1_000,
            "deadline": 2**40,
            "respond_after_s": 0,
            "seed": "0" * 32,
        }
        return Study(**{**fields, **changes})

    def sealed(self, study: Study) -> tuple[bytes, str]:
        """Return a study's envelope and digest."""
        payload = study_bytes(study)
        return seal(payload, STUDY_TYPE, self.analyst), digest(payload)

    def ask(self, tester: FakeTester, study: Study) -> str:
        """Put a study to the tester; returns its digest."""
        envelope, study_digest = self.sealed(study)
        tester.add(envelope, study_digest, study.deadline)
        return study_digest

    def write(self, tester_url: str, *, policy: str = "", agent: str = "", data_set: str = "") -> Path:
        """Write data, key, policy and configuration; returns agent.toml's path. Later lines add settings."""
        (self.folder / "patients.csv").write_text(
            "x,y,id\n" + "".join(f"{i % 10},{i},p{i}\n" for i in range(60))
        )
        key_file = self.folder / "agent.pem"
        key_file.write_bytes(self.agent.to_pem())
        key_file.chmod(0o600)
        limits = "" if "epsilon_per_study_max" in policy else "epsilon_per_study_max = 1.0\n"
        limits += "" if "respond_after_s_min" in policy else "respond_after_s_min = 0\n"
        approval = "" if "approval" in policy else 'approval = "automatic"\n'
        analysts = "" if "analysts" in policy else 'analysts = ["*"]\n'
        (self.folder / "policy.toml").write_text(
            f"{approval}{limits}delta_per_study_max = 1e-5\n{analysts}{policy}\n"
            '[data_sets.patients]\ncolumns = ["x", "absent"]\n'
        )
        database = "" if "database_url" in agent else 'database_url = "sqlite:///agent.sqlite3"\n'
        caps = "" if "epsilon =" in data_set else "epsilon = 2.0\n"
        path = self.folder / "agent.toml"
        path.write_text(
            f'name = "north"\nkey_file = "agent.pem"\ntester_url = "{tester_url}"\n'
            f'tester_key = "{self.tester.public_hex}"\npolicy_file = "policy.toml"\n'
            "poll_wait_s = 0\nport = 0\n"
            f"{database}{agent}\n"
            f'[[data_sets]]\nname = "patients"\nsource = "patients.csv"\n{caps}delta = 1e-5\n{data_set}\n'
        )
        return path
