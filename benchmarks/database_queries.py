"""Errors of fifty queries on three real data sets: released databases, noisy histograms, and sampling.

    python -m benchmarks.database_queries      # continues; skips data sets that are not there

Every method has the same (epsilon, delta) and Gaussian noise at the exact curve; noise is simulated with
NumPy at the procedure's own scale, but for the method that goes through ``tacit.local``. MST and AIM are
OpenDP's, with its noise: their cells need ``pip install 'opendp[mbi]'`` in an environment of their own (it
asks for an older Polars), and are skipped without it.

A query takes columns in their own units, (J,) each, and the rows' weights, (J,) with sum 1: private records
are rows of equal weights, a released database is its points with theirs. Its answer is a vector, whose
distance from the truth is scaled so that 1 is as wrong as can be, or one standard deviation of the column.
"""

import functools
import importlib.util
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.harness import (
    FOLDER,
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    cells_of,
    curves,
    extent,
    grid,
    main,
    named,
)
from tacit.in_process.samples import domain_of
from tacit.local.synthetic import release_database
from tacit_protocol.domain import EncodedChunk, encode
from tacit_protocol.features.kernels import FeatureMap, ProductKernel, RandomFourier
from tacit_protocol.features.mean_embedding import (
    Locations,
    WhitenedMeanEmbedding,
    decode_locations,
    draw_locations,
    median_distance,
)
from tacit_protocol.features.moments import MEAN, MomentRelease, MomentShares, row_slices
from tacit_protocol.numerics.simplex_weights import fit_simplex, project_on_simplex
from tacit_protocol.privacy.accounting import gaussian_mu
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee, noise_scales
from tacit_protocol.privacy.guarantee import Budget

Columns = Mapping[str, npt.NDArray[Any]]

QUERIES = 50
CORRELATIONS_MAX = 10
QUERY_BINS = 10
"""Bins of a numeric column's histogram, equally wide over its public bounds."""

QUERY_SEED = 7

BINARY = ("0", "1")

RAND_BOUNDS: dict[str, Any] = {
    "mdvis": (0, 80),
    "lncoins": (0, 5),
    "idp": BINARY,
    "lpi": (0, 8),
    "fmde": (0, 10),
    "physlm": (0, 1),
    "disea": (0, 60),
    "hlthg": BINARY,
    "hlthf": BINARY,
    "hlthp": BINARY,
}
WINE_BOUNDS: dict[str, Any] = {
    "fixed_acidity": (3, 15),
    "volatile_acidity": (0, 1.2),
    "citric_acid": (0, 1.7),
    "residual_sugar": (0, 70),
    "chlorides": (0, 0.4),
    "free_sulfur_dioxide": (0, 300),
    "total_sulfur_dioxide": (0, 450),
    "density": (0.985, 1.04),
    "pH": (2.7, 4),
    "sulphates": (0.2, 1.1),
    "alcohol": (8, 15),
    "quality": (0, 10),
}
ADULT_BOUNDS: dict[str, Any] = {
    "age": (17, 90),
    "workclass": None,
    "education_num": (1, 16),
    "marital_status": None,
    "occupation": None,
    "relationship": None,
    "race": None,
    "sex": None,
    "hours_per_week": (0, 100),
    "income": None,
}
"""None: the levels that the codebook lists, which are those of the file."""

INTEGERS = ("mdvis", "age", "education_num", "hours_per_week", "quality")
"""Columns of whole numbers, publicly known to be."""

ENDS = ("lncoins", "lpi", "fmde", "physlm")
"""Columns with many rows at an end of their bounds: a plan without a limit, a score of 0 or 1."""

EDGES = 20
"""Intervals begin and end on a grid of so many equal parts of the bounds."""

FILES = {
    "RAND": ("randhie.csv.gz", RAND_BOUNDS),
    "wine": ("wine_white.csv", WINE_BOUNDS),
    "red wine": ("wine_red.csv", WINE_BOUNDS),
    "Adult": ("adult_train.csv.gz", ADULT_BOUNDS),
}


@dataclass(frozen=True)
class Query:
    """``answer`` gives a vector, and ``error`` the distance of one from the truth.

    ``rows`` gives the numbers (n, places) whose weighted means are the answer; of a correlation, no places.
    """

    kind: str
    columns: tuple[str, ...]
    rows: Callable[[Columns], Floats]
    answer: Callable[[Columns, Floats], Floats]
    error: Callable[[Floats, Floats], float]


def _average(
    kind: str,
    columns: tuple[str, ...],
    rows: Callable[[Columns], Floats],
    error: Callable[[Floats, Floats], float],
) -> Query:
    """Return a query whose answer is the weighted mean of its rows."""
    return Query(kind, columns, rows, lambda found, weights: np.asarray(weights @ rows(found)), error)


@dataclass(frozen=True)
class QueryData:
    """Rows clipped to public ``bounds`` (a pair, or levels), with the queries on them."""

    name: str
    columns: dict[str, npt.NDArray[Any]]
    bounds: dict[str, Any]
    queries: tuple[Query, ...]

    @property
    def rows(self) -> int:
        """Number of rows, each a unit."""
        return len(next(iter(self.columns.values())))

    def take(self, rows: npt.NDArray[np.intp]) -> dict[str, npt.NDArray[Any]]:
        """Return some rows."""
        return {name: values[rows] for name, values in self.columns.items()}


def is_there(name: str) -> bool:
    """Say whether the data set's file is there."""
    return (FOLDER / FILES[name][0]).exists()


@functools.cache
def read(name: str) -> QueryData:
    """Read a data set. Raises FileNotFoundError where it is not there."""
    file, wanted = FILES[name]
    frame = pl.read_csv(FOLDER / file, null_values=["NA"], infer_schema_length=None)
    columns: dict[str, npt.NDArray[Any]] = {}
    bounds: dict[str, Any] = {}
    for column, bound in wanted.items():
        if bound is not None and not isinstance(bound[0], str):
            columns[column] = np.clip(frame[column].to_numpy().astype(np.float64), *bound)
            bounds[column] = bound
            continue
        text = [None if value is None else str(value) for value in frame[column].to_list()]
        columns[column] = np.array(text, dtype=object)
        bounds[column] = list(bound or sorted({value for value in text if value is not None}))
    return QueryData(name, columns, bounds, queries_of(columns, bounds))


def queries_of(columns: Columns, bounds: Mapping[str, Any]) -> tuple[Query, ...]:
    """Means, histograms, correlations, and as many probabilities of intervals as make fifty."""
    rng = np.random.default_rng(QUERY_SEED)
    numeric = [name for name, bound in bounds.items() if not isinstance(bound, list)]
    made = [_mean(name, float(columns[name].std())) for name in numeric]
    made += [_histogram(name, bounds[name]) for name in bounds]
    pairs = list(itertools.combinations(numeric, 2))
    chosen = rng.permutation(len(pairs))[:CORRELATIONS_MAX]
    made += [_correlation(*pairs[place]) for place in sorted(chosen)]
    everything = list(itertools.combinations(bounds, 2))
    order = rng.permutation(len(everything))
    while len(made) < QUERIES:
        pair = everything[order[len(made) % len(everything)]]
        # Half ask for an interval of one column, half for one of each of two.
        names = pair[:1] if len(made) % 2 else pair
        made.append(_event({name: _part(columns[name], bounds[name], rng) for name in names}))
    return tuple(made)


def _mean(name: str, deviation: float) -> Query:
    def rows(columns: Columns) -> Floats:
        return np.asarray(columns[name], dtype=np.float64)[:, None]

    return _average("mean", (name,), rows, lambda a, b: float(abs(a - b)[0]) / deviation)


def _histogram(name: str, bound: Any) -> Query:
    def rows(columns: Columns) -> Floats:
        values = columns[name]
        if isinstance(bound, list):
            return np.column_stack([values == level for level in bound]).astype(np.float64)
        edges = np.linspace(bound[0], bound[1], QUERY_BINS + 1)
        bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, QUERY_BINS - 1)
        return np.eye(QUERY_BINS)[bins]

    return _average("histogram", (name,), rows, lambda a, b: float(np.abs(a - b).sum()) / 2)


def _correlation(first: str, second: str) -> Query:
    def answer(columns: Columns, weights: Floats) -> Floats:
        x, y = columns[first], columns[second]
        x, y = x - weights @ x, y - weights @ y
        scale = np.sqrt((weights @ x**2) * (weights @ y**2))
        return np.array([weights @ (x * y) / scale if scale > 0 else 0.0])

    # Weights of both signs may have a negative variance: such a correlation is taken for 0 as well.
    def none(columns: Columns) -> Floats:
        return np.empty((len(columns[first]), 0))

    return Query("correlation", (first, second), none, answer, lambda a, b: float(np.abs(a - b).sum()))


def _part(values: npt.NDArray[Any], bound: Any, rng: np.random.Generator) -> Callable[[Any], Any]:
    """Return an event of a column: a level, or between two edges of a grid, near to two of its quantiles."""
    if isinstance(bound, list):
        level = bound[int(rng.integers(len(bound)))]
        return lambda column: column == level
    edges = np.linspace(bound[0], bound[1], EDGES + 1)
    places = np.searchsorted(edges, np.quantile(values, np.sort(rng.uniform(0.05, 0.95, 2))), side="right")
    low, high = edges[places[0] - 1], edges[min(places[1], EDGES)]
    return lambda column: (column >= low) & (column < high)


def _event(parts: Mapping[str, Callable[[Any], Any]]) -> Query:
    def rows(columns: Columns) -> Floats:
        holds = [part(columns[name]) for name, part in parts.items()]
        return np.logical_and.reduce(holds).astype(np.float64)[:, None]

    return _average("probability", tuple(parts), rows, lambda a, b: float(abs(a - b)[0]))


BINS = 20
COARSE_BINS = 5
"""Bins of a numeric column, equally wide over its public bounds; whole numbers have one each."""

FINE_VALUES = 80
"""Values by which all bins of a column stand for the numbers in them, equally spaced."""


@dataclass(frozen=True)
class Axis:
    """A column's cells: ``codes`` are its rows'; ``values`` (cells, of each the same number) stand for them.

    Levels, and whole numbers, have a cell each; so do the ends of the bounds where rows are known to gather.
    """

    codes: npt.NDArray[np.intp]
    values: npt.NDArray[Any]

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.values)

    @classmethod
    def of(cls, name: str, column: npt.NDArray[Any], bound: Any, bins: int) -> "Axis":
        """Cut a column's public bounds or levels into cells."""
        if isinstance(bound, list):
            places = {level: place for place, level in enumerate(bound)}
            codes = np.array([places.get(value, len(bound)) for value in column])
            return cls(codes, np.array([*bound, None], dtype=object)[:, None])
        low, high = bound
        if name in INTEGERS:
            return cls((column - low).astype(np.intp), np.arange(low, high + 1.0)[:, None])
        codes = np.clip(((column - low) / (high - low) * bins).astype(np.intp), 0, bins - 1)
        fine = low + (np.arange(FINE_VALUES) + 0.5) / FINE_VALUES * (high - low)
        values = fine.reshape(bins, -1)
        if name in ENDS:
            codes = np.where(column == low, bins, np.where(column == high, bins + 1, codes))
            values = np.vstack([values, *np.broadcast_to([[[low]], [[high]]], (2, 1, values.shape[1]))])
        return cls(codes, values)


class Marginals:
    """Exact tables of a data set; ``release`` adds noise.

    One record replaced moves two cells of each table by 1/n, so that the L2 sensitivity of all T tables is
    sqrt(2 T) / n. Each noisy table is replaced by the nearest probability table.
    """

    def __init__(self, data: QueryData, orders: tuple[int, ...] = (1, 2), bins: int = BINS) -> None:
        self._rows = data.rows
        self._axes = {
            name: Axis.of(name, data.columns[name], data.bounds[name], bins) for name in data.bounds
        }
        self._tables: dict[tuple[str, ...], Floats] = {}
        for keys in itertools.chain(*(itertools.combinations(self._axes, order) for order in orders)):
            axes = [self._axes[key] for key in keys]
            shape = [axis.cells for axis in axes]
            flat = np.ravel_multi_index([axis.codes for axis in axes], shape)
            counts = np.bincount(flat, minlength=int(np.prod(shape)))
            self._tables[keys] = counts.reshape(shape) / data.rows

    def release(
        self, epsilon: float, delta: float, rng: np.random.Generator, share: float = 1.0
    ) -> "NoisyMarginals":
        """Add simulated noise for a share of the mu^2 of (epsilon, delta)."""
        scale = np.sqrt(2 * len(self._tables) / share) / (self._rows * gaussian_mu(epsilon, delta))
        noisy = {}
        for keys, table in self._tables.items():
            flat = (table + scale * rng.standard_normal(table.shape)).ravel()
            noisy[keys] = project_on_simplex(flat).reshape(table.shape)
        return NoisyMarginals(noisy, self._axes)


@dataclass(frozen=True)
class NoisyMarginals:
    """Probability tables by their columns."""

    tables: Mapping[tuple[str, ...], Floats]
    axes: Mapping[str, Axis]

    def answer(self, query: Query) -> Floats:
        """Answer from the table of the query's columns, spread equally within cells."""
        spread = self.tables[query.columns]
        for place, key in enumerate(query.columns):
            within = self.axes[key].values.shape[1]
            spread = np.repeat(spread, within, axis=place) / within
        grids = np.meshgrid(*(self.axes[key].values.ravel() for key in query.columns), indexing="ij")
        columns: Columns = {key: grid.ravel() for key, grid in zip(query.columns, grids, strict=True)}
        return query.answer(columns, spread.ravel())

    def draw(self, name: str, count: int, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Draw a column's values from its table, stratified: each of ``count`` equal parts gives one."""
        table, axis = self.tables[(name,)], self.axes[name]
        uniform = (rng.permutation(count) + rng.random(count)) / count
        codes = np.minimum(np.searchsorted(np.cumsum(table), uniform), axis.cells - 1)
        return np.asarray(axis.values[codes, rng.integers(0, axis.values.shape[1], count)])


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
MODELS = ("MST", "AIM")
PEERS = (HISTOGRAMS, COARSE, *MODELS)
UNIFORM = "uniform points"
OWN_POINTS, OWN_DATABASE = "published part", "points: a published part"
RED_POINTS, RED_DATABASE = "public red wines", "points: public red wines"
MARGINAL_POINTS, MARGINAL_DATABASE = "points of noisy histograms alone", "points: noisy histograms"
RANDOM_FEATURES = "random features, a published part"
LOCAL = "tacit.local, defaults"
JOINT = {f"histograms inside the study, {count} points": count for count in (300, 1000)}
WHOLE: dict[str, dict[str, Any]] = {
    "tacit.local, whole numbers": {},
    "tacit.local, whole numbers, 1000 points": {"n_points": 1000},
    "tacit.local, whole numbers, three quarters for histograms": {"histogram_share": 0.75},
}
"""Columns of whole numbers have an integer type, as in a table of one's own: the cells of the peers."""

OURS = (UNIFORM, OWN_DATABASE, RED_DATABASE, MARGINAL_DATABASE, RANDOM_FEATURES)
WITHOUT_EPSILON = (SAMPLING, f"{OWN_POINTS} alone", f"{RED_POINTS} alone")
ORDER = (
    *WITHOUT_EPSILON,
    *PEERS,
    *OURS,
    MARGINAL_POINTS,
    *JOINT,
    LOCAL,
    *WHOLE,
)


def asked_of(method: str, epsilon: float | None, kind: str) -> str:
    """Name the error of one method on one kind of query."""
    return f"{method} | {'' if epsilon is None else f'{epsilon:g}'} | {kind}"


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
            found = release_database(
                pl.DataFrame(data.columns),
                epsilon=epsilon,
                delta=DELTA,
                bounds=data.bounds,
                n_points=count,
                seed=number,
            )
            take(method, epsilon, _answers(data, found.points, found.weights))
    return answers


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


WHOLE_CELL = "{}: whole numbers"


def run_whole(name: str, number: int) -> Answers:
    """Answer every query by the default release of a table whose types tell what are whole numbers."""
    data = read(name)
    whole = [column for column in INTEGERS if column in data.bounds]
    table = pl.DataFrame(data.columns).with_columns(pl.col(whole).cast(pl.Int64))
    answers: dict[str, float] = {}
    for epsilon, (method, chosen) in itertools.product(EPSILONS, WHOLE.items()):
        found = release_database(
            table, epsilon=epsilon, delta=DELTA, bounds=data.bounds, seed=number, **chosen
        )
        asked = _answers(data, found.points, found.weights)
        _take(data, _truth(data), answers, method, epsilon, asked)
    return answers


TRIES = 10
"""MST adds up what its rounds spend in floating point, and may find it too much: a trifle less then goes."""

MODEL_CELL = "{}: {} at ε={:g}"


def run_model(name: str, method: str, epsilon: float, number: int) -> Answers:
    """Answer every query by the marginals of a graphical model, in the very cells of the histograms.

    Replacing a record moves two cells of a table by 1, adding or removing one moves one: what the model's
    noise is told of as rho without replacement costs 2 rho with it. It gets the largest rho at which Gaussian
    noise on tables would be (epsilon, delta) at the exact curve, mu^2 / 4. Its choice of tables counts as if
    it were such noise too, which favours it: of that part (5 % of rho) replacement takes four times as much.
    """
    import opendp.prelude as dp  # noqa: PLC0415 (an optional part of OpenDP)
    from opendp.extras import mbi  # noqa: PLC0415

    data = read(name)
    axes = {key: Axis.of(key, data.columns[key], data.bounds[key], BINS) for key in data.bounds}
    dp.enable_features("contrib")
    rho = gaussian_mu(epsilon, DELTA) ** 2 / 4
    frame = pl.LazyFrame({key: axis.codes.astype(np.int64) for key, axis in axes.items()})
    keys = {key: list(range(axis.cells)) for key, axis in axes.items()}
    # No query reads more than two columns, so AIM is asked for pairs.
    algorithm = mbi.MST() if method == "MST" else mbi.AIM(queries=2)
    for trifle in range(TRIES):
        context = dp.Context.compositor(
            data=frame,
            privacy_unit=dp.unit_of(contributions=1),
            privacy_loss=dp.loss_of(rho=rho * (1 - 1e-9 * trifle)),
            split_evenly_over=1,
        )
        try:
            model = context.query().contingency_table(keys=keys, algorithm=algorithm).release().model
            break
        except dp.OpenDPException as error:
            if "insufficient budget" not in str(error) or trifle == TRIES - 1:
                raise
    tables = {}
    for columns in {query.columns for query in data.queries}:
        # The last cell of each column is of unlisted values, of which there are none.
        table = np.asarray(model.project(columns).values, dtype=np.float64)[(slice(-1),) * len(columns)]
        tables[columns] = table / table.sum()
    answers: dict[str, float] = {}
    noisy = NoisyMarginals(tables, axes)
    _take(data, _truth(data), answers, method, epsilon, map(noisy.answer, data.queries))
    return answers


def cells() -> list[Cell]:
    """List a cell for every data set that is there."""
    found = [name for name in FILES if name not in FOREIGN.values() and is_there(name)]
    made = cells_of("{}", 6, run, found) + cells_of("{}: {} points", 4, run_points, found, POINT_COUNTS)
    made += cells_of(WHOLE_CELL, 4, run_whole, found)
    if importlib.util.find_spec("mbi") is None:
        print("MST and AIM are skipped: they need opendp[mbi]")
        return made
    return made + cells_of(MODEL_CELL, 1, run_model, found, MODELS, EPSILONS)


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
                for method in (
                    UNIFORM,
                    OWN_DATABASE,
                    MARGINAL_DATABASE,
                    RANDOM_FEATURES,
                    *JOINT,
                    LOCAL,
                    *WHOLE,
                )
                if counts.rate(_cell(name, method, 1.0), asked_of(method, 1.0, "all")) is not None
            ],
            epsilons,
            lambda row, epsilon: _lost(counts, *row, epsilon),
        ),
        "points": grid(
            "ε = 1",
            point_rows,
            named("J={}", POINT_COUNTS),
            lambda row, count: counts.shown(f"{row[0]}: {count} points", asked_of(row[1], 1.0, "all"), ".4f"),
        ),
        "kinds of query": "\n".join(kinds),
    }


def _asked(method: str, epsilon: float, kind: str) -> str:
    return asked_of(method, None if method in WITHOUT_EPSILON else epsilon, kind)


def _cell(name: str, method: str, epsilon: float) -> str:
    if method in WHOLE:
        return WHOLE_CELL.format(name)
    return MODEL_CELL.format(name, method, epsilon) if method in MODELS else name


def _rate(counts: Counts, name: str, method: str, epsilon: float, kind: str) -> str:
    return counts.shown(_cell(name, method, epsilon), _asked(method, epsilon, kind), ".4f")


def _lost(counts: Counts, name: str, method: str, epsilon: float) -> str:
    """Say which kinds of query the best of the peers answers better than ours."""
    lost = []
    for kind in (*KINDS, "all"):
        ours = counts.rate(_cell(name, method, epsilon), asked_of(method, epsilon, kind))
        peers = [counts.rate(_cell(name, peer, epsilon), asked_of(peer, epsilon, kind)) for peer in PEERS]
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


def draw(counts: Counts, folder: Path) -> None:
    """Draw the mean error against epsilon, a panel for each data set."""
    drawn = (SAMPLING, f"{OWN_POINTS} alone", HISTOGRAMS, *OURS, LOCAL)
    panels = {
        name: {
            method: [(EPSILONS, errors)]
            for method in drawn
            if any(errors := [counts.rate(name, _asked(method, e, "all")) for e in EPSILONS])
        }
        for name in _names(counts)
    }
    curves(folder / "database-queries.svg", panels, "ε", "mean error of fifty queries")


BENCHMARKS = (Benchmark("database-queries", cells, parts, draw),)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
