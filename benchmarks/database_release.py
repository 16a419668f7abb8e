"""The RKHS error of released databases against n, epsilon and the number of points, beside P2's noise.

    python -m benchmarks.database_release      # continues where it stopped

P2 is Balog, Tolstikhin and Schölkopf, *Differentially private database release via kernel mean embeddings*.
The population is that of its experiments, known in closed form, so that every error is exact for its weights:
no sample stands in for the population. The procedure's own weights (``spectrum``) need no data at all: their
mean squared error over data and noise is a formula in what is counted here. Weights that users get are fitted
to drawn data with simulated noise at the procedure's own scale; ``tacit.local`` adds OpenDP's.
"""

import functools
import math

import numpy as np

from benchmarks.database_population import LOWER, SIDE, Floats, Mixture, p2_bandwidth, p2_mixture
from benchmarks.database_release_error import (
    DELTA,
    DIMENSIONS,
    EPSILONS,
    FITTED_POINTS,
    FREQUENCIES,
    LOCAL_CELL,
    LOCAL_POINTS,
    LOCAL_UNITS,
    OURS,
    P2,
    PLACEMENTS,
    POINTS,
    SPECTRUM_PARTS,
    SWEPT_UNITS,
    UNITS,
    fitted_cell,
    our_noise,
    p2_noise,
    question,
    random_features,
    spectrum_cell,
    swept_cell,
)
from benchmarks.database_release_page import text
from benchmarks.database_release_pictures import draw
from benchmarks.resumable import Answers, Cell, main
from tacit.local.database import release_database
from tacit_protocol.features.base import FeatureMap
from tacit_protocol.features.kernels import ProductKernel, RandomFourier
from tacit_protocol.features.mean_embedding import (
    REGULARISATION_PER_LOCATION,
    Locations,
    WhitenedMeanEmbedding,
)
from tacit_protocol.features.moments import MEAN, MomentRelease, MomentShares
from tacit_protocol.numerics.simplex_weights import fit_simplex
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee, noise_scales
from tacit_protocol.privacy.guarantee import Budget

BLOCK_ROWS = 4096


def place(placement: str, mixture: Mixture, count: int, rng: np.random.Generator) -> Floats:
    """Draw public points, (count, D) in [0, 1]."""
    shape = (count, mixture.columns)
    if placement == "own":
        return mixture.draw(count, rng)
    if placement == "uniform":
        return rng.random(shape)
    if placement == "wide":
        return np.clip((500 * rng.standard_normal(shape) - LOWER) / SIDE, 0.0, 1.0)
    return np.clip((500 + 150 * rng.standard_normal(shape) - LOWER) / SIDE, 0.0, 1.0)


def as_locations(rows: Floats) -> Locations:
    """Return numeric rows as kernels take them."""
    return Locations(rows, np.empty((len(rows), 0), dtype=np.int32))


def features_at(points: Floats) -> WhitenedMeanEmbedding:
    """Return the features that a study with these public points and P2's kernel fixes."""
    kernel = ProductKernel("gaussian", p2_bandwidth(points.shape[1]))
    return WhitenedMeanEmbedding(kernel, as_locations(points))


def procedure_noise(features: FeatureMap, n: int, epsilon: float) -> float:
    """Return the standard deviation of the procedure's noise on a coordinate of the mean."""
    guarantee = gaussian_guarantee(Budget.of(epsilon, DELTA))
    parts = MomentRelease(features, MomentShares(1.0, 0.0)).parts(n)
    return noise_scales(parts, guarantee)[MEAN] / n


def spectrum(columns: int, number: int) -> Answers:
    """Return what the exact error of Algorithm 1's weights depends on, for every placement and number.

    The released element is A mu_X + noise, A = Phi (K + lambda)^-1 Phi' on the points. ``missed`` is
    |A mu - mu|^2, ``spread`` E|A h|^2 - |A mu|^2 with h = k(X, .), ``unseen`` E|A h - h|^2, and ``trace``
    that of K (K + lambda)^-1, the squared norm of standard noise.
    """
    mixture, bandwidth = p2_mixture(columns), p2_bandwidth(columns)
    rng = np.random.default_rng([number, columns])
    answers: dict[str, float] = {}
    for placement in PLACEMENTS:
        cloud = place(placement, mixture, max(POINTS), rng)
        for count in POINTS:
            found = _spectrum(mixture, bandwidth, cloud[:count])
            answers |= {
                question(placement, count, part): value
                for part, value in zip(SPECTRUM_PARTS, found, strict=True)
            }
    return answers


def _spectrum(mixture: Mixture, bandwidth: float, points: Floats) -> tuple[float, float, float, float]:
    gram = ProductKernel("gaussian", bandwidth).gram(as_locations(points), as_locations(points))
    eigenvalues, vectors = np.linalg.eigh((gram + gram.T) / 2)
    floor = REGULARISATION_PER_LOCATION * len(points)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    kept = eigenvalues / (eigenvalues + floor)
    # Coordinates of psi in the eigenbasis: the mean, and the mean squares.
    mean = (vectors.T @ mixture.embedding(points, bandwidth)) / np.sqrt(eigenvalues + floor)
    second = np.sum(vectors * (mixture.second_moment(points, bandwidth) @ vectors), axis=0)
    squares = second / (eigenvalues + floor)
    missed = mixture.norm_sqr(bandwidth) + float(mean**2 @ (kept - 2))
    spread = float((squares - mean**2) @ kept)
    unseen = 1 + float(squares @ (kept - 2))
    return max(0.0, missed), spread, max(0.0, unseen), float(kept.sum())


def fitted(columns: int, n: int, number: int) -> Answers:
    """Draw data once; fit the weights that users get, under our noise and P2's, the same normal draws."""
    mixture, rng = p2_mixture(columns), np.random.default_rng([number, columns, n])
    data = mixture.draw(n, rng)
    answers: dict[str, float] = {}
    for placement in PLACEMENTS:
        points = place(placement, mixture, FITTED_POINTS, rng)
        answers |= _fit_subspace(placement, mixture, points, data, (1.0,), rng)
        if placement == "own":
            answers |= _fit_random_features(mixture, points, data, (1.0,), rng)
    return answers


def swept(columns: int, number: int) -> Answers:
    """Draw data and a published part once; fit weights to both kinds of release, for every epsilon."""
    mixture, rng = p2_mixture(columns), np.random.default_rng([number, columns, SWEPT_UNITS, 1])
    data = mixture.draw(SWEPT_UNITS, rng)
    points = place("own", mixture, FITTED_POINTS, rng)
    answers = _fit_subspace("own", mixture, points, data, EPSILONS, rng)
    return answers | _fit_random_features(mixture, points, data, EPSILONS, rng)


def _fit_subspace(
    placement: str,
    mixture: Mixture,
    points: Floats,
    data: Floats,
    epsilons: tuple[float, ...],
    rng: np.random.Generator,
) -> dict[str, float]:
    features = features_at(points)
    mean = whitened_mean(features, data)
    return _fit(placement, mixture, points, features, mean, len(data), epsilons, rng)


def _fit_random_features(
    mixture: Mixture, points: Floats, data: Floats, epsilons: tuple[float, ...], rng: np.random.Generator
) -> dict[str, float]:
    kernel = ProductKernel("gaussian", p2_bandwidth(mixture.columns))
    answers: dict[str, float] = {}
    for count in FREQUENCIES:
        pairs = RandomFourier.draw(kernel, mixture.columns, (), count, rng)
        mean = plain_mean(pairs, data)
        answers |= _fit(random_features(count), mixture, points, pairs, mean, len(data), epsilons, rng)
    return answers


def _fit(
    name: str,
    mixture: Mixture,
    points: Floats,
    features: FeatureMap,
    exact: Floats,
    n: int,
    epsilons: tuple[float, ...],
    rng: np.random.Generator,
) -> dict[str, float]:
    noise = rng.standard_normal(len(exact))
    answers = {}
    for epsilon in epsilons:
        for owner, scale in ((OURS, procedure_noise(features, n, epsilon)), (P2, p2_noise(n, epsilon))):
            noisy, length = exact + scale * noise, scale * math.sqrt(len(exact))
            weights = fit_simplex(features(as_locations(points)), noisy, length).weights
            asked = question(name, len(points), f"{epsilon:g} | {owner}")
            answers[asked] = squared_error(mixture, points, weights)
    return answers


def whitened_mean(features: WhitenedMeanEmbedding, data: Floats) -> Floats:
    """Return the mean of the features, (J,), whitened once."""
    kernel = ProductKernel("gaussian", p2_bandwidth(data.shape[1]))
    total = np.zeros(features.dimension)
    for start in range(0, len(data), BLOCK_ROWS):
        rows = as_locations(data[start : start + BLOCK_ROWS])
        total += kernel.gram(rows, features.locations).sum(axis=0)
    return np.asarray(np.linalg.solve(features.unwhitener, total / len(data)), dtype=np.float64)


def plain_mean(features: FeatureMap, data: Floats) -> Floats:
    """Return the mean of the features, (dimension,), without the grid, whose rounding is far below noise."""
    total = np.zeros(features.dimension)
    for start in range(0, len(data), BLOCK_ROWS):
        total += features(as_locations(data[start : start + BLOCK_ROWS])).sum(axis=0)
    return total / len(data)


def squared_error(mixture: Mixture, points: Floats, weights: Floats) -> float:
    """Return the squared RKHS distance of a weighted database to the population."""
    bandwidth = p2_bandwidth(mixture.columns)
    gram = ProductKernel("gaussian", bandwidth).gram(as_locations(points), as_locations(points))
    crossed = weights @ mixture.embedding(points, bandwidth)
    return max(0.0, float(weights @ gram @ weights - 2 * crossed) + mixture.norm_sqr(bandwidth))


def through_local(columns: int, number: int) -> Answers:
    """Release by ``tacit.local`` with OpenDP's noise: the squared error found, and the one expected.

    Raises RuntimeError where the procedure's noise is not what the page takes it for.
    """
    mixture = p2_mixture(columns)
    rng = np.random.default_rng([number, columns, LOCAL_UNITS])
    points = place("own", mixture, LOCAL_POINTS, rng)
    data = mixture.draw(LOCAL_UNITS, rng)
    found = release_database(
        data,
        epsilon=1.0,
        delta=DELTA,
        bounds=(0.0, 1.0),
        public=points.tolist(),
        bandwidth=p2_bandwidth(columns),
    )
    features = features_at(points)
    if not math.isclose(found.noise, our_noise(columns, LOCAL_POINTS, LOCAL_UNITS, 1.0), rel_tol=1e-6):
        raise RuntimeError("the procedure's noise has changed: so must the page's formula")
    unwhitener = features.unwhitener
    noisy, exact = (
        squared_error(mixture, points, np.asarray(np.linalg.solve(unwhitener, mean), dtype=np.float64))
        for mean in (found.embedding, whitened_mean(features, data))
    )
    trace = _spectrum(mixture, p2_bandwidth(columns), points)[3]
    return {
        "found": noisy,
        "expected": exact + found.noise**2 * trace,
        "simplex": squared_error(mixture, points, found.weights),
    }


def cells() -> list[Cell]:
    """List the cells."""
    made = []
    for columns in DIMENSIONS:
        made.append(Cell(spectrum_cell(columns), 10, functools.partial(spectrum, columns)))
        made.append(Cell(f"{LOCAL_CELL} D={columns}", 20, functools.partial(through_local, columns)))
        made += [Cell(fitted_cell(columns, n), 4, functools.partial(fitted, columns, n)) for n in UNITS]
        made.append(Cell(swept_cell(columns), 20, functools.partial(swept, columns)))
    return made


if __name__ == "__main__":
    main(__doc__, "database-release", cells(), text, draw)
