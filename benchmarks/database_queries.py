"""Errors of fifty queries on three real data sets: released databases, noisy histograms, and sampling.

    python -m benchmarks.database_queries      # continues; skips data sets that are not there

Every method has the same (epsilon, delta) and Gaussian noise at the exact curve; noise is simulated with
NumPy at the procedure's own scale, but for the method that goes through ``tacit.local``.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.database_histograms import COARSE_BINS, Marginals, NoisyMarginals
from benchmarks.database_queries_page import (
    COARSE,
    DELTA,
    DRAWN_POINTS,
    EPSILONS,
    FOREIGN,
    FREQUENCIES,
    HISTOGRAM_SHARE,
    HISTOGRAMS,
    JOINT,
    LOCAL,
    MARGINAL_DATABASE,
    MARGINAL_POINTS,
    OWN_DATABASE,
    OWN_POINTS,
    POINT_COUNTS,
    RANDOM_FEATURES,
    RED_DATABASE,
    RED_POINTS,
    SAMPLING,
    UNIFORM,
    draw,
    points_cell,
    question,
    text,
)
from benchmarks.database_query_data import FILES, Columns, Floats, QueryData, is_there, read
from benchmarks.resumable import Answers, Cell, main
from tacit.database.released import ReleasedDatabase
from tacit.in_process.samples import domain_of
from tacit.local.database import release_database
from tacit_protocol.domain.table import EncodedChunk, encode
from tacit_protocol.features.base import FeatureMap
from tacit_protocol.features.kernels import ProductKernel, RandomFourier
from tacit_protocol.features.mean_embedding import (
    Locations,
    WhitenedMeanEmbedding,
    decode_locations,
    draw_locations,
    median_distance,
)
from tacit_protocol.features.moments import MEAN, MomentRelease, MomentShares, row_slices
from tacit_protocol.numerics.simplex_weights import fit_simplex
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee, noise_scales
from tacit_protocol.privacy.guarantee import Budget

SIMILARITY = 0.5
"""Of two categories; the procedure's default."""


@dataclass(frozen=True)
class Points:
    """Public points, in their own units and as kernels see them, and the records that are left to protect."""

    columns: dict[str, npt.NDArray[Any]]
    locations: Locations
    private: EncodedChunk

    @property
    def kernel(self) -> ProductKernel:
        """The procedure's default kernel on these points."""
        return ProductKernel("gaussian", median_distance(self.locations.numeric), SIMILARITY)


def run(name: str, number: int) -> Answers:
    """Answer every query by every method at every epsilon."""
    data = read(name)
    rng = np.random.default_rng([number, data.rows])
    peers = {HISTOGRAMS: Marginals(data), COARSE: Marginals(data, bins=COARSE_BINS)}
    single = Marginals(data, orders=(1,))
    answers: dict[str, float] = {}

    take = functools.partial(_take, data, _truth(data), answers)
    again = data.take(rng.integers(0, data.rows, data.rows))
    take(SAMPLING, None, _answers(data, again, np.full(data.rows, 1 / data.rows)))
    fixed = dict(_fixed_points(data, rng))
    for points_name, points in fixed.items():
        count = len(points.locations)
        if points_name != UNIFORM:
            take(f"{points_name} alone", None, _answers(data, points.columns, np.full(count, 1 / count)))
        kernel = points.kernel
        features = WhitenedMeanEmbedding(kernel, points.locations)
        _release(data, DATABASES[points_name], points, features, EPSILONS, rng, take)
    shape = fixed[OWN_POINTS].locations
    categories = [int(column.categories) for column in _domain(data).categorical]
    pairs = RandomFourier.draw(fixed[OWN_POINTS].kernel, shape.numeric.shape[1], categories, FREQUENCIES, rng)
    _release(data, RANDOM_FEATURES, fixed[OWN_POINTS], pairs, EPSILONS, rng, take)
    for epsilon in EPSILONS:
        for peer, marginals in peers.items():
            noisy = marginals.release(epsilon, DELTA, rng)
            take(peer, epsilon, map(noisy.answer, data.queries))
        first = single.release(epsilon, DELTA, rng, share=HISTOGRAM_SHARE)
        points = _marginal_points(data, first, DRAWN_POINTS, rng)
        count = len(points.locations)
        take(MARGINAL_POINTS, epsilon, _answers(data, points.columns, np.full(count, 1 / count)))
        features = WhitenedMeanEmbedding(points.kernel, points.locations)
        share = 1 - HISTOGRAM_SHARE
        _release(data, MARGINAL_DATABASE, points, features, (epsilon,), rng, take, share=share)
    for epsilon in EPSILONS:
        for method, count in ((LOCAL, None), *JOINT.items()):
            found = _drawn_inside(data, epsilon, count, number)
            take(method, epsilon, _answers(data, found.points, found.weights))
    return answers


def _drawn_inside(data: QueryData, epsilon: float, count: int | None, number: int) -> ReleasedDatabase:
    """Release as the SDK does: points from histograms inside the study, OpenDP's noise."""
    return release_database(
        pl.DataFrame(data.columns),
        epsilon=epsilon,
        delta=DELTA,
        bounds=data.bounds,
        n_points=count,
        seed=number,
    )


def _truth(data: QueryData) -> list[Floats]:
    return list(_answers(data, data.columns, np.full(data.rows, 1 / data.rows)))


def _take(
    data: QueryData,
    truth: Sequence[Floats],
    answers: dict[str, float],
    method: str,
    epsilon: float | None,
    found: Iterator[Floats],
) -> None:
    """Add the mean errors of a method's answers, by kind of query and of all."""
    errors: dict[str, list[float]] = {}
    for query, exact, value in zip(data.queries, truth, found, strict=True):
        errors.setdefault(query.kind, []).append(query.error(value, exact))
    everything = [error for kind in errors.values() for error in kind]
    for kind, values in (errors | {"all": everything}).items():
        answers[question(method, epsilon, kind)] = float(np.mean(values))


DATABASES = {UNIFORM: UNIFORM, OWN_POINTS: OWN_DATABASE, RED_POINTS: RED_DATABASE}


def _answers(data: QueryData, columns: Columns, weights: Floats) -> Iterator[Floats]:
    return (query.answer(columns, weights) for query in data.queries)


def _domain(data: QueryData) -> Any:
    return domain_of(data.bounds, list(data.bounds))


def _fixed_points(data: QueryData, rng: np.random.Generator) -> Iterator[tuple[str, Points]]:
    """Yield the public points that need no budget."""
    domain = _domain(data)
    everyone = encode(domain, data.columns)
    drawn = draw_locations(domain, DRAWN_POINTS, rng)
    uniform = Locations(rng.random(drawn.numeric.shape), drawn.categorical)
    rows = decode_locations(domain, uniform)
    columns = {
        name: np.array([row[name] for row in rows], dtype=object if isinstance(bound, list) else np.float64)
        for name, bound in data.bounds.items()
    }
    yield UNIFORM, Points(columns, uniform, everyone)
    yield OWN_POINTS, _published(data, DRAWN_POINTS, rng)
    if data.name in FOREIGN and is_there(FOREIGN[data.name]):
        other = read(FOREIGN[data.name])
        rows_ = rng.permutation(other.rows)[:DRAWN_POINTS]
        sample = other.take(rows_)
        yield RED_POINTS, Points(sample, _located(data, sample), everyone)


def _published(data: QueryData, count: int, rng: np.random.Generator) -> Points:
    """Publish some of the records; the others are to be protected."""
    order = rng.permutation(data.rows)
    part, rest = data.take(order[:count]), data.take(order[count:])
    return Points(part, _located(data, part), encode(_domain(data), rest))


def _located(data: QueryData, columns: dict[str, npt.NDArray[Any]]) -> Locations:
    chunk = encode(_domain(data), columns)
    return Locations(chunk.numeric, chunk.categorical)


def _marginal_points(data: QueryData, tables: NoisyMarginals, count: int, rng: np.random.Generator) -> Points:
    """Draw points whose columns are independent, each from its noisy histogram, stratified."""
    columns = {name: tables.draw(name, count, rng) for name in data.bounds}
    return Points(columns, _located(data, columns), encode(_domain(data), data.columns))


def _release(
    data: QueryData,
    method: str,
    points: Points,
    features: FeatureMap,
    epsilons: Sequence[float],
    rng: np.random.Generator,
    take: Any,
    share: float = 1.0,
) -> None:
    """Release the mean with simulated noise, for a part of mu^2, and ask the queries of its weights."""
    units, exact = points.private.rows, _exact_sum(points, features)
    own, noise = features(points.locations), rng.standard_normal(features.dimension)
    parts = MomentRelease(features, MomentShares(1.0, 0.0)).parts(units)
    for epsilon in epsilons:
        scale = noise_scales(parts, gaussian_guarantee(Budget.of(epsilon, DELTA)))[MEAN] / math.sqrt(share)
        length = scale / units * math.sqrt(features.dimension)
        weights = fit_simplex(own, (exact + scale * noise) / units, length).weights
        take(method, epsilon, _answers(data, points.columns, weights))


def _exact_sum(points: Points, features: FeatureMap) -> Floats:
    """Return the sum of the features; whitening, which is linear, comes last."""
    whitened = isinstance(features, WhitenedMeanEmbedding)
    total = np.zeros(features.dimension)
    for rows in row_slices(points.private, features.dimension):
        values = points.kernel.gram(rows, points.locations) if whitened else features(rows)
        total += values.sum(axis=0)
    if isinstance(features, WhitenedMeanEmbedding):
        return np.asarray(np.linalg.solve(features.unwhitener, total), dtype=np.float64)
    return total


def run_points(name: str, count: int, number: int) -> Answers:
    """Answer every query at epsilon 1 by databases of so many points, and by the points alone."""
    data = read(name)
    rng = np.random.default_rng([number, data.rows, count])
    answers: dict[str, float] = {}
    take = functools.partial(_take, data, _truth(data), answers)
    first = Marginals(data, orders=(1,)).release(1.0, DELTA, rng, share=HISTOGRAM_SHARE)
    chosen = {
        OWN_DATABASE: (_published(data, count, rng), 1.0),
        MARGINAL_DATABASE: (_marginal_points(data, first, count, rng), 1 - HISTOGRAM_SHARE),
    }
    for method, (points, share) in chosen.items():
        take(f"{method}, alone", 1.0, _answers(data, points.columns, np.full(count, 1 / count)))
        features = WhitenedMeanEmbedding(points.kernel, points.locations)
        _release(data, method, points, features, (1.0,), rng, take, share=share)
    return answers


def cells() -> list[Cell]:
    """List a cell for every data set that is there."""
    made = []
    for name in FILES:
        if name in FOREIGN.values():
            continue
        if is_there(name):
            made.append(Cell(name, 6, functools.partial(run, name)))
            made += [
                Cell(points_cell(name, count), 4, functools.partial(run_points, name, count))
                for count in POINT_COUNTS
            ]
        else:
            print(f"skipped {name}: {FILES[name][0]} is not there")
    return made


if __name__ == "__main__":
    main(__doc__, "database-queries", cells(), text, draw)
