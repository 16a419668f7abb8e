"""Randomised answers between two owners: power beside other methods, level, and what intervals cover.

    python -m benchmarks.answers      # everything; continues where it stopped
    python -m benchmarks.answers --runs 0.1 --cells level --folder /tmp/glance

Power: ``tacit.local.distance_correlation``, with noise of the operating system, as it comes (nothing planned)
and with so many cells, in one round, and the sketch; of the same rows the naive ways: at a curator ten
blocks, a permutation test of the distance covariance at .2 in each, and Laplace noise on the number of those
that reject; and the permutation test without privacy. Level: the procedure itself, with simulated noise of
the same laws (``tacit.planning.simulation.SimulatedNoise``).
"""

import functools
import math
from itertools import product
from typing import Any, Literal

import numpy as np

import tacit.local
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
from tacit.results import AnsweredCorrelationResult
from tacit_protocol.numerics.distance_covariance import distance_covariance_sqr
from tacit_protocol.numerics.randomised_tables import (
    cell_cramers_v,
    cell_distance_correlation,
    cell_rank_correlation,
)
from tacit_protocol.procedures.discovery import procedure_named

DELTA, LEVEL, PERMUTATIONS = 1e-5, 0.05, 199

POWER = (
    ("linear", 300, 1.0),
    ("linear", 1000, 1.0),
    ("linear", 5000, 0.5),
    ("linear", 20_000, 0.1),
    ("quadratic", 500, 1.0),
    ("quadratic", 1000, 1.0),
    ("quadratic", 5000, 0.5),
    ("correlation .3", 1000, 1.0),
    ("correlation .3", 5000, 1.0),
    ("correlation .3", 5000, 0.5),
    ("circle", 1000, 1.0),
    ("circle", 2000, 1.0),
    ("log-normal", 500, 1.0),
    ("log-normal", 5000, 0.5),
)
POWER_RUNS = 100

PLANNED = ("default", "two rounds, 2 cells", "two rounds, 3 cells")
"""The ways between which the planner chooses: the second and third of them."""

WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "two rounds, 2 cells": {"method": "two-round", "categories": 2},
    "two rounds, 3 cells": {"method": "two-round", "categories": 3},
    "one round": {"method": "one-round"},
    "sketch": {"method": "sketch", "delta": DELTA},
}

STATED: dict[str, tuple[float, Literal["linear", "quadratic"]]] = {
    "linear": (0.91, "linear"),
    "quadratic": (0.95, "quadratic"),
    "correlation .3": (0.3, "linear"),
    "log-normal": (0.5, "linear"),
}
"""What an analyst states who plans: the law's correlation, or that of its square. A circle is neither."""

PLANNED_RUNS = 200

VOTES, VOTE_LEVEL, VOTE_PERMUTATIONS = 10, 0.2, 19
PUBLIC_UNITS_MAX, PUBLIC_PERMUTATIONS = 5000, 39

NULLS = (
    *(
        ("uniform", n, epsilon)
        for n, epsilon in product((20, 100, 300, 1000, 5000, 50_000), (0.1, 1.0, 10.0))
    ),
    *(("skewed", n, epsilon) for n, epsilon in product((20, 300, 5000), (0.1, 1.0, 10.0))),
    *(("rare and tied", n, epsilon) for n, epsilon in product((100, 1000, 50_000), (0.1, 1.0, 10.0))),
    *(("constant", 300, epsilon) for epsilon in (0.1, 1.0, 10.0)),
    *(("two columns each", n, epsilon) for n, epsilon in product((300, 3000), (1.0, 10.0))),
    *(("1 or 20 rows a unit", 100, epsilon) for epsilon in (1.0, 10.0)),
    *(("a group and a number", n, epsilon) for n, epsilon in ((100, 1.0), (1000, 1.0), (1000, 10.0))),
)
LEVEL_RUNS = 2000
LEVELS = (0.05, 0.01)


def rows(law: str, n: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw both columns, in [0, 1]."""
    x, e = rng.random(n), rng.standard_normal(n)
    if law == "linear":
        y = x + 0.13 * e
    elif law == "quadratic":
        y = (2 * x - 1) ** 2 + 0.1 * e
    elif law == "circle":
        x, y = 0.5 + 0.4 * np.cos(2 * np.pi * x), 0.5 + 0.4 * np.sin(2 * np.pi * x)
    else:
        rho = 0.3 if law == "correlation .3" else 0.5
        u = rng.standard_normal(n)
        v = rho * u + math.sqrt(1 - rho**2) * e
        x, y = (0.5 + u / 6, 0.5 + v / 6) if law == "correlation .3" else (np.exp(u) / 20, np.exp(v) / 20)
    return np.clip(x, 0, 1), np.clip(y, 0, 1)


@functools.cache
def population(law: str) -> tuple[Floats, Floats]:
    """Return many rows of a law, whose shares of cells stand for its own."""
    return rows(law, 400_000, np.random.default_rng(0))


def power_run(law: str, n: int, epsilon: float, number: int) -> Answers:
    """Ask in every way of the same rows."""
    rng = np.random.default_rng([n, round(1000 * epsilon), number])
    x, y = rows(law, n, rng)
    found: dict[str, float] = {}
    for way, chosen in WAYS.items():
        result = tacit.local.distance_correlation(
            x, y, epsilon=epsilon, bounds=(0, 1), n_permutations=PERMUTATIONS, seed=number, **chosen
        )
        found[way] = result.reject
        if way == "default" and isinstance(result, AnsweredCorrelationResult):
            found |= _covered(law, result)
    found["votes"] = votes(x, y, epsilon, rng)
    if n <= PUBLIC_UNITS_MAX:
        found["no privacy"] = _permuted(x, y, PUBLIC_PERMUTATIONS, rng) <= LEVEL
    return found


def choice_run(law: str, n: int, epsilon: float, number: int) -> Answers:
    """Let the planner choose, told the effect and no row: which of the ways it takes."""
    size, shape = STATED[law]
    candidates = [way for way in PLANNED if way != "default"]
    chosen = tacit.local.plan_choice(
        n,
        epsilon=epsilon,
        delta=0.0,
        procedure="distance_correlation",
        columns=["x", "y"],
        bounds=(0, 1),
        effect=size,
        shape=shape,
        permutations=PERMUTATIONS,
        candidates=[WAYS[way] for way in candidates],
        runs=PLANNED_RUNS,
        seed=number + 1,
    )
    return {way: chosen.best == WAYS[way] for way in candidates}


def _planned(counts: Counts, law: str, n: int, epsilon: float) -> str | None:
    """Return the way that the planner chose; of no stated effect the default, None where it was not asked."""
    cell = f"choice {law} n={n} ε={epsilon:g}"
    if law in STATED and not counts.runs[cell]:
        return None
    return next((way for way in PLANNED if counts.hits.get((cell, way))), "default")


def _covered(law: str, result: AnsweredCorrelationResult) -> Answers:
    """Say whether intervals hold what they estimate: the measures of the population's cells."""
    if any("joined" in warning for warning in result.warnings):
        return {}
    codes = []
    for values, release in zip(population(law), result.source.releases.values(), strict=True):
        (cuts,) = release.cuts.values()
        steps = 128 if len(cuts) < 3 else 64
        codes.append(np.searchsorted(np.array(cuts) / steps, values, side="right"))
    sizes = [len(labels) for labels in result.labels]
    shares = np.bincount(codes[0] * sizes[1] + codes[1], minlength=math.prod(sizes)).reshape(sizes)
    held: dict[str, float] = {}
    for name, interval, true in (
        ("distance correlation", result.interval, cell_distance_correlation),
        ("Cramér's V", result.cramers_v_interval, cell_cramers_v),
        ("rank correlation", result.correlation_interval, cell_rank_correlation),
    ):
        if interval is not None:
            held[f"{name} held"] = interval[0] <= true(shares / shares.sum()) <= interval[1]
            held[f"{name} width"] = interval[1] - interval[0]
    return held


def _permuted(x: Floats, y: Floats, permutations: int, rng: np.random.Generator) -> float:
    """Return the p-value of a permutation test of the distance covariance."""
    own = distance_covariance_sqr(x, y)
    above = sum(distance_covariance_sqr(x, rng.permutation(y)) >= own for _ in range(permutations))
    return (1 + above) / (permutations + 1)


def votes(x: Floats, y: Floats, epsilon: float, rng: np.random.Generator) -> bool:
    """Count the blocks that reject, add noise, and compare with the law of blind ones, exactly."""
    blocks = np.array_split(rng.permutation(len(x)), VOTES)
    own = sum(_permuted(x[b], y[b], VOTE_PERMUTATIONS, rng) <= VOTE_LEVEL for b in blocks)
    stop = -math.expm1(-epsilon)
    noisy = own + rng.geometric(stop) - rng.geometric(stop)
    draws = rng.binomial(VOTES, VOTE_LEVEL, 20_000) + rng.geometric(stop, (2, 20_000))[0]
    draws -= rng.geometric(stop, 20_000)
    return bool(np.mean(draws >= noisy) <= LEVEL)


def null_rows(kind: str, n: int, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Draw independent columns of either owner, and their rows' units."""
    x, y = rng.random(n), rng.random(n)
    if kind == "skewed":
        return np.exp(rng.standard_normal(n)) / 20, np.exp(1.5 * rng.standard_normal(n)) / 20, None
    if kind == "rare and tied":
        return (x < 0.02).astype(float), np.where(rng.random(n) < 0.9, 0.0, y), None
    if kind == "constant":
        return np.full(n, 0.5), y, None
    if kind == "two columns each":
        return rng.random((n, 2)), rng.random((n, 2)), None
    if kind == "1 or 20 rows a unit":
        unit = np.repeat(np.arange(n), rng.choice([1, 20], n))
        return rng.random(len(unit)), rng.random(len(unit)), unit
    if kind == "a group and a number":
        return np.where(x < 0.3, "a", "b").astype(object), y, None
    return x, y, None


def level_run(kind: str, n: int, epsilon: float, number: int) -> Answers:
    """Ask of independent columns, in two rounds and in one."""
    rng = np.random.default_rng([n, round(1000 * epsilon), number, len(kind)])
    x, y, unit = null_rows(kind, n, rng)
    bounds: dict[str, Any] = {}
    sides = []
    for name, values in (("x", x), ("y", y)):
        columns = [values] if values.ndim == 1 else list(values.T)
        sides.append({f"{name}{place}": column for place, column in enumerate(columns)})
        bounds |= {own: ["a", "b"] if values.dtype == object else (0, 1) for own in sides[-1]}
    domain = domain_of(bounds, list(bounds))
    found: dict[str, float] = {}
    for method in ("two-round", "one-round"):
        study = local_study(
            "distance_correlation",
            domain,
            ("x-owner", "y-owner"),
            {"method": method, "permutations": PERMUTATIONS},
            **terms(epsilon, 0.0, LEVEL, number),
            columns=[tuple(side) for side in sides],
        )
        tables = [
            ArrayTable.of(Sample(side), study.domain_of(owner), unit)
            for side, owner in zip(sides, study.owners, strict=True)
        ]
        result = run(procedure_named(study.procedure), study, tables, SimulatedNoise(rng))
        pvalue = result.verdict["pvalue"]
        found |= {question(method, epsilon, level): pvalue <= level + 1e-12 for level in LEVELS}
    return found


def cells() -> list[Cell]:
    """List the cells: power, then level."""
    made = [
        Cell(f"power {law} n={n} ε={epsilon:g}", POWER_RUNS, functools.partial(power_run, law, n, epsilon))
        for law, n, epsilon in POWER
    ]
    made += [
        Cell(f"choice {law} n={n} ε={epsilon:g}", 1, functools.partial(choice_run, law, n, epsilon))
        for law, n, epsilon in POWER
        if law in STATED
    ]
    return made + [
        Cell(f"level {kind} n={n} ε={epsilon:g}", LEVEL_RUNS, functools.partial(level_run, kind, n, epsilon))
        for kind, n, epsilon in NULLS
    ]


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    power, widths, levels = {}, {}, {}
    for law, n, epsilon in POWER:
        cell, head = f"power {law} n={n} ε={epsilon:g}", f"{law}, {n}, {epsilon:g}"
        ways = (*WAYS, "votes", "no privacy")
        planned = _planned(counts, law, n, epsilon)
        power[head] = {way: counts.shown(cell, way, ".2f") for way in ways} | {
            "planned": "" if planned is None else counts.shown(cell, planned, ".2f"),
            "runs": str(counts.runs[cell]),
        }
        widths[head] = {
            f"{name}, {what}": counts.shown(cell, f"{name} {what}", ".2f")
            for name in ("distance correlation", "Cramér's V", "rank correlation")
            for what in ("held", "width")
        }
    for kind, n, epsilon in NULLS:
        cell = f"level {kind} n={n} ε={epsilon:g}"
        asked = {
            f"{method}, {level:g}": question(method, epsilon, level)
            for method in ("two-round", "one-round")
            for level in LEVELS
        }
        levels[f"{kind}, {n}, {epsilon:g}"] = {
            head: counts.shown(cell, own, ".3f") for head, own in asked.items()
        } | {"runs": str(counts.runs[cell])}
    held = [
        f"{name} {counts_held(counts, name)}"
        for name in ("distance correlation", "Cramér's V", "rank correlation")
    ]
    return {
        "power": table(power, "law, units, ε"),
        "level": level_statement(counts) + table(levels, "columns, units, ε"),
        "held": f"Of all runs together intervals at 95 % held: {', '.join(held)}.",
        "coverage": table(widths, "law, units, ε"),
    }


def counts_held(counts: Counts, name: str) -> str:
    """Say in which part of all runs an interval held what it estimates, and of how many."""
    own = [key for key in counts.answered if key[1] == f"{name} held"]
    asked, hits = sum(counts.answered[key] for key in own), sum(counts.hits[key] for key in own)
    return f"{hits / asked:.3f} ({asked:.0f})" if asked else "not run"


BENCHMARKS = (Benchmark("randomised-answers", cells, parts),)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
