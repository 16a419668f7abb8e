"""A federation of many owners, played in one go: a real tester process, and the agents' own code over HTTP.

Everyone is enrolled by invitation. Every owner has a key, a Parquet file and tokens of its own; its inbox is
read, the study fetched, the release made and uploaded by what an agent uses for it. The owners share a few
processes, which make one release at a time; requests go out of several threads.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx
import sqlalchemy as sa

from benchmarks.cost_cell import Costs, Meter, Sender
from benchmarks.cost_studies import Point, Question, write_rows
from benchmarks.harness import peak_mb
from benchmarks.load_servers import Served
from tacit import Client
from tacit_protocol.messages.encoding import decode
from tacit_protocol.messages.study import Study
from tacit_protocol.signing.envelope import STUDY_TYPE, open_envelope
from tacit_protocol.signing.keys import PrivateKey
from tacit_protocol.signing.tokens import issue_token
from tacit_protocol.verification import verify_transcript
from tacit_services.agent.tester_client import DeadlineTransport, TesterClient
from tacit_services.shared.compute import prepare_to_compute

PROCESSES, THREADS = 2, 8
"""Processes that play owners, and threads of each: sixteen requests are under way at once."""

TIMEOUT_S = 600.0
"""How long one exchange may take: the machine may be busy with other work."""

VERDICT_S_MAX = 1800.0

COMMAND = "from tacit.command import main; main()"
"""What the installed command runs."""

OpenedT = TypeVar("OpenedT")


@dataclass(frozen=True)
class Owned:
    """One owner: its name, key and rows, and where its tester is."""

    name: str
    pem: bytes
    rows: Path
    url: str

    @property
    def key(self) -> PrivateKey:
        """The owner's key, which is read from its PEM: it goes to no other process otherwise."""
        return PrivateKey.from_pem(self.pem)

    def client(self, transport: httpx.BaseTransport) -> TesterClient:
        """Return the client that the owner's agent uses."""
        return TesterClient(
            self.url, self.url, self.key, time.time, time.sleep, transport=transport, timeout_s=TIMEOUT_S
        )


@dataclass(frozen=True)
class Made:
    """An owner's signed release, and the CPU seconds of its stages."""

    name: str
    envelope: bytes
    costs: Costs


def write_owners(folder: Path, question: Question, point: Point) -> list[tuple[str, PrivateKey, Path]]:
    """Make every owner's name, key and file; the files hold the same rows."""
    folder.mkdir()
    write_rows(folder / "first.parquet", question.kind, point)
    rows = (folder / "first.parquet").read_bytes()
    owners = []
    for number in range(point.owners):
        path = folder / f"owner-{number:04d}.parquet"
        path.write_bytes(rows)
        owners.append((path.stem, PrivateKey.generate(), path))
    return owners


def enrol(url: str, tester: PrivateKey, parties: Sequence[tuple[str, PrivateKey, str]]) -> None:
    """Invite and enrol everyone, over HTTP."""
    with Client(url, tester) as admin, httpx.Client(base_url=url, trust_env=False, timeout=TIMEOUT_S) as http:
        for name, key, role in parties:
            invited = admin.invite("analyst" if role == "analyst" else "owner", name)
            body = {"invitation": invited.invitation, "name": name, "key": key.public_hex, "role": role}
            token = issue_token(key, url, int(time.time()))
            http.post(
                "/v1/enrolments", json=body, headers={"Authorization": f"Bearer {token}"}
            ).raise_for_status()


def put_study(url: str, analyst: PrivateKey, digest: str, envelope: bytes) -> None:
    """Hand over a study's exact bytes, as its analyst."""
    token = issue_token(analyst, url, int(time.time()))
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    httpx.put(
        f"{url}/v1/studies/{digest}", content=envelope, headers=headers, trust_env=False, timeout=TIMEOUT_S
    ).raise_for_status()


def fetch(owned: Owned, transport: httpx.BaseTransport) -> bytes:
    """Read an owner's inbox, and fetch the study that waits there."""
    client = owned.client(transport)
    return client.study_envelope(client.inbox(0)[0].digest)


def upload(owned: Owned, transport: httpx.BaseTransport, digest: str, envelope: bytes) -> None:
    """Send an owner's release."""
    owned.client(transport).put_release(digest, owned.name, envelope)


def make(owned: Owned, envelope: bytes, analyst: str) -> Made:
    """Do what an agent does from the study's envelope to the release's."""
    meter = Meter({})
    with meter.stage("open the study"):
        payload = open_envelope(envelope, STUDY_TYPE, analyst)
        study = decode(Study, payload)
    _, release = Sender(study, payload, owned.name, owned.key, owned.rows).release(meter)
    return Made(owned.name, release, meter.costs)


def _fetch_all(owners: Sequence[Owned]) -> list[bytes]:
    return _in_threads(owners, fetch)


def _upload_all(owners: Sequence[Owned], digest: str, made: Sequence[Made]) -> list[None]:
    envelopes = {one.name: one.envelope for one in made}
    return _in_threads(
        owners, lambda owned, transport: upload(owned, transport, digest, envelopes[owned.name])
    )


def _make_all(owners: Sequence[Owned], envelope: bytes, analyst: str) -> list[Made]:
    prepare_to_compute()
    return [make(owned, envelope, analyst) for owned in owners]


def _in_threads(
    owners: Sequence[Owned], act: Callable[[Owned, httpx.BaseTransport], OpenedT]
) -> list[OpenedT]:
    context = httpx.create_ssl_context(trust_env=False)
    with DeadlineTransport(context) as transport, ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(lambda owned: act(owned, transport), owners))


class Owners:
    """All owners, shared out between processes."""

    def __init__(self, owners: Sequence[Owned], pool: ProcessPoolExecutor) -> None:
        self._parts = [owners[start::PROCESSES] for start in range(PROCESSES)]
        self._pool = pool

    def fetch(self) -> set[bytes]:
        """Let everyone fetch the study; returns the different answers."""
        return {study for part in self._pool.map(_fetch_all, self._parts) for study in part}

    def make(self, envelope: bytes, analyst: str) -> list[Made]:
        """Let everyone make a release."""
        many = len(self._parts)
        parts = self._pool.map(_make_all, self._parts, [envelope] * many, [analyst] * many)
        return [made for part in parts for made in part]

    def upload(self, digest: str, made: Sequence[Made]) -> None:
        """Let everyone upload a release."""
        many = len(self._parts)
        list(self._pool.map(_upload_all, self._parts, [digest] * many, [made] * many))


class Watched:
    """A tester process, with what it has used since the last look."""

    def __init__(self, served: Served) -> None:
        self._served, self._cpu_s, self._began_s = served, served.cpu_s, time.perf_counter()

    def look(self, what: str) -> Costs:
        """Return CPU and wall seconds since the last look, and the peak memory so far."""
        cpu_s, now_s = self._served.cpu_s, time.perf_counter()
        costs = {
            f"{what}: tester CPU, s": cpu_s - self._cpu_s,
            f"{what}: wall, s": now_s - self._began_s,
            f"{what}: tester peak, MiB": peak_mb(self._served.pid),
        }
        self._cpu_s, self._began_s = cpu_s, now_s
        return costs


def database_bytes(url: str) -> int:
    """Return how much a tester's database takes on disk."""
    parsed = sa.make_url(url)
    if parsed.get_backend_name() == "sqlite":
        path = Path(str(parsed.database))
        return sum(each.stat().st_size for each in path.parent.glob(f"{path.name}*"))
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        size = int(connection.execute(sa.text("SELECT pg_database_size(current_database())")).scalar_one())
    engine.dispose()
    return size


def verify_by_command(path: Path) -> Costs:
    """Run ``tacit verify`` on a transcript."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", COMMAND, "verify", str(path)], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {"tacit verify, CPU s": sum(after[:2]) - sum(before[:2])}


def verify_in_process(path: Path) -> Costs:
    """Verify a transcript here; returns CPU seconds and peak memory, to be called in a fresh process."""
    prepare_to_compute()
    resident_mb = peak_mb()
    began = resource.getrusage(resource.RUSAGE_SELF)
    verify_transcript(path.read_bytes())
    ended = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "verification, CPU s": sum(ended[:2]) - sum(began[:2]),
        "verification, MiB": peak_mb() - resident_mb,
    }
