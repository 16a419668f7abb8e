"""Public test locations, frequencies and bandwidths: functions of the study's seed, or of a public sample."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit_protocol.domain.columns import Domain
from tacit_protocol.domain.encode import encode
from tacit_protocol.features.base import FeatureMap, FloatMatrix
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import Locations, RawMeanEmbedding, WhitenedMeanEmbedding
from tacit_protocol.features.smooth_characteristic import SmoothCharacteristic

LOCATION_SPREAD = 0.15
"""Standard deviation of drawn locations around the middle of the scaled bounds: public bounds are usually
set wider than the data, which gather in the middle."""

BANDWIDTH_POINTS = 100
"""Points drawn to find the default bandwidth of SCF features."""

FREQUENCY_MAX = 64.0
"""Most turns of an SCF frequency over a column's bounds: the same as of a column-wise one."""

UNLISTED = "(other)"
"""How a location's category that is none of the listed levels is written."""


def draw_locations(domain: Domain, count: int, rng: np.random.Generator) -> Locations:
    """Draw ``count`` locations: numeric columns normal around the middle, categories uniform."""
    numeric = np.clip(0.5 + LOCATION_SPREAD * rng.standard_normal((count, len(domain.numeric))), 0.0, 1.0)
    categorical = np.empty((count, len(domain.categorical)), dtype=np.int32)
    for index, column in enumerate(domain.categorical):
        categorical[:, index] = rng.integers(0, column.categories, count)
    return Locations(numeric, categorical)


def encode_locations(domain: Domain, rows: Sequence[Sequence[float | str | None]]) -> Locations:
    """Encode public rows, one value per column of the domain in its order, as locations.

    Raises ValueError where a row has not one value per column, or a numeric column's value is not a number.
    """
    if any(len(row) != len(domain.columns) for row in rows):
        raise ValueError("every location needs one value per column")
    columns = {}
    for index, column in enumerate(domain.columns):
        values = [row[index] for row in rows]
        if column.kind == "numeric":
            if any(isinstance(value, str) for value in values):
                raise ValueError("a location's value in a numeric column must be a number")
            columns[column.name] = np.array(values, dtype=np.float64)
        else:
            columns[column.name] = np.array(values, dtype=object)
    chunk = encode(domain, columns)
    return Locations(chunk.numeric, chunk.categorical)


def decode_locations(domain: Domain, locations: Locations) -> list[dict[str, float | str | None]]:
    """Return each location as a value by column, in the columns' own units and the domain's order.

    A missing category is None; a category that is not listed is ``UNLISTED``.
    """
    rows: list[dict[str, float | str | None]] = [{} for _ in range(len(locations))]
    numeric, categorical = iter(locations.numeric.T), iter(locations.categorical.T)
    for column in domain.columns:
        if column.kind == "numeric":
            values = column.lower + next(numeric) * (column.upper - column.lower)
            for row, value in zip(rows, values, strict=True):
                row[column.name] = float(value)
        else:
            names = (*column.levels, UNLISTED, None)
            for row, code in zip(rows, next(categorical), strict=True):
                row[column.name] = names[code]
    return rows


def median_distance(points: FloatMatrix) -> float:
    """Median distance between public points, (points, columns): the usual bandwidth. 1 where it is 0."""
    squared = np.sum(points**2, axis=1)
    distances = squared[:, None] + squared[None, :] - 2 * points @ points.T
    upper = distances[np.triu_indices(len(points), 1)]
    if not upper.size:
        return 1.0
    median = float(np.sqrt(max(0.0, float(np.median(upper)))))
    return median if median > 1e-3 else 1.0


def draw_frequencies(columns: int, count: int, bandwidth: float, rng: np.random.Generator) -> FloatMatrix:
    """Draw frequencies, (count, columns), of the Gaussian kernel of that bandwidth (radians per unit)."""
    return np.asarray(rng.standard_normal((count, columns)) / bandwidth)


@dataclass(frozen=True)
class KernelChoice:
    """Public settings of ME and SCF features; ``bandwidth`` None is the median distance of the locations.

    ``raw`` leaves out whitening (ME) and scaling (SCF), as P0 does. ``locations`` are public rows of the
    domain, or None to draw ``count`` of them. ``frequencies`` are those of SCF features, in turns over each
    numeric column's bounds, or None to draw them.
    """

    count: int
    shape: Literal["gaussian", "laplacian"]
    bandwidth: float | None
    similarity: float
    locations: Sequence[Sequence[float | str | None]] | None
    raw: bool
    frequencies: Sequence[Sequence[float]] | None = None


def mean_embedding(domain: Domain, choice: KernelChoice, rng: np.random.Generator) -> FeatureMap:
    """Build ME features. Raises ValueError where the locations do not fit the domain."""
    if choice.locations is None:
        locations = draw_locations(domain, choice.count, rng)
    else:
        locations = encode_locations(domain, choice.locations)
    bandwidth = choice.bandwidth or median_distance(locations.numeric)
    kernel = ProductKernel(choice.shape, bandwidth, choice.similarity)
    return RawMeanEmbedding(kernel, locations) if choice.raw else WhitenedMeanEmbedding(kernel, locations)


def smooth_characteristic(domain: Domain, choice: KernelChoice, rng: np.random.Generator) -> FeatureMap:
    """Build SCF features, ``count`` coordinates in pairs.

    Raises ValueError for categorical columns, and where a frequency has not one value per column.
    """
    if domain.categorical:
        raise ValueError("smooth characteristic features take numeric columns alone")
    if choice.frequencies is not None:
        if any(len(row) != len(domain.numeric) for row in choice.frequencies):
            raise ValueError("every frequency needs one value per column")
        turns = np.array(choice.frequencies, dtype=np.float64)
        return SmoothCharacteristic(2 * np.pi * turns, raw=choice.raw)
    points = draw_locations(domain, BANDWIDTH_POINTS, rng).numeric
    bandwidth = choice.bandwidth or median_distance(points)
    pairs = max(1, choice.count // 2)
    frequencies = draw_frequencies(len(domain.numeric), pairs, bandwidth, rng)
    return SmoothCharacteristic(frequencies, raw=choice.raw)
