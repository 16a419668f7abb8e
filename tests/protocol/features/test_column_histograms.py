"""Histograms of every column over public cells, and the points that are drawn from noisy ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.features.column_histograms import ColumnHistograms, nearest_counts
from tacit_protocol.features.mean_embedding import Locations

MIXED = Domain(
    columns=(
        NumericColumn(name="x", lower=0, upper=10, missing=2.5),
        CategoricalColumn(name="c", levels=("a", "b")),
        NumericColumn(name="y", lower=-1, upper=1, missing=1),
    )
)
CELLS = ColumnHistograms(MIXED, 4)


def rows(x: list[float], c: list[int], y: list[float]) -> Locations:
    return Locations(np.column_stack([x, y]), np.array(c, dtype=np.int32)[:, None])


def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def test_cells_are_bins_bounds_what_stands_for_missing_and_categories() -> None:
    """y's missing value is its upper bound, which has a cell already."""
    assert [cells.size for cells in CELLS.columns] == [4 + 3, 4, 4 + 2]
    values = [0.0, 0.1, 0.25, 0.3, 0.999999, 1.0]
    found = CELLS.indicators(rows(values, [0, 1, 2, 3, 0, 0], values))
    codes = [np.argmax(part, axis=1).tolist() for part in np.split(found, [7, 11], axis=1)]
    assert codes == [[4, 0, 6, 1, 3, 5], [0, 1, 2, 3, 0, 0], [4, 0, 1, 1, 3, 5]]
    assert (CELLS.size, found.shape, found.sum()) == (17, (6, 17), 18)


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=30), st.integers(1, 2**61))
def test_nearest_counts_are_the_projection_on_a_simplex(values: list[int], total: int) -> None:
    found = nearest_counts(values, total)
    assert all(isinstance(value, int) and value >= 0 for value in found)
    assert total <= sum(found) < total + len(values)
    taken = {value - kept for value, kept in zip(values, found, strict=True) if kept}
    assert len(taken) == 1, "the same is taken off all that are left"
    assert all(value <= min(taken) for value, kept in zip(values, found, strict=True) if not kept)


def test_draws_follow_the_histograms_to_one_point_a_cell() -> None:
    """Systematic: of J points a cell with share p has J p, up to one on either side."""
    shares = np.array([400, 0, 100, 0, 300, 0, 200, 10, 20, 970, 0, 0, 0, 1000, 0, 0, 0])
    points = CELLS.draw((shares << 20).tolist(), 1000 << 20, 200, rng())
    counts = CELLS.indicators(points).sum(axis=0)
    assert np.abs(counts - shares / 5).max() <= 1
    assert set(points.numeric[:, 0][points.numeric[:, 0] == 0.25]) == {0.25}
    inside = points.numeric[:, 1]
    assert (np.floor(inside * 4) == 2).all()
    assert np.sort(inside) == pytest.approx(0.5 + (np.arange(200) + 0.5) / 800, abs=1 / 800), "and spread"
    again = CELLS.draw((shares << 20).tolist(), 1000 << 20, 200, rng())
    assert np.array_equal(again.numeric, points.numeric)
    assert np.array_equal(again.categorical, points.categorical)


@pytest.mark.parametrize("value", [0, -(2**63), 2**63 - 1])
def test_any_noise_gives_points_of_the_domain(value: int) -> None:
    """Where nothing is told apart, all cells are alike: the points are uniform over the cells."""
    points = CELLS.draw([value] * 17, 1, 50, rng())
    assert points.numeric.min() >= 0
    assert points.numeric.max() <= 1
    assert set(points.categorical[:, 0].tolist()) == {0, 1, 2, 3}
