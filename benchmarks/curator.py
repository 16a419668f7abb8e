"""Level and power of the two-sample test at a trusted curator, beside its peers on the same data.

    python -m benchmarks.curator                 # everything; continues where it stopped
    python -m benchmarks.curator --runs 0.02 --cells power --folder /tmp/glance

Data are drawn once for all methods, epsilons and levels of a cell; permuted statistics are computed once and
noise is drawn afresh for every epsilon and level. Noise is simulated, as in benchmarks.two_sample.
"""

import functools
import math
import zlib

import numpy as np

from benchmarks.resumable import Answers, Cell, Counts, level_statement, main, table
from benchmarks.two_sample_methods import DELTA, LEVELS, NO_PRIVACY, PUBLIC_ROWS, Method, draw, question

LEVEL_RUNS, POWER_RUNS = 1000, 200
POWER_LEVEL = 0.01

MANY, FEW = (0.1, 0.3, 1.0, 3.0, 10.0), (0.1, 1.0, 10.0)
PERMUTATION = {"release": "permutation", "permutations": 199}

MEANS = Method("means, default", "curator")
SIMPLE = (
    Method("means, ME J=5", "curator", {"features": "me", "n_features": 5}),
    Method("means, ME J=40", "curator", {"features": "me", "n_features": 40}),
    Method("statistic, ME J=5", "curator", {"release": "statistic", "features": "me", "n_features": 5}),
)
NOISE_AWARE = Method(
    "means, ME J=5, noise-aware",
    "curator",
    {"features": "me", "n_features": 5, "statistic": "noise-aware", "replicates": 199},
    epsilons=(1.0, 10.0),
)
STATISTIC = Method("statistic, default", "curator", {"release": "statistic"}, epsilons=FEW)
PERMUTED = Method("permutation, default", "curator", PERMUTATION)
PERMUTED_COLUMNS = Method("permutation, columns", "curator", {**PERMUTATION, "features": "columns"})
PERMUTED_KERNEL = Method("permutation, kernel", "curator", {**PERMUTATION, "features": "kernel"})

ALL = (MEANS, *SIMPLE, NOISE_AWARE, STATISTIC, PERMUTED, PERMUTED_KERNEL)
WIDE = (Method("means, default", "curator", epsilons=FEW), *SIMPLE, PERMUTED_COLUMNS)

LEVEL_PLAN = (
    ("SG", 50, (*WIDE, PERMUTED_KERNEL)),
    ("SG", 500, SIMPLE),
    ("SG", 2000, WIDE),
    ("SG5", 50, ALL),
    ("SG5", 500, ALL),
    ("SG5", 2000, (MEANS, *SIMPLE, PERMUTED)),
    ("Unequal", 50, (MEANS, *SIMPLE, PERMUTED)),
    ("Unequal", 300, (MEANS, *SIMPLE, PERMUTED)),
    ("Heavy", 50, (MEANS, *SIMPLE, PERMUTED, PERMUTED_KERNEL)),
    ("Heavy", 500, (MEANS, *SIMPLE, PERMUTED)),
    ("Ties", 50, (MEANS, *SIMPLE, PERMUTED, PERMUTED_KERNEL)),
    ("Ties", 500, (MEANS, *SIMPLE, STATISTIC, PERMUTED)),
)

OWNERS = Method("no trusted entity, default", "owners")
PUBLISHED = (
    Method("P0 TCMC, ME J=5", "curator", {"features": "me", "n_features": 5, "calibration": "paper"}),
    Method("P0 TCS, ME J=5 (not private)", "published statistic", {"features": "me", "n_features": 5}),
)
COMPARED = (OWNERS, MEANS, STATISTIC, PERMUTED_COLUMNS, PERMUTED_KERNEL, *PUBLISHED)
OPTIMISED = (
    Method("no trusted entity, optimised SCF", "owners", {}, optimised=True),
    Method("means, optimised SCF", "curator", {}, optimised=True),
    Method("statistic, optimised SCF", "curator", {"release": "statistic"}, optimised=True),
    Method("permutation, optimised SCF", "curator", PERMUTATION, optimised=True),
    Method("P0 TCMC, optimised SCF", "curator", {"calibration": "paper"}, optimised=True),
    Method("P0 TCS, optimised SCF (not private)", "published statistic", {}, optimised=True),
)
POWER_EPSILONS = (0.3, 1.0, 3.0)
POWER_PLAN = (
    ("GMD", 100, (*COMPARED, PERMUTED)),
    ("GMD", 200, (*COMPARED, PERMUTED)),
    ("GMD", 500, (*COMPARED, PERMUTED)),
    ("GMD", 1000, COMPARED),
    ("GVD", 500, (*COMPARED, PERMUTED)),
    ("GVD", 1000, COMPARED),
    ("GVD", 2000, COMPARED),
    ("GVD", 4000, (OWNERS, MEANS, PERMUTED_COLUMNS, *PUBLISHED)),
    ("Blobs", 200, (*COMPARED, PERMUTED, *OPTIMISED)),
    ("Blobs", 500, (*COMPARED, PERMUTED, *OPTIMISED)),
    ("Blobs", 1000, (*COMPARED, PERMUTED, *OPTIMISED)),
    ("Blobs", 2000, (*COMPARED, PERMUTED, *OPTIMISED)),
    ("Blobs", 5000, (OWNERS, MEANS, PERMUTED_COLUMNS, *PUBLISHED, *OPTIMISED)),
)


def run_cell(
    problem: str, n: int, methods: tuple[Method, ...], epsilons: tuple[float, ...], number: int
) -> Answers:
    """Draw both samples once and ask every method."""
    rng = np.random.default_rng([number, n, zlib.crc32(problem.encode())])
    tables = {name: draw(problem, n, second, rng) for name, second in (("x", False), ("y", True))}
    answers: dict[str, bool] = {}
    for method in methods:
        answers |= method.answers(problem, tables, epsilons, number)
    return answers


def cells() -> list[Cell]:
    """List the cells: levels first."""
    plans = (("level", LEVEL_PLAN, LEVEL_RUNS, MANY), ("power", POWER_PLAN, POWER_RUNS, POWER_EPSILONS))
    return [
        Cell(f"{kind} {problem} n={n}", runs, functools.partial(run_cell, problem, n, methods, epsilons))
        for kind, plan, runs, epsilons in plans
        for problem, n, methods in plan
    ]


HEAD = f"""# Two samples at a trusted curator: level and power

Rates of rejection at δ = {DELTA:g}, two samples of n units each, from a curator who holds both. Made by

    python -m benchmarks.curator

with LEVEL_RUNS runs a cell for levels and POWER_RUNS for powers, simulated noise, and 199 permutations.
All methods of a column see the same data; ε = none is the same permutation test without privacy.

Releases: `means` (mean-covariance: the private difference of mean features and what its null needs),
`statistic` (one noisy ridge statistic), `permutation` (the decision alone). `default` features are columns
and pairs of columns; `columns` leaves out pairs; `kernel` is the full Gaussian kernel; `optimised SCF` are
frequencies found by gradient on a public sample of {PUBLIC_ROWS} rows a side
([how](../mathematics/test-locations.md)). `no trusted entity` is `kernel_two_sample`: each owner adds its own
noise. `P0 TCMC` and `P0 TCS` are the published releases and nulls; the latter's bound on its sensitivity is
false, so that it is *not private*, and it runs on synthetic data in this benchmark only
([errata](../errata.md)).

Problems: SG, 50 standard normal columns (SG5: 5); Unequal, SG5 with 10 n units in the second sample; Heavy,
5 columns of Student's t with 2 degrees, clipped at ±5; Ties, 3 Poisson counts and 2 categorical columns; GMD,
SG with the first column shifted by 1; GVD, its variance doubled; Blobs, a 4 × 4 grid of normals at distance
5, on one side with an eigenvalue 2 at 45°.

"""


def text(counts: Counts) -> str:
    """Write the page."""
    head = HEAD.replace("LEVEL_RUNS", counts.runs_of("level")).replace("POWER_RUNS", counts.runs_of("power"))
    parts = [head, level_statement(counts), _verdict_on_trust(counts)]
    for level in LEVELS:
        parts.append(f"## Level {level:g}\n\n")
        for problem in dict.fromkeys(problem for problem, _, _ in LEVEL_PLAN):
            parts += [
                f"### {problem}, level {level:g}\n\n",
                _rates(counts, "level", problem, level, MANY),
                "\n",
            ]
    parts.append(f"## Power at level {POWER_LEVEL:g}\n\n")
    for problem in dict.fromkeys(problem for problem, _, _ in POWER_PLAN):
        rates = _rates(counts, "power", problem, POWER_LEVEL, (*POWER_EPSILONS, NO_PRIVACY))
        parts += [f"### {problem}\n\n", rates, "\n"]
    return "".join(parts).rstrip() + "\n"


def _rates(counts: Counts, kind: str, problem: str, level: float, epsilons: tuple[float | str, ...]) -> str:
    plan = LEVEL_PLAN if kind == "level" else POWER_PLAN
    sizes = [(n, methods) for name, n, methods in plan if name == problem]
    names = dict.fromkeys(method.name for _, methods in sizes for method in methods)
    rows: dict[str, dict[str, str]] = {name: {} for name in names}
    digits = 3 if kind == "level" else 2
    for epsilon in epsilons:
        shown = epsilon if isinstance(epsilon, str) else f"{epsilon:g}"
        for n, _ in sizes:
            for name in names:
                rate = counts.rate(f"{kind} {problem} n={n}", question(name, epsilon, level))
                rows[name][f"ε={shown}, n={n}"] = "" if rate is None else f"{rate:.{digits}f}"
    return table(rows, "method")


def _verdict_on_trust(counts: Counts) -> str:
    """Say where the curator's default sees less than the owners' default."""
    pairs = [(MEANS.name, OWNERS.name), (OPTIMISED[1].name, OPTIMISED[0].name)]
    compared, slightly, below = 0, 0, []
    for problem, n, _ in POWER_PLAN:
        cell = f"power {problem} n={n}"
        for epsilon in POWER_EPSILONS:
            for pair in pairs:
                first, second = (counts.rate(cell, question(name, epsilon, POWER_LEVEL)) for name in pair)
                if first is None or second is None:
                    continue
                compared += 1
                error = math.sqrt((first * (1 - first) + second * (1 - second)) / counts.runs[cell])
                if first < second - 2 * error:
                    below.append(f"{problem}, n = {n}, ε = {epsilon:g}: {first:.3f} against {second:.3f}")
                elif first < second:
                    slightly += 1
    if not compared:
        return ""
    named = "nowhere" if not below else "in " + "; ".join(below)
    return (
        f"**Trust.** `means` against `no trusted entity` with the same features, {compared} pairs of powers\n"
        "at the same ε on the same data. Lower by more than two standard errors of the difference: "
        f"{named}.\nLower by less: {slightly}.\n\n"
    )


if __name__ == "__main__":
    main(__doc__, "curator", cells(), text)
