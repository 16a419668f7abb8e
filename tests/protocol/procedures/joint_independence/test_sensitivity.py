"""No unit moves the joint independence statistic by more than stated: two searches try to break it.

The first works on the movement D of the mean joint feature less the product of means, over all features of
norm 1 with nonnegative inner products (three of them per variable: those before, after, and the others'
mean; nonnegative vectors of three coordinates give all such triples, since a doubly nonnegative 3 x 3 matrix
is completely positive). The second works on data: values are labels without similarity, and hill climbing
looks for the table, the unit and its replacement that move T most, with and without permutations.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import minimize

from tacit_protocol.features.kernels import LinearKernel
from tacit_protocol.features.unit_gram import UnitGram, UnitRows
from tacit_protocol.procedures.permutation.statistic import (
    observed_sensitivity,
    permuted_sensitivity,
    permuted_statistics,
    statistic_max,
)

Floats = np.typing.NDArray[np.float64]
Integers = np.typing.NDArray[np.int64]

LABELS = 3

STEP = 1.5e-8
"""Of differences that stand for derivatives."""


def outer(vectors: Floats) -> Floats:
    """Tensor products of (..., d, 3) vectors, flattened: (..., 3**d)."""
    product = vectors[..., 0, :]
    for variable in range(1, vectors.shape[-2]):
        product = product[..., :, None] * vectors[..., variable, None, :]
        product = product.reshape(*product.shape[:-2], -1)
    return product


def movement(triples: Floats, p: float) -> Floats:
    """|D|, (...), for (..., d, 3, 3) features: before, after, mean of the others (last axis but one)."""
    unit = triples / np.linalg.norm(triples, axis=-1, keepdims=True)
    before, after, others = unit[..., 0, :], unit[..., 1, :], unit[..., 2, :]
    joint = p * (outer(before) - outer(after))
    means = outer((1 - p) * others + p * before) - outer((1 - p) * others + p * after)
    return np.asarray(np.linalg.norm(joint - means, axis=-1))


def largest_movement(variables: int, units: int, seed: int) -> float:
    """The largest |D| found: all triples of basis vectors, random ones, and gradient ascent from the best."""
    p, rng = 1 / units, np.random.default_rng(seed)
    identity = np.eye(3)
    partitions = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0), (0, 1, 2)]
    chosen = list(itertools.combinations_with_replacement(partitions, variables))
    basis, random = identity[np.array(chosen)], rng.random((300, variables, 3, 3)) ** 3 + 1e-9
    starts = np.concatenate([basis, random])
    moved = movement(starts, p)
    order, best = np.argsort(-moved, kind="stable"), float(moved.max())
    steps = np.vstack([np.zeros(9 * variables), STEP * np.eye(9 * variables)])

    def loss(flat: Floats) -> tuple[float, Floats]:
        """-|D| and its gradient by differences, of all points together."""
        values = -movement(np.abs(flat + steps).reshape(-1, variables, 3, 3) + 1e-12, p)
        return float(values[0]), (values[1:] - values[0]) / STEP

    for start in starts[[*order[:4], *order[-3:]]]:
        softened = start.ravel() + 0.05 * rng.random(start.size)
        found = minimize(loss, softened, jac=True, method="L-BFGS-B", options={"maxiter": 40})
        best = max(best, -float(found.fun))
    return best


@pytest.mark.sweep(4)
@pytest.mark.parametrize("variables", [2, 3, 4, 5])
@pytest.mark.parametrize("units", [2, 3, 10, 1000])
def test_no_features_move_the_observed_tensor_by_more_than_stated(variables: int, units: int) -> None:
    assert largest_movement(variables, units, seed=units) <= observed_sensitivity(units, variables)


@pytest.mark.parametrize("variables", [2, 3, 4, 5])
def test_the_bound_on_the_movement_is_nearly_reached(variables: int) -> None:
    """So a constant a hundredth smaller would be caught."""
    assert largest_movement(variables, 1000, seed=0) > 0.99 * observed_sensitivity(1000, variables)


def statistic(table: Integers) -> float:
    """T of (units, variables) labels, from its definition."""
    units, variables = table.shape
    joint = np.zeros((LABELS,) * variables)
    np.add.at(joint, tuple(table.T), 1 / units)
    product = np.ones(())
    for column in table.T:
        product = np.multiply.outer(product, np.bincount(column, minlength=LABELS) / units)
    return float(np.linalg.norm(joint - product))


def change(table: Integers, other: Integers, permutations: list[Integers]) -> float:
    """|T - T'| where unit 0 is replaced, both tables permuted alike."""
    replaced = table.copy()
    replaced[0] = other
    one, two = (
        np.stack([t[order, j] for j, order in enumerate(permutations)], axis=1) for t in (table, replaced)
    )
    return abs(statistic(one) - statistic(two))


def largest_change(units: int, variables: int, seed: int, *, permuted: bool, climbs: int) -> float:
    """The largest |T - T'| that climbing one label at a time finds."""
    rng = np.random.default_rng(seed)
    best = 0.0
    for _ in range(climbs):
        orders = [np.arange(units)]
        orders += [rng.permutation(units) if permuted else np.arange(units) for _ in range(variables - 1)]
        labels = rng.integers(0, LABELS, (units + 1, variables))

        def value(labels: Integers, orders: list[Integers] = orders) -> float:
            return change(labels[:-1], labels[-1], orders)

        best = max(best, climb(labels, value))
    return best


def climb(labels: Integers, value: Callable[[Integers], float]) -> float:
    current, before = value(labels), -1.0
    while current > before:
        before = current
        for place in np.ndindex(labels.shape):
            for label in range(LABELS):
                kept = labels[place]
                labels[place] = label
                found = value(labels)
                if found > current:
                    current = found
                else:
                    labels[place] = kept
    return current


@pytest.mark.parametrize(("units", "variables"), [(4, 2), (10, 2), (4, 3), (9, 3), (5, 4)])
def test_no_data_move_the_statistic_by_more_than_stated(units: int, variables: int) -> None:
    observed = largest_change(units, variables, seed=1, permuted=False, climbs=12)
    permuted = largest_change(units, variables, seed=2, permuted=True, climbs=12)
    assert observed <= observed_sensitivity(units, variables)
    assert permuted <= permuted_sensitivity(units, variables)


def swapped_pair(units: int) -> float:
    """|T - T'| of two variables where units 0 and 1 lie apart from all others and swap their second values.

    Unit 0 then goes to the others, and leaves no row that is apart in both variables.
    """
    table = np.zeros((units, 2), dtype=np.int64)
    table[:2] = 1
    swap = np.array([1, 0, *range(2, units)])
    return change(table, np.zeros(2, dtype=np.int64), [np.arange(units), swap])


def test_the_permuted_bound_is_reached_by_two_variables_and_passes_the_observed_one() -> None:
    """So a constant a hundredth smaller would be caught, and permuted data need one of their own."""
    found = swapped_pair(1000)
    assert 0.99 * permuted_sensitivity(1000, 2) < found <= permuted_sensitivity(1000, 2)
    assert found > 1.6 * observed_sensitivity(1000, 2)


def linear_statistic(numeric: Floats, codes: Integers) -> float:
    """T of variables that are one numeric or one categorical column each, with the linear kernel."""
    size = len(codes) if codes.size else len(numeric)
    rows = UnitRows(numeric, codes.astype(np.int32), np.arange(size + 1))
    places = [((j,), ()) for j in range(numeric.shape[1])] + [((), (j,)) for j in range(codes.shape[1])]
    grams = [UnitGram(LinearKernel(), rows.columns(*place)) for place in places]
    return float(permuted_statistics(grams, 0, np.random.SeedSequence(0))[0])


def test_the_linear_kernel_of_categories_reaches_the_permuted_bound() -> None:
    """Categories that agree: a unit of labels by the kernel itself moves T as far as labels do."""
    units = 200
    table = np.zeros((units, 2), dtype=np.int64)
    table[:2] = 1
    swap = np.array([1, 0, *range(2, units)])
    replaced = table.copy()
    replaced[0] = 0
    nothing = np.zeros((units, 0))
    one, two = (linear_statistic(nothing, np.stack([t[:, 0], t[swap, 1]], axis=1)) for t in (table, replaced))
    assert 0.97 * permuted_sensitivity(units, 2) < abs(one - two) <= permuted_sensitivity(units, 2)


@pytest.mark.parametrize("variables", [2, 3])
def test_linear_kernels_of_genotypes_stay_within_the_bounds(variables: int) -> None:
    """Of single columns T is |mean of products - product of means|: climbing from counts 0, 1 and 2."""
    units = 8

    def moment(values: Floats) -> float:
        return abs(float(values.prod(axis=1).mean() - values.mean(axis=0).prod()))

    rng, best = np.random.default_rng(variables), {False: 0.0, True: 0.0}
    for permuted in (False, True):
        for _ in range(20):
            orders = [
                rng.permutation(units) if permuted and j else np.arange(units) for j in range(variables)
            ]

            def value(labels: Integers, orders: list[Integers] = orders) -> float:
                one = labels[:-1] / 2
                two = one.copy()
                two[0] = labels[-1] / 2
                moved = [np.stack([t[o, j] for j, o in enumerate(orders)], axis=1) for t in (one, two)]
                return abs(moment(moved[0]) - moment(moved[1]))

            best[permuted] = max(best[permuted], climb(rng.integers(0, 3, (units + 1, variables)), value))
    assert best[False] <= observed_sensitivity(units, variables)
    assert best[True] <= permuted_sensitivity(units, variables)
    # Numbers alone use a third to a half of a bound that categories in the same kernel reach.
    assert best[True] > 0.3 * permuted_sensitivity(units, variables)
    values = rng.integers(0, 3, (units, variables)) / 2
    found = linear_statistic(values, np.zeros((units, 0), dtype=np.int64))
    assert found == pytest.approx(moment(values), abs=1e-7)


def far_from_the_others(units: int, variables: int) -> float:
    """T where one unit differs from all others, in every variable: it is 0 once that unit is replaced."""
    table = np.zeros((units, variables), dtype=np.int64)
    table[0] = 1
    return statistic(table)


@pytest.mark.parametrize(("variables", "reached"), [(2, 0.81), (3, 0.99), (4, 0.99), (6, 0.97)])
def test_one_unit_far_from_the_others_reaches_the_observed_bound(variables: int, reached: float) -> None:
    found = far_from_the_others(1000, variables)
    assert reached * observed_sensitivity(1000, variables) < found <= observed_sensitivity(1000, variables)


def test_the_bounds_of_few_units() -> None:
    assert observed_sensitivity(2, 2) == pytest.approx(math.sqrt(6) / 4)
    assert permuted_sensitivity(2, 2) == pytest.approx(1.0)
    for units, variables in itertools.product((2, 3, 50), (2, 3, 8, 32)):
        assert observed_sensitivity(units, variables) <= permuted_sensitivity(units, variables)
    for arguments in ((1, 2), (2, 1)):
        with pytest.raises(ValueError, match="at least two"):
            observed_sensitivity(*arguments)


@pytest.mark.parametrize("variables", [2, 3, 4, 5])
def test_the_statistic_stays_below_its_maximum(variables: int) -> None:
    def value(labels: Integers) -> float:
        return statistic(labels)

    rng = np.random.default_rng(variables)
    largest = max(climb(rng.integers(0, LABELS, (8, variables)), value) for _ in range(6))
    assert largest <= statistic_max(variables)
    if variables == 2:
        assert largest == pytest.approx(0.5)
