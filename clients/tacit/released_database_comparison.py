"""Distances and two-sample tests between released databases, or between one and a table of one's own."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from tacit.array_table import ArrayTable
from tacit.errors import InputError
from tacit.frames import read_samples
from tacit.released_database_points import WeightedDatabase
from tacit_protocol.features.base import FeatureMap
from tacit_protocol.features.mean_embedding import WhitenedMeanEmbedding
from tacit_protocol.features.random_fourier import RandomFourier
from tacit_protocol.statistics.mmd_estimate import estimate_mmd
from tacit_protocol.statistics.noisy_distance import (
    Noise,
    Spread,
    bounded_spread,
    database_spread,
    distance_pvalue,
    sample_spread,
)
from tacit_protocol.statistics.private_means import PrivateMeans

if TYPE_CHECKING:
    from tacit.released_database import ReleasedDatabase

ROWS_MIN = 20
"""Fewest rows of one's own table: their covariance has to be known from them alone."""

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
        estimate: squared maximum mean discrepancy, unbiased but for what is assumed of the spread of records.
        interval: covers it with probability 1 - alpha, about.
    """

    statistic: float
    pvalue: float
    reject: bool
    alpha: float
    method: str
    n: tuple[int, int]
    estimate: float
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


def compare(
    database: "ReleasedDatabase", other: Any, alpha: float, null: Literal["bound", "points"]
) -> DatabaseComparison:
    """Test whether two are of one population; see :meth:`ReleasedDatabase.two_sample_test`."""
    if not 0 < alpha < 0.5:
        raise InputError("alpha must lie in (0, 0.5)")
    if null not in {"bound", "points"}:
        raise InputError('null must be "bound" or "points"')
    from tacit.released_database import ReleasedDatabase  # noqa: PLC0415 (it builds on this module)

    if isinstance(other, ReleasedDatabase):
        return _compare_databases(database, other, alpha, null)
    if isinstance(other, WeightedDatabase):
        raise InputError(
            "a transformed database has no release of its own to test: compare what it came from"
        )
    return _compare_table(database, other, alpha)


def _compare_databases(
    database: "ReleasedDatabase", other: "ReleasedDatabase", alpha: float, null: Literal["bound", "points"]
) -> DatabaseComparison:
    _require_same_features(database, other)
    noises = (_noise(database), _noise(other))
    means = PrivateMeans(
        np.stack([database.embedding, other.embedding]),
        np.array([database.units, other.units], dtype=np.float64),
        np.array([database.noise, other.noise]),
    )
    spread = bounded_spread(means) if null == "bound" else _points_spread(database, other, means)
    words = {
        "bound": "the largest spread of records that both allow",
        "points": "the spread of the weighted points",
    }
    method = f"MMD of two releases, noise of both, {words[null]}"
    return _conclude(means, noises, spread, alpha, method)


def _compare_table(database: "ReleasedDatabase", table: Any, alpha: float) -> DatabaseComparison:
    found = table_mean(database, table)
    if found.rows < ROWS_MIN:
        raise InputError(f"the table has {found.rows} rows: a test needs {ROWS_MIN} at least")
    means = PrivateMeans(
        np.stack([database.embedding, found.mean]),
        np.array([database.units, found.rows], dtype=np.float64),
        np.array([database.noise, 0.0]),
    )
    spread = sample_spread(found.covariance, found.rows)
    method = "MMD of a release and a table, noise of the release"
    return _conclude(means, (_noise(database),), spread, alpha, method)


def _conclude(
    means: PrivateMeans, noises: tuple[Noise, ...], spread: Spread, alpha: float, method: str
) -> DatabaseComparison:
    difference = means.means[0] - means.means[1]
    statistic = float(difference @ difference)
    share = float(np.sum(1 / means.units))
    pvalue = distance_pvalue(statistic, share, noises, spread, means.dimension)
    estimate = estimate_mmd(means, spread.moments, 1 - alpha)
    return DatabaseComparison(
        statistic=statistic,
        pvalue=pvalue,
        reject=pvalue <= alpha,
        alpha=alpha,
        method=method,
        n=(int(means.units[0]), int(means.units[1])),
        estimate=estimate.squared_mmd,
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


__all__ = ["DatabaseComparison", "compare", "discrepancy"]
