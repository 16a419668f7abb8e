"""Roots of distance covariances and variances: exact, and no unit moves them by more than is proved.

The searches replace a unit of tables whose rows take few values, where the largest moves are known to lie,
and climb by changing a row at a time. They are seeded.
"""

import math
from collections.abc import Callable

import numpy as np
import pytest

from tacit_protocol.features.kernels import DistanceKernel
from tacit_protocol.features.unit_gram import UnitGram, UnitRows
from tacit_protocol.numerics.distance_covariance import (
    distance_covariance_sqr,
    distance_variance_sqr,
    exact_distance_sums,
)
from tacit_protocol.procedures.curated_distance_correlation import release
from tacit_protocol.procedures.curated_distance_correlation.release import (
    COVARIANCE,
    DistanceRoots,
    column_roots,
    covariance_sensitivity,
    deviation_sensitivity,
    paired_roots,
    release_parts,
    root_exponent,
)
from tacit_protocol.procedures.permutation.statistic import observed_sensitivity

Floats = np.typing.NDArray[np.float64]


def values_of(roots: DistanceRoots) -> list[float]:
    return [math.ldexp(step, -root_exponent(roots.units)) for step in roots.steps]


def gram_of(column: Floats) -> UnitGram:
    return UnitGram(
        DistanceKernel(),
        UnitRows(column[:, None], np.zeros((len(column), 0), np.int32), np.arange(len(column) + 1)),
    )


def by_definition(x: Floats, y: Floats) -> list[float]:
    found = [distance_covariance_sqr(x, y, "biased")]
    found += [distance_variance_sqr(column, "biased") for column in (x, y)]
    return [math.sqrt(value) for value in found]


@pytest.mark.parametrize("units", [2, 3, 7, 60])
def test_sums_of_integers_are_exact(units: int) -> None:
    rng = np.random.default_rng(units)
    x, y = rng.integers(0, 2**20, units), rng.integers(0, 4, units)

    def by_pairs(first: Floats, second: Floats) -> int:
        a, b = (np.abs(v[:, None] - v).astype(object) for v in (first, second))
        rows = units * units * (a * b).sum() - 2 * units * (a.sum(axis=1) * b.sum(axis=1)).sum()
        return int(rows + a.sum() * b.sum())

    assert exact_distance_sums(x, y) == (by_pairs(x, y), by_pairs(x, x), by_pairs(y, y))


def test_integers_of_too_wide_a_range_are_refused() -> None:
    with pytest.raises(ValueError, match="range"):
        exact_distance_sums(np.array([0, 2**31]), np.array([0, 1]))


@pytest.mark.parametrize("roots", [column_roots, lambda x, y: paired_roots(gram_of(x), gram_of(y))])
def test_roots_are_those_of_the_definition(roots: Callable[[Floats, Floats], DistanceRoots]) -> None:
    """Up to the grid of 2^-20 that columns are rounded to."""
    rng = np.random.default_rng(1)
    x = rng.random(500)
    for y in (x, 1 - x, (2 * x - 1) ** 2, rng.random(500), np.zeros(500)):
        assert values_of(roots(x, y)) == pytest.approx(by_definition(x, y), abs=3e-6)


def test_both_ways_agree_within_the_stated_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the grid, where columns are exact: independent ones, whose covariance all but cancels; in blocks."""
    monkeypatch.setattr(release, "BLOCK_ENTRIES", 1000)
    x = np.repeat(np.arange(16), 16) / 16
    y = np.tile(np.arange(16), 16) / 16
    exact, paired = column_roots(x, y), paired_roots(gram_of(x), gram_of(y))
    assert exact.steps[0] == 0
    parts = release_parts(256, True, DistanceKernel.error(1))
    slack = parts[0].sensitivity - covariance_sensitivity(256, True)
    assert np.abs(np.subtract(values_of(exact), values_of(paired))).max() < slack / 2


def movement(points: Floats, others: Floats) -> float:
    """|u v' - u1 v1'| with u, u1 = a - m, a' - m and v, v1 = b - p, b' - p, of rows a, a', m and b, b', p."""

    def gram(triple: Floats) -> Floats:
        centred = triple[:2] - triple[2]
        return np.asarray(centred @ centred.T)

    g, h = gram(points), gram(others)
    return math.sqrt(max(0.0, g[0, 0] * h[0, 0] + g[1, 1] * h[1, 1] - 2 * g[0, 1] * h[0, 1]))


def brownian(values: Floats, grid: int = 64) -> Floats:
    """Features of numbers on a grid in [0, 1] whose squared distances are their distances."""
    return np.asarray((np.arange(grid)[None, :] < np.rint(values * grid)[:, None]) / math.sqrt(grid))


def test_a_single_column_on_either_side_keeps_the_movement_below_1() -> None:
    """For all triples on a grid against random triangles; two equilateral triangles reach sqrt 1.5."""
    rng = np.random.default_rng(5)
    triangle = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]) / math.sqrt(2)
    assert movement(triangle, triangle) == pytest.approx(math.sqrt(1.5))
    lines = [brownian(np.array(values) / 4) for values in np.ndindex(5, 5, 5)]
    for _ in range(40):
        other = rng.standard_normal((3, 3)) ** 3
        sides = [np.linalg.norm(other[i] - other[j]) for i, j in ((0, 1), (0, 2), (1, 2))]
        shapes = [other / max(sides), triangle, lines[rng.integers(len(lines))]]
        assert max(movement(line, shape) for line in lines for shape in shapes) <= 1 + 1e-12
    assert max(movement(line, triangle) for line in lines) > 0.999


def test_the_bounds_are_reached_all_three_at_once() -> None:
    """All units at 0 but one at 1, which joins them."""
    x = np.zeros(50)
    x[0] = 1.0
    assert values_of(column_roots(x, x)) == pytest.approx([deviation_sensitivity(50)] * 3, rel=1e-7)
    assert column_roots(np.zeros(50), np.zeros(50)).steps == (0, 0, 0)


def squared_variance_move(share: float, value: float, units: int = 4000) -> float:
    """n |dVar^2 - dVar'^2|: that share of units is at 1, the rest at 0, and one of the share is moved."""
    x = (np.arange(units) < round(share * units)).astype(np.float64)
    moved = x.copy()
    moved[0] = value
    return units * abs(distance_variance_sqr(x, "biased") - distance_variance_sqr(moved, "biased"))


@pytest.mark.parametrize("share", [0.1, 0.211, 0.25, 0.5, 0.8])
@pytest.mark.parametrize("value", [0.0, 0.25, 0.5])
def test_squared_variances_move_by_27_32nds_to_first_order(share: float, value: float) -> None:
    assert squared_variance_move(share, value) <= 27 / 32 + 8 / 4000


def test_that_is_reached() -> None:
    """The methods reference's search found .84/n: a quarter of the units apart, and one goes to the mean."""
    assert squared_variance_move(0.25, 0.25) > 27 / 32 - 1e-3


def test_layouts_hide_nothing_smaller_than_their_sensitivity() -> None:
    for units in (2, 100, 2**15, 2**15 + 1, 2**20):
        parts = release_parts(units, False, DistanceKernel.error(1))
        assert sum(part.share for part in parts) == pytest.approx(1)
        assert parts[0].name == COVARIANCE
        assert parts[0].sensitivity >= observed_sensitivity(units, 2)
        assert parts[1].sensitivity >= deviation_sensitivity(units)
        # The allowance for floating point is small beside it.
        assert parts[1].sensitivity < 1.05 * deviation_sensitivity(units)
