"""Screening: which columns that depend on an outcome are found, how many falsely, and what intervals cover.

    python -m benchmarks.screening      # everything; continues where it stopped
    python -m benchmarks.screening --runs 0.1 --cells split --folder /tmp/glance

Every run is ``tacit.local.screening``: the services' own procedure, with OpenDP's noise. Splitting is one
``tacit.local.distance_correlation`` for each column, each with its part of epsilon and of delta, and the same
control of false discoveries on their p-values. Both see the same rows.
"""

import functools
import math

import numpy as np

import tacit.local
from benchmarks.harness import (
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    cells_of,
    grid,
    main,
    named,
    with_square,
)
from benchmarks.problems import quantiles
from tacit.results import ScreenedColumn
from tacit_protocol.numerics.distance_covariance import distance_correlation_sqr, distance_covariance_sqr
from tacit_protocol.procedures.screening.verdict import Control, false_discovery_values

DELTA, LEVEL = 1e-5, 0.05
COLUMNS, EPSILONS = (5, 20, 80), (1.0, 2.0, 4.0, 8.0)
UNITS = (20_000, 100_000)
RUNS = {20_000: 20, 100_000: 10}
SPLIT_COLUMNS, SPLIT_EPSILONS, SPLIT_RUNS = (5, 20), (4.0, 8.0), 10
SPLIT_PERMUTATIONS = 9999
"""Enough for a single discovery among twenty."""

CONTROLS: tuple[Control, ...] = ("by", "bh")

GRID = 500
"""Quantiles of the outcome and of the factor, for the distance correlations of their joint law."""


def rows(columns: int, units: int, run: int) -> tuple[Floats, Floats, int]:
    """Draw columns (n, p) that share a factor, the outcome (n,), and how many of the first depend on it.

    A fifth of the columns depends: by turns x = .8 y + .2 factor and x = .8 (2y - 1)^2 + .2 factor. The
    others are half factor, half noise.
    """
    rng = np.random.default_rng([columns, units, run])
    y, factor = rng.random(units), rng.random(units)
    x = 0.5 * factor[:, None] + 0.5 * rng.random((units, columns))
    dependent = columns // 5
    for index in range(dependent):
        x[:, index] = depending(y, factor, linear=index % 2 == 0)
    return x, y, dependent


def depending(y: Floats, factor: Floats, *, linear: bool) -> Floats:
    """Return a column that depends on the outcome, given the outcome and the factor, (n,) each."""
    return 0.8 * (y if linear else (2 * y - 1) ** 2) + 0.2 * factor


@functools.cache
def truth(linear: bool) -> tuple[float, float]:
    """Return a depending column's squared distance covariance and its distance correlation, to about 1e-5."""
    y, factor = quantiles(GRID)
    x = depending(y, factor, linear=linear)
    return distance_covariance_sqr(x, y, "biased"), math.sqrt(distance_correlation_sqr(x, y))


def _answers(name: str, pvalues: Floats, dependent: int) -> Answers:
    """Say which part of the dependent columns is found, and which part of those found is false."""
    found: dict[str, float] = {}
    for control in CONTROLS:
        reject = false_discovery_values(pvalues, control) <= LEVEL
        found[f"{name} {control} linear"] = float(reject[:dependent:2].mean())
        if dependent > 1:
            found[f"{name} {control} quadratic"] = float(reject[1:dependent:2].mean())
        found |= with_square(f"{name} {control} false", reject[dependent:].sum() / max(1, reject.sum()))
    return found


def _covered(pairs: list[ScreenedColumn], dependent: int) -> Answers:
    """Say which part of the intervals holds what it estimates; pairs are in the order of the columns.

    Of correlations, among the intervals that are stated.
    """
    true = [truth(index % 2 == 0) if index < dependent else (0.0, 0.0) for index in range(len(pairs))]
    found: dict[str, float] = {}
    for kind, chosen in (("dependent", slice(dependent)), ("independent", slice(dependent, None))):
        own = list(zip(pairs[chosen], true[chosen], strict=True))
        inside = [pair.covariance_interval[0] <= t[0] <= pair.covariance_interval[1] for pair, t in own]
        found |= with_square(f"covariance {kind}", float(np.mean(inside)))
        stated = [(pair.interval, t[1]) for pair, t in own if pair.interval is not None]
        found[f"stated {kind}"] = len(stated) / len(own)
        if stated:
            covers = [low <= value <= high for (low, high), value in stated]
            found |= with_square(f"correlation {kind}", float(np.mean(covers)))
    return found


def screen_run(columns: int, units: int, epsilon: float, run: int) -> Answers:
    """Screen all columns under one budget."""
    x, y, dependent = rows(columns, units, run)
    result = tacit.local.screening(x, y, epsilon=epsilon, delta=DELTA, alpha=LEVEL, bounds=(0, 1), seed=run)
    found = {pair.column: pair for pair in result}
    pairs = [found[f"x.{index + 1}"] for index in range(columns)]
    pvalues = np.array([pair.pvalue for pair in pairs])
    return {**_answers("joint", pvalues, dependent), **_covered(pairs, dependent)}


def split_run(columns: int, units: int, epsilon: float, run: int) -> Answers:
    """Ask one study for each column, each with its part of the budget."""
    x, y, dependent = rows(columns, units, run)
    pvalues = [
        tacit.local.distance_correlation(
            x[:, index],
            y,
            epsilon=epsilon / columns,
            delta=DELTA / columns,
            method="sketch",
            bounds=(0, 1),
            n_permutations=SPLIT_PERMUTATIONS,
            seed=run * columns + index,
        ).pvalue
        for index in range(columns)
    ]
    return _answers("split", np.array(pvalues), dependent)


def _name(columns: int, units: int, epsilon: float) -> str:
    return f"p={columns} n={units} ε={epsilon:g}"


def cells() -> list[Cell]:
    """List the cells: joint sketches, then splitting."""
    found: list[Cell] = []
    for n in UNITS:
        found += cells_of("joint p={} n={} ε={:g}", RUNS[n], screen_run, COLUMNS, [n], EPSILONS)
    axes = (SPLIT_COLUMNS, UNITS[:1], SPLIT_EPSILONS)
    return found + cells_of("split p={} n={} ε={:g}", SPLIT_RUNS, split_run, *axes)


def _rates(counts: Counts, method: str, control: str, what: str, units: int) -> str:
    return grid(
        f"n = {units}",
        named("{} columns", COLUMNS),
        named("ε={:g}", EPSILONS),
        lambda p, e: counts.shown(f"{method} {_name(p, units, e)}", f"{method} {control} {what}", ".2f"),
    )


def _mean(counts: Counts, row: tuple[int, int], asked: str) -> str:
    """Return a question's mean over every epsilon, and its standard error.

    Runs of one number have the same rows at every epsilon, so that errors are added as they stand.
    """
    names = [f"joint {_name(row[1], row[0], epsilon)}" for epsilon in EPSILONS]
    found = [(counts.spread(cell, asked), counts.answered.get((cell, asked), 0)) for cell in names]
    known = [(spread[0], spread[1] / math.sqrt(runs)) for spread, runs in found if spread is not None]
    return "{:.3f} ± {:.3f}".format(*np.mean(known, axis=0)) if known else ""


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    rows = [(f"n = {units}, {p} columns", (units, p)) for units in UNITS for p in COLUMNS]
    false = [("Benjamini and Yekutieli", "joint by false"), ("Benjamini and Hochberg", "joint bh false")]
    covered = [
        ("covariance, dependent columns", "covariance dependent"),
        ("independent", "covariance independent"),
        ("correlation, dependent columns", "correlation dependent"),
        ("independent ones", "correlation independent"),
    ]
    powers = []
    for units in UNITS:
        powers.append(f"## Power, n = {units}")
        for words, control, kind in (
            ("Linear dependence, Benjamini and Yekutieli (the default)", "by", "linear"),
            ("The same, Benjamini and Hochberg", "bh", "linear"),
            ("Quadratic dependence, Benjamini and Yekutieli", "by", "quadratic"),
        ):
            powers.append(f"{words}:\n\n{_rates(counts, 'joint', control, kind, units).rstrip()}")
    return {
        "runs": counts.runs_of("joint"),
        "runs of splitting": counts.runs_of("split"),
        "false discoveries": grid("", rows, false, lambda row, asked: _mean(counts, row, asked)),
        "intervals": grid("", rows, covered, lambda row, asked: _mean(counts, row, asked)),
        "powers": "\n\n".join(powers),
        "splitting": _rates(counts, "split", "by", "linear", UNITS[0]),
    }


BENCHMARKS = (Benchmark("screening", cells, parts),)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
