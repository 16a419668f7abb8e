"""The identity tests: sample sizes in P3's three experiments, and levels on sparse and skewed distributions.

    python -m benchmarks.identity                # both pages; continues where it stopped
    python -m benchmarks.identity --page identity --cells uniform --folder /tmp/glance

The size of a method is the smallest n of a grid with steps of 5 % at which both errors were at most 1/3 over
1000 simulated studies each. Counts and noise are simulated; statistics, bounds and rates of decisions are the
procedure's own functions. In a run of levels all methods and budgets share one set of counts, and one draw of
noise of each law, which is scaled: their answers depend on one another, and each rate has independent runs of
its own.
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.categorical import law
from benchmarks.harness import (
    NOT_RUN,
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    cells_of,
    curves,
    grid,
    level_statement,
    main,
    named,
    question,
)
from tacit_protocol.numerics.noisy_tables import CellNoise, paninski
from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_protocol.procedures.identity.privit import (
    ClippedIdentity,
    PrivitRefusedError,
    Repetition,
    RepetitionRefusedError,
    plan_privit,
)
from tacit_protocol.procedures.identity.simulate import PlannedIdentity
from tacit_protocol.procedures.identity.statistic import GoodnessOfFit, Weights

EXPERIMENTS = {
    "uniform": "Uniform distribution",
    "2-histogram": "2-histogram",
    "text-histogram": "2-histogram, masses of P3's text",
    "guarantees": "zCDP against approximate and pure differential privacy",
    "deltas": "P3's third experiment: five values of delta",
}

ALPHA = EPSILON = 0.1
ERROR = 1 / 3
LEVEL = 0.3
"""Level of the tests: at 1/3 itself half of all would miss the rule by chance; here one in twenty."""

RUNS, DRAWS = 1000, 999

ATTEMPTS = 4
"""The first error misses by chance one time in twenty; a search, of ten places, goes past one that fails."""

DELTA = 1e-6
GRID = 0.05
"""Logarithm of the grid's steps; P3's code took 0.1."""

UNIFORM = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_600)
HISTOGRAM = (400, 800, 1600, 3200, 6800)
LARGE = 20_000
GUARANTEES = (10, 100, 1000, 10_600)
THIRD = (10, 20, 50, 100, 200, 500, 1000, 2000, 6000)
EXPONENTS = (1, 2, 4, 8, 16)
"""Of P3's third experiment: delta is e to minus these."""

LARGE_PART, SMALL_MASS, SMALL_CELLS = 1 / 200, 1 / 3, 10
"""Of the 2-histogram: the part of the cells that is heavy, and the probability of all others together: in
units of alpha in P3's published code, so many cells' equal share in its text."""


@dataclass
class Search:
    """The smallest place on the grid whose n is enough for one method at one number of cells."""

    name: str
    make: Callable[[int], PlannedIdentity]
    other: Floats

    def enough(self, step: int) -> bool:
        """Return whether n is enough, by simulation.

        Where the second error is small enough and the first, which the level fixes, is not, others decide.
        """
        for attempt in range(ATTEMPTS):
            entropy = [zlib.crc32(self.name.encode()), step, *([attempt] if attempt else [])]
            seed = np.random.SeedSequence(entropy)
            try:
                found = self.make(size_of(step)).rates(self.other, RUNS, DRAWS, seed)
            except (PrivitRefusedError, RepetitionRefusedError):
                return False
            if RUNS - round(found.true * RUNS) > ERROR * RUNS:
                return False
            if round(found.false * RUNS) <= ERROR * RUNS:
                return True
        return False

    def found(self, start: int) -> int:
        """Return the place: gallops, then halves."""
        low, high, stride, step = None, None, 2, start
        while low is None or high is None:
            if self.enough(step):
                high, step = step, step - stride
            else:
                low, step = step, step + stride
            stride *= 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.enough(middle) else (middle, high)
        return high


def size_of(step: int) -> int:
    """Return the n of a place on the grid."""
    return math.ceil(math.exp(GRID * step))


def uniform(cells: int) -> tuple[Floats, Floats]:
    """Return the uniform distribution and Paninski's alternative."""
    q = np.full(cells, 1 / cells)
    return q, paninski(q, ALPHA)


def histogram(cells: int, small: float = ALPHA * SMALL_MASS) -> tuple[Floats, Floats]:
    """Return P3's 2-histogram with ``small`` on its light cells, and its alternative on the heavy ones."""
    heavy = max(2, int(LARGE_PART * cells))
    q = np.concatenate([np.full(heavy, (1 - small) / heavy), np.full(cells - heavy, small / (cells - heavy))])
    moved = q.copy()
    pairs = heavy // 2
    moved[: 2 * pairs : 2] += ALPHA / (2 * pairs)
    moved[1 : 2 * pairs : 2] -= ALPHA / (2 * pairs)
    return q, moved


def methods(epsilon: float) -> dict[str, dict[str, object]]:
    """Return the methods of the first two experiments, by label."""
    return {
        "not private": {"method": "chi-square"},
        "privit-laplace, tight": {"method": "privit-laplace", "weights": "published"},
        "privit-laplace, tight, noise-aware weights": {"method": "privit-laplace"},
        "privit-laplace, filter (P3)": {"method": "privit-laplace", "clipping": "filter"},
        "mcgof, published weights": {"method": "mcgof", "weights": "published"},
        "mcgof, noise-aware weights": {"method": "mcgof"},
        f"zcdp-gof, rho = {epsilon**2 / 2:g}": {"method": "zcdp-gof", "rho": epsilon**2 / 2},
        "repetition": {"method": "repetition"},
        "privit (Algorithm 1)": {"method": "privit"},
    }


def text_methods() -> dict[str, dict[str, object]]:
    """Return the methods that P3's text names for its 2-histogram, and ours.

    *P3's noise* protects the addition or removal of a unit only: half as wide, by variance for zcdp-gof.
    """
    return {label: asked for label, asked in methods(EPSILON).items() if asked["method"] in NAMED} | {
        "mcgof, published weights, P3's noise": {
            "method": "mcgof",
            "weights": "published",
            "epsilon": 2 * EPSILON,
        },
        "zcdp-gof, P3's noise": {"method": "zcdp-gof", "rho": EPSILON**2},
    }


NAMED = ("chi-square", "privit-laplace", "mcgof", "zcdp-gof")


def guarantees() -> dict[str, dict[str, object]]:
    """Return one test under several guarantees."""
    return {
        "zcdp-gof, zCDP that pure 0.1 implies": {"method": "zcdp-gof", "rho": EPSILON**2 / 2},
        "zcdp-gof, (0.1, 1e-6) by the exact curve": {"method": "zcdp-gof", "rho": exact_rho(DELTA)},
        "zcdp-gof, (0.1, 1e-6) by the zCDP bound": {"method": "zcdp-gof", "rho": textbook_rho(DELTA)},
        "mcgof, pure 0.1": {"method": "mcgof"},
        "privit-laplace, pure 0.1": {"method": "privit-laplace"},
    }


def exact_rho(delta: float) -> float:
    """Return the rho of the widest Gaussian noise that (epsilon, delta) needs."""
    return gaussian_mu(EPSILON, delta) ** 2 / 2


def textbook_rho(delta: float) -> float:
    """Return the rho whose published bound is (epsilon, delta)."""
    return (math.sqrt(math.log(1 / delta) + EPSILON) - math.sqrt(math.log(1 / delta))) ** 2


def deltas() -> dict[str, dict[str, object]]:
    """Return what the third experiment compares: zCDP, and the pure epsilon of P3's (epsilon, delta)."""
    rho = EPSILON**2 / 2
    made: dict[str, dict[str, object]] = {f"zcdp-gof, rho = {rho:g}": {"method": "zcdp-gof", "rho": rho}}
    for form, clipping in (("tight", "tight"), ("filter (P3)", "filter")):
        for t in EXPONENTS:
            epsilon = rho + EPSILON * math.sqrt(2 * t)
            label = f"privit-laplace, {form}, δ = e^−{t}: ε = {epsilon:.3f}"
            made[label] = {"method": "privit-laplace", "clipping": clipping, "epsilon": epsilon}
    return made


def size_run(experiment: str, cells: int, label: str, _: int) -> Answers:
    """Find the size of a method."""
    histograms = {"2-histogram": ALPHA * SMALL_MASS, "text-histogram": SMALL_CELLS / cells}
    small = histograms.get(experiment)
    q, other = uniform(cells) if small is None else histogram(cells, small)
    choices = {"text-histogram": text_methods, "guarantees": guarantees, "deltas": deltas}
    chosen = (choices[experiment]() if experiment in choices else methods(EPSILON))[label]
    asked: dict[str, Any] = {"probabilities": q, "epsilon": EPSILON, "level": LEVEL, "distance": ALPHA}
    asked |= chosen
    search = Search(f"{experiment} | {label} | {cells}", lambda n: PlannedIdentity(units=n, **asked), other)
    plan = search.make(1)
    parts = cells if small is None else max(2, cells // 200)
    guess = first_guess(plan.method, parts, ALPHA / 2, plan.epsilon, plan.rho or 0.005)
    return {"units": size_of(search.found(max(20, round(math.log(max(guess, 10.0)) / GRID))))}


def first_guess(method: str, cells: int, distance: float, epsilon: float, rho: float) -> float:
    """Return about how many units a test needs to see a total variation distance: where a search starts.

    The squared distance on k equal cells makes 4 n distance^2 of a statistic whose spread is sqrt(2k) by
    counting, and by noise of variance v on a cell sqrt(2k) v k/n; a noisy statistic's own noise is 8 sqrt(k
    log k/n)/epsilon.
    """
    signal, spread = 4 * distance**2, math.sqrt(2 * cells)
    counting = spread / signal
    if method == "chi-square":
        return counting
    if method == "privit-laplace":
        own: float = (16 * math.sqrt(cells * math.log(cells + 1)) / epsilon / signal) ** (2 / 3)
        return counting + own
    if method == "privit":
        return 40 * counting + 400 / epsilon / distance
    if method == "repetition":
        return counting * max(2.0, 4 / epsilon)
    variance = 1 / rho if method == "zcdp-gof" else 8 / epsilon**2
    return counting + math.sqrt(spread * variance * cells / signal)


def cells() -> list[Cell]:
    """List all points, small ones first."""
    plain = [label for label in methods(EPSILON) if not label.endswith("noise-aware weights")]
    # Where cells are alike, all weights are.
    asked = [("uniform", k, label) for k in UNIFORM for label in plain]
    asked += [("2-histogram", k, label) for k in HISTOGRAM for label in methods(EPSILON)]
    asked += [("guarantees", k, label) for k in GUARANTEES for label in guarantees()]
    asked += [("text-histogram", k, label) for k in HISTOGRAM for label in text_methods()]
    asked += [("deltas", k, label) for k in THIRD for label in deltas()]
    asked.append(("uniform", LARGE, f"zcdp-gof, rho = {EPSILON**2 / 2:g}"))
    asked.sort(key=lambda one: (one[1], list(EXPERIMENTS).index(one[0])))
    return [Cell(f"{e} | {label} | {k}", 1, partial(size_run, e, k, label)) for e, k, label in asked]


Curves = dict[str, dict[int, int]]


def _curves(counts: Counts, experiment: str) -> Curves:
    found: Curves = {}
    for name, units in ((name, counts.rate(name, "units")) for name in counts.runs):
        kind, label, cells = name.split(" | ")
        if kind == experiment and units is not None:
            found.setdefault(label, {})[int(cells)] = round(units)
    return found


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    found = {"runs": str(RUNS), "statements": _statements(counts)}
    for experiment in EXPERIMENTS:
        lines = _curves(counts, experiment)
        found[experiment] = grid(
            "k",
            named("{:,}", sorted({k for line in lines.values() for k in line})),
            list(lines.items()),
            lambda k, line: f"{line[k]:,}" if k in line else "",
        )
    return found


def draw(counts: Counts, folder: Path) -> None:
    """Draw the curves of every experiment."""
    for experiment, title in EXPERIMENTS.items():
        lines = {
            label: [(sorted(line), [line[k] for k in sorted(line)])]
            for label, line in _curves(counts, experiment).items()
        }
        curves(folder / f"identity-{experiment}.svg", {title: lines}, "cells k", "units n")


def _statements(counts: Counts) -> str:
    """Say how the curves lie to each other, from the figures."""
    lines = []
    for experiment in ("uniform", "2-histogram"):
        lines_of = _curves(counts, experiment)
        aware = "privit-laplace, tight, noise-aware weights"
        tight = lines_of.get(aware, lines_of.get("privit-laplace, tight", {}))
        peers = {
            "its published form": "privit-laplace, filter (P3)",
            "MCGOF as published": "mcgof, published weights",
            "MCGOF with noise-aware weights": "mcgof, noise-aware weights",
        }
        for name, other in ((name, lines_of.get(label, {})) for name, label in peers.items()):
            both = sorted(set(tight) & set(other))
            if both:
                ratios = [other[k] / tight[k] for k in both]
                lines.append(
                    f"- {experiment}: `privit-laplace` as it is by default needs {min(ratios):.1f} to "
                    f"{max(ratios):.1f} times fewer units than {name}, k = {both[0]:,} to {both[-1]:,}.\n"
                )
        lines += [_slope(experiment, label, curve) for label, curve in lines_of.items() if len(curve) > 2]
    return "".join(lines)


def _slope(experiment: str, label: str, curve: dict[int, int]) -> str:
    first, last = min(curve), max(curve)
    slope = math.log(curve[last] / curve[first]) / math.log(last / first)
    return f"- {experiment}: {label} grows like k^{slope:.2f} from k = {first:,} to {last:,}.\n"


Integers = npt.NDArray[np.int64]

LEVEL_RUNS, REPLICATES = 1000, 199
LEVELS = (0.05, 0.01)
EPSILONS = (0.3, 3.0, 20.0)
CELLS = (4, 30, 100)
LAWS = ("uniform", "Zipf", "tenth")
UNITS = (20, 500, 20_000)

DISTANCE, WIDE = 0.1, 1.0
"""Of privit-laplace, the default; and of privit, the largest, with which it is refused least often."""

METHODS = (
    "mcgof",
    "mcgof, published weights",
    "mcgof, Gaussian",
    "zcdp-gof, auto",
    "privit-laplace",
    "privit-laplace, filter",
    "repetition",
    "privit",
)


@dataclass(frozen=True)
class Drawn:
    """What all methods of a run share: the study's counts first, then those of its null distribution.

    ``counts`` is (1 + REPLICATES, k); the noises are of scale 1, of the same shape or one a statistic.
    """

    counts: Integers
    laplace: Floats
    normal: Floats
    single: Floats

    @classmethod
    def of(cls, q: Floats, units: int, rng: np.random.Generator) -> "Drawn":
        """Draw data that follow q, and noise."""
        shape = (1 + REPLICATES, len(q))
        counts = rng.multinomial(units, q, size=shape[0])
        single = rng.laplace(size=shape[0])
        return cls(counts, rng.laplace(size=shape), rng.standard_normal(shape), single)


def tail(values: Floats) -> float:
    """Return the p-value of the first of several values."""
    return float((1 + np.count_nonzero(values[1:] >= values[0])) / len(values))


def counted(q: Floats, units: int, drawn: Drawn, noise: CellNoise, weights: Weights) -> float:
    """Return the p-value of noisy counts by simulation."""
    shape = drawn.laplace if noise.kind == "laplace" else drawn.normal
    return tail(GoodnessOfFit(q, units, noise, weights).statistic(drawn.counts + noise.scale * shape))


def zcdp(q: Floats, units: int, drawn: Drawn, noise: CellNoise) -> float:
    """Return the p-value of zcdp-gof: chi-square where the procedure takes it, else by simulation."""
    fit = GoodnessOfFit(q, units, noise, "noise-aware")
    if not fit.chi_square_holds:
        return counted(q, units, drawn, noise, "noise-aware")
    return fit.chi_square_pvalue(float(fit.statistic(drawn.counts[0] + noise.scale * drawn.normal[0])))


def clipped(q: Floats, units: int, drawn: Drawn, epsilon: float, *, filtered: bool) -> float:
    """Return the p-value of privit-laplace."""
    scale, multiplier = (4 / epsilon, 2 / epsilon) if filtered else (None, 1 / epsilon)
    test = ClippedIdentity(q, units, DISTANCE, scale, None if filtered else multiplier)
    own = test.sensitivity * multiplier
    values = test.statistic(drawn.counts.astype(np.float64)) + own * drawn.single
    noisy = None if scale is None else drawn.counts + scale * drawn.laplace
    return tail(test.scores(values, noisy))


def repeated(q: Floats, units: int, epsilon: float, level: float, run: np.random.Generator) -> bool | None:
    """Return the decision of repetition; None where it is refused.

    Its law is that of a coin with probability ``level``, else the answer of a random block: one is enough.
    """
    test = Repetition(q, epsilon, level)
    try:
        size = test.block_units(units)
    except RepetitionRefusedError:
        return None
    block = tail(test.statistic(run.multinomial(size, q, size=1 + REPLICATES))) <= test.block_level
    return bool(run.random() < 0.5) if run.random() < level else block


def decided(q: Floats, units: int, epsilon: float, level: float, run: np.random.Generator) -> bool | None:
    """Return the decision of privit, from its exact probability; None where it is refused."""
    try:
        plan = plan_privit(q, units, epsilon, WIDE, level)
    except PrivitRefusedError:
        return None
    blocks = [run.poisson(plan.instance.samples * q) for _ in range(plan.blocks)]
    rejections = sum(run.random() >= plan.instance.acceptance(block) for block in blocks)
    return 2 * rejections > plan.blocks


def level_run(name: str, shares: str, cells: int, units: int, run: int) -> Answers:
    """Test data that follow the known distribution, by every method at every epsilon."""
    q = law(shares, cells)
    rng = np.random.default_rng(np.random.SeedSequence([zlib.crc32(name.encode()), run]))
    drawn = Drawn.of(q, units, rng)
    answers: dict[str, bool] = {}
    for epsilon in EPSILONS:
        laplace, gaussian = CellNoise("laplace", 2 / epsilon), CellNoise("gaussian", 2**0.5 / epsilon)
        pvalues = {
            "mcgof": counted(q, units, drawn, laplace, "noise-aware"),
            "mcgof, published weights": counted(q, units, drawn, laplace, "published"),
            "mcgof, Gaussian": counted(q, units, drawn, gaussian, "noise-aware"),
            "zcdp-gof, auto": zcdp(q, units, drawn, gaussian),
            "privit-laplace": clipped(q, units, drawn, epsilon, filtered=False),
            "privit-laplace, filter": clipped(q, units, drawn, epsilon, filtered=True),
        }
        decisions: dict[str, Callable[[float], bool | None]] = {
            "repetition": partial(repeated, q, units, epsilon, run=rng),
            "privit": partial(decided, q, units, epsilon, run=rng),
        }
        for level in LEVELS:
            for method, pvalue in pvalues.items():
                answers[question(method, epsilon, level)] = pvalue <= level
            for method, decide in decisions.items():
                answer = decide(level)
                if answer is not None:
                    answers[question(method, epsilon, level)] = answer
    return answers


def level_cells() -> list[Cell]:
    """List a cell for every distribution and number of units."""
    axes = (LAWS, CELLS, UNITS)
    made = cells_of("level {} k={} n={}", LEVEL_RUNS, level_run, *axes, seeded=True)
    return sorted(made, key=lambda cell: CELLS.index(int(cell.name.split()[2][2:])))


def level_parts(counts: Counts) -> dict[str, str]:
    """Write the tables: a row for each distribution and k, a column for each n and epsilon."""
    rows = [(f"{shares} k={k}", (shares, k)) for k, shares in product(CELLS, LAWS)]
    columns = [(f"n={n} ε={epsilon:g}", (n, epsilon)) for n, epsilon in product(UNITS, EPSILONS)]
    tables = []
    for level, method in product(LEVELS, METHODS):

        def shown(row: tuple[str, int], place: tuple[int, float], m: str = method, a: float = level) -> str:
            return counts.shown(f"level {row[0]} k={row[1]} n={place[0]}", question(m, place[1], a))

        tables.append(f"## {method}, level {level:g}\n\n{grid('distribution', rows, columns, shown)}\n")
    refused = "".join(tables).replace(NOT_RUN, "Refused everywhere.")
    return {"runs": counts.runs_of("level"), "statement": level_statement(counts), "tables": refused}


BENCHMARKS = (
    Benchmark("identity", cells, parts, draw),
    Benchmark("identity-levels", level_cells, level_parts),
)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
