"""Survival: level and power of the log-rank test, coverage of hazard ratios, curves, medians, bands.

    python -m benchmarks.survival --workers 2     # everything; continues where it stopped

Two groups with exponential times; censoring at rates that differ between the groups, and at the end.
``shift`` moves hazard and group sizes from owner to owner. Noise is simulated with NumPy; everything else is
the procedure's own functions. ``without privacy`` is the log-rank test of the exact counts by intervals,
stratified by owner; ``added up`` the procedure's own test of the owners' tables added up.
"""

import zlib
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc

from benchmarks.harness import Answers, Cell, Counts, main, question, table
from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable, add_tables
from tacit_protocol.procedures.survival.statistic import Times, curves, hazard_ratio, log_rank, log_rank_test

Floats = npt.NDArray[np.float64]

RUNS, POWER_RUNS, REPLICATES, LEVEL = 1000, 300, 199, 0.05
OWNERS, RATIOS = (1, 4, 10), (1.0, 1.6)
DESIGNS: dict[str, tuple[int, float, int, float, float]] = {
    "n=300, ε=1": (300, 1.0, 10, 0.12, 0.0),
    "n=300, ε=1, shift 1": (300, 1.0, 10, 0.12, 1.0),
    "n=1000, ε=.3": (1000, 0.3, 10, 0.12, 0.0),
    "n=1000, ε=1, rare, 20 intervals": (1000, 1.0, 20, 0.02, 0.0),
    "n=100, ε=4, fast": (100, 4.0, 6, 0.5, 0.0),
    "n=3000, ε=3, shift 1": (3000, 3.0, 10, 0.12, 1.0),
}
"""Units of each owner, epsilon, intervals, hazard of the first group in each, shift."""

POWERS = ((1, 1000), (4, 250), (4, 1000), (10, 300))
METHODS = ("without privacy", "survival", "added up")
COVERED = ("hazard ratio", "curve", "band", "median", "restricted mean")


def drawn(
    rng: np.random.Generator, owners: int, design: tuple[int, float, int, float, float], ratio: float
) -> tuple[list[Times], Floats]:
    """Return the owners' noisy counts, and the exact ones (owners, 2, m, 2)."""
    n, epsilon, m, base, shift = design
    noise, found, exact = CellNoise("laplace", 2 / epsilon), [], []
    for place in range(owners):
        moved = shift * (place / max(owners - 1, 1) - 0.5) if owners > 1 else 0.0
        group = (rng.random(n) < np.clip(0.5 + moved / 2, 0.1, 0.9)).astype(int)
        times = rng.exponential(1 / (base * (1 + moved) * np.array([1.0, ratio])[group]))
        censored = np.minimum(rng.exponential(1 / np.array([0.05, 0.08])[group]), m - 1e-9)
        counts = np.zeros((2, m, 2))
        np.add.at(counts, (group, np.minimum(times, censored).astype(int), (times > censored).astype(int)), 1)
        exact.append(counts)
        noisy = counts.ravel() + noise.draw(rng, (counts.size,))
        cells = np.arange(counts.size).reshape(1, 2, m, 2)
        found.append(Times(NoisyTable(noisy, n, (noise,)), cells))
    return found, np.stack(exact)


def seeds(name: str, run: int) -> tuple[np.random.Generator, np.random.SeedSequence]:
    """Return the seeds of a run: of its data and noise, and of its simulations."""
    data, null = np.random.SeedSequence([zlib.crc32(name.encode()), run]).spawn(2)
    return np.random.default_rng(data), null


def within(value: float, lower: float | None, upper: float | None) -> bool:
    """Say whether an interval holds a value; an end that is None is none."""
    return bool((lower is None or lower <= value) and (upper is None or value <= upper))


def checked(name: str, owners: int, design: str, ratio: float, run: int) -> Answers:
    """Test one study, and ask of every interval whether it holds the truth."""
    rng, seed = seeds(name, run)
    held, _ = drawn(rng, owners, DESIGNS[design], ratio)
    _, _, m, base, shift = DESIGNS[design]
    answers: dict[str, float] = {}
    if ratio == 1:
        answers[question("test", design, LEVEL)] = log_rank_test(held, REPLICATES, seed).pvalue <= LEVEL
    counts, variances = (np.concatenate([getattr(o, k) for o in held]) for k in ("counts", "variances"))
    found = hazard_ratio(counts, variances, (1, 0), LEVEL)
    answers["hazard ratio"] = within(ratio, found.lower, found.upper)
    if shift and owners > 1:
        return answers
    one, truth = curves(held, np.arange(m + 1.0), LEVEL, seed)[0], np.exp(-base * np.arange(1, m + 1))
    mean, half = (1 - truth[-1]) / base, np.log(2) / base
    return answers | {
        "curve": float(np.mean((one.lower <= truth) & (truth <= one.upper))),
        "band": bool(np.all((one.band_lower <= truth) & (truth <= one.band_upper))),
        "median": within(half, one.median[1], one.median[2]) if half < m else one.median[2] is None,
        "restricted mean": within(mean, one.restricted_mean[1], one.restricted_mean[2]),
    }


def powered(name: str, owners: int, n: int, epsilon: float, shift: float, ratio: float, run: int) -> Answers:
    """Test one study by every method."""
    rng, seed = seeds(name, run)
    held, exact = drawn(rng, owners, (n, epsilon, 10, 0.12, shift), ratio)
    added = Times(add_tables([own.table for own in held]), held[0].cells)
    pvalues = {
        "without privacy": chdtrc(1, float(log_rank(exact, np.zeros(owners)))),
        "survival": log_rank_test(held, REPLICATES, seed).pvalue,
        "added up": log_rank_test([added], REPLICATES, seed).pvalue,
    }
    return {method: bool(pvalue <= LEVEL) for method, pvalue in pvalues.items()}


def cells() -> list[Cell]:
    """Return all cells."""
    found = []
    for owners in OWNERS:
        for design in DESIGNS:
            for ratio in RATIOS:
                name = f"check {owners} owners, {design}, hazard ratio {ratio:g}"
                found.append(Cell(name, RUNS, partial(checked, name, owners, design, ratio)))
    for owners, n in POWERS:
        for epsilon in (0.3, 1.0):
            for shift in (0.0, 1.0):
                for ratio in (1.0, 1.4):
                    name = f"power {owners} x {n}, ε={epsilon:g}, shift {shift:g}, hazard ratio {ratio:g}"
                    run = partial(powered, name, owners, n, epsilon, shift, ratio)
                    found.append(Cell(name, POWER_RUNS, run))
    return found


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    checks, powers = {}, {}
    for cell in counts.runs:
        kind, _, name = cell.partition(" ")
        if kind == "power":
            powers[name] = {method: counts.shown(cell, method, ".2f") for method in METHODS}
        else:
            design = name.partition(", ")[2].rpartition(", ")[0]
            row = {"rejected": counts.shown(cell, question("test", design, LEVEL))}
            checks[name] = row | {words: counts.shown(cell, words) for words in COVERED}
    asked = [(c, q) for c, q in counts.answered if q.endswith(f"| {LEVEL:g}")]
    worst = min((counts.tail(c, q, LEVEL), c) for c, q in asked) if asked else (1.0, "none")
    rates = [(counts.rate(c, q) or 0.0, q, c) for c, q in counts.answered if q in COVERED]
    lowest = min(rates) if rates else (0.0, "", "")
    statement = (
        f"Of {len(asked)} rates at level {LEVEL:g} the one furthest above it ({worst[1]}) would be as large\n"
        f"with probability {worst[0]:.2g} were the level exact; times {len(asked)}: "
        f"{min(1.0, worst[0] * len(asked)):.2g}. The lowest coverage of .95 is {lowest[0]:.3f}\n"
        f"({lowest[1]}, {lowest[2]}).\n"
    )
    return {
        "runs": counts.runs_of("check"),
        "power runs": counts.runs_of("power"),
        "statement": statement,
        "checks": table(checks, "design") if checks else "",
        "powers": table(powers, "design") if powers else "",
    }


if __name__ == "__main__":
    main(__doc__, "survival", cells(), parts)
