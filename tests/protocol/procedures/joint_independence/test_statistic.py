"""Permuted statistics: the definition's number in all three ways, and for any workers."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from tacit_protocol.features.fixed_rank import LEFT_OUT, features_of
from tacit_protocol.features.kernels import EXPANSION_MAX, KernelMixture, ProductKernel
from tacit_protocol.features.unit_gram import UnitGram, UnitRows
from tacit_protocol.procedures.permutation import statistic
from tacit_protocol.procedures.permutation.statistic import (
    CELL_ERROR,
    SUMMATION_ROUNDINGS,
    FeatureCells,
    PairStatistic,
    TensorPlan,
    TensorStatistic,
    draw_permutations,
    evaluation_error,
    permuted_statistics,
)

Floats = np.typing.NDArray[np.float64]
SEED = np.random.SeedSequence(5)


def grams_of(
    values: Floats, kernel: ProductKernel | None = None, codes: Floats | None = None
) -> list[UnitGram]:
    """One variable for each column of (units, columns); ``codes`` adds categorical ones."""
    units = len(values)
    codes = np.zeros((units, 0)) if codes is None else codes
    rows = UnitRows(values, codes.astype(np.int32), np.arange(units + 1))
    picked = [rows.columns([j], []) for j in range(values.shape[1])]
    picked += [rows.columns([], [j]) for j in range(codes.shape[1])]
    chosen = kernel or ProductKernel("gaussian", 0.15)
    features = [features_of(chosen, 1, ())] * values.shape[1]
    features += [features_of(chosen, 0, (int(column.max()) + 1,)) for column in codes.T]
    return [UnitGram(chosen, variable, own) for variable, own in zip(picked, features, strict=True)]


def definition(values: Floats, bandwidth: float, orders: Sequence[np.typing.NDArray[np.int64]]) -> float:
    """T by its definition, with Gaussian kernels, in extended precision."""
    product, crossed, means = np.longdouble(1), np.longdouble(1), np.longdouble(1)
    for column, order in zip(values.T, orders, strict=True):
        x = column[order].astype(np.longdouble)
        matrix = np.exp(-((x[:, None] - x[None, :]) ** 2) / (2 * np.longdouble(bandwidth) ** 2))
        product = product * matrix
        crossed = crossed * matrix.mean(axis=1)
        means = means * matrix.mean()
    squared = product.mean() - 2 * crossed.mean() + means
    return float(np.sqrt(max(squared, np.longdouble(0))))


def orders_of(index: int, variables: int, units: int) -> list[np.typing.NDArray[np.int64]]:
    drawn = draw_permutations(SEED, index, variables, units)
    return [np.arange(units) if order is None else order for order in drawn]


ROUNDED = 2e-14
"""What rounding adds to what features leave out: test_fixed_rank.py looks for more."""


def data(units: int, variables: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return np.asarray(np.clip(0.5 + 0.15 * rng.standard_normal((units, variables)), 0, 1))


PATHS = ("tensor", "held", "tiles")


def take(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let one of the three ways be taken, in small pieces."""
    if path != "tensor":
        monkeypatch.setattr(statistic, "replicate_ns", lambda _: -1.0)
        monkeypatch.setattr(statistic, "holding_pays", lambda _: path == "held")
    else:
        monkeypatch.setattr(statistic, "replicate_ns", lambda _: math.inf)
    monkeypatch.setattr(statistic, "STRIP_ENTRIES", 300)
    monkeypatch.setattr(statistic, "FILL_ENTRIES", 700)
    monkeypatch.setattr(statistic, "ITEM_ENTRIES", 1700)
    monkeypatch.setattr(statistic, "TILE_ROWS", 7)
    monkeypatch.setattr(statistic, "TILE_COLUMNS", 17)
    monkeypatch.setattr(statistic, "TENSOR_BLOCK_ENTRIES", 3000)


@pytest.mark.parametrize("variables", [2, 3, 4, 5])
@pytest.mark.parametrize("path", [*PATHS, "chosen"])
def test_statistics_are_those_of_the_definition(
    variables: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path != "chosen":
        take(path, monkeypatch)
    values = data(60, variables)[:, :variables]
    values[:, 0] = 0.5 * values[:, 0] + 0.5 * values[:, 1]
    bandwidth = 0.8 if variables > 3 else 0.15
    found = permuted_statistics(grams_of(values, ProductKernel("gaussian", bandwidth)), 6, SEED)
    expected = [definition(values, bandwidth, orders_of(b, variables, 60)) for b in range(7)]
    assert np.abs(found - expected).max() < 1e-9
    assert found[0] != found[1]


def several_rows(units: int) -> UnitRows:
    """Units of one to four rows, in two numeric columns and a categorical one."""
    rng = np.random.default_rng(6)
    starts = np.concatenate([[0], np.cumsum(rng.integers(1, 5, units))])
    codes = rng.integers(0, 3, (starts[-1], 1)).astype(np.int32)
    return UnitRows(rng.random((starts[-1], 2)), codes, starts)


@pytest.mark.parametrize("path", ["held", "tiles"])
def test_units_of_several_rows_are_averages_in_tiles_too(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = several_rows(50)
    kernel = KernelMixture((ProductKernel("laplacian", 0.2), ProductKernel("gaussian", 0.7, 0.3)), (0.4, 0.6))
    grams = [UnitGram(kernel, rows.columns(*place), several_rows=True) for place in (([0], []), ([1], [0]))]
    one, other = (gram.rows(0, 50).copy() for gram in grams)
    take(path, monkeypatch)
    found = permuted_statistics(grams, 4, SEED)
    for b, value in enumerate(found):
        order = orders_of(b, 2, 50)[1]
        permuted = other[np.ix_(order, order)]
        squared = (one * permuted).mean() - 2 * (one.mean(1) * permuted.mean(1)).mean()
        assert value == pytest.approx(math.sqrt(squared + one.mean() * permuted.mean()), abs=1e-9)


def kernel_error(bandwidth: float) -> float:
    return KernelMixture((ProductKernel("gaussian", bandwidth),), (1.0,)).error(1)


def near_zero() -> dict[str, Floats]:
    """Data whose T is 0 or nearly: where an error in T^2 counts most."""
    grid = np.array(np.meshgrid(np.linspace(0, 1, 12), np.linspace(0, 1, 12))).reshape(2, -1).T
    return {
        "product": grid,
        "nearly a product": grid + 1e-9 * data(144, 2),
        "one unit apart by little": np.concatenate([np.full((500, 2), 0.5), [[0.5 + 1e-4, 0.5 + 1e-4]]]),
        "constant": np.full((300, 2), 0.3),
        "one constant": np.stack([data(200, 1)[:, 0], np.full(200, 0.7)], axis=1),
        "clusters": np.repeat(grid[:40], 20, axis=0) + 1e-12 * data(800, 2),
    }


@pytest.mark.sweep(6)
@pytest.mark.parametrize("name", near_zero())
@pytest.mark.parametrize("bandwidth", [0.01, 0.13, 0.5, 1000.0])
def test_the_evaluation_error_holds_near_zero(name: str, bandwidth: float) -> None:
    values = near_zero()[name]
    units = len(values)
    grams = grams_of(values, ProductKernel("gaussian", bandwidth))
    paths: list[TensorStatistic | PairStatistic] = [PairStatistic(grams, held) for held in (True, False)]
    if grams[0].features is not None:
        paths.append(TensorStatistic([gram.factor() for gram in grams], (0,)))
    for index in range(3):
        orders = orders_of(index, 2, units)
        exact = definition(values, bandwidth, orders)
        for path in paths:
            (found,) = path([[None, orders[1]]])
            assert abs(found - exact) < evaluation_error(units, 2, kernel_error(bandwidth))


def test_a_kernel_less_accurate_than_stated_passes_the_evaluation_error() -> None:
    """Errors of 3e-11 in a constant variable that look like the other variable's two clusters."""

    class Inaccurate(UnitGram):
        def tile(self, start: int, stop: int, left: int, right: int) -> Floats:
            alike = np.add.outer(np.arange(start, stop), np.arange(left, right)) % 2 == 0
            return np.asarray(super().tile(start, stop, left, right) + 3e-11 * alike)

    values = np.stack([np.arange(200) % 2, np.full(200, 0.3)], axis=1)
    clusters, constant = grams_of(values, ProductKernel("gaussian", 0.02))
    inaccurate = Inaccurate(constant._kernel, constant._rows)
    allowed = evaluation_error(200, 2, kernel_error(0.02))
    for held in (True, False):
        assert PairStatistic([clusters, constant], held)([[None, None]])[0] < allowed
        assert PairStatistic([clusters, inaccurate], held)([[None, None]])[0] > allowed


class Given:
    """A matrix of given values, of which the exact statistic can be computed in fractions."""

    entry_ns = 1.0

    def __init__(self, values: Floats) -> None:
        self._values = values
        self.size = len(values)

    def rows(self, start: int, stop: int) -> Floats:
        return self._values[start:stop].copy()

    def tile(self, start: int, stop: int, left: int, right: int) -> Floats:
        return self._values[start:stop, left:right].copy()

    def reordered(self, order: np.typing.NDArray[np.int64]) -> "Given":
        return Given(self._values[np.ix_(order, order)])


def exact_squared(matrices: Sequence[Floats]) -> Fraction:
    """T^2 of given matrices without any rounding."""
    units = len(matrices[0])
    whole = [np.array([[Fraction(v) for v in row] for row in m.tolist()], dtype=object) for m in matrices]
    means = [m.sum(axis=1) / units for m in whole]
    products = math.prod(whole[1:], start=whole[0]).sum() / units**2
    crossed = math.prod(means[1:], start=means[0]).sum() / units
    return Fraction(products - 2 * crossed + math.prod(m.sum() / units for m in means))


ROUGH = {
    "a third": lambda i, j, v: np.full((len(i), len(i)), 1 / 3),
    "just below one": lambda i, j, v: np.where(i == j, 1.0, 1 - 2.0**-53 * (1 + v)),
    "alternating": lambda i, j, v: np.where((i + j) % 2 == 0, 1.0, 2.0**-30 / 3),
    "all sizes": lambda i, j, v: np.where(i == j, 1.0, 2.0 ** -((i + j) % (60 + v))),
}
"""Symmetric matrices of values in [0, 1] whose sums round as badly as we could think of."""


def rough(name: str, variables: int, units: int) -> list[Floats]:
    i, j = np.meshgrid(np.arange(units), np.arange(units), indexing="ij")
    return [np.asarray(ROUGH[name](i, j, v), dtype=np.float64) for v in range(variables)]


@pytest.mark.parametrize("name", ROUGH)
@pytest.mark.parametrize("variables", [2, 5])
def test_summation_takes_no_more_roundings_than_stated(name: str, variables: int) -> None:
    """Against fractions: T^2 itself, which the root hides."""
    matrices = rough(name, variables, 90)
    exact = float(exact_squared(matrices))
    allowed = (SUMMATION_ROUNDINGS[0] + SUMMATION_ROUNDINGS[1] * variables) * 2.0**-53
    for held in (True, False):
        statistic = PairStatistic([Given(matrix) for matrix in matrices], held)
        (found,) = statistic([[None] * variables])
        # The root and its square add two roundings.
        assert abs(found**2 - exact) <= allowed + 2 * 2.0**-53 * exact


@pytest.mark.parametrize("value", [1 / 3, 1 - 2.0**-53, 0.7])
def test_sums_of_many_equal_values_take_no_more_roundings_than_stated(value: float) -> None:
    """T is 0, and one value after the other would round to the same side a million times."""
    allowed = math.sqrt((SUMMATION_ROUNDINGS[0] + SUMMATION_ROUNDINGS[1] * 2) * 2.0**-53)
    constant = Given(np.full((1200, 1200), value))
    for held in (True, False):
        assert PairStatistic([constant, constant], held)([[None, None]])[0] <= allowed


def three_variables() -> list[UnitGram]:
    values = data(600, 3)
    values[:, 1] = 0.5 * values[:, 0] + 0.5 * values[:, 1]
    return grams_of(values)


def apart(number: int, error: float) -> float:
    """How far statistics in cells are from those of all units together."""
    grams = three_variables()
    factors, column = [gram.factor() for gram in grams], grams[0].column
    assert grams[0].features is not None
    assert column is not None
    directions = grams[0].features.cells(number, error)
    assert directions is not None
    cells = FeatureCells.cut(factors[0], column, directions)
    assert sorted(cells.order.tolist()) == list(range(600))
    permuted = [draw_permutations(SEED, index, 3, 600) for index in range(4)]
    differences = np.subtract(
        TensorStatistic(factors, cells=cells)(permuted), TensorStatistic(factors)(permuted)
    )
    return float(np.abs(differences).max())


@pytest.mark.parametrize("step", [1, 1000, 10**6])
@pytest.mark.parametrize("number", [1, 8, 32])
def test_statistics_of_cells_are_those_of_all_units_together(
    number: int, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistic, "TENSOR_BLOCK_ENTRIES", 1000 * step)
    assert apart(number, CELL_ERROR) <= CELL_ERROR


def test_cells_of_fewer_directions_would_err() -> None:
    assert apart(8, 1e-2) > CELL_ERROR


@pytest.mark.parametrize("column", [np.full(300, 0.5), np.linspace(0, 1, 300), np.arange(300) % 2 / 1.0])
def test_as_many_slices_whatever_the_values(column: Floats) -> None:
    features = features_of(ProductKernel("gaussian", 0.15), 1, ())
    assert features is not None
    directions = features.cells(8, CELL_ERROR)
    assert directions is not None
    slices = list(FeatureCells.cut(np.zeros((features.dimension, 300)), column, directions).slices(64))
    assert len(slices) == 8 + 300 // 64
    assert [found[1].start for found in slices] == [0, *(found[1].stop for found in slices[:-1])]
    assert slices[-1][1].stop == 300
    assert sum(first for _, _, first in slices) == 8


def test_cells_are_taken_where_they_pay() -> None:
    def cells(units: int, variables: int, single: bool = True) -> int:
        grams = grams_of(data(10, variables))
        features = [gram.features for gram in grams if gram.features is not None]
        plan = TensorPlan.fastest(features, units, single)
        return 1 if plan.directions is None else len(plan.directions.each)

    assert (cells(300, 3), cells(2000, 2), cells(2000, 3, single=False)) == (1, 1, 1)
    assert cells(2000, 3) > 8


@pytest.mark.parametrize("variables", [3, 4, 12])
def test_the_evaluation_error_has_room_for_cells(variables: int) -> None:
    """Beside what features leave out, with their rounding, of the least accurate kernel values."""
    columns = 1000
    gaussian = ProductKernel("gaussian", math.sqrt(columns / EXPANSION_MAX))
    least = KernelMixture((gaussian,), (1.0,)).error(columns)
    squared = 4 * math.expm1(variables * math.log1p(least + LEFT_OUT + ROUNDED))
    rounding = 4 * (2 + 16 * variables) * 2.0**-53
    room = evaluation_error(2, variables, least) - math.sqrt(squared) - rounding
    assert CELL_ERROR < room < 3 * CELL_ERROR
