"""Functions of released databases: weighted points of their values (kernel probabilistic programming).

Schölkopf, Muandet, Fukumizu, Harmeling and Peters (2015), *Computing functions of random variables via
reproducing kernel Hilbert space representations*: where weighted points stand for X, the function's values at
them, with the same weights, stand for f(X); of two independent variables, pairs of points with products of
weights.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.database.points import Columns, Floats, PointColumns, Uncertainty, WeightedDatabase, locations_of
from tacit.errors import InputError
from tacit.in_process.samples import domain_of
from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import UNLISTED, median_distance

PAIRS_MAX = 20_000
"""Most points of a function of two databases: the pairs are thinned to so many."""

SIMILARITY = 0.5
"""Of different categories in a transformed database's kernel: the procedures' default."""

SEED = 2015
"""Of the thinning: the same question gets the same answer."""


@dataclass(frozen=True, eq=False)
class TransformedDatabase(WeightedDatabase):
    """Weighted points computed from released databases; may be transformed again, sampled and exported."""

    domain: Domain
    points: Columns
    kernel: ProductKernel
    point_weights: Floats
    sampling_weights: Floats
    known: Uncertainty
    moved_points: Callable[[], Iterator[Columns]] = lambda: iter(())
    spread_of: Callable[[Callable[[Columns], npt.ArrayLike], bool], float | None] = lambda _f, _together: None

    def moved(self, edges: Mapping[str, Sequence[float]] = {}) -> Iterator[Columns]:
        """Yield the function's values at the moved points of what this was computed from."""
        del edges
        return self.moved_points()

    def spread(self, function: Callable[[Columns], npt.ArrayLike], *, together: bool) -> float | None:
        """Return what the cells of what this was computed from leave open of a function's mean."""
        return self.spread_of(function, together)

    @property
    def weights(self) -> Floats:
        """The points' weights, (J,)."""
        return self.point_weights

    @property
    def probability_weights(self) -> Floats:
        """Weights that are a probability vector, (J,)."""
        return self.sampling_weights

    @property
    def uncertainty(self) -> Uncertainty:
        """What is known of the weights' errors: those of what this was computed from."""
        return self.known


def transformed(
    database: WeightedDatabase,
    function: Callable[[Columns], Mapping[str, npt.ArrayLike] | npt.ArrayLike],
    bounds: Any,
    name: str,
) -> TransformedDatabase:
    """Return the database of a function of the records; see :meth:`WeightedDatabase.transform`."""
    count = len(database)
    points = _columns(function(PointColumns(database.points)), count, name)
    domain = domain_of(bounds, list(points))

    def moved_points() -> Iterator[Columns]:
        for columns in database.moved():
            yield _columns(function(PointColumns(columns)), count, name)

    def spread_of(asked: Callable[[Columns], npt.ArrayLike], together: bool) -> float | None:
        return database.spread(
            lambda columns: asked(PointColumns(_columns(function(columns), count, name))), together=together
        )

    return TransformedDatabase(
        domain=domain,
        points=_within(domain, points),
        kernel=_kernel(domain, points),
        moved_points=moved_points,
        spread_of=spread_of,
        point_weights=database.weights,
        sampling_weights=database.probability_weights,
        known=database.uncertainty,
    )


def combined(
    first: WeightedDatabase,
    second: WeightedDatabase,
    function: Callable[[Columns, Columns], Mapping[str, npt.ArrayLike] | npt.ArrayLike],
    bounds: Any,
    name: str = "y",
    *,
    pairs_max: int = PAIRS_MAX,
) -> TransformedDatabase:
    """Return the database of a function of two independent variables, each with a database of its own.

    Args:
        first: stands for X.
        second: stands for Y, independent of X.
        function: takes the columns of both, (P,) each, of P pairs of points, and returns new columns by name,
            (P,) each, or one, which gets ``name``.
        bounds: of the new columns, as in :func:`tacit.local.release_database`.
        name: of the column where the function returns one alone.
        pairs_max: pairs are thinned to so many: those of more weight are kept with more probability, and
            weigh as much together as all of them.

    Raises:
        InputError: the function returned something else, or values outside the bounds.
    """
    if pairs_max < 1:
        raise InputError("pairs_max must be at least 1")
    one, other = first.uncertainty, second.uncertainty
    # A point counts by its weight and by what noise may make of it.
    importance = (np.abs(d.weights) + np.linalg.norm(d.uncertainty.noise, axis=1) for d in (first, second))
    rows, columns, scale = _thinned(*importance, pairs_max=pairs_max)
    found = function(_take(first.points, rows), _take(second.points, columns))
    points = _columns(found, len(rows), name)
    domain = domain_of(bounds, list(points))
    sampling = first.probability_weights[rows] * second.probability_weights[columns] * scale
    total = float(sampling.sum())
    if total <= 0:
        raise InputError("no pair of points has weight: use simplex weights")
    own, theirs = first.weights[rows] * scale, second.weights[columns] * scale
    return TransformedDatabase(
        domain=domain,
        points=_within(domain, points),
        kernel=_kernel(domain, points),
        point_weights=first.weights[rows] * second.weights[columns] * scale,
        sampling_weights=sampling / total,
        # To first order: what moves one of the weights, with the other's as they are.
        known=Uncertainty(
            np.hstack([one.noise[rows] * theirs[:, None], other.noise[columns] * own[:, None]]),
            False,
            _both(one.projection, other.projection, (rows, columns), (own, theirs)),
            min(one.units, other.units),
            one.misfit + other.misfit,
        ),
    )


def _both(
    one: Floats | None,
    other: Floats | None,
    chosen: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]],
    weights: tuple[Floats, Floats],
) -> Floats | None:
    if one is None or other is None:
        return None
    (rows, columns), (own, theirs) = chosen, weights
    return np.hstack([one[rows] * theirs[:, None], other[columns] * own[:, None]])


def _thinned(
    own: Floats, theirs: Floats, *, pairs_max: int
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp], Floats]:
    """Return which pairs are kept, and by what their weights are multiplied: 1 where all are kept.

    Systematic sampling of pairs with probabilities in proportion to the points' importance, which leaves
    every expectation as it is on average.
    """
    if len(own) * len(theirs) <= pairs_max:
        rows, columns = np.divmod(np.arange(len(own) * len(theirs)), len(theirs))
        return rows, columns, np.ones(len(rows))
    size = np.outer(own, theirs).ravel()
    expected = pairs_max * size / size.sum()
    places = np.arange(pairs_max) + np.random.default_rng(SEED).random()
    times = np.bincount(
        np.searchsorted(np.cumsum(expected), places).clip(0, len(size) - 1), minlength=len(size)
    )
    kept = np.flatnonzero(times)
    rows, columns = np.divmod(kept, len(theirs))
    return rows, columns, times[kept] / expected[kept]


def _take(columns: Columns, places: npt.NDArray[np.intp]) -> PointColumns:
    return PointColumns({name: np.asarray(values)[places] for name, values in columns.items()})


def _columns(found: Any, count: int, name: str) -> dict[str, npt.NDArray[Any]]:
    named = found if isinstance(found, Mapping) else {name: found}
    columns = {str(key): np.asarray(values) for key, values in named.items()}
    if not columns or any(values.shape != (count,) for values in columns.values()):
        raise InputError(
            f"the function must return one or more columns of {count} values, one for each point"
        )
    return columns


def _within(domain: Domain, columns: Columns) -> dict[str, npt.NDArray[Any]]:
    """Return the columns as the domain has them; values outside are refused."""
    return {
        column.name: _numeric(column, columns[column.name])
        if isinstance(column, NumericColumn)
        else _levels(column, columns[column.name])
        for column in domain.columns
    }


def _numeric(column: NumericColumn, values: npt.NDArray[Any]) -> Floats:
    try:
        numbers = values.astype(np.float64)
    except (TypeError, ValueError):
        numbers = np.array([np.nan])
    if not np.all(np.isfinite(numbers)):
        raise InputError(f"the function must return finite numbers for {column.name!r}")
    if np.any(numbers < column.lower) or np.any(numbers > column.upper):
        raise InputError(
            f"{column.name!r} has values from {numbers.min():g} to {numbers.max():g}: widen its bounds, or "
            "clip it"
        )
    return numbers


def _levels(column: CategoricalColumn, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    known = {*column.levels, UNLISTED, None}
    found = [None if value is None else str(value) for value in values.tolist()]
    if unknown := sorted({str(value) for value in found if value not in known}):
        raise InputError(
            f"{column.name!r} has values that are not among its levels: {', '.join(unknown[:5])}"
        )
    return np.array(found, dtype=object)


def _kernel(domain: Domain, points: Columns) -> ProductKernel:
    locations = locations_of(domain, _within(domain, points))
    few = locations.numeric[np.linspace(0, len(locations) - 1, min(len(locations), 500)).astype(int)]
    return ProductKernel("gaussian", median_distance(few), SIMILARITY)
