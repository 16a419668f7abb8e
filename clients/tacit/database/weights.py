"""Weights of a released database, the histograms they match, and what fresh noise would do to them.

A reduced set is few points and weights whose mean embedding matches a noisy one, points optimised too. P2's
Algorithm 2: min |m - sum_i w_i phi(z_i)|^2 over points in the domain and weights a^2 / sum a^2, from blind
public starts, by L-BFGS-B with the gradient dL/dz_i = -2 w_i d(phi(z_i)'r)/dz_i, dL/da_i = 2 a_i (g_i - w'g)
/ sum a^2, g_i = -2 phi(z_i)'r, r the residual. It stops where the distance is down to the noise's own
(Morozov's discrepancy principle). All of this is post-processing (docs/mathematics/database-release.md).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression

from tacit_protocol.domain import Domain, NumericColumn, linear_algebra
from tacit_protocol.features.column_histograms import ColumnHistograms
from tacit_protocol.features.kernels import FloatMatrix, ProductKernel
from tacit_protocol.features.mean_embedding import (
    REGULARISATION_PER_LOCATION,
    Locations,
    WhitenedMeanEmbedding,
    decode_locations,
)
from tacit_protocol.numerics.simplex_weights import (
    GAP_SHARE,
    SMOOTHING_STEPS,
    SimplexFit,
    fit_regularised,
    fit_simplex,
    refit,
    refit_regularised,
    solve_simplex,
)

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NoisyHistograms:
    """Every column's noisy shares of the units, (K,), by public cell, one column after the other.

    ``bins`` is the number of equal bins of a number, ``noise`` the standard deviation of the noise on each;
    ``whole`` names the columns of whole numbers, which have bins of their own.
    The cells are those of :class:`~tacit_protocol.features.column_histograms.ColumnHistograms`.
    """

    bins: int
    shares: Floats
    noise: float
    whole: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, domain: Domain, bins: int, shares: Mapping[str, Any], noise: float, whole: Sequence[str] = ()
    ) -> "NoisyHistograms":
        """Read shares by column. Raises KeyError, TypeError or ValueError where they do not fit."""
        found = [np.array(shares[column.name], dtype=np.float64) for column in domain.columns]
        sizes = [cells.size for cells in ColumnHistograms(domain, bins, tuple(whole)).columns]
        joined = np.concatenate(found)
        if [values.shape for values in found] != [(size,) for size in sizes] or not np.isfinite(joined).all():
            raise ValueError("the histograms have not one number for each cell")
        if not 0 < noise < np.inf:
            raise ValueError("the histograms' noise is not positive")
        return cls(bins, joined, float(noise), tuple(whole))

    def by_column(self, domain: Domain) -> dict[str, list[float]]:
        """Return the shares by column, as :meth:`of` reads them."""
        columns = self._cells(domain).columns
        ends = np.cumsum([cells.size for cells in columns])[:-1]
        parts = np.split(self.shares, ends)
        return {cells.column.name: part.tolist() for cells, part in zip(columns, parts, strict=True)}

    def ends(self, domain: Domain, points: Locations) -> dict[str, tuple[Floats, Floats]]:
        """Return where each point's cell begins and ends, (J,) each, by numeric column, in its own units.

        Both ends are in the cell. Values that gather at a bound, or for missing ones, have a cell of one.
        """
        found = {}
        for cells in self._cells(domain).columns:
            column = cells.column
            if not isinstance(column, NumericColumn):
                continue
            own = column.lower + (column.upper - column.lower) * points.numeric[:, cells.place]
            codes = cells.codes(points)
            inner = np.minimum(codes, cells.bins - 1)
            if cells.whole:
                first, last = cells.edges[inner] + 0.5, cells.edges[inner + 1] - 0.5
            else:
                first = np.where(inner == 0, np.nextafter(column.lower, np.inf), cells.edges[inner])
                last = np.nextafter(cells.edges[inner + 1], -np.inf)
            gathered = codes >= cells.bins
            found[column.name] = np.where(gathered, own, first), np.where(gathered, own, last)
        return found

    def indicators(self, domain: Domain, points: Locations) -> Floats:
        """Return which cells each point is in, (J, K) of 0 and 1."""
        return self._cells(domain).indicators(points)

    def _cells(self, domain: Domain) -> ColumnHistograms:
        return ColumnHistograms(domain, self.bins, self.whole)


Parameters = ParamSpec("Parameters")
ResultT = TypeVar("ResultT")

Weighting = Literal["simplex", "regularised", "raw", "shrunk"]

LINEAR: frozenset[Weighting] = frozenset({"raw", "shrunk"})
"""Weights that are linear in the release, shrunk ones given their factors."""

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

REACH = 0.9
"""Part of the noise's norm within which weights that match histograms too are to be: smoother ones, at 1,
keep more of their points' independent columns (docs/mathematics/database-release.md)."""

IMPORTANCES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""How much more than their noise says histograms may count for."""

SHRUNK_RIDGE = 1e-5
"""Of shrunk weights, in parts of the features' own ridge: it undoes what that lost, as far as double
precision tells, with up to 9 times the noise in those directions; what noise forbids is shrunk besides."""

SEED = 20180
"""Of the refits' noise and of what is held out: the same question gets the same answer."""


def one_thread(function: Callable[Parameters, ResultT]) -> Callable[Parameters, ResultT]:
    """Have linear algebra use one thread meanwhile: the products are many and small."""

    @wraps(function)
    def limited(*args: Parameters.args, **kwargs: Parameters.kwargs) -> ResultT:
        with linear_algebra().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return limited


@dataclass(frozen=True)
class Histograms:
    """Noisy histograms (cells,) that weights match besides: ``indicators`` (J, cells) say where points are.

    ``noise`` is the standard deviation on each share.
    """

    indicators: Floats
    shares: Floats
    noise: float


@dataclass(frozen=True)
class WeightProblem:
    """What weights are fitted to: features of the points (J, dimension), and their noisy mean (dimension,).

    ``matched`` are the embedding's features and, after them, the histograms' cells where there are any,
    scaled; ``blocks`` says how many coordinates each of the two has. ``noise`` (dimension,) is the standard
    deviation on each coordinate, of a normal or a Laplace law, or a bound on the distance from the mean;
    ``l1_max`` bounds regularised weights.
    """

    matched: Floats
    target: Floats
    noise: Floats
    blocks: tuple[int, ...]
    law: NoiseLaw
    weighting: Weighting
    l1_max: float
    simplex: SimplexFit
    ridge: float = REGULARISATION_PER_LOCATION

    @classmethod
    @one_thread
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
        histograms: Histograms | None = None,
        ridge: float = REGULARISATION_PER_LOCATION,
    ) -> "WeightProblem":
        """Pose the problem, and fit its probability weights, unless they were ``chosen``.

        With ``histograms`` both are matched, every coordinate in units of its noise: one release is the mean
        of both maps. Where the points cannot follow the embedding so far that the histograms would be missed
        by more than their noise, these count for more. Raw weights are linear, and count both as they are.
        """
        blocks: tuple[int, ...] = (len(target),)
        matched, noises = features, np.full(len(target), noise)
        if histograms is not None:
            parts = (features, target, noise, histograms)
            importance = 1.0 if weighting in LINEAR else _importance(*parts)
            matched, target, noises = _joined(*parts, importance)
            blocks = (*blocks, len(histograms.shares))
        if chosen is None:
            reach = 1.0 if histograms is None else REACH
            simplex = fit_simplex(matched, target, reach * noise * float(np.sqrt(len(target))))
        else:
            simplex = SimplexFit(chosen, 0.0, 0.5**SMOOTHING_STEPS, 0.0)
        return cls(matched, target, noises, blocks, law, weighting, l1_max, simplex, ridge)

    @property
    def features(self) -> Floats:
        """The points' embedding features alone, (J, dimension)."""
        return self.matched[:, : self.blocks[0]]

    @property
    def noise_error(self) -> float:
        """Root mean square of the norm of the noise, histograms unstretched."""
        return self._norm(self.noise)

    def _norm(self, deviations: Floats) -> float:
        """Return the norm of deviations (dimension,), without the stretch of histograms that come first."""
        return float(np.linalg.norm(deviations * (self.noise[0] / self.noise)))

    @one_thread
    def weights(self) -> Floats:
        """Return the weights of the kind asked for, (J,)."""
        if self.weighting == "simplex":
            return self.simplex.weights
        if self.weighting == "regularised":
            return fit_regularised(self.matched, self.target, self.noise_error, self.l1_max).weights
        if self.weighting == "shrunk":
            left, z, _, factors = self._shrunk()
            return np.asarray(left @ (factors * z))
        return np.asarray(self.linear_map() @ self.target)

    def _shrunk(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the directions that points tell, (J, parts), best first, and three numbers of each.

        They are the release's coordinate, and what raw and shrunk weights multiply it by: the latter with
        what its noise allows. All of it is post-processing.
        """
        # Histograms are scaled so that every coordinate has the first one's noise.
        left, singular, right = np.linalg.svd(self.matched, full_matrices=False)
        z, ridge = right @ self.target, self.ridge * len(self.matched)
        kept = shrinkage(z, self.noise[0])
        raw = singular / (singular**2 + ridge)
        return left, z, raw, kept * singular / (singular**2 + SHRUNK_RIDGE * ridge)

    @one_thread
    def linear_map(self, rows: npt.NDArray[np.intp] | None = None) -> Floats:
        """Return the map of the mean to raw weights, (J, dimension): least squares, minimally ridged."""
        features = self.matched if rows is None else self.matched[rows]
        gram = features @ features.T
        ridge = self.ridge * len(gram)
        return np.asarray(np.linalg.solve(gram + ridge * np.eye(len(gram)), features))

    @one_thread
    def noise_map(self) -> Floats:
        """Return N, (J, parts): expectations of f move by |N'f| (root mean square) under fresh noise.

        Shrunk weights' noise, with their factors as given; where raw weights have more, theirs, as what
        shrinking takes away of the truth is of that size.
        """
        if self.weighting == "shrunk":
            left, _, raw, factors = self._shrunk()
            return np.asarray(left * np.maximum(raw, factors) * self.noise[0])
        if self.weighting in LINEAR or self.law == "bound":
            # |f'u - f'v| <= |f| |distance|, with |f| the norm of the function that has f's values.
            return self.linear_map() * self.noise
        return self._refitted(self.noise, self.law)

    @property
    def misfit(self) -> float:
        """How much farther the weighted points are from the release than noise explains.

        In units of the embedding; of histograms, a share is worth as much as its noise is beside the other's.
        """
        beyond = np.sum((self._residual / self.noise) ** 2) - len(self.target)
        return float(self.noise[0] * np.sqrt(max(0.0, float(beyond))))

    @property
    def _residual(self) -> Floats:
        return np.asarray(self.target - self.matched.T @ self.simplex.weights)

    def _beyond(self) -> Floats | None:
        """Return what each coordinate misses beside noise, (dimension,); None where noise explains the most.

        A part of the release that is missed by more than its noise shares that out among its coordinates.
        """
        spread, missed, start = np.zeros(len(self.target)), False, 0
        for size in self.blocks:
            part = slice(start, start + size)
            noise = float(np.sum(self.noise[part] ** 2))
            excess = max(0.0, float(np.sum(self._residual[part] ** 2)) - noise)
            spread[part] = np.sqrt(excess / size)
            missed, start = missed or excess > noise, start + size
        return spread if missed else None

    def _refitted(self, noise: Floats, law: NoiseLaw) -> Floats:
        """Return what noise of these deviations (dimension,) does to weights, (J, ``REPLICAS``)."""
        rng, centre = np.random.default_rng(SEED), self.weights()
        shape = (len(self.target), REPLICAS)
        drawn = rng.laplace(0, np.sqrt(0.5), shape) if law == "laplace" else rng.standard_normal(shape)
        targets = (self.matched.T @ centre)[:, None] + noise[:, None] * drawn
        again = self._fit(self.matched, targets, centre, self._norm(noise))
        return np.asarray((again - centre[:, None]) / np.sqrt(REPLICAS))

    @one_thread
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
            target = self.matched[held].T @ shares
            columns[held, split] = shares
            columns[known, split] = -self._represent(known, target)
        columns /= np.sqrt(SPLITS)
        beyond = None if self.law == "bound" else self._beyond()
        if beyond is None:
            return columns
        if self.weighting in LINEAR:
            return np.hstack([columns, self.linear_map() * beyond])
        return np.hstack([columns, self._refitted(beyond, "gaussian")])

    def _represent(self, rows: npt.NDArray[np.intp], target: Floats) -> Floats:
        if self.weighting in LINEAR:
            return np.asarray(self.linear_map(rows) @ target)
        start = np.full(len(rows), 1.0 / len(rows))
        return self._fit(self.matched[rows], target[:, None], start, self.noise_error)[:, 0]

    def _fit(self, features: Floats, targets: Floats, start: Floats, error: float) -> Floats:
        gap = REFIT_GAP_SHARE * error**2
        if self.weighting == "regularised":
            return refit_regularised(features, targets, self.l1_max, gap, start)
        return refit(features, targets, self.simplex.smoothing, gap, start)


def shrinkage(z: Floats, noise: float) -> Floats:
    """Return the factors of coordinates z with that noise whose squared error Stein's estimate says is least.

    Among all that fall from 1 to 0: an isotonic regression of 1 - noise^2 / z^2 with weights z^2
    (docs/mathematics/database-release.md).
    """
    squares = np.maximum(z**2, np.finfo(np.float64).tiny)
    kept = isotonic_regression(1 - noise**2 / squares, weights=squares, increasing=False).x
    return np.asarray(np.clip(kept, 0.0, 1.0))


def _joined(
    features: Floats, target: Floats, noise: float, histograms: Histograms, importance: float
) -> tuple[Floats, Floats, Floats]:
    """Return features, mean and noise of both parts of a release; a share's noise becomes the other's.

    The histograms are then stretched by their ``importance``.
    """
    scale = importance * noise / histograms.noise
    return (
        np.hstack([features, scale * histograms.indicators]),
        np.concatenate([target, scale * histograms.shares]),
        np.concatenate(
            [np.full(len(target), noise), np.full(len(histograms.shares), scale * histograms.noise)]
        ),
    )


def _importance(features: Floats, target: Floats, noise: float, histograms: Histograms) -> float:
    """Return the least importance at which the best match of both leaves the histograms within their noise.

    Where none does, the largest that is tried.
    """
    allowed = histograms.noise**2 * len(histograms.shares)
    for importance in IMPORTANCES:
        matched, wanted, _ = _joined(features, target, noise, histograms, importance)
        gram = matched @ matched.T + 0.5 ** (SMOOTHING_STEPS - 1) * np.eye(len(matched))
        weights = solve_simplex(gram, matched @ wanted, GAP_SHARE * noise**2 * len(wanted))
        residual = histograms.shares - histograms.indicators.T @ weights
        if float(residual @ residual) <= allowed:
            return importance
    return IMPORTANCES[-1]


def columns_of(domain: Domain, locations: Locations) -> dict[str, npt.NDArray[Any]]:
    """Return locations by column, in the columns' own units."""
    rows = decode_locations(domain, locations)
    return {
        column.name: np.array(
            [row[column.name] for row in rows], dtype=float if column.kind == "numeric" else object
        )
        for column in domain.columns
    }


STEPS_MAX = 300
"""Most steps of one start."""

Progress = Callable[[float], None]


class MovingFeatures(Protocol):
    """A feature map that tells how its values move with the numeric columns."""

    def values(self, rows: Locations) -> FloatMatrix:
        """Return phi, (rows, dimension)."""

    def pullback(self, rows: Locations, values: FloatMatrix, vector: Floats) -> FloatMatrix:
        """Return d(phi(z)'vector)/dz, (rows, numeric columns); ``values`` are phi at the rows."""


class MovingEmbedding:
    """Whitened mean embeddings: psi(z)'v = sum_j c_j k(z, T_j), with c the whitener times v."""

    def __init__(self, kernel: ProductKernel, features: WhitenedMeanEmbedding) -> None:
        self._kernel = kernel
        self._features = features

    def values(self, rows: Locations) -> FloatMatrix:
        """Return psi, (rows, J)."""
        return self._features(rows)

    def pullback(self, rows: Locations, values: FloatMatrix, vector: Floats) -> FloatMatrix:  # noqa: ARG002
        """Return d(psi(z)'vector)/dz, (rows, numeric columns)."""
        places = self._features.locations
        coefficients = np.linalg.solve(self._features.unwhitener, vector)
        shares = self._kernel.gram(rows, places) * coefficients
        if self._kernel.shape == "laplacian":
            signs = np.sign(rows.numeric[:, None, :] - places.numeric[None, :, :])
            return np.asarray(-np.einsum("ij,ijc->ic", shares, signs) / self._kernel.bandwidth)
        towards = shares @ places.numeric - shares.sum(axis=1)[:, None] * rows.numeric
        return np.asarray(towards / self._kernel.bandwidth**2)


@dataclass(frozen=True)
class MovingFourier:
    """Pairs of all cosines and all sines, each times a sign of the categories, at ``frequencies``.

    ``map`` returns them, (rows, 2 F); ``frequencies`` is (F, numeric columns), in radians per unit.
    """

    map: Callable[[Locations], FloatMatrix]
    frequencies: FloatMatrix

    def values(self, rows: Locations) -> FloatMatrix:
        """Return phi, (rows, 2 F)."""
        return self.map(rows)

    def pullback(self, rows: Locations, values: FloatMatrix, vector: Floats) -> FloatMatrix:
        """Return d(phi(z)'vector)/dz, (rows, numeric columns)."""
        count, columns = self.frequencies.shape
        if not columns:
            return np.empty((len(rows), 0))
        cosines, sines = values[:, :count], values[:, count:]
        return np.asarray((cosines * vector[count:] - sines * vector[:count]) @ self.frequencies)


@dataclass(frozen=True)
class ReducedSet:
    """Points, with probability weights (M,), that match the mean up to ``squared_distance``.

    ``started`` is the squared distance at the start that led here, with its equal weights.
    """

    points: Locations
    weights: Floats
    squared_distance: float
    started: float


def fit_reduced_set(
    features: MovingFeatures,
    target: Floats,
    noise_error: float,
    starts: list[Locations],
    progress: Progress | None = None,
) -> ReducedSet:
    """Match a noisy mean from each of several blind starts, and return the nearest match.

    Args:
        features: the map whose mean was released.
        target: the noisy mean, (dimension,).
        noise_error: root mean square of the norm of its noise; a start that comes so near is the last.
        starts: public points, (M,) each: of the domain, in scaled columns.
        progress: called with the part done, in [0, 1].

    Raises ValueError where there is no start, or one has no points.
    """
    if not starts or any(not len(start) for start in starts):
        raise ValueError("a reduced set needs a start of one point at least")
    best: ReducedSet | None = None
    for number, start in enumerate(starts):

        def report(part: float, number: int = number) -> None:
            if progress is not None:
                progress((number + part) / len(starts))

        found = _descend(features, target, noise_error, start, report)
        if best is None or found.squared_distance < best.squared_distance:
            best = found
        if best.squared_distance <= noise_error**2:
            break
    if best is None:
        raise ValueError("a reduced set needs a start of one point at least")
    if progress is not None:
        progress(1.0)
    return best


def _descend(
    features: MovingFeatures, target: Floats, noise_error: float, start: Locations, report: Progress
) -> ReducedSet:
    from scipy.optimize import minimize  # noqa: PLC0415 (slow to import)

    count, columns = start.numeric.shape
    moving = count * columns
    steps = 0

    def unpack(values: Floats) -> tuple[Locations, Floats]:
        return Locations(values[:moving].reshape(count, columns), start.categorical), values[moving:]

    def objective(values: Floats) -> tuple[float, Floats]:
        return squared_distance(features, target, *unpack(values))

    def follow(xk: npt.NDArray[np.float64]) -> None:
        nonlocal steps
        steps += 1
        report(min(1.0, steps / STEPS_MAX))
        if objective(xk)[0] <= noise_error**2:
            raise StopIteration

    first: Floats = np.concatenate([np.clip(start.numeric, 0.0, 1.0).ravel(), np.ones(count)])
    found = minimize(
        objective,
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, 1.0)] * moving + [(-np.inf, np.inf)] * count,
        callback=follow,
        options={"maxiter": STEPS_MAX},
    )
    points, roots = unpack(np.asarray(found.x))
    weights = roots**2 / float(roots @ roots)
    return ReducedSet(points, weights, float(found.fun), objective(first)[0])


def squared_distance(
    features: MovingFeatures, target: Floats, points: Locations, roots: Floats
) -> tuple[float, Floats]:
    """Return |m - sum w phi(z)|^2 for w = roots^2 / sum roots^2, and its gradient: points, then roots."""
    values, total = features.values(points), float(roots @ roots)
    weights = roots**2 / total
    residual = target - weights @ values
    slopes = -2 * (values @ residual)
    by_point = -2 * weights[:, None] * features.pullback(points, values, residual)
    by_root = 2 * roots / total * (slopes - weights @ slopes)
    return float(residual @ residual), np.concatenate([by_point.ravel(), by_root])
