"""The noisy histograms that a database's points were drawn from: more of the release for weights to match."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain.columns import Domain, NumericColumn
from tacit_protocol.features.column_histograms import ColumnHistograms
from tacit_protocol.features.mean_embedding import Locations

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NoisyHistograms:
    """Every column's noisy shares of the units, (K,), by public cell, one column after the other.

    ``bins`` is the number of equal bins of a number, ``noise`` the standard deviation of the noise on each;
    ``whole`` names the columns of whole numbers, which have bins of their own.
    The cells are those of :class:`~tacit_protocol.features.column_histograms.ColumnHistograms`.
    """

    bins: int
    shares: Floats
    noise: float
    whole: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, domain: Domain, bins: int, shares: Mapping[str, Any], noise: float, whole: Sequence[str] = ()
    ) -> "NoisyHistograms":
        """Read shares by column. Raises KeyError, TypeError or ValueError where they do not fit."""
        found = [np.array(shares[column.name], dtype=np.float64) for column in domain.columns]
        sizes = [cells.size for cells in ColumnHistograms(domain, bins, tuple(whole)).columns]
        joined = np.concatenate(found)
        if [values.shape for values in found] != [(size,) for size in sizes] or not np.isfinite(joined).all():
            raise ValueError("the histograms have not one number for each cell")
        if not 0 < noise < np.inf:
            raise ValueError("the histograms' noise is not positive")
        return cls(bins, joined, float(noise), tuple(whole))

    def by_column(self, domain: Domain) -> dict[str, list[float]]:
        """Return the shares by column, as :meth:`of` reads them."""
        columns = self._cells(domain).columns
        ends = np.cumsum([cells.size for cells in columns])[:-1]
        parts = np.split(self.shares, ends)
        return {cells.column.name: part.tolist() for cells, part in zip(columns, parts, strict=True)}

    def ends(self, domain: Domain, points: Locations) -> dict[str, tuple[Floats, Floats]]:
        """Return where each point's cell begins and ends, (J,) each, by numeric column, in its own units.

        Both ends are in the cell. Values that gather at a bound, or for missing ones, have a cell of one.
        """
        found = {}
        for cells in self._cells(domain).columns:
            column = cells.column
            if not isinstance(column, NumericColumn):
                continue
            own = column.lower + (column.upper - column.lower) * points.numeric[:, cells.place]
            codes = cells.codes(points)
            inner = np.minimum(codes, cells.bins - 1)
            if cells.whole:
                first, last = cells.edges[inner] + 0.5, cells.edges[inner + 1] - 0.5
            else:
                first = np.where(inner == 0, np.nextafter(column.lower, np.inf), cells.edges[inner])
                last = np.nextafter(cells.edges[inner + 1], -np.inf)
            gathered = codes >= cells.bins
            found[column.name] = np.where(gathered, own, first), np.where(gathered, own, last)
        return found

    def indicators(self, domain: Domain, points: Locations) -> Floats:
        """Return which cells each point is in, (J, K) of 0 and 1."""
        return self._cells(domain).indicators(points)

    def _cells(self, domain: Domain) -> ColumnHistograms:
        return ColumnHistograms(domain, self.bins, self.whole)
