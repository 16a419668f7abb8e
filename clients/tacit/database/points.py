"""Weighted public points: what a released database is, the estimates that it gives, and functions of it.

Functions follow kernel probabilistic programming: Schölkopf, Muandet, Fukumizu, Harmeling and Peters (2015),
*Computing functions of random variables via reproducing kernel Hilbert space representations*. Where weighted
points stand for X, the function's values at them, with the same weights, stand for f(X); of two independent
variables, pairs of points with products of weights.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from tacit.database.columns import Columns, Floats, locations_of
from tacit.errors import InputError, pandas_module
from tacit.in_process.samples import domain_of
from tacit_protocol.domain import CategoricalColumn, Column, Domain, NumericColumn
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import UNLISTED, Locations, median_distance
from tacit_protocol.reporting.svg import stacked_svg

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow
    from matplotlib.figure import Figure

    from tacit_protocol.verdicts.presentation import BarsPanel


class Estimate(float):
    """A number with its standard errors; it is a float, and cannot be changed.

    Attributes:
        noise: standard error from the privacy noise. Exact for raw weights on public points, which are linear
            in the release (``exact``); for the others the root mean square of what fresh noise of the same
            law does to weights that are fitted again, smoothing included. Points that were drawn from noisy
            histograms moved with the same noise, which no weights undo: never exact.
        projection: how far the public points themselves may lead astray, estimated: how wrong two thirds of
            them are about the population on the others, on (root mean square) average; and, where they are
            farther from the release than noise explains, what noise of that size would do.
            Of a database that was drawn half the function's range: nothing released says how near it is.
            None where there are too few points to tell.
        resolution: what the records' places within their points' cells leave open. Of a probability, the
            most that may be on the other side of the event than the points that stand for them: all of it
            where values gather at whole numbers. Of an expectation, the root mean square over places that are
            even in each cell, and of a function of several columns what mass the noise may hide, times the
            function's range. Of a correlation, what all places of a column together may do unseen; 1.96
            errors then cover .70 at least, where columns are skewed and units few. Known of what is given as
            a function; None otherwise, and for expectations of one column of fitted points.
        sampling: standard error of the records as a sample of a larger population; of no concern where the
            question is about these records.
        clamped: whether the number was moved into [0, 1], as a probability of weights below 0 may have to be.
    """

    __slots__ = ("_clamped", "_exact", "_noise", "_projection", "_resolution", "_sampling")

    _noise: float
    _projection: float | None
    _resolution: float | None
    _sampling: float
    _exact: bool
    _clamped: bool

    def __new__(
        cls,
        value: float,
        *,
        noise: float,
        projection: float | None,
        sampling: float,
        exact: bool = False,
        clamped: bool = False,
        resolution: float | None = None,
    ) -> "Estimate":
        """Make an estimate; see the class."""
        made = super().__new__(cls, value)
        fields = {"noise": noise, "projection": projection, "sampling": sampling, "exact": exact}
        for name, field in (fields | {"clamped": clamped, "resolution": resolution}).items():
            object.__setattr__(made, f"_{name}", field)
        return made

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("an estimate cannot be changed")

    def __getnewargs_ex__(self) -> tuple[tuple[float], dict[str, Any]]:
        return (float(self),), {
            "noise": self.noise,
            "projection": self.projection,
            "sampling": self.sampling,
            "exact": self.exact,
            "clamped": self.clamped,
            "resolution": self.resolution,
        }

    def __reduce_ex__(self, protocol: Any) -> Any:
        arguments, named = self.__getnewargs_ex__()
        return _restored, (*arguments, named)

    @property
    def noise(self) -> float:
        """Standard error from the privacy noise."""
        return self._noise

    @property
    def projection(self) -> float | None:
        """Estimated error from the public points, or None."""
        return self._projection

    @property
    def resolution(self) -> float | None:
        """Most mass that may lie on the other side of the event than its points, or None."""
        return self._resolution

    @property
    def sampling(self) -> float:
        """Standard error of the records as a sample."""
        return self._sampling

    @property
    def exact(self) -> bool:
        """Whether ``noise`` is exact."""
        return self._exact

    @property
    def clamped(self) -> bool:
        """Whether the number was moved into [0, 1]."""
        return self._clamped

    @property
    def error(self) -> float:
        """Noise, projection and resolution together, root of the sum of squares: about these records."""
        return float(np.hypot(np.hypot(self._noise, self._projection or 0.0), self._resolution or 0.0))

    def __repr__(self) -> str:
        return f"{float(self):.6g} ± {self.error:.2g}"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return float.__format__(self, spec) if spec else repr(self)


def _restored(value: float, named: dict[str, Any]) -> Estimate:
    return Estimate(value, **named)


MISFIT_FACTOR, MISFIT_MAX = 3.0, 0.5
"""By how much a misfit of 1 is taken to lead a probability astray, and the most.

Chosen so that stated errors cover on four data sets (docs/benchmarks/database-errors.md): no bound exists.
"""


@dataclass(frozen=True)
class Uncertainty:
    """What a database knows of its weights' errors, as linear maps of a function's values f at the points.

    ``noise`` is (J, parts): the standard error of u'f is |noise' f|; ``exact`` where that is no estimate.
    ``projection`` (J, splits) does the same for the points' own part, or is None. ``units`` counts the
    records. ``misfit`` is how much farther the points are from the release than noise explains: records that
    they cannot follow may lie anywhere, so that every probability is in doubt by it. Infinite where nothing
    is known of it: every mean is then in doubt by half its function's range.
    """

    noise: Floats
    exact: bool
    projection: Floats | None
    units: float
    misfit: float = 0.0

    def noise_of(self, values: Floats) -> float:
        """Return the standard error from noise of the expectation of ``values``, (J,)."""
        return float(np.linalg.norm(values @ self.noise))

    def projection_of(self, values: Floats) -> float | None:
        """Return the error from the points of the expectation of ``values``, (J,)."""
        if self.projection is None:
            return None
        found = float(np.linalg.norm(values @ self.projection))
        if len(np.unique(values)) > 2 and np.isfinite(self.misfit):
            return found
        # Two values are those of an event.
        astray = min(MISFIT_MAX, MISFIT_FACTOR * self.misfit) * float(values.max() - values.min())
        return float(np.hypot(found, astray))

    def sampling_of(self, values: Floats, weights: Floats) -> float:
        """Return the standard error of sampling, from the weights' own variance of ``values``."""
        mean = float(weights @ values)
        return float(np.sqrt(max(0.0, float(weights @ (values - mean) ** 2)) / self.units))


NAMED_MAX = 6
"""Most columns that the representation of a database names."""

SAMPLE_MAX = 10_000_000
"""Most rows of one sample: they are points that come again, so that more say nothing more."""

Function = Callable[[Columns], npt.ArrayLike] | npt.ArrayLike


class PointColumns(Mapping[str, npt.NDArray[Any]]):
    """Points by column, as functions get them: read-only, and an unknown name gets a clear answer.

    ``read`` holds the names of the columns that were asked for.
    """

    def __init__(self, columns: Columns) -> None:
        self._columns = {name: _frozen(values) for name, values in columns.items()}
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        if name not in self._columns:
            raise InputError(f"there is no column {name!r}: the columns are {', '.join(self._columns)}")
        self.read.add(name)
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


class WeightedDatabase(ABC):
    """Points with weights that stand for private records, and what may be asked of them, for ever.

    ``points`` has the points by column, (J,) each, in the columns' own units: a missing category is None,
    one that is not listed ``"(other)"``. All of it is post-processing of what was released: it costs nothing.
    """

    domain: Domain
    points: Columns
    kernel: ProductKernel
    """Says which points are near each other."""

    @property
    @abstractmethod
    def weights(self) -> Floats:
        """The points' weights, (J,)."""

    @property
    @abstractmethod
    def probability_weights(self) -> Floats:
        """Weights that are a probability vector, (J,): those from which rows are sampled."""

    @property
    @abstractmethod
    def uncertainty(self) -> Uncertainty:
        """What is known of the weights' errors."""

    def moved(self, edges: Mapping[str, Sequence[float]] = {}) -> Iterator[Columns]:
        """Yield the points moved to where records that they stand for may be, (J,) columns each.

        One numeric column at a time moves, within each point's cell: to its ends, places between, and those
        of ``edges`` that lie in it. By default nothing is known of any cell.
        """
        del edges
        return iter(())

    def spread(self, function: Callable[[Columns], npt.ArrayLike], *, together: bool) -> float | None:
        """Return how far the mean of a function may be off through where in their points' cells records lie.

        ``together``: all records of a column may lie in one direction, as the error of a correlation needs;
        otherwise cell by cell, each without regard to the others. None where nothing is known of any cell.
        """
        del function, together
        return None

    def __repr__(self) -> str:
        names = [column.name for column in self.domain.columns]
        listed = names[:NAMED_MAX] + ([f"{len(names) - NAMED_MAX} more"] if len(names) > NAMED_MAX else [])
        return f"<{type(self).__name__}: {len(self)} points of {', '.join(listed)}>"

    def __len__(self) -> int:
        """Return the number of points."""
        return len(next(iter(self.points.values())))

    @cached_property
    def locations(self) -> Locations:
        """The points as kernels see them: numbers scaled to [0, 1], categories as codes."""
        return locations_of(self.domain, self.points)

    def expectation(self, function: Function) -> Estimate:
        """Estimate the mean of a function over the private records.

        Args:
            function: takes the columns by name, (J,) each, in their own units, and returns (J,) numbers; or
                these numbers themselves.

        A function is also asked about points moved within their cells: what records may change there is the
        estimate's ``resolution``, with what the release cannot show of columns that it asks for together.

        Raises:
            InputError: it returned another shape, or numbers that are not finite; or it asked for a column
                that there is not.
        """
        values, known = self._numbers(function), self.uncertainty
        return Estimate(
            float(self.weights @ values),
            noise=known.noise_of(values),
            projection=known.projection_of(values),
            sampling=known.sampling_of(values, self.probability_weights),
            exact=known.exact,
            resolution=self.spread(function, together=False) if callable(function) else None,
        )

    def probability(self, event: Function) -> Estimate:
        """Estimate the probability of an event: in [0, 1], moved there where weights below 0 lead out of it.

        Args:
            event: takes the columns by name, (J,) each, and returns (J,) truth values; or these themselves.

        Where none of the points is in the event, or all are, nothing finer than the largest weight can be
        told: the estimate's ``projection`` is at least that. A function is also asked about points moved
        within their cells: what it cuts there is the estimate's ``resolution``.

        Raises:
            InputError: it returned anything else, or asked for a column that there is not.
        """
        return self._probability(event, {})

    def _probability(self, event: Function, edges: Mapping[str, Sequence[float]]) -> Estimate:
        holds = self._truths(event)
        values, known = holds.astype(float), self.uncertainty
        total = float(self.weights @ values)
        projection = known.projection_of(values)
        if holds.all() or not holds.any():
            projection = max(projection or 0.0, float(self.probability_weights.max()))
        return Estimate(
            min(1.0, max(0.0, total)),
            noise=known.noise_of(values),
            projection=projection,
            sampling=known.sampling_of(values, self.probability_weights),
            exact=known.exact,
            clamped=not -1e-12 <= total <= 1 + 1e-12,
            resolution=self._resolution(event, holds, edges) if callable(event) else None,
        )

    def _resolution(
        self, event: Function, holds: npt.NDArray[np.bool_], edges: Mapping[str, Sequence[float]]
    ) -> float | None:
        """Return the most mass of points whose cells an event cuts, of those inside it or outside."""
        cut: npt.NDArray[np.bool_] | None = None
        for columns in self.moved(edges):
            differs = self._truths(event, columns) != holds
            cut = differs if cut is None else cut | differs
        if cut is None:
            return None
        weights = self.probability_weights
        return max(float(weights[cut & holds].sum()), float(weights[cut & ~holds].sum()))

    def mean(self, column: str) -> Estimate:
        """Estimate a numeric column's mean. Raises InputError where there is no such column."""
        name = self._numeric(column).name
        return self.expectation(lambda columns: columns[name])

    def probability_between(self, column: str, lower: float, upper: float) -> Estimate:
        """Estimate the probability that lower <= column <= upper.

        Raises:
            InputError: there is no such numeric column, the interval is empty, or it lies outside the
                column's bounds, where no record is told from one at the bound.
        """
        found = self._numeric(column)
        if not lower <= upper:
            raise InputError(f"the interval is empty: {lower:g} is not at most {upper:g}")
        if upper < found.lower or lower > found.upper:
            raise InputError(
                f"{column!r} lies in {found.lower:g} to {found.upper:g}, and the interval outside of it: "
                "values beyond the bounds were moved to them before the release"
            )
        # Just outside of either end there may be records that the interval does not hold.
        ends = [lower, upper, np.nextafter(lower, -np.inf), np.nextafter(upper, np.inf)]
        return self._probability(
            lambda c: (c[column] >= lower) & (c[column] <= upper), {column: [float(end) for end in ends]}
        )

    def probability_level(self, column: str, level: str | None) -> Estimate:
        """Estimate the share of a category: one of the levels, ``"(other)"``, or None for missing.

        Raises:
            InputError: there is no such categorical column, or it has no such level.
        """
        found = self._column(column)
        if not isinstance(found, CategoricalColumn):
            raise InputError(f"{column!r} holds numbers: ask for an interval")
        if level not in {*found.levels, UNLISTED, None}:
            listed = ", ".join((*found.levels, UNLISTED))
            raise InputError(f"{column!r} has no level {level!r}: it has {listed}, and missing values")
        return self.probability(lambda c: np.array([value == level for value in c[column]], dtype=bool))

    def correlation(self, first: str, second: str) -> Estimate:
        """Estimate the correlation of two numeric columns, in [-1, 1]; its errors are to first order.

        Raises:
            InputError: there are no such numeric columns, or one of them hardly varies over the weighted
                points.
        """
        names = self._numeric(first).name, self._numeric(second).name
        points = [self.points[name].astype(np.float64) for name in names]
        total = float(self.weights.sum())
        if total <= 1e-6:
            raise InputError("the weights have no positive sum: ask a database with simplex weights")
        weights = self.weights / total
        middles = [float(weights @ v) for v in points]
        widths = [float(v.max() - v.min()) or 1.0 for v in points]
        variances = [
            float(weights @ ((v - m) / w) ** 2) for v, m, w in zip(points, middles, widths, strict=True)
        ]
        if min(variances) <= 1e-9:
            raise InputError("a column does not vary over the weighted points: there is no correlation")
        scales = [w * np.sqrt(v) for w, v in zip(widths, variances, strict=True)]

        def standardised(columns: Columns) -> tuple[Floats, Floats]:
            x, y = (
                (columns[name].astype(np.float64) - middle) / scale
                for name, middle, scale in zip(names, middles, scales, strict=True)
            )
            return x, y

        def influence_at(columns: Columns) -> Floats:
            """Return to first order what more weight of a point does to the correlation, (J,)."""
            x, y = standardised(columns)
            return np.asarray((x * y - value * (x**2 + y**2) / 2) / total)

        x, y = standardised(self.points)
        value = float(weights @ (x * y))
        influence, known = influence_at(self.points), self.uncertainty
        projection, resolution = known.projection_of(influence), self.spread(influence_at, together=True)
        return Estimate(
            min(1.0, max(-1.0, value)),
            noise=known.noise_of(influence),
            # No correlation is farther off than this.
            projection=None if projection is None else min(2.0, projection),
            sampling=known.sampling_of(influence, self.probability_weights),
            clamped=abs(value) > 1,
            resolution=None if resolution is None else min(2.0, resolution),
        )

    def sample(self, n: int) -> dict[str, npt.NDArray[Any]]:
        """Return ``n`` unweighted rows, by herding: the same at every call, and better than drawn ones.

        Each next row is the point at which the mean embedding exceeds that of the rows so far the most, so
        that the rows' own embedding comes nearer to the database's at rate 1/n. Rows follow
        ``probability_weights``: there are no rows of negative weight.

        Raises:
            InputError: ``n`` is less than 1, or more than ``SAMPLE_MAX``.
        """
        if not 1 <= n <= SAMPLE_MAX:
            raise InputError(f"n must lie between 1 and {SAMPLE_MAX}")
        gram = self.kernel.gram(self.locations, self.locations)
        wanted, so_far = gram @ self.probability_weights, np.zeros(len(self))
        taken = np.empty(n, dtype=np.int64)
        for count in range(n):
            taken[count] = int(np.argmax((count + 1) * wanted - so_far))
            so_far += gram[taken[count]]
        return {name: np.asarray(values)[taken] for name, values in self.points.items()}

    def transform(
        self,
        function: Callable[[Columns], Mapping[str, npt.ArrayLike] | npt.ArrayLike],
        bounds: Any,
        name: str = "y",
    ) -> "TransformedDatabase":
        """Return the database of a function of the records (kernel probabilistic programming).

        Args:
            function: takes the columns by name, (J,) each, and returns new columns by name, (J,) each, or
                one, which gets ``name``.
            bounds: of the new columns, as in :func:`tacit.local.release_database`.
            name: of the column where the function returns one alone.

        Raises:
            InputError: the function returned something else, or values outside the bounds.
        """
        count = len(self)
        points = _columns(function(PointColumns(self.points)), count, name)
        domain = domain_of(bounds, list(points))

        def moved_points() -> Iterator[Columns]:
            for columns in self.moved():
                yield _columns(function(PointColumns(columns)), count, name)

        def spread_of(asked: Callable[[Columns], npt.ArrayLike], together: bool) -> float | None:
            return self.spread(
                lambda columns: asked(PointColumns(_columns(function(columns), count, name))),
                together=together,
            )

        return TransformedDatabase(
            domain=domain,
            points=_within(domain, points),
            kernel=_kernel(domain, points),
            moved_points=moved_points,
            spread_of=spread_of,
            point_weights=self.weights,
            sampling_weights=self.probability_weights,
            known=self.uncertainty,
        )

    def to_arrow(self) -> "pyarrow.Table":
        """Return the points as an Arrow table, with a last column ``weight``."""
        from tacit.database.tables import points_table  # noqa: PLC0415 (Arrow loads where it is needed)

        return points_table(self.domain, self.points, self.weights)

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the points as a pandas frame with ``weight``. Raises InputError without pandas."""
        pandas_module()
        frame: pandas.DataFrame = self.to_arrow().to_pandas()
        return frame

    def to_polars(self) -> "polars.DataFrame":
        """Return the points as a Polars frame with ``weight``. Raises InputError without Polars."""
        from tacit.database.tables import polars_frame  # noqa: PLC0415

        return polars_frame(self.to_arrow())

    def to_parquet(self, path: str | Path) -> None:
        """Write the points with ``weight``; a released database can be loaded from it again."""
        from tacit.database.tables import write_parquet  # noqa: PLC0415

        write_parquet(self.to_arrow(), self.metadata(), Path(path))

    def to_csv(self, path: str | Path) -> None:
        """Write the points with ``weight`` as text; missing categories are empty cells."""
        from tacit.database.tables import write_table  # noqa: PLC0415

        file = Path(path)
        write_table(self.to_arrow(), file if file.suffix else file.with_suffix(".csv"))

    def metadata(self) -> dict[str, Any] | None:
        """Return what a file needs beside the points so that the database can be loaded again, or None."""
        return None

    def summary_svg(self) -> str:
        """Return a picture of every column's distribution, with its errors, as SVG."""
        return stacked_svg(self._panels(), across=2)

    def plot(self) -> "Figure":
        """Draw every column's distribution with matplotlib. Raises PlottingError where it is missing."""
        from tacit.plotting import figure_of  # noqa: PLC0415 (matplotlib's words load where they are needed)

        return figure_of(self._panels())

    def _panels(self) -> "list[BarsPanel]":
        from tacit.database.tables import panels  # noqa: PLC0415

        known = self.uncertainty
        errors = known.noise if known.projection is None else np.hstack([known.noise, known.projection])
        return panels(self.domain, self.points, self.weights, errors)

    def _repr_svg_(self) -> str:
        return self.summary_svg()

    def _numbers(self, function: Function, columns: Columns | None = None) -> Floats:
        found = function(PointColumns(columns or self.points)) if callable(function) else function
        try:
            values = np.asarray(found, dtype=np.float64)
        except (TypeError, ValueError):
            values = np.empty(0)
        finite = columns is not None or np.all(np.isfinite(values))
        if values.shape != (len(self),) or not finite:
            raise InputError(f"the function must return {len(self)} finite numbers, one for each point")
        return values

    def _truths(self, event: Function, columns: Columns | None = None) -> npt.NDArray[np.bool_]:
        found = event(PointColumns(columns or self.points)) if callable(event) else event
        holds = np.asarray(found)
        if holds.shape != (len(self),) or holds.dtype != np.bool_:
            raise InputError(f"the event must return {len(self)} truth values, one for each point")
        return holds

    def _column(self, name: str) -> Column:
        for column in self.domain.columns:
            if column.name == name:
                return column
        listed = ", ".join(column.name for column in self.domain.columns)
        raise InputError(f"there is no column {name!r}: the columns are {listed}")

    def _numeric(self, name: str) -> NumericColumn:
        column = self._column(name)
        if not isinstance(column, NumericColumn):
            raise InputError(f"{name!r} holds categories, not numbers: ask for the share of a level")
        return column


def _frozen(values: npt.ArrayLike) -> npt.NDArray[Any]:
    view = np.asarray(values).view()
    view.flags.writeable = False
    return view


PAIRS_MAX = 20_000
"""Most points of a function of two databases: the pairs are thinned to so many."""

SIMILARITY = 0.5
"""Of different categories in a transformed database's kernel: the procedures' default."""

SEED = 2015
"""Of the thinning: the same question gets the same answer."""


@dataclass(frozen=True, eq=False, repr=False)
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
        return self.point_weights

    @property
    def probability_weights(self) -> Floats:
        return self.sampling_weights

    @property
    def uncertainty(self) -> Uncertainty:
        """What is known of the weights' errors: those of what this was computed from."""
        return self.known


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
    projection = None
    if one.projection is not None and other.projection is not None:
        parts = one.projection[rows] * theirs[:, None], other.projection[columns] * own[:, None]
        projection = np.hstack(parts)
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
            projection,
            min(one.units, other.units),
            one.misfit + other.misfit,
        ),
    )


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
