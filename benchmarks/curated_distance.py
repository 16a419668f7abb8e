"""Distance covariance of columns in one place: error, power and what intervals cover, by number of units.

    python -m benchmarks.curated_distance      # everything; continues where it stopped
    python -m benchmarks.curated_distance --runs 0.1 --cells "n=500" --folder /tmp/glance

Every run is ``tacit.local.distance_correlation``: the services' own procedures, with OpenDP's noise. The
curator's runs are asked twice of the same rows, with the decision of the permutation test and without.
"""

import functools
import math

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

import tacit.local
from benchmarks.harness import Answers, Cell, Counts, main, table, with_square
from tacit_protocol.numerics.distance_covariance import distance_correlation_sqr, distance_covariance_sqr

Floats = npt.NDArray[np.float64]

EPSILON, DELTA, LEVEL = 1.0, 1e-5, 0.05
UNITS = (500, 1000, 5000)
RUNS = {500: 100, 1000: 100, 5000: 60}
KINDS = ("independent", "linear", "quadratic")
SKETCH_UNITS, SKETCH_RUNS = 5000, 60

GRID = 500
"""Quantiles of each of the two numbers that a law is made of, for its own distance covariance."""


def second_column(kind: str, x: Floats, part: Floats) -> Floats:
    """Return y, (n,), given x and another independent uniform number, (n,) each."""
    if kind == "independent":
        return part
    middle, spread = (x, 0.13) if kind == "linear" else ((2 * x - 1) ** 2, 0.1)
    return np.clip(middle + spread * ndtri(part), 0, 1)


def pair(kind: str, units: int, run: int) -> tuple[Floats, Floats]:
    """Draw both columns."""
    rng = np.random.default_rng([units, run])
    x, part = rng.random(units), 1 - rng.random(units)
    return x, second_column(kind, x, part)


@functools.cache
def truth(kind: str) -> tuple[float, float]:
    """Return the population's squared distance covariance and its distance correlation, to about 1e-5."""
    if kind == "independent":
        return 0.0, 0.0
    middles = (np.arange(GRID) + 0.5) / GRID
    x = np.repeat(middles, GRID)
    y = second_column(kind, x, np.tile(middles, GRID))
    return distance_covariance_sqr(x, y, "biased"), math.sqrt(distance_correlation_sqr(x, y))


def curated_run(kind: str, units: int, run: int) -> Answers:
    """Ask a curator, with the permutation test and without."""
    x, y = pair(kind, units, run)
    tested, free = (
        tacit.local.distance_correlation(
            x,
            y,
            epsilon=EPSILON,
            delta=DELTA,
            bounds=(0, 1),
            alpha=LEVEL,
            mode="curator",
            seed=run,
            test=test,
        )
        for test in (True, False)
    )
    covariance, correlation = truth(kind)
    low, high = tested.covariance_interval
    found = with_square("covariance", tested.distance_covariance_sqr)
    found |= {
        "power": tested.reject,
        "power without": free.reject,
        "covariance covered": low <= covariance <= high,
    }
    found["stated"] = tested.distance_correlation is not None
    if tested.distance_correlation is not None and tested.interval is not None:
        found |= with_square("correlation", tested.distance_correlation)
        found["correlation covered"] = tested.interval[0] <= correlation <= tested.interval[1]
    return found


def sketch_run(kind: str, units: int, run: int) -> Answers:
    """Ask two owners who trust nobody, of the same rows."""
    x, y = pair(kind, units, run)
    result = tacit.local.distance_correlation(
        x, y, epsilon=EPSILON, delta=DELTA, bounds=(0, 1), alpha=LEVEL, seed=run
    )
    return with_square("covariance", result.distance_covariance_sqr) | {"power": result.reject}


def cells() -> list[Cell]:
    """List the cells: the curator's, then the sketch of the largest number of units."""
    return [
        Cell(f"curator {kind} n={units}", RUNS[units], functools.partial(curated_run, kind, units))
        for units in UNITS
        for kind in KINDS
    ] + [
        Cell(
            f"sketch {kind} n={SKETCH_UNITS}", SKETCH_RUNS, functools.partial(sketch_run, kind, SKETCH_UNITS)
        )
        for kind in KINDS
    ]


def _spread(counts: Counts, cell: str, asked: str, digits: int) -> str:
    found = counts.spread(cell, asked)
    if found is None:
        return "none stated"
    return f"{round(found[0], digits) + 0.0:.{digits}f} ± {found[1]:.{digits}f}"  # no negative zero


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    curator, sketch = {}, {}
    for cell, runs in ((cell, runs) for cell, runs in counts.runs.items() if runs):
        where, kind, units = cell.split()
        row = {"runs": str(runs), "squared covariance": _spread(counts, cell, "covariance", 4)}
        if where == "sketch":
            shown = {"power": "power"}
            sketch[f"{units.removeprefix('n=')}, {kind}"] = row
        else:
            shown = {"power with the test": "power", "without": "power without"}
            row["covered"] = counts.shown(cell, "covariance covered", ".2f")
            row["correlation"] = _spread(counts, cell, "correlation", 2)
            row["stated"] = counts.shown(cell, "stated", ".2f")
            row["of these covered"] = counts.shown(cell, "correlation covered", ".2f")
            curator[f"{units.removeprefix('n=')}, {kind}"] = row
        row |= {head: counts.shown(cell, asked, ".2f") for head, asked in shown.items()}
    corner = "units, dependence"
    return {"curator": table(curator, corner), "two owners": table(sketch, corner)}


if __name__ == "__main__":
    main(__doc__, "curated-distance", cells(), parts)
