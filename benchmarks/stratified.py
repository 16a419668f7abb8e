"""Stratified tables: level, power, coverage of their intervals, beside what people would do otherwise.

    python -m benchmarks.stratified --workers 2     # everything; continues where it stopped

Owners hold two groups and an event. ``shift`` moves both the share of the second group and the risk from
owner to owner, up to so much between the first and the last: an unstratified test then rejects. Noise is
simulated with NumPy; statistics and intervals are the procedure's own functions.

``without privacy`` is the Cochran-Mantel-Haenszel test of the exact tables; ``added up`` the independence
test of the owners' noisy tables added up; ``Woolf`` an inverse-variance mean of the owners' log odds ratios
from noisy counts cut at one half, as a meta-analysis of released tables takes them, without regard to the
noise.
"""

import zlib
from functools import partial

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc

from benchmarks.harness import Answers, Cell, Counts, main, question, table
from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable, add_tables
from tacit_protocol.procedures.counts.statistic import independence_test
from tacit_protocol.procedures.stratified_table.statistic import (
    SCORES,
    Strata,
    fourfold,
    heterogeneity,
    statistics,
    stratified_test,
)

Floats = npt.NDArray[np.float64]

RUNS, POWER_RUNS, REPLICATES, LEVEL = 1000, 300, 199, 0.05
OWNERS = (1, 2, 4, 10)
DESIGNS: dict[str, tuple[int, float, float, float, float]] = {
    "n=300, ε=1": (300, 1.0, 0.5, 0.3, 0.0),
    "n=100, ε=1, shift .6": (100, 1.0, 0.5, 0.5, 0.6),
    "n=1000, ε=.3, shift .5": (1000, 0.3, 0.5, 0.3, 0.5),
    "n=1000, ε=1, a tenth exposed, risk .1": (1000, 1.0, 0.1, 0.1, 0.0),
    "n=300, ε=4, .05 exposed, risk .05": (300, 4.0, 0.05, 0.05, 0.0),
    "n=3000, ε=1, risk .02, shift .4": (3000, 1.0, 0.3, 0.02, 0.4),
    "n=10000, ε=3, shift .5": (10_000, 3.0, 0.5, 0.3, 0.5),
}
"""Units of each owner, epsilon, share of the second group, risk of the first, shift."""

ODDS = (1.0, 2.0)
POWER = ((2, 500), (4, 250), (4, 1000), (10, 300))
METHODS = ("without privacy", "stratified_table", "added up", "Woolf")
KINDS = ("risk difference", "risk ratio", "odds ratio")
PLACE = {"shift 0": 0.0, "shift .4": 0.4}


def risks_of(risk: float, odds: float) -> float:
    """Return the second group's risk."""
    changed = risk / (1 - risk) * odds
    return changed / (1 + changed)


def drawn(
    rng: np.random.Generator, owners: int, design: tuple[int, float, float, float, float], odds: float
) -> tuple[list[Strata], Floats]:
    """Return the owners' noisy tables, and the exact ones (owners, 2, 2)."""
    n, epsilon, share, risk, shift = design
    noise, found, exact = CellNoise("laplace", 2 / epsilon), [], []
    for place in range(owners):
        moved = shift * (place / max(owners - 1, 1) - 0.5) if owners > 1 else 0.0
        exposed, first = (
            float(np.clip(share + moved, 0.03, 0.97)),
            float(np.clip(risk + 0.8 * moved, 0.02, 0.98)),
        )
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


def seeds(name: str, run: int) -> tuple[np.random.Generator, np.random.SeedSequence]:
    """Return the seeds of a run: of its data and noise, and of its null distribution."""
    data, null = np.random.SeedSequence([zlib.crc32(name.encode()), run]).spawn(2)
    return np.random.default_rng(data), null


def checked(name: str, owners: int, design: str, odds: float, run: int) -> Answers:
    """Test one study, and ask of each interval whether it holds the truth."""
    rng, seed = seeds(name, run)
    held, _ = drawn(rng, owners, DESIGNS[design], odds)
    answers: dict[str, float] = {}
    if odds == 1:
        answers[question("test", design, LEVEL)] = stratified_test(held, REPLICATES, seed).pvalue <= LEVEL
    if owners > 1:
        pvalue = heterogeneity(held, REPLICATES, seed)
        answers[question("one odds ratio", design, LEVEL)] = pvalue is not None and pvalue <= LEVEL
    tables, noise = fourfold(
        np.concatenate([own.counts for own in held]),
        np.concatenate([own.variances for own in held]),
        (1, 0),
        1,
    )
    _, _, _, risk, shift = DESIGNS[design]
    second = risks_of(risk, odds)
    truths = {"odds ratio": odds, "risk ratio": second / risk, "risk difference": second - risk}
    for kind in KINDS:
        if kind == "odds ratio" or odds == 1 or not shift:  # else owners do not have it in common
            found = SCORES[kind].estimate(tables, noise, LEVEL)
            low = -np.inf if found.lower is None else found.lower
            high = np.inf if found.upper is None else found.upper
            answers[kind] = low <= truths[kind] <= high
    return answers


def powered(name: str, owners: int, n: int, epsilon: float, shift: float, odds: float, run: int) -> Answers:
    """Test one study by every method."""
    rng, seed = seeds(name, run)
    held, exact = drawn(rng, owners, (n, epsilon, 0.5, 0.3, shift), odds)
    added = add_tables([own.table for own in held])
    pvalues = {
        "without privacy": chdtrc(1, float(statistics(exact, np.zeros(owners)))),
        "stratified_table": stratified_test(held, REPLICATES, seed).pvalue,
        "added up": independence_test(added, (2, 2), REPLICATES, seed).pvalue,
        "Woolf": woolf(held),
    }
    return {method: bool(pvalue <= LEVEL) for method, pvalue in pvalues.items()}


def cells() -> list[Cell]:
    """Return all cells."""
    found = []
    for owners in OWNERS:
        for design in DESIGNS:
            for odds in ODDS:
                name = f"check {owners} owners, {design}, odds ratio {odds:g}"
                found.append(Cell(name, RUNS, partial(checked, name, owners, design, odds)))
    for owners, n in POWER:
        for epsilon in (0.3, 1.0):
            for words, shift in PLACE.items():
                for odds in (1.0, 1.6):
                    name = f"power {owners} x {n}, ε={epsilon:g}, {words}, odds ratio {odds:g}"
                    run = partial(powered, name, owners, n, epsilon, shift, odds)
                    found.append(Cell(name, POWER_RUNS, run))
    return found


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    checks, powers = {}, {}
    for cell in counts.runs:
        kind, _, name = cell.partition(" ")
        if kind == "power":
            powers[name] = {method: counts.shown(cell, method, ".2f") for method in METHODS}
            continue
        design = name.partition(", ")[2].rpartition(", ")[0]
        row = {
            words: counts.shown(cell, question(asked, design, LEVEL))
            for words, asked in (("rejected", "test"), ("one odds ratio rejected", "one odds ratio"))
        }
        checks[name] = row | {kind: counts.shown(cell, kind) for kind in KINDS}
    asked = [(c, q) for c, q in counts.answered if q.endswith(f"| {LEVEL:g}")]
    worst = min(((counts.tail(c, q, LEVEL), c, q.partition(" | ")[0]) for c, q in asked), default=None)
    lowest = min(
        (
            (counts.rate(c, q) or 0.0, c, q)
            for c, q in counts.answered
            if q in KINDS and c.startswith("check")
        ),
        default=None,
    )
    said = (
        ""
        if worst is None or lowest is None
        else (
            f"Of {len(asked)} rates at level {LEVEL:g} the one furthest above it ({worst[2]}, {worst[1]}) "
            f"would be as large\nwith probability {worst[0]:.2g} were the level exact; times {len(asked)}: "
            f"{min(1.0, worst[0] * len(asked)):.2g}. The lowest coverage of .95 is {lowest[0]:.3f}\n"
            f"({lowest[2]}, {lowest[1]}).\n"
        )
    )
    return {
        "runs": counts.runs_of("check"),
        "power runs": counts.runs_of("power"),
        "statement": said,
        "checks": table(checks, "design") if checks else "",
        "powers": table(powers, "design") if powers else "",
    }


if __name__ == "__main__":
    main(__doc__, "stratified", cells(), parts)
