"""The noisy histograms that a database's points were drawn from: more of the release for weights to match."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain.columns import Domain
from tacit_protocol.features.column_histograms import ColumnHistograms
from tacit_protocol.features.mean_embedding import Locations

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NoisyHistograms:
    """Every column's noisy shares of the units, (K,), by public cell, one column after the other.

    ``bins`` is the number of equal bins of a number, ``noise`` the standard deviation of the noise on each.
    The cells are those of :class:`~tacit_protocol.features.column_histograms.ColumnHistograms`.
    """

    bins: int
    shares: Floats
    noise: float

    @classmethod
    def of(cls, domain: Domain, bins: int, shares: Mapping[str, Any], noise: float) -> "NoisyHistograms":
        """Read shares by column. Raises KeyError, TypeError or ValueError where they do not fit."""
        found = [np.array(shares[column.name], dtype=np.float64) for column in domain.columns]
        sizes = [cells.size for cells in ColumnHistograms(domain, bins).columns]
        whole = np.concatenate(found)
        if [values.shape for values in found] != [(size,) for size in sizes] or not np.isfinite(whole).all():
            raise ValueError("the histograms have not one number for each cell")
        if not 0 < noise < np.inf:
            raise ValueError("the histograms' noise is not positive")
        return cls(bins, whole, float(noise))

    def by_column(self, domain: Domain) -> dict[str, list[float]]:
        """Return the shares by column, as :meth:`of` reads them."""
        columns = ColumnHistograms(domain, self.bins).columns
        ends = np.cumsum([cells.size for cells in columns])[:-1]
        parts = np.split(self.shares, ends)
        return {cells.column.name: part.tolist() for cells, part in zip(columns, parts, strict=True)}

    def indicators(self, domain: Domain, points: Locations) -> Floats:
        """Return which cells each point is in, (J, K) of 0 and 1."""
        return ColumnHistograms(domain, self.bins).indicators(points)
