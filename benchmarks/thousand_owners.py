"""A study of a thousand owners, run in one piece: what it takes of everyone, on SQLite and on PostgreSQL.

    python -m benchmarks.thousand_owners                      # writes docs/benchmarks/thousand-owners.md
    python -m benchmarks.thousand_owners --cells "10 owners"  # a glance

A real tester process, real HTTP, a key and tokens for every owner, and the agents' own code: an owner's inbox
is read, the study fetched, the release made and uploaded by what an agent uses for it. The owners share a few
processes, which make one release at a time; requests go out of several threads. PostgreSQL's tester gets the
releases that SQLite's got, under the same key.
"""

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx
import sqlalchemy as sa

from benchmarks.cost_study import QUESTIONS, Costs, Fresh, Meter, Point, Question, Sender, write_rows
from benchmarks.costs import number, slope
from benchmarks.harness import Answers, Benchmark, Cell, Counts, cells_of, machine, main, peak_mb, table
from benchmarks.servers import TIMEOUT_S, Served, postgres, put, serving, tester_command, write_tester
from tacit import Client
from tacit_protocol.domain import COLUMNS_MAX, CategoricalColumn, Domain, NumericColumn
from tacit_protocol.messages.encoding import MESSAGE_BYTES_MAX, decode, encode
from tacit_protocol.messages.study import OWNERS_MAX, TRANSCRIPT_BYTES_MAX, Owner, Party, Study, numbers_max
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Budget
from tacit_protocol.signing import STUDY_TYPE, PrivateKey, issue_token, open_envelope, sign_envelope
from tacit_protocol.verification import verify_transcript
from tacit_services.agent.study.tester_client import DeadlineTransport, TesterClient
from tacit_services.shared.compute import prepare_to_compute

PROCESSES, THREADS = 2, 8
"""Processes that play owners, and threads of each: sixteen requests are under way at once."""

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
    for place in range(point.owners):
        path = folder / f"owner-{place:04d}.parquet"
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


QUESTION = QUESTIONS["kernel_two_sample"]

NUMBERS = (10, 100, 1000)
"""Owners of the studies that are run."""

ROWS, COLUMNS = 1000, 5
"""Rows of every owner, and numeric columns: a release of 190 numbers."""

DATABASES = ("SQLite", "PostgreSQL")

GROWN = "database, bytes"
"""What a database takes on disk; the page has by how much it grew."""

STAGES = ("enrolment", "study", "inboxes and fetches", "uploads", "verdict", "transcript")

MEASURES: Mapping[str, tuple[str, ...]] = {
    "Each owner": (
        "study, bytes",
        "release, bytes",
        "owner open the study, CPU s",
        "owner check, CPU s",
        "owner read and summarise, CPU s",
        "owner noise, CPU s",
        "owner check and sign, CPU s",
        "owner, CPU s",
        "owner at most, CPU s",
    ),
    "Whoever verifies": (
        "releases, bytes",
        "SQLite, transcript, bytes",
        "tacit verify, CPU s",
        "verification, CPU s",
        "verification, MiB",
    ),
} | {
    f"The tester, on {name}": tuple(
        f"{name}, {what}"
        for what in (
            *(f"{stage}: tester CPU, s" for stage in STAGES),
            "verdict: wall, s",
            "transcript: tester peak, MiB",
            "database, bytes",
        )
    )
    for name in DATABASES
}
"""The page's tables: headings, and what is shown below each."""


@dataclass(frozen=True)
class Run:
    """What both databases share."""

    folder: Path
    tester: PrivateKey
    analyst: PrivateKey
    owners: list[tuple[str, PrivateKey, Path]]
    fresh: Fresh

    def parties(self) -> list[tuple[str, PrivateKey, str]]:
        """Return everyone who is enrolled."""
        return [
            ("analyst", self.analyst, "analyst"),
            *((name, key, "owner") for name, key, _ in self.owners),
        ]

    def draft(self) -> dict[str, object]:
        """Return the study as an analyst writes it."""
        return {
            "title": "a study of many owners",
            "columns": [
                {"kind": "numeric", "name": f"c{i}", "lower": -5.0, "upper": 5.0} for i in range(COLUMNS)
            ],
            "owners": [{"name": name, "data_set": "rows", "units": ROWS} for name, _, _ in self.owners],
            "epsilon": 1.0,
            "delta": 1e-6,
        }


@dataclass(frozen=True)
class Played:
    """A study as it was created and answered."""

    digest: str
    envelope: bytes
    made: list[Made]


def play(count: int, _: int) -> Answers:
    """Run one study of so many owners on both databases."""
    prepare_to_compute()
    with tempfile.TemporaryDirectory(prefix="tacit-owners-") as place:
        folder = Path(place)
        owners = write_owners(folder / "owners", QUESTION, Point(ROWS, COLUMNS, 0, count))
        run = Run(folder, PrivateKey.generate(), PrivateKey.generate(), owners, Fresh())
        costs: Costs = {}
        played = _at(run, f"sqlite:///{folder / 'tester.sqlite3'}", "SQLite", None, costs)
        with postgres(folder) as url:
            _at(run, url, "PostgreSQL", played, costs)
        return costs


def _at(run: Run, url: str, name: str, before: Played | None, costs: Costs) -> Played:
    """Play the study at a tester on that database; as it was played ``before``, where it was."""
    file, port = write_tester(run.folder, run.tester, url)
    audience = f"http://127.0.0.1:{port}"
    owned = [Owned(name, key.to_pem(), rows, audience) for name, key, rows in run.owners]
    with serving(port, tester_command(file)) as served, ProcessPoolExecutor(PROCESSES) as pool:
        watched, owners = Watched(served), Owners(owned, pool)
        found: Costs = {"empty database, bytes": database_bytes(url)}
        enrol(audience, run.tester, run.parties())
        found |= watched.look("enrolment")
        with Client(audience, run.analyst) as analyst:
            if before is None:
                digest = analyst.create_study(run.draft(), force=True)
            else:
                put(audience, run.analyst, f"/v1/studies/{(digest := before.digest)}", before.envelope)
            found |= watched.look("study")
            (envelope,) = owners.fetch()
            found |= watched.look("inboxes and fetches")
            made = owners.make(envelope, run.analyst.public_hex) if before is None else before.made
            watched.look("releases")
            owners.upload(digest, made)
            found |= watched.look("uploads")
            analyst.wait_for_verdict(digest, timeout_s=VERDICT_S_MAX)
            found |= watched.look("verdict")
            transcript = analyst.transcript(digest)
            found |= watched.look("transcript")
        found |= {"database, bytes": database_bytes(url), "transcript, bytes": len(transcript)}
    if before is None:
        costs |= _of_owners(made) | {"study, bytes": len(envelope)} | _verified(run, transcript)
    costs |= {f"{name}, {what}": value for what, value in found.items()}
    return Played(digest, envelope, made)


def _of_owners(made: list[Made]) -> Costs:
    """Return the mean of every stage of the owners' work, and the largest sum."""
    stages = {
        f"owner {stage}, CPU s": statistics.fmean(one.costs[stage] for one in made) for stage in made[0].costs
    }
    sums = [sum(one.costs.values()) for one in made]
    sizes = [len(one.envelope) for one in made]
    return stages | {
        "owner, CPU s": statistics.fmean(sums),
        "owner at most, CPU s": max(sums),
        "release, bytes": statistics.fmean(sizes),
        "releases, bytes": sum(sizes),
    }


def _verified(run: Run, transcript: bytes) -> Costs:
    path = run.folder / "transcript.json"
    path.write_bytes(transcript)
    return verify_by_command(path) | run.fresh.call(verify_in_process, path)


def cells() -> list[Cell]:
    """Return a run for every number of owners."""
    return cells_of("{} owners", 1, play, NUMBERS)


def large_study(owners: int, domain: Domain, name_length: int = 10) -> Study:
    """Return a study of so many owners, whose names have that length."""
    return Study(
        title="large",
        procedure="kernel_two_sample",
        parameters={},
        domain=domain,
        owners=tuple(
            Owner(
                name=f"{i:06d}".ljust(name_length, "x"),
                key=f"{i:064x}",
                data_set="x" * name_length,
                units=1000,
            )
            for i in range(owners)
        ),
        tester=Party(name="tester", key="f" * 64),
        analyst=Party(name="analyst", key="e" * 64),
        budget=Budget.of(1.0, 1e-6),
        level=0.05,
        created_at=0,
        deadline=1,
        seed="0" * 32,
    )


def numbers(columns: int) -> Domain:
    """Return so many numeric columns."""
    return Domain(columns=tuple(NumericColumn(name=f"column-{i}", lower=-5, upper=5) for i in range(columns)))


def categories(columns: int, levels: int) -> Domain:
    """Return so many categorical columns."""
    texts = tuple(f"level-{i}" for i in range(levels))
    return Domain(columns=tuple(CategoricalColumn(name=f"column-{i}", levels=texts) for i in range(columns)))


def study_bytes(study: Study) -> int:
    """Return the size of a study's signed envelope; raises MessageError where it cannot be read back."""
    payload = encode(study)
    decode(Study, payload)
    return len(sign_envelope(payload, STUDY_TYPE, PrivateKey.generate()))


LARGE = {
    "1000 owners, 5 columns": large_study(OWNERS_MAX, numbers(5)),
    "1000 owners, names of 63 letters, 5 columns": large_study(OWNERS_MAX, numbers(5), 63),
    "1000 owners, 1000 numeric columns": large_study(OWNERS_MAX, numbers(COLUMNS_MAX)),
    "1000 owners, names of 63 letters, 1000 numeric columns": large_study(
        OWNERS_MAX, numbers(COLUMNS_MAX), 63
    ),
    "1000 owners, 30 columns of 1000 levels": large_study(OWNERS_MAX, categories(30, 1000)),
}
"""Studies at the edge of what the format takes."""


def _value(counts: Counts, number: int, measure: str) -> float | None:
    """Return what was measured; of a database, by how much it grew."""
    value = counts.rate(f"{number} owners", measure)
    if value is None or not measure.endswith(GROWN):
        return value
    return value - (counts.rate(f"{number} owners", measure.replace(GROWN, "empty database, bytes")) or 0.0)


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    thousand = {measure: _value(counts, 1000, measure) for kind in MEASURES.values() for measure in kind}
    return {
        "machine": machine(),
        **{heading: _table(counts, measures) for heading, measures in MEASURES.items()},
        **_needs({measure: value or 0.0 for measure, value in thousand.items()}),
        "limits": _limits(),
        "most owners": f"{OWNERS_MAX}",
        "transcript MiB": f"{TRANSCRIPT_BYTES_MAX // 2**20}",
        "each kB": f"{TRANSCRIPT_BYTES_MAX // OWNERS_MAX / 1e3:.0f}",
        "most numbers": f"{COORDINATES_MAX:,}",
        "most numbers of most owners": f"{numbers_max(OWNERS_MAX):,}",
    }


def _table(counts: Counts, measures: tuple[str, ...]) -> str:
    rows = {}
    for measure in measures:
        values = {n: _value(counts, n, measure) for n in NUMBERS}
        row = {f"{n} owners": number(value, ".3g") for n, value in values.items()}
        pairs = [(n, value) for n, value in values.items() if value]
        fitted = slope(*zip(*pairs[-2:], strict=True)) if len(pairs) > 1 else None
        row["exponent, last two"] = "" if fitted is None else f"{fitted:.2f}"
        rows[measure.removeprefix("SQLite, ").removeprefix("PostgreSQL, ")] = row
    return table(rows, "")


def _limits() -> str:
    sizes = {name: study_bytes(study) for name, study in LARGE.items()}
    rows = {
        name: {"signed, kB": f"{size / 1e3:.0f}", "of the largest body": f"{size / MESSAGE_BYTES_MAX:.2f}"}
        for name, size in sizes.items()
    }
    return table(rows, "study")


def _needs(of: Mapping[str, float]) -> dict[str, str]:
    """Return what a study of a thousand owners needs, from what was measured."""
    transcript = of["SQLite, transcript, bytes"]
    figures = {
        "owner s": f"{of['owner, CPU s']:.3f}",
        "study kB": f"{of['study, bytes'] / 1e3:.0f}",
        "release kB": f"{of['release, bytes'] / 1e3:.1f}",
        "peak MiB": f"{max(of[f'{name}, transcript: tester peak, MiB'] for name in DATABASES):.0f}",
        "disk MB": f"{max(of[f'{name}, {GROWN}'] for name in DATABASES) / 1e6:.1f}",
        "sent MB": f"{(1000 * of['study, bytes'] + of['releases, bytes'] + transcript) / 1e6:.0f}",
        "transcript MB": f"{transcript / 1e6:.1f}",
        "verify s": f"{of['tacit verify, CPU s']:.1f}",
        "verify MiB": f"{of['verification, MiB']:.0f}",
    }
    return figures | {
        f"{name} s": f"{sum(of[f'{name}, {stage}: tester CPU, s'] for stage in STAGES):.1f}"
        for name in DATABASES
    }


BENCHMARKS = (Benchmark("thousand-owners", cells, parts),)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
