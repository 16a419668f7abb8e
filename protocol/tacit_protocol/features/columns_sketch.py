"""One joint sketch of many columns: signed sums of every column's features over the same public buckets.

It is the sketch of one column (:mod:`tacit_protocol.features.sketch_release`) with p blocks: a unit that is
replaced may move all of them, each by its own diameter, so that the squared sensitivities add up. Of the
second moments only every column's own block is released. Noise is independent between coordinates, so that
the buckets of any two columns, of one owner or of two, are two sketches with independent noises.
Derivations: docs/mathematics/screening.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain.table import Table
from tacit_protocol.features.brownian_columns import BrownianColumns
from tacit_protocol.features.moment_release import DIAGONAL, MEAN, OFF_DIAGONAL
from tacit_protocol.features.placed_units import sum_placed
from tacit_protocol.features.sketch_release import (
    MEAN_SHARE,
    SECOND_SHARE,
    SKETCH,
    BucketDesign,
    BucketSums,
    ReadSketch,
)
from tacit_protocol.features.sums import second_moment_sensitivity, sum_sensitivity
from tacit_protocol.privacy.dyadic import ExactSum, grid_bits
from tacit_protocol.privacy.gaussian_sums import SumPart
from tacit_protocol.privacy.vector import NoisyVector

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ColumnsSums:
    """Integer sums: ``sketch`` (buckets * J,) bucket by bucket; of every column its moments."""

    design: BucketDesign
    sketch: Integers
    moments: tuple[ExactSum, ...]

    @property
    def units(self) -> int:
        """Number of units."""
        return self.design.units


class ColumnsSketch:
    """How columns are sketched, laid out with their sensitivities, and read back."""

    def __init__(self, features: BrownianColumns) -> None:
        self.features = features

    def numbers(self, buckets: int) -> int:
        """How many noisy numbers one owner sends."""
        own = sum(block.dimension * (block.dimension + 1) // 2 for block in self.features.blocks)
        return (buckets + 1) * self.features.dimension + own

    def sum(self, table: Table, design: BucketDesign, codes: Integers) -> ColumnsSums:
        """Sum the units' signed contributions by bucket, exactly, and their moments, in one pass.

        ``codes`` are by the units' places. Raises UnitCountError where units are not as many as declared.
        """
        bits = grid_bits(table.units, products=True)
        empty = partial(BucketSums, design.buckets, codes, bits, self.features.places)
        found = sum_placed(self.features, table, bits, empty)
        return ColumnsSums(design, found.sketch.ravel(), found.moments)

    def parts(self, design: BucketDesign, sums: ColumnsSums | None = None) -> tuple[SumPart, ...]:
        """Lay the release out; without ``sums`` the values are zeros, to know shapes and noise alone."""
        bits, blocks = grid_bits(design.units, products=True), self.features.blocks
        moved = _root_of_squares([sum_sensitivity(block, bits) for block in blocks])
        second = _root_of_squares([second_moment_sensitivity(block, bits) for block in blocks])
        if sums is None:
            sketch = np.zeros(design.buckets * self.features.dimension, dtype=np.int64)
            moments = tuple(ExactSum(block.dimension, bits, products=True) for block in blocks)
        else:
            sketch, moments = sums.sketch, sums.moments
        diagonal = np.concatenate([np.diagonal(own.second) for own in moments])
        upper = np.concatenate([own.second[np.triu_indices(len(own.second), 1)] for own in moments])
        parts = (
            SumPart(SKETCH, sketch, -bits, moved, 1 - MEAN_SHARE - SECOND_SHARE),
            SumPart(MEAN, np.concatenate([own.total for own in moments]), -bits, moved, MEAN_SHARE),
            SumPart(DIAGONAL, diagonal, -2 * bits, second, SECOND_SHARE),
        )
        if not len(upper):
            return parts
        # Entries above the diagonal count twice in the Frobenius norm.
        return (*parts, SumPart(OFF_DIAGONAL, upper, -2 * bits, second, SECOND_SHARE, math.sqrt(0.5)))

    def read(self, vectors: Mapping[str, NoisyVector], design: BucketDesign) -> tuple[ReadSketch, ...]:
        """Return every column's buckets and covariance, with their noise."""
        root = math.sqrt(design.bucket_units)
        buckets = vectors[SKETCH].mean(1).reshape(design.buckets, -1) / root
        means, diagonal = vectors[MEAN].mean(design.units), vectors[DIAGONAL].mean(design.units)
        upper = vectors[OFF_DIAGONAL].mean(design.units) if OFF_DIAGONAL in vectors else np.zeros(0)
        mean_noise = vectors[MEAN].scale / design.units
        found, used = [], 0
        for place in self.features.places:
            mean, size = means[place], place.stop - place.start
            second = np.diag(diagonal[place])
            above = np.triu_indices(size, 1)
            second[above] = upper[used : used + len(above[0])]
            second.T[above] = second[above]
            used += len(above[0])
            found.append(
                ReadSketch(
                    design,
                    buckets[:, place],
                    vectors[SKETCH].scale / root,
                    second - np.outer(mean, mean) + mean_noise**2 * np.eye(size),
                    vectors[DIAGONAL].scale / design.units,
                    mean,
                    mean_noise,
                )
            )
        return tuple(found)


def _root_of_squares(values: list[float]) -> float:
    # Rounded up: a sum of p squares is off by p units in the last place at most.
    return math.sqrt(math.fsum(value**2 for value in values)) * (1 + 1e-12)
