"""Sums that are the same bits in every order, and the rounding they cost."""

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit_protocol.privacy import exact_sums
from tacit_protocol.privacy.exact_sums import (
    FLOAT_BITS,
    GRID_BITS_MAX,
    SUM_BITS,
    ExactSum,
    GridError,
    UnitSums,
    chunk_rows_max,
    grid_bits,
    round_to_grid,
    rounding_sensitivity,
    second_moment_rounding_sensitivity,
    unit_averages,
)

Floats = npt.NDArray[np.float64]
SEEDS = st.integers(0, 2**32 - 1)


def contributions(seed: int, units: int, coordinates: int) -> Floats:
    """Vectors of norm at most 1."""
    x = np.random.default_rng(seed).normal(size=(units, coordinates))
    return np.asarray(x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True)))


def exact_sum(x: Floats, cuts: list[int], bits: int) -> ExactSum:
    """Sum in chunks, each in an accumulator of its own, merged."""
    whole = ExactSum(x.shape[1], bits, products=True)
    for part in np.split(x, sorted(cuts)):
        piece = ExactSum(x.shape[1], bits, products=True)
        piece.add(part)
        whole.merge(piece)
    return whole


@given(st.integers(1, 2**40), st.booleans())
def test_the_grid_leaves_room_for_every_sum_and_every_chunk(units: int, products: bool) -> None:
    bits = grid_bits(units, products)
    assert 8 <= bits <= GRID_BITS_MAX
    assert units << (2 * bits if products else bits) <= 2**SUM_BITS
    assert chunk_rows_max(bits) << (2 * bits) <= 2**FLOAT_BITS
    finer = bits + 1
    assert finer > GRID_BITS_MAX or 2 * units << (2 * finer if products else finer) > 2**SUM_BITS


def test_numbers_of_units_without_a_grid_are_refused() -> None:
    for units in (0, -1, 2**46):
        with pytest.raises(ValueError, match="unit"):
            grid_bits(units, True)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.lists(st.integers(0, 500), max_size=5), st.sampled_from([8, 17, 20]))
def test_sums_are_the_same_bits_in_every_order_and_chunking(seed: int, cuts: list[int], bits: int) -> None:
    x = contributions(seed, 500, 7)
    shuffled = np.random.default_rng(seed + 1).permutation(x)
    first, second = exact_sum(x, [], bits), exact_sum(shuffled, cuts, bits)
    assert first.units == second.units == 500
    assert np.array_equal(first.total, second.total)
    assert np.array_equal(first.second, second.second)


def test_sums_are_the_integers_they_should_be(monkeypatch: pytest.MonkeyPatch) -> None:
    x = contributions(1, 60, 3)
    whole = [[round(Fraction(value) * 2**20) for value in row] for row in x]
    for block in (7, 2048):
        monkeypatch.setattr(exact_sums, "BLOCK_ROWS", block)
        sums = exact_sum(x, [10], 20)
        assert sums.total.tolist() == [sum(row[j] for row in whole) for j in range(3)]
        products = [[sum(row[i] * row[j] for row in whole) for j in range(3)] for i in range(3)]
        assert sums.second.tolist() == products


def test_sums_at_the_edge_of_float_are_exact() -> None:
    rows = chunk_rows_max(20) + 1
    x = np.full((rows, 2), -1.0)
    x[-1, 0] = 2.0**-20
    sums = exact_sum(x, [], 20)
    assert sums.total.tolist() == [1 - (rows - 1) * 2**20, -rows * 2**20]
    cross = (rows - 1) * 2**40 - 2**20
    assert sums.second.tolist() == [[(rows - 1) * 2**40 + 1, cross], [cross, rows * 2**40]]


@pytest.mark.parametrize("value", [1.001, -1.5, math.nan, math.inf, -math.inf])
def test_contributions_that_break_the_bound_are_refused_without_being_quoted(value: float) -> None:
    x = np.zeros((3, 2))
    x[1, 1] = value
    with pytest.raises(GridError) as failure:
        ExactSum(2, 20, products=False).add(x)
    assert str(value) not in str(failure.value)
    with pytest.raises(GridError):
        round_to_grid(x, 20)


@settings(max_examples=40, deadline=None)
@given(SEEDS, st.integers(1, 40), st.lists(st.integers(0, 300), max_size=4))
def test_unit_averages_are_the_same_bits_in_every_order(seed: int, units: int, cuts: list[int]) -> None:
    generator = np.random.default_rng(seed)
    x = contributions(seed, 300, 4)
    unit = np.concatenate([np.arange(units), generator.integers(0, units, 300 - units)])
    order = generator.permutation(300)
    sums = UnitSums(units, 4, 20)
    for rows, owners in zip(
        np.split(x[order], sorted(cuts)), np.split(unit[order], sorted(cuts)), strict=True
    ):
        sums.add(rows, owners)
    averages = unit_averages(x, unit, units, 20)
    assert np.array_equal(averages, sums.averages())
    exact = [[Fraction(v) for v in row] for row in round_to_grid(x, 20)]
    for u in range(units):
        mine = [row for row, owner in zip(exact, unit, strict=True) if owner == u]
        for j in range(4):
            average = sum((row[j] for row in mine), Fraction(0)) / len(mine)
            assert abs(Fraction(averages[u, j]) - average) <= Fraction(1, 2**21)
            assert (averages[u, j] * 2**20).is_integer()


def test_units_need_rows_and_numbers_in_range() -> None:
    rows = np.zeros((2, 1))
    with pytest.raises(GridError, match="at least one row"):
        unit_averages(rows, np.array([0, 0]), 2, 20)
    for unit in ([0, 2], [-1, 0]):
        with pytest.raises(GridError, match="outside"):
            unit_averages(rows, np.array(unit), 2, 20)
    with pytest.raises(GridError, match="one unit number per row"):
        unit_averages(rows, np.array([0]), 1, 20)


def rounded_change(x: Floats, y: Floats, bits: int) -> tuple[float, float]:
    """How much more rounding lets one unit's mean and outer product change; each is (rows, coordinates)."""
    exact, rounded = [], []
    for rows in (x, y):
        unit = np.zeros(rows.shape[0], dtype=np.int64)
        exact.append(rows.mean(axis=0))
        rounded.append(unit_averages(rows, unit, 1, bits)[0])
    mean = np.linalg.norm(rounded[0] - rounded[1]) - np.linalg.norm(exact[0] - exact[1])
    outer = [np.outer(z, z) for z in exact + rounded]
    second = np.linalg.norm(outer[2] - outer[3]) - np.linalg.norm(outer[0] - outer[1])
    return float(mean), float(second)


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.integers(1, 4), st.integers(1, 4), st.integers(1, 12))
def test_rounding_never_adds_more_than_its_sensitivity(seed: int, mine: int, theirs: int, size: int) -> None:
    x, y = contributions(seed, mine, size), contributions(seed + 1, theirs, size)
    mean, second = rounded_change(x, y, 8)
    assert mean <= rounding_sensitivity(size, 8)
    assert second <= second_moment_rounding_sensitivity(size, 8)


def test_an_adversary_comes_close_to_the_rounding_sensitivity() -> None:
    """Rows that round up and whose average rounds up again, against rows that go down twice."""
    bits, size, tiny = 8, 9, 1e-6
    upward = np.repeat([10.5 + tiny, 11.5 + tiny], [1, 1])
    downward = np.repeat([-30.5 - tiny, -29.5 - tiny], [26, 25])
    x, y = (np.repeat(rows[:, None] * 2.0**-bits, size, axis=1) for rows in (upward, downward))
    mean, second = rounded_change(x, y, bits)
    assert 0.9 < mean / rounding_sensitivity(size, bits) <= 1, "a bound 10 % lower would be caught"
    assert second <= second_moment_rounding_sensitivity(size, bits)
