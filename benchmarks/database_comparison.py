"""Tests between released databases: how often they reject equal populations, and what intervals cover.

    python -m benchmarks.database_comparison      # continues

A population is a table of 20 000 rows from which units are drawn with replacement, so that the distance of
two populations on the points is known. Noise is simulated with NumPy at the procedure's scale.
"""

import functools
from itertools import product
from typing import Literal

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Answers, Cell, Counts, grid, main
from benchmarks.problems import locations_of
from tacit.database.released import ReleasedDatabase
from tacit.database.weights import columns_of
from tacit_protocol.domain.columns import Domain, NumericColumn
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import WhitenedMeanEmbedding

Floats = npt.NDArray[np.float64]
Null = Literal["bound", "normal", "points"]

ALPHA = 0.05
ROWS = 20_000
POINTS = 25
BANDWIDTH = 0.3
NULLS: tuple[Null, ...] = ("bound", "normal", "points")
UNITS = (200, 2000, 20_000)
NOISES = {"ε = 1": 0.2681, "no noise to speak of": 100.0}
"""mu of the release: the exact curve's at epsilon 1, delta 1e-5; and so much that sampling alone counts."""

POPULATIONS = ("middle", "two spots", "rare")
RUNS = 200

DOMAIN = Domain(columns=tuple(NumericColumn(name=f"x{i}", lower=0, upper=1) for i in (1, 2)))
KERNEL = ProductKernel("gaussian", BANDWIDTH)


@functools.cache
def _population(name: str, other: bool) -> Floats:
    rng = np.random.default_rng(1)
    if name == "middle":
        return np.asarray(np.clip(rng.normal(0.55 if other else 0.5, 0.15, (ROWS, 2)), 0, 1))
    part = {"two spots": (0.5, 0.55), "rare": (1 / 200, 1 / 50)}[name][other]
    far = np.arange(ROWS) < part * ROWS
    return np.where(far, 0.9, 0.1)[:, None] * np.ones(2)


@functools.cache
def _features() -> WhitenedMeanEmbedding:
    numeric = np.random.default_rng(2).random((POINTS, 2))
    return WhitenedMeanEmbedding(KERNEL, locations_of(numeric))


@functools.cache
def _embedded(name: str, other: bool) -> Floats:
    rows = _population(name, other)
    return _features()(locations_of(rows))


@functools.cache
def _distance(name: str) -> float:
    difference = _embedded(name, False).mean(axis=0) - _embedded(name, True).mean(axis=0)
    return float(difference @ difference)


def _released(name: str, other: bool, units: int, mu: float, rng: np.random.Generator) -> ReleasedDatabase:
    features = _features()
    noise = features.diameter / (units * mu)
    sample = _embedded(name, other)[rng.integers(0, ROWS, units)]
    return ReleasedDatabase(
        domain=DOMAIN,
        points=columns_of(DOMAIN, features.locations),
        kernel=KERNEL,
        embedding=sample.mean(axis=0) + noise * rng.standard_normal(POINTS),
        noise=noise,
        noise_error=noise * float(np.sqrt(POINTS)),
        units=units,
        epsilon=1.0,
        delta=1e-5,
        method="simulated",
        warnings=(),
    )


def run(name: str, units: int, noise: str, number: int) -> Answers:
    """Compare two releases of one population, and one of each of two."""
    rng = np.random.default_rng([number, units, len(name)])
    first, same, other = (
        _released(name, is_other, units, NOISES[noise], rng) for is_other in (False, False, True)
    )
    answers: dict[str, float] = {}
    for null in NULLS:
        equal, different = (first.two_sample_test(second, ALPHA, null=null) for second in (same, other))
        answers |= {
            f"{null} | level": float(equal.reject),
            f"{null} | power": float(different.reject),
            f"{null} | covers 0": float(equal.interval[0] <= 0),
            f"{null} | covers": float(different.interval[0] <= _distance(name) <= different.interval[1]),
            f"{null} | width": different.interval[1] - different.interval[0],
        }
    return answers


def _cell(name: str, units: int, noise: str) -> str:
    return f"{name}, n = {units}, {noise}"


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page: every figure once for each null."""

    def shown(cell: str, asked: str) -> str:
        form = ".4f" if asked == "width" else ".3f"
        rates = [counts.shown(cell, f"{null} | {asked}", form) for null in NULLS]
        return " / ".join(rates) if any(rates) else ""

    names = [_cell(name, units, noise) for name, noise, units in product(POPULATIONS, NOISES, UNITS)]
    return {
        "runs": counts.runs_of(""),
        "in short": _worst(counts),
        "table": grid(
            "population, units of each, noise", [(name, name) for name in names], list(COLUMNS.items()), shown
        ),
    }


COLUMNS = {
    "rejects equal ones": "level",
    "rejects different ones": "power",
    "interval holds 0 (equal)": "covers 0",
    "interval holds the distance": "covers",
    "its width": "width",
}


def _worst(counts: Counts) -> str:
    lines = []
    for null in NULLS:
        cells = [cell for cell, question in counts.answered if question == f"{null} | level"]
        level = max(cells, key=lambda cell: counts.rate(cell, f"{null} | level") or 0.0)
        covers = min(cells, key=lambda cell: counts.rate(cell, f"{null} | covers") or 0.0)
        rates = counts.rate(level, f"{null} | level"), counts.rate(covers, f"{null} | covers")
        lines.append(
            f"- `{null}`: equal populations were rejected in {rates[0]:.3f} of the runs at most ({level});\n"
            f"  the distance was covered in {rates[1]:.3f} at least ({covers});"
        )
    return "\n".join(lines)


def cells() -> list[Cell]:
    """List a cell for each population, number of units and noise."""
    return [
        Cell(_cell(name, units, noise), RUNS, functools.partial(run, name, units, noise))
        for name, noise, units in product(POPULATIONS, NOISES, UNITS)
    ]


if __name__ == "__main__":
    main(__doc__, "database-comparison", cells(), parts)
