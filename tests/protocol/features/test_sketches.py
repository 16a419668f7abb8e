"""Units at places of their own: cuts and order of a table change nothing, and no place is taken twice."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from two_sample_cases import domain_of

from tacit_protocol.domain.columns import Domain
from tacit_protocol.domain.table import EncodedChunk
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


@dataclass(frozen=True)
class PlacedTable:
    """Rows of units at ``places``, (units,), in the chunks that ``cuts`` makes of the units in ``order``."""

    numeric: Floats
    unit: Integers
    places: Integers
    order: Integers
    cuts: tuple[int, ...] = ()
    domain: Domain = domain_of(2)  # noqa: RUF009 (frozen)

    @property
    def units(self) -> int:
        return len(self.places)

    def chunks(self) -> Iterator[EncodedChunk]:
        for units in np.split(self.order, self.cuts):
            rows = np.flatnonzero(np.isin(self.unit, units))
            names = np.sort(units)
            yield EncodedChunk(
                self.numeric[rows],
                np.zeros((len(rows), 0), np.int32),
                np.searchsorted(names, self.unit[rows]),
                len(names),
                self.places[names],
            )


def placed(seed: int = 0) -> PlacedTable:
    """Units of one to three rows, at random places."""
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(UNITS), 1 + np.arange(UNITS) % 3)
    shuffled = rng.permutation(len(unit))
    numeric = rng.random((len(unit), 2))
    return PlacedTable(numeric[shuffled], unit[shuffled], rng.permutation(UNITS), np.arange(UNITS))


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
