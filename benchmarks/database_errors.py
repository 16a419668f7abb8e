"""What the stated errors of a released database's answers are worth: how often the truth lies within them.

    python -m benchmarks.database_errors      # continues; skips data sets that are not there

Units are drawn with replacement from a table, and released on public points by the procedure's formulas with
noise from NumPy, or with points from noisy histograms by the procedure itself. Every query of
benchmarks/database_query_data.py is asked through the SDK.
"""

import functools
from collections.abc import Iterator
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.database_queries import SIMILARITY
from benchmarks.database_query_data import Columns, Floats, Query, QueryData, is_there, queries_of, read
from benchmarks.harness import Answers, Cell, Counts, grid, main, named
from tacit.database.points import Estimate
from tacit.database.released import ReleasedDatabase
from tacit.database.weights import columns_of
from tacit.errors import InputError
from tacit.in_process.samples import domain_of
from tacit.local.database import release_database
from tacit_protocol.domain.table import EncodedChunk, encode
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


@functools.cache
def _data(name: str) -> QueryData:
    if name != SYNTHETIC:
        return read(name)
    rng = np.random.default_rng(3)
    group = rng.random(50_000) < 0.4
    x = np.clip(np.where(group, rng.normal(0.35, 0.1, 50_000), rng.normal(0.6, 0.15, 50_000)), 0, 1)
    columns = {
        "x": x,
        "y": np.clip(0.7 * x + rng.normal(0.1, 0.1, 50_000), 0, 1),
        "group": np.where(group, "a", "b").astype(object),
    }
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


def _released(
    data: QueryData, points: Locations, units: npt.NDArray[np.intp], rng: np.random.Generator
) -> ReleasedDatabase:
    kernel = ProductKernel("gaussian", median_distance(points.numeric), SIMILARITY)
    features = WhitenedMeanEmbedding(kernel, points)
    encoded = _encoded(data.name)
    total: Floats = np.zeros(features.dimension)
    for rows in np.array_split(units, max(1, len(units) // ROWS_AT_ONCE)):
        total += features(Locations(encoded.numeric[rows], encoded.categorical[rows])).sum(axis=0)
    noise = features.diameter / (len(units) * gaussian_mu(EPSILON, DELTA))
    domain = domain_of(data.bounds, list(data.bounds))
    return ReleasedDatabase(
        domain=domain,
        points=columns_of(domain, points),
        kernel=kernel,
        embedding=total / len(units) + noise * rng.standard_normal(features.dimension),
        noise=noise,
        noise_error=noise * float(np.sqrt(features.dimension)),
        units=len(units),
        epsilon=EPSILON,
        delta=DELTA,
        method="simulated",
        warnings=(),
    )


def _of_histograms(data: QueryData, sample: Columns, number: int) -> ReleasedDatabase:
    """Release through the procedure, with its own noise: part of the budget places the points."""
    frame = pl.DataFrame(dict(sample))
    return release_database(
        frame, epsilon=EPSILON, delta=DELTA, bounds=data.bounds, n_points=POINTS, seed=number
    )


def _estimates(data: QueryData, query: Query, database: ReleasedDatabase) -> Iterator[tuple[int, Estimate]]:
    """Ask by function, as users do; a histogram is as many probabilities. Yields places in its answer."""
    if query.kind == "correlation":
        try:
            yield 0, database.correlation(*query.columns)
        except InputError:
            return
        return
    if query.kind == "mean":
        yield 0, database.mean(query.columns[0])
        return
    for place in range(query.rows(data.take(np.zeros(1, dtype=np.intp))).shape[1]):
        yield place, database.probability(functools.partial(_holds, query, place))


def _holds(query: Query, place: int, columns: Columns) -> npt.NDArray[np.bool_]:
    """Say for which rows one of a query's events holds, (n,)."""
    return np.asarray(query.rows(columns)[:, place] > 0.5)


def run(name: str, placement: str, units: int, number: int) -> Answers:
    """Release once, and ask every query with all three kinds of weights."""
    data = _data(name)
    rng = np.random.default_rng([number, units, len(name), PLACEMENTS.index(placement)])
    rows = rng.integers(0, data.rows, units)
    sample = data.take(rows)
    if placement == "histograms":
        base = _of_histograms(data, sample, number)
    else:
        base = _released(data, _points(data, placement, rng), rows, rng)
    answers: dict[str, float] = {}
    truths = [
        (_answer(query, sample, units), _answer(query, data.columns, data.rows)) for query in data.queries
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


def _whole_cell(how: str, units: int) -> str:
    return f"whole numbers {how}, n = {units}"


def _answer(query: Query, columns: Columns, rows: int) -> Floats:
    return query.answer(columns, np.full(rows, 1 / rows))


def _cell(name: str, placement: str, units: int) -> str:
    return f"{name}, {placement} points, n = {units}"


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    rows = [(f"{_cell(*key)}, {weights}", (_cell(*key), weights)) for key in _keys() for weights in WEIGHTS]
    kinds = named("{}", KINDS)

    def detail(asked: str) -> str:
        corner = "data set, points, units, weights"
        return grid(
            corner, rows, kinds, lambda row, kind: counts.shown(row[0], f"{row[1]} | {kind} | {asked}", ".2f")
        )

    def short(row: tuple[str, str], kind: str) -> str:
        """Mean coverage over data sets and units, and the smallest."""
        placement, weights = row
        cells = [_cell(*key) for key in _keys() if key[1] == placement]
        rates = [counts.rate(cell, f"{weights} | {kind} | records") for cell in cells]
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
            lambda row, name: counts.shown(_whole_cell(*row), name),
        ),
    } | {asked: detail(asked) for asked in ("records", "population", "ratio")}


def _keys() -> list[tuple[str, str, int]]:
    return [(name, placement, units) for name in DATA_SETS for placement in PLACEMENTS for units in UNITS]


def cells() -> list[Cell]:
    """List a cell for every data set that is there, placement and number of units."""
    return [
        Cell(_cell(*key), RUNS, functools.partial(run, *key))
        for key in _keys()
        if key[0] == SYNTHETIC or is_there(key[0])
    ] + [
        Cell(_whole_cell(how, units), RUNS, functools.partial(run_whole, how, units))
        for how in WHOLE
        for units in UNITS
    ]


if __name__ == "__main__":
    main(__doc__, "database-errors", cells(), parts)
