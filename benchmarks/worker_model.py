"""Time by N workers: constants measured here, a formula, and a simulation of task times that checks it.

    python -m benchmarks.worker_model        # two minutes; writes docs/benchmarks/worker-model.md

Parts of a file and blocks of replicates are computed one after another by the very functions that workers
call, each timed in CPU seconds; the simulation draws from these times, and hands out tasks as
``tacit_protocol.domain.in_order`` does: one after another, at most AHEAD for each worker before the first
has come back, whose result is taken in first. docs/mathematics/scaling.md derives the formula.
"""

import heapq
import math
import pickle
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar

import numpy as np
from scipy.special import ndtri

from benchmarks.cost_study import QUESTIONS, Parties, Point, write_rows
from benchmarks.harness import (
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    cells_of,
    grid,
    machine,
    main,
    named,
    table,
)
from tacit_protocol.domain import AHEAD, Domain, EncodedChunk, Reduction, ThreadWorkers, linear_algebra
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.discovery import procedure_named
from tacit_services.agent.data.parquet_source import ParquetSource
from tacit_services.agent.data.reader import Reader, TableBounds, UnitHasher
from tacit_services.agent.data.source import Columns
from tacit_services.agent.data.table import PARTS_PER_WORKER, SourcePart, SourceTable, reduce_rows
from tacit_services.shared.compute import prepare_to_compute


@dataclass(frozen=True)
class Overhead:
    """What a task costs whoever waits for all of them: handing it out, and taking its result in."""

    hand_out_s: float = 0.0
    take_in_s: float = 0.0


def makespan(times: Sequence[float] | Floats, workers: int, overhead: Overhead, ahead: int = AHEAD) -> float:
    """Return when the last result has been taken in, of tasks that take ``times`` at a worker."""
    window, now = ahead * workers, 0.0
    free, done = [0.0] * workers, list[float]()
    for number, taken in enumerate(times):
        if number >= window:
            now = max(now, done[number - window])
        now += overhead.hand_out_s
        end = max(now, heapq.heappop(free)) + taken
        heapq.heappush(free, end)
        done.append(end)
        if number >= window:
            now += overhead.take_in_s
    for end in done[-window:]:
        now = max(now, end) + overhead.take_in_s
    return now


def largest_normal(count: int) -> float:
    """Return about the expected largest of so many standard normal numbers (Blom, 1958)."""
    return float(ndtri((count - 0.375) / (count + 0.25))) if count > 1 else 0.0


@dataclass(frozen=True)
class Reduce:
    """A reduce over ``groups`` that cannot be cut: row groups of a file, or blocks of replicates.

    A group takes ``mean_s`` on average, with standard deviation ``deviation_s``; ``start_s`` is what is done
    once, and ``part_s`` what every part costs beside its groups. ``cut`` says whether groups are put together
    to PARTS_PER_WORKER parts for each worker.
    """

    groups: int
    mean_s: float
    deviation_s: float
    part_s: float = 0.0
    start_s: float = 0.0
    overhead: Overhead = Overhead()
    cut: bool = True

    def parts(self, workers: int) -> int:
        """Return how many parts so many workers share out."""
        return min(self.groups, PARTS_PER_WORKER * workers) if self.cut else self.groups

    def predicted(self, workers: int) -> float:
        """Return T(N) by the formula."""
        parts, own = self.parts(workers), self.overhead
        groups = self.groups / parts
        each_s = self.part_s + groups * self.mean_s
        # Groups are not cut: some parts have one more than others.
        uneven = (groups % 1) * (1 - groups % 1)
        spread_s = math.sqrt(groups * self.deviation_s**2 + uneven * self.mean_s**2)
        rounds = math.ceil(parts / workers)
        working_s = rounds * each_s + straggler_s(rounds, parts, min(workers, parts), each_s, spread_s)
        serial_s = parts * (own.hand_out_s + own.take_in_s)
        first_s = min(workers, parts) * own.hand_out_s
        return self.start_s + max(first_s + working_s + own.take_in_s, serial_s + each_s)

    def simulated(self, workers: int, groups_s: Floats, rng: np.random.Generator) -> float:
        """Return T(N) of one simulation; groups' times are drawn from ``groups_s``, measured ones."""
        drawn = rng.choice(groups_s, size=self.groups)
        places = np.arange(self.groups) * self.parts(workers) // self.groups
        times = self.part_s + np.bincount(places, weights=drawn)
        return self.start_s + makespan(times, workers, self.overhead)


def straggler_s(rounds: int, parts: int, workers: int, each_s: float, spread_s: float) -> float:
    """Return how much later the last worker ends than all would on average.

    Where all workers do as many parts, the largest of their sums; where a slow one leaves parts to others, no
    more than Graham's bound, the longest part.
    """
    sums_s = spread_s * math.sqrt(rounds) * largest_normal(workers)
    longest_s = (1 - 1 / workers) * (each_s + spread_s * largest_normal(parts))
    return min(sums_s, longest_s)


SharedT = TypeVar("SharedT")
ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")

GROUPS = 16
ROWS = GROUPS * 65_536
COLUMNS = 20
"""The file whose parts are timed: 16 row groups of 65 536 rows, 20 columns of float64."""

REPEATS = 3
"""How often every row group and part is timed; the least counts, as other work only ever adds to it."""

BLOCK = "_block"
"""The function that computes a block of replicates."""

MERGES = 200
NO_OPS = 2000
CONSUMED = 3

WORKERS = (1, 2, 4, 16, 64, 256)

LARGE_ROWS = 100_000_000
"""Rows of the study that is predicted and simulated: 1526 row groups."""

GROUP_ROWS = 65_536

SIMULATIONS = 100
SEED = 20_240_607

CLUSTER = Overhead(hand_out_s=1e-3)
"""Assumed of a cluster, not measured: a scheduler hands out a thousand tasks a second, ..."""

BYTES_PER_S = 125e6
"""... and results come back over one gigabit a second."""

CLUSTER_START_S = 1.0
"""... after a second in which workers import and connect."""


STAGES = ("read_ns", "encode_ns", "sum_ns", "part_s", "merge_s", "result_bytes")
"""CPU of a value by stage in nanoseconds; of a part beside its rows, and of taking in its result."""


@dataclass(frozen=True)
class Measured:
    """What was measured of one study: seconds of a row group or block, of what is done once, STAGES."""

    groups_s: Floats
    start_s: float
    stages: Mapping[str, float]
    replicates: bool

    @classmethod
    def of(cls, counts: Counts, name: str) -> Self:
        """Read a cell."""
        known = {asked: counts.rate(name, asked) or 0.0 for cell, asked in counts.answered if cell == name}
        groups = np.array([value for asked, value in known.items() if asked.startswith("group")])
        return cls(groups, known["start_s"], known, name.startswith("joint"))

    def reduce(self, overhead: Overhead, start_s: float) -> Reduce:
        """Return the model of LARGE_ROWS rows, or of all blocks of replicates."""
        return Reduce(
            groups=len(self.groups_s) if self.replicates else -(-LARGE_ROWS // GROUP_ROWS),
            mean_s=float(self.groups_s.mean()),
            deviation_s=float(self.groups_s.std(ddof=1)),
            part_s=self.stages["part_s"],
            start_s=self.start_s + start_s,
            overhead=Overhead(overhead.hand_out_s, overhead.take_in_s + self.stages["merge_s"]),
            cut=not self.replicates,
        )


@dataclass
class TimedWorkers:
    """Computes here, as workers elsewhere would; keeps each task's CPU seconds, function and size."""

    count: int
    in_process: bool = False
    seconds: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)

    def map(
        self, function: Callable[[SharedT, ItemT], ResultT], shared: SharedT, items: Iterable[ItemT]
    ) -> Iterator[ResultT]:
        """Yield ``function(shared, item)`` for every item, in order."""
        with linear_algebra().limit(limits=1, user_api="blas"):
            for item in items:
                began = time.thread_time()
                result = function(shared, item)
                self.seconds.append(time.thread_time() - began)
                self.sizes.append(len(pickle.dumps(result)))
                self.functions.append(function.__name__)
                yield result


class _AskedError(Exception):
    """The reduction that a procedure asked a table for."""

    def __init__(self, reduction: Reduction[Any]) -> None:
        super().__init__()
        self.reduction = reduction


@dataclass(frozen=True)
class Asking:
    """A table that only tells what reduction it is asked for."""

    domain: Domain
    units: int

    def chunks(self) -> Iterator[EncodedChunk]:
        """Not asked for."""
        raise NotImplementedError

    def reduce(self, reduction: Reduction[Any]) -> NoReturn:
        """Tell the reduction."""
        raise _AskedError(reduction)


def reduction_of(study: Study, units: int) -> Reduction[Any]:
    """Return the reduction that a study's procedure asks a table of so many units for."""
    try:
        procedure_named(study.procedure).summarise(study, Asking(study.domain, units))
    except _AskedError as asked:
        return asked.reduction
    raise ValueError("the procedure asks for no reduction")


def part_times(study: Study, path: Path, workers: int) -> tuple[TimedWorkers, float]:
    """Time the parts that so many workers elsewhere share; returns them and the rest's CPU seconds."""
    timed = TimedWorkers(workers)
    table = SourceTable(ParquetSource(path), study.domain, workers=timed)
    began = time.thread_time()
    procedure_named(study.procedure).summarise(study, table)
    return timed, time.thread_time() - began - sum(timed.seconds)


def least_times(study: Study, path: Path, workers: int) -> tuple[tuple[float, ...], float]:
    """Return the least CPU seconds of each part and of the rest, of REPEATS times."""
    runs = [part_times(study, path, workers) for _ in range(REPEATS)]
    each = zip(*(timed.seconds for timed, _ in runs), strict=True)
    return tuple(min(times) for times in each), min(rest_s for _, rest_s in runs)


def stages(study: Study, path: Path, groups_s: float) -> dict[str, float]:
    """Measure what a value costs by stage, and what a part, its result and a hand-over cost."""
    reduction = reduction_of(study, ROWS)
    reader = Reader(study.domain, None, TableBounds(), UnitHasher())
    source = ParquetSource(path)
    names = Columns(tuple(column.name for column in study.domain.numeric))
    read_s = _consumed(lambda: reader.batches(source, names))
    encoded_s = _consumed(lambda: reader.row_chunks(source, 0))
    small = path.with_name("small.parquet")
    point = Point(10, len(study.domain.columns), 0, 1)
    write_rows(small, "numbers", point)
    part = SourcePart(ParquetSource(small), 0)
    part_s = _each(lambda: reduce_rows((reduction, reader), part), 50)
    result = pickle.dumps(reduce_rows((reduction, reader), part))
    total = reduction.start()
    merge_s = _each(lambda: reduction.merge(total, pickle.loads(result).partial), MERGES)  # noqa: S301
    values = ROWS * COLUMNS
    whole_s = groups_s * GROUPS
    found = (
        1e9 * read_s / values,
        1e9 * (encoded_s - read_s) / values,
        1e9 * (whole_s - encoded_s) / values,
        part_s,
        merge_s,
        len(result),
    )
    return dict(zip(STAGES, found, strict=True))


def _consumed(items: Callable[[], Iterable[object]]) -> float:
    """Return the least CPU seconds in which all items came, of CONSUMED times."""
    least = float("inf")
    for _ in range(CONSUMED):
        began = time.thread_time()
        for _ in items():
            pass
        least = min(least, time.thread_time() - began)
    return least


def _each(action: Callable[[], object], times: int) -> float:
    action()
    began = time.thread_time()
    for _ in range(times):
        action()
    return (time.thread_time() - began) / times


def hand_over_run(_: int) -> Answers:
    """Measure the CPU in which threads of this process are handed a task and give it back."""
    began = time.process_time()
    for _ in ThreadWorkers(2).map(_nothing, None, range(NO_OPS)):
        pass
    return {"seconds": (time.process_time() - began) / NO_OPS}


def _nothing(shared: None, item: int) -> None:
    return None


def _answers(groups_s: Iterable[float], start_s: float, found: Mapping[str, float]) -> Answers:
    return {f"group {place}": group_s for place, group_s in enumerate(groups_s)} | {
        "start_s": start_s,
        **found,
    }


def file_run(name: str, size: int, _: int) -> Answers:
    """Measure a question of the two-sample test over the file."""
    prepare_to_compute()
    question, point = QUESTIONS[name], Point(ROWS, COLUMNS, size, 2)
    study = question.study(point, Parties.of(2), seed=1)
    with tempfile.TemporaryDirectory(prefix="tacit-workers-") as place:
        path = Path(place) / "rows.parquet"
        write_rows(path, question.kind, point)
        groups, rest_s = least_times(study, path, GROUPS)  # every row group is a part
        found = stages(study, path, float(np.median(groups)))
    start_s = max(0.0, rest_s - GROUPS * found["merge_s"])
    return _answers([seconds - found["part_s"] for seconds in groups], start_s, found)


def replicates_run(rows: int, permutations: int, _: int) -> Answers:
    """Measure the permutations of a test of joint independence."""
    prepare_to_compute()
    question, point = QUESTIONS["joint_independence"], Point(rows, 3, permutations, 1)
    study = question.study(point, Parties.of(1), seed=1)
    runs, rests = [], []
    with tempfile.TemporaryDirectory(prefix="tacit-workers-") as place:
        path = Path(place) / "few.parquet"
        write_rows(path, question.kind, point)
        for _ in range(REPEATS):
            timed, began = TimedWorkers(1, in_process=True), time.thread_time()
            table = SourceTable(ParquetSource(path), study.domain, workers=timed)
            procedure_named(study.procedure).summarise(study, table)
            runs.append([s for s, name in zip(timed.seconds, timed.functions, strict=True) if name == BLOCK])
            rests.append(time.thread_time() - began - sum(runs[-1]))
    sizes = dict.fromkeys(STAGES, 0.0) | {"result_bytes": max(timed.sizes)}
    return _answers([min(times) for times in zip(*runs, strict=True)], min(rests), sizes)


def cells() -> list[Cell]:
    """List what is measured."""
    return [
        Cell("hand over", 1, hand_over_run),
        Cell("kernel_two_sample", 1, partial(file_run, "kernel_two_sample", 0)),
        Cell("kernel_two_sample, me, J = 20", 1, partial(file_run, "kernel_two_sample, me", 20)),
        *cells_of("joint_independence, n = {}, B = {}", 1, replicates_run, [1000], [999]),
    ]


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    rows = [(name, Measured.of(counts, name)) for name in counts.runs if name != "hand over"]
    hand_over_s = counts.rate("hand over", "seconds") or 0.0
    workers = named("N = {}", WORKERS)

    def threads(row: Measured, count: int) -> str:
        return _compared(row, count, Overhead(hand_over_s), 0.0)

    def cluster(row: Measured, count: int) -> str:
        overhead = Overhead(CLUSTER.hand_out_s, row.stages["result_bytes"] / BYTES_PER_S)
        return _compared(row, count, overhead, CLUSTER_START_S)

    return {
        "machine": machine(),
        "hand over": f"{1e6 * hand_over_s:.0f}",
        "constants": table({name: _constants(row) for name, row in rows}, "study"),
        "threads": grid("T(N)", rows, workers, threads),
        "cluster": grid("T(N)", rows, workers, cluster),
    }


def _constants(row: Measured) -> dict[str, str]:
    times, of = row.groups_s, row.stages
    found = {
        "read, ns a value": f"{of['read_ns']:.2f}",
        "encode": f"{of['encode_ns']:.2f}",
        "sum": f"{of['sum_ns']:.2f}",
        "a group or block, ms": f"{1e3 * times.mean():.1f}",
        "its deviation": f"{times.std(ddof=1) / times.mean():.1%}",
        "a part beside, ms": f"{1e3 * of['part_s']:.2f}",
        "taking in, ms": f"{1e3 * of['merge_s']:.3f}",
        "result, bytes": f"{of['result_bytes']:,.0f}",
        "once, ms": f"{1e3 * row.start_s:.1f}",
    }
    if row.replicates:
        found |= dict.fromkeys(
            ("read, ns a value", "encode", "sum", "a part beside, ms", "taking in, ms"), ""
        )
    return found


def _compared(row: Measured, workers: int, overhead: Overhead, start_s: float) -> str:
    """Write the formula's time, its ratio to the mean of simulations, and the speed-up over one worker."""
    model, rng = row.reduce(overhead, start_s), np.random.default_rng([SEED, workers])
    predicted, times = model.predicted(workers), row.groups_s
    ratio = predicted / float(np.mean([model.simulated(workers, times, rng) for _ in range(SIMULATIONS)]))
    shown = f"{predicted:.0f} s" if predicted >= 100 else f"{predicted:.3g} s"
    return f"{shown}, {ratio:.3f}, ×{model.predicted(1) / predicted:.1f}"


BENCHMARKS = (Benchmark("worker-model", cells, parts),)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
