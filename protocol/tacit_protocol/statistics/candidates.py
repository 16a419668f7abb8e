"""Candidate databases for the exponential mechanism: a finite public list of weights on public points.

The loss of a candidate is the distance of its mean embedding from the data's, in the span of the points'
kernels. The part of the data's embedding outside that span is at a right angle to every candidate, so that
the nearest candidate in the span is the nearest of all.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit_protocol.features.base import FloatMatrix
from tacit_protocol.features.mean_embedding import Locations

CANDIDATES_MAX = 20_000
"""Most candidates: a draw compares that many sums of a loss and exact noise, in some tenths of a second."""

WEIGHTS_MAX = 4_000_000
"""Most weights, candidates times points: 32 MiB."""

DISTANCE_ERROR = 1e-12
"""Bound on the rounding error of a computed distance of two vectors of 1000 coordinates and norm 1."""

BLOCK = 1024
"""Candidates compared at once."""


class CandidatesError(ValueError):
    """The list of candidates cannot be used. The message says what to change."""


@dataclass(frozen=True)
class Candidates:
    """Weights of every candidate on the points, (candidates, points): non-negative, each row with sum 1."""

    weights: FloatMatrix

    def __len__(self) -> int:
        return len(self.weights)

    @classmethod
    def of_rows(
        cls, rows: Locations, sizes: Sequence[int], points_max: int
    ) -> tuple[Locations, "Candidates"]:
        """Return the distinct rows, and the candidates that hold the next ``sizes`` rows each, equally.

        Raises CandidatesError where there are too many candidates, or distinct rows.
        """
        both = np.concatenate([rows.numeric, rows.categorical.astype(np.float64)], axis=1)
        _, first, place = np.unique(both, axis=0, return_index=True, return_inverse=True)
        if len(first) > points_max:
            raise CandidatesError(f"the candidates have more than {points_max} different rows; use fewer")
        _require_size(len(sizes), len(first))
        weights = np.zeros((len(sizes), len(first)))
        owner = np.repeat(np.arange(len(sizes)), sizes)
        np.add.at(weights, (owner, place.reshape(-1)), 1.0 / np.repeat(sizes, sizes))
        return Locations(rows.numeric[first], rows.categorical[first]), cls(weights)

    @classmethod
    def multisets(cls, points: int, rows: int) -> "Candidates":
        """Return every multiset of so many rows among the points, equally weighted.

        Raises CandidatesError where there are too many, or only one.
        """
        count = math.comb(points + rows - 1, rows)
        if count < 2:
            raise CandidatesError("one point makes one candidate; a choice needs two or more")
        _require_size(count, points)
        chosen = np.array(list(itertools.combinations_with_replacement(range(points), rows)))
        weights = np.zeros((count, points))
        np.add.at(weights, (np.repeat(np.arange(count), rows), chosen.ravel()), 1.0 / rows)
        return cls(weights)

    def distances(self, features: FloatMatrix, mean: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return the distance of every candidate's embedding from a mean, (candidates,).

        ``features`` (points, J) are the points' feature vectors, ``mean`` is (J,). The differences are formed
        before their norms: near 0 the square root of a difference of squares would lose half its digits.
        """
        found = np.empty(len(self))
        for start in range(0, len(self), BLOCK):
            part = slice(start, start + BLOCK)
            found[part] = np.linalg.norm(self.weights[part] @ features - mean, axis=1)
        return found


def _require_size(candidates: int, points: int) -> None:
    if candidates > CANDIDATES_MAX or candidates * points > WEIGHTS_MAX:
        raise CandidatesError(
            f"the exponential mechanism is drawn exactly, from at most {CANDIDATES_MAX} candidates with at "
            f"most {WEIGHTS_MAX} weights in all, and the study has more: use fewer points or rows"
        )
