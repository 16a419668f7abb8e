"""The joint release of additive features: columns' means, and pairs' means by exact matrix products.

The mechanism is one isotropic Gaussian on the direct sum (sqrt(1 - p) columns, sqrt(p) pairs), p the pair
share. It is laid out as two vectors on grids of their own: noise of one size on both scaled blocks is the
joint release in which the columns get the part (1 - p) d_c^2 / d^2 of mu^2 and the pairs the rest, with d_c
and d the diameters of the block and of the sum.

A pair's contribution is the product of its columns' parts. Rounded to the grid of 2^-bits first, parts have
products that are exact on the grid of 2^(-2 bits), and their sums over rows are the off-diagonal blocks of
one exact matrix product: thousands of pairwise coordinates for the price of a small second moment. Units
that own several rows contribute the average of their rows' products, rounded to 2^-bits.

The released sum is of products without the division by sqrt P, P the number of pairs. Parts have norm at most
1 and lie within e of their ideals, so a pair's product is within 2e + e^2 of its own, and all pairs together
within sqrt P times that; the average over a unit adds the rounding of one more vector.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain.reduction import reduce_table
from tacit_protocol.domain.table import EncodedChunk, Table
from tacit_protocol.features.additive import AdditiveFeatures
from tacit_protocol.features.base import FloatMatrix
from tacit_protocol.features.pairwise import Pairwise
from tacit_protocol.features.sums import (
    UnitCountError,
    contributions,
    sum_sensitivity,
    unit_slices,
)
from tacit_protocol.privacy.dyadic import (
    ExactSum,
    grid_bits,
    round_to_grid,
    rounding_sensitivity,
    unit_averages,
)
from tacit_protocol.privacy.gaussian_sums import SumPart
from tacit_protocol.privacy.vector import NoisyVector

COLUMN_MEANS, PAIR_MEANS = "column_means", "pair_means"


@dataclass(frozen=True)
class AdditiveSums:
    """Integer sums over units: columns (J_c,) in steps of 2**-bits, pairs (J_p,) in steps of 2**(-2 bits)."""

    units: int
    bits: int
    columns: npt.NDArray[np.int64]
    pairs: npt.NDArray[np.int64]


class AdditiveRelease:
    """How additive features are summed, laid out with their sensitivities, and read back."""

    def __init__(self, features: AdditiveFeatures) -> None:
        self.features = features
        self._pairwise = features.pairwise

    @property
    def numbers(self) -> int:
        """How many noisy numbers one owner sends."""
        return self.features.dimension

    def bits(self, units: int) -> int:
        """Return the grid for so many units; raises ValueError where there are too many."""
        return grid_bits(units, self._pairwise is not None)

    def sum(self, table: Table, bits: int | None = None) -> AdditiveSums:
        """Sum the units' contributions exactly, in constant memory.

        ``bits`` is the grid, by default the finest for the table's units. Raises UnitCountError where the
        units are not ``table.units``.
        """
        bits = self.bits(table.units) if bits is None else bits
        found = reduce_table(table, _SumsOfBlocks(self.features, bits))
        columns, pairs = found.columns, found.pairs
        if columns.units != table.units:
            raise UnitCountError("the data changed while they were read")
        empty = np.zeros(0, dtype=np.int64)
        return AdditiveSums(columns.units, bits, columns.total, empty if pairs is None else pairs.total())

    def parts(self, units: int, sums: AdditiveSums | None = None) -> tuple[SumPart, ...]:
        """Lay the release out; without ``sums`` the values are zeros, to know shapes and noise alone."""
        bits, block = self.bits(units), self.features.column_wise
        total = np.zeros(block.dimension, dtype=np.int64) if sums is None else sums.columns
        sensitivity = sum_sensitivity(block, bits)
        if self._pairwise is None:
            return (SumPart(COLUMN_MEANS, total, -bits, sensitivity, 1.0),)
        share = (1 - self.features.choice.pair_share) * block.diameter**2 / self.features.diameter**2
        pair_total = np.zeros(self._pairwise.dimension, dtype=np.int64) if sums is None else sums.pairs
        return (
            SumPart(COLUMN_MEANS, total, -bits, sensitivity, share),
            SumPart(PAIR_MEANS, pair_total, -2 * bits, pair_sensitivity(self._pairwise, bits), 1 - share),
        )

    def read(self, vectors: Mapping[str, NoisyVector], units: int) -> tuple[npt.NDArray[np.float64], float]:
        """Return the noisy mean of the direct sum, (J,), and the standard deviation of its noise.

        Rounding makes the two blocks' noise differ in the sixth digit; the larger is stated.
        """
        columns = vectors[COLUMN_MEANS]
        if self._pairwise is None:
            return columns.mean(units), columns.scale / units
        pairs, share = vectors[PAIR_MEANS], self.features.choice.pair_share
        weights = np.sqrt([1 - share, share / len(self._pairwise.pairs)])
        mean = np.concatenate([weights[0] * columns.mean(units), weights[1] * pairs.mean(units)])
        return mean, float(max(weights[0] * columns.scale, weights[1] * pairs.scale)) / units


def pair_sensitivity(pairwise: Pairwise, bits: int) -> float:
    """Bound the L2 change of the pairs' sums, undivided by sqrt P, when one unit is replaced."""
    error = rounding_sensitivity(max(pairwise.part_widths), bits) / 2
    root = float(np.sqrt(len(pairwise.pairs)))
    products = 2 * root * (2 * error + error**2)
    return root * pairwise.diameter + products + rounding_sensitivity(pairwise.dimension, bits)


@dataclass
class _Blocks:
    """Partial sums of the two blocks."""

    columns: ExactSum
    pairs: "_PairSums | None"


@dataclass(frozen=True)
class _SumsOfBlocks:
    """Sums both blocks over a table."""

    features: AdditiveFeatures
    bits: int

    def start(self) -> _Blocks:
        pairwise = self.features.pairwise
        return _Blocks(
            ExactSum(self.features.column_wise.dimension, self.bits, products=False),
            None if pairwise is None else _PairSums(pairwise, self.bits),
        )

    def add(self, partial: _Blocks, chunk: EncodedChunk) -> None:
        if partial.pairs is None or chunk.unit is not None:
            for rows in contributions(self.features.column_wise, chunk, self.bits):
                partial.columns.add(rows)
            if partial.pairs is not None:
                partial.pairs.add_units(chunk)
            return
        for rows in contributions(self.features.column_wise, chunk, self.bits):
            partial.columns.add(rows)
            partial.pairs.add_parts(self.features.pair_parts(rows))

    def merge(self, partial: _Blocks, other: _Blocks) -> None:
        partial.columns.merge(other.columns)
        if partial.pairs is not None and other.pairs is not None:
            partial.pairs.merge(other.pairs)


class _PairSums:
    """Exact sums of pairwise contributions, from rows' parts or from units' averages."""

    def __init__(self, pairwise: Pairwise, bits: int) -> None:
        self._pairwise, self._bits = pairwise, bits
        self._parts = ExactSum(sum(pairwise.part_widths), bits, products=True)
        self._averages = ExactSum(pairwise.dimension, bits, products=False)
        self._left, self._right = pairwise.factors

    def add_parts(self, parts: FloatMatrix) -> None:
        """Add the parts of units of one row, (units, parts' widths together)."""
        self._parts.add(parts)

    def add_units(self, chunk: EncodedChunk) -> None:
        """Add a chunk's units, which own several rows."""
        for rows, unit, units in unit_slices(chunk, self._pairwise.dimension):
            parts = round_to_grid(self._pairwise.parts(rows), self._bits).T
            products = parts[self._left]
            products *= parts[self._right]
            self._averages.add(unit_averages(products.T, unit, units, self._bits))

    def merge(self, other: "_PairSums") -> None:
        """Add the sums over another part of the table."""
        self._parts.merge(other._parts)
        self._averages.merge(other._averages)

    def total(self) -> npt.NDArray[np.int64]:
        """Return the sums in steps of 2**(-2 bits)."""
        products: npt.NDArray[np.int64] = self._parts.second[self._left, self._right]
        return products + (self._averages.total << self._bits)
