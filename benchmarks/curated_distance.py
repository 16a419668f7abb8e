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
from benchmarks.resumable import Answers, Cell, Counts, main, table
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


def _number(question: str, value: float) -> dict[str, float]:
    """Return a number and its square, whose means give its standard deviation."""
    return {question: value, f"{question} squared": value**2}


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
    found = _number("covariance", tested.distance_covariance_sqr)
    found |= {
        "power": tested.reject,
        "power without": free.reject,
        "covariance covered": low <= covariance <= high,
    }
    found["stated"] = tested.distance_correlation is not None
    if tested.distance_correlation is not None and tested.interval is not None:
        found |= _number("correlation", tested.distance_correlation)
        found["correlation covered"] = tested.interval[0] <= correlation <= tested.interval[1]
    return found


def sketch_run(kind: str, units: int, run: int) -> Answers:
    """Ask two owners who trust nobody, of the same rows."""
    x, y = pair(kind, units, run)
    result = tacit.local.distance_correlation(
        x, y, epsilon=EPSILON, delta=DELTA, bounds=(0, 1), alpha=LEVEL, seed=run
    )
    return _number("covariance", result.distance_covariance_sqr) | {"power": result.reject}


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


def _spread(counts: Counts, cell: str, question: str, digits: int) -> str:
    mean, square = counts.rate(cell, question), counts.rate(cell, f"{question} squared")
    if mean is None or square is None:
        return "none stated"
    spread = math.sqrt(max(0.0, square - mean**2))
    return f"{round(mean, digits) + 0.0:.{digits}f} ± {spread:.{digits}f}"  # no negative zero


def _rate(counts: Counts, cell: str, question: str) -> str:
    rate = counts.rate(cell, question)
    return "" if rate is None else f"{rate:.2f}"


def _curator(counts: Counts) -> str:
    rows: dict[str, dict[str, str]] = {}
    for units in UNITS:
        for kind in KINDS:
            cell = f"curator {kind} n={units}"
            if counts.runs.get(cell):
                rows[f"{units}, {kind}"] = {
                    "runs": str(counts.runs[cell]),
                    "squared covariance": _spread(counts, cell, "covariance", 4),
                    "covered": _rate(counts, cell, "covariance covered"),
                    "correlation": _spread(counts, cell, "correlation", 2),
                    "stated": _rate(counts, cell, "stated"),
                    "of these covered": _rate(counts, cell, "correlation covered"),
                    "power with the test": _rate(counts, cell, "power"),
                    "without": _rate(counts, cell, "power without"),
                }
    return table(rows, "units, dependence") if rows else "Not run yet.\n"


def _sketch(counts: Counts) -> str:
    rows = {
        f"{SKETCH_UNITS}, {kind}": {
            "runs": str(counts.runs[cell]),
            "squared covariance": _spread(counts, cell, "covariance", 4),
            "power": _rate(counts, cell, "power"),
        }
        for kind in KINDS
        if counts.runs.get(cell := f"sketch {kind} n={SKETCH_UNITS}")
    }
    return table(rows, "units, dependence") if rows else "Not run yet.\n"


def text(counts: Counts) -> str:
    """Write the page."""
    true = {
        kind: f"{covariance:.4f} and {correlation:.3f}"
        for kind, (covariance, correlation) in ((kind, truth(kind)) for kind in KINDS)
    }
    return f"""# Distance correlation in one place: error, power, intervals

`curated_distance_correlation`, one numeric column a side, ε = {EPSILON:g}, δ = {DELTA:g}, level {LEVEL:g}.
Linear: y = x + .13 noise; quadratic: y = (2x − 1)² + .1 noise; clipped to [0, 1]. The population's squared
distance covariance and correlation are {true["linear"]} (linear), {true["quadratic"]} (quadratic).
Made by

    python -m benchmarks.curated_distance

Means ± standard deviations over the runs, with the permutation test, and power without it. Intervals are for
the population, at {1 - LEVEL:.0%} or more.

{_curator(counts)}
## Two owners who trust nobody

The sketch of `distance_correlation` at its defaults, on the same rows, each owner with the whole budget:

{_sketch(counts)}"""


if __name__ == "__main__":
    main(__doc__, "curated-distance", cells(), text)
