"""Level and power of the two-sample tests, of owners and at a curator, beside their peers on the same data.

    python -m benchmarks.two_sample                # both pages; continues where it stopped
    python -m benchmarks.two_sample --page curator --runs 0.02 --cells power --folder /tmp/glance

Data are drawn once for all methods, epsilons and levels of a cell and released through the services' own
procedures; permuted statistics are computed once, and noise, which is simulated, is drawn afresh.
"""

import functools
import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any, Literal

import numpy as np
from scipy.special import ndtri

from benchmarks.harness import Answers, Benchmark, Cell, Counts, grid, level_statement, main, question, table
from benchmarks.problems import (
    DELTA,
    LEVEL,
    PROBLEMS,
    MemoryTable,
    chunk_of,
    noise_of,
    numeric_domain,
    study_of,
)
from tacit.planning.locations import optimise_locations
from tacit.planning.simulation import SimulatedNoise
from tacit_protocol.domain import CategoricalColumn, Domain, EncodedChunk, PooledTable
from tacit_protocol.features.mean_embedding import FeatureParameters, kernel_features
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.quadratic_forms import survival
from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.curated_two_sample import CuratedTwoSample
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample

Tables = Mapping[str, MemoryTable]
Parameters = Mapping[str, Any]

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


@dataclass(frozen=True)
class Asked:
    """What one run asks of a method."""

    parameters: Parameters
    tables: Tables
    epsilons: Sequence[float]
    rng: np.random.Generator
    run: int


def run(problem: str, n: int, epsilons: tuple[float, ...], methods: tuple[str, ...], number: int) -> Answers:
    """Draw both samples once and ask every method at every epsilon."""
    rng = np.random.default_rng([number, n, len(problem)])
    noise = noise_of(rng)
    tables = {name: PROBLEMS[problem].table(n, name == "y", rng) for name in ("x", "y")}
    answers: dict[str, bool] = {}
    for method in methods:
        for epsilon, verdict in verdicts(Asked(METHODS[method], tables, epsilons, rng, number), noise):
            answers[question(method, epsilon, LEVEL)] = verdict.reject
    return answers


def verdicts(asked: Asked, noise: SimulatedNoise) -> Iterator[tuple[float, Any]]:
    """Yield the verdict of the owners' test at every epsilon, of releases of the same summaries."""
    procedure, summaries = KernelTwoSample(), dict[str, Any]()
    for epsilon in asked.epsilons:
        study = study_of(asked.tables["x"].domain, asked.parameters, epsilon=epsilon, run=asked.run)
        summaries = summaries or {name: procedure.summarise(study, t) for name, t in asked.tables.items()}
        releases = {name: procedure.privatise(study, s, noise) for name, s in summaries.items()}
        yield epsilon, procedure.assemble(study, releases)


def _cell(problem: str, n: int, methods: tuple[str, ...]) -> str:
    return f"{problem} n={n}" + (", noise-aware" if methods == NOISE_AWARE else "")


def cells() -> list[Cell]:
    """List the cells."""
    return [
        Cell(_cell(problem, n, methods), RUNS, partial(run, problem, n, epsilons, methods))
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


LEVELS = (0.05, 0.01)
LEVEL_RUNS, POWER_RUNS = 1000, 200
POWER_LEVEL = 0.01

PUBLIC_ROWS = 2000
"""Rows of each public sample on which frequencies are optimised; none of them is tested."""

NO_PRIVACY = "none"
"""In the place of an epsilon."""


@functools.lru_cache(maxsize=64)
def optimised(problem: str, n: int) -> Parameters:
    """Return SCF frequencies for that problem and n at epsilon 1, from a public sample of its own."""
    rng, kind = np.random.default_rng([99, n]), PROBLEMS[problem]
    public = [kind.draw(PUBLIC_ROWS, second, rng) for second in (False, True)]
    found = optimise_locations(
        *public, epsilon=1.0, delta=DELTA, n=n, bounds=kind.bounds, features="scf", alpha=min(LEVELS), seed=n
    )
    return dict(found.parameters)


@dataclass(frozen=True)
class Method:
    """A test by name, setting and parameters. ``optimised`` adds frequencies found on public rows."""

    name: str
    setting: Literal["owners", "curator", "published statistic"]
    parameters: Parameters = field(default_factory=dict)
    optimised: bool = False
    epsilons: tuple[float, ...] | None = None
    """The epsilons at which it runs; None: at all."""

    def answers(self, problem: str, tables: Tables, epsilons: Sequence[float], run: int) -> dict[str, bool]:
        """Return whether the test rejects, by ``question``; statistics are computed once for all epsilons."""
        units = tables["x"].units
        rng = np.random.default_rng([run, units, zlib.crc32(f"{problem} {self.name}".encode())])
        parameters = dict(self.parameters) | (optimised(problem, units) if self.optimised else {})
        play = {"owners": self._owners, "curator": self._curator, "published statistic": self._published}
        chosen = [e for e in epsilons if self.epsilons is None or e in self.epsilons]
        return play[self.setting](Asked(parameters, tables, chosen, rng, run))

    def _decided(self, epsilon: float | str, pvalue: float) -> dict[str, bool]:
        return {question(self.name, epsilon, level): pvalue <= level for level in LEVELS}

    def _owners(self, asked: Asked) -> dict[str, bool]:
        noise, found = noise_of(asked.rng), dict[str, bool]()
        for epsilon, verdict in verdicts(asked, noise):
            found |= self._decided(epsilon, verdict.pvalue)
        return found

    def _curator(self, asked: Asked) -> dict[str, bool]:
        procedure, noise = CuratedTwoSample(), noise_of(asked.rng)
        found: dict[str, bool] = {}
        summary = None
        for epsilon in asked.epsilons:
            study = study_of(
                asked.tables["x"].domain, asked.parameters, curated=True, epsilon=epsilon, run=asked.run
            )
            if summary is None:
                table = PooledTable(study.domain, asked.tables)
                summary = procedure.plan(study).summarise(table, asked.rng)
                if asked.parameters.get("release") == "permutation":
                    statistics = np.asarray(summary.exact)
                    rank = 1 + int(np.sum(statistics[1:] >= statistics[0]))
                    found |= self._decided(NO_PRIVACY, rank / len(statistics))
            for level in LEVELS:
                decided = study.model_copy(update={"level": level})
                release = procedure.privatise(decided, summary, noise)
                if release.decision is not None:
                    found[question(self.name, epsilon, level)] = release.decision
            if release.decision is None:
                tested = procedure.assemble(study, {"curator": release}).pvalue
                assert tested is not None
                found |= self._decided(epsilon, tested)
        return found

    def _published(self, asked: Asked) -> dict[str, bool]:
        """P0's statistic (TCS) with its own bound, which is false: no guarantee, synthetic data alone.

        s = n w'(Sigma + gamma I)^-1 w of paired differences of raw features, plus Gaussian noise calibrated
        to 4 kappa^2 J sqrt J / (n gamma) (1 + kappa^2 J / (n - 1)), kappa = 1 as in its code, against
        chi-squared (J) plus that noise.
        """
        parameters, tables, rng = asked.parameters, asked.tables, asked.rng
        choices = {name: value for name, value in parameters.items() if name != "features"}
        chosen = FeatureParameters.model_validate_json(json.dumps(choices))
        features = kernel_features(
            tables["x"].domain, chosen, parameters["features"], np.random.default_rng(asked.run), raw=True
        )
        x, y = (features(table.chunk) for table in tables.values())
        z = x - y
        n, dimension = z.shape
        gamma, mean = 1e-3, z.mean(axis=0)
        covariance = np.cov(z.T, bias=True).reshape(dimension, dimension) + gamma * np.eye(dimension)
        statistic = float(n * mean @ np.linalg.solve(covariance, mean))
        bound = 4 * dimension**1.5 / (n * gamma) * (1 + dimension / (n - 1))
        found: dict[str, bool] = {}
        for epsilon in asked.epsilons:
            sigma = bound / gaussian_mu(epsilon, DELTA)
            noisy = statistic + sigma * rng.standard_normal()
            found |= self._decided(epsilon, survival(noisy, np.ones(1), sigma, np.array([dimension])))
        return found


MANY, FEW = (0.1, 0.3, 1.0, 3.0, 10.0), (0.1, 1.0, 10.0)
PERMUTATION = {"release": "permutation", "permutations": 199}
ME_5 = {"features": "me", "n_features": 5}
AWARE = {**ME_5, "statistic": "noise-aware", "replicates": 199}
STATISTIC_OF = {"release": "statistic"}

MEANS = Method("means, default", "curator")
SIMPLE = (
    Method("means, ME J=5", "curator", ME_5),
    Method("means, ME J=40", "curator", {"features": "me", "n_features": 40}),
    Method("statistic, ME J=5", "curator", STATISTIC_OF | ME_5),
)
CURATED_AWARE = Method("means, ME J=5, noise-aware", "curator", AWARE, epsilons=(1.0, 10.0))
STATISTIC = Method("statistic, default", "curator", STATISTIC_OF, epsilons=FEW)
PERMUTED = Method("permutation, default", "curator", PERMUTATION)
PERMUTED_COLUMNS = Method("permutation, columns", "curator", {**PERMUTATION, "features": "columns"})
PERMUTED_KERNEL = Method("permutation, kernel", "curator", {**PERMUTATION, "features": "kernel"})

ALL = (MEANS, *SIMPLE, CURATED_AWARE, STATISTIC, PERMUTED, PERMUTED_KERNEL)
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
    Method("P0 TCMC, ME J=5", "curator", ME_5 | {"calibration": "paper"}),
    Method("P0 TCS, ME J=5 (not private)", "published statistic", ME_5),
)
COMPARED = (OWNERS, MEANS, STATISTIC, PERMUTED_COLUMNS, PERMUTED_KERNEL, *PUBLISHED)
OPTIMISED = (
    Method("no trusted entity, optimised SCF", "owners", {}, optimised=True),
    Method("means, optimised SCF", "curator", {}, optimised=True),
    Method("statistic, optimised SCF", "curator", STATISTIC_OF, optimised=True),
    Method("permutation, optimised SCF", "curator", PERMUTATION, optimised=True),
    Method("P0 TCMC, optimised SCF", "curator", {"calibration": "paper"}, optimised=True),
    Method("P0 TCS, optimised SCF (not private)", "published statistic", {}, optimised=True),
)
LARGE = (OWNERS, MEANS, PERMUTED_COLUMNS, *PUBLISHED)
POWER_EPSILONS = (0.3, 1.0, 3.0)
POWER_PLAN = (
    *(("GMD", n, (*COMPARED, PERMUTED)) for n in (100, 200, 500)),
    ("GMD", 1000, COMPARED),
    ("GVD", 500, (*COMPARED, PERMUTED)),
    ("GVD", 1000, COMPARED),
    ("GVD", 2000, COMPARED),
    ("GVD", 4000, LARGE),
    *(("Blobs", n, (*COMPARED, PERMUTED, *OPTIMISED)) for n in (200, 500, 1000, 2000)),
    ("Blobs", 5000, (*LARGE, *OPTIMISED)),
)


def run_cell(
    problem: str, n: int, methods: tuple[Method, ...], epsilons: tuple[float, ...], number: int
) -> Answers:
    """Draw both samples once and ask every method."""
    rng = np.random.default_rng([number, n, zlib.crc32(problem.encode())])
    tables = {name: PROBLEMS[problem].table(n, name == "y", rng) for name in ("x", "y")}
    answers: dict[str, bool] = {}
    for method in methods:
        answers |= method.answers(problem, tables, epsilons, number)
    return answers


def curator_cells() -> list[Cell]:
    """List the cells: levels first."""
    plans = (("level", LEVEL_PLAN, LEVEL_RUNS, MANY), ("power", POWER_PLAN, POWER_RUNS, POWER_EPSILONS))
    return [
        Cell(f"{kind} {problem} n={n}", runs, partial(run_cell, problem, n, methods, epsilons))
        for kind, plan, runs, epsilons in plans
        for problem, n, methods in plan
    ]


def curator_parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    levels, powers = [], []
    for level in LEVELS:
        levels.append(f"## Level {level:g}\n\n")
        for problem in dict.fromkeys(problem for problem, _, _ in LEVEL_PLAN):
            levels += [
                f"### {problem}, level {level:g}\n\n",
                _rates(counts, "level", problem, level, MANY),
                "\n",
            ]
    for problem in dict.fromkeys(problem for problem, _, _ in POWER_PLAN):
        rates = _rates(counts, "power", problem, POWER_LEVEL, (*POWER_EPSILONS, NO_PRIVACY))
        powers += [f"### {problem}\n\n", rates, "\n"]
    return {
        "level runs": counts.runs_of("level"),
        "power runs": counts.runs_of("power"),
        "statements": level_statement(counts) + _trust(counts),
        "levels": "".join(levels),
        "powers": "".join(powers),
    }


def _rates(counts: Counts, kind: str, problem: str, level: float, epsilons: tuple[float | str, ...]) -> str:
    plan = LEVEL_PLAN if kind == "level" else POWER_PLAN
    sizes = [(n, methods) for name, n, methods in plan if name == problem]
    names = dict.fromkeys(method.name for _, methods in sizes for method in methods)

    def shown(name: str, place: tuple[float | str, int]) -> str:
        asked = question(name, place[0], level)
        return counts.shown(f"{kind} {problem} n={place[1]}", asked, ".3f" if kind == "level" else ".2f")

    columns = [
        (f"ε={e if isinstance(e, str) else format(e, 'g')}, n={n}", (e, n))
        for e in epsilons
        for n, _ in sizes
    ]
    return grid("method", [(name, name) for name in names], columns, shown)


def _trust(counts: Counts) -> str:
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
    return (
        f"**Trust.** `means` against `no trusted entity` with the same features, {compared} pairs of powers\n"
        "at the same ε on the same data. Lower by more than two standard errors of the difference: "
        f"{'nowhere' if not below else 'in ' + '; '.join(below)}.\nLower by less: {slightly}.\n\n"
    )


# The page of few features: what noise fits short vectors, beside what a naive analyst does.

SHIFTED = ((1, 1), (2, 1), (3, 3), (3, 1), (5, 1), (10, 1), (20, 1), (30, 30))
"""(columns, how many of them differ)."""

FEW_SIZES: Mapping[tuple[int, int], Mapping[float, tuple[int, ...]]] = {
    (1, 1): {0.3: (330, 500), 1.0: (150, 220)},
    (2, 1): {0.3: (500, 750), 1.0: (220, 330)},
    (3, 3): {0.3: (500, 1100), 1.0: (220, 330)},
    (3, 1): {0.3: (750, 1700), 1.0: (330, 500)},
    (5, 1): {0.3: (1000, 1500), 1.0: (330, 500)},
    (10, 1): {0.3: (1700, 2500), 1.0: (750, 1100)},
    (20, 1): {1.0: (1300,)},
    (30, 30): {0.3: (2500,), 1.0: (750,)},
}
"""Units of either owner, by columns and epsilon."""

EFFECTS: Mapping[str, tuple[float, float]] = {"shift": (0.5, 1.0), "scale": (0.0, 1.5), "none": (0.0, 1.0)}
"""Mean and standard deviation of columns that differ; those of all others are 0 and 1."""

FEW_LEVELS = ((1, 100), (1, 1000), (3, 300), (10, 300), (1, 5000))
LEVEL_DATA: Mapping[str, tuple[str, Sequence[tuple[int, int]]]] = {
    "none": ("normal", (*FEW_LEVELS, (2, 1000), (50, 1000))),
    "skewed": ("log-normal", (*FEW_LEVELS, (2, 1000))),
    "rare": ("rare", ((1, 100), (1, 1000), (1, 5000), (2, 1000))),
    "heaped": ("heaped", ((1, 100), (1, 1000), (1, 5000), (2, 1000))),
    "narrow": ("narrow", ((1, 1000), (1, 5000), (2, 1000))),
}
"""Of data without a difference: how the page calls them, and their columns and units."""

FEW_EPSILONS = (0.3, 1.0, 5.0)
FEW_BOUNDS = 4.0
NAIVE_CELLS, NAIVE_REPLICATES = 4, 399

FEW_METHODS: Mapping[str, Parameters | None] = {
    "chosen": None,
    "many features, Gaussian": {"noise": "gaussian"},
    "cells, K-norm": {"noise": "k-norm", "features": "columns", "resolution": 4},
}
CHOSEN_PURE: Mapping[str, Parameters | None] = {"chosen, δ = 0": None}
"""Whose level is measured here; that of many features is on the page of the two-sample test."""

FEW_RUNS, FEW_LEVEL_RUNS, NAIVE = 400, 1000, "Laplace histograms"

SEEN: Mapping[str, tuple[int, str]] = {
    "bimodal against normal": (1000, "Laplace histogram, 8 cells"),
    "correlation 0 against .5": (1000, "Laplace table, 4 × 4"),
    "uniform against Beta(1.5, 1)": (200, "noisy mean"),
    "trend over ten levels": (1000, "Laplace histogram, 10 levels"),
    "all within 1 % of the range": (1000, "noisy mean"),
}
"""Differences that a default of one column's means alone misses: units of either owner, at epsilon 1, and
what a naive analyst does. Two peaks .9 standard deviations from the middle, with the mean and deviation of a
standard normal; shares that rise from .65 to 1.35 of the average; a shift of half of .25 % of the range."""


def few_table(columns: int, differ: int, effect: str, n: int, rng: np.random.Generator) -> MemoryTable:
    """Draw rows whose first columns differ; of data in LEVEL_DATA beside "none" nothing does.

    "skewed" is log-normal, "rare" 3 in one row of fifty and else -3, "heaped" rounded to multiples of 2,
    "narrow" within 1 % of the range.
    """
    rows = rng.standard_normal((n, columns))
    if effect == "skewed":
        rows = np.exp(rows) / 2 - FEW_BOUNDS
    elif effect == "rare":
        rows = np.where(rows > ndtri(0.98), 3.0, -3.0)
    elif effect == "heaped":
        rows = 2 * np.rint(rows / 2)
    elif effect == "narrow":
        rows = FEW_BOUNDS * (0.14 + 0.005 * rows)
    else:
        mean, deviation = EFFECTS[effect]
        rows[:, :differ] = mean + deviation * rows[:, :differ]
    scaled = np.clip((rows + FEW_BOUNDS) / (2 * FEW_BOUNDS), 0.0, 1.0)
    return MemoryTable(numeric_domain(columns, (-FEW_BOUNDS, FEW_BOUNDS)), chunk_of(scaled))


def naive_histograms(tables: Tables, epsilon: float, rng: np.random.Generator) -> float:
    """Return the p-value of Laplace histograms of four cells a column, each with its part of epsilon."""
    rows = [table.chunk.numeric for table in tables.values()]
    columns, smallest = rows[0].shape[1], 1.0
    for place in range(columns):
        cells = [np.minimum((own[:, place] * NAIVE_CELLS).astype(int), NAIVE_CELLS - 1) for own in rows]
        counts = np.stack([np.bincount(own, minlength=NAIVE_CELLS) for own in cells])
        smallest = min(smallest, histogram_pvalue(counts, 2 * columns / epsilon, rng))
    return min(1.0, columns * smallest)


def histogram_pvalue(counts: Any, scale: float, rng: np.random.Generator) -> float:
    """Return the p-value of two histograms of as many units, (2, cells), with Laplace noise of that scale."""
    n = int(counts[0].sum())

    def statistic(counts: Any, expected: Any) -> Any:
        return (((counts[0] - counts[1]) / n) ** 2 / (2 * expected / n + 4 * (scale / n) ** 2)).sum(axis=-1)

    noisy = counts + rng.laplace(0, scale, counts.shape)
    likely = np.clip(noisy.sum(axis=0), 1.0, None)
    likely = likely / likely.sum()
    drawn = rng.multinomial(n, likely, (2, NAIVE_REPLICATES)).astype(float)
    drawn += rng.laplace(0, scale, drawn.shape)
    above = np.count_nonzero(statistic(drawn, likely) >= statistic(noisy, likely))
    return float((1 + above) / (NAIVE_REPLICATES + 1))


def seen_table(kind: str, n: int, rng: np.random.Generator, *, other: bool) -> MemoryTable:
    """Draw a sample of either owner for one of SEEN."""
    rows = rng.standard_normal((n, 1 + (kind == "correlation 0 against .5")))
    if kind == "trend over ten levels":
        shares = 1 + 0.35 * other * np.linspace(-1, 1, 10)
        column = CategoricalColumn(name="level", levels=tuple("abcdefghij"))
        codes = rng.choice(10, (n, 1), p=shares / 10).astype(np.int32)
        chunk = EncodedChunk(np.zeros((n, 0)), codes, None, n)
        return MemoryTable(Domain(columns=(column,)), chunk)
    if kind == "uniform against Beta(1.5, 1)":
        scaled = rng.beta(1.0 + 0.5 * other, 1.0, (n, 1))
    elif kind == "all within 1 % of the range":
        scaled = 0.57 + 0.0025 * (rows + 0.5 * other)
    else:
        if kind == "bimodal against normal" and other:
            rows = rng.choice([-0.9, 0.9], (n, 1)) + math.sqrt(1 - 0.81) * rows
        elif other:
            rows[:, 1] = 0.5 * rows[:, 0] + math.sqrt(0.75) * rows[:, 1]
        scaled = np.clip((rows + FEW_BOUNDS) / (2 * FEW_BOUNDS), 0.0, 1.0)
    return MemoryTable(numeric_domain(scaled.shape[1], (-FEW_BOUNDS, FEW_BOUNDS)), chunk_of(scaled))


def naive_seen(kind: str, tables: Tables, epsilon: float, rng: np.random.Generator) -> float:
    """Return the p-value of what a naive analyst does for one of SEEN."""
    chunks = [table.chunk for table in tables.values()]
    n = len(chunks[0].numeric)
    if SEEN[kind][1] == "noisy mean":
        # The variance of both is released with a fifth of epsilon, of squares in [0, 1].
        told = [float(own.numeric.mean() + rng.laplace(0, 1 / (0.8 * epsilon * n))) for own in chunks]
        squares = [float(np.square(own.numeric).mean() + rng.laplace(0, 5 / (epsilon * n))) for own in chunks]
        spread = max(np.mean(squares) - np.mean(told) ** 2, 0.0) + 1 / n
        drawn = rng.laplace(0, 1 / (0.8 * epsilon * n), (2, 4 * NAIVE_REPLICATES))
        drawn += rng.normal(0, math.sqrt(spread / n), drawn.shape)
        return float(1 + np.sum(np.abs(drawn[0] - drawn[1]) >= abs(told[0] - told[1]))) / (1 + drawn.shape[1])
    if kind == "trend over ten levels":
        cells, size = [own.categorical[:, 0] for own in chunks], 10
    elif kind == "correlation 0 against .5":
        four = [np.minimum((4 * own.numeric).astype(int), 3) for own in chunks]
        cells, size = [4 * own[:, 0] + own[:, 1] for own in four], 16
    else:
        cells, size = [np.minimum((8 * own.numeric[:, 0]).astype(int), 7) for own in chunks], 8
    return histogram_pvalue(np.stack([np.bincount(own, minlength=size) for own in cells]), 2 / epsilon, rng)


def pvalue_of(procedure: KernelTwoSample, study: Study, tables: Tables, noise: NoiseSource) -> float:
    """Return the overall p-value alone: effects take longer than the test."""
    plan = procedure.plan(study)
    releases = [procedure.privatise(study, procedure.summarise(study, own), noise) for own in tables.values()]
    return plan.test.run(plan.evidence(releases)).pvalue


def run_few(
    methods: Mapping[str, Parameters | None],
    draw: Callable[[np.random.Generator], Tables],
    naive: Callable[[Tables, float, np.random.Generator], float] | None,
    n: int,
    epsilons: tuple[float, ...],
    seed: int,
    number: int,
) -> Answers:
    """Draw both samples once and ask every method at every epsilon and level."""
    rng = np.random.default_rng([number, n, seed])
    noise, tables = noise_of(rng), draw(rng)
    answers: dict[str, float] = {}
    procedure = KernelTwoSample()
    for epsilon in epsilons:
        template = study_of(tables["x"].domain, {}, epsilon=epsilon, run=number)
        for method, stated in methods.items():
            asked, parameters = template, stated
            if "δ = 0" in method:
                asked = template.model_copy(update={"budget": Budget.of(epsilon, 0)})
            if parameters is None:
                parameters = procedure.defaults(asked, {"x": n, "y": n})
                answers[question("k-norm chosen", epsilon, 1)] = float("noise" in parameters)
            study = asked.model_copy(update={"parameters": dict(parameters)})
            pvalue = pvalue_of(procedure, study, tables, noise)
            answers |= {question(method, epsilon, level): bool(pvalue <= level) for level in LEVELS}
        if naive is not None:
            found = naive(tables, epsilon, rng)
            answers |= {question(NAIVE, epsilon, level): bool(found <= level) for level in LEVELS}
    return answers


def _two(columns: int, differ: int, effect: str, n: int, rng: np.random.Generator) -> Tables:
    first = effect if effect in LEVEL_DATA else "none"
    return {
        "x": few_table(columns, differ, first, n, rng),
        "y": few_table(columns, differ, effect, n, rng),
    }


def _seen(kind: str, n: int, rng: np.random.Generator) -> Tables:
    return {name: seen_table(kind, n, rng, other=name == "y") for name in ("x", "y")}


def few_cells() -> list[Cell]:
    """List the cells: what is seen, power, then levels."""

    def cell(name: str, runs: int, methods: Any, draw: Any, naive: Any, n: int, epsilons: Any) -> Cell:
        seed = zlib.crc32(name.encode())
        return Cell(name, runs, partial(run_few, methods, draw, naive, n, epsilons, seed))

    seen = [
        cell(
            f"seen {kind}",
            FEW_RUNS,
            FEW_METHODS | CHOSEN_PURE,
            partial(_seen, kind, n),
            partial(naive_seen, kind),
            n,
            (1.0,),
        )
        for kind, (n, _) in SEEN.items()
    ]
    power = [
        cell(
            f"{effect} {columns}/{differ} n={n} e={epsilon:g}",
            FEW_RUNS,
            FEW_METHODS,
            partial(_two, columns, differ, effect, n),
            naive_histograms,
            n,
            (epsilon,),
        )
        for effect in ("shift", "scale")
        for columns, differ in SHIFTED
        for epsilon, sizes in FEW_SIZES[columns, differ].items()
        for n in sizes
        if effect == "shift" or columns in (1, 3)
    ]
    levels = [
        cell(
            f"level {effect} {columns} n={n}",
            FEW_LEVEL_RUNS,
            CHOSEN_PURE,
            partial(_two, columns, 1, effect, n),
            None,
            n,
            FEW_EPSILONS,
        )
        for effect, (_, sizes) in LEVEL_DATA.items()
        for columns, n in sizes
    ]
    return seen + levels + power


def few_parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    seen, powers, levels = {}, [], {}
    for kind, (n, way) in SEEN.items():
        cell = f"seen {kind}"
        if cell in counts.runs:
            asked = (*FEW_METHODS, *CHOSEN_PURE, NAIVE)
            shown = {name: counts.shown(cell, question(name, 1.0, 0.05), ".2f") for name in asked}
            shown["naive way"] = way
            seen[f"{kind} | {n}"] = shown
    for effect in ("shift", "scale"):
        rows = {}
        sizes = ((*c, e, n) for c in SHIFTED for e, numbers in FEW_SIZES[c].items() for n in numbers)
        for columns, differ, epsilon, n in sizes:
            cell = f"{effect} {columns}/{differ} n={n} e={epsilon:g}"
            if cell in counts.runs:
                few = counts.rate(cell, question("k-norm chosen", epsilon, 1))
                rows[f"{columns}, {differ} | {epsilon:g} | {n}"] = {
                    name: counts.shown(cell, question(name, epsilon, 0.05), ".2f")
                    for name in (*FEW_METHODS, NAIVE)
                } | {"noise chosen": "K-norm" if few else "Gaussian"}
        powers.append(f"## {effect}\n\n" + table(rows, "columns, differ | ε | n"))
    cells = ((e, data, *size) for e, (data, found) in LEVEL_DATA.items() for size in found)
    for effect, data, columns, n in cells:
        cell = f"level {effect} {columns} n={n}"
        for epsilon, level in product(FEW_EPSILONS, LEVELS):
            if cell in counts.runs:
                levels[f"{data}, {columns}, {n} | {epsilon:g} | {level:g}"] = {
                    name: counts.shown(cell, question(name, epsilon, level), ".3f") for name in CHOSEN_PURE
                }
    return {
        "seen": table(seen, "difference | n"),
        "seen runs": counts.runs_of("seen"),
        "power runs": counts.runs_of("shift"),
        "level runs": counts.runs_of("level"),
        "powers": "\n".join(powers),
        "levels": table(levels, "data, columns, n | ε | level"),
    }


BENCHMARKS = (
    Benchmark("few-features", few_cells, few_parts),
    Benchmark("two-sample", cells, parts),
    Benchmark("curator", curator_cells, curator_parts),
)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
