"""One agent's summary of a large Parquet file beside the bare NumPy products it needs, in one run.

    python -m benchmarks.agent_summary --rows 1000000 --columns 50 --features 40

The peer holds the scaled values in memory and does nothing but the products: rows times locations, the
exponential, the whitening, the sum and the second moment, in chunks of the same size. The agent reads the
file, clips, scales, computes, rounds to the grid and sums exactly. Each is the best of ``--repeats`` runs in
a process of its own, which also reports its peak memory.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from threadpoolctl import threadpool_limits

from benchmarks.two_sample import study_of_columns
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import WhitenedMeanEmbedding, draw_locations, median_distance
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample
from tacit_services.agent.data.parquet_source import ParquetSource
from tacit_services.agent.data.table import SourceTable
from tacit_services.shared.arithmetic import limit_blas_threads

CHUNK_ROWS = 16_384
"""Rows of the peer's chunks: about what the agent's own are at 50 columns."""

BOUNDS = (-5.0, 5.0)

WARM = "warm.parquet"
"""A file of 1000 rows beside the large one."""


def make_file(path: Path, rows: int, columns: int) -> None:
    """Write normal columns in row groups of 100 000 rows."""
    rng = np.random.default_rng(0)
    names = [f"c{i}" for i in range(columns)]
    schema = pa.schema([(name, pa.float64()) for name in names])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, 100_000):
            count = min(100_000, rows - start)
            writer.write_table(pa.table([rng.standard_normal(count) for _ in names], schema=schema))


def agent(path: Path, columns: int, features: int, which: str) -> dict[str, float]:
    """Time the agent's summary of the file, after one of a small file: an agent is a running service."""
    parameters = {"features": "me", "n_features": features} if which == "me" else {"features": which}
    study = study_of_columns(columns, BOUNDS, parameters, epsilon=1.0, run=0)
    limit_blas_threads()
    warm = ParquetSource(path.with_name(WARM))
    KernelTwoSample().summarise(study, SourceTable(warm, study.domain))
    started = time.perf_counter()
    KernelTwoSample().summarise(study, SourceTable(ParquetSource(path), study.domain))
    return measured(started)


def bare(rows: int, columns: int, features: int, threads: int) -> dict[str, float]:
    """Time the bare products on values in memory, with so many threads."""
    threadpool_limits(limits=threads, user_api="blas")
    study = study_of_columns(columns, BOUNDS, {}, epsilon=1.0, run=0)
    locations = draw_locations(study.domain, features, np.random.default_rng(0))
    bandwidth = median_distance(locations.numeric)
    whitener = WhitenedMeanEmbedding(ProductKernel("gaussian", bandwidth), locations)._whitener
    chunk = np.random.default_rng(0).random((CHUNK_ROWS, columns))
    targets = np.ascontiguousarray(locations.numeric.T)
    squares = np.sum(locations.numeric**2, axis=1)
    total, second = np.zeros(features), np.zeros((features, features))
    started = time.perf_counter()
    for start in range(0, rows, CHUNK_ROWS):
        x = chunk[: min(CHUNK_ROWS, rows - start)]
        distances = np.sum(x * x, axis=1)[:, None] + squares - 2 * (x @ targets)
        psi = np.exp(distances / (-2 * bandwidth**2)) @ whitener
        total += psi.sum(axis=0)
        second += psi.T @ psi
    return measured(started)


def measured(started: float) -> dict[str, float]:
    """Seconds since ``started``, and this process's peak memory in megabytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": time.perf_counter() - started, "peak_mb": peak}


def in_process(arguments: list[str]) -> dict[str, float]:
    """Run one measurement in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.agent_summary", *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result: dict[str, float] = json.loads(output)
    return result


def main() -> None:
    """Measure, and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--features", type=int, default=40)
    parser.add_argument("--which", choices=("me", "auto", "columns"), default="me")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--single", choices=("agent", "bare"), help="measure one alone; used internally")
    parser.add_argument("--file", type=Path)
    parser.add_argument("--threads", type=int, default=1, help="of the bare products; used internally")
    arguments = parser.parse_args()
    rows, columns, features = arguments.rows, arguments.columns, arguments.features
    if arguments.single == "agent":
        print(json.dumps(agent(arguments.file, columns, features, arguments.which)))
        return
    if arguments.single == "bare":
        print(json.dumps(bare(rows, columns, features, arguments.threads)))
        return
    sizes = ["--rows", str(rows), "--columns", str(columns), "--features", str(features)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        make_file(path, rows, columns)
        make_file(path.with_name(WARM), 1000, columns)
        ours = ["--single", "agent", "--file", str(path), "--which", arguments.which, *sizes]
        agents = [in_process(ours) for _ in range(arguments.repeats)]
        peers = {
            threads: min(
                in_process(["--single", "bare", "--threads", str(threads), *sizes])["seconds"]
                for _ in range(arguments.repeats)
            )
            for threads in sorted({1, os.cpu_count() or 1})
        }
    best = min(run["seconds"] for run in agents)
    peak = max(run["peak_mb"] for run in agents)
    print(f"{rows} rows x {columns} columns, {features} features ({arguments.which})")
    print(f"agent {best:.2f} s, peak {peak:.0f} MB")
    for threads, seconds in peers.items():
        print(f"bare products, {threads} threads: {seconds:.2f} s, ratio {best / seconds:.2f}")


if __name__ == "__main__":
    main()
