"""The peer: Gaussian noise on the counts of all one- and two-way marginals, calibrated as ours is."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.database_query_data import ENDS, INTEGERS, Columns, Query, QueryData
from tacit_protocol.numerics.simplex_weights import project_on_simplex
from tacit_protocol.privacy.accounting import gaussian_mu

Floats = npt.NDArray[np.float64]

BINS = 20
COARSE_BINS = 5
"""Bins of a numeric column, equally wide over its public bounds; whole numbers have one each."""

FINE_VALUES = 80
"""Values by which all bins of a column stand for the numbers in them, equally spaced."""


@dataclass(frozen=True)
class Axis:
    """A column's cells: ``codes`` are its rows'; ``values`` (cells, of each the same number) stand for them.

    Levels, and whole numbers, have a cell each; so do the ends of the bounds where rows are known to gather.
    """

    codes: npt.NDArray[np.intp]
    values: npt.NDArray[Any]

    @property
    def cells(self) -> int:
        """Number of cells."""
        return len(self.values)

    @classmethod
    def of(cls, name: str, column: npt.NDArray[Any], bound: Any, bins: int) -> "Axis":
        """Cut a column's public bounds or levels into cells."""
        if isinstance(bound, list):
            places = {level: place for place, level in enumerate(bound)}
            codes = np.array([places.get(value, len(bound)) for value in column])
            return cls(codes, np.array([*bound, None], dtype=object)[:, None])
        low, high = bound
        if name in INTEGERS:
            return cls((column - low).astype(np.intp), np.arange(low, high + 1.0)[:, None])
        codes = np.clip(((column - low) / (high - low) * bins).astype(np.intp), 0, bins - 1)
        fine = low + (np.arange(FINE_VALUES) + 0.5) / FINE_VALUES * (high - low)
        values = fine.reshape(bins, -1)
        if name in ENDS:
            codes = np.where(column == low, bins, np.where(column == high, bins + 1, codes))
            values = np.vstack([values, *np.broadcast_to([[[low]], [[high]]], (2, 1, values.shape[1]))])
        return cls(codes, values)


class Marginals:
    """Exact tables of a data set; ``release`` adds noise.

    One record replaced moves two cells of each table by 1/n, so that the L2 sensitivity of all T tables is
    sqrt(2 T) / n. Each noisy table is replaced by the nearest probability table.
    """

    def __init__(self, data: QueryData, orders: tuple[int, ...] = (1, 2), bins: int = BINS) -> None:
        self._rows = data.rows
        self._axes = {
            name: Axis.of(name, data.columns[name], data.bounds[name], bins) for name in data.bounds
        }
        self._tables: dict[tuple[str, ...], Floats] = {}
        for keys in itertools.chain(*(itertools.combinations(self._axes, order) for order in orders)):
            axes = [self._axes[key] for key in keys]
            shape = [axis.cells for axis in axes]
            flat = np.ravel_multi_index([axis.codes for axis in axes], shape)
            counts = np.bincount(flat, minlength=int(np.prod(shape)))
            self._tables[keys] = counts.reshape(shape) / data.rows

    def release(
        self, epsilon: float, delta: float, rng: np.random.Generator, share: float = 1.0
    ) -> "NoisyMarginals":
        """Add simulated noise for a share of the mu^2 of (epsilon, delta)."""
        scale = np.sqrt(2 * len(self._tables) / share) / (self._rows * gaussian_mu(epsilon, delta))
        noisy = {}
        for keys, table in self._tables.items():
            flat = (table + scale * rng.standard_normal(table.shape)).ravel()
            noisy[keys] = project_on_simplex(flat).reshape(table.shape)
        return NoisyMarginals(noisy, self._axes)


@dataclass(frozen=True)
class NoisyMarginals:
    """Probability tables by their columns."""

    tables: Mapping[tuple[str, ...], Floats]
    axes: Mapping[str, Axis]

    def answer(self, query: Query) -> Floats:
        """Answer from the table of the query's columns, spread equally within cells."""
        spread = self.tables[query.columns]
        for place, key in enumerate(query.columns):
            within = self.axes[key].values.shape[1]
            spread = np.repeat(spread, within, axis=place) / within
        grids = np.meshgrid(*(self.axes[key].values.ravel() for key in query.columns), indexing="ij")
        columns: Columns = {key: grid.ravel() for key, grid in zip(query.columns, grids, strict=True)}
        return query.answer(columns, spread.ravel())

    def draw(self, name: str, count: int, rng: np.random.Generator) -> npt.NDArray[Any]:
        """Draw a column's values from its table, stratified: each of ``count`` equal parts gives one."""
        table, axis = self.tables[(name,)], self.axes[name]
        uniform = (rng.permutation(count) + rng.random(count)) / count
        codes = np.minimum(np.searchsorted(np.cumsum(table), uniform), axis.cells - 1)
        return np.asarray(axis.values[codes, rng.integers(0, axis.values.shape[1], count)])
