"""Distances and two-sample tests between released databases, or between one and a table of one's own."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from tacit.database.points import WeightedDatabase
from tacit.errors import InputError
from tacit.in_process.samples import ArrayTable, read_samples
from tacit_protocol.features.base import FeatureMap
from tacit_protocol.features.kernels import RandomFourier
from tacit_protocol.features.mean_embedding import WhitenedMeanEmbedding
from tacit_protocol.messages.study import LEVEL_MIN
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
from tacit_protocol.procedures.means.private_means import PrivateMeans, estimate_mmd
from tacit_protocol.verdicts.base import stated

if TYPE_CHECKING:
    from tacit.database.released import ReleasedDatabase

ROWS_MIN = 20
"""Fewest rows of one's own table where their covariance is the spread of records."""

Null = Literal["bound", "normal", "points"]
"""How much records vary: see :meth:`tacit.database.released.ReleasedDatabase.two_sample_test`."""

NULLS: tuple[Null, ...] = ("bound", "normal", "points")

SAMPLING: dict[Null, Sampling] = {"bound": "any", "normal": "normal"}

Pair = tuple[ReleasedMean, ReleasedMean]

POINT_TOLERANCE = 1e-9
"""Points, on [0, 1], that are nearer than this are one: as a verdict or a file wrote them."""

Floats = npt.NDArray[np.float64]


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


def discrepancy(database: "ReleasedDatabase", other: Any) -> float:
    """Return the maximum mean discrepancy; see :meth:`ReleasedDatabase.mmd`."""
    if not isinstance(other, WeightedDatabase):
        mean = table_mean(database, other).mean
        return float(np.linalg.norm(database.problem.features.T @ database.weights - mean))
    if database.domain != other.domain or database.kernel != other.kernel:
        raise InputError("both databases need the same columns, bounds and kernel")
    kernel, own, theirs = database.kernel, database.weights, other.weights
    squared = (
        own @ kernel.gram(database.locations, database.locations) @ own
        + theirs @ kernel.gram(other.locations, other.locations) @ theirs
        - 2 * own @ kernel.gram(database.locations, other.locations) @ theirs
    )
    return float(np.sqrt(max(0.0, float(squared))))


def compare(database: "ReleasedDatabase", other: Any, alpha: float, null: Null) -> DatabaseComparison:
    """Test whether two are of one population; see :meth:`ReleasedDatabase.two_sample_test`."""
    if not LEVEL_MIN <= alpha < 0.5:
        raise InputError(f"alpha must lie in (0, 0.5), and be {LEVEL_MIN:g} at least")
    if null not in NULLS:
        raise InputError('null must be "bound", "normal" or "points"')
    from tacit.database.released import ReleasedDatabase  # noqa: PLC0415 (it builds on this module)

    if isinstance(other, ReleasedDatabase):
        return _compare_databases(database, other, alpha, null)
    if isinstance(other, WeightedDatabase):
        raise InputError(
            "a transformed database has no release of its own to test: compare what it came from"
        )
    return _compare_table(database, other, alpha, null)


def _compare_databases(
    database: "ReleasedDatabase", other: "ReleasedDatabase", alpha: float, null: Null
) -> DatabaseComparison:
    _require_same_features(database, other)
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
    return DatabaseComparison(
        statistic=distance.statistic,
        pvalue=pvalue,
        reject=pvalue <= alpha,
        alpha=alpha,
        method=f"{method}, proved for {of_whom}",
        n=(int(means.units[0]), int(means.units[1])),
        estimate=estimate.value,
        estimate_unbiased=estimate.unbiased,
        interval=(estimate.lower, estimate.upper),
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


def _noise(database: "ReleasedDatabase") -> Noise:
    if database.noise_law == "bound":
        raise InputError(
            "a database that was drawn has no noise of known law: mmd() compares it, without a test"
        )
    return Noise(database.noise, database.noise_law)


def _require_same_features(database: "ReleasedDatabase", other: "ReleasedDatabase") -> None:
    if database.domain != other.domain or database.kernel != other.kernel:
        raise InputError("both databases need the same columns, bounds and kernel")
    if not _same_features(database.features, other.features):
        raise InputError(
            "both databases need the same points: release them in one study, or with the same public points; "
            "mmd() takes any, without a test"
        )


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


__all__ = ["DatabaseComparison", "Null", "compare", "discrepancy"]
