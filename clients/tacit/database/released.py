"""Released databases: public points with weights, points moved to match a release, distances and tests."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from tacit.database.columns import Columns, Floats, locations_of
from tacit.database.points import PointColumns, Uncertainty, WeightedDatabase
from tacit.database.weights import (
    Histograms,
    MovingEmbedding,
    MovingFeatures,
    MovingFourier,
    NoiseLaw,
    NoisyHistograms,
    ReducedSet,
    Weighting,
    WeightProblem,
    columns_of,
    fit_reduced_set,
)
from tacit.errors import InputError
from tacit.in_process.samples import ArrayTable, read_samples
from tacit_protocol.domain import Domain, linear_algebra
from tacit_protocol.features.kernels import FeatureMap, ProductKernel, RandomFourier
from tacit_protocol.features.mean_embedding import (
    RIDGES,
    Locations,
    Ridge,
    WhitenedMeanEmbedding,
    decode_locations,
    draw_locations,
)
from tacit_protocol.messages.encoding import encode_json
from tacit_protocol.messages.study import LEVEL_MIN, Study
from tacit_protocol.numerics.simplex_weights import SimplexFit, fit_simplex
from tacit_protocol.procedures.base import parse_parameters
from tacit_protocol.procedures.embedding_release import features_of
from tacit_protocol.procedures.embedding_release.concentration_bounds import (
    Noise,
    ProvedDistance,
    ReleasedMean,
    Sampling,
    Spread,
    database_spread,
    distance_pvalue,
    noisy_trace_bound,
    sample_spread,
)
from tacit_protocol.procedures.embedding_release.plan import (
    POINTS_MAX,
    EmbeddingReleaseParameters,
    ridge_of,
)
from tacit_protocol.procedures.means.private_means import PrivateMeans, estimate_mmd
from tacit_protocol.verdicts.base import Stated, stated

if TYPE_CHECKING:
    from tacit_protocol.procedures.embedding_release.verdict import EmbeddingReleaseVerdict


POINTS_ERROR_MAX = 3.0
"""Times the noise's norm that weighted points may be from the release before it is said."""

PLACES_IN_CELL = tuple(float(part) for part in np.linspace(0.0, 1.0, 9))
"""Where in its cell a point is tried when an event is asked about it, both ends among them."""

REACH = 0.25
"""Bandwidths within which fitted points may stand for records: the smoothest weights that match spread whole
numbers out so far, however many units there are (docs/benchmarks/database-errors.md)."""

WEIGHTINGS: tuple[Weighting, ...] = ("simplex", "regularised", "raw", "shrunk")


@dataclass(frozen=True, eq=False, repr=False)
class ReleasedDatabase(WeightedDatabase):
    """One owner's private database.

    ``points`` has the public points by column, in the columns' own units (a missing category is None, one
    that is not listed ``"(other)"``). ``noise`` is the standard deviation of the noise on each of the
    ``embedding``'s coordinates (J,), and ``noise_error`` the root mean square of its norm.

    ``weighting`` says which weights the points have: ``simplex`` (probabilities, the smoothest that match
    within the noise), ``regularised`` (the best match whose L1 norm is at most ``l1_max``; of both signs)
    ``raw`` (linear in the release: least squares, with exact errors, and all the noise) or ``shrunk`` (the
    same, with the noisiest directions shrunk by Stein's unbiased estimate of the error: the nearest to the
    records' embedding; their stated errors are those of raw weights). ``with_weights`` changes it.

    ``released_features`` is the map whose mean was released, where it is not the points' own: of random
    features, and where points were moved (:meth:`reduced`). ``chosen_weights`` are those of a database that
    the exponential mechanism drew; ``noise`` is then how much farther from the records than the nearest
    candidate it may be, and errors are bounds. ``histograms`` are those that the points were drawn from, of
    the same release: weights match them too. ``ridge`` names that of the points' own features.
    """

    domain: Domain
    points: Columns
    kernel: ProductKernel
    embedding: Floats
    noise: float
    noise_error: float
    units: int
    epsilon: float
    delta: float
    method: str
    warnings: tuple[str, ...]
    weighting: Weighting = "simplex"
    l1_max: float = 1.0
    noise_law: NoiseLaw = "gaussian"
    released_features: FeatureMap | None = None
    chosen_weights: Floats | None = None
    histograms: NoisyHistograms | None = None
    ridge: Ridge = "coarse"

    def __post_init__(self) -> None:
        if self.weighting not in WEIGHTINGS:
            raise InputError(f"weights must be one of {', '.join(WEIGHTINGS)}")
        if not 0 < self.l1_max < np.inf:
            raise InputError("l1_max must be positive and finite")

    def __repr__(self) -> str:
        spent = f"epsilon {self.epsilon:g}, delta {self.delta:g}"
        return f"{super().__repr__()[:-1]} for {self.units} units; {spent}>"

    def with_weights(self, weights: Weighting, *, l1_max: float = 1.0) -> "ReleasedDatabase":
        """Return the same release with other weights; see the class.

        Raises:
            InputError: there are no such weights; or the database was drawn, and has its own.
        """
        if self.chosen_weights is not None and weights != "simplex":
            raise InputError("a database that was drawn has its own weights")
        return replace(self, weighting=weights, l1_max=l1_max)

    @cached_property
    def features(self) -> FeatureMap:
        """The feature map whose mean was released."""
        return self.released_features or WhitenedMeanEmbedding(self.kernel, self.locations, self.ridge)

    @cached_property
    def problem(self) -> WeightProblem:
        """What the weights are fitted to."""
        found = self.histograms
        at_points = None
        if found is not None:
            at_points = Histograms(found.indicators(self.domain, self.locations), found.shares, found.noise)
        return WeightProblem.of(
            self.features(self.locations),
            self.embedding,
            self.noise,
            law=self.noise_law,
            weighting=self.weighting,
            l1_max=self.l1_max,
            chosen=self.chosen_weights,
            histograms=at_points,
            ridge=RIDGES[self.ridge],
        )

    def moved(self, edges: Mapping[str, Sequence[float]] = {}) -> Iterator[Columns]:
        """Yield the points moved to where records that they stand for may be.

        See :meth:`WeightedDatabase.moved`. Points drawn from histograms stand for their cells. Of those that
        were fitted to features of another map, the kernel tells places apart from ``REACH`` bandwidths on.
        Of given points no cells are known.
        """
        for name, (first, last) in self._cells().items():
            own = self.points[name]
            at_edges = (np.where((first <= e) & (e <= last), e, own) for e in edges.get(name, ()))
            for place in (*self._places(name, first, last), *at_edges):
                yield {**self.points, name: place}

    def spread(self, function: Callable[[Columns], npt.ArrayLike], *, together: bool) -> float | None:
        """Return how far a mean may be off through where in their points' cells records lie.

        See :meth:`WeightedDatabase.spread`. One column after the other: ``together`` moves a column's records
        only as far as the embedding would not show, and adds up what that does; otherwise the records of
        every cell lie where they like, evenly, without regard to the other cells'. Of fitted points only what
        records do together is known. Infinite where the function is not finite in a cell.

        Of a function of several columns, apart from their cells: the embedding of a unit has norm 1, so that
        records of mass m may be elsewhere, and move it by at most sqrt 2 m. What noise and misfit hide is
        taken to lie over the function's whole range, also where columns meet that no point has together.
        """
        cells, asked = self._cells(), PointColumns(self.points)
        weights, own = self.probability_weights, self._numbers(lambda _: function(asked))
        several = len(asked.read) > 1 and not together and self.noise_law != "bound"
        total = self._hidden(function, own) if several else 0.0
        if not cells or (self.histograms is None and not together):
            return total if several else None
        for name, (first, last) in cells.items():
            places = np.array(self._places(name, first, last))
            values = np.array([self._numbers(function, {**self.points, name: place}) for place in places])
            if not np.all(np.isfinite(values[:, weights > 0])):
                return np.inf
            values = np.where(np.isfinite(values), values, own)
            if together:
                total += max(
                    self._unseen(name, values - own, places, best)
                    for best in (values.argmax(axis=0), values.argmin(axis=0))
                )
                continue
            _, cell = np.unique(first, return_inverse=True)
            ranges = np.bincount(cell, weights * (values.max(axis=0) - values.min(axis=0)))
            # A uniform place in a cell is off its middle by 1/sqrt(12) of the cell, root mean square.
            total = float(np.hypot(total, np.linalg.norm(ranges) / np.sqrt(12)))
        return total

    def _hidden(self, function: Callable[[Columns], npt.ArrayLike], own: Floats) -> float:
        """Return the mass that noise and misfit hide, times the range of a function of several columns."""
        ordered = {
            # Within the bounds: where points lie says little of where the few of them that are missing would.
            column.name: np.linspace(column.lower, column.upper, len(self))
            for column in self.domain.numeric
        }
        meetings = [ordered, *({**ordered, name: values[::-1]} for name, values in ordered.items())]
        values = np.array([own, *(self._numbers(function, {**self.points, **one}) for one in meetings)])
        if not np.all(np.isfinite(values)):
            return np.inf
        mass = min(1.0, math.hypot(self.noise_error, self.points_error) / math.sqrt(2))
        return mass * float(np.ptp(values))

    def _unseen(self, name: str, changes: Floats, places: Floats, chosen: npt.NDArray[np.intp]) -> float:
        """Return what moving a column's points to ``chosen`` of ``places`` (P, J) does, as far as unseen.

        ``changes`` (P, J) are the function's. The embedding shows what moves it beyond noise and misfit.
        """
        weights, each = self.probability_weights, np.arange(len(self))
        moved = locations_of(self.domain, {**self.points, name: places[chosen, each]})
        far = float(np.linalg.norm(weights @ (self.features(moved) - self.features(self.locations))))
        change = abs(float(weights @ changes[chosen, each]))
        return change * min(1.0, (self.noise_error + self.points_error) / far) if far > 0 else change

    def _places(self, name: str, first: Floats, last: Floats) -> list[Floats]:
        """Return places in each point's cell of a column, (J,) each, both ends among them."""
        places = [first + part * (last - first) for part in PLACES_IN_CELL]
        if self.histograms is not None and name in self.histograms.whole:
            return [np.where(first % 1 == 0, np.rint(place), place) for place in places]
        return places

    def _cells(self) -> dict[str, tuple[Floats, Floats]]:
        """Return where the records that a point stands for may lie, first and last, by numeric column."""
        if self.histograms is not None:
            return self.histograms.ends(self.domain, self.locations)
        if self.released_features is None:
            return {}
        found = {}
        for column in self.domain.numeric:
            own = self.points[column.name].astype(np.float64)
            reach = REACH * self.kernel.bandwidth * (column.upper - column.lower)
            found[column.name] = np.maximum(own - reach, column.lower), np.minimum(own + reach, column.upper)
        return found

    @property
    def fit(self) -> SimplexFit:
        """The points' probability weights, with how well they match the release and a certified gap."""
        return self.problem.simplex

    @cached_property
    def weights(self) -> Floats:
        """The points' weights, (J,), of the kind that ``weighting`` says."""
        return self.problem.weights()

    @property
    def probability_weights(self) -> Floats:
        """The points' probability weights, (J,): non-negative, with sum 1."""
        return self.fit.weights

    @cached_property
    def uncertainty(self) -> Uncertainty:
        """What is known of the weights' errors; found once, by refits under simulated noise."""
        return Uncertainty(
            noise=self.problem.noise_map(),
            exact=self.weighting == "raw" and self.histograms is None,
            projection=self.problem.projection_map(),
            units=self.units,
            # Of a database that was drawn nothing says how near even the nearest candidate is.
            misfit=np.inf if self.noise_law == "bound" else self.problem.misfit,
        )

    @property
    def points_error(self) -> float:
        """How much farther the weighted points are from the release than noise explains: 0 where it does.

        The square root of ``|m - Psi'u|^2`` less the noise's mean square, where a unit's features have norm
        1; with ``histograms`` their misfit is in it, in units of their noise. A sure sign that the points
        cannot stand for the records where it is far above ``noise_error``.
        """
        return self.problem.misfit

    @property
    def points_are_blind(self) -> bool:
        """Whether the points are the study's, and nothing that was released chose them."""
        return self.histograms is None and self.chosen_weights is None

    @property
    def limits(self) -> tuple[str, ...]:
        """What limits the database, in words: the study's warnings, and points that do not match it."""
        if self.points_error <= POINTS_ERROR_MAX * self.noise_error:
            return self.warnings
        advice = (
            "move them (--move, reduced()), or name points like the records"
            if self.histograms is None
            else "its histograms come first then; more points would match more of the rest"
        )
        return (
            *self.warnings,
            f"the points do not match the release: they are {self.points_error:.2g} from it, the noise is "
            f"{self.noise_error:.2g}; {advice}",
        )

    def reduced(
        self,
        n_points: int,
        *,
        starts: int = 3,
        seed: int | None = None,
        progress: Callable[[float], None] | None = None,
    ) -> "ReleasedDatabase":
        """Return the same release on points that were moved to match it (a reduced set; P2, Algorithm 2).

        Fewer points then do the same, or the same number does better where drawn points lie far from the
        records. They start where the weights of many public points match the release, or its own do where it
        has histograms; numeric columns then move within their bounds, and categories stay.

        Args:
            n_points: number of points.
            starts: how often to start from other public points, at most; the nearest match is kept.
            seed: of the starts.
            progress: called with the part done, in [0, 1].

        Raises:
            InputError: the numbers are less than 1, or more than the points a database may have; or the
                database was drawn, and has its points.
        """
        if self.chosen_weights is not None:
            raise InputError("a database that was drawn has its points")
        if not 1 <= n_points <= POINTS_MAX or starts < 1:
            raise InputError(f"n_points must lie between 1 and {POINTS_MAX}, and starts be 1 at least")
        rng, features = np.random.default_rng(seed), self.features
        drawn = [
            informed_start(self.domain, features, self.embedding, self.noise_error, count=n_points, rng=rng)
            if self.points_are_blind
            else _moved_apart(self.locations, self.probability_weights, n_points, rng)
            for _ in range(starts)
        ]
        found = _fit(self.kernel, features, self.embedding, self.noise_error, starts=drawn, progress=progress)
        return replace(self, points=columns_of(self.domain, found.points), released_features=features)

    def mmd(self, other: Any) -> float:
        """Return the maximum mean discrepancy from another database, or from a table of one's own.

        From a database of the same columns and kernel: of the two sets of weighted points. From a table: as
        far as the points' kernels see it (the part of the table's embedding in their span).

        Noise is in it: two databases of one population are about ``hypot`` of their ``noise_error`` apart
        at most, beside sampling. :meth:`two_sample_test` says whether it is more than that.

        Raises:
            InputError: the databases have other columns, bounds or kernels; or the table lacks columns.
        """
        if not isinstance(other, WeightedDatabase):
            mean = table_mean(self, other).mean
            return float(np.linalg.norm(self.problem.features.T @ self.weights - mean))
        if self.domain != other.domain or self.kernel != other.kernel:
            raise InputError("both databases need the same columns, bounds and kernel")
        kernel, own, theirs = self.kernel, self.weights, other.weights
        squared = (
            own @ kernel.gram(self.locations, self.locations) @ own
            + theirs @ kernel.gram(other.locations, other.locations) @ theirs
            - 2 * own @ kernel.gram(self.locations, other.locations) @ theirs
        )
        return float(np.sqrt(max(0.0, float(squared))))

    def two_sample_test(
        self, other: Any, alpha: float = 0.05, *, null: Literal["bound", "normal", "points"] = "bound"
    ) -> "DatabaseComparison":
        """Test whether two releases, or a release and a table of one's own, are of one population.

        Args:
            other: a database with the same points and kernel (the same study, or the same public points), or
                a NumPy array or table with this database's columns, whose rows are units.
            alpha: level, in (0, 0.5).
            null: what is assumed of how much records vary: ``bound``, nothing, so that level and interval
                are proved for every population and number of units; ``normal``, that there are many units;
                or ``points``, that they vary as the weighted points do, or as the rows of one's own table,
                20 at least: sharper, approximate.

        The statistic and null distribution count both releases' noise. The outcome of a test against one's
        own table depends on that table without any noise: it is not private, and is one's own to keep.

        Raises:
            InputError: the two cannot be compared; the message says why.
        """
        if not LEVEL_MIN <= alpha < 0.5:
            raise InputError(f"alpha must lie in (0, 0.5), and be {LEVEL_MIN:g} at least")
        if null not in NULLS:
            raise InputError('null must be "bound", "normal" or "points"')
        if isinstance(other, ReleasedDatabase):
            return _compare_databases(self, other, alpha, null)
        if isinstance(other, WeightedDatabase):
            raise InputError(
                "a transformed database has no release of its own to test: compare what it came from"
            )
        return _compare_table(self, other, alpha, null)

    def metadata(self) -> dict[str, Any]:
        from tacit.database.tables import FORMAT, PLAIN_FIELDS  # noqa: PLC0415 (Arrow loads where it is needed)

        kernel, chosen, found = self.kernel, self.chosen_weights, self.histograms
        return {
            "format": FORMAT,
            "domain": self.domain.model_dump(mode="json"),
            "kernel": {
                "shape": kernel.shape,
                "bandwidth": kernel.bandwidth,
                "similarity": kernel.similarity,
            },
            "embedding": self.embedding.tolist(),
            "ridge": self.ridge,
            "features": self._features_fields(),
            "histograms": None
            if found is None
            else {
                "bins": found.bins,
                "shares": found.by_column(self.domain),
                "noise": found.noise,
                "whole": list(found.whole),
            },
            "chosen_weights": None if chosen is None else chosen.tolist(),
            **{name: getattr(self, name) for name in PLAIN_FIELDS},
            "warnings": list(self.warnings),
        }

    def _features_fields(self) -> dict[str, Any] | None:
        """Return the map whose mean was released as plain values; None where it is the points' own."""
        features = self.released_features
        if features is None:
            return None
        if isinstance(features, RandomFourier):
            signs = [table.tolist() for table in features.signs]
            return {"frequencies": features.frequencies.tolist(), "signs": signs}
        if isinstance(features, WhitenedMeanEmbedding):
            rows = decode_locations(self.domain, features.locations)
            return {"locations": [list(row.values()) for row in rows], "ridge": features.ridge}
        raise TypeError("a database has random features or those of points")

    @classmethod
    def load(cls, path: str | Path) -> "ReleasedDatabase":
        """Load a database that :meth:`to_parquet` wrote.

        The file is not signed: keep the transcript to show where a database comes from.

        Raises:
            InputError: the file cannot be read, or holds no released database.
        """
        from tacit.database.tables import read_parquet  # noqa: PLC0415

        return cls(**read_parquet(Path(path)))

    @classmethod
    def from_verdict(
        cls, study: Study, verdict: Mapping[str, Any], owner: str | None = None
    ) -> "ReleasedDatabase":
        """Return an owner's database, from a study of ``embedding_release`` and its verdict as plain values.

        Raises:
            InputError: the study has several owners and none is named, or not this one; or it is another's
                verdict.
        """
        from tacit_protocol.procedures.embedding_release.verdict import EmbeddingReleaseVerdict  # noqa: PLC0415 (statistics load)

        try:
            read = EmbeddingReleaseVerdict.model_validate_json(encode_json(dict(verdict)))
            return only_database(databases_of(study, read), owner)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError("this is not the verdict of a database release") from error


def databases_of(study: Study, verdict: "EmbeddingReleaseVerdict") -> dict[str, ReleasedDatabase]:
    """Return each sender's database, from a study of ``embedding_release`` and its verdict."""
    return {name: _database_of(study, verdict, name) for name in verdict.embedding}


def _database_of(study: Study, verdict: "EmbeddingReleaseVerdict", name: str) -> ReleasedDatabase:
    chosen, drawn = verdict.weights, verdict.drawn_points
    error = verdict.noise_error[name] if verdict.excess is None else verdict.excess[name]
    common: dict[str, Any] = {
        "domain": study.domain,
        "kernel": ProductKernel(verdict.kernel, verdict.bandwidth, verdict.category_similarity),
        "embedding": np.array(verdict.embedding[name], dtype=np.float64),
        "noise": verdict.noise[name] if chosen is None else error,
        "noise_error": error,
        "units": verdict.units_of(name),
        "epsilon": verdict.epsilon,
        "delta": verdict.delta,
        "method": verdict.method,
        "warnings": verdict.warnings,
        "ridge": ridge_of(parse_parameters(EmbeddingReleaseParameters, study)),
        "noise_law": verdict.noise_law or ("gaussian" if chosen is None else "bound"),
        "chosen_weights": None if chosen is None else np.array(chosen[name], dtype=np.float64),
    }
    if verdict.histograms is not None and verdict.histogram_noise is not None and verdict.bins is not None:
        shares, noise = verdict.histograms[name], verdict.histogram_noise[name]
        common["histograms"] = NoisyHistograms.of(
            study.domain, verdict.bins, shares, noise, study.parameters.get("whole_numbers") or ()
        )
    rows = verdict.points if drawn is None else drawn[name]
    if not rows:
        return from_random_features(study, common)
    kinds = {column.name: column.kind for column in study.domain.columns}
    points: dict[str, npt.NDArray[Any]] = {
        column: np.array([row[place] for row in rows], dtype=float if kinds[column] == "numeric" else object)
        for place, column in enumerate(verdict.columns)
    }
    return ReleasedDatabase(points=points, **common)


def only_database(databases: Mapping[str, ReleasedDatabase], owner: str | None) -> ReleasedDatabase:
    """Return the owner's database, or the only one.

    Raises:
        InputError: there are several and none is named, or there is none of that owner.
    """
    if owner is None and len(databases) == 1:
        return next(iter(databases.values()))
    if owner is None:
        raise InputError(f"name the owner: {', '.join(databases)}")
    if owner not in databases:
        raise InputError(f"there is no database of {owner!r}: the owners are {', '.join(databases)}")
    return databases[owner]


POINTS_DEFAULT = 100
"""Points of a database of random features: as many as are drawn for one on points."""

BLIND_POINTS = 400
"""Points of which a start is drawn: enough that categories and their combinations all occur."""

JITTER = 0.05
"""How far points that were drawn twice are moved apart, in scaled columns."""

STREAM = 7
"""Of the study's seed: what a start is drawn with."""

Progress = Callable[[float], None]


def from_random_features(study: Study, common: Mapping[str, Any]) -> ReleasedDatabase:
    """Return the database of a mean of random features: points moved from a start of the study's own."""
    features = features_of(study)
    rng = np.random.default_rng(np.random.SeedSequence(int(study.seed, 16), spawn_key=(STREAM,)))
    start = informed_start(
        study.domain, features, common["embedding"], common["noise_error"], count=POINTS_DEFAULT, rng=rng
    )
    found = _fit(
        common["kernel"], features, common["embedding"], common["noise_error"], starts=[start], progress=None
    )
    return ReleasedDatabase(
        points=columns_of(study.domain, found.points), released_features=features, **common
    )


def informed_start(
    domain: Domain,
    features: FeatureMap,
    target: np.typing.NDArray[np.float64],
    noise_error: float,
    *,
    count: int,
    rng: np.random.Generator,
) -> Locations:
    """Draw points where the release has weight: of many blind ones, with the weights that match it best.

    Categories do not move later, so that they are best drawn so. Everything comes from the release.
    """
    drawn = draw_locations(domain, BLIND_POINTS, rng)
    many = Locations(rng.random(drawn.numeric.shape), drawn.categorical)
    return _moved_apart(many, fit_simplex(features(many), target, noise_error).weights, count, rng)


def _moved_apart(
    points: Locations, weights: np.typing.NDArray[np.float64], count: int, rng: np.random.Generator
) -> Locations:
    """Draw points by their weights, and move those that are drawn twice apart."""
    taken = rng.choice(len(points), count, p=weights / weights.sum())
    moved = points.numeric[taken] + rng.uniform(-JITTER, JITTER, (count, points.numeric.shape[1]))
    return Locations(np.clip(moved, 0.0, 1.0), points.categorical[taken])


def _fit(
    kernel: ProductKernel,
    features: FeatureMap,
    target: np.typing.NDArray[np.float64],
    noise_error: float,
    *,
    starts: list[Locations],
    progress: Progress | None,
) -> ReducedSet:
    # More threads take as long and twice the processor: the products are small.
    with linear_algebra().limit(limits=1, user_api="blas"):
        return fit_reduced_set(_moving(kernel, features), target, noise_error, starts, progress)


def _moving(kernel: ProductKernel, features: FeatureMap) -> MovingFeatures:
    """Return the map with its gradient."""
    if isinstance(features, WhitenedMeanEmbedding):
        return MovingEmbedding(kernel, features)
    if isinstance(features, RandomFourier):
        return MovingFourier(features, features.frequencies)
    raise TypeError("a database has random features or those of points")


ROWS_MIN = 20
"""Fewest rows of one's own table where their covariance is the spread of records."""

Null = Literal["bound", "normal", "points"]
"""How much records vary: see :meth:`tacit.database.released.ReleasedDatabase.two_sample_test`."""

NULLS: tuple[Null, ...] = ("bound", "normal", "points")

SAMPLING: dict[Null, Sampling] = {"bound": "any", "normal": "normal"}

Pair = tuple[ReleasedMean, ReleasedMean]

POINT_TOLERANCE = 1e-9
"""Points, on [0, 1], that are nearer than this are one: as a verdict or a file wrote them."""


@dataclass(frozen=True)
class DatabaseComparison:
    """Outcome of a two-sample test with a released database. Unpacks into ``statistic, pvalue``.

    Attributes:
        statistic: squared distance of the two mean embeddings on the points, noise included.
        pvalue: probability of a statistic at least as large, were both of one population.
        reject: whether ``pvalue`` is at most ``alpha``.
        alpha: the level.
        method: what was computed, in words.
        n: units of both.
        estimate: squared maximum mean discrepancy, less what noise and sampling add to it, and 0 where that
            is negative: too low on average where records vary less than is assumed.
        estimate_unbiased: the same before it is cut at 0; unbiased where records vary as is assumed.
        interval: contains ``estimate``, and covers it with probability 1 - alpha at least with
            ``null="bound"``; for many units with ``normal``; about so with ``points``.
    """

    statistic: float
    pvalue: float
    reject: bool
    alpha: float
    method: str
    n: tuple[int, int]
    estimate: float
    estimate_unbiased: float
    interval: tuple[float, float]

    def __iter__(self) -> Iterator[float]:
        yield self.statistic
        yield self.pvalue

    def __str__(self) -> str:
        decision = "differ" if self.reject else "no difference shown"
        return (
            f"{decision}: statistic {self.statistic:.4g}, p = {self.pvalue:.3g} at level {self.alpha:g} "
            f"({self.method})"
        )


def _comparison(
    statistic: float, pvalue: float, alpha: float, method: str, *, means: PrivateMeans, estimate: Stated
) -> DatabaseComparison:
    return DatabaseComparison(
        statistic=statistic,
        pvalue=pvalue,
        reject=pvalue <= alpha,
        alpha=alpha,
        method=method,
        n=(int(means.units[0]), int(means.units[1])),
        estimate=estimate.value,
        estimate_unbiased=estimate.unbiased,
        interval=(estimate.lower, estimate.upper),
    )


@dataclass(frozen=True)
class TableMean:
    """A table's mean features (dimension,), their covariance, and its rows."""

    mean: Floats
    covariance: Floats
    rows: int


def table_mean(database: "ReleasedDatabase", table: Any) -> TableMean:
    """Average the database's features over the rows of a table.

    Raises:
        InputError: the table lacks columns, or holds what is no value of them.
    """
    names = [column.name for column in database.domain.columns]
    (sample,) = read_samples([table], names)
    total: Floats = np.zeros(len(database.embedding))
    products: Floats = np.zeros((len(total), len(total)))
    for chunk in ArrayTable.of(sample, database.domain).chunks():
        features = database.features(chunk)
        total += features.sum(axis=0)
        products += features.T @ features
    mean = total / sample.rows
    centred = products / sample.rows - np.outer(mean, mean)
    return TableMean(mean, centred * sample.rows / max(1, sample.rows - 1), sample.rows)


def _compare_databases(
    database: "ReleasedDatabase", other: "ReleasedDatabase", alpha: float, null: Null
) -> DatabaseComparison:
    if database.domain != other.domain or database.kernel != other.kernel:
        raise InputError("both databases need the same columns, bounds and kernel")
    if not _same_features(database.features, other.features):
        raise InputError(
            "both databases need the same points: release them in one study, or with the same public points; "
            "mmd() takes any, without a test"
        )
    pair = _released(database), _released(other)
    method = "MMD of two releases, noise of both"
    if database.histograms is not None:
        method += ", as if their points were public"
    if null != "points":
        return _proved(ProvedDistance(*pair, database.features.diameter, SAMPLING[null]), alpha, method)
    spread = _points_spread(database, other, _private_means(pair))
    return _approximate(pair, spread, alpha, f"{method}, the spread of the weighted points")


def _compare_table(database: "ReleasedDatabase", table: Any, alpha: float, null: Null) -> DatabaseComparison:
    own = _released(database)
    found = table_mean(database, table)
    pair = own, ReleasedMean(found.mean, found.rows, Noise(0.0))
    method = "MMD of a release and a table, noise of the release"
    if database.histograms is not None:
        # The points are then chosen with a look at the records, if a noisy one: proofs are for public ones.
        method += ", as if its points were public"
    if null != "points":
        return _proved(ProvedDistance(*pair, database.features.diameter, SAMPLING[null]), alpha, method)
    if found.rows < ROWS_MIN:
        raise InputError(
            f"the table has {found.rows} rows: their spread is known from {ROWS_MIN} at least; or use "
            'null="bound"'
        )
    spread = sample_spread(found.covariance, found.rows)
    return _approximate(pair, spread, alpha, f"{method}, the spread of the table's rows")


def _released(database: "ReleasedDatabase") -> ReleasedMean:
    return ReleasedMean(database.embedding, database.units, _noise(database))


def _private_means(pair: Pair) -> PrivateMeans:
    return PrivateMeans(
        np.stack([one.mean for one in pair]),
        np.array([one.units for one in pair], dtype=np.float64),
        np.array([one.noise.scale for one in pair]),
    )


def _proved(distance: ProvedDistance, alpha: float, method: str) -> DatabaseComparison:
    """Test with the most that records may vary, in any population or in one of many units."""
    means, pvalue = _private_means((distance.first, distance.second)), distance.pvalue()
    added = float(np.sum(1 / means.units)) * noisy_trace_bound(means)
    added += float(np.sum(means.noise**2)) * means.dimension
    estimate = stated(distance.statistic - added, distance.interval(1 - alpha))
    of_whom = "every population" if distance.sampling == "any" else "many units"
    return _comparison(
        distance.statistic, pvalue, alpha, f"{method}, proved for {of_whom}", means=means, estimate=estimate
    )


def _approximate(pair: Pair, spread: Spread, alpha: float, method: str) -> DatabaseComparison:
    """Test with a spectrum of the records that is estimated."""
    means = _private_means(pair)
    difference = means.means[0] - means.means[1]
    statistic = float(difference @ difference)
    share, noises = float(np.sum(1 / means.units)), tuple(one.noise for one in pair if one.noise.scale > 0)
    pvalue = distance_pvalue(statistic, share, noises, spread, means.dimension)
    found = estimate_mmd(means, spread.moments, 1 - alpha)
    estimate = stated(found.squared_mmd, (found.lower, found.upper))
    return _comparison(statistic, pvalue, alpha, method, means=means, estimate=estimate)


def _noise(database: "ReleasedDatabase") -> Noise:
    if database.noise_law == "bound":
        raise InputError(
            "a database that was drawn has no noise of known law: mmd() compares it, without a test"
        )
    return Noise(database.noise, database.noise_law)


def _same_features(own: FeatureMap, theirs: FeatureMap) -> bool:
    if isinstance(own, WhitenedMeanEmbedding) and isinstance(theirs, WhitenedMeanEmbedding):
        first, second = own.locations, theirs.locations
        return bool(
            first.numeric.shape == second.numeric.shape
            and np.allclose(first.numeric, second.numeric, rtol=0, atol=POINT_TOLERANCE)
            and np.array_equal(first.categorical, second.categorical)
        )
    if isinstance(own, RandomFourier) and isinstance(theirs, RandomFourier):
        return np.array_equal(own.frequencies, theirs.frequencies) and all(
            np.array_equal(a, b) for a, b in zip(own.signs, theirs.signs, strict=True)
        )
    return False


def _points_spread(database: "ReleasedDatabase", other: "ReleasedDatabase", means: PrivateMeans) -> Spread:
    """Return the spectrum of both databases' points, each with its share of the units."""
    shares = means.units / means.units.sum()
    features = np.concatenate([database.problem.features, other.problem.features])
    weights = [share * d.probability_weights for share, d in zip(shares, (database, other), strict=True)]
    return database_spread(features, np.concatenate(weights), means)
