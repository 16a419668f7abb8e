"""Brownian features of many columns, each by itself, side by side.

Every column's block is that of :class:`BrownianFeatures` for one column, so that its squared distances are
the column's own distances. A unit that is replaced may change in all its columns at once: the squared
diameters of the blocks add up.
"""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np

from tacit_protocol.features.base import FloatMatrix, Rows
from tacit_protocol.features.brownian import BrownianFeatures, write_sines

BLOCKS_KEPT = 256
"""Blocks remembered, by kind: columns of one kind share one."""


@lru_cache(BLOCKS_KEPT)
def numeric_block(count: int) -> BrownianFeatures:
    """Return the features of one numeric column, with ``count`` frequencies."""
    return BrownianFeatures(np.ones((1, 1)), count)


@lru_cache(BLOCKS_KEPT)
def categorical_block(categories: int) -> BrownianFeatures:
    """Return the features of one categorical column: indicators over sqrt 2."""
    return BrownianFeatures(np.zeros((0, 0)), 1, (categories,))


@dataclass(frozen=True)
class BrownianColumns:
    """Blocks of ``numeric`` columns with ``per_column`` frequencies each, then one block per categorical one.

    ``categories`` holds every categorical column's number of categories.
    """

    numeric: int
    per_column: int
    categories: tuple[int, ...] = ()

    @cached_property
    def blocks(self) -> tuple[BrownianFeatures, ...]:
        """Every column's own features, in the order of their coordinates."""
        waves = (numeric_block(self.per_column),) * self.numeric
        return waves + tuple(categorical_block(count) for count in self.categories)

    @cached_property
    def places(self) -> tuple[slice, ...]:
        """Where every column's coordinates are."""
        ends = np.cumsum([0, *(block.dimension for block in self.blocks)]).tolist()
        return tuple(slice(start, end) for start, end in pairwise(ends))

    @property
    def dimension(self) -> int:
        """One coordinate for every frequency of a numeric column, one for every category."""
        return self.numeric * self.per_column + sum(self.categories)

    @property
    def norm(self) -> float:
        """Root of the sum of the blocks' squared norms."""
        return math.sqrt(math.fsum(block.norm**2 for block in self.blocks))

    @property
    def diameter(self) -> float:
        """Root of the sum of the blocks' squared diameters: that of the number of columns."""
        return math.sqrt(math.fsum(block.diameter**2 for block in self.blocks))

    @property
    def second_moment_diameter(self) -> float:
        """Sqrt 2 times the squared norm: of all products, those between columns too."""
        return math.sqrt(2) * self.norm**2

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the features, (rows, dimension); a coordinate's values lie one after the other in memory."""
        count, start = len(rows.numeric), self.numeric * self.per_column
        features = np.empty((self.dimension, count))
        if self.numeric:
            waves = features[:start].reshape(self.numeric, self.per_column, count)
            write_sines(rows.numeric, 1.0, waves)
        features[start:] = 0.0
        for index, categories in enumerate(self.categories):
            features[start + rows.categorical[:, index], np.arange(count)] = math.sqrt(0.5)
            start += categories
        return features.T
