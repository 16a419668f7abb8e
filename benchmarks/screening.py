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
import numpy.typing as npt

import tacit.local
from benchmarks.resumable import Answers, Cell, Counts, main, table
from tacit.results import ScreenedColumn
from tacit_protocol.numerics.distance_covariance import distance_correlation_sqr, distance_covariance_sqr
from tacit_protocol.procedures.screening.statistic import Control, false_discovery_values

Floats = npt.NDArray[np.float64]

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
    middles = (np.arange(GRID) + 0.5) / GRID
    y, factor = np.repeat(middles, GRID), np.tile(middles, GRID)
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
        found |= _number(f"{name} {control} false", reject[dependent:].sum() / max(1, reject.sum()))
    return found


def _number(question: str, value: float) -> dict[str, float]:
    """Return a number and its square, whose means give its standard error."""
    return {question: float(value), f"{question} squared": float(value) ** 2}


def _covered(pairs: list[ScreenedColumn], dependent: int) -> Answers:
    """Say which part of the intervals holds what it estimates; pairs are in the order of the columns.

    Of correlations, among the intervals that are stated.
    """
    true = [truth(index % 2 == 0) if index < dependent else (0.0, 0.0) for index in range(len(pairs))]
    found: dict[str, float] = {}
    for kind, chosen in (("dependent", slice(dependent)), ("independent", slice(dependent, None))):
        own = list(zip(pairs[chosen], true[chosen], strict=True))
        inside = [pair.covariance_interval[0] <= t[0] <= pair.covariance_interval[1] for pair, t in own]
        found |= _number(f"covariance {kind}", float(np.mean(inside)))
        stated = [(pair.interval, t[1]) for pair, t in own if pair.interval is not None]
        found[f"stated {kind}"] = len(stated) / len(own)
        if stated:
            covers = [low <= value <= high for (low, high), value in stated]
            found |= _number(f"correlation {kind}", float(np.mean(covers)))
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
    found = [
        Cell(f"joint {_name(p, n, e)}", RUNS[n], functools.partial(screen_run, p, n, e))
        for n in UNITS
        for p in COLUMNS
        for e in EPSILONS
    ]
    return found + [
        Cell(f"split {_name(p, UNITS[0], e)}", SPLIT_RUNS, functools.partial(split_run, p, UNITS[0], e))
        for p in SPLIT_COLUMNS
        for e in SPLIT_EPSILONS
    ]


def _rates(counts: Counts, method: str, control: str, what: str, units: int) -> str:
    grid: dict[str, dict[str, str]] = {}
    for p in COLUMNS:
        for e in EPSILONS:
            rate = counts.rate(f"{method} {_name(p, units, e)}", f"{method} {control} {what}")
            if rate is not None:
                grid.setdefault(f"{p} columns", {})[f"ε={e:g}"] = f"{rate:.2f}"
    return table(grid, f"n = {units}") if grid else "Not run yet.\n"


def _mean(counts: Counts, columns: int, units: int, question: str) -> tuple[float, float] | None:
    """Return a question's mean over every epsilon, and its standard error.

    Runs of one number have the same rows at every epsilon, so that errors are added as they stand.
    """
    means, errors = [], []
    for epsilon in EPSILONS:
        cell = f"joint {_name(columns, units, epsilon)}"
        mean, square = counts.rate(cell, question), counts.rate(cell, f"{question} squared")
        if mean is None or square is None:
            continue
        means.append(mean)
        errors.append(math.sqrt(max(0.0, square - mean**2) / counts.answered[cell, question]))
    return (float(np.mean(means)), float(np.mean(errors))) if means else None


def _promises(counts: Counts, questions: dict[str, str]) -> str:
    grid: dict[str, dict[str, str]] = {}
    for units in UNITS:
        for p in COLUMNS:
            for title, question in questions.items():
                found = _mean(counts, p, units, question)
                if found is not None:
                    row = grid.setdefault(f"n = {units}, {p} columns", {})
                    row[title] = f"{found[0]:.3f} ± {found[1]:.3f}"
    return table(grid, "") if grid else "Not run yet.\n"


def text(counts: Counts) -> str:
    """Write the page."""
    page = f"""# Screening: power, false discoveries, intervals

Part of the dependent columns that `screening` finds; false discovery rate {LEVEL}, δ = {DELTA:g}. A fifth of
the columns depends on the outcome, by turns linearly (x = .8 y + .2 factor) and quadratically
(x = .8 (2y − 1)² + .2 factor). All columns share the factor, and every column fills its bounds. Made by

    python -m benchmarks.screening

with {counts.runs_of("joint")} runs a cell ({counts.runs_of("split")} of splitting). Of five columns one
depends, of 20 two of either kind, of 80 eight: with few runs the rates are coarse.

## False discoveries

Mean share of independent columns among those found, over all runs at ε = 1, 2, 4 and 8, ± a standard error
that takes the four as one. Promised: at most {LEVEL} · 4/5 = {0.8 * LEVEL:g} by Benjamini and Yekutieli,
whatever the dependence between columns; and by Benjamini and Hochberg where p-values depend on each other
positively.

"""
    page += _promises(
        counts, {"Benjamini and Yekutieli": "joint by false", "Benjamini and Hochberg": "joint bh false"}
    )
    page += f"""
## What intervals cover

Share of the {1 - LEVEL:.0%} intervals, each of one pair alone, that hold the value of the population, over
all runs as above. A squared distance covariance's counts sampling, bucketing and noise, and not the
frequencies left out, which the true value has. A correlation's, of those stated.

"""
    page += _promises(
        counts,
        {
            "covariance, dependent columns": "covariance dependent",
            "independent": "covariance independent",
            "correlation, dependent columns": "correlation dependent",
            "independent ones": "correlation independent",
        },
    )
    for units in [n for n in UNITS if counts.runs_of(f"joint {_name(COLUMNS[0], n, EPSILONS[0])}") != "no"]:
        page += f"\n## Power, n = {units}\n\nLinear dependence, Benjamini and Yekutieli (the default):\n\n"
        page += _rates(counts, "joint", "by", "linear", units)
        page += "\nThe same, Benjamini and Hochberg:\n\n" + _rates(counts, "joint", "bh", "linear", units)
        page += "\nQuadratic dependence, Benjamini and Yekutieli:\n\n"
        page += _rates(counts, "joint", "by", "quadratic", units)
    page += """
## Splitting the budget

One study of `distance_correlation` for each column with its part of ε and δ, on the same rows: linear
dependence, Benjamini and Yekutieli.

"""
    return page + _rates(counts, "split", "by", "linear", UNITS[0])


if __name__ == "__main__":
    main(__doc__, "screening", cells(), text)
