"""What a released database's stated errors are worth, and what tests between two of them decide.

    python -m benchmarks.database_errors                            # both; skips data that are not there
    python -m benchmarks.database_errors --page database-comparison

Stated errors: units are drawn with replacement from a table, and released on public points by the procedure's
formulas with noise from NumPy, or with points from noisy histograms by the procedure itself; every query of
benchmarks/database_queries.py is asked through the SDK. Tests: a population is a table of 20 000 rows from
which units are drawn with replacement, so that the distance of two populations on the points is known.
"""

import functools
from collections.abc import Iterator
from contextlib import suppress
from itertools import product
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.database_queries import SIMILARITY, Query, QueryData, is_there, queries_of, read
from benchmarks.harness import Answers, Benchmark, Cell, Counts, Floats, cells_of, grid, main, named
from benchmarks.problems import locations_of
from tacit.database.points import Estimate
from tacit.database.released import ReleasedDatabase
from tacit.database.weights import columns_of
from tacit.errors import InputError
from tacit.in_process.samples import domain_of
from tacit.local.synthetic import release_database
from tacit_protocol.domain import Domain, EncodedChunk, NumericColumn, encode
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import (
    Locations,
    WhitenedMeanEmbedding,
    draw_locations,
    median_distance,
)
from tacit_protocol.privacy.accounting import gaussian_mu

Weights = Literal["simplex", "regularised", "raw"]

EPSILON, DELTA = 1.0, 1e-6
DEVIATIONS = 1.96
POINTS = 100
WEIGHTS: tuple[Weights, ...] = ("simplex", "regularised", "raw")
PLACEMENTS = ("published", "uniform", "histograms")
UNITS = (1000, 10_000)
L1_MAX = 2.0
RUNS = 10
ROWS_AT_ONCE = 2000

SYNTHETIC = "synthetic"
DATA_SETS = ("RAND", "wine", "Adult", SYNTHETIC)
KINDS = ("mean", "histogram", "probability", "correlation")


def two_groups(units: int, rng: np.random.Generator, share: float = 0.4) -> dict[str, npt.NDArray[Any]]:
    """Draw two dependent numbers in [0, 1] and the group that they depend on."""
    group = rng.random(units) < share
    x = np.clip(np.where(group, rng.normal(0.35, 0.1, units), rng.normal(0.6, 0.15, units)), 0, 1)
    y = np.clip(0.7 * x + rng.normal(0.1, 0.1, units), 0, 1)
    return {"x": x, "y": y, "group": np.where(group, "a", "b").astype(object)}


@functools.cache
def _data(name: str) -> QueryData:
    if name != SYNTHETIC:
        return read(name)
    columns = two_groups(50_000, np.random.default_rng(3))
    bounds = {"x": (0, 1), "y": (0, 1), "group": ["a", "b"]}
    return QueryData(SYNTHETIC, columns, bounds, queries_of(columns, bounds))


@functools.cache
def _encoded(name: str) -> EncodedChunk:
    data = _data(name)
    return encode(domain_of(data.bounds, list(data.bounds)), data.columns)


def _points(data: QueryData, placement: str, rng: np.random.Generator) -> Locations:
    if placement == "published":
        chosen = rng.integers(0, data.rows, POINTS)
        encoded = _encoded(data.name)
        return Locations(encoded.numeric[chosen], encoded.categorical[chosen])
    drawn = draw_locations(domain_of(data.bounds, list(data.bounds)), POINTS, rng)
    return Locations(rng.random(drawn.numeric.shape), drawn.categorical)


def simulated(
    domain: Domain,
    kernel: ProductKernel,
    features: WhitenedMeanEmbedding,
    mean: Floats,
    units: int,
    guarantee: tuple[float, float, float],
    rng: np.random.Generator,
) -> ReleasedDatabase:
    """Release the mean of the features, (J,), with NumPy's noise; ``guarantee`` is epsilon, delta and mu."""
    epsilon, delta, mu = guarantee
    noise = features.diameter / (units * mu)
    return ReleasedDatabase(
        domain=domain,
        points=columns_of(domain, features.locations),
        kernel=kernel,
        embedding=mean + noise * rng.standard_normal(features.dimension),
        noise=noise,
        noise_error=noise * float(np.sqrt(features.dimension)),
        units=units,
        epsilon=epsilon,
        delta=delta,
        method="simulated",
        warnings=(),
    )


def _released(
    data: QueryData, points: Locations, units: npt.NDArray[np.intp], rng: np.random.Generator
) -> ReleasedDatabase:
    kernel = ProductKernel("gaussian", median_distance(points.numeric), SIMILARITY)
    features, encoded = WhitenedMeanEmbedding(kernel, points), _encoded(data.name)
    total: Floats = np.zeros(features.dimension)
    for rows in np.array_split(units, max(1, len(units) // ROWS_AT_ONCE)):
        total += features(Locations(encoded.numeric[rows], encoded.categorical[rows])).sum(axis=0)
    guarantee = (EPSILON, DELTA, gaussian_mu(EPSILON, DELTA))
    domain = domain_of(data.bounds, list(data.bounds))
    return simulated(domain, kernel, features, total / len(units), len(units), guarantee, rng)


def _estimates(data: QueryData, query: Query, database: ReleasedDatabase) -> Iterator[tuple[int, Estimate]]:
    """Ask by function, as users do; a histogram is as many probabilities. Yields places in its answer."""
    if query.kind == "correlation":
        with suppress(InputError):
            yield 0, database.correlation(*query.columns)
    elif query.kind == "mean":
        yield 0, database.mean(query.columns[0])
    else:
        for place in range(query.rows(data.take(np.zeros(1, dtype=np.intp))).shape[1]):
            yield place, database.probability(lambda columns, p=place: query.rows(columns)[:, p] > 0.5)


def run(name: str, placement: str, units: int, number: int) -> Answers:
    """Release once, and ask every query with all three kinds of weights."""
    data = _data(name)
    rng = np.random.default_rng([number, units, len(name), PLACEMENTS.index(placement)])
    rows = rng.integers(0, data.rows, units)
    sample = data.take(rows)
    if placement == "histograms":
        # Through the procedure, with its own noise: part of the budget places the points.
        chosen = {"bounds": data.bounds, "n_points": POINTS, "seed": number}
        base = release_database(pl.DataFrame(sample), epsilon=EPSILON, delta=DELTA, **chosen)
    else:
        base = _released(data, _points(data, placement, rng), rows, rng)
    answers: dict[str, float] = {}
    truths = [
        [
            query.answer(columns, np.full(rows, 1 / rows))
            for columns, rows in ((sample, units), (data.columns, data.rows))
        ]
        for query in data.queries
    ]
    for weights in WEIGHTS:
        database = base.with_weights(weights, l1_max=L1_MAX)
        found: dict[str, list[tuple[float, float, float]]] = {}
        for query, (own, population) in zip(data.queries, truths, strict=True):
            for place, estimate in _estimates(data, query, database):
                whole = float(np.hypot(estimate.error, estimate.sampling))
                off = abs(float(estimate) - own[place])
                found.setdefault(query.kind, []).append(
                    (
                        float(off <= DEVIATIONS * estimate.error),
                        float(abs(float(estimate) - population[place]) <= DEVIATIONS * whole),
                        off / max(estimate.error, 1e-12),
                    )
                )
        for kind, rows_ in found.items():
            covers, covers_population, ratio = np.array(rows_).T
            answers[f"{weights} | {kind} | records"] = float(covers.mean())
            answers[f"{weights} | {kind} | population"] = float(covers_population.mean())
            answers[f"{weights} | {kind} | ratio"] = float(np.median(ratio))
    return answers


WHOLE = ("declared", "not declared", "random features")
"""How a table of whole numbers is released: their columns named as such, or not, or by random features."""


def _whole_numbers(units: int, rng: np.random.Generator) -> dict[str, npt.NDArray[np.int64]]:
    """Draw columns whose values gather on few whole numbers, as years of school and hours of work do."""
    school = [0.002, 0.005, 0.01, 0.02, 0.016, 0.028, 0.036, 0.013, 0.322, 0.224, 0.042, 0.033, 0.164, 0.053]
    grades = np.array([*school, 0.018, 0.014])
    full_time = rng.random(units) < 0.47
    return {
        "grade": rng.choice(np.arange(1, 17), units, p=grades / grades.sum()),
        "hours": np.where(full_time, 40, np.clip(rng.normal(40, 15, units).round(), 1, 99)).astype(np.int64),
        "visits": np.minimum(rng.geometric(0.6, units) - 1, 20),
    }


WHOLE_BOUNDS = {"grade": (1, 16), "hours": (1, 99), "visits": (0, 20)}


def run_whole(how: str, units: int, number: int) -> Answers:
    """Release whole numbers once, and ask how many are at most each of them, and exactly each."""
    rng = np.random.default_rng([number, units, WHOLE.index(how)])
    columns = _whole_numbers(units, rng)
    database = release_database(
        pl.DataFrame(columns),
        epsilon=EPSILON,
        delta=DELTA,
        bounds=WHOLE_BOUNDS,
        seed=number,
        whole_numbers=[] if how == "not declared" else None,
        method="random-features" if how == "random features" else "subspace",
    )
    found = []
    for name, (low, high) in WHOLE_BOUNDS.items():
        for value in range(low, min(high, low + 60)):
            for first in (low, value):
                truth = float(np.mean((columns[name] >= first) & (columns[name] <= value)))
                estimate = database.probability_between(name, first, value)
                off = abs(float(estimate) - truth)
                before = float(np.hypot(estimate.noise, estimate.projection or 0.0))
                found.append((off <= DEVIATIONS * estimate.error, off <= DEVIATIONS * before, off))
    covered, before, off = np.array(found, dtype=np.float64).T
    return {
        "covered": float(covered.mean()),
        "covered without resolution": float(before.mean()),
        "mean error": float(off.mean()),
        "largest error": float(off.max()),
    }


CELL = "{}, {} points, n = {}"
WHOLE_CELL = "whole numbers {}, n = {}"
KEYS = list(product(DATA_SETS, PLACEMENTS, UNITS))


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    cells = [CELL.format(*key) for key in KEYS]
    rows = [(f"{cell}, {weights}", (cell, weights)) for cell, weights in product(cells, WEIGHTS)]
    kinds = named("{}", KINDS)

    def detail(asked: str) -> str:
        corner = "data set, points, units, weights"
        return grid(
            corner, rows, kinds, lambda row, kind: counts.shown(row[0], f"{row[1]} | {kind} | {asked}", ".2f")
        )

    def short(row: tuple[str, str], kind: str) -> str:
        """Mean coverage over data sets and units, and the smallest."""
        placement, weights = row
        own = [CELL.format(*key) for key in KEYS if key[1] == placement]
        rates = [counts.rate(cell, f"{weights} | {kind} | records") for cell in own]
        known = [rate for rate in rates if rate is not None]
        return f"{np.mean(known):.2f} ({min(known):.2f})" if known else ""

    return {
        "runs": counts.runs_of(""),
        "in short": grid(
            "points, weights",
            [(f"{p} points, {w}", (p, w)) for p in PLACEMENTS for w in WEIGHTS],
            kinds,
            short,
        ),
        "whole numbers": grid(
            "columns of whole numbers",
            [(f"{how}, n = {units}", (how, units)) for how in WHOLE for units in UNITS],
            named("{}", ("covered", "covered without resolution", "mean error", "largest error")),
            lambda row, name: counts.shown(WHOLE_CELL.format(*row), name),
        ),
    } | {asked: detail(asked) for asked in ("records", "population", "ratio")}


def cells() -> list[Cell]:
    """List a cell for every data set that is there, placement and number of units."""
    there = [name for name in DATA_SETS if name == SYNTHETIC or is_there(name)]
    found = cells_of(CELL, RUNS, run, there, PLACEMENTS, UNITS)
    return found + cells_of(WHOLE_CELL, RUNS, run_whole, WHOLE, UNITS)


Null = Literal["bound", "normal", "points"]

ALPHA = 0.05
ROWS = 20_000
COMPARED_POINTS = 25
BANDWIDTH = 0.3
NULLS: tuple[Null, ...] = ("bound", "normal", "points")
COMPARED_UNITS = (200, 2000, 20_000)
NOISES = {"ε = 1": 0.2681, "no noise to speak of": 100.0}
"""mu of the release: the exact curve's at epsilon 1, delta 1e-5; and so much that sampling alone counts."""

POPULATIONS = ("middle", "two spots", "rare")
COMPARED_RUNS = 200

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
    numeric = np.random.default_rng(2).random((COMPARED_POINTS, 2))
    return WhitenedMeanEmbedding(KERNEL, locations_of(numeric))


@functools.cache
def _embedded(name: str, other: bool) -> Floats:
    rows = _population(name, other)
    return _features()(locations_of(rows))


@functools.cache
def _distance(name: str) -> float:
    difference = _embedded(name, False).mean(axis=0) - _embedded(name, True).mean(axis=0)
    return float(difference @ difference)


def _sampled(name: str, other: bool, units: int, mu: float, rng: np.random.Generator) -> ReleasedDatabase:
    sample = _embedded(name, other)[rng.integers(0, ROWS, units)]
    return simulated(DOMAIN, KERNEL, _features(), sample.mean(axis=0), units, (1.0, 1e-5, mu), rng)


def compare_run(name: str, units: int, noise: str, number: int) -> Answers:
    """Compare two releases of one population, and one of each of two."""
    rng = np.random.default_rng([number, units, len(name)])
    first, same, other = (
        _sampled(name, is_other, units, NOISES[noise], rng) for is_other in (False, False, True)
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


PAIR_CELL = "{}, n = {}, {}"


def comparison_parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page: every figure once for each null."""

    def shown(cell: str, asked: str) -> str:
        form = ".4f" if asked == "width" else ".3f"
        rates = [counts.shown(cell, f"{null} | {asked}", form) for null in NULLS]
        return " / ".join(rates) if any(rates) else ""

    names = [
        PAIR_CELL.format(p, units, noise) for p, noise, units in product(POPULATIONS, NOISES, COMPARED_UNITS)
    ]
    return {
        "runs": counts.runs_of(""),
        "in short": _worst(counts),
        "table": grid("population, units of each, noise", named("{}", names), list(COLUMNS.items()), shown),
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


def comparison_cells() -> list[Cell]:
    """List a cell for each population, number of units and noise."""
    return cells_of(PAIR_CELL, COMPARED_RUNS, compare_run, POPULATIONS, COMPARED_UNITS, NOISES)


BENCHMARKS = (
    Benchmark("database-errors", cells, parts),
    Benchmark("database-comparison", comparison_cells, comparison_parts),
)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
