"""A released database: public points with probability weights, which stand for private records for ever.

Everything here is post-processing: it costs nothing, and may be done by anyone, as often as they like.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError
from tacit_protocol.domain.columns import Domain
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import Locations, WhitenedMeanEmbedding
from tacit_protocol.features.public_choices import UNLISTED
from tacit_protocol.messages.study import Study
from tacit_protocol.statistics.simplex_weights import SimplexFit, fit_simplex

SAMPLE_MAX = 10_000_000
"""Most rows of one sample: they are points that come again, so that more say nothing more."""

Floats = npt.NDArray[np.float64]
Columns = Mapping[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class ReleasedDatabase:
    """One owner's private database.

    ``points`` has the public points by column, in the columns' own units (a missing category is None, one
    that is not listed ``"(other)"``). ``noise`` is the standard deviation of the noise on each of the
    ``embedding``'s coordinates (J,), and ``noise_error`` the root mean square of its norm.
    """

    domain: Domain
    points: Columns
    kernel: ProductKernel
    embedding: Floats
    noise: float
    noise_error: float
    units: int
    epsilon: float
    delta: float
    method: str
    warnings: tuple[str, ...]

    def __len__(self) -> int:
        """Return the number of points."""
        return len(self.embedding)

    @cached_property
    def fit(self) -> SimplexFit:
        """The points' probability weights, with how well they match the release and a certified gap."""
        features = WhitenedMeanEmbedding(self.kernel, self.locations)
        return fit_simplex(features(self.locations), self.embedding, self.noise_error)

    @property
    def weights(self) -> Floats:
        """The points' weights, (J,): non-negative, with sum 1."""
        return self.fit.weights

    @cached_property
    def locations(self) -> Locations:
        """The points as kernels see them: numbers scaled to [0, 1], categories as codes."""
        numeric = [
            (self.points[c.name].astype(np.float64) - c.lower) / (c.upper - c.lower)
            for c in self.domain.numeric
        ]
        codes = [
            np.array([_code(value, c.levels) for value in self.points[c.name]], dtype=np.int32)
            for c in self.domain.categorical
        ]
        return Locations(
            np.clip(np.column_stack(numeric), 0.0, 1.0) if numeric else np.empty((len(self), 0)),
            np.column_stack(codes) if codes else np.empty((len(self), 0), dtype=np.int32),
        )

    def expectation(self, function: Callable[[Columns], npt.ArrayLike]) -> float:
        """Estimate the mean of a function over the private records.

        Args:
            function: takes the columns by name, (J,) each, in their own units, and returns (J,) numbers.

        Raises:
            InputError: it returned another shape, or numbers that are not finite.
        """
        values = np.asarray(function(self.points), dtype=np.float64)
        if values.shape != (len(self),) or not np.all(np.isfinite(values)):
            raise InputError(f"the function must return {len(self)} finite numbers, one for each point")
        return float(self.weights @ values)

    def probability(self, event: Callable[[Columns], npt.ArrayLike]) -> float:
        """Estimate the probability of an event: in [0, 1].

        Args:
            event: takes the columns by name, (J,) each, and returns (J,) truth values.

        Raises:
            InputError: it returned anything else.
        """
        holds = np.asarray(event(self.points))
        if holds.shape != (len(self),) or holds.dtype != np.bool_:
            raise InputError(f"the event must return {len(self)} truth values, one for each point")
        return min(1.0, max(0.0, float(self.weights[holds].sum())))

    def sample(self, n: int) -> dict[str, npt.NDArray[Any]]:
        """Return ``n`` unweighted rows, by herding: the same at every call, and better than drawn ones.

        Each next row is the point at which the mean embedding exceeds that of the rows so far the most, so
        that the rows' own embedding comes nearer to the database's at rate 1/n.

        Raises:
            InputError: ``n`` is less than 1, or more than ``SAMPLE_MAX``.
        """
        if not 1 <= n <= SAMPLE_MAX:
            raise InputError(f"n must lie between 1 and {SAMPLE_MAX}")
        gram = self.kernel.gram(self.locations, self.locations)
        wanted, so_far = gram @ self.weights, np.zeros(len(self))
        taken = np.empty(n, dtype=np.int64)
        for count in range(n):
            taken[count] = int(np.argmax((count + 1) * wanted - so_far))
            so_far += gram[taken[count]]
        return {name: values[taken] for name, values in self.points.items()}

    def mmd(self, other: "ReleasedDatabase") -> float:
        """Return the maximum mean discrepancy between two databases of the same columns and kernel.

        Noise is in it: two databases of one population are about ``hypot`` of their ``noise_error`` apart
        at most, beside sampling.

        Raises:
            InputError: the databases have other columns, bounds or kernels.
        """
        if self.domain != other.domain or self.kernel != other.kernel:
            raise InputError("both databases need the same columns, bounds and kernel")
        own, theirs = self.weights, other.weights
        squared = (
            own @ self.kernel.gram(self.locations, self.locations) @ own
            + theirs @ self.kernel.gram(other.locations, other.locations) @ theirs
            - 2 * own @ self.kernel.gram(self.locations, other.locations) @ theirs
        )
        return float(np.sqrt(max(0.0, float(squared))))


def databases_of(study: Study, verdict: Mapping[str, Any]) -> dict[str, ReleasedDatabase]:
    """Return each owner's database, from a study of ``embedding_release`` and its verdict as plain values."""
    domain, rows = study.domain, verdict["points"]
    kinds = {column.name: column.kind for column in domain.columns}
    points = {
        name: np.array([row[place] for row in rows], dtype=float if kinds[name] == "numeric" else object)
        for place, name in enumerate(verdict["columns"])
    }
    kernel = ProductKernel(verdict["kernel"], verdict["bandwidth"], verdict["category_similarity"])
    return {
        name: ReleasedDatabase(
            domain=domain,
            points=points,
            kernel=kernel,
            embedding=np.array(values, dtype=np.float64),
            noise=verdict["noise"][name],
            noise_error=verdict["noise_error"][name],
            units=verdict["units"][name],
            epsilon=verdict["epsilon"],
            delta=verdict["delta"],
            method=verdict["method"],
            warnings=tuple(verdict["warnings"]),
        )
        for name, values in verdict["embedding"].items()
    }


def _code(value: Any, levels: tuple[str, ...]) -> int:
    if value is None:
        return len(levels) + 1
    return len(levels) if value == UNLISTED else levels.index(value)
