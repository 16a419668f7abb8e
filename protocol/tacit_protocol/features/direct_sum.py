"""Direct sums of feature blocks: one vector, one noise, several views of the same row.

f = (sqrt(s_1) f_1, sqrt(s_2) f_2, ...) with public shares s_b that add to 1 has norm at most 1 where every
block has, and squared diameter at most the shares' average of the blocks' squared diameters.
"""

import numpy as np

from tacit_protocol.features.base import FeatureMap, FloatMatrix, Rows


class DirectSum:
    """Blocks stacked with public shares; shares are positive and are divided by their sum."""

    def __init__(self, blocks: tuple[FeatureMap, ...], shares: tuple[float, ...]) -> None:
        self._blocks = blocks
        self._shares = np.asarray(shares) / np.sum(shares)

    @property
    def dimension(self) -> int:
        """Sum of the blocks' dimensions."""
        return sum(block.dimension for block in self._blocks)

    @property
    def norm(self) -> float:
        """Root of the shares' average of the squared norms."""
        return float(np.sqrt(self._shares @ [block.norm**2 for block in self._blocks]))

    @property
    def diameter(self) -> float:
        """Root of the shares' average of the squared diameters."""
        return float(np.sqrt(self._shares @ [block.diameter**2 for block in self._blocks]))

    @property
    def second_moment_diameter(self) -> float:
        """The square root of 2 times the squared norm."""
        return float(np.sqrt(2)) * self.norm**2

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the blocks side by side, (rows, dimension)."""
        parts = [np.sqrt(s) * block(rows) for s, block in zip(self._shares, self._blocks, strict=True)]
        return np.concatenate(parts, axis=1)
