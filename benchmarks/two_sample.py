"""Level and power of the kernel two-sample test on P0's data sets, beside P0's own release and null.

    python -m benchmarks.two_sample      # everything; continues where it stopped
    python -m benchmarks.two_sample --runs 0.02 --cells GMD --folder /tmp/glance

Every run draws data, releases them through the services' own procedure, and computes the verdict. Its data
are shared by all epsilons and methods of a cell; noise is always fresh, and simulated.
"""

import functools
from typing import Any

import numpy as np

from benchmarks.harness import Answers, Cell, Counts, grid, main, question
from benchmarks.problems import LEVEL, PROBLEMS, SimulatedNoise, study_of
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample

RUNS = 500


def _aware(count: int) -> dict[str, Any]:
    return {"features": "me", "n_features": count, "statistic": "noise-aware", "replicates": 299}


METHODS: dict[str, dict[str, Any]] = {
    "default": {},
    "columns": {"features": "columns"},
    "planned": {"features": "columns", "cycles": [1.0, 2.0]},
    **{f"ME mmd J={count}": {"features": "me", "n_features": count} for count in (5, 20, 40)},
    **{f"ME noise-aware J={count}": _aware(count) for count in (5, 20, 40)},
    "SCF mmd J=40": {"features": "scf", "n_features": 40},
    **{f"P0 J={count}": {"features": "me", "n_features": count, "calibration": "paper"} for count in (5, 40)},
}
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


def run(problem: str, n: int, epsilons: tuple[float, ...], methods: tuple[str, ...], number: int) -> Answers:
    """Draw both samples once and ask every method at every epsilon."""
    procedure, rng = KernelTwoSample(), np.random.default_rng([number, n, len(problem)])
    noise = SimulatedNoise(int(rng.integers(2**63)))
    samples = {name: PROBLEMS[problem].table(n, name == "y", rng) for name in ("x", "y")}
    answers: dict[str, bool] = {}
    for method in methods:
        summaries: dict[str, Any] = {}
        for epsilon in epsilons:
            study = study_of(samples["x"].domain, METHODS[method], epsilon=epsilon, run=number)
            summaries = summaries or {name: procedure.summarise(study, t) for name, t in samples.items()}
            releases = {name: procedure.privatise(study, s, noise) for name, s in summaries.items()}
            answers[question(method, epsilon, LEVEL)] = procedure.assemble(study, releases).reject
    return answers


def _cell(problem: str, n: int, methods: tuple[str, ...]) -> str:
    return f"{problem} n={n}" + (", noise-aware" if methods == NOISE_AWARE else "")


def cells() -> list[Cell]:
    """List the cells."""
    return [
        Cell(_cell(problem, n, methods), RUNS, functools.partial(run, problem, n, epsilons, methods))
        for problem, sizes, epsilons, methods in PLAN
        for n in sizes
    ]


def parts(counts: Counts) -> dict[str, str]:
    """Write a table of rejection rates for each problem; fewer runs than the most are stated."""
    most = max(counts.runs.values(), default=0)

    def shown(problem: str, method: str, epsilon: float, n: int) -> str:
        cell = _cell(problem, n, NOISE_AWARE if method in NOISE_AWARE else ())
        runs = counts.runs.get(cell, 0)
        rate = counts.shown(cell, question(method, epsilon, LEVEL))
        return f"{rate} ({runs})" if rate and runs < most else rate

    tables = []
    for problem in [name for name in PROBLEMS if any(name == row[0] for row in PLAN)]:
        asked = sorted(
            {(e, n) for name, sizes, epsilons, _ in PLAN if name == problem for e in epsilons for n in sizes}
        )
        columns = [(f"ε={e:g}, n={n}", (e, n)) for e, n in asked]
        found = grid("method", [(m, m) for m in METHODS], columns, lambda m, c, p=problem: shown(p, m, *c))
        tables.append(f"## {problem}\n\n{found}")
    return {"runs": str(most), "tables": "\n".join(tables)}


if __name__ == "__main__":
    main(__doc__, "two-sample", cells(), parts)
