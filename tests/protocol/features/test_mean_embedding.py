"""Embeddings at locations and frequencies: their definition, also where ill-conditioned, and their choice."""

import math
from typing import Any, Literal

import mpmath
import numpy as np
import pytest
from definitions import Rows, distance, gram, random_rows
from mpmath import mpf
from scipy.spatial.distance import pdist

from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.features import kernels
from tacit_protocol.features.kernels import EVALUATION_ERROR, ProductKernel
from tacit_protocol.features.mean_embedding import (
    FINE_SLACK,
    RIDGES,
    Locations,
    Ridge,
    SmoothCharacteristic,
    WhitenedMeanEmbedding,
    draw_frequencies,
    draw_locations,
    encode_locations,
    median_distance,
    windowed_diameter,
)

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


def whitened(kernel: ProductKernel, locations: Rows, ridge: Ridge = "coarse") -> WhitenedMeanEmbedding:
    return WhitenedMeanEmbedding(kernel, Locations(locations.numeric, locations.categorical), ridge)


def evaluation_error(kernel: ProductKernel, locations: Rows, rows: Rows, ridge: Ridge = "coarse") -> float:
    """Largest distance of computed features from W k_x, W being the float64 whitener taken as exact."""
    features = whitened(kernel, locations, ridge)
    exact = gram(kernel, rows, locations) * mpmath.matrix(features.whitener.tolist())
    computed = features(rows)
    return max(distance(computed[i], list(exact[i, :])) for i in range(len(rows)))


def contraction(kernel: ProductKernel, locations: Rows, ridge: Ridge = "coarse") -> float:
    """1 - the largest eigenvalue of W K W': W k_x has norm and distances below k(x, .)'s if it is >= 0."""
    whitener = mpmath.matrix(whitened(kernel, locations, ridge).whitener.tolist())
    product = whitener * gram(kernel, locations, locations) * whitener.T
    return float(1 - max(mpmath.eigsy((product + product.T) / 2, eigvals_only=True)))


ILL_CONDITIONED: list[tuple[Shape, float, int, int, float]] = [
    *(("gaussian", 0.5, 3, 8, apart) for apart in (0.0, 1e-4, 1e-3)),
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


def test_the_expanded_exponent_would_break_the_error_for_narrow_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernels, "EXPANSION_MAX", float("inf"))
    kernel, locations = crowded("gaussian", 0.01, 10, 12, 1e-6)
    assert evaluation_error(kernel, locations, near(locations, 0.01)) > EVALUATION_ERROR


def test_too_little_regularisation_would_break_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, locations = crowded("gaussian", 0.5, 3, 8, 1e-7)
    assert contraction(kernel, locations) > 0.9e-8
    monkeypatch.setitem(RIDGES, "coarse", 1e-17)
    assert contraction(kernel, locations) < -1e-4


@pytest.mark.parametrize(("shape", "bandwidth", "columns", "count", "apart"), ILL_CONDITIONED)
def test_the_fine_ridge_keeps_the_bounds_up_to_its_slack(
    shape: Shape, bandwidth: float, columns: int, count: int, apart: float
) -> None:
    kernel, locations = crowded(shape, bandwidth, columns, count, apart)
    rows = near(locations, bandwidth)
    assert contraction(kernel, locations, "fine") > -FINE_SLACK / 100
    assert evaluation_error(kernel, locations, rows, "fine") < FINE_SLACK / 100
    coarse, fine = whitened(kernel, locations), whitened(kernel, locations, "fine")
    assert fine.diameter == pytest.approx(coarse.diameter * (1 + FINE_SLACK), rel=1e-12)
    assert fine.second_moment_diameter > coarse.second_moment_diameter


def test_too_little_of_the_fine_ridge_would_pass_its_slack(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, locations = crowded("gaussian", 0.5, 3, 8, 1e-7)
    monkeypatch.setitem(RIDGES, "fine", 1e-17)
    assert contraction(kernel, locations, "fine") < -FINE_SLACK


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


FREQUENCIES = 5 * np.random.default_rng(0).standard_normal((4, 3))


def definition(rows: Rows, i: int, window: float | None, scale: mpmath.mpf) -> list[mpmath.mpf]:
    x = [mpf(float(value)) for value in rows.numeric[i]]
    angles = [sum(a * mpf(float(w)) for a, w in zip(x, frequency, strict=True)) for frequency in FREQUENCIES]
    height = mpf(1)
    if window is not None:
        height = mpmath.exp(-sum((a - mpf("0.5")) ** 2 for a in x) / (2 * mpf(window) ** 2))
    return [scale * height * f(a) for f in (mpmath.sin, mpmath.cos) for a in angles]


@pytest.mark.parametrize("window", [None, 0.3, 2.0])
@pytest.mark.parametrize("raw", [False, True])
def test_features_are_those_of_the_definition_sines_then_cosines(window: float | None, raw: bool) -> None:
    rows = random_rows(np.random.default_rng(1), 10, 3)
    features = SmoothCharacteristic(FREQUENCIES, window, raw=raw)
    values = features(rows)
    assert values.shape == (10, 8) == (10, features.dimension)
    scale = mpf(1) if raw else 1 / mpmath.sqrt(4)
    for i in range(10):
        assert distance(values[i], definition(rows, i, window, scale)) <= EVALUATION_ERROR / 10


@pytest.mark.parametrize("window", [0.05, 0.2, 0.5, 3.0])
@pytest.mark.parametrize("frequency", [0.5, 3.0, 40.0])
def test_the_windowed_diameter_bounds_every_pair_of_a_fine_grid_and_is_near_it(
    window: float, frequency: float
) -> None:
    """In one column the search is exhaustive; the bound allows for cells of a 512th of the reach."""
    frequencies = np.array([[frequency], [2.5 * frequency]])
    numeric = np.linspace(0.0, 1.0, 1001)[:, None]
    values = SmoothCharacteristic(frequencies, window)(Rows(numeric, np.zeros((1001, 0), dtype=np.int32)))
    largest = math.sqrt(float(np.max(pdist(values, "sqeuclidean"))))
    bound = windowed_diameter(frequencies, window)
    assert largest <= bound <= 2
    assert largest >= 0.8 * bound


def test_a_window_so_wide_that_it_is_none_has_the_diameter_two() -> None:
    frequencies = np.array([[np.pi]])
    assert windowed_diameter(frequencies, 1e3) == pytest.approx(2, abs=0.02)
    assert SmoothCharacteristic(frequencies).diameter == 2


MIXED = Domain(
    columns=(
        NumericColumn(name="age", lower=0.0, upper=100.0),
        CategoricalColumn(name="sex", levels=("F", "M")),
        NumericColumn(name="dose", lower=-1.0, upper=1.0, missing=1.0),
    )
)


def test_drawn_locations_lie_in_the_domain_and_follow_the_seed() -> None:
    locations, again, other = (draw_locations(MIXED, 500, np.random.default_rng(seed)) for seed in (1, 1, 2))
    assert 0 <= locations.numeric.min() <= locations.numeric.max() <= 1
    assert set(np.unique(locations.categorical)) == {0, 1, 2, 3}
    np.testing.assert_array_equal(locations.numeric, again.numeric)
    assert not np.array_equal(locations.numeric, other.numeric)


def test_public_rows_are_encoded_as_data_are() -> None:
    locations = encode_locations(MIXED, [(25.0, "M", 0.0), (1e9, "other", None), (None, None, -1.0)])
    np.testing.assert_array_equal(locations.numeric, [[0.25, 0.5], [1.0, 1.0], [0.5, 0.0]])
    np.testing.assert_array_equal(locations.categorical, [[1], [2], [3]])


@pytest.mark.parametrize(
    ("row", "reason"),
    [((25.0, "M"), "one value per column"), ((25.0, "M", 0.0, 1.0), "one value per column"),
     (("25", "M", 0.0), "must be a number"), ((25.0, "M", "secret"), "must be a number")],
)  # fmt: skip
def test_rows_that_do_not_fit_are_refused_without_quoting_them(row: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason) as refused:
        encode_locations(MIXED, [row])
    assert "secret" not in str(refused.value)
    assert "25" not in str(refused.value)


def test_the_median_distance_is_that_of_all_pairs_and_one_where_points_coincide() -> None:
    points = np.random.default_rng(3).random((10, 2))
    pairs = [np.linalg.norm(points[i] - points[j]) for i in range(10) for j in range(i)]
    assert median_distance(points) == pytest.approx(np.median(pairs), rel=1e-12)
    for shape in ((1, 2), (5, 2), (0, 3), (4, 0)):
        assert median_distance(np.zeros(shape)) == 1.0


def test_frequencies_are_those_of_the_gaussian_kernel() -> None:
    """E cos(w'(x - y)) = exp(-|x - y|^2 / (2 h^2)), to six standard errors."""
    frequencies = draw_frequencies(2, 100_000, 0.5, np.random.default_rng(4))
    difference = np.array([0.3, -0.4])
    assert np.cos(frequencies @ difference).mean() == pytest.approx(np.exp(-0.5), abs=6 / np.sqrt(100_000))
