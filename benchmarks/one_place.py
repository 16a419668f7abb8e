"""Dependence where one party holds all columns: permutations, votes of blocks, and one noisy table of cells.

    python -m benchmarks.one_place      # everything; continues where it stopped
    python -m benchmarks.one_place --runs 0.1 --cells level --folder /tmp/glance

Every run is the procedure itself, with simulated noise of its laws
(``tacit.planning.simulation.SimulatedNoise``). All methods have the same rows, in [0, 1].
"""

import functools
import math
from itertools import combinations
from typing import Any

import numpy as np

from benchmarks.harness import (
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    level_statement,
    main,
    question,
    table,
)
from tacit.in_process.runner import local_study, run, terms
from tacit.in_process.samples import ArrayTable, Sample, domain_of
from tacit.planning.simulation import SimulatedNoise
from tacit_protocol.features.private_cells import GRIDS
from tacit_protocol.numerics.randomised_tables import (
    cell_cramers_v,
    cell_distance_correlation,
    cell_rank_correlation,
)
from tacit_protocol.procedures.discovery import procedure_named

LEVEL, PERMUTATIONS = 0.05, 199

POWER = (
    ("correlation .3", 300, 1.0),
    ("correlation .3", 500, 1.0),
    ("correlation .3", 1000, 0.3),
    ("correlation .3", 2000, 0.1),
    ("chain of 3", 300, 1.0),
    ("chain of 3", 1000, 0.3),
    ("pairwise independent", 300, 1.0),
    ("log-normal", 500, 1.0),
    ("linear", 300, 0.3),
    ("quadratic", 300, 1.0),
    ("quadratic", 300, 0.3),
    ("circle", 300, 1.0),
    ("correlation .3", 2000, 1.0),
    ("quadratic", 1000, 0.3),
    ("circle", 1000, 1.0),
    ("four with a common cause", 500, 1.0),
    ("four with a common cause", 1000, 0.3),
    ("chain of 5", 500, 1.0),
    ("chain of 5", 1000, 0.3),
    ("pairwise independent", 1000, 0.3),
    ("a group and a number", 300, 1.0),
    ("two vectors of 2", 500, 1.0),
    ("two vectors of 10", 1000, 1.0),
)
"""Laws, units and epsilon: METHODS' own twelve first."""
POWER_RUNS = 100

NULLS = (
    *(
        (kind, 2, n, epsilon)
        for kind in ("normal", "skewed", "tied")
        for n, epsilon in ((300, 1.0), (1000, 0.3))
    ),
    *(("normal", d, n, epsilon) for d in (3, 4, 5) for n, epsilon in ((300, 1.0), (1000, 0.3))),
    *(("skewed", 3, n, 4.0) for n in (100, 1000)),
    ("tied", 3, 300, 1.0),
    ("rare", 2, 300, 1.0),
    ("rare", 3, 2000, 4.0),
    ("constant", 2, 300, 1.0),
    ("normal", 2, 50, 1.0),
    ("normal", 2, 20_000, 0.1),
    ("two owners", 2, 400, 1.0),
    ("two owners", 3, 1000, 1.0),
)
LEVEL_RUNS = 2000
LEVELS = (0.05, 0.01)


def normal(n: int, d: int, rng: np.random.Generator) -> Floats:
    """Draw independent standard normal columns."""
    return rng.standard_normal((n, d))


def chain(n: int, d: int, rng: np.random.Generator) -> Floats:
    """Draw columns each of which has correlation .5 with the one before."""
    x = normal(n, d, rng)
    for column in range(1, d):
        x[:, column] = 0.5 * x[:, column - 1] + math.sqrt(0.75) * x[:, column]
    return x


def rows(law: str, n: int, rng: np.random.Generator) -> Floats:
    """Draw columns, (n, d) in [0, 1]."""
    x = normal(n, 2, rng)
    if law == "correlation .3":
        x[:, 1] = 0.3 * x[:, 0] + math.sqrt(0.91) * x[:, 1]
        found = 0.5 + x / 6
    elif law == "chain of 3":
        found = 0.5 + chain(n, 3, rng) / 6
    elif law == "chain of 5":
        found = 0.5 + chain(n, 5, rng) / 6
    elif law == "pairwise independent":
        x = normal(n, 3, rng)
        x[:, 2] = np.abs(x[:, 2]) * np.sign(x[:, 0] * x[:, 1]) * np.where(rng.random(n) < 0.9, 1, -1)
        found = 0.5 + x / 8
    elif law == "log-normal":
        found = np.exp(chain(n, 2, rng)) / 20
    elif law == "linear":
        u = rng.random(n)
        found = np.column_stack([u, u + 0.13 * x[:, 0]])
    elif law == "quadratic":
        u = rng.random(n)
        found = np.column_stack([u, (2 * u - 1) ** 2 + 0.1 * x[:, 0]])
    elif law == "circle":
        turn = 2 * np.pi * rng.random(n)
        found = 0.5 + 0.4 * np.column_stack([np.cos(turn), np.sin(turn)]) + 0.02 * x
    elif law == "four with a common cause":
        found = 0.5 + (math.sqrt(0.3) * normal(n, 1, rng) + math.sqrt(0.7) * normal(n, 4, rng)) / 8
    elif law == "a group and a number":
        group = rng.random(n) < 0.4
        found = np.column_stack([group, 0.5 + (0.5 * group + x[:, 0]) / 8])
    else:
        width = 10 if law.endswith("10") else 2
        cause = normal(n, 1, rng)
        found = 0.5 + (0.5 * cause + math.sqrt(0.75) * normal(n, 2 * width, rng)) / 8
    return np.clip(found, 0, 1)


def groups(law: str) -> list[list[int]] | None:
    """Return the variables of a law, as columns' places; None where each is one."""
    if not law.startswith("two vectors"):
        return None
    width = 10 if law.endswith("10") else 2
    return [list(range(width)), list(range(width, 2 * width))]


def asked(
    procedure: str, values: list[Floats], epsilon: float, number: int, rng: Any, chosen: dict[str, Any]
) -> Any:
    """Run one study on owners' rows, (n, d) each."""
    names = [f"x{place}" for place in range(values[0].shape[1])]
    domain = domain_of(dict.fromkeys(names, (0, 1)), names)
    owners = [f"owner-{place}" for place in range(len(values))]
    study = local_study(
        procedure,
        domain,
        owners,
        chosen,
        **terms(epsilon, 0.0 if procedure == "joint_independence" else 1e-5, LEVEL, number),
        curated=procedure == "curated_two_sample",
    )
    declared = [
        owner.model_copy(update={"units": len(own)}) for owner, own in zip(study.owners, values, strict=True)
    ]
    study = study.model_copy(update={"owners": tuple(declared)})
    tables = [ArrayTable.of(Sample(dict(zip(names, own.T, strict=True))), domain) for own in values]
    return run(procedure_named(procedure), study, tables, SimulatedNoise(rng))


WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "permutation": ("joint_independence", {"permutations": PERMUTATIONS}),
    "votes": ("joint_independence", {"method": "aggregate"}),
    "votes, distances": ("joint_independence", {"method": "aggregate", "kernel": "distance"}),
    "table": ("joint_independence", {"method": "table", "permutations": PERMUTATIONS}),
    "auto": ("joint_independence", {"method": "auto", "permutations": PERMUTATIONS}),
}

SHIFTS = ((1, 150, 1.0), (1, 500, 0.3), (3, 300, 1.0), (3, 1000, 0.3), (10, 500, 1.0), (10, 1000, 0.3))
"""Columns, units of either sample, epsilon: the first column is larger by half a standard deviation."""

SAMPLE_WAYS: dict[str, dict[str, Any]] = {
    "means": {},
    "permutation": {"release": "permutation", "features": "kernel", "permutations": PERMUTATIONS},
    "votes": {"release": "aggregate"},
    "table": {"release": "table", "permutations": PERMUTATIONS},
    "auto": {"release": "auto", "permutations": PERMUTATIONS},
}


def power_run(law: str, n: int, epsilon: float, number: int) -> Answers:
    """Ask in every way of the same rows."""
    rng = np.random.default_rng([n, round(1000 * epsilon), number])
    values = rows(law, n, rng)
    found: dict[str, float] = {}
    named = groups(law)
    for way, (procedure, chosen) in WAYS.items():
        if way == "table" and law.endswith("10"):
            continue
        own = dict(chosen)
        if named is not None:
            own["groups"] = [[f"x{place}" for place in group] for group in named]
        result = asked(procedure, [values], epsilon, number, rng, own)
        found[way] = result.reject
        if way == "table":
            found |= held(law, result)
    return found


def shift_run(d: int, n: int, epsilon: float, number: int) -> Answers:
    """Compare two samples at a curator in every way."""
    rng = np.random.default_rng([n, round(1000 * epsilon), d, number])
    first, second = normal(n, d, rng) / 8 + 0.5, normal(n, d, rng) / 8 + 0.5
    second[:, 0] += 0.5 / 8
    values = [np.clip(first, 0, 1), np.clip(second, 0, 1)]
    return {
        way: asked("curated_two_sample", values, epsilon, number, rng, dict(chosen)).reject
        for way, chosen in SAMPLE_WAYS.items()
        if way != "table" or d <= 5
    }


@functools.cache
def population(law: str) -> Floats:
    """Return many rows of a law, whose shares of cells stand for its own."""
    return rows(law, 400_000, np.random.default_rng(0))


def held(law: str, result: Any) -> Answers:
    """Say how often intervals hold what they estimate: the measures of the population's cells."""
    (release,) = result.source.releases.values()
    names = list(result.labels["owner-0"])
    codes = {}
    for name in names:
        cuts = np.array(release.cuts[name]) / GRIDS[len(release.cuts[name]) + 1]
        codes[name] = np.searchsorted(cuts, population(law)[:, int(name[1:])], side="right")
    found: dict[str, float] = {}
    pairs = {(pair.first, pair.second): pair for pair in result.pairs}
    for first, second in combinations(names, 2):
        pair = pairs.get((first, second))
        if pair is None or found:
            continue
        k = len(result.labels["owner-0"][first])
        shares = np.bincount(codes[first] * k + codes[second], minlength=k * k).reshape(k, k) / 400_000
        if min(shares.sum(axis=0).min(), shares.sum(axis=1).min()) == 0:
            continue  # nobody is in a cell, which was joined with another
        for name, interval, true in (
            ("rank correlation", pair.correlation_interval, cell_rank_correlation),
            ("Cramér's V", pair.cramers_v_interval, cell_cramers_v),
            ("distance correlation", pair.interval, cell_distance_correlation),
        ):
            if interval is not None:
                found[f"{name} held"] = interval[0] <= true(shares) <= interval[1]
                found[f"{name} width"] = interval[1] - interval[0]
    return found


def null_rows(kind: str, d: int, n: int, rng: np.random.Generator) -> list[Floats]:
    """Draw owners' independent columns."""
    x = normal(n, d, rng)
    if kind == "skewed":
        return [np.clip(np.exp(x) / 20, 0, 1)]
    if kind == "tied":
        return [np.floor(3 * rng.random((n, d))) / 2]
    if kind == "rare":
        return [(rng.random((n, d)) < 0.03).astype(float)]
    if kind == "constant":
        return [np.column_stack([np.full(n, 0.5), *rng.random((d - 1, n))])]
    if kind == "two owners":
        # Owners differ in all columns: in a pool they would depend on each other.
        first, second = x[: n // 4], x[n // 4 :]
        return [np.clip(0.3 + first / 12, 0, 1), np.clip(0.7 + second / 6, 0, 1)]
    return [np.clip(0.5 + x / 6, 0, 1)]


def level_run(kind: str, d: int, n: int, epsilon: float, number: int) -> Answers:
    """Ask of independent columns."""
    rng = np.random.default_rng([n, round(1000 * epsilon), d, number, len(kind)])
    values = null_rows(kind, d, n, rng)
    chosen = {"method": "table", "permutations": PERMUTATIONS}
    pvalue = asked("joint_independence", values, epsilon, number, rng, chosen).pvalue
    return {question("table", epsilon, level): pvalue <= level + 1e-12 for level in LEVELS}


def cells() -> list[Cell]:
    """List the cells: power, then level."""
    made = [
        Cell(f"power {law} n={n} ε={epsilon:g}", POWER_RUNS, functools.partial(power_run, law, n, epsilon))
        for law, n, epsilon in POWER
    ]
    made += [
        Cell(f"shift d={d} n={n} ε={epsilon:g}", POWER_RUNS, functools.partial(shift_run, d, n, epsilon))
        for d, n, epsilon in SHIFTS
    ]
    return made + [
        Cell(
            f"level {kind} d={d} n={n} ε={epsilon:g}",
            LEVEL_RUNS,
            functools.partial(level_run, kind, d, n, epsilon),
        )
        for kind, d, n, epsilon in NULLS
    ]


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    power, widths, levels, shifts = {}, {}, {}, {}
    for d, n, epsilon in SHIFTS:
        cell = f"shift d={d} n={n} ε={epsilon:g}"
        shifts[f"{d}, {n}, {epsilon:g}"] = {way: counts.shown(cell, way, ".2f") for way in SAMPLE_WAYS} | {
            "runs": str(counts.runs[cell])
        }
    for law, n, epsilon in POWER:
        cell, head = f"power {law} n={n} ε={epsilon:g}", f"{law}, {n}, {epsilon:g}"
        power[head] = {way: counts.shown(cell, way, ".2f") for way in WAYS} | {"runs": str(counts.runs[cell])}
        widths[head] = {
            f"{name}, {what}": counts.shown(cell, f"{name} {what}", ".2f")
            for name in ("rank correlation", "Cramér's V", "distance correlation")
            for what in ("held", "width")
        }
    for kind, d, n, epsilon in NULLS:
        cell = f"level {kind} d={d} n={n} ε={epsilon:g}"
        levels[f"{kind}, {d}, {n}, {epsilon:g}"] = {
            f"{level:g}": counts.shown(cell, question("table", epsilon, level), ".3f") for level in LEVELS
        } | {"runs": str(counts.runs[cell])}
    return {
        "power": table(power, "law, units, ε"),
        "shifts": table(shifts, "columns, units a sample, ε"),
        "level": level_statement(counts) + table(levels, "columns, how many, units, ε"),
        "coverage": table({head: row for head, row in widths.items() if any(row.values())}, "law, units, ε"),
    }


BENCHMARKS = (Benchmark("quantile-tables", cells, parts),)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
