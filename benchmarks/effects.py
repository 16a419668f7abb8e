"""Effects in two-sample results: coverage of their intervals, and what they cost the test.

    python -m benchmarks.effects                 # continues where it stopped

Coverage: two owners, a column, a law; every interval is asked whether it holds the true effect of the
populations, clipped as the column is. Noise is simulated with NumPy; everything else goes through the
procedure.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np
from numpy.polynomial.legendre import leggauss

from benchmarks.harness import (
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    cells_of,
    extent,
    main,
    question,
    seeds,
    table,
)
from benchmarks.problems import PROBLEMS, MemoryTable, noise_of, study_of
from benchmarks.two_sample import Asked, verdicts
from tacit_protocol.domain import CategoricalColumn, Column, Domain, EncodedChunk, NumericColumn
from tacit_protocol.procedures.kernel_two_sample import KernelTwoSample

RUNS, RARE_RUNS, ALPHA = 600, 1000, 0.05
EPSILONS, LEVELS = (0.3, 1.0, 4.0), (0.05, 0.01)

Law = tuple[Callable[[np.random.Generator, int], Floats], float, float]
"""Draws values of t in [-1, 1]; their mean and standard deviation."""


def _normal(mean: float, sd: float) -> Law:
    return lambda rng, n: mean + sd * rng.standard_normal(n), mean, sd


def _values(values: tuple[float, ...], shares: tuple[float, ...]) -> Law:
    mean = float(np.dot(values, shares))
    sd = math.sqrt(float(np.dot(np.square(values), shares)) - mean**2)
    return lambda rng, n: rng.choice(values, n, p=shares), mean, sd


def _skewed(scale: float) -> Law:
    """Return an exponential law from the lower bound on, clipped at the upper one."""
    at, weights = leggauss(200)
    x = at + 1
    density = np.exp(-x / scale) / scale
    past = math.exp(-2 / scale)
    first = float(weights @ (x * density)) + 2 * past
    second = float(weights @ (x**2 * density)) + 4 * past
    return (
        lambda rng, n: np.minimum(rng.exponential(scale, n), 2.0) - 1,
        first - 1,
        math.sqrt(second - first**2),
    )


LAWS: dict[str, tuple[Law, Law]] = {
    "normal": (_normal(0.0, 0.25), _normal(0.03, 0.2)),
    "skewed": (_skewed(0.3), _skewed(0.25)),
    "narrow": (_normal(-0.2, 0.03), _normal(-0.19, 0.04)),
    "five values": (
        _values((-1.0, -0.5, 0.0, 0.5, 1.0), (0.4, 0.3, 0.2, 0.05, 0.05)),
        _values((-1.0, -0.5, 0.0, 0.5, 1.0), (0.35, 0.3, 0.2, 0.1, 0.05)),
    ),
    "rare": (_values((-0.9, 0.9), (0.99, 0.01)), _values((-0.9, 0.9), (0.98, 0.02))),
}
SHARES = {"share .4": (0.4, 0.35), "share .05": (0.05, 0.08), "share .01": (0.01, 0.01)}

DESIGNS: dict[str, tuple[tuple[int, int], float, int]] = {
    "n=300, ε=1": ((300, 300), 1.0, 1),
    "n=1000, ε=.5": ((1000, 1000), 0.5, 1),
    "n=300, 3000, ε=3": ((300, 3000), 3.0, 1),
    "n=3000, ε=4": ((3000, 3000), 4.0, 1),
    "6 columns, n=2000, ε=2": ((2000, 2000), 2.0, 6),
    "6 columns, n=5000, ε=10": ((5000, 5000), 10.0, 6),
}
"""Units, epsilon, columns; all but the first column are uniform noise."""

NUMERIC = ("mean difference", "standard deviation difference", "standard deviation ratio")
CATEGORICAL = ("risk difference", "risk ratio", "odds ratio")
COVERAGE, SIMULTANEOUS = ".95", "all together"


def table_of(domain: Domain, first: Floats, codes: Floats | None, rng: np.random.Generator) -> MemoryTable:
    """Return rows with that first column, scaled to [0, 1], or these codes."""
    n = len(first)
    others = rng.random((n, len(domain.numeric)))
    if codes is None:
        others[:, 0] = np.clip((first + 1) / 2, 0.0, 1.0)
    categorical = np.zeros((n, 0)) if codes is None else codes[:, None]
    return MemoryTable(domain, EncodedChunk(others, categorical.astype(np.int32), None, n))


def covered(name: str, law: str, design: str, run: int) -> Answers:
    """Play one study, and ask of each interval whether it holds the truth."""
    rng, _ = seeds(name, run)
    units, epsilon, columns = DESIGNS[design]
    truths: Mapping[str, float]
    made: list[Column] = [NumericColumn(name=f"c{i}", lower=-1.0, upper=1.0) for i in range(columns)]
    if law in LAWS:
        (draw, mean, sd), (other, mean_2, sd_2) = LAWS[law]
        truths = dict(zip(NUMERIC, (mean - mean_2, sd - sd_2, sd / sd_2), strict=True))
        domain = Domain(columns=tuple(made))
        tables = [
            table_of(domain, law_of(rng, n), None, rng)
            for n, law_of in zip(units, (draw, other), strict=True)
        ]
    else:
        p, q = SHARES[law]
        odds = p * (1 - q) / (q * (1 - p))
        truths = dict(zip(CATEGORICAL, (p - q, p / q, odds), strict=True))
        domain = Domain(columns=(*made[1:], CategoricalColumn(name="c0", levels=("a", "b"))))
        tables = [
            table_of(domain, np.zeros(n), (rng.random(n) < share).astype(float), rng)
            for n, share in zip(units, (p, q), strict=True)
        ]
    study = study_of(domain, {}, epsilon=epsilon, run=run)
    study = study.model_copy(update={"level": ALPHA})
    procedure, noise = KernelTwoSample(), noise_of(rng)
    names = [owner.name for owner in study.owners]
    releases = {
        owner: procedure.privatise(study, procedure.summarise(study, own), noise)
        for owner, own in zip(names, tables, strict=True)
    }
    answers: dict[str, float] = {}
    for effect in procedure.assemble(study, releases).effects:
        if effect.column != "c0":
            continue
        truth = truths[effect.kind]
        ends = {"": (effect.lower, effect.upper)}
        ends[f" {SIMULTANEOUS}"] = (effect.simultaneous_lower, effect.simultaneous_upper)
        for which, (lower, upper) in ends.items():
            held = (lower is None or lower <= truth) and (upper is None or truth <= upper)
            answers[effect.kind + which] = held
        answers[f"{effect.kind} said"] = effect.interval is not None
    return answers


def level(name: str, setting: tuple[str, int], run: int) -> Answers:
    """Ask the default of two samples of one population."""
    rng, _ = seeds(name, run)
    problem, n = setting
    tables = {owner: PROBLEMS[problem].table(n, False, rng) for owner in ("x", "y")}
    noise = noise_of(rng)
    asked = Asked({}, tables, EPSILONS, rng, run)
    return {
        question("test", epsilon, alpha): verdict.pvalue <= alpha
        for epsilon, verdict in verdicts(asked, noise)
        for alpha in LEVELS
    }


def cells() -> list[Cell]:
    """Return all cells."""
    settings = (("SG5", 300), ("Heavy", 300), ("Heavy", 3000), ("Ties", 300), ("Ties", 3000))
    found = cells_of("level {0[0]}, n={0[1]}", RUNS, level, settings, seeded=True)
    found += cells_of("{}, {}", RARE_RUNS, covered, ("rare",), DESIGNS, seeded=True)
    others = [law for law in (*LAWS, *SHARES) if law != "rare"]
    return found + cells_of("{}, {}", RUNS, covered, others, DESIGNS, seeded=True)


def parts(counts: Counts) -> dict[str, str]:
    """Write the page's tables."""
    levels, numbers, shares = {}, {}, {}
    lowest, joint = (1.0, ""), (1.0, "")
    for cell in counts.runs:
        if cell.startswith("level "):
            levels[cell.removeprefix("level ")] = {
                f"ε = {e:g}, level {a:g}": counts.shown(cell, question("test", e, a))
                for e in EPSILONS
                for a in LEVELS
            }
            continue
        kinds = NUMERIC if any(cell.startswith(law) for law in LAWS) else CATEGORICAL
        row = {}
        for kind in kinds:
            rate, together = counts.rate(cell, kind), counts.rate(cell, f"{kind} {SIMULTANEOUS}")
            said = counts.shown(cell, f"{kind} said", ".2f")
            row[kind] = f"{counts.shown(cell, kind)} ({said})"
            lowest = min(lowest, (rate or 0.0, f"{kind}, {cell}"))
            joint = min(joint, (together or 0.0, f"{kind}, {cell}"))
        (numbers if kinds == NUMERIC else shares)[cell] = row
    count = sum(len(rows[name]) for rows in (numbers, shares) for name in rows)
    asked = [(c, q) for c, q in counts.answered if c.startswith("level ")]
    tails = [(counts.tail(c, q, float(q.rpartition(" ")[2])), f"{c}, {q}") for c, q in asked]
    tail, where = min(tails, default=(1.0, ""))
    return {
        "runs": extent(runs for cell, runs in counts.runs.items() if not cell.startswith("level")),
        "statement": (
            f"Of {count} intervals at .95 the lowest coverage is {lowest[0]:.3f} ({lowest[1]}), with a\n"
            f"Monte-Carlo error of .007 to .011. The lowest that hold together is {joint[0]:.3f}\n"
            f"({joint[1]}).\n"
        ),
        "level": (
            f"Of {len(tails)} rates the one furthest above its level ({where}) would be as large\n"
            f"with probability {tail:.2g} were the level exact; times {len(tails)}: "
            f"{min(1.0, tail * len(tails)):.2g}.\n\n" + (table(levels, "problem") if levels else "")
        ),
        "numbers": table(numbers, "design") if numbers else "",
        "shares": table(shares, "design") if shares else "",
    }


BENCHMARKS = (Benchmark("effects", cells, parts),)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
