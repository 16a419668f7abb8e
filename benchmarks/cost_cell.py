"""What one study costs its sender and the tester, each in a process of its own.

The sender's part is what an agent does with an accepted study: open the source and count, check, summarise,
adapt where the procedure does, draw the noise, check, sign. The tester's part is what its job does: open and
check every release, conclude, write the verdict. Both run a small study of the same kind first, as a service
that is up has. Every process is forked from one that has the modules: what is measured is not their import.
"""

import multiprocessing
import pickle
import resource
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import psutil

from benchmarks.cost_studies import QUESTIONS, Parties, Point, Question, write_rows
from benchmarks.harness import peak_mb
from tacit_protocol.domain.table import PooledTable, Table
from tacit_protocol.messages.encoding import decode, encode
from tacit_protocol.messages.release import Release, ReleaseMessage
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import Adapts, ReleaseError, StudyError, check_release, check_study
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.relay import check_answer, conclude, read_answer
from tacit_protocol.signing.envelope import RELEASE_TYPE, STUDY_TYPE, digest, open_envelope, seal
from tacit_protocol.signing.keys import PrivateKey
from tacit_services.agent.data.parquet_source import ParquetSource
from tacit_services.agent.data.table import SourceTable
from tacit_services.shared.compute import prepare_to_compute

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
            if isinstance(procedure, Adapts):
                summary = procedure.adapt(self.study, summary, noise)
            release = procedure.privatise(self.study, summary, noise)
        with meter.stage("check and sign"):
            check_release(procedure, self.study, release)
            message = ReleaseMessage(study=digest(self.payload), party=self.name, release=release)
            return seal(encode(message), RELEASE_TYPE, self.key)


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
            if question.holders == "split"
            else other.privatise(summary, Meter({}))
        )
    sent = Sent(study, len(seal(payload, STUDY_TYPE, parties.analyst)), envelopes)
    return sent, meter.costs | _sizes(sent, senders[0].name)


def _sizes(sent: Sent, sender: str) -> Costs:
    payload = open_envelope(sent.envelopes[sender], RELEASE_TYPE, _key_of(sent.study, sender))
    release = decode(ReleaseMessage, payload).release
    values = [abs(value) for vector in release.vectors.values() for value in vector.values]
    return {
        "release, bytes": len(sent.envelopes[sender]),
        "study, bytes": sent.study_bytes,
        "numbers": len(values) or 1,
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
    small = replace(point, rows=min(point.rows, WARM_ROWS), owners=min(point.owners, 2))
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
