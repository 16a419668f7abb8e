"""Sums of kernels of Markov processes over bins of units: the definition's number, within its error."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from tacit_protocol.features.kernels import DistanceKernel, KernelMixture, ProductKernel
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
    FACTOR_ERROR,
    MarkovStatistic,
    Permutations,
    draw_permutations,
    evaluation_error,
    permuted_statistics,
    units_max,
)

Floats = np.typing.NDArray[np.float64]
SEED = np.random.SeedSequence(7)


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


def definition(values: Floats, bandwidth: float | None, permutations: Permutations) -> float:
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
    orders = [draw_permutations(SEED, index, variables, units) for index in range(3)]
    for order, total, found in zip(orders, binned.product_sums(orders), path(orders), strict=True):
        mean = float(math.prod(matrices(values, bandwidth, order)).mean())
        # Every column's kernel error, that of a factor instead of the bins', and a sum's 45 roundings.
        entry = variables * kernel.error(1) + FACTOR_ERROR + 45 * 2.0**-53
        assert abs(total / units**2 - mean) <= entry
        assert abs(found - definition(values, bandwidth, order)) < allowed


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
    orders = [draw_permutations(SEED, index, 3, 700) for index in range(5)]
    found = MarkovStatistic(columns, bins)(orders)
    assert np.allclose(found, statistic.PairStatistic(grams, held=True)(orders), rtol=0, atol=1e-12)
    assert np.allclose(found, permuted_statistics(grams, 4, SEED), rtol=0, atol=1e-12)
