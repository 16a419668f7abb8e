"""The feature maps of released databases, as plain values and back."""

from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.released_database_points import locations_of
from tacit_protocol.domain.columns import Domain
from tacit_protocol.features.base import FeatureMap
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import WhitenedMeanEmbedding
from tacit_protocol.features.public_choices import decode_locations
from tacit_protocol.features.random_fourier import RandomFourier

if TYPE_CHECKING:
    from tacit.released_database import ReleasedDatabase


def features_fields(database: "ReleasedDatabase") -> dict[str, Any] | None:
    """Return the map whose mean was released as plain values; None where it is the points' own."""
    features = database.released_features
    if features is None:
        return None
    if isinstance(features, RandomFourier):
        signs = [table.tolist() for table in features.signs]
        return {"frequencies": features.frequencies.tolist(), "signs": signs}
    if isinstance(features, WhitenedMeanEmbedding):
        return {
            "locations": [list(row.values()) for row in decode_locations(database.domain, features.locations)]
        }
    raise TypeError("a database has random features or those of points")


def read_features(domain: Domain, kernel: ProductKernel, fields: dict[str, Any] | None) -> FeatureMap | None:
    """Return the map that :func:`features_fields` wrote. Raises KeyError, TypeError or ValueError."""
    if fields is None:
        return None
    if "locations" in fields:
        columns = {
            column.name: np.array(
                [row[place] for row in fields["locations"]],
                dtype=float if column.kind == "numeric" else object,
            )
            for place, column in enumerate(domain.columns)
        }
        return WhitenedMeanEmbedding(kernel, locations_of(domain, columns))
    frequencies = np.array(fields["frequencies"], dtype=np.float64).reshape(-1, len(domain.numeric))
    signs = tuple(np.array(table, dtype=np.float64) for table in fields["signs"])
    if len(signs) != len(domain.categorical) or not np.all(np.isfinite(frequencies)):
        raise ValueError("the frequencies do not fit the columns")
    return RandomFourier(frequencies, signs)
