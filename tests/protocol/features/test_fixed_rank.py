"""Features of a fixed rank: what they leave out of a kernel value is bounded, whatever the rows."""

import itertools
import math

import numpy as np
import pytest

from tacit_protocol.features import fixed_rank
from tacit_protocol.features.fixed_rank import LEFT_OUT, RANK_MAX, SmoothColumn, features_of
from tacit_protocol.features.kernels import DistanceKernel, KernelMixture, LinearKernel, ProductKernel
from tacit_protocol.features.unit_gram import UnitRows
from tacit_protocol.procedures.permutation.statistic import CELL_ERROR, FACTOR_ERROR

Floats = np.typing.NDArray[np.float64]

ROUNDED = FACTOR_ERROR - LEFT_OUT - 1e-14
"""What rounding may add; the last 1e-14 is room for cells (test_statistic.py)."""


def gaussian(*bandwidths: float, similarity: float = 0.0) -> KernelMixture:
    kernels = tuple(ProductKernel("gaussian", bandwidth, similarity) for bandwidth in bandwidths)
    return KernelMixture(kernels, (1 / len(kernels),) * len(kernels))


def rows_of(numeric: int, categories: tuple[int, ...], count: int = 700) -> UnitRows:
    """Rows anywhere, at corners, at codes of every kind, and close to each other."""
    rng = np.random.default_rng(1)
    values = rng.random((count, numeric))
    values[: count // 4] = rng.integers(0, 2, (count // 4, numeric))
    values[count // 4 : count // 2] = 0.5 + 1e-9 * values[count // 4 : count // 2]
    codes = np.stack([rng.integers(0, each, count) for each in categories], axis=1) if categories else None
    table = np.zeros((count, 0)) if codes is None else codes
    return UnitRows(values, table.astype(np.int32), np.arange(count + 1))


def exact(kernel: KernelMixture, rows: UnitRows) -> np.typing.NDArray[np.longdouble]:
    x = rows.numeric.astype(np.longdouble)
    squared = np.square(x[:, None] - x).sum(axis=2)
    unlike = (rows.categorical[:, None] != rows.categorical).sum(axis=2)
    found = np.zeros(squared.shape, np.longdouble)
    for each, weight in zip(kernel.kernels, kernel.weights, strict=True):
        value = np.exp(-squared / (2 * np.longdouble(each.bandwidth) ** 2))
        found += weight * value * np.longdouble(each.similarity) ** unlike
    return found


CASES = [
    (gaussian(0.12), 1, ()),
    (gaussian(0.02), 1, ()),
    (gaussian(0.5), 1, ()),
    (gaussian(1e6), 1, ()),
    (gaussian(0.05, 0.1, 0.2), 1, ()),
    (gaussian(0.2, similarity=0.3), 1, (3,)),
    (gaussian(0.3, similarity=1 - 1e-16), 0, (5, 4)),
    (gaussian(0.12 * math.sqrt(2)), 2, ()),
    (gaussian(2.0), 3, ()),
    (gaussian(0.5, 1.0), 2, (2,)),
]


@pytest.mark.parametrize(("kernel", "numeric", "categories"), CASES)
def test_inner_products_are_kernel_values(
    kernel: KernelMixture, numeric: int, categories: tuple[int, ...]
) -> None:
    """Of every pair of rows, in extended precision."""
    rows, features = rows_of(numeric, categories), features_of(kernel, numeric, categories)
    assert features is not None
    found = features(rows).astype(np.longdouble)
    assert found.shape == (700, features.dimension)
    assert np.abs(found @ found.T - exact(kernel, rows)).max() <= LEFT_OUT + ROUNDED


@pytest.mark.parametrize("bandwidth", [0.03, 0.12, 0.45])
def test_no_place_is_left_out_by_more_than_stated(bandwidth: float) -> None:
    """What is left out is largest of a row with itself: between public points, and at the ends."""
    column = SmoothColumn.of(gaussian(bandwidth), LEFT_OUT)
    assert column is not None
    places = np.concatenate([np.linspace(0, 1, 50_001), np.geomspace(1e-9, 1e-2, 500)])
    missed = 1 - np.square(column(places).astype(np.longdouble)).sum(axis=1)
    assert np.abs(missed).max() <= LEFT_OUT + ROUNDED
    # It is the bound, and not rounding, that the rank follows.
    assert np.abs(missed).max() > LEFT_OUT / 100


def test_too_few_public_points_would_be_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as the rank, and the same search finds what they miss between them."""
    points = fixed_rank._points(0.12)
    assert points is not None
    count = 24
    few = 0.5 + 0.5 * np.cos(np.pi * (np.arange(count) + 0.5) / count)
    monkeypatch.setattr(fixed_rank, "_points", lambda _: few)
    column = SmoothColumn.of(gaussian(0.12), LEFT_OUT)
    assert column is not None
    found = column(np.linspace(0, 1, 50_001)).astype(np.longdouble)
    assert np.abs(1 - np.square(found).sum(axis=1)).max() > 2 * FACTOR_ERROR


@pytest.mark.parametrize("number", [8, 32, 128])
def test_directions_of_cells_miss_features_by_no_more_than_asked(number: int) -> None:
    column = SmoothColumn.of(gaussian(0.12), LEFT_OUT)
    assert column is not None
    directions = column.cells(number, CELL_ERROR)
    assert directions is not None
    values = np.concatenate([np.linspace(0, 1, 4001), np.arange(number) / number])
    found, own = column(values), directions.each[directions.places(values)]
    missed = found - np.einsum("nrk,nsk,ns->nr", own, own, found)
    assert np.linalg.norm(missed, axis=1).max() <= CELL_ERROR
    assert directions.each.shape[2] < 15


@pytest.mark.parametrize(("numeric", "categories"), [(3, ()), (0, (4,)), (2, (3, 20, 30))])
def test_coordinates_are_features_of_the_linear_kernel(numeric: int, categories: tuple[int, ...]) -> None:
    rows, features = rows_of(numeric, categories), features_of(LinearKernel(), numeric, categories)
    assert features is not None
    found = features(rows)
    assert np.abs(found @ found.T - LinearKernel().gram(rows, rows)).max() < 1e-14
    if not numeric:
        assert np.abs(found @ found.T - DistanceKernel().gram(rows, rows)).max() < 1e-14


def test_kernels_without_a_low_rank_have_no_features() -> None:
    laplacian = KernelMixture((ProductKernel("laplacian", 0.2),), (1.0,))
    none = [(DistanceKernel(), 1, ()), (laplacian, 1, ()), (gaussian(1e-3), 1, ()), (gaussian(0.2), 3, ())]
    none += [(gaussian(0.1), 0, (30, 30)), (LinearKernel(), 0, (RANK_MAX + 1,))]
    assert [features_of(*case) for case in none] == [None] * len(none)
    assert features_of(laplacian, 0, (7,)) is not None


def test_products_that_go_are_together_as_small_as_asked() -> None:
    squares = [np.geomspace(1, 1e-8, 20), np.geomspace(1, 1e-9, 15), np.array([0.5, 0.1])]
    kept = fixed_rank._kept(squares, 1e-6)
    assert kept is not None
    stay = {tuple(index) for index in kept.tolist()}
    sizes = {
        index: math.prod(own[place] for own, place in zip(squares, index, strict=True))
        for index in itertools.product(range(20), range(15), range(2))
    }
    gone = math.fsum(size for index, size in sizes.items() if index not in stay)
    assert 0 < gone <= 1e-6
    assert len(stay) == len(kept) < len(sizes) / 2
