"""Stratified tables and survival: level, power, coverage, beside what people would do otherwise.

    python -m benchmarks.strata --workers 2     # both pages; continues where it stopped
    python -m benchmarks.strata --page survival --runs 0.02 --folder /tmp/glance

Owners hold two groups, and an event or a time. ``shift`` moves groups and risks from owner to owner: a test
that is not stratified then rejects. Noise is simulated with NumPy; statistics and intervals are the
procedures' own functions.

``without privacy`` is the Cochran-Mantel-Haenszel test of the exact tables, or the log-rank test of the exact
counts by intervals, stratified by owner; ``added up`` the procedure's own test, or the independence test, of
the owners' noisy tables added up; ``Woolf`` an inverse-variance mean of the owners' log odds ratios from
noisy counts cut at one half, as a meta-analysis of released tables takes them, without regard to the noise.
"""

from functools import partial
from itertools import product

import numpy as np
from scipy.special import chdtrc

from benchmarks.harness import (
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    cells_of,
    checks_and_powers,
    main,
    question,
    seeds,
)
from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable, add_tables
from tacit_protocol.procedures.counts.stratified import (
    SCORES,
    Strata,
    fourfold,
    heterogeneity,
    statistics,
    stratified_test,
)
from tacit_protocol.procedures.independence_table import independence_test
from tacit_protocol.procedures.survival import Times, curves, hazard_ratio, log_rank, log_rank_test

RUNS, POWER_RUNS, REPLICATES, LEVEL = 1000, 300, 199, 0.05
LIFE_POWER_RUNS, CURVE_RUNS, RATIO_RUNS, FAILED_RUNS = 400, 600, 400, 2000
"""Of survival: of powers, of curves, of intervals of ratios, and of levels that had failed."""

POWER_EPSILONS, SHIFTS = (0.3, 1.0), {"shift 0": 0.0, "shift .4": 0.4}

TABLES: dict[str, tuple[int, float, float, float, float]] = {
    "n=300, ε=1": (300, 1.0, 0.5, 0.3, 0.0),
    "n=100, ε=1, shift .6": (100, 1.0, 0.5, 0.5, 0.6),
    "n=1000, ε=.3, shift .5": (1000, 0.3, 0.5, 0.3, 0.5),
    "n=1000, ε=1, a tenth exposed, risk .1": (1000, 1.0, 0.1, 0.1, 0.0),
    "n=300, ε=4, .05 exposed, risk .05": (300, 4.0, 0.05, 0.05, 0.0),
    "n=3000, ε=1, risk .02, shift .4": (3000, 1.0, 0.3, 0.02, 0.4),
    "n=10000, ε=3, shift .5": (10_000, 3.0, 0.5, 0.3, 0.5),
}
"""Units of each owner, epsilon, share of the second group, risk of the first, shift."""

TABLE_METHODS = ("without privacy", "stratified_table", "added up", "Woolf")
RATIOS = ("risk difference", "risk ratio", "odds ratio")

LIVES: dict[str, tuple[int, float, int, float, float]] = {
    "n=300, ε=1": (300, 1.0, 10, 0.12, 0.0),
    "n=300, ε=1, shift 1": (300, 1.0, 10, 0.12, 1.0),
    "n=1000, ε=.3": (1000, 0.3, 10, 0.12, 0.0),
    "n=1000, ε=1, rare, 20 intervals": (1000, 1.0, 20, 0.02, 0.0),
    "n=100, ε=4, fast": (100, 4.0, 6, 0.5, 0.0),
    "n=3000, ε=3, shift 1": (3000, 3.0, 10, 0.12, 1.0),
}
"""Units of each owner, epsilon, intervals, hazard of the first group in each, shift."""

MONTHS, HALF_YEARS = (0, 3, 6, 9, 12, 18, 24), (0, 6, 12, 18, 24)
COARSE: dict[str, tuple[int, float, tuple[int, ...], str]] = {
    "n=2000, ε=1, months, one group lost after 4": (2000, 1.0, MONTHS, "one group"),
    "n=5000, ε=1, months, half of one group lost in the first": (5000, 1.0, MONTHS, "half"),
    "n=1000, ε=1, months": (1000, 1.0, MONTHS, "nobody"),
    "n=5000, ε=3, months": (5000, 3.0, MONTHS, "nobody"),
    "n=20000, ε=1, months, intervals of six": (20_000, 1.0, HALF_YEARS, "nobody"),
}
"""Units of one owner, epsilon, intervals in months, who is lost; the first group's times have mean 10."""

LIFE_METHODS = ("without privacy", "survival", "added up")
COVERED = ("hazard ratio", "curve", "band", "median", "restricted mean")


def moved(place: int, owners: int, shift: float) -> float:
    """Return by how much an owner's groups and risks are moved: from -shift/2 to shift/2."""
    return shift * (place / max(owners - 1, 1) - 0.5) if owners > 1 else 0.0


def within(value: float, lower: float | None, upper: float | None) -> bool:
    """Say whether an interval holds a value; an end that is None is none."""
    return bool((lower is None or lower <= value) and (upper is None or value <= upper))


def risks_of(risk: float, odds: float) -> float:
    """Return the second group's risk."""
    changed = risk / (1 - risk) * odds
    return changed / (1 + changed)


def tables_of(
    rng: np.random.Generator, owners: int, design: tuple[int, float, float, float, float], odds: float
) -> tuple[list[Strata], Floats]:
    """Return the owners' noisy tables, and the exact ones (owners, 2, 2)."""
    n, epsilon, share, risk, shift = design
    noise, found, exact = CellNoise("laplace", 2 / epsilon), [], []
    for place in range(owners):
        off = moved(place, owners, shift)
        exposed, first = np.clip(share + off, 0.03, 0.97), np.clip(risk + 0.8 * off, 0.02, 0.98)
        second = risks_of(first, odds)
        cells = [(1 - exposed) * (1 - first), (1 - exposed) * first, exposed * (1 - second), exposed * second]
        counts = rng.multinomial(n, cells)
        exact.append(counts.reshape(2, 2))
        table_of = NoisyTable(counts + noise.draw(rng, (4,)), n, (noise,))
        found.append(Strata(table_of, np.arange(4).reshape(1, 2, 2)))
    return found, np.stack(exact).astype(np.float64)


def woolf(owners: list[Strata]) -> float:
    """Return the p-value of an inverse-variance mean of log odds ratios from noisy counts."""
    counts = np.maximum(np.concatenate([own.counts for own in owners]), 0.5)
    logs = np.log(counts[:, 0, 0] * counts[:, 1, 1] / (counts[:, 0, 1] * counts[:, 1, 0]))
    weights = 1 / (1 / counts).sum(axis=(1, 2))
    return float(chdtrc(1, (weights @ logs) ** 2 / weights.sum()))


def table_checked(name: str, owners: int, design: str, odds: float, run: int) -> Answers:
    """Test one study, and ask of each interval whether it holds the truth."""
    rng, seed = seeds(name, run)
    held, _ = tables_of(rng, owners, TABLES[design], odds)
    answers: dict[str, float] = {}
    if odds == 1:
        answers[question("test", design, LEVEL)] = stratified_test(held, REPLICATES, seed).pvalue <= LEVEL
    if owners > 1:
        pvalue = heterogeneity(held, REPLICATES, seed)
        answers[question("one odds ratio", design, LEVEL)] = pvalue is not None and pvalue <= LEVEL
    counts, variances = (np.concatenate([getattr(o, k) for o in held]) for k in ("counts", "variances"))
    tables, noise = fourfold(counts, variances, (1, 0), 1)
    _, _, _, risk, shift = TABLES[design]
    second = risks_of(risk, odds)
    truths = {"odds ratio": odds, "risk ratio": second / risk, "risk difference": second - risk}
    for kind in RATIOS:
        if kind == "odds ratio" or odds == 1 or not shift:  # else owners do not have it in common
            found = SCORES[kind].estimate(tables, noise, LEVEL)
            answers[kind] = within(truths[kind], found.lower, found.upper)
    return answers


def table_power(name: str, owners: int, n: int, epsilon: float, shift: str, odds: float, run: int) -> Answers:
    """Test one study by every method."""
    rng, seed = seeds(name, run)
    held, exact = tables_of(rng, owners, (n, epsilon, 0.5, 0.3, SHIFTS[shift]), odds)
    added = add_tables([own.table for own in held])
    pvalues = {
        "without privacy": chdtrc(1, float(statistics(exact, np.zeros(owners)))),
        "stratified_table": stratified_test(held, REPLICATES, seed).pvalue,
        "added up": independence_test(added, (2, 2), REPLICATES, seed).pvalue,
        "Woolf": woolf(held),
    }
    return {method: bool(pvalue <= LEVEL) for method, pvalue in pvalues.items()}


def lives_of(
    rng: np.random.Generator, owners: int, design: tuple[int, float, int, float, float], ratio: float
) -> tuple[list[Times], Floats]:
    """Return the owners' noisy counts, and the exact ones (owners, 2, m, 2)."""
    n, epsilon, m, base, shift = design
    noise, found, exact = CellNoise("laplace", 2 / epsilon), [], []
    for place in range(owners):
        off = moved(place, owners, shift)
        group = (rng.random(n) < np.clip(0.5 + off / 2, 0.1, 0.9)).astype(int)
        times = rng.exponential(1 / (base * (1 + off) * np.array([1.0, ratio])[group]))
        censored = np.minimum(rng.exponential(1 / np.array([0.05, 0.08])[group]), m - 1e-9)
        counts = np.zeros((2, m, 2))
        np.add.at(counts, (group, np.minimum(times, censored).astype(int), (times > censored).astype(int)), 1)
        exact.append(counts)
        noisy = counts.ravel() + noise.draw(rng, (counts.size,))
        cells = np.arange(counts.size).reshape(1, 2, m, 2)
        found.append(Times(NoisyTable(noisy, n, (noise,)), cells))
    return found, np.stack(exact)


def life_tested(name: str, owners: int, design: str, ratio: float, run: int) -> Answers:
    """Test one study, and ask whether the interval of the hazard ratio holds the truth."""
    rng, seed = seeds(name, run)
    held, _ = lives_of(rng, owners, LIVES[design], ratio)
    answers: dict[str, float] = {}
    if ratio == 1:
        answers[question("test", design, LEVEL)] = log_rank_test(held, REPLICATES, seed).pvalue <= LEVEL
    if run < RATIO_RUNS:
        counts, variances = (np.concatenate([getattr(o, k) for o in held]) for k in ("counts", "variances"))
        found = hazard_ratio(counts, variances, (1, 0), LEVEL)
        answers["hazard ratio"] = within(ratio, found.lower, found.upper)
    return answers


def life_checked(name: str, owners: int, design: str, ratio: float, run: int) -> Answers:
    """Ask of the intervals of one study's curves whether they hold the truth."""
    rng, seed = seeds(name, run)
    held, _ = lives_of(rng, owners, LIVES[design], ratio)
    _, _, m, base, shift = LIVES[design]
    if shift and owners > 1:  # owners do not have it in common
        return {}
    one, truth = curves(held, np.arange(m + 1.0), LEVEL, seed)[0], np.exp(-base * np.arange(1, m + 1))
    mean, half = (1 - truth[-1]) / base, np.log(2) / base
    return {
        "curve": float(np.mean((one.lower <= truth) & (truth <= one.upper))),
        "band": bool(np.all((one.band_lower <= truth) & (truth <= one.band_upper))),
        "median": within(half, one.median[1], one.median[2]) if half < m else one.median[2] is None,
        "restricted mean": within(mean, one.restricted_mean[1], one.restricted_mean[2]),
    }


def coarsely_counted(
    rng: np.random.Generator, design: tuple[int, float, tuple[int, ...], str], ratio: float
) -> Times:
    """Return one owner's noisy counts by months, where one group may be lost to follow-up."""
    n, epsilon, months, lost = design
    edges = np.array(months, dtype=np.float64)
    group = rng.integers(0, 2, n)
    times, gone = rng.exponential(np.where(group == 1, 10 / ratio, 10)), np.full(n, np.inf)
    if lost == "one group":
        gone[group == 1] = rng.exponential(4.0, int(group.sum()))
    if lost == "half":
        early = (group == 1) & (rng.random(n) < 0.5)
        gone[early] = rng.uniform(0, 1, int(early.sum()))
    seen = np.minimum(np.minimum(times, gone), edges[-1] - 1e-9)
    censored = ~((times <= gone) & (times < edges[-1]))
    counts = np.zeros((2, len(edges) - 1, 2))
    np.add.at(counts, (group, np.searchsorted(edges, seen, side="right") - 1, censored.astype(int)), 1)
    noise = CellNoise("laplace", 2 / epsilon)
    noisy = counts.ravel() + noise.draw(rng, (counts.size,))
    return Times(NoisyTable(noisy, n, (noise,)), np.arange(counts.size).reshape(1, *counts.shape))


def coarsely_checked(name: str, design: str, ratio: float, run: int) -> Answers:
    """Test one study by months, and ask whether the interval of the hazard ratio holds the truth."""
    rng, seed = seeds(name, run)
    own = coarsely_counted(rng, COARSE[design], ratio)
    found = hazard_ratio(own.counts, own.variances, (1, 0), LEVEL)
    answers: dict[str, float] = {"hazard ratio": within(ratio, found.lower, found.upper)}
    if ratio == 1:
        answers[question("test", design, LEVEL)] = log_rank_test([own], REPLICATES, seed).pvalue <= LEVEL
    return answers


def life_power(
    name: str, owners: int, n: int, epsilon: float, shift: float, ratio: float, run: int
) -> Answers:
    """Test one study by every method."""
    rng, seed = seeds(name, run)
    held, exact = lives_of(rng, owners, (n, epsilon, 10, 0.12, shift), ratio)
    added = Times(add_tables([own.table for own in held]), held[0].cells)
    pvalues = {
        "without privacy": chdtrc(1, float(log_rank(exact, np.zeros(owners), 1.0))),
        "survival": log_rank_test(held, REPLICATES, seed).pvalue,
        "added up": log_rank_test([added], REPLICATES, seed).pvalue,
    }
    return {method: bool(pvalue <= LEVEL) for method, pvalue in pvalues.items()}


def table_cells() -> list[Cell]:
    """Return all cells of stratified tables."""
    found = cells_of(
        "check {} owners, {}, odds ratio {:g}",
        RUNS,
        table_checked,
        (1, 2, 4, 10),
        TABLES,
        (1.0, 2.0),
        seeded=True,
    )
    for owners, n in ((2, 500), (4, 250), (4, 1000), (10, 300)):
        form, axes = "power {} x {}, ε={:g}, {}, odds ratio {:g}", ([owners], [n], POWER_EPSILONS, SHIFTS)
        found += cells_of(form, POWER_RUNS, table_power, *axes, (1.0, 1.6), seeded=True)
    return found


def life_cells() -> list[Cell]:
    """Return all cells of survival."""
    found: list[Cell] = []
    for owners, design, ratio in product((1, 4, 10), LIVES, (1.0, 1.6)):
        name, asked = f"{owners} owners, {design}, hazard ratio {ratio:g}", (owners, design, ratio)
        found.append(Cell(f"check {name}", CURVE_RUNS, partial(life_checked, f"check {name}", *asked)))
        runs, run = RUNS if ratio == 1 else RATIO_RUNS, partial(life_tested, f"check {name}", *asked)
        found.append(Cell(f"test {name}", runs, run))
    for design, ratio in product(COARSE, (1.0, 2.0)):
        form, lost = "check 1 owners, {}, hazard ratio {:g}", COARSE[design][-1] != "nobody"
        runs = FAILED_RUNS if lost and ratio == 1 else RUNS
        found += cells_of(form, runs, coarsely_checked, [design], [ratio], seeded=True)
    for owners, n in ((1, 1000), (4, 250), (4, 1000), (10, 300)):
        form, axes = "power {} x {}, ε={:g}, shift {:g}, hazard ratio {:g}", ([owners], [n], POWER_EPSILONS)
        found += cells_of(form, LIFE_POWER_RUNS, life_power, *axes, (0.0, 1.0), (1.0, 1.4), seeded=True)
    return found


def parts_of(
    counts: Counts, tests: dict[str, str], covered: tuple[str, ...], methods: tuple[str, ...]
) -> dict[str, str]:
    """Write the tables of a page: ``tests`` are columns of rates at the level, and their questions."""

    def check(cell: str, named: str) -> dict[str, str]:
        design, tested = named.rpartition(", ")[0], cell.replace("check", "test", 1)
        tested = tested if tested in counts.runs else cell
        rates = {
            words: counts.shown(tested, question(asked, design, LEVEL)) for words, asked in tests.items()
        }
        rates |= {words: counts.shown(cell, words) or counts.shown(tested, words) for words in covered}
        return rates | {"runs": str(counts.runs[tested])}

    def power(cell: str) -> dict[str, str]:
        return {method: counts.shown(cell, method, ".2f") for method in methods}

    return checks_and_powers(counts, check, power, covered, LEVEL)


TESTS = {"rejected": "test", "one odds ratio rejected": "one odds ratio"}

BENCHMARKS = (
    Benchmark("stratified", table_cells, lambda counts: parts_of(counts, TESTS, RATIOS, TABLE_METHODS)),
    Benchmark(
        "survival", life_cells, lambda counts: parts_of(counts, {"rejected": "test"}, COVERED, LIFE_METHODS)
    ),
)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
