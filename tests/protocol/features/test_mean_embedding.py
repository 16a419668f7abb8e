"""Mean-embedding features against their definition, also where the Gram matrix is nearly singular."""

import itertools
from typing import Literal

import mpmath
import numpy as np
import pytest
from definitions import Rows, distance, gram, random_rows
from mpmath import mpf

from tacit_protocol.features import kernels, mean_embedding
from tacit_protocol.features.base import EVALUATION_ERROR
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import Locations, RawMeanEmbedding, WhitenedMeanEmbedding

Shape = Literal["gaussian", "laplacian"]


def crowded(
    shape: Shape, bandwidth: float, columns: int, count: int, apart: float
) -> tuple[ProductKernel, Rows]:
    """Half of the locations lie ``apart`` from the other half, so that the Gram matrix is nearly singular."""
    rng = np.random.default_rng(count)
    numeric = rng.random((count, columns))
    numeric[count // 2 :] = numeric[: count - count // 2]
    numeric[count // 2 :] += apart * rng.standard_normal((count - count // 2, columns))
    return ProductKernel(shape, bandwidth), Rows(np.clip(numeric, 0, 1), np.zeros((count, 0), np.int32))


def near(locations: Rows, bandwidth: float) -> Rows:
    """Rows at locations, close to them and anywhere."""
    rng = np.random.default_rng(1)
    columns = locations.numeric.shape[1]
    close = locations.numeric[:3] + bandwidth * rng.standard_normal((3, columns))
    numeric = np.vstack([locations.numeric[-3:], np.clip(close, 0, 1), rng.random((2, columns))])
    return Rows(numeric, np.zeros((len(numeric), 0), np.int32))


def whitened(kernel: ProductKernel, locations: Rows) -> WhitenedMeanEmbedding:
    return WhitenedMeanEmbedding(kernel, Locations(locations.numeric, locations.categorical))


def evaluation_error(kernel: ProductKernel, locations: Rows, rows: Rows) -> float:
    """Largest distance of computed features from W k_x, W being the float64 whitener taken as exact."""
    features = whitened(kernel, locations)
    exact = gram(kernel, rows, locations) * mpmath.matrix(features._whitener.tolist())
    computed = features(rows)
    return max(distance(computed[i], list(exact[i, :])) for i in range(len(rows)))


def contraction(kernel: ProductKernel, locations: Rows) -> float:
    """1 - the largest eigenvalue of W K W': W k_x has norm and distances below k(x, .)'s if it is >= 0."""
    whitener = mpmath.matrix(whitened(kernel, locations)._whitener.tolist())
    product = whitener * gram(kernel, locations, locations) * whitener.T
    return float(1 - max(mpmath.eigsy((product + product.T) / 2, eigvals_only=True)))


ILL_CONDITIONED: list[tuple[Shape, float, int, int, float]] = [
    ("gaussian", 0.5, 3, 8, 0.0),
    ("gaussian", 0.5, 3, 8, 1e-4),
    ("gaussian", 0.5, 3, 8, 1e-3),
    ("gaussian", 5.0, 3, 8, 1e-3),
    ("gaussian", 1e3, 3, 8, 1e-3),
    ("gaussian", 0.05, 10, 12, 1e-6),
    ("gaussian", 0.01, 10, 12, 1e-6),
    ("gaussian", 0.4, 10, 12, 1e-5),
    ("gaussian", 3.0, 50, 16, 1e-3),
    ("laplacian", 1.0, 3, 12, 1e-8),
    ("laplacian", 100.0, 3, 12, 1e-6),
]


@pytest.mark.parametrize(("shape", "bandwidth", "columns", "count", "apart"), ILL_CONDITIONED)
def test_the_evaluation_error_holds_for_crowded_locations(
    shape: Shape, bandwidth: float, columns: int, count: int, apart: float
) -> None:
    kernel, locations = crowded(shape, bandwidth, columns, count, apart)
    assert evaluation_error(kernel, locations, near(locations, bandwidth)) <= EVALUATION_ERROR / 10
    assert contraction(kernel, locations) > 0.9e-8


def test_many_locations_are_evaluated_within_the_error() -> None:
    kernel, locations = crowded("gaussian", 0.6, 5, 120, 1e-4)
    assert evaluation_error(kernel, locations, near(locations, 0.6)) <= EVALUATION_ERROR / 10


def test_the_expanded_exponent_would_break_the_error_for_narrow_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels, "EXPANSION_MAX", float("inf"))
    kernel, locations = crowded("gaussian", 0.01, 10, 12, 1e-6)
    assert evaluation_error(kernel, locations, near(locations, 0.01)) > EVALUATION_ERROR


def test_too_little_regularisation_would_break_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, locations = crowded("gaussian", 0.5, 3, 8, 1e-7)
    assert contraction(kernel, locations) > 0.9e-8
    monkeypatch.setattr(mean_embedding, "REGULARISATION_PER_LOCATION", 1e-17)
    assert contraction(kernel, locations) < -1e-4


def test_features_are_those_of_the_definition() -> None:
    """Where locations are well apart, the definition itself is met, not only a map with the same bounds."""
    rng = np.random.default_rng(4)
    kernel = ProductKernel("gaussian", 0.4, 0.3)
    locations, rows = random_rows(rng, 9, 2, (3, 4)), random_rows(rng, 6, 2, (3, 4))
    eigenvalues, vectors = mpmath.eigsy(gram(kernel, locations, locations))
    regularised = [1 / mpmath.sqrt(value + 9 * mpf("1e-8")) for value in eigenvalues]
    exact = gram(kernel, rows, locations) * (vectors * mpmath.diag(regularised) * vectors.T)
    computed = whitened(kernel, locations)(rows)
    assert computed.shape == (6, 9)
    for i in range(6):
        assert distance(computed[i], list(exact[i, :])) <= 1e-10


@pytest.mark.parametrize("shape", ["gaussian", "laplacian"])
@pytest.mark.parametrize("count", [1, 5, 60])
def test_whitened_features_stay_within_the_kernels_distances(shape: Shape, count: int) -> None:
    rng = np.random.default_rng(count)
    kernel = ProductKernel(shape, 0.5, 0.2)
    locations, rows = random_rows(rng, count, 3, (3,)), random_rows(rng, 200, 3, (3,))
    features = whitened(kernel, locations)
    values = features(rows)
    assert (np.linalg.norm(values, axis=1) <= 1 + EVALUATION_ERROR).all()
    allowed = np.sqrt(np.maximum(2 - 2 * kernel.gram(rows, rows), 0)) + 2 * EVALUATION_ERROR + 2e-8
    moved = np.linalg.norm(values[:, None, :] - values[None, :, :], axis=2)
    assert (moved <= allowed).all()
    assert features.dimension == count


def test_raw_features_are_the_kernels_values_at_the_locations_in_order() -> None:
    rng = np.random.default_rng(5)
    kernel = ProductKernel("laplacian", 0.6, 0.5)
    locations, rows = random_rows(rng, 7, 2, (3,)), random_rows(rng, 5, 2, (3,))
    features = RawMeanEmbedding(kernel, Locations(locations.numeric, locations.categorical))
    exact, values = gram(kernel, rows, locations), features(rows)
    for i, j in itertools.product(range(5), range(7)):
        assert values[i, j] == pytest.approx(float(exact[i, j]), abs=1e-14)
    assert (features.norm, features.diameter) == (np.sqrt(7), np.sqrt(7))
    assert features.second_moment_diameter == 7
