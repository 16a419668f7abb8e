"""Levels of the identity tests on sparse and skewed distributions, and with cells of probability 0.

    python -m benchmarks.identity_levels      # everything; continues where it stopped
    python -m benchmarks.identity_levels --runs 0.05 --cells tenth --folder /tmp/glance

Counts are multinomial, noise is simulated with NumPy; statistics, bounds and rates of decisions are the
procedure's own functions. In a run all methods and budgets share one set of counts, and one draw of noise of
each law, which is scaled: their answers depend on one another, and each rate has independent runs of its own.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import numpy.typing as npt

from benchmarks.categorical_levels import law
from benchmarks.harness import NOT_RUN, Answers, Cell, Counts, grid, level_statement, main, question
from tacit_protocol.numerics.noisy_tables import CellNoise
from tacit_protocol.procedures.identity.privit import (
    ClippedIdentity,
    PrivitRefusedError,
    Repetition,
    RepetitionRefusedError,
    plan_privit,
)
from tacit_protocol.procedures.identity.statistic import GoodnessOfFit, Weights

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

RUNS, REPLICATES = 1000, 199
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


def level_run(name: str, cells: int, shares: str, units: int, run: int) -> Answers:
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


def cells() -> list[Cell]:
    """Return everything that is run."""
    found = []
    for k, shares, n in product(CELLS, LAWS, UNITS):
        name = f"level {shares} k={k} n={n}"
        found.append(Cell(name, RUNS, partial(level_run, name, k, shares, n)))
    return found


def parts(counts: Counts) -> dict[str, str]:
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


if __name__ == "__main__":
    main(__doc__, "identity-levels", cells(), parts)
