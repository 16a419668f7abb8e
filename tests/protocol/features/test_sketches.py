"""Units at places of their own: cuts and order of a table change nothing, and no place is taken twice."""

from dataclasses import replace

import numpy as np
import pytest
from made_studies import PlacedTable
from two_sample_cases import domain_of

from tacit_protocol.features.aligned_sums import ProjectionRelease, RowProjections
from tacit_protocol.features.brownian import BrownianFeatures
from tacit_protocol.features.moments import UnitCountError
from tacit_protocol.features.sketches import BucketDesign, SketchRelease

Floats = np.typing.NDArray[np.float64]
Integers = np.typing.NDArray[np.int64]

UNITS = 120
SKETCH = SketchRelease(BrownianFeatures(np.eye(2), 2))
PROJECTIONS = ProjectionRelease(RowProjections(np.eye(2)), disjoint=False)
DISJOINT = ProjectionRelease(RowProjections(np.eye(2)), disjoint=True)


def placed(seed: int = 0) -> PlacedTable:
    """Units of one to three rows, at random places."""
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(UNITS), 1 + np.arange(UNITS) % 3)
    shuffled = rng.permutation(len(unit))
    numeric, places = rng.random((len(unit), 2)), rng.permutation(UNITS)
    return PlacedTable(domain_of(2), numeric[shuffled], unit[shuffled], places, np.arange(UNITS))


def sketched(table: PlacedTable) -> Integers:
    design = BucketDesign.near(UNITS, 20)
    return SKETCH.sum(table, design, design.assign(np.random.default_rng(1))).sketch


def projected(table: PlacedTable, release: ProjectionRelease = PROJECTIONS) -> Integers:
    return release.project(table, np.arange(UNITS) % 2).values.reshape(UNITS, -1)


def test_neither_cuts_nor_order_change_a_sum_or_a_projection() -> None:
    whole, rng = placed(), np.random.default_rng(9)
    for cuts in ((), (1,), (60,), tuple(range(1, UNITS)), (3, 50, 119)):
        other = replace(whole, order=rng.permutation(UNITS), cuts=cuts)
        assert np.array_equal(sketched(other), sketched(whole))
        for release in (PROJECTIONS, DISJOINT):
            assert np.array_equal(projected(other, release), projected(whole, release))


def test_every_unit_is_at_its_place_and_counts_as_the_average_of_its_rows() -> None:
    table = placed()
    ball = (2 * table.numeric - 1) / np.sqrt(2)
    expected = np.zeros((UNITS, 2))
    for unit in range(UNITS):
        expected[table.places[unit]] = ball[table.unit == unit].mean(axis=0)
    np.testing.assert_allclose(projected(table) / 2**20, expected, atol=2**-19)


def test_places_matter() -> None:
    """Were places passed over, the owners' rows would be matched by chance: the tests above would not see."""
    table = placed()
    moved = replace(table, places=np.roll(table.places, 1))
    assert not np.array_equal(sketched(moved), sketched(table))
    assert not np.array_equal(projected(moved), projected(table))


@pytest.mark.parametrize("wrong", [0, UNITS, -1])
def test_a_place_that_is_taken_or_does_not_exist_is_refused(wrong: int) -> None:
    table = placed()
    places = table.places.copy()
    taken = int(np.flatnonzero(places == 0)[0])
    places[(taken + 1) % UNITS] = wrong
    for cuts in ((), tuple(range(1, UNITS))):
        for release in (sketched, projected):
            with pytest.raises(UnitCountError):
                release(replace(table, places=places, cuts=cuts))


def test_a_unit_too_few_or_too_many_is_refused() -> None:
    table = placed()
    for order in (table.order[:-1], np.append(table.order, 0)):
        for release in (sketched, projected):
            with pytest.raises(UnitCountError):
                release(replace(table, order=order, cuts=(60, UNITS - 1)))
