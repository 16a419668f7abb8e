"""Three real data sets with public bounds, and fifty queries on each.

A query takes columns in their own units, (J,) each, and the rows' weights, (J,) with sum 1: private records
are rows of equal weights, a released database is its points with theirs. Its answer is a vector, whose
distance from the truth is scaled so that 1 is as wrong as can be, or one standard deviation of the column.
"""

import functools
import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from benchmarks.p4_data import FOLDER

Floats = npt.NDArray[np.float64]
Columns = Mapping[str, npt.NDArray[Any]]

QUERIES = 50
CORRELATIONS_MAX = 10
BINS = 10
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
        edges = np.linspace(bound[0], bound[1], BINS + 1)
        bins = np.clip(np.searchsorted(edges, values, side="right") - 1, 0, BINS - 1)
        return np.eye(BINS)[bins]

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
