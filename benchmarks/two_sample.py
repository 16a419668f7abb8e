"""Level and power of the kernel two-sample test on P0's data sets, beside P0's own release and null.

    python -m benchmarks.two_sample --runs 500 --out docs/benchmarks/two-sample.md

Every run draws data, releases them through the services' own procedure, and computes the verdict.
Runs of one (problem, n) are shared by all epsilons and methods; noise is always fresh. On synthetic data
it is numpy's, rounded to the grid, which has the law of OpenDP's to nine digits and is drawn thirty
times faster; ``--noise opendp`` uses OpenDP's.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data_sets import PROBLEMS
from tacit_protocol.domain.columns import Domain, NumericColumn
from tacit_protocol.domain.table import EncodedChunk
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample

LEVEL = 0.01
DELTA = 1e-5

METHODS: dict[str, dict[str, Any]] = {
    "default": {},
    "columns": {"features": "columns"},
    "planned": {"features": "columns", "cycles": [1.0, 2.0]},
    "ME mmd J=5": {"features": "me", "n_features": 5},
    "ME mmd J=20": {"features": "me", "n_features": 20},
    "ME mmd J=40": {"features": "me", "n_features": 40},
    "ME noise-aware J=5": {"features": "me", "n_features": 5, "statistic": "noise-aware", "replicates": 299},
    "ME noise-aware J=20": {
        "features": "me",
        "n_features": 20,
        "statistic": "noise-aware",
        "replicates": 299,
    },
    "ME noise-aware J=40": {
        "features": "me",
        "n_features": 40,
        "statistic": "noise-aware",
        "replicates": 299,
    },
    "SCF mmd J=40": {"features": "scf", "n_features": 40},
    "P0 J=5": {"features": "me", "n_features": 5, "calibration": "paper"},
    "P0 J=40": {"features": "me", "n_features": 40, "calibration": "paper"},
}


class ArrayTable:
    """An encoded table in memory."""

    def __init__(self, domain: Domain, rows: np.typing.NDArray[np.float64]) -> None:
        self.domain = domain
        self.units = len(rows)
        self._rows = rows

    def chunks(self) -> Iterator[EncodedChunk]:
        """Yield all rows."""
        yield EncodedChunk(self._rows, np.zeros((self.units, 0), dtype=np.int32), None, self.units)


class SimulatedNoise:
    """Gaussian noise for synthetic data alone: it protects nobody."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def gaussian(self, values: np.typing.NDArray[np.int64], scale: float) -> np.typing.NDArray[np.int64]:
        """Add normal noise, rounded to whole steps."""
        return values + np.rint(self._rng.standard_normal(len(values)) * scale).astype(np.int64)

    def laplace(self, values: np.typing.NDArray[np.int64], scale: float) -> np.typing.NDArray[np.int64]:
        """Add Laplace noise, rounded to whole steps."""
        return values + np.rint(self._rng.laplace(size=len(values)) * scale).astype(np.int64)


@dataclass(frozen=True)
class Task:
    """Some runs of one problem at one n, for several epsilons and methods."""

    problem: str
    n: int
    epsilons: tuple[float, ...]
    methods: tuple[str, ...]
    first_run: int
    runs: int
    opendp: bool


def study_of_columns(
    columns: int, bounds: tuple[float, float], parameters: dict[str, Any], epsilon: float, run: int
) -> Study:
    """Build the study of one run on numeric columns; its public seed is the run's number."""
    low, high = bounds
    domain = Domain(columns=tuple(NumericColumn(name=f"c{i}", lower=low, upper=high) for i in range(columns)))
    owners = tuple(
        Owner(name=name, key=digit * 64, data_set="rows") for name, digit in (("x", "0"), ("y", "1"))
    )
    return Study(
        title="benchmark",
        procedure="kernel_two_sample",
        parameters=parameters,
        domain=domain,
        owners=owners,
        tester=Party(name="tester", key="2" * 64),
        analyst=Party(name="analyst", key="3" * 64),
        budget=Budget.of(epsilon, DELTA),
        level=LEVEL,
        created_at=0,
        deadline=1,
        seed=f"{run:032x}",
    )


def run_task(task: Task) -> list[tuple[str, float, int, str, bool]]:
    """Return (problem, epsilon, n, method, rejected) of every run of the task."""
    procedure = KernelTwoSample()
    kind = PROBLEMS[task.problem]
    low, high = kind.bounds
    results = []
    for run in range(task.first_run, task.first_run + task.runs):
        rng = np.random.default_rng([run, task.n, len(task.problem)])
        noise = OpenDPNoise() if task.opendp else SimulatedNoise(int(rng.integers(2**63)))
        samples = {
            name: np.clip((kind.draw(task.n, second, rng) - low) / (high - low), 0.0, 1.0)
            for name, second in (("x", False), ("y", True))
        }
        for method in task.methods:
            summaries = {}
            for epsilon in task.epsilons:
                study = study_of_columns(kind.columns, kind.bounds, METHODS[method], epsilon, run)
                if not summaries:
                    summaries = {
                        name: procedure.summarise(study, ArrayTable(study.domain, rows))
                        for name, rows in samples.items()
                    }
                releases = {name: procedure.privatise(study, s, noise) for name, s in summaries.items()}
                verdict = procedure.assemble(study, releases)
                results.append((task.problem, epsilon, task.n, method, verdict.reject))
    return results


MMD = tuple(name for name in METHODS if name.startswith("ME mmd"))
NOISE_AWARE = tuple(name for name in METHODS if name.startswith("ME noise-aware"))
POWER = ("default", "columns", "ME mmd J=40", "P0 J=5", "P0 J=40")
GRID = (0.3, 1.0, 2.5, 10.0)

PLAN: tuple[tuple[str, tuple[int, ...], tuple[float, ...], tuple[str, ...]], ...] = (
    ("GMD", (500, 1000, 2000, 4000), (1.0,), (*POWER, "planned")),
    ("GVD", (1000, 2000, 3000, 4000), (1.0,), (*POWER, "planned")),
    ("Blobs", (1000, 2000, 5000, 10000), (1.0,), POWER),
    ("SG", (500, 3000, 10000), GRID, ("default", "columns", "SCF mmd J=40", *MMD)),
    ("Interaction", (1000, 2000, 3000, 5000), (1.0,), ("default", "columns", "ME mmd J=40", "P0 J=5")),
    ("Heavy", (500, 3000), GRID, ("default", "ME mmd J=5", "ME mmd J=40")),
    ("SG", (500, 3000, 10000), GRID, NOISE_AWARE),
    ("Interaction50", (10000, 20000), (1.0,), ("default",)),
)
"""(problem, numbers of rows per owner, epsilons, methods), in the order they are run."""


HEAD = """# Kernel two-sample test: level and power

Rate of rejection at level {level}, δ = {delta:g}, two owners of n rows each, no trusted entity, {runs}
runs a cell (a number in brackets where there were fewer). The Monte-Carlo standard error at the level is
{error:.4f}. Noise is simulated (the module says how). Made by

    python -m benchmarks.two_sample --runs {runs}{only} --out FILE

Columns of the table are (ε, n). Methods: `default` is what a user who plans nothing gets; `columns`
leaves out pairs of columns; `planned` is column-wise with cycles 1 and 2, what a plan for one shifted or
stretched column chooses; `ME` and `SCF` are kernel features with the MMD or the noise-aware form; `P0` is
the published release (raw features, halved budget, exact Gaussian noise) with the published null.

Problems: SG, 50 standard normal columns on both sides (level). GMD, the first column shifted by 1. GVD,
its variance doubled. Blobs, a 4 × 4 grid of normals at distance 5, on one side with an eigenvalue 2 at
45°. Interaction, 5 standard normal columns, two of them with correlation .7 on one side (same marginals);
Interaction50, the same among 50 columns. Heavy, 5 columns of Student's t with 2 degrees on both sides
(level).

"""


def tasks(runs: int, only: str | None, opendp: bool, batch: int = 10) -> list[Task]:
    """Cut the plan into tasks."""
    return [
        Task(problem, n, epsilons, methods, first, min(batch, runs - first), opendp)
        for problem, sizes, epsilons, methods in PLAN
        for n in sizes
        for first in range(0, runs, batch)
        if only is None or problem in only.split(",")
    ]


def table(counts: dict[tuple[str, float, int, str], list[int]]) -> str:
    """Write the rejection rates as Markdown tables, one per problem; fewer runs than the most are stated."""
    lines = []
    most = max(runs for _, runs in counts.values())
    for problem in dict.fromkeys(key[0] for key in sorted(counts, key=lambda k: list(PROBLEMS).index(k[0]))):
        keys = [key for key in counts if key[0] == problem]
        cells = sorted({(key[1], key[2]) for key in keys})
        methods = [name for name in METHODS if any(key[3] == name for key in keys)]
        lines += [
            f"## {problem}",
            "",
            "| method | " + " | ".join(f"ε={e:g}, n={n}" for e, n in cells) + " |",
        ]
        lines.append("|---" * (len(cells) + 1) + "|")
        for method in methods:
            row = []
            for epsilon, n in cells:
                hits, runs = counts.get((problem, epsilon, n, method), [0, 0])
                fewer = f" ({runs})" if 0 < runs < most else ""
                row.append(f"{hits / runs:.3f}{fewer}" if runs else "")
            lines.append(f"| {method} | " + " | ".join(row) + " |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Run the plan and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--noise", choices=("simulated", "opendp"), default="simulated")
    parser.add_argument("--only", help="problems, separated by commas")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    counts: dict[tuple[str, float, int, str], list[int]] = {}
    started = time.monotonic()
    work = tasks(arguments.runs, arguments.only, arguments.noise == "opendp")
    with ProcessPoolExecutor(arguments.processes) as pool:
        for done, results in enumerate(pool.map(run_task, work), 1):
            for problem, epsilon, n, method, rejected in results:
                count = counts.setdefault((problem, epsilon, n, method), [0, 0])
                count[0] += rejected
                count[1] += 1
            if done % 10 == 0 or done == len(work):
                print(f"{done}/{len(work)} tasks, {time.monotonic() - started:.0f} s", flush=True)
                write(arguments.out, counts, arguments.runs, arguments.only)


def write(
    out: Path, counts: dict[tuple[str, float, int, str], list[int]], runs: int, only: str | None
) -> None:
    """Write tables with the command that makes them, and the counts beside them as JSON."""
    error = math.sqrt(LEVEL * (1 - LEVEL) / runs)
    only_flag = f" --only {only}" if only else ""
    head = HEAD.format(level=LEVEL, delta=DELTA, runs=runs, error=error, only=only_flag)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(head + table(counts))
    rows = [[*key, *value] for key, value in sorted(counts.items())]
    out.with_suffix(".json").write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
