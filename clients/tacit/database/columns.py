"""Points by column, and as kernels see them."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain import Domain
from tacit_protocol.features.mean_embedding import UNLISTED, Locations

Floats = npt.NDArray[np.float64]

Columns = Mapping[str, npt.NDArray[Any]]
"""Points by column, in the columns' own units; a missing category is None, an unlisted one ``"(other)"``."""


def locations_of(domain: Domain, points: Columns) -> Locations:
    """Return points as kernels see them: numbers scaled to [0, 1], categories as codes."""
    count = len(next(iter(points.values())))
    numeric = [
        (np.asarray(points[c.name], dtype=np.float64) - c.lower) / (c.upper - c.lower) for c in domain.numeric
    ]
    codes = [
        np.array([_code(value, c.levels) for value in points[c.name]], dtype=np.int32)
        for c in domain.categorical
    ]
    return Locations(
        np.clip(np.column_stack(numeric), 0.0, 1.0) if numeric else np.empty((count, 0)),
        np.column_stack(codes) if codes else np.empty((count, 0), dtype=np.int32),
    )


def _code(value: Any, levels: tuple[str, ...]) -> int:
    if value is None:
        return len(levels) + 1
    return len(levels) if value == UNLISTED else levels.index(value)
