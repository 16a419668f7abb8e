"""A joint independence test of 20 000 units with 1000 permutations, by threads of one process and by Dask.

python -m benchmarks.large_permutations [--permutations 1000] [--units 20000] [--only NAME] [--write]

Each run is a process of its own: the procedure's ``summarise``, then its decision with noise of a fixed seed,
so that decisions can be compared; statistics are compared by a digest of their bits. What a run has computed
is kept item by item in ``--folder``, and a run that was cut short goes on where it was. ``--write`` writes
docs/benchmarks/large-permutations.md of the runs that are complete.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import dask
import numpy as np
import psutil
from distributed import LocalCluster

from benchmarks.two_sample import SimulatedNoise
from tacit_protocol.domain.columns import CategoricalColumn, Column, Domain, NumericColumn
from tacit_protocol.domain.table import EncodedChunk
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.joint_independence import JointIndependence
from tacit_protocol.workers import ItemT, ResultT, SharedT, ThreadWorkers, Workers
from tacit_services.shared.cluster import ClusterWorkers

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks" / "large-permutations.md"

NANNY = {"MALLOC_TRIM_THRESHOLD_": 2**28, "MALLOC_MMAP_THRESHOLD_": 2**25}
"""Memory is kept between arrays, as by workers that are deployed, which have no nanny. A nanny's own setting
gives it back to the system after each of them, which takes two thirds of the time."""

CASES = ("gaussian", "categorical", "laplacian")
WORKERS = ("1 thread", "2 threads", "Dask, 2 processes")
LEVELS = 12
"""Categories of a categorical column, of which two stand for anything else and for missing values."""

REPLICATES = "_block"
"""The function whose items are blocks of replicates; their results are kept."""


@dataclass(frozen=True)
class Run:
    """One row of the table."""

    case: str
    workers: str
    units: int
    permutations: int

    @property
    def name(self) -> str:
        """The name of the run's file."""
        workers = self.workers.replace(",", "").replace(" ", "-")
        return f"{self.case}-{workers}-{self.units}-{self.permutations}"


class KeptWorkers:
    """Workers whose replicates are kept in a file as they come, with the seconds since the one before."""

    def __init__(self, workers: Workers, path: Path) -> None:
        self._workers, self._path = workers, path
        self.in_process, self.count = workers.in_process, workers.count
        self.seconds = 0.0

    def map(
        self, function: Callable[[SharedT, ItemT], ResultT], shared: SharedT, items: Iterable[ItemT]
    ) -> Iterator[ResultT]:
        """Yield ``function(shared, item)`` for every item, those that are in the file from there."""
        if function.__name__ != REPLICATES:
            yield from self._workers.map(function, shared, items)
            return
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        for line in lines:
            kept = json.loads(line)
            self.seconds += kept["seconds"]
            yield kept["values"]
        started = time.perf_counter()
        with self._path.open("a") as file:
            for values in self._workers.map(function, shared, islice(items, len(lines), None)):
                seconds = time.perf_counter() - started
                file.write(json.dumps({"values": values, "seconds": seconds}) + "\n")
                file.flush()
                self.seconds += seconds
                started += seconds
                yield values


@dataclass(frozen=True)
class Rows:
    """Encoded rows in memory, one a unit, with workers."""

    domain: Domain
    numeric: np.typing.NDArray[np.float64]
    categorical: np.typing.NDArray[np.int32]
    workers: Workers

    @property
    def units(self) -> int:
        """Number of rows."""
        return len(self.numeric)

    def chunks(self) -> Iterator[EncodedChunk]:
        """Yield all rows."""
        yield EncodedChunk(self.numeric, self.categorical, None, self.units)


def columns(case: str) -> tuple[Column, ...]:
    """Two columns."""
    if case == "categorical":
        levels = tuple(f"l{i}" for i in range(LEVELS - 2))
        return tuple(CategoricalColumn(name=f"c{i}", levels=levels) for i in range(2))
    return tuple(NumericColumn(name=f"n{i}", lower=0.0, upper=1.0) for i in range(2))


def study_of(run: Run) -> Study:
    """One owner's study."""
    kernel = "laplacian" if run.case == "laplacian" else "gaussian"
    return Study(
        title="large permutations",
        procedure="joint_independence",
        parameters={"kernel": kernel, "permutations": run.permutations},
        domain=Domain(columns=columns(run.case)),
        owners=(Owner(name="owner", key="1" * 64, data_set="data"),),
        tester=Party(name="tester", key="2" * 64),
        analyst=Party(name="analyst", key="3" * 64),
        budget=Budget.of(1.0, 1e-6),
        level=0.05,
        created_at=0,
        deadline=1,
        seed="0" * 32,
    )


def rows_of(run: Run, workers: Workers) -> Rows:
    """Return normal values of correlation .1, standard deviation .15 of the range, or categories of them."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal((run.units, 2))
    values[:, 1] = 0.1 * values[:, 0] + np.sqrt(0.99) * values[:, 1]
    scaled = np.clip(0.5 + 0.15 * values, 0, 1)
    domain = Domain(columns=columns(run.case))
    if run.case != "categorical":
        return Rows(domain, scaled, np.zeros((run.units, 0), np.int32), workers)
    codes = np.minimum(LEVELS - 3, (10 * scaled).astype(np.int32))
    return Rows(domain, np.zeros((run.units, 0)), codes, workers)


@contextmanager
def workers_of(name: str) -> Iterator[Workers]:
    """Threads, or a cluster of processes with a thread each, on this machine."""
    if name.endswith(("thread", "threads")):
        yield ThreadWorkers(int(name.split(maxsplit=1)[0]))
        return
    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ": NANNY}),
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, memory_limit=0
        ) as cluster,
    ):
        workers = ClusterWorkers(cluster.scheduler_address, None)
        try:
            yield workers
        finally:
            workers.close()


def peaks_mb() -> list[float]:
    """Peak resident memory of this process and of its children."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    found = []
    for process in processes:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        peak = next((line.split()[1] for line in lines if line.startswith("VmHWM")), "0")
        found.append(int(peak) / 1024)
    return found


def cpu_s() -> float:
    """Processor seconds of this process and of its children that live."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    return sum(times.user + times.system for times in (process.cpu_times() for process in processes))


def compute(run: Run, folder: Path) -> dict[str, Any]:
    """Compute one run; return its row."""
    with workers_of(run.workers) as workers:
        kept = KeptWorkers(workers, folder / f"{run.name}.jsonl")
        study, procedure = study_of(run), JointIndependence()
        done = len((folder / f"{run.name}.jsonl").read_text().splitlines()) if kept._path.exists() else 0
        started, spent = time.perf_counter(), cpu_s()
        before = kept.seconds
        summary = procedure.summarise(study, rows_of(run, kept), order=np.random.default_rng(2))
        seconds = time.perf_counter() - started
        spent = cpu_s() - spent
        release = procedure.privatise(study, summary, SimulatedNoise(3))
        peaks = peaks_mb()
    return {
        "run": vars(run),
        "seconds": round(max(seconds, kept.seconds - before), 1),
        "cpu_s": round(spent, 1) if done == 0 else None,
        "peak_mb": round(peaks[0]),
        "worker_peak_mb": round(max(peaks[1:], default=0.0)),
        "decision": release.decision,
        "digest": hashlib.sha256(summary.values.tobytes()).hexdigest()[:12],
        "load": round(os.getloadavg()[1], 1),
    }


HEADER = """# Large permutation runs

    python -m benchmarks.large_permutations --write

`joint_independence` of two columns (correlation .1; a standard deviation of .15 of the range; default
bandwidth), {units} units, B permutations, each row a process of its own: reading, kernels, all
replicates. Two kernel matrices would take {matrices:.1f} GB. *Gaussian* and *categorical* columns have
explicit features of low rank; the *Laplacian* kernel has not, and its matrices are evaluated anew, in tiles,
for every replicate. Decisions are made with noise of a fixed seed, here alone, so that they can be compared;
the digest is of all B + 1 statistics' bits.

"""
ENDING = """
Peaks are of resident memory, of the calling process and of a Dask worker. Load averages above the number of
cores ({cores}) say that other work ran besides: seconds are then longer than the machine's own, and processor
seconds are what to compare. They are not stated of a run that was interrupted and went on, and those of Dask
count its own waiting for results. Workers were sent rows and numbers of replicates; no kernel matrix was
stored. A run with fewer permutations is the beginning of one with more: permutation b depends on b alone.
"""


COLUMNS = (
    "kernel", "B", "workers", "seconds", "processor seconds", "peak, MB", "worker's peak, MB", "decision",
    "digest", "load average",
)  # fmt: skip


def page(rows: list[dict[str, Any]], units: int) -> str:
    """Write the documentation's page."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    answers: dict[tuple[str, int], set[tuple[bool, str]]] = {}
    for row in rows:
        run = row["run"]
        answers.setdefault((run["case"], run["permutations"]), set()).add((row["decision"], row["digest"]))
        cells = [
            run["case"],
            run["permutations"],
            run["workers"],
            row["seconds"],
            "" if row["cpu_s"] is None else row["cpu_s"],
            row["peak_mb"],
            row["worker_peak_mb"] or "",
            "reject" if row["decision"] else "do not reject",
            f"`{row['digest']}`",
            row["load"],
        ]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    same = all(len(found) == 1 for found in answers.values())
    head = HEADER.format(units=units, matrices=2 * 8 * units**2 / 1e9)
    told = f"Decisions and digests of a kernel and B are {'the same' if same else 'NOT the same'}.\n"
    return head + "\n".join(lines) + "\n\n" + told + ENDING.format(cores=os.cpu_count())


def complete(folder: Path, units: int) -> list[dict[str, Any]]:
    """Return the rows of all runs of so many units that are complete, whatever their permutations."""
    rows = [json.loads(path.read_text()) for path in folder.glob("*.json")]

    def place(row: dict[str, Any]) -> tuple[int, int, int]:
        run = row["run"]
        return CASES.index(run["case"]), run["permutations"], WORKERS.index(run["workers"])

    return sorted((row for row in rows if row["run"]["units"] == units), key=place)


def main() -> None:
    """Compute what is missing, one process a run, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--units", type=int, default=20_000)
    parser.add_argument("--permutations", type=int, default=1000)
    parser.add_argument("--only", default="", help="only runs whose names hold this text")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/large-permutations"))  # noqa: S108
    parser.add_argument("--write", action="store_true", help="write the page of the documentation")
    parser.add_argument("--one", nargs=2, metavar=("CASE", "WORKERS"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.folder.mkdir(parents=True, exist_ok=True)
    if chosen.one:
        run = Run(*chosen.one, chosen.units, chosen.permutations)
        (chosen.folder / f"{run.name}.json").write_text(json.dumps(compute(run, chosen.folder)))
        return
    for case in CASES:
        for workers in WORKERS:
            run = Run(case, workers, chosen.units, chosen.permutations)
            result = chosen.folder / f"{run.name}.json"
            if not result.exists() and chosen.only in run.name:
                sizes = ["--units", str(run.units), "--permutations", str(run.permutations)]
                place = ["--folder", str(chosen.folder), "--one", case, workers]
                command = [sys.executable, "-m", "benchmarks.large_permutations", *sizes, *place]
                subprocess.run(command, check=True)
            if result.exists():
                print(result.read_text(), flush=True)
    text = page(complete(chosen.folder, chosen.units), chosen.units)
    print(text)
    if chosen.write:
        PAGE.write_text(text)


if __name__ == "__main__":
    main()
