"""Dependence by randomised answers and by tables of cells: power beside other methods, level, and intervals.

    python -m benchmarks.dependence      # all pages; continues where it stopped
    python -m benchmarks.dependence --page quantile-tables --runs 0.1 --cells level --folder /tmp/glance

Randomised answers, between two owners. Power: ``tacit.local.distance_correlation``, with noise of the
operating system, as it comes (nothing planned) and with so many cells, in one round, and the sketch; of the
same rows the naive ways: at a curator ten blocks, a permutation test of the distance covariance at .2 in
each, and Laplace noise on the number of those that reject; and the permutation test without privacy.

Quantile tables, where one party holds all columns: permutations, votes of blocks, and one noisy table; beside
them the naive ``noisy 4 x 4``, counts of equal public cells of two columns with Laplace noise of 2/epsilon,
and the test of such a table by simulation.

Mutual independence, of three owners and more: two rounds and one; beside every pair in a study of its own
with its part of epsilon (Bonferroni), each owner's randomised answer whether it is above the middle, given or
bought, with chi-squared tests of complete independence or of every pair, and that test of thirds without
privacy.

Levels, and all but the power of randomised answers, are the procedures themselves with simulated noise of
their laws (``tacit.planning.simulation.SimulatedNoise``). All methods have the same rows, in [0, 1].
"""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations, product
from typing import Any, Literal

import numpy as np
from scipy.special import chdtrc

import tacit.local
from benchmarks.harness import (
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    cells_for,
    level_statement,
    main,
    question,
    table,
)
from tacit.in_process.runner import local_study, run, terms
from tacit.in_process.samples import ArrayTable, Sample, domain_of
from tacit.planning.simulation import SimulatedNoise
from tacit.results import AnsweredCorrelationResult
from tacit_protocol.domain import NumericColumn
from tacit_protocol.features.private_cells import GRIDS, ColumnCells
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.distance_covariance import distance_covariance_sqr
from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable
from tacit_protocol.numerics.randomised_tables import (
    cell_cramers_v,
    cell_distance_correlation,
    cell_rank_correlation,
)
from tacit_protocol.procedures.base import Procedure
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.independence_table import independence_test
from tacit_protocol.procedures.randomised_answers import answers
from tacit_protocol.procedures.randomised_answers.answers import fitted_part

DELTA, LEVEL, PERMUTATIONS = 1e-5, 0.05, 199
POWER_RUNS, LEVEL_RUNS, LEVELS = 100, 2000, (0.05, 0.01)

MEASURES = {
    "distance correlation": cell_distance_correlation,
    "Cramér's V": cell_cramers_v,
    "rank correlation": cell_rank_correlation,
}
"""What intervals are of, and what they hold where they are right: the measure of the population's cells."""

POWER_CELL = "power {} n={} ε={:g}"


def normal(n: int, d: int, rng: np.random.Generator) -> Floats:
    """Draw independent standard normal columns."""
    return rng.standard_normal((n, d))


def chain(n: int, d: int, rng: np.random.Generator, rho: float = 0.5) -> Floats:
    """Draw columns each of which has that correlation with the one before."""
    x = normal(n, d, rng)
    for column in range(1, d):
        x[:, column] = rho * x[:, column - 1] + math.sqrt(1 - rho**2) * x[:, column]
    return x


def rows(law: str, n: int, rng: np.random.Generator) -> Floats:
    """Draw columns, (n, d) in [0, 1]."""
    if law == "correlation .3":
        found = 0.5 + chain(n, 2, rng, 0.3) / 6
    elif law.startswith("chain of"):
        found = 0.5 + chain(n, int(law[-1]), rng) / 6
    elif law == "pairwise independent":
        x = normal(n, 3, rng)
        x[:, 2] = np.abs(x[:, 2]) * np.sign(x[:, 0] * x[:, 1]) * np.where(rng.random(n) < 0.9, 1, -1)
        found = 0.5 + x / 8
    elif law == "log-normal":
        found = np.exp(chain(n, 2, rng)) / 20
    elif law in ("linear", "quadratic"):
        u, e = rng.random(n), rng.standard_normal(n)
        found = np.column_stack([u, u + 0.13 * e if law == "linear" else (2 * u - 1) ** 2 + 0.1 * e])
    elif law in ("circle", "noisy circle"):
        turn = 2 * np.pi * rng.random(n)
        found = 0.5 + 0.4 * np.column_stack([np.cos(turn), np.sin(turn)])
        found += 0.02 * (law == "noisy circle") * normal(n, 2, rng)
    elif law.startswith("a ring in"):
        turn = 2 * np.pi * rng.random(n)
        found = 0.5 + 0.4 * np.column_stack([np.cos(turn), np.sin(turn)])
        others = rng.random(n) >= float(law.split()[3])
        found[others] = rng.uniform(0.1, 0.9, (int(others.sum()), 2))
    elif law == "four with a common cause":
        found = 0.5 + (math.sqrt(0.3) * normal(n, 1, rng) + math.sqrt(0.7) * normal(n, 4, rng)) / 8
    elif law == "a group and a number":
        group = rng.random(n) < 0.4
        found = np.column_stack([group, 0.5 + (0.5 * group + rng.standard_normal(n)) / 8])
    else:
        width = 10 if law.endswith("10") else 2
        found = 0.5 + (0.5 * normal(n, 1, rng) + math.sqrt(0.75) * normal(n, 2 * width, rng)) / 8
    return np.clip(found, 0, 1)


@functools.cache
def population(law: str) -> Floats:
    """Return many rows of a law, whose shares of cells stand for its own."""
    return rows(law, 400_000, np.random.default_rng(0))


def held(
    law: str, places: Sequence[int], cuts: Sequence[Floats], sizes: Sequence[int], intervals: Sequence[Any]
) -> Answers:
    """Say whether intervals of MEASURES hold those of the population's cells, and how wide they are.

    ``cuts`` end two columns' cells, ``sizes`` are how many there are. Nothing is said where nobody is in a
    cell, which was joined with another.
    """
    x = population(law)
    first, second = (np.searchsorted(c, x[:, p], side="right") for p, c in zip(places, cuts, strict=True))
    shares = np.bincount(first * sizes[1] + second, minlength=math.prod(sizes)).reshape(sizes) / len(x)
    if min(shares.sum(axis=0).min(), shares.sum(axis=1).min()) == 0:
        return {}
    found: dict[str, float] = {}
    for (name, true), interval in zip(MEASURES.items(), intervals, strict=True):
        if interval is not None:
            found[f"{name} held"] = interval[0] <= true(shares) <= interval[1]
            found[f"{name} width"] = interval[1] - interval[0]
    return found


def posed(
    procedure: str,
    sides: Sequence[Mapping[str, Any]],
    epsilon: float,
    number: int,
    chosen: Mapping[str, Any],
    *,
    delta: float = 0.0,
    apart: bool = False,
    unit: Any = None,
) -> tuple[Procedure, Study, list[ArrayTable]]:
    """Return one study of owners' columns by name, and their tables, each side its own where ``apart``."""
    columns = {name: values for side in sides for name, values in side.items()}
    known = {name: ["a", "b"] if values.dtype == object else (0, 1) for name, values in columns.items()}
    study = local_study(
        procedure,
        domain_of(known, list(known)),
        [f"owner-{place}" for place in range(len(sides))],
        chosen,
        **terms(epsilon, delta, LEVEL, number),
        curated=procedure == "curated_two_sample",
        columns=[tuple(side) for side in sides] if apart else None,
    )
    tables = [
        ArrayTable.of(Sample(side), study.domain_of(owner), unit)
        for side, owner in zip(sides, study.owners, strict=True)
    ]
    declared = [
        owner.model_copy(update={"units": own.units}) for owner, own in zip(study.owners, tables, strict=True)
    ]
    study = study if apart else study.model_copy(update={"owners": tuple(declared)})
    named = procedure_named(procedure)
    return named, named.with_defaults(study), tables


def asked(
    procedure: str,
    sides: Sequence[Mapping[str, Any]],
    epsilon: float,
    number: int,
    rng: np.random.Generator,
    chosen: Mapping[str, Any],
    **more: Any,
) -> Any:
    """Run the study that ``posed`` makes of the same, with simulated noise."""
    named, study, tables = posed(procedure, sides, epsilon, number, chosen, **more)
    return run(named, study, tables, SimulatedNoise(rng))


def named_columns(values: Floats, name: str = "x") -> dict[str, Floats]:
    """Return columns, (n, d), by name."""
    return {f"{name}{place}": column for place, column in enumerate(values.T)}


def power_rows(
    counts: Counts, settings: Iterable[tuple[str, int, float]], ways: Iterable[str], form: str = POWER_CELL
) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]]:
    """Return rows of the powers, and of what intervals hold, by law, units and epsilon."""
    power, widths = {}, {}
    for law, n, epsilon in settings:
        cell, head = form.format(law, n, epsilon), f"{law}, {n}, {epsilon:g}"
        power[head] = {way: counts.shown(cell, way, ".2f") for way in ways}
        power[head] |= {"runs": str(counts.runs[cell])}
        widths[head] = {
            f"{name}, {what}": counts.shown(cell, f"{name} {what}", ".2f")
            for name in MEASURES
            for what in ("held", "width")
        }
    return power, widths


def level_rows(
    counts: Counts, form: str, settings: Iterable[tuple[Any, ...]], methods: Sequence[str]
) -> dict[str, dict[str, str]]:
    """Return rows of the rates at LEVELS; the last of a setting is epsilon."""
    found = {}
    for setting in settings:
        cell, *head = form.format(*setting), *map(str, setting[:-1])
        found[", ".join([*head, f"{setting[-1]:g}"])] = {
            (f"{method}, " if len(methods) > 1 else "") + f"{level:g}": counts.shown(
                cell, question(method, setting[-1], level), ".3f"
            )
            for method, level in product(methods, LEVELS)
        } | {"runs": str(counts.runs[cell])}
    return found


# Randomised answers.

ANSWERED = (
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

WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "two rounds, 2 cells": {"method": "two-round", "categories": 2},
    "two rounds, 3 cells": {"method": "two-round", "categories": 3},
    "one round": {"method": "one-round"},
    "sketch": {"method": "sketch", "delta": DELTA},
}
PLANNED = tuple(WAYS)[:3]
"""The ways between which the planner chooses: the second and third of them."""

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

ANSWER_NULLS = (
    *product(("uniform",), (20, 100, 300, 1000, 5000, 50_000), (0.1, 1.0, 10.0)),
    *product(("skewed",), (20, 300, 5000), (0.1, 1.0, 10.0)),
    *product(("rare and tied",), (100, 1000, 50_000), (0.1, 1.0, 10.0)),
    *product(("constant",), (300,), (0.1, 1.0, 10.0)),
    *product(("two columns each",), (300, 3000), (1.0, 10.0)),
    *product(("1 or 20 rows a unit",), (100,), (1.0, 10.0)),
    *(("a group and a number", n, epsilon) for n, epsilon in ((100, 1.0), (1000, 1.0), (1000, 10.0))),
)
FITTED: dict[str, Any] = {"cuts": "fitted", "permutations": PERMUTATIONS}
"""What new studies ask for, and few simulations."""

ANSWER_LEVEL, ANSWER_METHODS = "level {} n={} ε={:g}", ("two-round", "one-round")


def answers_run(law: str, n: int, epsilon: float, number: int) -> Answers:
    """Ask in every way of the same rows."""
    rng = np.random.default_rng([n, round(1000 * epsilon), number])
    x, y = rows(law, n, rng).T
    found: dict[str, float] = {}
    for way, chosen in WAYS.items():
        result = tacit.local.distance_correlation(
            x, y, epsilon=epsilon, bounds=(0, 1), n_permutations=PERMUTATIONS, seed=number, **chosen
        )
        found[way] = result.reject
        if way == "default" and isinstance(result, AnsweredCorrelationResult):
            found |= answered(law, result)
    found["votes"] = votes(x, y, epsilon, rng)
    if n <= PUBLIC_UNITS_MAX:
        found["no privacy"] = permuted(x, y, PUBLIC_PERMUTATIONS, rng) <= LEVEL
    return found


def answered(law: str, result: AnsweredCorrelationResult) -> Answers:
    """Say what the intervals hold, unless cells were joined."""
    if any("joined" in warning for warning in result.warnings):
        return {}
    steps = [np.array(c) for release in result.source.releases.values() for c in release.cuts.values()]
    cuts = [own / (128 if len(own) < 3 else 64) for own in steps]
    intervals = (result.interval, result.cramers_v_interval, result.correlation_interval)
    return held(law, (0, 1), cuts, [len(labels) for labels in result.labels], intervals)


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


def planned(counts: Counts, law: str, n: int, epsilon: float) -> str | None:
    """Return the way that the planner chose; of no stated effect the default, None where it was not asked."""
    cell = f"choice {law} n={n} ε={epsilon:g}"
    if law in STATED and not counts.runs[cell]:
        return None
    return next((way for way in PLANNED if counts.hits.get((cell, way))), "default")


def permuted(x: Floats, y: Floats, permutations: int, rng: np.random.Generator) -> float:
    """Return the p-value of a permutation test of the distance covariance."""
    own = distance_covariance_sqr(x, y)
    above = sum(distance_covariance_sqr(x, rng.permutation(y)) >= own for _ in range(permutations))
    return (1 + above) / (permutations + 1)


def votes(x: Floats, y: Floats, epsilon: float, rng: np.random.Generator) -> bool:
    """Count the blocks that reject, add noise, and compare with the law of blind ones, exactly."""
    blocks = np.array_split(rng.permutation(len(x)), VOTES)
    own = sum(permuted(x[b], y[b], VOTE_PERMUTATIONS, rng) <= VOTE_LEVEL for b in blocks)
    stop = -math.expm1(-epsilon)
    noisy = own + rng.geometric(stop) - rng.geometric(stop)
    draws = rng.binomial(VOTES, VOTE_LEVEL, 20_000) + rng.geometric(stop, (2, 20_000))[0]
    draws -= rng.geometric(stop, 20_000)
    return bool(np.mean(draws >= noisy) <= LEVEL)


def unlike_pairs(kind: str, n: int, rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """Draw independent columns of either owner, (n, d) each, and their rows' units."""
    x, y = rng.random((n, 1)), rng.random((n, 1))
    if kind == "skewed":
        return np.exp(normal(n, 1, rng)) / 20, np.exp(1.5 * normal(n, 1, rng)) / 20, None
    if kind == "rare and tied":
        return (x < 0.02).astype(float), np.where(rng.random((n, 1)) < 0.9, 0.0, y), None
    if kind == "constant":
        return np.full((n, 1), 0.5), y, None
    if kind == "two columns each":
        return rng.random((n, 2)), rng.random((n, 2)), None
    if kind == "1 or 20 rows a unit":
        unit = np.repeat(np.arange(n), rng.choice([1, 20], n))
        return rng.random((len(unit), 1)), rng.random((len(unit), 1)), unit
    return (np.where(x < 0.3, "a", "b").astype(object) if kind == "a group and a number" else x), y, None


def answers_level_run(kind: str, n: int, epsilon: float, number: int) -> Answers:
    """Ask of independent columns, in two rounds and in one."""
    rng = np.random.default_rng([n, round(1000 * epsilon), number, len(kind)])
    x, y, unit = unlike_pairs(kind, n, rng)
    sides, found = [named_columns(x), named_columns(y, "y")], dict[str, float]()
    for method in ANSWER_METHODS:
        chosen = FITTED | {"method": method}
        result = asked("distance_correlation", sides, epsilon, number, rng, chosen, apart=True, unit=unit)
        pvalue = result.verdict["pvalue"]
        found |= {question(method, epsilon, level): pvalue <= level + 1e-12 for level in LEVELS}
    return found


CUT_CELL, CUT_RUNS = "cuts {} n={} ε={:g}", 200
CUT_SHARES = (0.02, 0.035, 0.05, 0.075, 0.1, 0.15)
CUT_SETTINGS = (
    ("correlation .3", 5000, 0.5),
    ("correlation .3", 2500, 1.0),
    ("quadratic", 2500, 0.5),
    ("linear", 10_000, 0.1),
    ("circle", 700, 1.0),
    ("log-normal", 500, 1.0),
    ("linear", 200, 1.0),
)
"""Settings of the parts of epsilon that buy cuts: by units times epsilon, the largest first."""


def cuts_run(law: str, n: int, epsilon: float, number: int) -> Answers:
    """Ask in two rounds, with cells by public numbers, at several parts of epsilon for the cuts."""
    found, stated = dict[str, float](), answers.CUTS_PART
    for share in CUT_SHARES:
        rng = np.random.default_rng([n, round(1000 * epsilon), 1000 + number])
        x, y = (
            named_columns(own[:, None], name) for own, name in zip(rows(law, n, rng).T, "xy", strict=True)
        )
        chosen = {"method": "two-round", "permutations": PERMUTATIONS}
        answers.CUTS_PART = share
        try:
            result = asked("distance_correlation", [x, y], epsilon, 1000 + number, rng, chosen, apart=True)
        finally:
            answers.CUTS_PART = stated
        found[f"{share:g}"] = result.verdict["pvalue"] <= LEVEL
    return found


def answers_cells() -> list[Cell]:
    """List the cells: power, then level."""
    stated = [setting for setting in ANSWERED if setting[0] in STATED]
    made = cells_for(POWER_CELL, POWER_RUNS, answers_run, ANSWERED)
    made += cells_for("choice {} n={} ε={:g}", 1, choice_run, stated)
    made += cells_for(CUT_CELL, CUT_RUNS, cuts_run, CUT_SETTINGS)
    return made + cells_for(ANSWER_LEVEL, LEVEL_RUNS, answers_level_run, ANSWER_NULLS)


def answers_parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    power, widths = power_rows(counts, ANSWERED, (*WAYS, "votes", "no privacy"))
    for setting, row in zip(ANSWERED, power.values(), strict=True):
        way, runs = planned(counts, *setting), row.pop("runs")
        row |= {"planned": "" if way is None else counts.shown(POWER_CELL.format(*setting), way, ".2f")}
        row |= {"runs": runs}
    levels = level_rows(counts, ANSWER_LEVEL, ANSWER_NULLS, ANSWER_METHODS)
    cuts = {}
    for law, n, epsilon in CUT_SETTINGS:
        cell, part = CUT_CELL.format(law, n, epsilon), answers.fitted_part(n, epsilon)
        cuts[f"{law}, {n}, {epsilon:g}"] = {
            **{f"{share:.1%}": counts.shown(cell, f"{share:g}", ".2f") for share in CUT_SHARES},
            "fitted": f"{part:.1%}",
            "runs": str(counts.runs[cell]),
        }
    together = ", ".join(f"{name} {all_held(counts, name)}" for name in MEASURES)
    return {
        "power": table(power, "law, units, ε"),
        "cuts": table(cuts, "law, units, ε"),
        "level": level_statement(counts) + table(levels, "columns, units, ε"),
        "held": f"Of all runs together intervals at 95 % held: {together}.",
        "coverage": table(widths, "law, units, ε"),
    }


def all_held(counts: Counts, name: str) -> str:
    """Say in which part of all runs an interval held what it estimates, and of how many."""
    own = [key for key in counts.answered if key[1] == f"{name} held"]
    runs, hits = sum(counts.answered[key] for key in own), sum(counts.hits[key] for key in own)
    return f"{hits / runs:.3f} ({runs:.0f})" if runs else "not run"


# Quantile tables.

TABULATED = (
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
    ("a ring in .4 of the units", 500, 1.0),
    ("a ring in .4 of the units", 1000, 1.0),
    ("a ring in .5 of the units", 1000, 0.5),
)
"""Laws, units and epsilon: METHODS' own twelve first."""

TABLE_NULLS = (
    *((kind, 2, n, e) for kind in ("normal", "skewed", "tied") for n, e in ((300, 1.0), (1000, 0.3))),
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
    *((kind, 2, 400, 1.0) for kind in ("normal", "skewed", "tied", "rare")),
    *((kind, 2, 500, 1.0) for kind in ("normal", "skewed")),
    ("two owners", 2, 1000, 1.0),
    ("normal", 2, 5000, 0.3),
    ("skewed", 2, 1000, 0.7),
    *((kind, 3, 4000, 1.0) for kind in ("normal", "skewed")),
)
"""The last eleven have four cells a number, and noise of a variance of .31 to .8 n on all counts together."""
TABLE_LEVEL, SHIFT_CELL = "level {} d={} n={} ε={:g}", "shift d={} n={} ε={:g}"

BY_TABLE: dict[str, Any] = {"method": "table", "permutations": PERMUTATIONS}
OTHER_WAYS: dict[str, dict[str, Any]] = {
    "permutation": {"method": "permutation", "permutations": PERMUTATIONS},
    "votes": {"method": "aggregate"},
    "votes, distances": {"method": "aggregate", "kernel": "distance"},
}
TABLE_WAYS: dict[str, dict[str, Any]] = {
    "table": BY_TABLE,
    "auto": {"method": "auto", "permutations": PERMUTATIONS},
}
NAIVE = "noisy 4 x 4"
OF_TABLES, TABLE_RUNS = "tables, ", 400
"""How the names of cells begin whose runs, of the same rows, are asked by table and auto, and how many."""

GRID = tuple((d, n, e) for d in (2, 3) for n in (300, 1000, 3000) for e in (0.3, 0.5, 1.0, 3.0))
"""Variables, units, epsilon: a chain whose neighbours have correlation GRID_SIGNAL / sqrt(n)."""
GRID_SIGNAL = {2: 6.0, 3: 5.0}
GRID_CELL = "grid d={} n={} ε={:g}"

SHIFTS = ((1, 150, 1.0), (1, 500, 0.3), (3, 300, 1.0), (3, 1000, 0.3), (10, 500, 1.0), (10, 1000, 0.3))
"""Columns, units of either sample, epsilon: the first column is larger by half a standard deviation."""

OTHER_SAMPLE_WAYS: dict[str, dict[str, Any]] = {
    "means": {},
    "permutation": {"release": "permutation", "features": "kernel", "permutations": PERMUTATIONS},
    "votes": {"release": "aggregate"},
    "auto": {"release": "auto", "permutations": PERMUTATIONS},
}
SAMPLE_TABLE: dict[str, dict[str, Any]] = {"table": {"release": "table", "permutations": PERMUTATIONS}}


def tables_run(ways: Mapping[str, dict[str, Any]], law: str, n: int, epsilon: float, number: int) -> Answers:
    """Ask in those ways of the same rows."""
    rng = np.random.default_rng([n, round(1000 * epsilon), number])
    drawn = "noisy circle" if law == "circle" else law
    side = named_columns(rows(drawn, n, rng))
    names, found = list(side), dict[str, float]()
    half = len(names) // 2
    groups = {"groups": [names[:half], names[half:]]} if law.startswith("two vectors") else {}
    for way, chosen in ways.items():
        if way == "table" and law.endswith("10"):
            continue
        result = asked("joint_independence", [side], epsilon, number, rng, chosen | groups)
        found[way] = result.reject
        if way == "table":
            found |= tabulated(drawn, result)
    return found


def naive_run(law: str, n: int, epsilon: float, number: int) -> Answers:
    """Ask of the same rows of two columns by a noisy table of four by four equal cells."""
    rng, noise = np.random.default_rng([n, round(1000 * epsilon), number]), CellNoise("laplace", 2 / epsilon)
    drawn = "noisy circle" if law == "circle" else law
    first, second = np.minimum((4 * rows(drawn, n, rng)).astype(int), 3).T
    counts = np.bincount(4 * first + second, minlength=16) + noise.draw(rng, (16,))
    seed = np.random.SeedSequence(number)
    pvalue = independence_test(NoisyTable(counts, n, (noise,)), (4, 4), PERMUTATIONS, seed).pvalue
    return {NAIVE: pvalue <= LEVEL}


def tabulated(law: str, result: Any) -> Answers:
    """Say what the intervals of the first pair that is told hold."""
    (release,) = result.source.releases.values()
    labels = result.labels["owner-0"]
    pairs = {(pair.first, pair.second): pair for pair in result.pairs}
    for names in combinations(labels, 2):
        if (pair := pairs.get(names)) is None:
            continue
        cuts = [np.array(release.cuts[name]) / GRIDS[len(release.cuts[name]) + 1] for name in names]
        intervals = (pair.interval, pair.cramers_v_interval, pair.correlation_interval)
        sizes, places = [len(labels[name]) for name in names], [int(name[1:]) for name in names]
        if found := held(law, places, cuts, sizes, intervals):
            return found
    return {}


def grid_run(ways: Mapping[str, dict[str, Any]], d: int, n: int, epsilon: float, number: int) -> Answers:
    """Ask in those ways of a chain of weak dependences."""
    rng = np.random.default_rng([n, round(1000 * epsilon), d, number, 1])
    side = named_columns(np.clip(0.5 + chain(n, d, rng, GRID_SIGNAL[d] / math.sqrt(n)) / 6, 0, 1))
    return {
        way: asked("joint_independence", [side], epsilon, number, rng, chosen).reject
        for way, chosen in ways.items()
    }


def shift_run(ways: Mapping[str, dict[str, Any]], d: int, n: int, epsilon: float, number: int) -> Answers:
    """Compare two samples at a curator in those ways."""
    rng = np.random.default_rng([n, round(1000 * epsilon), d, number])
    first, second = normal(n, d, rng) / 8 + 0.5, normal(n, d, rng) / 8 + 0.5
    second[:, 0] += 0.5 / 8
    sides = [named_columns(np.clip(sample, 0, 1)) for sample in (first, second)]
    return {
        way: asked("curated_two_sample", sides, epsilon, number, rng, chosen, delta=DELTA).reject
        for way, chosen in ways.items()
        if way != "table" or d <= 5
    }


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


def tables_level_run(kind: str, d: int, n: int, epsilon: float, number: int) -> Answers:
    """Ask of independent columns."""
    rng = np.random.default_rng([n, round(1000 * epsilon), d, number, len(kind)])
    sides = [named_columns(values) for values in null_rows(kind, d, n, rng)]
    pvalue = asked("joint_independence", sides, epsilon, number, rng, BY_TABLE).pvalue
    found = {question("table", epsilon, level): pvalue <= level + 1e-12 for level in LEVELS}
    automatic = asked("joint_independence", sides, epsilon, number, rng, TABLE_WAYS["auto"]).reject
    return found | {question("auto", epsilon, LEVELS[0]): automatic}


def tables_cells() -> list[Cell]:
    """List the cells: power, then level."""
    made: list[Cell] = []
    for form, run_of, settings, others, ways in (
        (POWER_CELL, tables_run, TABULATED, OTHER_WAYS, TABLE_WAYS),
        (SHIFT_CELL, shift_run, SHIFTS, OTHER_SAMPLE_WAYS, SAMPLE_TABLE),
        (GRID_CELL, grid_run, GRID, OTHER_WAYS, TABLE_WAYS),
    ):
        made += cells_for(form, TABLE_RUNS, functools.partial(run_of, others), settings)
        made += cells_for(OF_TABLES + form, TABLE_RUNS, functools.partial(run_of, ways), settings)
    of_two = [one for one in TABULATED if rows(one[0], 2, np.random.default_rng(0)).shape[1] == 2]
    made += cells_for(f"{NAIVE}, {POWER_CELL}", TABLE_RUNS, naive_run, of_two)
    return made + cells_for(TABLE_LEVEL, LEVEL_RUNS, tables_level_run, TABLE_NULLS)


def tables_parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    _, widths = power_rows(counts, TABULATED, TABLE_WAYS, OF_TABLES + POWER_CELL)
    order = [f"{name}, {what}" for name in reversed(MEASURES) for what in ("held", "width")]
    covered = {head: {name: row[name] for name in order} for head, row in widths.items() if any(row.values())}
    rows_of: dict[str, dict[str, dict[str, str]]] = {POWER_CELL: {}, GRID_CELL: {}, SHIFT_CELL: {}}
    for form, settings, others, ways in (
        (POWER_CELL, TABULATED, OTHER_WAYS, TABLE_WAYS),
        (GRID_CELL, GRID, OTHER_WAYS, TABLE_WAYS),
        (SHIFT_CELL, SHIFTS, OTHER_SAMPLE_WAYS, SAMPLE_TABLE),
    ):
        for setting in settings:
            cell, *head = form.format(*setting), *map(str, setting[:-1])
            row = {way: counts.shown(cell, way, ".2f") for way in others}
            row |= {NAIVE: counts.shown(f"{NAIVE}, {cell}", NAIVE, ".2f")} if form == POWER_CELL else {}
            row |= {way: counts.shown(OF_TABLES + cell, way, ".2f") for way in ways}
            runs = f"{counts.runs[cell]}, {counts.runs[OF_TABLES + cell]}"
            rows_of[form][", ".join([*head, f"{setting[-1]:g}"])] = row | {"runs": runs}
    levels = level_rows(counts, TABLE_LEVEL, TABLE_NULLS, ("table",))
    return {
        "power": table(rows_of[POWER_CELL], "law, units, ε"),
        "grid": table(rows_of[GRID_CELL], "columns, units, ε"),
        "shifts": table(rows_of[SHIFT_CELL], "columns, units a sample, ε"),
        "level": level_statement(counts) + table(levels, "columns, how many, units, ε"),
        "coverage": table(covered, "law, units, ε"),
    }


# Three owners and more.

JOINT = (
    ("one pair of 3", 2000, 1.0),
    ("one pair of 3", 1000, 2.0),
    ("one pair of 3", 10_000, 0.5),
    ("a square, of 3", 3000, 1.0),
    ("chain of 3", 1000, 1.0),
    ("chain of 3", 5000, 0.5),
    ("a square, of 3", 2000, 1.0),
    ("pairwise independent", 2000, 1.0),
    ("pairwise independent", 3000, 1.0),
    ("pairwise independent", 400, 2.0),
    ("pairwise independent", 3000, 2.0),
    ("pairwise independent", 3000, 4.0),
    ("pairwise independent", 30_000, 1.0),
    ("four with a common cause", 2000, 1.0),
    ("four with a common cause", 1000, 2.0),
    ("chain of 5", 1000, 1.0),
)
PAIRS_OF_THREE = {"one pair of 3": "correlation .3", "a square, of 3": "quadratic"}
"""Laws of the first column and the last of three, the other being by itself."""

JOINT_WAYS: dict[str, dict[str, Any]] = {
    "default": {},
    "two rounds, 2 cells": {"categories": 2},
    "one round": {"method": "one-round"},
    "one round, middle given": {"method": "one-round", "cuts": "even", "categories": 2},
}
HALVES_WAYS = ("halves, middle given", "halves, middle bought")
MIDDLED = NumericColumn(name="x", lower=0, upper=1)
"""A column whose middle is bought as ``distance_correlation`` buys cuts."""
NEWLY_ASKED: dict[str, Any] = {"permutations": PERMUTATIONS}
JOINT_NULLS = (
    *product(("uniform",), (3,), (50, 300, 3000), (0.3, 1.0, 4.0)),
    *product(("skewed", "rare and tied"), (3, 5), (3000,), (1.5,)),
    ("a group and numbers", 4, 3000, 1.0),
    *product(("skewed", "rare and tied"), (3,), (300, 3000), (1.0, 4.0)),
    *product(("uniform", "rare and tied"), (4, 6), (1000,), (0.3, 1.0, 4.0)),
    *product(("a group and numbers",), (3, 5), (1000,), (1.0, 4.0)),
    ("1 or 20 rows a unit", 3, 100, 4.0),
)
JOINT_POWER, JOINT_LEVEL = f"dealt halves, {POWER_CELL}", "level, dealt halves, {} d={} n={} ε={:g}"
JOINT_RUNS, JOINT_LEVEL_RUNS = 400, 1000


def joint_run(law: str, n: int, epsilon: float, number: int) -> Answers:
    """Ask three owners or more of the same rows in every way."""
    rng = np.random.default_rng([n, round(1000 * epsilon), number, len(law)])
    x = rows(PAIRS_OF_THREE.get(law, law), n, rng)
    if law in PAIRS_OF_THREE:
        x = np.column_stack([x[:, 0], rng.random(n), x[:, 1]])
    sides = [{f"x{place}": column} for place, column in enumerate(x.T)]
    found: dict[str, float] = {}
    for way, chosen in JOINT_WAYS.items():
        own = NEWLY_ASKED | chosen
        found[way] = asked("mutual_independence", sides, epsilon, number, rng, own, apart=True).reject
    # A person is in every pair's study of her owner's column.
    pairs, part = list(combinations(sides, 2)), epsilon / (x.shape[1] - 1)
    chosen = FITTED | {"method": "two-round", "permutations": 399}
    pvalues = [
        asked("distance_correlation", pair, part, number, rng, chosen, apart=True).verdict["pvalue"]
        for pair in pairs
    ]
    found["every pair, Bonferroni"] = min(pvalues) * len(pairs) <= LEVEL
    part, cells, noise = fitted_part(n, epsilon), ColumnCells(MIDDLED, 0, 2, bought=True), SimulatedNoise(rng)
    bought = [cells.draw_cuts(column, part * epsilon, noise)[0] / cells.grid for column in x.T]
    for way, middles, rest in zip(
        HALVES_WAYS, (0.5, np.array(bought)), (epsilon, (1 - part) * epsilon), strict=True
    ):
        halves = (x > middles) == (rng.random(x.shape) < 1 / (1 + math.exp(-rest)))
        found[f"{way}, χ²"] = full_independence(halves, 2) <= LEVEL
        each = [full_independence(halves[:, list(pair)], 2) for pair in combinations(range(x.shape[1]), 2)]
        found[f"{way}, every pair"] = min(each) * len(each) <= LEVEL
    cuts = np.quantile(x, (1 / 3, 2 / 3), axis=0)
    found["no privacy"] = full_independence((x[None] > cuts[:, None]).sum(axis=0), 3) <= LEVEL
    return found


def full_independence(codes: Any, cells: int) -> float:
    """Return the p-value of the chi-squared test of complete independence of columns of cells, (n, d)."""
    n, d = codes.shape
    counts = np.bincount(
        np.ravel_multi_index(tuple(codes.T.astype(np.int64)), (cells,) * d), minlength=cells**d
    )
    shares = [np.bincount(column, minlength=cells) / n for column in codes.T.astype(np.int64)]
    expected = n * functools.reduce(np.multiply.outer, shares).ravel()
    kept = expected > 0
    statistic = float(np.sum((counts[kept] - expected[kept]) ** 2 / expected[kept]))
    return float(chdtrc(cells**d - d * (cells - 1) - 1, statistic))


def joint_level_run(kind: str, d: int, n: int, epsilon: float, number: int) -> Answers:
    """Ask of independent columns of several owners, in two rounds and in one."""
    rng = np.random.default_rng([n, round(1000 * epsilon), d, number, len(kind)])
    unit = np.repeat(np.arange(n), rng.choice([1, 20], n)) if kind == "1 or 20 rows a unit" else None
    x = rng.random((n if unit is None else len(unit), d))
    columns: list[Any] = list(x.T)
    if kind == "skewed":
        columns = list(np.clip(np.exp(1.5 * normal(n, d, rng).T) / 20, 0, 1))
    if kind == "rare and tied":
        columns = [
            (column < 0.02) * 1.0 if place % 2 else np.where(rng.random(n) < 0.9, 0.0, column)
            for place, column in enumerate(columns)
        ]
    if kind == "a group and numbers":
        columns[1] = np.where(x[:, 1] < 0.3, "a", "b").astype(object)
    sides, found = [{f"x{place}": column} for place, column in enumerate(columns)], dict[str, float]()
    for method in ANSWER_METHODS:
        chosen = NEWLY_ASKED | {"method": method}
        result = asked("mutual_independence", sides, epsilon, number, rng, chosen, apart=True, unit=unit)
        found |= {question(method, epsilon, level): result.pvalue <= level + 1e-12 for level in LEVELS}
        found |= {question(f"any pair, {method}", epsilon, LEVEL): any(p.reject for p in result.pairs)}
    return found


def joint_cells() -> list[Cell]:
    """List the cells: power, then level."""
    made = cells_for(JOINT_POWER, JOINT_RUNS, joint_run, JOINT)
    return made + cells_for(JOINT_LEVEL, JOINT_LEVEL_RUNS, joint_level_run, JOINT_NULLS)


def joint_parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    naive = (f"{way}, {test}" for way in HALVES_WAYS for test in ("χ²", "every pair"))
    ways = (*JOINT_WAYS, "every pair, Bonferroni", *naive)
    power, _ = power_rows(counts, JOINT, (*ways, "no privacy"), JOINT_POWER)
    levels = level_rows(counts, JOINT_LEVEL, JOINT_NULLS, ANSWER_METHODS)
    for row, (*given, epsilon) in zip(levels.values(), JOINT_NULLS, strict=True):
        runs, cell = row.pop("runs"), JOINT_LEVEL.format(*given, epsilon)
        for method in ANSWER_METHODS:
            asked_of = question(f"any pair, {method}", epsilon, LEVEL)
            row |= {f"any pair, {method}": counts.shown(cell, asked_of)}
        row |= {"runs": runs}
    levels = {head: row for head, row in levels.items() if row["runs"] != "0"}
    return {
        "power": table(power, "columns, units, ε"),
        "level": level_statement(counts) + table(levels, "columns, owners, units, ε") if levels else "",
    }


BENCHMARKS = (
    Benchmark("randomised-answers", answers_cells, answers_parts),
    Benchmark("mutual-independence", joint_cells, joint_parts),
    Benchmark("quantile-tables", tables_cells, tables_parts),
)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
