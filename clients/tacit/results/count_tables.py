"""What results on noisy counts hold: the tables, the cells that stand out, and pairs compared."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class NoisyTables:
    """Noisy counts of public cells, one array for each owner.

    Attributes:
        columns: the columns that are counted.
        labels: each column's labels, in the order of the arrays' axes.
        counts: arrays by owner, one axis a column. Noise makes some of them negative or fractional.
    """

    columns: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    counts: Mapping[str, npt.NDArray[np.float64]]

    @property
    def table(self) -> npt.NDArray[np.float64]:
        """The noisy counts of all owners together, one axis a column."""
        return np.asarray(np.sum(list(self.counts.values()), axis=0))

    def to_rows(self) -> list[tuple[tuple[str, ...], tuple[float, ...]]]:
        """Return each cell's labels and its noisy counts, owner by owner."""
        flat = [counts.ravel().tolist() for counts in self.counts.values()]
        return list(zip(product(*self.labels), zip(*flat, strict=True), strict=True))

    def to_pandas(self) -> Any:
        """Return a pandas frame: one row a cell, one column for each owner."""
        import pandas as pd  # noqa: PLC0415 (pandas is asked for here alone)

        index = pd.MultiIndex.from_product(self.labels, names=self.columns)
        return pd.DataFrame({name: counts.ravel() for name, counts in self.counts.items()}, index=index)


@dataclass(frozen=True)
class CellComparison:
    """A cell that stands out: labels by column, p-value adjusted for all cells, and owners' noisy shares."""

    labels: Mapping[str, str]
    pvalue: float
    reject: bool
    shares: Mapping[str, float]


@dataclass(frozen=True)
class PairOfOwners:
    """Two owners compared: the p-value is adjusted for all pairs."""

    names: tuple[str, str]
    pvalue: float
    reject: bool


@dataclass(frozen=True)
class PairOfColumns:
    """Two columns compared: p-value adjusted for all pairs, and Cramér's V with its interval."""

    names: tuple[str, str]
    pvalue: float
    reject: bool
    cramers_v: float
    interval: tuple[float, float]
