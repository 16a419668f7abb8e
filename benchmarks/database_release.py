"""The RKHS error of released databases against n, epsilon and the number of points, beside P2's noise.

    python -m benchmarks.database_release      # continues where it stopped

P2 is Balog, Tolstikhin and Schölkopf, *Differentially private database release via kernel mean embeddings*.
The population is that of its experiments, known in closed form, so that every error is exact for its weights:
no sample stands in for the population. Linear weights need no data at all: their mean squared error over
data and noise is a formula, and P2's noise gets the ridge that is best in the very cell. Shrunk weights are
averaged over draws of both, with the best linear ones as control variate. Weights that users get are fitted
to drawn data with simulated noise at the procedure's own scale; ``tacit.local`` adds OpenDP's.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from benchmarks.harness import (
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    cells_of,
    curves,
    grid,
    main,
    named,
    table,
)
from benchmarks.problems import locations_of
from tacit.database.weights import SHRUNK_RIDGE, Weighting, shrinkage
from tacit.local.synthetic import release_database
from tacit_protocol.features.kernels import FeatureMap, ProductKernel, RandomFourier
from tacit_protocol.features.mean_embedding import RIDGES, WhitenedMeanEmbedding
from tacit_protocol.features.moments import MEAN, MomentRelease, MomentShares
from tacit_protocol.numerics.simplex_weights import fit_simplex
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee, noise_scales
from tacit_protocol.privacy.guarantee import Budget

LOWER, UPPER = -900.0, 1100.0
"""Public bounds of every column: five standard deviations of the components' means on both sides."""

SIDE = UPPER - LOWER
COMPONENTS = 10

DELTA = 1e-6
BLOCK_ROWS = 4096
DIMENSIONS = (2, 5)
EPSILONS = (0.1, 1.0, 4.0)
UNITS = (1_000, 10_000, 100_000, 1_000_000)
POINTS = (30, 100, 300, 1000)
PEER_RIDGES = tuple(10.0**power for power in range(-14, -1))
"""Of P2's weights, in parts of the number of points; in each cell the best."""

DRAWS = 40
"""Of data and noise, for shrunk weights on the same points."""

ROUNDING = 1e-6
"""Of squared errors, in parts: what differs by less is the same."""

RESOLVED = 1e-5
"""Least variance of a record's coordinate that double precision tells from 0, beside a total of 1 at most."""
FITTED_POINTS = 100
FEATURES = {f"random features, {count} frequencies": count for count in (50, 500)}
LOCAL_UNITS, LOCAL_POINTS = 10_000, 100
SWEPT_UNITS = 100_000
"""Units of the tables over epsilon: P2's own number."""

PLACEMENTS = {
    "own": "a published part",
    "uniform": "uniform over the bounds",
    "wide": "P2's N(0, 500²)",
    "wrong": "N(500, 150²)",
}


@dataclass(frozen=True)
class Mixture:
    """Spherical Gaussians in [0, 1]^D: ``weights`` (C,), ``means`` (C, D), one standard deviation."""

    weights: Floats
    means: Floats
    deviation: float

    @property
    def columns(self) -> int:
        """Number of columns D."""
        return int(self.means.shape[1])

    @property
    def bandwidth(self) -> float:
        """P2's: its kernel is exp(-|x - y|^2 / (100^2 D)) in the columns' own units."""
        return 100 * math.sqrt(self.columns / 2) / SIDE

    @property
    def kernel(self) -> ProductKernel:
        """P2's kernel."""
        return ProductKernel("gaussian", self.bandwidth)

    def draw(self, n: int, rng: np.random.Generator) -> Floats:
        """Draw n rows, (n, D)."""
        which = rng.choice(len(self.weights), n, p=self.weights)
        return np.asarray(self.means[which] + self.deviation * rng.standard_normal((n, self.columns)))

    def embedding(self, points: Floats) -> Floats:
        """Return E k(X, t) at every point t, (J,)."""
        return np.asarray(self._smoothed(points, self.bandwidth**2 + self.deviation**2) @ self.weights)

    def norm_sqr(self) -> float:
        """Return the squared RKHS norm of the embedding, E k(X, X')."""
        pairs = self._smoothed(self.means, self.bandwidth**2 + 2 * self.deviation**2)
        return float(self.weights @ pairs @ self.weights)

    def second_moment(self, points: Floats) -> Floats:
        """Return E k(X, s) k(X, t) for every pair of points, (J, J).

        The product of two Gaussians is one around their middle: k(x, s) k(x, t) = k(s, t)^(1/2) c(x), where
        c has the variance bandwidth^2 / 2.
        """
        half = self.bandwidth / math.sqrt(2)
        squared = cdist(points, points, "sqeuclidean")
        total = np.zeros_like(squared)
        for weight, mean in zip(self.weights, self.means, strict=True):
            own = np.sum((points - mean) ** 2, axis=1)
            middles = (2 * own[:, None] + 2 * own[None, :] - squared) / 4
            total += weight * self._bump(middles, half, half**2 + self.deviation**2)
        return np.asarray(np.exp(-squared / (4 * self.bandwidth**2)) * total)

    def _smoothed(self, points: Floats, variance: float) -> Floats:
        """Return the kernel around each component's mean, convolved until its variance is ``variance``."""
        return self._bump(cdist(points, self.means, "sqeuclidean"), self.bandwidth, variance)

    def _bump(self, squared: Floats, bandwidth: float, variance: float) -> Floats:
        return np.asarray((bandwidth**2 / variance) ** (self.columns / 2) * np.exp(-squared / (2 * variance)))

    def place(self, placement: str, count: int, rng: np.random.Generator) -> Floats:
        """Draw public points, (count, D) in [0, 1]."""
        shape = (count, self.columns)
        if placement == "own":
            return self.draw(count, rng)
        if placement == "uniform":
            return rng.random(shape)
        middle, deviation = (0, 500) if placement == "wide" else (500, 150)
        return np.clip((middle + deviation * rng.standard_normal(shape) - LOWER) / SIDE, 0.0, 1.0)

    def squared_error(self, points: Floats, weights: Floats) -> float:
        """Return the squared RKHS distance of a weighted database to the population."""
        gram = self.kernel.gram(locations_of(points), locations_of(points))
        crossed = weights @ self.embedding(points)
        return max(0.0, float(weights @ gram @ weights - 2 * crossed) + self.norm_sqr())


@functools.cache
def p2_mixture(columns: int) -> Mixture:
    """Return the mixture of P2's experiments, with the means that its published code draws.

    Means N(100, 200^2) from NumPy's legacy generator with seed 0, deviation 30, weights like 1, ..., 1/10.
    Raises ValueError where a mean is within 8 deviations of a bound: clipping would then count.
    """
    means = (np.random.RandomState(0).normal(100, 200, (COMPONENTS, columns)) - LOWER) / SIDE
    weights = 1 / np.arange(1, COMPONENTS + 1)
    mixture = Mixture(weights / weights.sum(), means, 30 / SIDE)
    if min(means.min(), 1 - means.max()) < 8 * mixture.deviation:
        raise ValueError("a component is too near to a bound")
    return mixture


def p2_noise(features: FeatureMap, n: int, epsilon: float) -> float:
    """Return the standard deviation of P2's noise on a coordinate."""
    return 2 / n * math.sqrt(2 * math.log(1.25 / DELTA)) / epsilon


def our_noise(features: FeatureMap, n: int, epsilon: float) -> float:
    """Return the standard deviation of the procedure's noise on a coordinate of the mean."""
    parts = MomentRelease(features, MomentShares(1.0, 0.0)).parts(n)
    return noise_scales(parts, gaussian_guarantee(Budget.of(epsilon, DELTA)))[MEAN] / n


NOISES = {"ours": our_noise, "p2": p2_noise}


@functools.cache
def some_features(columns: int, count: int) -> WhitenedMeanEmbedding:
    """Return features at any points: noise does not depend on their places."""
    return features_at(p2_mixture(columns), np.random.default_rng(0).random((count, columns)))


def features_at(mixture: Mixture, points: Floats) -> WhitenedMeanEmbedding:
    """Return a new study's features on points."""
    return WhitenedMeanEmbedding(mixture.kernel, locations_of(points), "fine")


def asked_of(placement: str, count: int, rest: str) -> str:
    """Name a figure of a placement."""
    return f"{placement} | {count} | {rest}"


@dataclass(frozen=True)
class Reading:
    """A linear way from a released mean to weights, in the eigenbasis of the points' Gram matrix, (J,) each.

    Released are the coordinates ``features`` times a record's kernels with the points; weights are
    ``weights`` times those.
    """

    features: Floats
    weights: Floats


@dataclass(frozen=True)
class Spectrum:
    """What some points see of a population, in the eigenbasis of their Gram matrix.

    ``eigenvalues`` (J,), falling; ``mean`` (J,) and ``second`` (J, J) are the first moments of a record's
    kernels with the points; ``norm_sqr`` is that of the population's embedding.
    """

    eigenvalues: Floats
    mean: Floats
    second: Floats
    norm_sqr: float

    @classmethod
    def of(cls, mixture: Mixture, points: Floats) -> "Spectrum":
        """Return what the points see of a mixture."""
        gram = mixture.kernel.gram(locations_of(points), locations_of(points))
        eigenvalues, vectors = np.linalg.eigh((gram + gram.T) / 2)
        eigenvalues, vectors = np.maximum(eigenvalues[::-1], 0.0), vectors[:, ::-1]
        second = vectors.T @ mixture.second_moment(points) @ vectors
        return cls(eigenvalues, vectors.T @ mixture.embedding(points), second, mixture.norm_sqr())

    def own(self, ridge: float = 1.0) -> Reading:
        """Return the raw weights of a new study; with another part of its ridge, shrunk ones before that."""
        floor = RIDGES["fine"] * len(self.eigenvalues)
        features = 1 / np.sqrt(self.eigenvalues + floor)
        singular = self.eigenvalues * features
        return Reading(features, singular / (singular**2 + ridge * floor))

    def ridged(self) -> list[Reading]:
        """Return Algorithm 1's weights with every ridge: in the coordinates, or where these are read."""
        base = PEER_RIDGES[0] * len(self.eigenvalues)
        bare = 1 / np.sqrt(self.eigenvalues + base)
        made = []
        for ridge in PEER_RIDGES:
            whole = self.eigenvalues + ridge * len(self.eigenvalues)
            made += [Reading(1 / np.sqrt(whole), 1 / np.sqrt(whole)), Reading(bare, 1 / (bare * whole))]
        return made

    def noise_trace(self, reading: Reading) -> float:
        """Return the mean squared norm of what noise of deviation 1 on each coordinate becomes."""
        return float(self.eigenvalues @ reading.weights**2)

    def error(self, reading: Reading, n: int, noise: float, *, to_data: bool = False) -> float:
        """Return the mean squared error of weights over data and noise, to the population or to the data."""
        kept = reading.features * reading.weights
        sampling = (np.diag(self.second) - self.mean**2) / n
        moved = self.eigenvalues * kept**2 @ (self.mean**2 + sampling)
        crossed = 2 * kept @ (self.mean**2 + (sampling if to_data else 0.0))
        found = moved - crossed + self.target(n, to_data=to_data) + noise**2 * self.noise_trace(reading)
        return max(0.0, float(found))

    def target(self, n: int, *, to_data: bool) -> float:
        """Return the mean squared norm of the embedding of the population or of the data."""
        return self.norm_sqr + (1 - self.norm_sqr) / n if to_data else self.norm_sqr

    def records(self, features: Floats, rng: np.random.Generator) -> Floats:
        """Draw what the mean of a record's coordinates has of sampling error at n = 1, (draws, J)."""
        spread = features[:, None] * (self.second - np.outer(self.mean, self.mean)) * features
        variances, vectors = np.linalg.eigh((spread + spread.T) / 2)
        deviations = np.sqrt(np.where(variances > RESOLVED, variances, 0.0))
        drawn = deviations * rng.standard_normal((DRAWS, len(variances)))
        return np.asarray(drawn @ vectors.T)


def linear_run(columns: int, number: int) -> Answers:
    """Return the squared errors of tuned P2, of raw and of shrunk weights on the same points."""
    mixture, rng = p2_mixture(columns), np.random.default_rng([number, columns])
    answers: dict[str, float] = {}
    for placement in PLACEMENTS:
        cloud = mixture.place(placement, max(POINTS), rng)
        for count in POINTS:
            for asked, value in errors_at(Spectrum.of(mixture, cloud[:count]), columns, rng).items():
                answers[asked_of(placement, count, asked)] = value
    return answers


def errors_at(seen: Spectrum, columns: int, rng: np.random.Generator) -> dict[str, float]:
    """Return squared errors for every n and epsilon, and the simulation's variance of that of shrunk ones."""
    own, bare, ridged = seen.own(), seen.own(SHRUNK_RIDGE), seen.ridged()
    sampled = seen.records(own.features, rng)
    drawn = rng.standard_normal(sampled.shape)
    features, answers = some_features(columns, len(seen.eigenvalues)), dict[str, float]()
    for n, epsilon, to_data in product(UNITS, EPSILONS, (False, True)):
        noise, p2 = (noise_of(features, n, epsilon) for noise_of in (our_noise, p2_noise))
        exact = own.features * seen.mean + sampled / math.sqrt(n)
        released = exact + noise * drawn
        target = (exact if to_data else own.features * seen.mean) / own.features

        def squared(weights: Floats, target: Floats = target, n: int = n, to_data: bool = to_data) -> Floats:
            return np.asarray(
                np.sum(weights * (seen.eigenvalues * weights - 2 * target), axis=1)
                + seen.target(n, to_data=to_data)
            )

        # Ridges where the coordinates are read, of our coordinates; the best is the control variate.
        floor = own.features**-2 - seen.eigenvalues
        ridges = [
            Reading(own.features, 1 / (own.features * (seen.eigenvalues + ridge / RIDGES["fine"] * floor)))
            for ridge in PEER_RIDGES
        ]
        expected, control = min(
            ((seen.error(one, n, noise, to_data=to_data), one) for one in ridges), key=lambda pair: pair[0]
        )
        kept = np.array([shrinkage(one, noise) for one in released])
        beyond = squared(bare.weights * kept * released) - squared(control.weights * released)
        found = {
            "p2": min(seen.error(one, n, p2, to_data=to_data) for one in ridged),
            "raw": seen.error(own, n, noise, to_data=to_data),
            "shrunk": expected + float(beyond.mean()),
            "shrunk, its variance": float(beyond.var(ddof=1)) / DRAWS,
        }
        answers |= {error_of(n, epsilon, who, to_data=to_data): value for who, value in found.items()}
    return answers


def error_of(n: int, epsilon: float, who: str, *, to_data: bool = False) -> str:
    """Name an error."""
    return f"{n} | {epsilon:g} | {who}{' to the data' if to_data else ''}"


def fitted_run(
    columns: int, n: int, placements: Sequence[str], epsilons: Sequence[float], number: int
) -> Answers:
    """Draw data once; fit the weights that users get, under our noise and P2's, the same normal draws."""
    seed = [number, columns, n] if len(placements) > 1 else [number, columns, n, 1]
    mixture, rng = p2_mixture(columns), np.random.default_rng(seed)
    data, answers = mixture.draw(n, rng), dict[str, float]()

    def fit(name: str, points: Floats, features: FeatureMap, exact: Floats) -> None:
        noise = rng.standard_normal(len(exact))
        for epsilon, (whose, noise_of) in product(epsilons, NOISES.items()):
            scale = noise_of(features, n, epsilon)
            length = scale * math.sqrt(len(exact))
            weights = fit_simplex(features(locations_of(points)), exact + scale * noise, length).weights
            asked = asked_of(name, len(points), f"{epsilon:g} | {whose}")
            answers[asked] = mixture.squared_error(points, weights)

    for placement in placements:
        points = mixture.place(placement, FITTED_POINTS, rng)
        features = features_at(mixture, points)
        fit(placement, points, features, whitened_mean(features, mixture, data))
        if placement == "own":
            for name, count in FEATURES.items():
                pairs = RandomFourier.draw(mixture.kernel, columns, (), count, rng)
                total = sum(pairs(locations_of(rows)).sum(axis=0) for rows in blocks(data))
                fit(name, points, pairs, np.asarray(total / n))
    return answers


def blocks(data: Floats) -> list[Floats]:
    """Cut rows into blocks of BLOCK_ROWS."""
    return [data[start : start + BLOCK_ROWS] for start in range(0, len(data), BLOCK_ROWS)]


def whitened_mean(features: WhitenedMeanEmbedding, mixture: Mixture, data: Floats) -> Floats:
    """Return the mean of the features, (J,), whitened once; rounding, far below noise, is left out."""
    grams = (mixture.kernel.gram(locations_of(rows), features.locations) for rows in blocks(data))
    total = sum(gram.sum(axis=0) for gram in grams)
    return np.asarray(np.linalg.solve(features.unwhitener, total / len(data)), dtype=np.float64)


def local_run(columns: int, number: int) -> Answers:
    """Release by ``tacit.local`` with OpenDP's noise: the squared error found, and the one expected."""
    mixture, rng = p2_mixture(columns), np.random.default_rng([number, columns, LOCAL_UNITS])
    points = mixture.place("own", LOCAL_POINTS, rng)
    data = mixture.draw(LOCAL_UNITS, rng)
    found = release_database(
        data,
        epsilon=1.0,
        delta=DELTA,
        bounds=(0.0, 1.0),
        public=points.tolist(),
        bandwidth=mixture.bandwidth,
    )
    features = features_at(mixture, points)
    kinds: tuple[Weighting, ...] = ("simplex", "raw", "shrunk")
    errors: dict[str, float] = {
        kind: mixture.squared_error(points, found.with_weights(kind).weights) for kind in kinds
    }
    seen, exact = Spectrum.of(mixture, points), whitened_mean(features, mixture, data)
    lossless = mixture.squared_error(points, found.problem.linear_map() @ exact)
    return errors | {"expected": lossless + found.noise**2 * seen.noise_trace(seen.own())}


def cells() -> list[Cell]:
    """List the cells."""
    made = cells_of("linear D={}", 10, linear_run, DIMENSIONS)
    made += cells_of("tacit.local D={}", 20, local_run, DIMENSIONS)
    for d, n in product(DIMENSIONS, UNITS):
        run = functools.partial(fitted_run, d, n, tuple(PLACEMENTS), (1.0,))
        made.append(Cell(f"weights D={d} n={n}", 4, run))
    for d in DIMENSIONS:
        run = functools.partial(fitted_run, d, SWEPT_UNITS, ("own",), EPSILONS)
        made.append(Cell(f"epsilon D={d} n={SWEPT_UNITS}", 20, run))
    return made


Errors = tuple[float | None, float | None]
"""Ours, and with P2's noise."""

P2_PUBLISHED = {
    (2, 100): {0.1: 0.01306, 1.0: 0.01034},
    (2, 300): {0.1: 0.01015, 1.0: 0.00100},
    (2, 1000): {0.1: 0.01273, 1.0: 0.00109},
    (5, 100): {0.1: 0.01834, 1.0: 0.01478},
    (5, 300): {0.1: 0.01887, 1.0: 0.00353},
    (5, 1000): {0.1: 0.02852, 1.0: 0.00284},
}
"""Errors that P2's authors publish with their code, for 104, 319 and 977 points of their own data."""


LINEAR = ("shrunk", "raw", "p2")
"""Weights on public points, in the order in which tables have them; ``p2`` has its own noise, tuned."""


def linear_error(
    counts: Counts, cell: tuple[int, str, int, int, float], who: str, *, to_data: bool = False
) -> float | None:
    """Return the root mean square error of linear weights; a cell has D, placement, J, n and epsilon."""
    columns, placement, count, n, epsilon = cell
    asked = asked_of(placement, count, error_of(n, epsilon, who, to_data=to_data))
    squared = counts.rate(f"linear D={columns}", asked)
    return None if squared is None else math.sqrt(squared)


def _linear(counts: Counts, *cell: Any) -> str:
    errors = [linear_error(counts, cell, who) for who in LINEAR]
    return " / ".join(f"{error:.4f}" for error in errors if error is not None)


def fitted_errors(counts: Counts, cell: str, name: str, epsilon: float) -> Errors:
    """Return the errors of fitted weights."""
    asked = [asked_of(name, FITTED_POINTS, f"{epsilon:g} | {whose}") for whose in NOISES]
    ours, theirs = (counts.rate(cell, one) for one in asked)
    return None if ours is None else math.sqrt(ours), None if theirs is None else math.sqrt(theirs)


def _both(errors: Errors) -> str:
    ours, theirs = errors
    if ours is None or theirs is None:
        return ""
    ratio = theirs / ours
    return f"{ours:.4f} ({ratio:.2f})" if ratio >= 1.005 or ratio < 1 else f"{ours:.4f} (1.00+)"


def _own_error(columns: int, n: int) -> float:
    """Return the error of the records themselves."""
    return math.sqrt((1 - p2_mixture(columns).norm_sqr()) / n)


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    linear, of_fits, published = (
        dict[str, dict[str, str]](),
        dict[str, dict[str, str]](),
        dict[str, dict[str, str]](),
    )
    for columns in DIMENSIONS:
        for (placement, words), count in product(PLACEMENTS.items(), POINTS):
            linear[f"D = {columns}, {words}, J = {count}"] = {
                f"n={n}": _linear(counts, columns, placement, count, n, 1.0) for n in UNITS
            }
        linear[f"D = {columns}, data alone"] = {f"n={n}": f"{_own_error(columns, n):.4f}" for n in UNITS}
        for n, name in product(UNITS, ("own", *FEATURES, *list(PLACEMENTS)[1:])):
            errors = fitted_errors(counts, f"weights D={columns} n={n}", name, 1.0)
            of_fits.setdefault(f"D = {columns}, {PLACEMENTS.get(name, name)}", {})[f"n={n}"] = _both(errors)
    for (columns, count), theirs in P2_PUBLISHED.items():
        row = published.setdefault(f"D = {columns}, J = {count}", {})
        for epsilon, figure in theirs.items():
            row[f"ε={epsilon:g}: published"] = f"{figure:.4f}"
            for words, who in (("P2's noise here, tuned", "p2"), ("raw", "raw"), ("shrunk", "shrunk")):
                cell = (columns, "own", count, SWEPT_UNITS, epsilon)
                error = linear_error(counts, cell, who, to_data=True)
                row[f"{words}, ε={epsilon:g}"] = "" if error is None else f"{error:.4f}"
    return {
        "comparisons": _compared(counts),
        "draws": counts.runs_of("linear"),
        "linear weights": table(linear, "ε = 1"),
        "linear weights by epsilon": grid(
            "n = 100 000",
            [
                (f"D = {columns}, {words}, J = {count}", (columns, placement, count))
                for columns, (placement, words), count in product(DIMENSIONS, PLACEMENTS.items(), (100, 1000))
            ],
            named("ε={:g}", EPSILONS),
            lambda row, e: _linear(counts, *row, SWEPT_UNITS, e),
        ),
        "published": table(published, "a published part"),
        "fitted runs": counts.runs_of("weights"),
        "fitted weights": table(of_fits, "ε = 1"),
        "swept runs": counts.runs_of("epsilon"),
        "fitted weights by epsilon": grid(
            "n = 100 000",
            [(f"D = {d}, {PLACEMENTS.get(n, n)}", (d, n)) for d in DIMENSIONS for n in ("own", *FEATURES)],
            named("ε={:g}", EPSILONS),
            lambda row, e: _both(fitted_errors(counts, f"epsilon D={row[0]} n={SWEPT_UNITS}", row[1], e)),
        ),
        "releases": counts.runs_of("tacit.local"),
        "with OpenDP": grid(
            "squared error",
            named("D = {}", DIMENSIONS),
            [
                ("raw", "raw"),
                ("expected of raw", "expected"),
                ("shrunk", "shrunk"),
                ("probability weights", "simplex"),
            ],
            lambda columns, part: counts.shown(f"tacit.local D={columns}", part, ".3e"),
        ),
    }


def _compared(counts: Counts) -> str:
    """Say in how many cells ours is not above P2's noise with its best ridge, and by how much it is."""
    cells = [
        (columns, asked_of(placement, count, f"{n} | {epsilon:g}"))
        for columns, placement, count, n, epsilon in product(DIMENSIONS, PLACEMENTS, POINTS, UNITS, EPSILONS)
    ]
    lines = []
    for who in ("shrunk", "raw"):
        ratios = []
        for columns, asked in cells:
            cell = f"linear D={columns}"
            ours, theirs = (counts.rate(cell, f"{asked} | {one}") for one in (who, "p2"))
            if ours is None or theirs is None:
                continue
            # Raw weights are not simulated.
            variance = counts.rate(cell, f"{asked} | {who}, its variance") or 0.0
            same = max(2 * math.sqrt(variance / counts.runs[cell]), ROUNDING * theirs)
            ratios.append(1.0 if abs(ours - theirs) <= same else math.sqrt(theirs / ours))
        found = np.array(ratios or [1.0])
        lower, same, higher = (int(np.sum(is_so)) for is_so in (found > 1, found == 1, found < 1))
        lines.append(
            f"`{who}` is lower in {lower} of {len(ratios)} cells, by up to {found.max():.2f} times\n"
            f"  (by 5 % or more in {np.sum(found >= 1.05)}), the same in {same}, higher in {higher}"
            + (f", by up to {1 / found.min() - 1:.1%}." if higher else ".")
        )
    fitted = [
        (counts.rate(cell, asked) or 0.0, counts.rate(cell, asked.removesuffix("ours") + "p2") or 0.0)
        for cell, asked in counts.answered
        if cell.startswith(("weights", "epsilon")) and asked.endswith("ours")
    ]
    lower = sum(ours < theirs for ours, theirs in fitted)
    worst = min((math.sqrt(theirs / ours) for ours, theirs in fitted), default=1.0)
    lines.append(
        f"Fitted weights, below: lower than with P2's noise in {lower} of {len(fitted)} cells;\n"
        f"  in the others, without much noise, it is higher by {max(0.0, 1 / worst - 1):.1%} at most."
    )
    return "- " + "\n- ".join(lines)


def draw(counts: Counts, folder: Path) -> None:
    """Draw the error against n, the number of points and epsilon; dashed with P2's noise."""
    drawn = [f"linear D={d}" for d in DIMENSIONS] + [f"epsilon D={d} n={SWEPT_UNITS}" for d in DIMENSIONS]
    if not all(counts.runs.get(cell) for cell in drawn):
        return

    def linear(
        x: Sequence[float], cells: list[tuple[int, str, int, int, float]]
    ) -> list[tuple[Sequence[float], list[float | None]]]:
        return [(x, [linear_error(counts, cell, who) for cell in cells]) for who in ("shrunk", "p2")]

    def pair(
        x: Sequence[float], errors: list[Errors]
    ) -> list[tuple[Sequence[float], tuple[float | None, ...]]]:
        return [(x, of) for of in zip(*errors, strict=True)]

    against_n, against_points, against_epsilon = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    for d in DIMENSIONS:
        lines = {
            f"{words}, J = {count}": linear(UNITS, [(d, p, count, n, 1.0) for n in UNITS])
            for (p, words), count in product(PLACEMENTS.items(), (100, 1000))
        }
        against_n[f"D = {d}, ε = 1"] = lines | {"data alone": [(UNITS, [_own_error(d, n) for n in UNITS])]}
        cell = f"epsilon D={d} n={SWEPT_UNITS}"
        against_epsilon[f"D = {d}, n = 100 000, fitted weights on {FITTED_POINTS} points"] = {
            PLACEMENTS.get(name, name): pair(
                EPSILONS, [fitted_errors(counts, cell, name, e) for e in EPSILONS]
            )
            for name in ("own", *FEATURES)
        }
    for e in (0.1, 1.0):
        against_points[f"D = 2, n = 100 000, ε = {e:g}"] = {
            words: linear(POINTS, [(2, p, count, SWEPT_UNITS, e) for count in POINTS])
            for p, words in PLACEMENTS.items()
        }
    pictures = {"n": against_n, "points": against_points, "epsilon": against_epsilon}
    labels = {"n": "n", "points": "number of points", "epsilon": "ε"}
    for name, panels in pictures.items():
        path = folder / f"database-release-{name}.svg"
        curves(path, panels, labels[name], "RKHS distance to the population")


BENCHMARKS = (Benchmark("database-release", cells, parts, draw),)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
