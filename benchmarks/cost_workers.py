"""Time by N workers: constants measured here, a formula, and a simulation of task times that checks it.

    python -m benchmarks.cost_workers        # two minutes; writes docs/benchmarks/worker-model.md

Parts of a file and blocks of replicates are computed one after another by the very functions that workers
call, each timed in CPU seconds; the simulation draws from these times. docs/mathematics/scaling.md derives
the formula.
"""

import json
import pickle
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NoReturn, Self, TypeVar

import numpy as np

from benchmarks.cost_schedule import Overhead, Reduce
from benchmarks.cost_studies import QUESTIONS, Parties, Point, Question, write_rows
from benchmarks.harness import grid, machine, named, options, table, write_page
from tacit_protocol.domain.columns import Domain
from tacit_protocol.domain.table import EncodedChunk, Reduction
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.workers import ThreadWorkers, linear_algebra
from tacit_services.agent.data.parquet_source import ParquetSource
from tacit_services.agent.data.reader import Reader, TableBounds, UnitHasher
from tacit_services.agent.data.source import Columns
from tacit_services.agent.data.table import SourcePart, SourceTable, reduce_rows
from tacit_services.shared.compute import prepare_to_compute

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


@dataclass(frozen=True)
class Stages:
    """CPU of a value by stage in nanoseconds; of a part beside its rows, and of taking in its result."""

    read_ns: float = 0.0
    encode_ns: float = 0.0
    sum_ns: float = 0.0
    part_s: float = 0.0
    merge_s: float = 0.0
    result_bytes: int = 0


@dataclass(frozen=True)
class Measured:
    """What was measured of one study."""

    name: str
    groups_s: tuple[float, ...]
    start_s: float
    stages: Stages
    rows: int
    columns: int
    replicates: int = 0

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Read a line that was stored."""
        fields = {name: value for name, value in row.items() if name != "key"}
        fields["stages"] = Stages(**fields["stages"])
        fields["groups_s"] = tuple(fields["groups_s"])
        return cls(**fields)

    def reduce(self, groups: int, overhead: Overhead, start_s: float = 0.0) -> Reduce:
        """Return the model of so many row groups, or of all blocks of replicates."""
        times = np.array(self.groups_s)
        return Reduce(
            groups=groups,
            mean_s=float(times.mean()),
            deviation_s=float(times.std(ddof=1)),
            part_s=self.stages.part_s,
            start_s=self.start_s + start_s,
            overhead=Overhead(overhead.hand_out_s, overhead.take_in_s + self.stages.merge_s),
            cut=not self.replicates,
        )

    @property
    def large_groups(self) -> int:
        """Groups of the study that is predicted: of LARGE_ROWS rows, or all blocks of replicates."""
        return len(self.groups_s) if self.replicates else -(-LARGE_ROWS // GROUP_ROWS)

    @property
    def cluster(self) -> Overhead:
        """What a task costs the caller of a cluster."""
        return Overhead(CLUSTER.hand_out_s, self.stages.result_bytes / BYTES_PER_S)


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


def study_of(question: Question, point: Point) -> Study:
    """Return a study of the question."""
    return question.study(point, Parties.of(point.owners), seed=1)


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


def stages(study: Study, path: Path, groups_s: float) -> Stages:
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
    return Stages(
        read_ns=1e9 * read_s / values,
        encode_ns=1e9 * (encoded_s - read_s) / values,
        sum_ns=1e9 * (whole_s - encoded_s) / values,
        part_s=part_s,
        merge_s=merge_s,
        result_bytes=len(result),
    )


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


def hand_over_s() -> float:
    """Return the CPU seconds in which threads of this process are handed a task and give it back."""
    began = time.process_time()
    for _ in ThreadWorkers(2).map(_nothing, None, range(NO_OPS)):
        pass
    return (time.process_time() - began) / NO_OPS


def _nothing(shared: None, item: int) -> None:
    return None


def measure_file(name: str, size: int, folder: Path) -> Measured:
    """Measure a question of the two-sample test over the file."""
    question, path = QUESTIONS[name], folder / "rows.parquet"
    study = study_of(question, Point(ROWS, COLUMNS, size, 2))
    if not path.exists():
        write_rows(path, question.kind, Point(ROWS, COLUMNS, size, 2))

    groups, rest_s = least_times(study, path, GROUPS)  # every row group is a part
    found = stages(study, path, float(np.median(groups)))
    return Measured(
        name=name if size == 0 else f"{name}, J = {size}",
        groups_s=tuple(seconds - found.part_s for seconds in groups),
        start_s=max(0.0, rest_s - GROUPS * found.merge_s),
        stages=found,
        rows=ROWS,
        columns=COLUMNS,
    )


def measure_replicates(rows: int, permutations: int, folder: Path) -> Measured:
    """Measure the permutations of a test of joint independence."""
    question = QUESTIONS["joint_independence"]
    point, path = Point(rows, 3, permutations, 1), folder / "few.parquet"
    write_rows(path, question.kind, point)
    study = study_of(question, point)

    runs, rests = [], []
    for _ in range(REPEATS):
        timed, began = TimedWorkers(1, in_process=True), time.thread_time()
        table = SourceTable(ParquetSource(path), study.domain, workers=timed)
        procedure_named(study.procedure).summarise(study, table)
        runs.append([s for s, name in zip(timed.seconds, timed.functions, strict=True) if name == BLOCK])
        rests.append(time.thread_time() - began - sum(runs[-1]))
    blocks, start_s = tuple(min(times) for times in zip(*runs, strict=True)), min(rests)
    return Measured(
        name=f"joint_independence, n = {rows}, B = {permutations}",
        groups_s=blocks,
        start_s=start_s,
        stages=Stages(result_bytes=max(timed.sizes)),
        rows=rows,
        columns=3,
        replicates=permutations,
    )


def parts(rows: list[Measured], hand_over_s: float) -> dict[str, str]:
    """Write the tables of the page."""
    compared = [(row.name, row) for row in rows]
    workers, threads = named("N = {}", WORKERS), Overhead(hand_over_s)
    return {
        "machine": machine(),
        "hand over": f"{1e6 * hand_over_s:.0f}",
        "constants": table({row.name: _constants(row) for row in rows}, "study"),
        "threads": grid("T(N)", compared, workers, lambda row, n: _compared(row, n, threads, 0.0)),
        "cluster": grid(
            "T(N)", compared, workers, lambda row, n: _compared(row, n, row.cluster, CLUSTER_START_S)
        ),
    }


def _constants(row: Measured) -> dict[str, str]:
    times, of = np.array(row.groups_s), row.stages
    found = {
        "read, ns a value": f"{of.read_ns:.2f}",
        "encode": f"{of.encode_ns:.2f}",
        "sum": f"{of.sum_ns:.2f}",
        "a group or block, ms": f"{1e3 * times.mean():.1f}",
        "its deviation": f"{times.std(ddof=1) / times.mean():.1%}",
        "a part beside, ms": f"{1e3 * of.part_s:.2f}",
        "taking in, ms": f"{1e3 * of.merge_s:.3f}",
        "result, bytes": f"{of.result_bytes:,}",
        "once, ms": f"{1e3 * row.start_s:.1f}",
    }
    if row.replicates:
        found |= dict.fromkeys(
            ("read, ns a value", "encode", "sum", "a part beside, ms", "taking in, ms"), ""
        )
    return found


def _compared(row: Measured, workers: int, overhead: Overhead, start_s: float) -> str:
    """Write the formula's time, its ratio to the mean of simulations, and the speed-up over one worker."""
    model, rng = row.reduce(row.large_groups, overhead, start_s), np.random.default_rng([SEED, workers])
    predicted, times = model.predicted(workers), np.array(row.groups_s)
    ratio = predicted / float(np.mean([model.simulated(workers, times, rng) for _ in range(SIMULATIONS)]))
    shown = f"{predicted:.0f} s" if predicted >= 100 else f"{predicted:.3g} s"
    return f"{shown}, {ratio:.3f}, ×{model.predicted(1) / predicted:.1f}"


def main() -> None:
    """Measure what is missing, and write the page."""
    folder = options(__doc__).folder
    folder.mkdir(parents=True, exist_ok=True)
    prepare_to_compute()
    path = folder / "worker-model.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    found = {row["key"]: row for row in map(json.loads, lines)}
    with tempfile.TemporaryDirectory(prefix="tacit-workers-") as name:
        place = Path(name)
        steps: dict[str, Callable[[], dict[str, Any]]] = {
            "hand over": lambda: {"seconds": hand_over_s()},
            "auto": lambda: asdict(measure_file("kernel_two_sample", 0, place)),
            "me 20": lambda: asdict(measure_file("kernel_two_sample, me", 20, place)),
            "replicates": lambda: asdict(measure_replicates(1000, 999, place)),
        }
        for key in [key for key in steps if key not in found]:
            found[key] = {"key": key} | steps[key]()
            with path.open("a") as file:
                file.write(json.dumps(found[key]) + "\n")
    rows = [Measured.of(row) for key, row in found.items() if key != "hand over"]
    write_page("worker-model", parts(rows, found["hand over"]["seconds"]), folder)


if __name__ == "__main__":
    main()
