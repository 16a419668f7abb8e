"""Errors of fifty queries on three real data sets: released databases, noisy histograms, and sampling.

    python -m benchmarks.database_queries      # continues; skips data sets that are not there

Every method has the same (epsilon, delta) and Gaussian noise at the exact curve; noise is simulated with
NumPy at the procedure's own scale, but for the method that goes through ``tacit.local``.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.database_histograms import COARSE_BINS, Marginals, NoisyMarginals
from benchmarks.database_query_data import FILES, Columns, Floats, QueryData, is_there, read
from benchmarks.harness import Answers, Cell, Counts, extent, grid, main, named, picture
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

DELTA = 1e-6
EPSILONS = (0.5, 1.0, 4.0)
DRAWN_POINTS = 300
POINT_COUNTS = (100, 300, 1000)
FREQUENCIES = 500
HISTOGRAM_SHARE = 0.25
FOREIGN = {"wine": "red wine"}
"""Data sets with a public sample of a related population."""

KINDS = ("mean", "histogram", "correlation", "probability")

SAMPLING = "sampling alone"
HISTOGRAMS = "all one- and two-way histograms"
COARSE = "the same, 5 bins"
PEERS = (HISTOGRAMS, COARSE)
UNIFORM = "uniform points"
OWN_POINTS, OWN_DATABASE = "published part", "points: a published part"
RED_POINTS, RED_DATABASE = "public red wines", "points: public red wines"
MARGINAL_POINTS, MARGINAL_DATABASE = "points of noisy histograms alone", "points: noisy histograms"
RANDOM_FEATURES = "random features, a published part"
LOCAL = "tacit.local, defaults"
JOINT = {f"histograms inside the study, {count} points": count for count in (300, 1000)}

OURS = (UNIFORM, OWN_DATABASE, RED_DATABASE, MARGINAL_DATABASE, RANDOM_FEATURES)
WITHOUT_EPSILON = (SAMPLING, f"{OWN_POINTS} alone", f"{RED_POINTS} alone")
ORDER = (
    *WITHOUT_EPSILON,
    *PEERS,
    *OURS,
    MARGINAL_POINTS,
    *JOINT,
    LOCAL,
)


def asked_of(method: str, epsilon: float | None, kind: str) -> str:
    """Name the error of one method on one kind of query."""
    return f"{method} | {'' if epsilon is None else f'{epsilon:g}'} | {kind}"


def points_cell(name: str, count: int) -> str:
    """Name the cell of databases of so many points."""
    return f"{name}: {count} points"


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
        answers[asked_of(method, epsilon, kind)] = float(np.mean(values))


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


def _names(counts: Counts) -> list[str]:
    return [name for name in FILES if counts.runs.get(name)]


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    names, epsilons = _names(counts), named("ε={:g}", EPSILONS)
    point_rows = [
        (f"{name}, {asked}", (name, asked))
        for name in names
        for method in (OWN_DATABASE, MARGINAL_DATABASE)
        for asked in (method, f"{method}, alone")
    ]
    kinds = [f"## {name}, by kind of query\n\n{_by_kind(counts, name)}" for name in names]
    return {
        "runs": extent(counts.runs[name] for name in names),
        "runs of the rows that joined later": extent(
            counts.answered.get((name, asked_of(LOCAL, 1.0, "all")), 0) for name in names
        ),
        "all fifty": grid(
            "data set, method",
            [(f"{name}, {method}", (name, method)) for name in names for method in ORDER],
            epsilons,
            lambda row, epsilon: _rate(counts, *row, epsilon, "all"),
        ),
        "where the peer wins": grid(
            "data set, ours",
            [
                (f"{name}, {method}", (name, method))
                for name in names
                for method in (UNIFORM, OWN_DATABASE, MARGINAL_DATABASE, RANDOM_FEATURES, *JOINT, LOCAL)
                if counts.rate(name, asked_of(method, 1.0, "all")) is not None
            ],
            epsilons,
            lambda row, epsilon: _lost(counts, *row, epsilon),
        ),
        "points": grid(
            "ε = 1",
            point_rows,
            named("J={}", POINT_COUNTS),
            lambda row, count: _rate(counts, points_cell(row[0], count), row[1], 1.0, "all"),
        ),
        "kinds of query": "\n".join(kinds),
    }


def _rate(counts: Counts, name: str, method: str, epsilon: float, kind: str) -> str:
    return counts.shown(name, asked_of(method, None if method in WITHOUT_EPSILON else epsilon, kind), ".4f")


def _lost(counts: Counts, name: str, method: str, epsilon: float) -> str:
    """Say which kinds of query the better of the peers answers better than ours."""
    lost = []
    for kind in (*KINDS, "all"):
        ours = counts.rate(name, asked_of(method, epsilon, kind))
        peers = [counts.rate(name, asked_of(peer, epsilon, kind)) for peer in PEERS]
        if ours is not None and any(peer is not None and peer <= ours for peer in peers):
            lost.append(kind)
    return "every kind" if len(lost) > len(KINDS) else ", ".join(lost) or "nowhere"


def _by_kind(counts: Counts, name: str) -> str:
    rows = [
        (method if method in WITHOUT_EPSILON else f"{method}, ε = {epsilon:g}", (method, epsilon))
        for method in ORDER
        for epsilon in ((1.0,) if method in WITHOUT_EPSILON else (1.0, 4.0))
    ]
    return grid("method", rows, named("{}", KINDS), lambda row, kind: _rate(counts, name, *row, kind))


COLOURS = {
    HISTOGRAMS: "#d62728",
    UNIFORM: "#2ca02c",
    OWN_DATABASE: "#1f77b4",
    RED_DATABASE: "#8c564b",
    MARGINAL_DATABASE: "#9467bd",
    RANDOM_FEATURES: "#ff7f0e",
    LOCAL: "black",
}


def draw(counts: Counts, folder: Path) -> None:
    """Draw the mean error against epsilon, a panel for each data set."""
    names, path = _names(counts), folder / "database-queries.svg"
    if not names:
        return
    with picture(path, 1, len(names), figsize=(11, 4.4), sharey=True, squeeze=False) as (figure, axes):
        handles = {}
        for panel, name in zip(axes[0], names, strict=True):
            for method, colour in COLOURS.items():
                found = [counts.rate(name, asked_of(method, e, "all")) for e in EPSILONS]
                if any(value is not None for value in found):
                    values = [np.nan if value is None else value for value in found]
                    line = "s--" if method == HISTOGRAMS else "o-"
                    handles[method] = panel.plot(EPSILONS, values, line, color=colour, ms=4)[0]
            for method, dash in ((SAMPLING, ":"), (f"{OWN_POINTS} alone", "-.")):
                level = counts.rate(name, asked_of(method, None, "all"))
                if level is not None:
                    handles[method] = panel.axhline(level, color="black", lw=0.9, ls=dash)
            panel.set(xscale="log", yscale="log", title=name, xlabel="ε", xticks=EPSILONS)
            panel.set_xticklabels([f"{e:g}" for e in EPSILONS])
            panel.minorticks_off()
        axes[0][0].set_ylabel("mean error of fifty queries")
        figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False)


if __name__ == "__main__":
    main(__doc__, "database-queries", cells(), parts, draw)
