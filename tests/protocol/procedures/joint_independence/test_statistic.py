"""Permuted statistics: the definition's number in every way, and for any workers."""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from tacit_protocol.features.fixed_rank import LEFT_OUT, features_of
from tacit_protocol.features.kernels import EXPANSION_MAX, DistanceKernel, KernelMixture, ProductKernel
from tacit_protocol.features.unit_gram import UnitGram, UnitRows
from tacit_protocol.procedures.joint_independence.plan import PERMUTATIONS_MIN
from tacit_protocol.procedures.permutation import statistic
from tacit_protocol.procedures.permutation.markov import (
    ROUNDINGS_MAX,
    WIDTH_MAX,
    BinnedColumns,
    bins_for,
    roundings,
)
from tacit_protocol.procedures.permutation.statistic import (
    CELL_ERROR,
    FACTOR_ERROR,
    SUMMATION_ROUNDINGS,
    FeatureCells,
    MarkovStatistic,
    PairStatistic,
    Permutations,
    TensorPlan,
    TensorStatistic,
    draw_permutations,
    evaluation_error,
    permuted_statistics,
    units_max,
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


# Sums of kernels of Markov processes over bins of units: the definition's number, within its error.


BINNED_SEED = np.random.SeedSequence(7)


def gram_of(column: Floats, kernel: ProductKernel | KernelMixture | DistanceKernel) -> UnitGram:
    units = len(column)
    return UnitGram(kernel, UnitRows(column[:, None], np.zeros((units, 0), np.int32), np.arange(units + 1)))


def matrices(values: Floats, bandwidth: float | None, permutations: Permutations) -> list[np.typing.NDArray]:
    """Kernel matrices of the permuted columns, in extended precision; of distances without a bandwidth."""
    columns = [
        (column if order is None else column[order]).astype(np.longdouble)
        for column, order in zip(values.T, permutations, strict=True)
    ]
    if bandwidth is None:
        columns = [x - np.longdouble(0.5) for x in columns]
        return [np.abs(x[:, None]) + np.abs(x) - np.abs(x[:, None] - x) for x in columns]
    return [np.exp(-np.abs(x[:, None] - x) / np.longdouble(bandwidth)) for x in columns]


def kernel_of(bandwidth: float | None) -> KernelMixture | DistanceKernel:
    if bandwidth is None:
        return DistanceKernel()
    return KernelMixture((ProductKernel("laplacian", bandwidth),), (1.0,))


def binned_definition(values: Floats, bandwidth: float | None, permutations: Permutations) -> float:
    """T by its definition, in extended precision."""
    found = matrices(values, bandwidth, permutations)
    crossed = math.prod(matrix.mean(axis=1) for matrix in found).mean()
    squared = math.prod(found).mean() - 2 * crossed + math.prod(matrix.mean() for matrix in found)
    return float(np.sqrt(max(squared, np.longdouble(0))))


def columns_of(name: str, units: int, variables: int) -> Floats:
    rng = np.random.default_rng(8)
    smooth = np.clip(0.5 + 0.15 * rng.standard_normal((units, variables)), 0, 1)
    kinds = {
        "smooth": smooth,
        "ties": np.round(smooth * 20) / 20,
        "constant": np.full((units, variables), 0.3),
        "in the middle": np.full((units, variables), 0.5),
        "at both sides of the middle": 0.5 + 1e-15 * rng.integers(-2, 3, (units, variables)),
        "one constant": np.concatenate([smooth[:, 1:], np.full((units, 1), 0.7)], axis=1),
        "at the ends": np.asarray(rng.integers(0, 2, (units, variables)), dtype=np.float64),
        "clusters": np.round(smooth * 6) / 6 + 1e-12 * smooth,
        "one unit apart by little": np.full((units, variables), 0.5)
        + 1e-4 * (np.arange(units) == 3)[:, None],
    }
    return kinds[name]


KINDS = (
    "smooth",
    "ties",
    "constant",
    "in the middle",
    "at both sides of the middle",
    "one constant",
    "at the ends",
    "clusters",
    "one unit apart by little",
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bandwidth", [None, 0.001, 0.12, 50.0])
@pytest.mark.parametrize(("units", "variables", "bins"), [(97, 2, 16), (300, 2, 64), (60, 3, 8), (45, 4, 4)])
def test_sums_and_statistics_are_those_of_the_definition(
    kind: str, bandwidth: float | None, units: int, variables: int, bins: int
) -> None:
    values = columns_of(kind, units, variables)
    columns = [(column.copy(), bandwidth) for column in values.T]
    kernel = kernel_of(bandwidth)
    path, binned = MarkovStatistic(columns, bins), BinnedColumns(columns, bins)
    allowed = evaluation_error(units, variables, kernel.error(1))
    orders = [draw_permutations(BINNED_SEED, index, variables, units) for index in range(3)]
    for order, total, found in zip(orders, binned.product_sums(orders), path(orders), strict=True):
        mean = float(math.prod(matrices(values, bandwidth, order)).mean())
        # Every column's kernel error, that of a factor instead of the bins', and a sum's 45 roundings.
        entry = variables * kernel.error(1) + FACTOR_ERROR + 45 * 2.0**-53
        assert abs(total / units**2 - mean) <= entry
        assert abs(found - binned_definition(values, bandwidth, order)) < allowed


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bandwidth", [None, 1e-6, 0.12, 1e6])
@pytest.mark.parametrize("bins", [1, 4, 16, 64])
def test_row_means_are_those_of_all_pairs(kind: str, bandwidth: float | None, bins: int) -> None:
    """86 roundings of the sum and the quotient, and the kernel's own error."""
    values = columns_of(kind, 97, 2)
    found = BinnedColumns([(column.copy(), bandwidth) for column in values.T], bins).row_means()
    exact = [matrix.mean(axis=1) for matrix in matrices(values, bandwidth, [None, None])]
    allowed = kernel_of(bandwidth).error(1) + 86 * 2.0**-53
    assert np.abs(found - exact).max() <= allowed


@pytest.mark.parametrize(("units", "bins"), [(1, 4), (2, 4), (3, 256), (8, 4), (9, 4), (257, 256)])
def test_any_number_of_units_is_cut_into_bins(units: int, bins: int) -> None:
    values = columns_of("smooth", max(units, 4), 2)[:units]
    order: Permutations = [None, np.arange(units)[::-1].copy()]
    (found,) = BinnedColumns([(column, 0.1) for column in values.T], bins).product_sums([order])
    assert found == pytest.approx(float(math.prod(matrices(values, 0.1, order)).sum()), rel=1e-13)


def test_bins_take_no_more_roundings_than_a_factor_may_miss() -> None:
    assert ROUNDINGS_MAX * 2.0**-53 < 4 * FACTOR_ERROR
    for variables in range(2, 9):
        for units in np.geomspace(2, units_max(variables, PERMUTATIONS_MIN), 100).astype(int).tolist():
            bins, nanoseconds = bins_for(units, variables)
            if math.isfinite(nanoseconds):
                assert roundings(units, variables, bins) <= ROUNDINGS_MAX * variables
    assert all(math.isfinite(bins_for(units, 2)[1]) for units in (10, 1000, 100_000, units_max(2, 99)))
    assert math.isinf(bins_for(200_000, 6)[1])  # so few bins that running sums would be long
    assert math.isinf(bins_for(1000, 12)[1])  # no table fits


@pytest.mark.parametrize("many", [WIDTH_MAX - 2, 3000])
def test_a_cell_of_many_units_adds_no_more_roundings_than_stated(many: int) -> None:
    """Two bins of equal weights, none of them 1, whose running sum rounds to the same side each time."""
    column = np.concatenate([[0.0], np.full(many, 0.011), [0.02, 0.04], np.full(many, 0.051), [0.06]])
    binned = BinnedColumns([(column, 0.05), (column, 0.07)], 2)
    (found,) = binned.product_sums([[None, None]])
    places, counts = np.unique(column, return_counts=True)
    rate = 1 / np.longdouble(0.05) + 1 / np.longdouble(0.07)
    kernel = np.exp(-np.abs(places[:, None] - places).astype(np.longdouble) * rate)
    expected = counts @ kernel @ counts
    assert abs(found / expected - 1) < (80 + 80 + 45) * 2.0**-53


def chosen(grams: Sequence[UnitGram]) -> str:
    return type(statistic._statistic(grams, statistic.ONE_WORKER, lambda _: None)).__name__


def test_bins_are_taken_for_single_columns_alone_whatever_their_values() -> None:
    values = columns_of("smooth", 1500, 2)
    laplacian, gaussian = ProductKernel("laplacian", 0.12), ProductKernel("gaussian", 0.01)
    one, other = (gram_of(column.copy(), laplacian) for column in values.T)
    assert chosen([one, other]) == "MarkovStatistic"
    assert chosen([one, gram_of(values[:, 1].copy(), gaussian)]) != "MarkovStatistic"
    mixture = KernelMixture((laplacian, ProductKernel("laplacian", 0.3)), (0.5, 0.5))
    assert gram_of(values[:, 0].copy(), mixture).markov is None
    rows = UnitRows(values, np.zeros((1500, 1), np.int32), np.arange(1501))
    for numeric, categorical in (((0, 1), ()), ((0,), (0,)), ((), (0,))):
        for kernel in (laplacian, DistanceKernel()):
            assert UnitGram(kernel, rows.columns(numeric, categorical)).markov is None
    pairs = UnitRows(values, np.zeros((1500, 0), np.int32), np.arange(0, 1501, 2))
    assert UnitGram(laplacian, pairs.columns([0], []), several_rows=True).markov is None
    for kernel in (laplacian, DistanceKernel()):
        for column in (values[:, 0], np.round(values[:, 0] * 5) / 5, np.full(1500, 0.5)):
            assert chosen([gram_of(column, kernel), gram_of(column, kernel)]) == "MarkovStatistic"


@pytest.mark.parametrize("bandwidth", [None, 0.12])
@pytest.mark.parametrize("kind", ["smooth", "ties"])
def test_statistics_are_those_of_all_pairs(bandwidth: float | None, kind: str) -> None:
    values = columns_of(kind, 700, 3)
    kernel = kernel_of(bandwidth)
    grams = [gram_of(column.copy(), kernel) for column in values.T]
    bins, _ = bins_for(700, 3)
    columns = [(column.copy(), bandwidth) for column in values.T]
    orders = [draw_permutations(BINNED_SEED, index, 3, 700) for index in range(5)]
    found = MarkovStatistic(columns, bins)(orders)
    assert np.allclose(found, statistic.PairStatistic(grams, held=True)(orders), rtol=0, atol=1e-12)
    assert np.allclose(found, permuted_statistics(grams, 4, BINNED_SEED), rtol=0, atol=1e-12)
