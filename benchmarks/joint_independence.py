"""The private joint independence test (dpdHSIC): level and power, beside its peers on the same data.

    python -m benchmarks.joint_independence      # continues where it stopped

Statistics come from the services' own functions and are computed once for all epsilons and levels; noise is
drawn afresh for each, and simulated. The Bonferroni and bootstrap versions are baselines, here and nowhere
else.
"""

import math
import zlib
from collections.abc import Sequence
from functools import partial

import numpy as np

from benchmarks import hospitals
from benchmarks.harness import (
    FOLDER,
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    cells_for,
    grid,
    level_statement,
    main,
    named,
    question,
)
from benchmarks.problems import no_codes, noise_of
from tacit.in_process.runner import local_study, run, terms
from tacit.in_process.samples import ArrayTable, Sample, domain_of
from tacit.planning.simulation import SimulatedNoise
from tacit_protocol.domain import Domain
from tacit_protocol.features.fixed_rank import features_of
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.unit_gram import UnitGram, UnitRows
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.permutation_test import permutation_decision, rank_max
from tacit_protocol.procedures.independence.plan import BANDWIDTH_PER_COLUMN
from tacit_protocol.procedures.joint_independence import JointIndependence
from tacit_protocol.procedures.permutation.statistic import (
    evaluation_error,
    observed_sensitivity,
    permuted_sensitivity,
    permuted_statistics,
)

DELTA = 1e-6
EPSILONS = (0.1, 0.3, 1.0, 3.0, 10.0)
LEVELS = (0.05, 0.01)
LEVEL_RUNS, POWER_RUNS = 1000, 200
POWER_LEVEL = 0.05
"""The Bonferroni version of three variables tests at half of it."""

LEVEL_PERMUTATIONS, POWER_PERMUTATIONS, RESAMPLES = 99, 199, 99
HALF_RANGE = 4.0
"""Public bounds are -4 and 4."""

KERNEL_ERROR = 1e-13
"""Bound on the error of kernel values here, generously: it adds next to nothing to a sensitivity."""

OURS, BONFERRONI, BOOTSTRAP, OPEN = "dpdHSIC", "Bonferroni dpHSIC", "bootstrap dpdHSIC", "not private"
AGGREGATE = "aggregate"
PROCEDURE = JointIndependence()

LEVEL_PLAN = (
    *(("normal", d, n) for n in (50, 200, 500) for d in (2, 3, 4)),
    ("normal", 2, 2000),
    *(("heavy", d, n) for n in (50, 200) for d in (2, 3, 4)),
    ("heavy", 2, 500),
    *(("categories", d, n) for n in (50, 200, 500) for d in (2, 3, 4)),
    ("categories", 4, 2000),
    *(("ties", d, n) for n in (50, 200, 500) for d in (2, 3, 4)),
    ("ties", 3, 2000),
)
"""(law of every column, independent variables, units)."""

POWER_PLAN = tuple(
    (name, n) for n in (100, 300, 1000) for name in ("pairwise independent", "chain", "common cause")
)


def scaled(values: Floats) -> UnitRows:
    """Encode numeric columns, every row a unit."""
    unit = np.clip(values / (2 * HALF_RANGE) + 0.5, 0.0, 1.0)
    return UnitRows(unit, no_codes(len(unit)), np.arange(len(unit) + 1))


def independent(law: str, variables: int, n: int, rng: np.random.Generator) -> UnitRows:
    """Draw independent columns of one law."""
    shape = (n, variables)
    if law == "categories":
        codes = rng.choice(3, shape, p=(0.7, 0.2, 0.1)).astype(np.int32)
        return UnitRows(np.zeros((n, 0)), codes, np.arange(n + 1))
    if law == "ties":
        return scaled(np.minimum(rng.poisson(1.0, shape), 4).astype(np.float64))
    return scaled(rng.standard_normal(shape) if law == "normal" else rng.standard_t(2, shape))


def dependent(name: str, n: int, rng: np.random.Generator) -> UnitRows:
    """Draw three dependent columns, standard normal each."""
    x = rng.standard_normal((n, 3))
    if name == "pairwise independent":
        # Any two are independent; the product of all three signs is positive in nine cases of ten.
        sign = np.sign(x[:, 0] * x[:, 1]) * np.where(rng.random(n) < 0.9, 1.0, -1.0)
        x[:, 2] = np.abs(x[:, 2]) * sign
    elif name == "chain":
        for column in (1, 2):
            x[:, column] = 0.4 * x[:, column - 1] + math.sqrt(1 - 0.4**2) * x[:, column]
    else:
        x = math.sqrt(0.3) * rng.standard_normal((n, 1)) + math.sqrt(0.7) * x
    return scaled(x)


def gram(rows: UnitRows, columns: tuple[int, ...]) -> UnitGram:
    """Return the kernel matrix of a variable, with the procedure's default bandwidth."""
    kernel = ProductKernel("gaussian", BANDWIDTH_PER_COLUMN * math.sqrt(len(columns)))
    if rows.categorical.shape[1]:
        categories = [3] * len(columns)
        return UnitGram(kernel, rows.columns((), columns), features_of(kernel, 0, categories))
    return UnitGram(kernel, rows.columns(columns, ()), features_of(kernel, len(columns), ()))


def decide(
    values: Floats,
    moved: tuple[float, float],
    level: float,
    budget: Budget,
    noise: SimulatedNoise,
) -> bool:
    """Decide privately; ``moved`` are the sensitivities of the observed and of the other statistics."""
    return permutation_decision(values, moved[0], level, budget, noise, permuted_sensitivity=moved[1])


def sensitivities(units: int, variables: int) -> tuple[float, float]:
    """Bound the observed and the permuted statistics' movements, as the procedure does."""
    error = 2 * evaluation_error(units, variables, KERNEL_ERROR)
    return observed_sensitivity(units, variables) + error, permuted_sensitivity(units, variables) + error


def level_run(law: str, variables: int, n: int, number: int) -> Answers:
    """Test independent variables."""
    rng = np.random.default_rng([number, n, variables, zlib.crc32(law.encode())])
    rows, noise = independent(law, variables, n, rng), noise_of(rng)
    seed = np.random.SeedSequence(int(rng.integers(2**63)))
    grams = [gram(rows, (column,)) for column in range(variables)]
    values = permuted_statistics(grams, LEVEL_PERMUTATIONS, seed)
    moved = sensitivities(n, variables)
    return {
        question(OURS, epsilon, level): decide(values, moved, level, Budget.of(epsilon, DELTA), noise)
        for epsilon in EPSILONS
        for level in LEVELS
    }


def power_run(name: str, n: int, number: int) -> Answers:
    """Ask every method about three dependent variables."""
    rng = np.random.default_rng([number, n, zlib.crc32(name.encode())])
    rows, noise = dependent(name, n, rng), noise_of(rng)
    seeds = np.random.SeedSequence(int(rng.integers(2**63))).spawn(3)
    single = [gram(rows, (column,)) for column in range(3)]
    joint = permuted_statistics(single, POWER_PERMUTATIONS, seeds[0])
    pairs = [
        permuted_statistics([single[1], single[0]], POWER_PERMUTATIONS, seeds[1]),
        permuted_statistics([single[2], gram(rows, (0, 1))], POWER_PERMUTATIONS, seeds[2]),
    ]
    resampled = np.append(joint[0], bootstrap(single, RESAMPLES, rng))
    answers: dict[str, bool] = {}
    for epsilon in EPSILONS:
        found = {
            OURS: decide(joint, sensitivities(n, 3), POWER_LEVEL, Budget.of(epsilon, DELTA), noise),
            BONFERRONI: bonferroni_decision(pairs, n, epsilon, noise),
            BOOTSTRAP: bootstrap_decision(resampled, n, 3, epsilon, noise),
        }
        answers |= {question(method, epsilon, POWER_LEVEL): yes for method, yes in found.items()}
    rank = 1 + int(np.sum(joint[1:] >= joint[0]))
    answers[question(OPEN, math.inf, POWER_LEVEL)] = rank <= rank_max(POWER_LEVEL, len(joint))
    return answers


def bonferroni_decision(pairs: Sequence[Floats], n: int, epsilon: float, noise: SimulatedNoise) -> bool:
    """Decide by d - 1 tests of two variables, each with as much of the budget, and of the level."""
    share = Budget.of(epsilon / len(pairs), DELTA / len(pairs))
    level = POWER_LEVEL / len(pairs)
    return any(decide(values, sensitivities(n, 2), level, share, noise) for values in pairs)


def bootstrap_decision(
    resampled: Floats, n: int, variables: int, epsilon: float, noise: SimulatedNoise
) -> bool:
    """Decide by statistics of resampled data, (RESAMPLES + 1,) with the observed one first."""
    moved = sensitivities(n, variables)[0], resampled_sensitivity(variables)
    return decide(resampled, moved, POWER_LEVEL, Budget.of(epsilon, DELTA), noise)


METHODS = (OURS, AGGREGATE)
METHOD_EPSILONS = (0.3, 0.5, 1.0, 3.0)
METHOD_RUNS = 100
METHOD_PLAN = tuple(
    (name, d, n)
    for n in (300, 1000)
    for name, d in (
        ("null", 2),
        ("null", 3),
        ("common cause", 2),
        ("chain", 3),
        ("pairwise independent", 3),
    )
)
"""(problem, variables, units), of both methods in pure epsilon."""


def method_run(name: str, variables: int, n: int, number: int) -> Answers:
    """Ask both methods about the same rows, each with its own budget."""
    rng = np.random.default_rng([number, n, variables, zlib.crc32(f"method {name}".encode())])
    rows = independent("normal", variables, n, rng) if name == "null" else dependent(name, n, rng)
    columns = {f"x{column}": rows.numeric[:, column] for column in range(variables)}
    domain = domain_of((0.0, 1.0), list(columns))
    table = ArrayTable.of(Sample(columns), domain)
    seed, noise = int(rng.integers(2**31)), noise_of(rng)
    grams = [gram(rows, (column,)) for column in range(variables)]
    values = permuted_statistics(grams, POWER_PERMUTATIONS, np.random.SeedSequence(seed))
    answers: dict[str, bool] = {}
    for epsilon in METHOD_EPSILONS:
        study = local_study(
            PROCEDURE.name,
            domain,
            ["owner"],
            {"method": "aggregate"},
            **terms(epsilon, 0.0, POWER_LEVEL, seed),
        )
        counted = run(PROCEDURE, study, [table], noise, order=rng)
        answers[question(AGGREGATE, epsilon, POWER_LEVEL)] = counted.reject
        budget = Budget.of(epsilon, 0.0)
        decided = decide(values, sensitivities(n, variables), POWER_LEVEL, budget, noise)
        answers[question(OURS, epsilon, POWER_LEVEL)] = decided
    return answers


Graph = dict[str, list[str]]
GRAPHS: dict[str, tuple[Graph, Graph]] = {
    "a cube": ({"x1": ["x0"]}, {"x0": ["x1"]}),
    "a straight line": ({"x1": ["x0"]}, {"x0": ["x1"]}),
    "three columns": ({"x1": ["x0"], "x2": ["x0", "x1"]}, {"x1": ["x2"], "x0": ["x1", "x2"]}),
}
"""Of a law, the graph that made it, and the reverse one. Of a straight line with normal noise both fit."""

WHICH = ("right", "reverse")
GRAPH_CELL, GRAPH_RUNS, GRAPH_EPSILONS = "graph {} n={}", 100, (1.0, 3.0)
GRAPH_PLAN = tuple((law, n) for law in GRAPHS for n in (720, 2400))
HEART_FILES = sorted(FOLDER.glob("heart_*.csv"))
HEART_CELL = "graph heart disease, four hospitals"
HEART = domain_of({"age": (20, 90), "thalach": (60, 220)}, ["age", "thalach"])


def made_along_a_graph(law: str, n: int, rng: np.random.Generator) -> Floats:
    """Draw rows of an additive-noise model, within -4 and 4 but for one in ten thousand."""
    x, e = rng.uniform(-1, 1, n), rng.uniform(-1, 1, (2, n))
    if law == "a cube":
        return 2 * np.stack([x, x**3 + x / 2 + 0.3 * e[0]], axis=1)
    if law == "a straight line":
        x, noise = rng.standard_normal((2, n))
        return np.stack([x, 0.6 * x + 0.8 * noise], axis=1)
    y = x + x**3 / 2 + 0.4 * e[0]
    return 2 * np.stack([x, y, np.tanh(y) + 0.3 * x + 0.3 * e[1]], axis=1)


def graphs_asked(
    samples: Sequence[Sample],
    domain: Domain,
    graphs: Sequence[dict[str, list[str]]],
    rng: np.random.Generator,
) -> Answers:
    """Ask whether each graph can be right, with every epsilon by itself."""
    tables = [ArrayTable.of(sample, domain) for sample in samples]
    answers: dict[str, bool] = {}
    for epsilon in GRAPH_EPSILONS:
        for which, graph in zip(WHICH, graphs, strict=True):
            study = local_study(
                PROCEDURE.name,
                domain,
                [f"owner-{place}" for place in range(len(tables))],
                {"method": "aggregate", "graph": graph},
                **terms(epsilon, 0.0, POWER_LEVEL, int(rng.integers(2**31))),
            )
            found = run(PROCEDURE, study, tables, noise_of(rng), order=rng)
            answers[question(which, epsilon, POWER_LEVEL)] = found.reject
    return answers


def graph_run(law: str, n: int, number: int) -> Answers:
    """Ask about the graph that made the rows, and about the reverse one."""
    rng = np.random.default_rng([number, n, zlib.crc32(f"graph {law}".encode())])
    rows = made_along_a_graph(law, n, rng)
    sample = Sample({f"x{place}": column for place, column in enumerate(rows.T)})
    domain = domain_of((-HALF_RANGE, HALF_RANGE), list(sample.columns))
    return graphs_asked([sample], domain, GRAPHS[law], rng)


def hospitals_run(domain: Domain, number: int) -> Answers:
    """Ask four hospitals whether age makes the highest heart rate, and whether that makes age."""
    rng = np.random.default_rng([number, zlib.crc32(HEART_CELL.encode())])
    samples = []
    for path in HEART_FILES:
        rows = hospitals.read(path)
        samples.append(Sample({column.name: rows[column.name] for column in domain.columns}))
    return graphs_asked(samples, domain, ({"thalach": ["age"]}, {"age": ["thalach"]}), rng)


def resampled_sensitivity(variables: int) -> float:
    """Return what replacing one unit can move a resampled statistic by, at least: whatever n is.

    A resample may hold two units only, half of each, the same for every variable. If they differ in all
    variables and one is replaced by the other, the statistic falls from this to 0.
    """
    return math.sqrt(0.5 - 0.5**variables)


def bootstrap(grams: list[UnitGram], resamples: int, rng: np.random.Generator) -> Floats:
    """Return the statistic of data whose variables are each resampled with replacement, (resamples,)."""
    factors = [one.factor() for one in grams]
    n = factors[0].shape[1]
    values = np.empty(resamples)
    for index in range(resamples):
        a, b, c = (factor[:, rng.integers(0, n, n)] for factor in factors)
        sides = (a[:, None, :] * b[None, :, :]).reshape(-1, n)
        means = np.outer(a.mean(axis=1), b.mean(axis=1)).ravel()
        values[index] = np.linalg.norm(sides @ c.T / n - np.outer(means, c.mean(axis=1)))
    return values


def cells() -> list[Cell]:
    """List the cells: levels first."""
    made = cells_for("level {} d={} n={}", LEVEL_RUNS, level_run, LEVEL_PLAN)
    made += cells_for("method {} d={} n={}", METHOD_RUNS, method_run, METHOD_PLAN)
    made += cells_for(GRAPH_CELL, GRAPH_RUNS, graph_run, GRAPH_PLAN)
    if HEART_FILES:
        made.append(Cell(HEART_CELL, GRAPH_RUNS, partial(hospitals_run, HEART)))
    return made + cells_for("power {} n={}", POWER_RUNS, power_run, POWER_PLAN)


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    levels = [f"## Level {level:g}\n\n{_levels(counts, level)}\n" for level in LEVELS]
    problems = dict.fromkeys(name for name, _ in POWER_PLAN)
    powers = [f"### {name[0].upper()}{name[1:]}\n\n{_powers(counts, name)}\n" for name in problems]
    return {
        "level runs": counts.runs_of("level"),
        "power runs": counts.runs_of("power"),
        "statement": level_statement(counts),
        "levels": "".join(levels),
        "powers": "".join(powers),
        "method runs": counts.runs_of("method"),
        "methods": _methods(counts),
        "graph runs": counts.runs_of("graph"),
        "graphs": _graphs(counts),
    }


def _levels(counts: Counts, level: float) -> str:
    rows = [(f"{law}, d={d}, n={n}", f"level {law} d={d} n={n}") for law, d, n in LEVEL_PLAN]
    return grid(
        "law", rows, named("ε={:g}", EPSILONS), lambda row, e: counts.shown(row, question(OURS, e, level))
    )


def _methods(counts: Counts) -> str:
    def shown(place: tuple[str, int, int, str], epsilon: float) -> str:
        name, d, n, method = place
        return counts.shown(f"method {name} d={d} n={n}", question(method, epsilon, POWER_LEVEL), ".2f")

    rows = [(f"{m} | {name} | {d} | {n}", (name, d, n, m)) for name, d, n in METHOD_PLAN for m in METHODS]
    return grid("method | problem | d | n", rows, named("ε={:g}", METHOD_EPSILONS), shown)


def _graphs(counts: Counts) -> str:
    cells = [GRAPH_CELL.format(law, n) for law, n in GRAPH_PLAN] + [HEART_CELL]
    rows = [(f"{cell.removeprefix('graph ')} | {which}", (cell, which)) for cell in cells for which in WHICH]
    return grid(
        "law | graph",
        rows,
        named("ε={:g}", GRAPH_EPSILONS),
        lambda row, e: counts.shown(row[0], question(row[1], e, POWER_LEVEL), ".2f"),
    )


def _powers(counts: Counts, name: str) -> str:
    sizes = [n for problem, n in POWER_PLAN if problem == name]

    def shown(method: str, place: tuple[float, int]) -> str:
        asked = question(method, math.inf if method == OPEN else place[0], POWER_LEVEL)
        return counts.shown(f"power {name} n={place[1]}", asked, ".2f")

    columns = [(f"ε={e:g}, n={n}", (e, n)) for e in EPSILONS for n in sizes]
    return grid("method", named("{}", (OURS, BONFERRONI, BOOTSTRAP, OPEN)), columns, shown)


BENCHMARKS = (Benchmark("joint-independence", cells, parts),)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
