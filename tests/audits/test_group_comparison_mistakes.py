"""The audit of releases would catch the mistakes that sums over groups invite."""

import pytest
from group_comparison_cases import CASES, worst_units
from release_audit import largest_move

from tacit_protocol.procedures.group_comparison import release
from tacit_protocol.procedures.group_comparison.release import GroupFeatures


def is_caught(name: str) -> bool:
    moved, allowed = largest_move(CASES[name])
    return moved.gaussian > allowed.gaussian * (1 + 1e-9)


def test_without_a_mistake_nothing_is_caught() -> None:
    assert not any(is_caught(name) for name in CASES)


@pytest.mark.parametrize("name", ["a number", "numbers and categories", "categories, epsilon 4"])
def test_a_sensitivity_one_percent_too_small_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupFeatures, "diameter", property(lambda self: 0.99 * float(self._square**0.5)))
    assert is_caught(name)


def test_a_unit_that_changes_its_group_moves_two_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: as if it left one group and came to none."""
    monkeypatch.setattr(GroupFeatures, "diameter", property(lambda self: self.norm))
    assert is_caught("a number")


def test_a_count_that_weighs_more_than_the_sensitivity_allows_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: counts at twice their weight, and the sensitivity of units that stay in their group."""
    monkeypatch.setattr(release, "COUNT_SQUARE", 1.0)
    within = property(lambda self: float(release.numeric_bounds()[0] ** 0.5))
    monkeypatch.setattr(GroupFeatures, "diameter", within)
    worst_units.cache_clear()  # of counts at their own weight
    try:
        assert is_caught("a number")
    finally:
        worst_units.cache_clear()
