"""A released database's weights, and what fresh noise and other points would do to them."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain.columns import Domain
from tacit_protocol.features.mean_embedding import REGULARISATION_PER_LOCATION, Locations
from tacit_protocol.features.public_choices import decode_locations
from tacit_protocol.statistics.regularised_weights import fit_regularised, refit_regularised
from tacit_protocol.statistics.simplex_weights import (
    GAP_SHARE,
    SMOOTHING_STEPS,
    SimplexFit,
    fit_simplex,
    refit,
)

Floats = npt.NDArray[np.float64]
Weighting = Literal["simplex", "regularised", "raw"]

NoiseLaw = Literal["gaussian", "laplace", "bound"]
"""Of the noise on a coordinate; ``bound`` where there is none, and what is stated bounds an error."""

REPLICAS = 100
"""Refits under fresh noise: the standard error that they give is itself known to 7 per cent."""

SPLITS = 8
"""Random parts of the points that are held out, one after the other."""

HELD_OUT = 3
"""One in so many points is held out: their neighbours are then about as dense as all points."""

POINTS_MIN = 8
"""Fewest points of which a part may speak for the others."""

REFIT_GAP_SHARE = 1e-2
"""Duality gap of a refit, in squares of the noise's norm: its error is then a tenth of the noise's."""

SEED = 20180
"""Of the refits' noise and of what is held out: the same question gets the same answer."""


@dataclass(frozen=True)
class WeightProblem:
    """What weights are fitted to: the points' features (J, dimension), and the noisy mean (dimension,).

    ``noise`` is the standard deviation on each coordinate, of a normal or a Laplace law, or a bound on the
    distance from the mean; ``l1_max`` bounds regularised weights.
    """

    features: Floats
    target: Floats
    noise: float
    law: NoiseLaw
    weighting: Weighting
    l1_max: float
    simplex: SimplexFit

    @classmethod
    def of(
        cls,
        features: Floats,
        target: Floats,
        noise: float,
        *,
        law: NoiseLaw,
        weighting: Weighting,
        l1_max: float,
        chosen: Floats | None = None,
    ) -> "WeightProblem":
        """Pose the problem, and fit its probability weights, unless they were ``chosen``."""
        if chosen is None:
            simplex = fit_simplex(features, target, noise * float(np.sqrt(len(target))))
        else:
            simplex = SimplexFit(chosen, 0.0, 0.5**SMOOTHING_STEPS, 0.0)
        return cls(features, target, noise, law, weighting, l1_max, simplex)

    @property
    def noise_error(self) -> float:
        """Root mean square of the norm of the noise."""
        return self.noise * float(np.sqrt(len(self.target)))

    def weights(self) -> Floats:
        """Return the weights of the kind asked for, (J,)."""
        if self.weighting == "simplex":
            return self.simplex.weights
        if self.weighting == "regularised":
            return fit_regularised(self.features, self.target, self.noise_error, self.l1_max).weights
        return np.asarray(self.linear_map() @ self.target)

    def linear_map(self, rows: npt.NDArray[np.intp] | None = None) -> Floats:
        """Return the map of the mean to raw weights, (J, dimension): least squares, minimally ridged."""
        features = self.features if rows is None else self.features[rows]
        gram = features @ features.T
        ridge = REGULARISATION_PER_LOCATION * len(gram)
        return np.asarray(np.linalg.solve(gram + ridge * np.eye(len(gram)), features))

    def noise_map(self) -> Floats:
        """Return N, (J, parts): expectations of f move by |N'f| (root mean square) under fresh noise."""
        if self.weighting == "raw" or self.law == "bound":
            # |f'u - f'v| <= |f| |distance|, with |f| the norm of the function that has f's values.
            return self.linear_map() * self.noise
        return self._refitted(self.noise, self.law)

    @property
    def misfit(self) -> float:
        """How much farther the weighted points are from the release than noise explains."""
        return float(np.sqrt(max(0.0, self.simplex.squared_distance - self.noise_error**2)))

    def _refitted(self, noise: float, law: NoiseLaw) -> Floats:
        """Return what noise of that deviation on a coordinate does to weights, (J, ``REPLICAS``)."""
        rng, centre = np.random.default_rng(SEED), self.weights()
        shape = (len(self.target), REPLICAS)
        drawn = rng.laplace(0, np.sqrt(0.5), shape) if law == "laplace" else rng.standard_normal(shape)
        targets = (self.features.T @ centre)[:, None] + noise * drawn
        again = self._fit(self.features, targets, centre, noise * float(np.sqrt(len(self.target))))
        return np.asarray((again - centre[:, None]) / np.sqrt(REPLICAS))

    def projection_map(self) -> Floats | None:
        """Return P, (J, parts): |P'f| is how far the points themselves may lead astray.

        Where they are farther from the release than noise explains, that distance counts as noise of a
        random direction does. And |P'f| is how wrong points are about the third held out, without noise.
        Of the population on the points held out, each with its probability weight, the others get the exact
        embedding, and stand for it as the points stand for the records.
        """
        count = len(self.features)
        if count < POINTS_MIN:
            return None
        rng, weights = np.random.default_rng(SEED), self.simplex.weights
        columns = np.zeros((count, SPLITS))
        for split in range(SPLITS):
            order = rng.permutation(count)
            held, known = order[: count // HELD_OUT], order[count // HELD_OUT :]
            total = weights[held].sum()
            shares = weights[held] / total if total > 1e-3 else np.full(len(held), 1.0 / len(held))
            target = self.features[held].T @ shares
            columns[held, split] = shares
            columns[known, split] = -self._represent(known, target)
        columns /= np.sqrt(SPLITS)
        if self.law == "bound" or self.misfit <= self.noise_error:
            return columns
        beyond = self.misfit / float(np.sqrt(len(self.target)))
        if self.weighting == "raw":
            return np.hstack([columns, self.linear_map() * beyond])
        return np.hstack([columns, self._refitted(beyond, "gaussian")])

    def _represent(self, rows: npt.NDArray[np.intp], target: Floats) -> Floats:
        if self.weighting == "raw":
            return np.asarray(self.linear_map(rows) @ target)
        start = np.full(len(rows), 1.0 / len(rows))
        return self._fit(self.features[rows], target[:, None], start, self.noise_error)[:, 0]

    def _fit(self, features: Floats, targets: Floats, start: Floats, error: float) -> Floats:
        gap = REFIT_GAP_SHARE * error**2
        if self.weighting == "regularised":
            return refit_regularised(features, targets, self.l1_max, gap, start)
        return refit(features, targets, self.simplex.smoothing, gap, start)


def columns_of(domain: Domain, locations: Locations) -> dict[str, npt.NDArray[Any]]:
    """Return locations by column, in the columns' own units."""
    rows = decode_locations(domain, locations)
    return {
        column.name: np.array(
            [row[column.name] for row in rows], dtype=float if column.kind == "numeric" else object
        )
        for column in domain.columns
    }


__all__ = ["GAP_SHARE", "REPLICAS", "SPLITS", "WeightProblem", "Weighting", "columns_of"]
