"""Screening: how many of the columns that depend on an outcome are found, beside splitting the budget.

    python -m benchmarks.screening      # everything; continues where it stopped
    python -m benchmarks.screening --runs 0.1 --cells split --folder /tmp/glance

Every run is ``tacit.local.screening``: the services' own procedure, with OpenDP's noise. Splitting is one
``tacit.local.distance_correlation`` for each column, each with its part of epsilon and of delta, and the same
control of false discoveries on their p-values. Both see the same rows.
"""

import functools

import numpy as np
import numpy.typing as npt

import tacit.local
from benchmarks.resumable import Answers, Cell, Counts, main, table
from tacit_protocol.statistics.screening import Control, false_discovery_values

Floats = npt.NDArray[np.float64]

DELTA, LEVEL = 1e-5, 0.05
COLUMNS, EPSILONS = (5, 20, 80), (1.0, 2.0, 4.0, 8.0)
UNITS = (20_000, 100_000)
RUNS = {20_000: 20, 100_000: 10}
SPLIT_COLUMNS, SPLIT_EPSILONS, SPLIT_RUNS = (5, 20), (4.0, 8.0), 10
SPLIT_PERMUTATIONS = 9999
"""Enough for a single discovery among twenty."""

CONTROLS: tuple[Control, ...] = ("by", "bh")


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
        part = y if index % 2 == 0 else (2 * y - 1) ** 2
        x[:, index] = 0.8 * part + 0.2 * factor
    return x, y, dependent


def _answers(name: str, pvalues: Floats, dependent: int) -> Answers:
    """Say which part of the dependent columns is found, and which part of those found is false."""
    found: dict[str, float] = {}
    for control in CONTROLS:
        reject = false_discovery_values(pvalues, control) <= LEVEL
        found[f"{name} {control} linear"] = float(reject[:dependent:2].mean())
        if dependent > 1:
            found[f"{name} {control} quadratic"] = float(reject[1:dependent:2].mean())
        found[f"{name} {control} false"] = float(reject[dependent:].sum() / max(1, reject.sum()))
    return found


def screen_run(columns: int, units: int, epsilon: float, run: int) -> Answers:
    """Screen all columns under one budget."""
    x, y, dependent = rows(columns, units, run)
    result = tacit.local.screening(x, y, epsilon=epsilon, delta=DELTA, alpha=LEVEL, bounds=(0, 1), seed=run)
    pvalues = {pair.column: pair.pvalue for pair in result}
    return _answers("joint", np.array([pvalues[f"x.{index + 1}"] for index in range(columns)]), dependent)


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


def text(counts: Counts) -> str:
    """Write the page."""
    page = f"""# Screening: power and false discoveries

Part of the dependent columns that `screening` finds; false discovery rate {LEVEL}, δ = {DELTA:g}. A fifth of
the columns depends on the outcome, by turns linearly (x = .8 y + .2 factor) and quadratically
(x = .8 (2y − 1)² + .2 factor). All columns share the factor, and every column fills its bounds. Made by

    python -m benchmarks.screening

with {counts.runs_of("joint")} runs a cell ({counts.runs_of("split")} of splitting). Of five columns one
depends, of 20 two of either kind, of 80 eight: with few runs the rates are coarse.

"""
    for units in [n for n in UNITS if counts.runs_of(f"joint {_name(COLUMNS[0], n, EPSILONS[0])}") != "no"]:
        page += f"## n = {units}\n\nLinear dependence, Benjamini and Yekutieli (the default):\n\n"
        page += _rates(counts, "joint", "by", "linear", units)
        page += "\nThe same, Benjamini and Hochberg:\n\n" + _rates(counts, "joint", "bh", "linear", units)
        page += "\nQuadratic dependence, Benjamini and Yekutieli:\n\n"
        page += _rates(counts, "joint", "by", "quadratic", units)
        page += "\nMean share of false discoveries, Benjamini and Hochberg (the larger of both):\n\n"
        page += _rates(counts, "joint", "bh", "false", units) + "\n"
    page += """## Splitting the budget

One study of `distance_correlation` for each column with its part of ε and δ, on the same rows: linear
dependence, Benjamini and Yekutieli.

"""
    return page + _rates(counts, "split", "by", "linear", UNITS[0])


if __name__ == "__main__":
    main(__doc__, "screening", cells(), text)
