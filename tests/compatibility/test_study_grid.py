"""What studies cost, how their releases are laid out and how much noise they have is what the grid holds."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from compatibility_cases import differences
from study_grid import GRID, Point, grid, points, read_grid

from tacit_protocol.privacy import permutation_test
from tacit_protocol.privacy.gaussian_mechanism import SumPart
from tacit_protocol.privacy.laplace_mechanism import ExponentialChoice
from tacit_protocol.procedures.aggregation import Vote
from tacit_protocol.procedures.discovery import PROCEDURES

TOLERANCE = 1e-9
"""Relative, of numbers that are no integers: as much as releases may differ from what a study fixes."""

KEPT = read_grid()


def changes(asked: list[Point]) -> Iterator[str]:
    """Yield what differs from the grid in these studies."""
    found = grid(asked)
    for row, places in found.items():
        kept = {place: KEPT[row].get(place) for place in places}
        yield from differences(places, kept, row, TOLERANCE)
        wanted = {one.place for one in asked if one.row == row} & KEPT[row].keys()
        yield from (f"{row}/{place} is no longer there" for place in sorted(wanted - places.keys()))


@pytest.mark.parametrize("stored", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", PROCEDURES)
def test_studies_cost_release_and_hide_what_the_grid_says(name: str, stored: bool) -> None:
    asked = [one for one in points() if one.case.procedure == name and one.stored == stored]
    assert asked
    assert list(changes(asked)) == []


def test_the_grid_holds_no_other_studies() -> None:
    asked = {(one.row, one.place) for one in points()}
    assert {(row, place) for row, places in KEPT.items() for place in places} <= asked
    assert {row for row, _ in asked} == KEPT.keys()
    released = {
        row.partition(",")[0] for row, places in KEPT.items() for one in places.values() if "sent" in one
    }
    assert released == set(PROCEDURES)
    assert GRID.stat().st_size < 400_000


def larger(found: Any) -> Any:
    return found * (1 + 1e-6)


@pytest.mark.parametrize(
    ("case", "owner", "name", "part"),
    [
        ("noisy_counts, stored/gaussian-cuts", SumPart, "scale", "noise"),
        ("aggregated_test, stored/direction", Vote, "sensitivity", "layout"),
        ("distance_correlation, stored/two-round", ExponentialChoice, "scale", "noise"),
        ("joint_independence, stored/gaussian; 0.5 0 50", permutation_test, "decision_xi", "noise"),
    ],
)
def test_noise_that_is_a_millionth_off_is_seen(
    case: str, owner: Any, name: str, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [one for one in points() if f"{one.row}/{one.place}".startswith(case)]
    assert list(changes(asked)) == []
    genuine: Any = vars(owner)[name]
    if isinstance(genuine, property):
        read: Callable[[Any], Any] = genuine.fget  # type: ignore[assignment]
        monkeypatch.setattr(owner, name, property(lambda own: larger(read(own))))
    else:
        monkeypatch.setattr(owner, name, lambda *given: larger(genuine(*given)))
    seen = list(changes(asked))
    assert any(f"/{part}/" in change for change in seen), seen
