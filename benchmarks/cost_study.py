"""What one study costs its sender and the tester: the studies, and how each part is measured.

One question of every procedure, each size of it varied by itself. The sender's part is what an agent does
with an accepted study: open the source and count, check, summarise, adapt where the procedure does, draw the
noise, check, sign. The tester's part is what its job does: open and check every release, conclude, write the
verdict. Each is a process of its own, forked from one that has the modules, so that what is measured is not
their import; both run a small study of the same kind first, as a service that is up has.
"""

import json
import multiprocessing
import pickle
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import peak_mb
from benchmarks.problems import numeric_domain
from tacit_protocol.domain import CategoricalColumn, Domain, PooledTable, Table
from tacit_protocol.messages.encoding import decode, digest, encode
from tacit_protocol.messages.study import Owner, Party, Release, ReleaseMessage, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import (
    ReleaseError,
    StudyError,
    check_release,
    check_study,
    planned,
)
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.relay import check_answer, conclude, read_answer
from tacit_protocol.signing import RELEASE_TYPE, STUDY_TYPE, PrivateKey, open_envelope, sign_envelope
from tacit_services.agent.data.parquet_source import ParquetSource
from tacit_services.agent.data.table import SourceTable
from tacit_services.shared.compute import prepare_to_compute

DELTA = 1e-6
LEVEL = 0.05
CURATOR = "curator"

ROWS_OF_MANY = 10_000

GROUP_ROWS = 65_536
"""Rows of a row group of the generated files."""

Holders = Literal["each", "one", "split", "apart", "curator"]
Kind = Literal["numbers", "categories", "times", "groups"]


@dataclass(frozen=True)
class Point:
    """One study: rows (units) of each owner, columns, owners, epsilon, and the procedure's own size."""

    rows: int
    columns: int
    size: int
    owners: int
    epsilon: float = 1.0


@dataclass(frozen=True)
class Question:
    """A procedure with parameters, and the points at which it is measured.

    ``holders``: every owner has all columns (``each``, or ``one`` owner alone), two owners have half of the
    columns each (``split``), every owner has one (``apart``), or a curator has the tables of all owners.
    ``size`` names what ``Point.size`` is. ``varied`` holds, for a field of :class:`Point`, its values; the
    others stay as in ``base``, where many owners have ROWS_OF_MANY rows each.
    """

    name: str
    kind: Kind
    holders: Holders
    size: str
    base: Point
    varied: Mapping[str, tuple[float, ...]]
    parameters: Callable[[Point], dict[str, Any]] = lambda _: {}

    @property
    def procedure(self) -> str:
        """The procedure's name."""
        return self.name.partition(",")[0]

    def points(self) -> Iterator[tuple[str, Point]]:
        """Yield what is varied, and the point; the base may come once for each."""
        for varied, values in self.varied.items():
            for value in values:
                point = Point(**(vars(self.base) | {varied: value}))
                if varied == "owners":
                    point = replace(point, rows=ROWS_OF_MANY)
                yield varied, point

    def domain(self, point: Point) -> Domain:
        """Return the study's columns; of categories, as many levels as make ``size`` cells of them."""
        if self.kind == "numbers":
            return numeric_domain(point.columns, (-5.0, 5.0))
        if self.kind in ("times", "groups"):
            numbers = numeric_domain(point.columns - 1, (-5.0, 5.0)).columns
            last = CategoricalColumn(name=f"c{point.columns - 1}", levels=("level-0000", "level-0001"))
            return Domain(columns=(*numbers, last))
        levels = tuple(f"level-{i:04d}" for i in range(levels_of(point)))
        return Domain(
            columns=tuple(CategoricalColumn(name=f"c{i}", levels=levels) for i in range(point.columns))
        )

    def study(self, point: Point, parties: "Parties", seed: int) -> Study:
        """Write the study; ``seed`` is its public randomness."""
        names = [f"c{i}" for i in range(point.columns)]
        half = point.columns // 2
        held: list[tuple[str, ...] | None] = [None] * point.owners
        if self.holders == "split":
            first = 1 if self.procedure == "screening" else half
            held = [tuple(names[:first]), tuple(names[first:])]
        if self.holders == "apart":
            held = [(name,) for name in names]
        return Study(
            title="cost",
            procedure=self.procedure,
            parameters=self.parameters(point),
            domain=self.domain(point),
            owners=tuple(
                Owner(name=name, key=key.public_hex, data_set="rows", columns=columns)
                for (name, key), columns in zip(parties.owners.items(), held, strict=True)
            ),
            curator=Party(name=CURATOR, key=parties.curator.public_hex)
            if self.holders == "curator"
            else None,
            tester=Party(name="tester", key=parties.tester.public_hex),
            analyst=Party(name="analyst", key=parties.analyst.public_hex),
            budget=Budget.of(point.epsilon, 0.0 if self.procedure == "identity" else DELTA),
            level=LEVEL,
            created_at=0,
            deadline=1,
            seed=f"{seed:032x}",
        )


@dataclass(frozen=True)
class Parties:
    """The keys of everyone in a study."""

    owners: Mapping[str, PrivateKey]
    tester: PrivateKey = field(default_factory=PrivateKey.generate)
    analyst: PrivateKey = field(default_factory=PrivateKey.generate)
    curator: PrivateKey = field(default_factory=PrivateKey.generate)

    @classmethod
    def of(cls, owners: int) -> "Parties":
        """Make keys for so many owners."""
        return cls({f"owner-{i:04d}": PrivateKey.generate() for i in range(owners)})

    def key_of(self, sender: str) -> PrivateKey:
        """Return the key that signs a sender's release."""
        return self.curator if sender == CURATOR else self.owners[sender]


def levels_of(point: Point) -> int:
    """Return how many levels each column has, so that the columns' cells are about ``size``."""
    return max(2, round(float(point.size) ** (1 / point.columns)))


def write_rows(path: Path, kind: Kind, point: Point) -> None:
    """Write the rows as Parquet: normal numbers, uniform categories: of times, groups the last."""
    rng = np.random.default_rng(0)
    names = [f"c{i}" for i in range(point.columns)]
    text = np.array([f"level-{i:04d}" for i in range(levels_of(point) if kind == "categories" else 2)])
    numbers = {"numbers": names, "categories": []}.get(kind, names[:-1])
    schema = pa.schema([(name, pa.float64() if name in numbers else pa.string()) for name in names])

    def column(name: str, rows: int) -> npt.NDArray[Any]:
        if name in numbers:
            return rng.standard_normal(rows)
        return text[rng.integers(len(text), size=rows)]

    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, point.rows, GROUP_ROWS):
            rows = min(GROUP_ROWS, point.rows - start)
            writer.write_table(pa.table([pa.array(column(name, rows)) for name in names], schema=schema))


ROWS = (10_000, 100_000, 1_000_000)
EPSILONS = (0.1, 1.0, 10.0)
OWNERS = (2, 10, 100, 1000)
NUMBERS: dict[str, tuple[float, ...]] = {"rows": ROWS, "columns": (2, 5, 20), "epsilon": EPSILONS}
TABLES: dict[str, tuple[float, ...]] = {
    "rows": ROWS,
    "columns": (1, 2, 3),
    "size": (100, 1000, 10_000),
    "epsilon": EPSILONS,
}


def _identity(point: Point) -> dict[str, Any]:
    cells = levels_of(point) ** point.columns
    return {"unlisted": "last", "probabilities": [1 / cells] * cells}


def _samples(point: Point) -> dict[str, Any]:
    names = [f"owner-{i:04d}" for i in range(point.owners)]
    return {"samples": [names[0::2], names[1::2]]}


def _features(point: Point) -> dict[str, Any]:
    return {"features": "me", "n_features": point.size}


def _permutations(point: Point) -> dict[str, Any]:
    return {"permutations": point.size}


def _cells(_: Point) -> dict[str, Any]:
    return {"unlisted": "last"}


def _survival(point: Point) -> dict[str, Any]:
    return {"cuts": {"c0": np.linspace(-5, 5, point.size // 2 + 1)[1:-1].tolist()}, "unlisted": "last"}


FEWER, REPLICATES = {"rows": (1000, 10_000, 100_000)}, (99, 199, 999)

QUESTIONS: Mapping[str, Question] = {
    question.name: question
    for question in (
        Question(
            *("kernel_two_sample", "numbers", "each", ""),
            Point(100_000, 5, 0, 2),
            NUMBERS | {"owners": OWNERS},
        ),
        Question(
            *("kernel_two_sample, me", "numbers", "each", "features J"),
            Point(100_000, 5, 20, 2),
            {"rows": ROWS, "columns": (2, 5, 20), "size": (5, 20, 100), "owners": OWNERS},
            _features,
        ),
        Question(
            *("curated_two_sample, me", "numbers", "curator", "features J"),
            Point(100_000, 5, 20, 2),
            NUMBERS | {"size": (5, 20, 100), "owners": (2, 10)},
            lambda point: _features(point) | _samples(point),
        ),
        Question(
            *("curated_two_sample, permutation", "numbers", "curator", "permutations B"),
            Point(10_000, 5, 199, 2),
            FEWER | {"columns": (2, 5, 20), "size": REPLICATES},
            lambda point: {"release": "permutation"} | _permutations(point) | _samples(point),
        ),
        Question(
            *("joint_independence", "numbers", "one", "permutations B"),
            Point(1000, 3, 199, 1),
            {"rows": (500, 1000, 2000, 4000), "columns": (2, 3, 5), "size": REPLICATES, "epsilon": EPSILONS},
            lambda point: {"method": "permutation"} | _permutations(point),
        ),
        Question(
            *("distance_correlation", "numbers", "split", "frequencies F"),
            Point(100_000, 4, 4, 2),
            {"rows": ROWS, "columns": (2, 4, 20), "size": (2, 4, 16), "epsilon": EPSILONS},
            lambda point: {"n_features": point.size},
        ),
        Question(
            *("curated_distance_correlation", "numbers", "curator", "permutations B"),
            Point(10_000, 2, 199, 1),
            FEWER | {"size": REPLICATES, "epsilon": EPSILONS},
            _permutations,
        ),
        Question(
            *("screening", "numbers", "split", ""),
            Point(100_000, 5, 0, 2),
            {"rows": ROWS, "columns": (5, 20, 100), "epsilon": EPSILONS},
            lambda _: {"matrix": True},
        ),
        Question(
            *("mutual_independence", "numbers", "apart", ""),
            Point(100_000, 3, 0, 3),
            {"rows": ROWS, "epsilon": EPSILONS},
            lambda _: {"method": "one-round"},
        ),
        Question(
            *("noisy_counts", "categories", "each", "cells k"),
            Point(100_000, 2, 30, 2),
            TABLES | {"owners": OWNERS},
            _cells,
        ),
        Question(
            *("homogeneity", "categories", "each", "cells k"),
            Point(100_000, 1, 30, 2),
            {"rows": ROWS, "size": (10, 30, 100, 1000), "epsilon": EPSILONS, "owners": OWNERS},
            _cells,
        ),
        Question(
            *("independence_table", "categories", "each", "cells k"),
            Point(100_000, 2, 100, 2),
            {"rows": ROWS, "columns": (2, 3, 4), "size": (25, 100, 900), "epsilon": EPSILONS},
            _cells,
        ),
        Question(
            *("stratified_table", "categories", "each", "cells k"),
            Point(100_000, 2, 16, 2),
            {"rows": ROWS, "size": (16, 36, 100), "owners": OWNERS},
            _cells,
        ),
        Question(
            *("group_comparison", "groups", "each", ""),
            Point(100_000, 2, 0, 2),
            {"rows": ROWS, "columns": (2, 6, 20), "owners": OWNERS},
        ),
        Question(
            *("aggregated_test", "groups", "each", "blocks"),
            Point(100_000, 2, 45, 2),
            {"rows": ROWS, "size": (20, 45, 200), "owners": OWNERS},
            lambda point: {"test": "mann_whitney", "blocks": point.size},
        ),
        Question(
            *("association", "numbers", "each", ""),
            Point(100_000, 2, 0, 2),
            {"rows": ROWS, "columns": (2, 6, 20), "owners": OWNERS},
        ),
        Question(
            *("survival", "times", "each", "cells k"),
            Point(100_000, 2, 16, 2),
            {"rows": ROWS, "size": (16, 64, 200), "owners": OWNERS},
            _survival,
        ),
        Question(
            *("identity", "categories", "one", "cells k"),
            Point(100_000, 1, 100, 1),
            {"rows": ROWS, "size": (10, 100, 1000), "epsilon": EPSILONS},
            _identity,
        ),
        Question(
            *("embedding_release", "numbers", "each", "points J"),
            Point(100_000, 5, 30, 2),
            NUMBERS | {"size": (10, 30, 100), "owners": (2, 10, 100)},
            lambda point: {"n_points": point.size},
        ),
    )
}


def name_of(question: str, point: Point) -> str:
    """Return a cell's name: the question and the point."""
    return f"{question} | {json.dumps(vars(point), separators=(',', ':'))}"


WARM_ROWS = 1000
"""Rows of the study that warms a process up."""

REPEATS = 3
"""Studies, each with a seed of its own, of which the one with the least CPU counts: other work on a machine
only ever adds to it. Large ones are run once."""

ROWS_LARGE, OWNERS_LARGE = 1_000_000, 1000

Costs = dict[str, float]

ResultT = TypeVar("ResultT")


@dataclass
class Meter:
    """CPU and wall seconds by stage, and the most memory beyond what the process had before."""

    costs: Costs

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Add up a stage's CPU seconds (user and system, all threads)."""
        before = _cpu_s()
        yield
        self.costs[name] = self.costs.get(name, 0.0) + _cpu_s() - before


@contextmanager
def metered(who: str) -> Iterator[Meter]:
    """Measure all that happens inside: ``who``'s CPU, wall and peak memory."""
    meter = Meter({})
    resident_mb = psutil.Process().memory_info().rss / 2**20
    before, started = _cpu_s(), time.perf_counter()
    yield meter
    meter.costs = {f"{who} {stage}, s": cpu_s for stage, cpu_s in meter.costs.items()} | {
        f"{who} CPU, s": _cpu_s() - before,
        f"{who} wall, s": time.perf_counter() - started,
        f"{who} peak, MiB": max(0.0, peak_mb() - resident_mb),
    }


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


@dataclass(frozen=True)
class Sent:
    """A study and what its senders sent."""

    study: Study
    study_bytes: int
    envelopes: Mapping[str, bytes]


@dataclass(frozen=True)
class Sender:
    """One sender's part in a study."""

    study: Study
    payload: bytes
    name: str
    key: PrivateKey
    path: Path

    def table(self) -> Table:
        """Open and count the rows as a sender's job does; every owner's lie in the same file."""
        owners = [o for o in self.study.owners if self.study.curator is not None or o.name == self.name]
        tables = {
            owner.name: SourceTable(ParquetSource(self.path), self.study.domain_of(owner)) for owner in owners
        }
        if min(table.units for table in tables.values()) < 1:
            raise StudyError("an owner has no rows")
        return tables[self.name] if self.study.curator is None else PooledTable(self.study.domain, tables)

    def release(self, meter: Meter) -> tuple[Any, bytes]:
        """Do everything; returns the exact summary too, and the signed release."""
        procedure = procedure_named(self.study.procedure)
        with meter.stage("check"):
            check_study(procedure, self.study)
            procedure.cost(self.study)
        with meter.stage("read and summarise"):
            summary = procedure.summarise(self.study, self.table())
        return summary, self.privatise(summary, meter)

    def privatise(self, summary: Any, meter: Meter) -> bytes:
        """Draw the noise, check and sign."""
        procedure, noise = procedure_named(self.study.procedure), OpenDPNoise()
        with meter.stage("noise"):
            summary = planned(procedure, self.study).adapt(summary, noise)
            release = procedure.privatise(self.study, summary, noise)
        with meter.stage("check and sign"):
            check_release(procedure, self.study, release)
            message = ReleaseMessage(study=digest(self.payload), party=self.name, release=release)
            return sign_envelope(encode(message), RELEASE_TYPE, self.key)


def send(question: Question, point: Point, path: Path, seed: int) -> tuple[Sent, Costs]:
    """Play the senders' part; returns what it cost the first one.

    Where all owners hold the same columns, the others' releases are made of the first one's summary, each
    with noise and a signature of its own.
    """
    parties = Parties.of(point.owners)
    study = question.study(point, parties, seed)
    payload = encode(study)
    senders = [
        Sender(study, payload, party.name, parties.key_of(party.name), path) for party in study.senders
    ]
    with metered("owner") as meter:
        summary, envelope = senders[0].release(meter)
    envelopes = {senders[0].name: envelope}
    for other in senders[1:]:
        envelopes[other.name] = (
            other.release(Meter({}))[1]
            if question.holders in ("split", "apart")
            else other.privatise(summary, Meter({}))
        )
    sent = Sent(study, len(sign_envelope(payload, STUDY_TYPE, parties.analyst)), envelopes)
    return sent, meter.costs | _sizes(sent, senders[0].name)


def _sizes(sent: Sent, sender: str) -> Costs:
    payload = open_envelope(sent.envelopes[sender], RELEASE_TYPE, _key_of(sent.study, sender))
    release = decode(ReleaseMessage, payload).release
    values = [abs(value) for vector in release.vectors.values() for value in vector.values]
    answers = sum(own.units for own in release.answers.values())
    return {
        "release, bytes": len(sent.envelopes[sender]),
        "study, bytes": sent.study_bytes,
        "numbers": len(values) + answers or 1,
        "digits": sum(len(str(value)) for value in values) / len(values) if values else 1.0,
    }


def _key_of(study: Study, sender: str) -> str:
    return next(party.key for party in study.senders if party.name == sender)


def conclude_all(sent: Sent) -> Costs:
    """Play the tester's part."""
    study, procedure = sent.study, procedure_named(sent.study.procedure)
    releases, units = dict[str, Release](), dict[str, int]()
    with metered("tester") as meter:
        with meter.stage("open and check"):
            for name, envelope in sent.envelopes.items():
                answer = read_answer(None, envelope, name, _key_of(study, name))
                check_answer(procedure, study, answer)
                if answer.release is not None:
                    releases[name], units[name] = answer.release, answer.units
        with meter.stage("conclude"):
            verdict = encode(conclude(procedure, study, releases, units))
    return meter.costs | {"verdict, bytes": len(verdict)}


def send_in_process(name: str, point: Point, folder: Path) -> Costs:
    """Measure the sender's part here, and leave what was sent for the tester's."""
    prepare_to_compute()
    question = QUESTIONS[name]
    warm, path = _warm(question, point, folder), folder / "rows.parquet"
    played = [send(question, point, path, seed=2 + number) for number in range(_repeats(point))]
    (folder / "sent.pickle").write_bytes(pickle.dumps((warm, [sent for sent, _ in played])))
    return best([costs for _, costs in played], "owner")


def _repeats(point: Point) -> int:
    return 1 if point.rows >= ROWS_LARGE or point.owners >= OWNERS_LARGE else REPEATS


def best(runs: Sequence[Costs], who: str) -> Costs:
    """Return the run with the least CPU; its peak of memory is the first run's, which later ones keep."""
    least = min(runs, key=lambda costs: costs[f"{who} CPU, s"])
    return least | {f"{who} peak, MiB": runs[0][f"{who} peak, MiB"]}


def _warm(question: Question, point: Point, folder: Path) -> Sent | None:
    """Run a small study, with the same columns but other public randomness."""
    owners = point.owners if question.holders == "apart" else min(point.owners, 2)
    small = replace(point, rows=min(point.rows, WARM_ROWS), owners=owners)
    path = folder / "warm.parquet"
    write_rows(path, question.kind, small)
    try:
        return send(question, small, path, seed=1)[0]
    except (StudyError, ReleaseError):
        return None  # the question takes no study so small


def conclude_in_process(folder: Path) -> Costs:
    """Measure the tester's part here."""
    prepare_to_compute()
    warm, sent = pickle.loads((folder / "sent.pickle").read_bytes())  # noqa: S301 (written above)
    if warm is not None:
        conclude_all(warm)
    return best([conclude_all(one) for one in sent], "tester")


def noise_in_process(kind: str, scale: float, numbers: int) -> Costs:
    """Measure the samplers alone: CPU seconds for a thousand numbers of that scale, in grid steps."""
    noise, values = OpenDPNoise(), np.zeros(numbers, dtype=np.int64)
    draw = noise.gaussian if kind == "gaussian" else noise.laplace
    draw(values[:10], scale)
    with metered("") as meter, meter.stage("draw"):
        draw(values, scale)
    return {"CPU of 1000 numbers, s": 1000 * meter.costs[" draw, s"] / numbers}


class Fresh:
    """Calls functions, each in a process of its own, forked from one that has read the modules."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([__name__])

    def call(self, function: Callable[..., ResultT], *arguments: object) -> ResultT:
        """Return what the function returns."""
        with ProcessPoolExecutor(1, self._context) as pool:
            return pool.submit(function, *arguments).result()

    def measure(self, name: str, point: Point) -> Costs:
        """Measure a study: its sender's part, then the tester's."""
        with tempfile.TemporaryDirectory(prefix="tacit-cost-") as place:
            folder = Path(place)
            # In a process of its own: what writing holds is not the sender's.
            self.call(write_rows, folder / "rows.parquet", QUESTIONS[name].kind, point)
            return self.call(send_in_process, name, point, folder) | self.call(conclude_in_process, folder)
