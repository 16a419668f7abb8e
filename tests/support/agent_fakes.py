"""A tester and a procedure for the agent's tests: small, and recording everything they are given."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import httpx
import numpy as np
import pytest
import sqlalchemy as sa
from plan_of_methods import ProcedureOfMethods
from pydantic import BaseModel
from served import listening
from study_parties import study_bytes

from tacit_protocol.domain import Domain, NumericColumn, Table
from tacit_protocol.messages.alignment import NO_PROOF, AlignmentMessage, UnitKey, bucket_count, buckets_text
from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.problems import problem_document
from tacit_protocol.messages.study import Owner, Party, Release, Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.guarantee import Budget, Guarantee, LaplaceEvent, NoisyVector
from tacit_protocol.privacy.noise import NoiseSource, OpenDPNoise
from tacit_protocol.procedures.base import Procedure, ReleaseError, StudyError
from tacit_protocol.signing import ALIGNMENT_TYPE, STUDY_TYPE, PrivateKey, sign_envelope
from tacit_protocol.strict import StrictModel
from tacit_services.agent.agent import Agent
from tacit_services.agent.alignment import compare
from tacit_services.agent.data.source import Source
from tacit_services.agent.settings import AgentSettings, DataSetSettings
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.loops import work
from tacit_services.agent.study.policy import Policy
from tacit_services.agent.study.releases import Dependencies
from tacit_services.agent.study.studies import StudyRow, study_row
from tacit_services.agent.study.tester_client import TesterClient
from tacit_services.ledger.accounts import standing_of
from tacit_services.ledger.verification import export, verify
from tacit_services.shared.database import create_engine, run_transaction, upgrade

GRID = -20
"""The fake procedure's sums are integers on a grid of 2**-20."""


class FakeParameters(StrictModel):
    """None."""


class FakeSum(ProcedureOfMethods):
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

    def release_size(self, study: Study) -> int:
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

        with listening(Handler) as url:
            yield url


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
        return sign_envelope(payload, STUDY_TYPE, self.analyst), digest(payload)

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


# An agent in this process, and what the attacks look at afterwards.

NOW = 10_000


@dataclass
class Clock:
    """A clock that a test turns by hand."""

    now: float = NOW

    def __call__(self) -> float:
        return self.now


class AttackedAgent:
    """One agent, its fake tester, its clock, and the names of the data sets that were touched, in order."""

    def __init__(
        self,
        folder: Path,
        world: World | None = None,
        procedures: Mapping[str, Procedure] = FAKES,
        transport: httpx.BaseTransport | None = None,
        noise: NoiseSource | None = None,
        **written: str,
    ) -> None:
        self.world = World(folder) if world is None else world
        self.world.folder = folder
        self.tester, self.clock, self.opened = FakeTester(), Clock(), list[str]()
        settings = AgentSettings.load(self.world.write("http://tester", **written))
        engine = create_engine(settings.database_url)
        upgrade(engine, "agent")
        client = TesterClient(
            "http://tester",
            "http://tester",
            self.world.agent,
            self.clock,
            lambda _: None,
            transport=transport or self.tester.transport(),
        )
        self.agent = Agent(
            settings,
            Policy.load(settings.policy_file),
            self.world.agent,
            procedures,
            Dependencies(engine, client, noise or OpenDPNoise(), self.clock),
        )
        self.agent.open_accounts()

    def turn(self) -> None:
        """Let the agent ask, run and send once."""
        Fetcher(self.agent).poll(0)
        work(self.agent)

    def row(self, study_digest: str) -> StudyRow:
        """Return what the agent recorded of a study."""
        row = run_transaction(self.agent.engine, lambda c: study_row(c, study_digest), read_only=True)
        assert row is not None
        return row

    def debits(self) -> list[dict[str, Any]]:
        """Return the debits of a ledger that verifies."""
        run_transaction(self.agent.engine, verify, read_only=True)
        entries = run_transaction(self.agent.engine, export, read_only=True)
        return [entry for entry in entries if entry["kind"] == "debit"]

    def spent(self) -> int:
        """Return the micro-epsilons that were spent, all of it pure."""
        found = run_transaction(self.agent.engine, lambda c: standing_of(c, "patients"), read_only=True)
        return found.pure_spent_micro


MakeAgent = Callable[..., AttackedAgent]


@contextmanager
def recorded_agents(folders: Iterator[Path]) -> Iterator[MakeAgent]:
    """Make agents, each in the next folder, whose accesses to data are recorded."""
    engines = list[sa.Engine]()
    with pytest.MonkeyPatch.context() as patch:

        def build(**options: Any) -> AttackedAgent:
            attacked = AttackedAgent(next(folders), **options)
            engines.append(attacked.agent.engine)
            original = DataSetSettings.open

            def recorded(self: DataSetSettings) -> Source:
                attacked.opened.append(self.name)
                return original(self)

            patch.setattr(DataSetSettings, "open", recorded)
            return attacked

        yield build
    for engine in engines:
        engine.dispose()


# Two owners of different columns of the same people: the agent under test, and a peer that makes files.

IDS = tuple(f"p{i}" for i in range(60))
"""The ids that the world's data set holds."""

UNIT_COLUMN = 'unit_column = "id"'


@dataclass
class Peer:
    """The other owner: its name, its key, and what it shares with the agent under test."""

    folder: Path
    name: str = "south"
    data_set: str = "persons"
    key: PrivateKey = field(default_factory=PrivateKey.generate)
    shared: UnitKey = field(default_factory=lambda: UnitKey(bytes(range(32))))

    @property
    def key_file(self) -> Path:
        path = self.folder / "shared.key"
        path.write_text(self.shared.secret.hex() + "\n")
        path.chmod(0o600)
        return path

    def message(self, ids: Sequence[str] = IDS, **changes: Any) -> AlignmentMessage:
        """What the peer says of its units, proven with the shared key."""
        units = np.unique(self.shared.hashes(ids))
        fields: dict[str, Any] = {
            "owner": Party(name=self.name, key=self.key.public_hex),
            "data_set": self.data_set,
            "unit_column": "id",
            "key_fingerprint": self.shared.fingerprint,
            "units": len(units),
            "digest": self.shared.digest(units),
            "buckets": buckets_text(self.shared.bucket_digests(units, bucket_count(len(units)))),
        }
        message = AlignmentMessage(**{**fields, **changes, "proof": NO_PROOF})
        return message.model_copy(update={"proof": self.shared.proof(encode(message))})

    def sealed(self, message: AlignmentMessage | None = None, key: PrivateKey | None = None) -> bytes:
        return sign_envelope(encode(message or self.message()), ALIGNMENT_TYPE, key or self.key)

    def compared(self, config: Path, envelope: bytes | None = None, *, list_ids: bool = False) -> Any:
        """What the agent's owner is told of the peer's file."""
        path = self.folder / "theirs.json"
        path.write_bytes(self.sealed() if envelope is None else envelope)
        return compare(
            config, "patients", None, self.key_file, path, list_ids=list_ids, clock=lambda: 1_700_000_000
        )


def aligned_study(world: World, peer: Peer, **changes: Any) -> Study:
    """A study of the agent's column x and the peer's column z, by the digest of the world's own ids."""
    owners = (
        Owner(name="north", key=world.agent.public_hex, data_set="patients", columns=("x",)),
        Owner(name=peer.name, key=peer.key.public_hex, data_set=peer.data_set, columns=("z",)),
    )
    return world.study(
        **{
            "procedure": "distance_correlation",
            "domain": Domain(
                columns=tuple(NumericColumn(name=name, lower=0.0, upper=10.0) for name in ("x", "z"))
            ),
            "owners": owners,
            "unit_column": "id",
            "alignment": peer.message().digest,
            **changes,
        }
    )
