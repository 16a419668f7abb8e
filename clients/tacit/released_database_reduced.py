"""Points that are moved to match a release: of random features, which have none, or of any on demand."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tacit.errors import InputError
from tacit.released_database import ReleasedDatabase
from tacit.released_database_weights import columns_of
from tacit_protocol.domain.columns import Domain
from tacit_protocol.features.base import FeatureMap
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import Locations, WhitenedMeanEmbedding
from tacit_protocol.features.public_choices import draw_locations
from tacit_protocol.features.random_fourier import RandomFourier
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.embedding_release import features_of
from tacit_protocol.procedures.embedding_release_plan import POINTS_MAX
from tacit_protocol.statistics.reduced_set import (
    MovingEmbedding,
    MovingFeatures,
    MovingFourier,
    ReducedSet,
    fit_reduced_set,
)
from tacit_protocol.statistics.simplex_weights import fit_simplex
from tacit_protocol.workers import linear_algebra

POINTS_DEFAULT = 100
"""Points of a database of random features: as many as are drawn for one on points."""

BLIND_POINTS = 400
"""Points of which a start is drawn: enough that categories and their combinations all occur."""

JITTER = 0.05
"""How far points that were drawn twice are moved apart, in scaled columns."""

STREAM = 7
"""Of the study's seed: what a start is drawn with."""

Progress = Callable[[float], None]


def reduced(
    database: ReleasedDatabase, n_points: int, starts: int, seed: int | None, progress: Progress | None
) -> ReleasedDatabase:
    """Return the same release on moved points; see :meth:`ReleasedDatabase.reduced`."""
    if database.chosen_weights is not None:
        raise InputError("a database that was drawn has its points")
    if not 1 <= n_points <= POINTS_MAX or starts < 1:
        raise InputError(f"n_points must lie between 1 and {POINTS_MAX}, and starts be 1 at least")
    rng = np.random.default_rng(seed)
    features = database.features
    drawn = [
        informed_start(
            database.domain, features, database.embedding, database.noise_error, count=n_points, rng=rng
        )
        if database.points_are_blind
        else _moved_apart(database.locations, database.probability_weights, n_points, rng)
        for _ in range(starts)
    ]
    found = _fit(
        database.kernel, features, database.embedding, database.noise_error, starts=drawn, progress=progress
    )
    return replace(database, points=columns_of(database.domain, found.points), released_features=features)


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


def blind_start(domain: Domain, count: int, rng: np.random.Generator) -> Locations:
    """Draw points uniformly over the domain."""
    drawn = draw_locations(domain, count, rng)
    return Locations(rng.random(drawn.numeric.shape), drawn.categorical)


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
    many = blind_start(domain, BLIND_POINTS, rng)
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
