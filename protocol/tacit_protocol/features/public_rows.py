"""Rows that anyone may see: a public sample, or the points of a database released earlier, with weights."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit_protocol.features.base import CodeMatrix, FloatMatrix

FloatVector = npt.NDArray[np.float64]


@dataclass(frozen=True)
class PublicRows:
    """Encoded public rows: ``numeric`` (rows, columns) in [0, 1], ``categorical`` (rows, columns) codes.

    ``weights`` (rows,) add up to 1; those of a released database may be of both signs.
    """

    numeric: FloatMatrix
    categorical: CodeMatrix
    weights: FloatVector

    @classmethod
    def of(
        cls, numeric: FloatMatrix, categorical: CodeMatrix, weights: FloatVector | None = None
    ) -> "PublicRows":
        """Build rows; equal weights by default, others are scaled to add up to 1.

        Raises ValueError where there are no rows, or weights do not fit or do not add up to more than 0.
        """
        if not len(numeric):
            raise ValueError("there are no public rows")
        chosen = np.ones(len(numeric)) if weights is None else np.asarray(weights, dtype=np.float64)
        if chosen.shape != (len(numeric),) or not np.all(np.isfinite(chosen)) or not chosen.sum() > 0:
            raise ValueError("weights must be finite, one for each row, and add up to more than 0")
        return cls(numeric, categorical, chosen / chosen.sum())

    @property
    def sample(self) -> bool:
        """Whether the rows are a plain sample, of which a part is a sample too.

        The weights of a released database were fitted together: its points stay together.
        """
        return bool(np.ptp(self.weights) == 0)

    def __len__(self) -> int:
        return len(self.numeric)

    def take(self, rows: npt.NDArray[np.int64]) -> "PublicRows":
        """Keep some rows. Raises ValueError where their weights add up to nothing."""
        return PublicRows.of(self.numeric[rows], self.categorical[rows], self.weights[rows])

    def draw(self, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        """Draw row numbers by weight, without repetition where there are enough rows."""
        shares = np.abs(self.weights) / np.abs(self.weights).sum()
        enough = int(np.count_nonzero(shares)) >= count
        return np.asarray(rng.choice(len(self), count, replace=not enough, p=shares))


def split_rows(
    count: int, share: float, rng: np.random.Generator
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Split row numbers at random in two, sorted: ``share`` of them, and the rest."""
    order = rng.permutation(count)
    cut = min(max(1, round(share * count)), count - 1)
    return np.sort(order[:cut]), np.sort(order[cut:])


def pool(x: PublicRows, y: PublicRows) -> PublicRows:
    """Put two samples together, each row with the size of its weight."""
    weights = np.abs(np.concatenate([x.weights, y.weights]))
    numeric = np.concatenate([x.numeric, y.numeric])
    return PublicRows.of(numeric, np.concatenate([x.categorical, y.categorical]), weights)
