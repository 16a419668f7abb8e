"""The audit of releases would catch the mistakes that a sketch or a projection invites."""

import numpy as np
import pytest
from distance_correlation_cases import CASES
from release_audit import largest_move

from tacit_protocol.domain.table import EncodedChunk
from tacit_protocol.features import aligned_sums, moments, sketches
from tacit_protocol.features.aligned_sums import RowProjections
from tacit_protocol.features.brownian import BrownianFeatures
from tacit_protocol.privacy.exact_sums import GridError

Floats = np.typing.NDArray[np.float64]
Integers = np.typing.NDArray[np.int64]


def is_caught(name: str) -> bool:
    moved, allowed = largest_move(CASES[name])
    return moved.gaussian > allowed.gaussian * (1 + 1e-9)


def test_without_a_mistake_nothing_is_caught() -> None:
    assert not is_caught("sketch, 1 number")
    assert not is_caught("pnc, 3 numbers")


def test_a_diameter_a_tenth_too_small_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrownianFeatures, "diameter", property(lambda self: 0.9))
    assert is_caught("sketch, 1 number")


def test_a_unit_that_is_in_two_buckets_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    once = sketches.add_signed

    def twice(sketch: Integers, steps: Floats, codes: Integers) -> None:
        once(sketch, steps, codes)
        once(sketch, steps, (codes + 2) % (2 * len(sketch)))

    monkeypatch.setattr(sketches, "add_signed", twice)
    assert is_caught("sketch, 1 number")


def test_units_that_weigh_more_for_having_more_rows_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two fifths more for a unit of several rows. Their sum would leave the grid, which refuses it."""
    averages = moments.unit_averages

    def weighed(rows: Floats, unit: Integers, units: int, bits: int) -> Floats:
        return (
            averages(rows, unit, units, bits) * np.minimum(np.bincount(unit, minlength=units), 1.4)[:, None]
        )

    monkeypatch.setattr(moments, "unit_averages", weighed)
    assert is_caught("sketch, aligned, a unit of 1 row or of 5")

    def summed(rows: Floats, unit: Integers, units: int, bits: int) -> Floats:
        return averages(rows, unit, units, bits) * np.bincount(unit, minlength=units)[:, None]

    monkeypatch.setattr(moments, "unit_averages", summed)
    with pytest.raises(GridError):
        is_caught("pnc, aligned, units of 3 rows")


def test_places_that_follow_values_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """One unit's values decide where the others are."""
    genuine = aligned_sums._places

    def by_value(chunk: EncodedChunk, done: int) -> Integers:
        return np.roll(genuine(chunk, done), int(chunk.numeric[0, 0] > 0.5))

    monkeypatch.setattr(aligned_sums, "_places", by_value)
    assert is_caught("sketch, aligned, a unit of 1 row or of 5")
    assert is_caught("pnc-disjoint, aligned, a unit of 4 rows or of 1")


def test_p4s_noise_for_one_attribute_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The most that one attribute moves is the largest column of the directions, times its range."""
    monkeypatch.setattr(
        RowProjections,
        "diameter",
        property(lambda self: 2 / np.sqrt(3) * np.linalg.norm(self.directions, axis=0).max()),
    )
    assert is_caught("pnc, 3 numbers")
