"""The page of the model of N workers: constants, predictions beside simulations, and measured runs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from benchmarks.cost_schedule import Overhead, Reduce, makespan
from benchmarks.costs import machine
from benchmarks.resumable import table

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
class Ran:
    """A real run by threads: wall and CPU seconds, CPU of the busiest thread and the rest, and the load."""

    workers: int
    wall_s: float
    cpu_s: float
    busiest_s: float
    load: float


@dataclass(frozen=True)
class Measured:
    """What was measured of one study; ``parts`` holds the times of the parts of so many workers."""

    name: str
    groups_s: tuple[float, ...]
    start_s: float
    stages: Stages
    parts: Mapping[str, tuple[float, ...]]
    ran: tuple[Ran, ...]
    rows: int
    columns: int
    replicates: int = 0

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Read a line that was stored."""
        fields = {name: value for name, value in row.items() if name != "key"}
        fields["stages"] = Stages(**fields["stages"])
        fields["ran"] = tuple(Ran(**ran) for ran in fields["ran"])
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


def page(rows: list[Measured], hand_over_s: float) -> str:
    """Write the page."""
    parts = [_HEAD.replace("{machine}", machine()), _constants(rows, hand_over_s)]
    for setting, title in ((_threads(hand_over_s), _THREADS), ("cluster", _CLUSTER)):
        parts.append(title + table({row.name: _compared(row, setting) for row in rows}, "T(N)"))
    parts += [_CUT + table({row.name: _cut(row) for row in rows if row.parts}, "same file, its own parts")]
    parts += [_RAN + table({row.name: _ran(row, hand_over_s) for row in rows}, "by threads")]
    return "\n".join(parts)


def _threads(hand_over_s: float) -> Overhead:
    return Overhead(hand_over_s)


def _constants(rows: list[Measured], hand_over_s: float) -> str:
    found = {}
    for row in rows:
        times, stages = np.array(row.groups_s), row.stages
        found[row.name] = {
            "read, ns a value": "" if row.replicates else f"{stages.read_ns:.2f}",
            "encode": "" if row.replicates else f"{stages.encode_ns:.2f}",
            "sum": "" if row.replicates else f"{stages.sum_ns:.2f}",
            "a group or block, ms": f"{1e3 * times.mean():.1f}",
            "its deviation": f"{times.std(ddof=1) / times.mean():.1%}",
            "a part beside, ms": "" if row.replicates else f"{1e3 * stages.part_s:.2f}",
            "taking in, ms": "" if row.replicates else f"{1e3 * stages.merge_s:.3f}",
            "result, bytes": f"{stages.result_bytes:,}",
            "once, ms": f"{1e3 * row.start_s:.1f}",
        }
    return _CONSTANTS.format(hand_over=1e6 * hand_over_s) + table(found, "study")


def _compared(row: Measured, setting: Overhead | str) -> dict[str, str]:
    on_cluster = isinstance(setting, str)
    overhead = row.cluster if isinstance(setting, str) else setting
    model = row.reduce(row.large_groups, overhead, CLUSTER_START_S if on_cluster else 0.0)
    times, alone = np.array(row.groups_s), model.predicted(1)
    cells = {}
    for workers in WORKERS:
        predicted = model.predicted(workers)
        rng = np.random.default_rng([SEED, workers])
        simulated = [model.simulated(workers, times, rng) for _ in range(SIMULATIONS)]
        ratio = predicted / float(np.mean(simulated))
        cells[f"N = {workers}"] = f"{_seconds(predicted)}, {ratio:.3f}, ×{alone / predicted:.1f}"
    return cells


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value >= 100 else f"{value:.3g} s"


def _cut(row: Measured) -> dict[str, str]:
    """Compare the formula with the parts that N workers were really cut, timed one by one."""
    groups = row.rows // GROUP_ROWS
    model = row.reduce(groups, Overhead())
    cells = {}
    for count, times in row.parts.items():
        known = row.start_s + makespan(times, int(count), model.overhead)
        cells[f"N = {count}"] = f"{len(times)} parts, {model.predicted(int(count)) / known:.3f}"
    return cells


def _ran(row: Measured, hand_over_s: float) -> dict[str, str]:
    groups = len(row.groups_s) if row.replicates else row.rows // GROUP_ROWS
    model = row.reduce(groups, Overhead(hand_over_s))
    cells = {}
    for ran in row.ran:
        predicted = model.predicted(ran.workers)
        cells[f"N = {ran.workers}"] = (
            f"{predicted:.2f} s; busiest {ran.busiest_s:.2f} s ({predicted / ran.busiest_s:.2f}), "
            f"all {ran.cpu_s:.2f} s, wall {ran.wall_s:.2f} s at load {ran.load:.0f}"
        )
    return cells


_HEAD = """# Workers, measured and simulated

    python -m benchmarks.cost_workers

The formula of [scaling](../mathematics/scaling.md) beside a simulation of task times, on {machine}. Row
groups of a Parquet file (65 536 rows, 20 columns of float64) and blocks of eight replicates are
computed by the functions that workers call, one after another, each timed in CPU seconds of its thread.
The simulation hands out tasks as the agent does, in order and at most two ahead for each worker, with
times drawn from the measured ones.
"""

_CONSTANTS = """## Constants

`read` is decoding Parquet, `encode` clipping and scaling, `sum` features and their exact sums: CPU of
one thread for each of n · c values. Threads are handed a task and give it back in {hand_over:.0f} µs.

"""

_THREADS = """## By threads, or workers at no distance

n = 10⁸ rows × 20 columns in 1526 row groups; the replicates are those of the table above. The formula's
T(N), its ratio to the mean of 100 simulations, and the speed-up over one worker.

"""

_CLUSTER = """## By a cluster

The same, with what is **assumed** of a cluster and not measured here: a millisecond to hand out a task,
results over one gigabit a second, a second to begin. Workers read the parts themselves: data do not
travel.

"""

_CUT = """## Parts as they are cut

For N workers the file is cut into 4 N parts. Those very parts, timed; the simulation uses each one's
time in its place, and the ratio is the formula's to it. Nothing is drawn at random here. Groups and parts
were timed minutes apart, on a machine with other work, where CPU seconds of the same work differ by up to
a fifth: that is in the ratio.

"""

_RAN = """## Measured

Real runs of the same study by N threads of this process. `busiest` is the CPU time of the thread that
computed most, with what is done once: the time that the run takes where every thread has a processor;
the formula's ratio to it is in brackets. One worker is two threads, one of which reads ahead: of it
that is the CPU of both. `all` is the CPU of all threads. Wall time is that of a machine with other
work, at the load average given: with a load above the two processors it says nothing of the formula, and
CPU seconds of the same work differ by up to a fifth.

"""
