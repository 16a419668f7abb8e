"""One owner's sums over 10^6 to 10^8 rows: threads of the agent, a Dask cluster and bare NumPy, in one run.

    python -m benchmarks.scale
    python -m benchmarks.scale --cells "| 1000000 |" --folder /tmp/glance

The file has 20 columns of laboratory-like numbers (three decimals) in row groups of 2^20 rows; row groups
repeat after the eighth, which changes no cost. Every measurement is a process of its own, which reports its
peak memory. "Bare" is what the sums are made of and nothing more, written plainly in NumPy.
"""

import os
import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from benchmarks.cost_study import Fresh
from benchmarks.costs import slope
from benchmarks.harness import Answers, Benchmark, Cell, Counts, cells_of, main, peak_mb, table
from benchmarks.problems import chunk_of, study_of_columns
from tacit_protocol.domain import ThreadWorkers, Workers
from tacit_protocol.features.kernels import FloatMatrix
from tacit_protocol.features.mean_embedding import WhitenedMeanEmbedding
from tacit_protocol.features.moments import AdditiveRelease
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample
from tacit_services.agent.data.parquet_source import ParquetSource
from tacit_services.agent.data.reader import Computing
from tacit_services.agent.data.table import SourceTable
from tacit_services.shared.compute import ComputeSettings, prepare_to_compute
from tacit_services.shared.workers import make_workers

COLUMNS = 20
BOUNDS = (-5.0, 5.0)
GROUP_ROWS, BLOCKS = 2**20, 8
WARM_ROWS = 20_000
ROWS = (10**6, 10**7, 10**8)
FILES = Path("build/scale")
IN_MEMORY_ROWS_MAX = 10**7
"""Above, only the agent is measured, by all threads: the others repeat one slice, in linear time by make."""

FEATURES = {"columns": {"features": "columns"}, "auto": {}, "me": {"features": "me", "n_features": 40}}
THREADS = (1, 2)
NANNY = {"MALLOC_TRIM_THRESHOLD_": 2**28, "MALLOC_MMAP_THRESHOLD_": 2**25}
"""Workers that are deployed have no nanny, and keep memory between arrays; a nanny's own setting has every
freed array given back, and its pages cleared anew."""

Kernel = Callable[[FloatMatrix], list[FloatMatrix]]


def make_file(path: Path, rows: int) -> None:
    """Write the rows, unless they are there."""
    if path.exists() and pq.ParquetFile(path).metadata.num_rows == rows:
        return
    rng = np.random.default_rng(0)
    names = [f"c{i}" for i in range(COLUMNS)]
    size = min(rows, GROUP_ROWS)
    blocks = [
        pa.table({name: np.round(rng.standard_normal(size), 3) for name in names})
        for _ in range(min(BLOCKS, -(-rows // size)))
    ]
    part = path.with_suffix(".part")
    with pq.ParquetWriter(part, blocks[0].schema) as writer:
        for number, start in enumerate(range(0, rows, size)):
            writer.write_table(blocks[number % len(blocks)].slice(0, rows - start))
    part.rename(path)


def read_through(path: Path) -> int:
    """Read a file so that it lies in the system's cache, as far as it fits; return its bytes."""
    with path.open("rb", buffering=0) as file:
        while file.read(2**24):
            pass
        return file.tell()


def study_for(which: str) -> Study:
    """Return the study whose features are summed."""
    return study_of_columns(COLUMNS, BOUNDS, FEATURES[which], epsilon=1.0, run=0)


def agent(path: Path, which: str, workers: Workers) -> dict[str, float]:
    """Time the agent's summary, after one of a small file: an agent is a running service."""
    study, computing = study_for(which), Computing(workers)

    def summarise(name: Path) -> None:
        table = SourceTable(ParquetSource(name), study.domain, None, computing.bounds, workers=workers)
        KernelTwoSample().summarise(study, table)

    summarise(path.with_name("warm.parquet"))
    return measured(lambda: summarise(path))


def bare(rows: int, which: str, threads: int, work: Kernel) -> dict[str, float]:
    """Time features and their float sums alone, on one slice of rows in memory again and again."""
    slice_rows = slice_rows_of(which)
    chunk = np.random.default_rng(0).random((slice_rows, COLUMNS))

    def add_up(repeats: int) -> None:
        totals = work(chunk)
        for _ in range(repeats - 1):
            for total, value in zip(totals, work(chunk), strict=True):
                np.add(total, value, out=total)

    def run() -> None:
        repeats = -(-rows // slice_rows // threads)
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(add_up, [repeats] * threads))

    with threadpool_limits(limits=1, user_api="blas"):
        add_up(3)
        return measured(run)


def kernel_of(which: str, *, own: bool) -> Kernel:
    """Return what is computed of a slice of rows: plainly in NumPy, or by Tacit's own feature maps."""
    release = KernelTwoSample().plan(study_for(which)).release
    features = release.features
    if isinstance(release, AdditiveRelease):
        choice, pairs = features.choice, features.pairwise

        def columns(rows: FloatMatrix) -> FloatMatrix:
            return features.column_wise(chunk_of(rows)) if own else waves(rows, choice.cycles, choice.weights)

        def of_pairs(rows: FloatMatrix) -> FloatMatrix:
            if own:
                return pairs.parts(chunk_of(rows))
            return waves(rows, choice.pair_cycles, (1.0,) * len(choice.pair_cycles))

        return lambda rows: [columns(rows).sum(axis=0), *(moments(of_pairs(rows)) if pairs else ())]
    if own:
        return lambda rows: moments(features(chunk_of(rows)))
    assert isinstance(features, WhitenedMeanEmbedding)
    locations, bandwidth = features.locations.numeric, features._kernel.bandwidth
    targets, squares = np.ascontiguousarray(locations.T), np.sum(locations**2, axis=1)

    def embedded(rows: FloatMatrix) -> FloatMatrix:
        distances = np.sum(rows * rows, axis=1)[:, None] + squares - 2 * (rows @ targets)
        return np.asarray(np.exp(distances / (-2 * bandwidth**2)) @ features.whitener)

    return lambda rows: moments(embedded(rows))


def moments(values: FloatMatrix) -> list[FloatMatrix]:
    """Return the sums of features, and of their products, in floating point."""
    return [values.sum(axis=0), values.T @ values]


def slice_rows_of(which: str) -> int:
    """Return the rows whose features take 4 MiB."""
    release = KernelTwoSample().plan(study_for(which)).release
    features = release.features
    dimension = features.column_wise.dimension if isinstance(release, AdditiveRelease) else features.dimension
    return max(1, 2**22 // (8 * dimension))


def waves(rows: FloatMatrix, cycles: tuple[float, ...], weights: tuple[float, ...]) -> FloatMatrix:
    """Return cosines and sines of every column at every frequency, side by side."""
    turns = (2 * np.pi * rows)[:, :, None] * np.asarray(cycles)
    scales = np.sqrt(np.asarray(weights) / np.sum(weights))
    return np.concatenate([np.cos(turns) * scales, np.sin(turns) * scales], axis=2).reshape(len(rows), -1)


def measured(run: Callable[[], None]) -> dict[str, float]:
    """Return wall and processor seconds of ``run``, and this process's peak memory in megabytes."""
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    run()
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"seconds": seconds, "cpu_seconds": cpu, "peak_mb": peak_mb()}


def on_cluster(path: Path, which: str, count: int) -> dict[str, float]:
    """Time the agent with so many Dask worker processes of one thread on this machine."""
    import dask  # noqa: PLC0415 (the extra may be absent)
    from distributed import LocalCluster  # noqa: PLC0415

    with (
        dask.config.set({"distributed.nanny.pre-spawn-environ": NANNY}),
        LocalCluster(
            n_workers=count, threads_per_worker=1, dashboard_address=None, protocol="tcp", host="127.0.0.1"
        ) as cluster,
    ):
        workers = make_workers(ComputeSettings(dask_scheduler=cluster.scheduler_address))
        return agent(path, which, workers)


KERNELS = ("bare", "maps")
KINDS = (*KERNELS, "threads", "dask")


def measure(which: str, rows: int, threads: int, kind: str) -> dict[str, float]:
    """Measure one cell in this process."""
    prepare_to_compute()  # as every service does
    if kind in KERNELS:
        return bare(rows, which, threads, kernel_of(which, own=kind == "maps"))
    path = FILES / f"{rows}.parquet"
    return on_cluster(path, which, threads) if kind == "dask" else agent(path, which, ThreadWorkers(threads))


def run(which: str, rows: int, threads: int, kind: str, _: int) -> Answers:
    """Measure one cell in a process of its own, on files that are there."""
    FILES.mkdir(parents=True, exist_ok=True)
    make_file(FILES / "warm.parquet", WARM_ROWS)
    make_file(FILES / f"{rows}.parquet", rows)
    read_through(FILES / f"{rows}.parquet")
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    return Fresh().call(measure, which, rows, threads, kind)


CELL = "{} | {} | {} | {}"


def cells() -> list[Cell]:
    """List the cells, by size; Dask, and large files, have all threads."""
    made: list[Cell] = []
    for rows in ROWS:
        few = rows <= IN_MEMORY_ROWS_MAX
        for which, kind in product(FEATURES, KINDS if few else KINDS[len(KERNELS) :]):
            threads = THREADS if few and kind != "dask" else THREADS[-1:]
            made += cells_of(CELL, 1, run, [which], [rows], threads, [kind])
    return made


def parts(counts: Counts) -> dict[str, str]:
    """Write the table: a line for every file, features and number of workers; and how costs grow."""

    def found(which: str, rows: int, workers: int, kind: str, measure: str = "seconds") -> float | None:
        return counts.rate(CELL.format(which, rows, workers, kind), measure)

    def ratio(one: float | None, other: float | None) -> str:
        return "" if one is None or other is None else f"{one / other:.2f}"

    lines: dict[str, dict[str, str]] = {}
    grown: dict[str, dict[str, str]] = {}
    for which, rows, workers in product(FEATURES, ROWS, THREADS):
        plain, maps, ours, dask = (found(which, rows, workers, kind) for kind in KINDS)
        if ours is None:
            continue
        cell = CELL.format(which, rows, workers, "threads")
        seconds = ["" if value is None else f"{value:.2f}" for value in (plain, maps, ours, dask)]
        lines[f"{which} | {rows:,} | {workers}"] = {
            "bare, s": seconds[0],
            "maps, s": seconds[1],
            "agent, s": seconds[2],
            "throughput": f"{ratio(plain, ours)} ({ratio(maps, ours)})" if plain and maps else "",
            "agent, CPU s": counts.shown(cell, "cpu_seconds", ".1f"),
            "agent, peak MB": counts.shown(cell, "peak_mb", ".0f"),
            "Dask, s": seconds[3],
            "Dask / threads": ratio(dask, ours),
        }
    for which, workers in product(FEATURES, THREADS):
        known = [size for size in ROWS if found(which, size, workers, "threads") is not None]
        for sizes in pairwise(known):

            def of(measure: str, s: tuple[int, int] = sizes, w: str = which, n: int = workers) -> list[float]:
                return [found(w, size, n, "threads", measure) or 1.0 for size in s]

            small, large = of("peak_mb")
            grown[f"{which} | {workers} | {sizes[0]:,} to {sizes[1]:,}"] = {
                "exponent of time": f"{slope(sizes, of('seconds')):.2f}",
                "exponent of CPU": f"{slope(sizes, of('cpu_seconds')):.2f}",
                "memory ratio": f"{large / small:.2f}",
            }
    return {
        "table": table(lines, "features | rows | workers"),
        "growth": table(grown, "features | workers | rows"),
    }


BENCHMARKS = (Benchmark("scale", cells, parts),)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
