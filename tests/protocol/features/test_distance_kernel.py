"""The induced kernel is what the distances say, stays in [0, 1], and makes HSIC the distance covariance."""

import math

import numpy as np
import pytest

from tacit_protocol.domain.table import EncodedChunk
from tacit_protocol.features.kernels import DistanceKernel
from tacit_protocol.features.unit_gram import UnitGram, UnitRows, gather_units
from tacit_protocol.numerics.distance_covariance import distance_covariance_sqr
from tacit_protocol.procedures.joint_independence.statistic import permuted_statistics

Floats = np.typing.NDArray[np.float64]

SHAPES = [(1, 0), (3, 0), (0, 1), (0, 3), (2, 2)]


def rows_of(numeric: int, categorical: int, units: int = 60, seed: int = 0) -> UnitRows:
    """Random rows, with corners of the domain among them."""
    rng = np.random.default_rng(seed)
    numbers = rng.random((units, numeric))
    numbers[: units // 3] = np.rint(numbers[: units // 3])
    codes = rng.integers(0, 3, (units, categorical)).astype(np.int32)
    return UnitRows(numbers, codes, np.arange(units + 1))


def distances(rows: UnitRows) -> Floats:
    """By definition: an average over columns, the numeric ones together."""
    numeric, categorical = rows.numeric.shape[1], rows.categorical.shape[1]
    total = np.zeros((rows.units, rows.units))
    if numeric:
        difference = rows.numeric[:, None] - rows.numeric[None]
        total += numeric * np.sqrt((difference**2).sum(axis=2)) / math.sqrt(numeric)
    total += (rows.categorical[:, None] != rows.categorical[None]).sum(axis=2)
    return np.asarray(total / (numeric + categorical))


@pytest.mark.parametrize(("numeric", "categorical"), SHAPES)
def test_squared_distances_of_features_are_twice_the_distances(numeric: int, categorical: int) -> None:
    rows = rows_of(numeric, categorical)
    gram = DistanceKernel().gram(rows, rows)
    diagonal = np.diag(gram)
    assert np.allclose(diagonal[:, None] + diagonal[None] - 2 * gram, 2 * distances(rows), atol=1e-14)
    assert np.allclose(DistanceKernel().diagonal(rows), diagonal, atol=1e-15)


@pytest.mark.parametrize(("numeric", "categorical"), SHAPES)
def test_values_lie_between_0_and_1(numeric: int, categorical: int) -> None:
    """All that sensitivities of the joint independence test ask of a kernel; 1 is reached at corners."""
    rows = rows_of(numeric, categorical)
    gram = DistanceKernel().gram(rows, rows)
    error = DistanceKernel.error(numeric)
    assert gram.min() >= -error
    assert 1 - error <= gram.max() <= 1 + error
    assert np.linalg.eigvalsh(gram).min() > -1e-12


def test_an_origin_at_a_corner_would_break_the_bound() -> None:
    """With o at a corner k reaches 2, twice what the sensitivities allow for; the test above would notice."""
    rows = rows_of(1, 0)
    between = distances(rows)
    origin = np.abs(rows.numeric[:, 0])
    assert (origin[:, None] + origin[None] - between).max() > 1.99


def test_squared_distances_would_have_negative_kernels() -> None:
    """The triangle inequality is what keeps k from being negative: squares of distances do not have it."""
    x = rows_of(1, 0).numeric[:, 0]
    squared = (x[:, None] - x[None]) ** 2
    assert ((x[:, None] - 0.5) ** 2 + (x[None] - 0.5) ** 2 - squared).min() < -0.4


def test_hsic_of_two_variables_is_the_distance_covariance() -> None:
    rng = np.random.default_rng(3)
    x = rng.random(400)
    y = np.clip((2 * x - 1) ** 2 + 0.1 * rng.standard_normal(400), 0, 1)
    grams = [
        UnitGram(DistanceKernel(), UnitRows(column[:, None], np.zeros((400, 0), np.int32), np.arange(401)))
        for column in (x, y)
    ]
    (statistic,) = permuted_statistics(grams, 0, np.random.SeedSequence(0))
    assert statistic**2 == pytest.approx(distance_covariance_sqr(x, y, "biased"), abs=1e-13)


def test_units_of_several_rows_have_the_diagonal_of_their_averages() -> None:
    """Of the Gaussian kernel single rows have 1; here they do not, and the diagonal must know."""
    rng = np.random.default_rng(4)
    unit = np.repeat(np.arange(10), rng.integers(1, 4, 10))
    chunk = EncodedChunk(rng.random((len(unit), 2)), np.zeros((len(unit), 0), np.int32), unit, 10)
    gram = UnitGram(DistanceKernel(), gather_units([chunk]))
    assert np.allclose(gram.diagonal(), np.diag(gram.rows(0, 10)), atol=1e-15)
    single = UnitGram(DistanceKernel(), rows_of(1, 1))
    assert np.allclose(single.diagonal(), np.diag(single.rows(0, 60)), atol=1e-15)
