"""Permuted statistics: the definition's number on both paths, and for any number of workers."""

from collections.abc import Sequence

import numpy as np
import pytest

from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.unit_gram import KernelMixture, UnitGram, UnitRows
from tacit_protocol.statistics import joint_independence, low_rank
from tacit_protocol.statistics.joint_independence import (
    _ByMatrices,
    _ByTensor,
    permuted_statistics,
    units_max,
)
from tacit_protocol.statistics.joint_sensitivity import evaluation_error

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
    return [UnitGram(kernel or ProductKernel("gaussian", 0.15), variable) for variable in picked]


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
    drawn = joint_independence._permutations(SEED, index, variables, units)
    return [np.arange(units) if order is None else order for order in drawn]


def data(units: int, variables: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    return np.asarray(np.clip(0.5 + 0.15 * rng.standard_normal((units, variables)), 0, 1))


@pytest.mark.parametrize("variables", [2, 3, 4, 5])
@pytest.mark.parametrize("path", ["tensor", "matrices", "chosen"])
def test_statistics_are_those_of_the_definition(
    variables: int, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if path != "chosen":
        monkeypatch.setattr(
            joint_independence, "_tensor_ns", lambda *_: -1.0 if path == "tensor" else float("inf")
        )
    monkeypatch.setattr(joint_independence, "MATRIX_BLOCK_ENTRIES", 300)
    monkeypatch.setattr(joint_independence, "TENSOR_BLOCK_ENTRIES", 3000)
    values = data(60, variables)[:, :variables]
    values[:, 0] = 0.5 * values[:, 0] + 0.5 * values[:, 1]
    bandwidth = 0.8 if variables > 3 else 0.15
    found = permuted_statistics(grams_of(values, ProductKernel("gaussian", bandwidth)), 6, SEED)
    expected = [definition(values, bandwidth, orders_of(b, variables, 60)) for b in range(7)]
    assert np.abs(found - expected).max() < 1e-9
    assert found[0] != found[1]


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


@pytest.mark.parametrize("name", near_zero())
@pytest.mark.parametrize("bandwidth", [0.01, 0.13, 0.5, 1000.0])
def test_the_evaluation_error_holds_near_zero(name: str, bandwidth: float) -> None:
    values = near_zero()[name]
    units = len(values)
    grams = grams_of(values, ProductKernel("gaussian", bandwidth))
    paths: list[_ByTensor | _ByMatrices] = [_ByMatrices(grams)]
    factors = joint_independence._factors(grams)
    if factors is not None:
        paths.append(_ByTensor(factors, (0,)))
    for index in range(3):
        orders = orders_of(index, 2, units)
        exact = definition(values, bandwidth, orders)
        for path in paths:
            assert abs(path([None, orders[1]]) - exact) < evaluation_error(units, 2, kernel_error(bandwidth))


def test_a_kernel_less_accurate_than_stated_passes_the_evaluation_error() -> None:
    """Errors of 3e-11 in a constant variable that look like the other variable's two clusters."""

    class Inaccurate(UnitGram):
        def rows(self, start: int, stop: int) -> Floats:
            alike = np.add.outer(np.arange(start, stop), np.arange(self.size)) % 2 == 0
            return np.asarray(super().rows(start, stop) + 3e-11 * alike)

    values = np.stack([np.arange(200) % 2, np.full(200, 0.3)], axis=1)
    clusters, constant = grams_of(values, ProductKernel("gaussian", 0.02))
    assert _ByMatrices([clusters, constant])([None, None]) < evaluation_error(200, 2, kernel_error(0.02))
    inaccurate = Inaccurate(constant._kernel, constant._rows)
    assert _ByMatrices([clusters, inaccurate])([None, None]) > evaluation_error(200, 2, kernel_error(0.02))


@pytest.mark.parametrize("kernel", [ProductKernel("gaussian", 0.15), ProductKernel("laplacian", 0.15)])
def test_the_result_does_not_depend_on_the_number_of_workers(kernel: ProductKernel) -> None:
    grams = grams_of(data(150, 3), kernel)
    one = permuted_statistics(grams, 40, SEED, workers=1)
    assert np.array_equal(one, permuted_statistics(grams, 40, SEED, workers=4))
    assert np.array_equal(one, permuted_statistics(grams, 40, SEED))
    assert np.array_equal(one[:21], permuted_statistics(grams, 20, SEED, workers=2))


def test_categories_and_numbers_go_together() -> None:
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 3, (100, 1)).astype(np.float64)
    grams = grams_of(data(100, 1), codes=codes)
    found = permuted_statistics(grams, 3, SEED)
    equal = (codes == codes.T).astype(np.float64)
    values = data(100, 1)
    smooth = np.exp(-((values - values.T) ** 2) / (2 * 0.15**2))
    for b in range(4):
        order = orders_of(b, 2, 100)[1]
        permuted = equal[np.ix_(order, order)]
        squared = (smooth * permuted).mean() - 2 * (smooth.mean(1) * permuted.mean(1)).mean()
        squared += smooth.mean() * permuted.mean()
        assert found[b] == pytest.approx(np.sqrt(squared), abs=1e-9)


def test_many_variables_take_the_path_that_fits() -> None:
    """Thirteen variables are more than the tensor's splits are looked through for."""
    values = np.random.default_rng(4).random((30, 13))
    found = permuted_statistics(grams_of(values, ProductKernel("gaussian", 2.0)), 2, SEED)
    expected = [definition(values, 2.0, orders_of(b, 13, 30)) for b in range(3)]
    assert np.abs(found - expected).max() < 1e-7


@pytest.mark.parametrize(
    ("ranks", "left"),
    [((5, 5), (0,)), ((30, 30, 30), (0, 1)), ((900, 30, 30), (0,)), ((20, 20, 20, 20), (0, 1))],
)
def test_tensors_are_split_into_sides_of_similar_size(ranks: tuple[int, ...], left: tuple[int, ...]) -> None:
    sizes = sorted(np.prod([ranks[j] for j in side]) for side in (left, set(range(len(ranks))) - set(left)))
    found = joint_independence._split(ranks)
    other = [j for j in range(len(ranks)) if j not in found]
    assert sorted(np.prod([ranks[j] for j in side]) for side in (found, other)) == sizes


def test_progress_ends_at_one() -> None:
    parts: list[float] = []
    permuted_statistics(grams_of(data(20, 2)), 9, SEED, progress=parts.append)
    assert parts == [pytest.approx((i + 1) / 10) for i in range(10)]


def test_one_variable_or_different_units_are_refused() -> None:
    one, other = grams_of(data(20, 1)), grams_of(data(21, 1))
    for grams in (one, one + other):
        with pytest.raises(ValueError, match="two or more variables"):
            permuted_statistics(grams, 9, SEED)


def test_the_kernel_matrices_of_the_largest_study_fit_their_memory() -> None:
    for variables in (2, 3, 32):
        assert variables * 8 * units_max(variables) ** 2 <= joint_independence.GRAM_BYTES_MAX
    assert units_max(2) >= 10_000


def test_a_low_rank_factor_reproduces_every_entry() -> None:
    gram = grams_of(data(400, 1))[0]
    factor = low_rank.factorise(gram, 100)
    assert factor is not None
    assert len(factor) < 40
    assert np.abs(factor.T @ factor - gram.rows(0, 400)).max() < 1e-13


def test_a_kernel_of_full_rank_has_no_low_rank_factor() -> None:
    assert low_rank.factorise(grams_of(data(400, 1), ProductKernel("laplacian", 0.1))[0], 100) is None


def test_a_factor_that_misses_an_entry_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(low_rank, "RESIDUAL_MAX", 1e-10)
    assert low_rank.factorise(grams_of(data(400, 1))[0], 100) is None
