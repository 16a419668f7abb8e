"""The audit of releases would catch the mistakes that sums over groups invite."""

import numpy as np
import pytest
from audited_studies import neighbours, random_rows, rows_at
from group_comparison_cases import AGE, BESIDE, CASES, SOFT, beside, worst_units
from long_runs import LONG
from release_audit import largest_move, moved_in_noise, promised
from release_audit import release as release_of

from tacit_protocol.domain import Domain
from tacit_protocol.procedures.base import planned
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.group_comparison import release
from tacit_protocol.procedures.group_comparison.plan import MaskedGroups
from tacit_protocol.procedures.group_comparison.release import GroupFeatures
from tacit_protocol.procedures.within_owners import covariances
from tacit_protocol.procedures.within_owners.covariances import WithinPairs


def is_caught(name: str) -> bool:
    moved, allowed = largest_move(CASES[name])
    return moved.gaussian > allowed.gaussian * (1 + 1e-9) or moved.laplace > allowed.laplace * (1 + 1e-9)


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


@pytest.mark.parametrize("name", SOFT)
def test_a_movement_of_cells_one_percent_too_small_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "CELLS_MOVEMENT", 1.98)
    assert is_caught(name)


def test_a_unit_that_moves_one_block_of_cells_alone_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: as if it left one group and came to none."""
    monkeypatch.setattr(release, "CELLS_MOVEMENT", 1.0)
    assert is_caught("soft cells, a number")


def test_weights_that_add_up_to_more_than_one_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: hats of the points of a number, as if both neighbouring ones had all of it at its bounds."""
    stated = release.soft_cells
    monkeypatch.setattr(release, "soft_cells", lambda t: np.minimum(1.05 * stated(t), 1.0))
    assert is_caught("soft cells, numbers and categories")


def test_few_cells_that_add_up_to_more_than_one_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    stated = release.few_cells
    monkeypatch.setattr(release, "few_cells", lambda t: np.minimum(1.05 * stated(t), 1.0))
    assert is_caught("four soft cells, numbers and a category")


@pytest.mark.parametrize("kind", ["soft_cells", "few_cells"])
def test_no_two_units_move_soft_cells_by_more_than_two(kind: str) -> None:
    """A search over pairs of values and groups, and of units of two rows."""
    t = np.linspace(-1, 1, 401)
    cells = getattr(release, kind)(t)
    assert cells.min() >= 0
    np.testing.assert_allclose(cells.sum(axis=1), 1, atol=1e-12)
    halves = (cells[:, None] + cells[None]) / 2
    moved = np.abs(halves.reshape(-1, cells.shape[1])[::97, None] - cells[None]).sum(axis=-1)
    assert 1.999 < moved.max() <= 2 + 1e-12


def searched(pairs: WithinPairs, columns: Domain, trials: int, seed: int = 5) -> dict[str, float]:
    """How near neighbours come to the sensitivity of each part of a masked release, 1 at most.

    Tables of two units to some thousand: most at the ends of columns, groups of any sizes; the replaced unit
    is of either group or none, before and afterwards.
    """
    rng, found = np.random.default_rng(seed), dict.fromkeys(covariances.PAIR_SHARES, 0.0)
    for _ in range(trials):
        count = int(rng.choice([1, 2, 3, 5, 8, 20, 60, 400, 3000]))
        others = random_rows(columns, int(rng.integers(1 << 30)), count)
        for end in (0.0, 1.0):
            others.numeric[rng.random(others.numeric.shape) < rng.choice([0, 0.5, 1.0])] = end
        few = rng.choice([0.0, 0.01, 0.02, 0.1, 0.5, 0.9, 0.98, 0.99, 1.0])
        others.categorical[:, 0] = rng.random(count) < few
        for place in range(1, others.categorical.shape[1]):
            if rng.random() < 0.5:
                others.categorical[:, place] = rng.integers(2)
        units = [rows_at(columns, end, 1) for end in rng.permutation(2)]
        for unit in units:
            unit.categorical[:, 0] = rng.choice([0, 0, 1, 1, 2])
            if rng.random() < 0.3:
                unit.numeric[:] = rng.random(unit.numeric.shape)
        one, other = (
            pairs.parts(pairs.sum(table)) for table in neighbours(columns, others, units[0], units[1])
        )
        for part, twin in zip(one, other, strict=True):
            moved = float(np.linalg.norm((part.sums - twin.sums).astype(float))) * 2.0**part.exponent
            found[part.name] = max(found[part.name], moved / part.sensitivity)
    return found


TRIALS = 20_000 if LONG else 600


@pytest.mark.parametrize(
    ("name", "reached"),
    [("masked, a number", 0.85), pytest.param("masked, a category", 0.9, marks=pytest.mark.long)],
)
def test_no_neighbour_moves_a_masked_part_by_more_than_is_stated(name: str, reached: float) -> None:
    plan = planned(procedure_named("group_comparison"), CASES[name].study)
    assert isinstance(plan, MaskedGroups)
    found = searched(plan.pairs, CASES[name].study.domain, TRIALS)
    assert max(found.values()) <= 1
    assert min(found.values()) > reached, "the search is too weak to say anything"


def test_masked_movements_that_are_too_small_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: half of the constant of M, a spread and a diameter that are a tenth too small."""
    plan = planned(procedure_named("group_comparison"), CASES["masked, a number"].study)
    assert isinstance(plan, MaskedGroups)
    columns = CASES["masked, a number"].study.domain
    monkeypatch.setattr(covariances, "VARIANCE_MOVEMENT", 0.5)
    assert searched(plan.pairs, columns, 250)["variances"] > 1.3
    monkeypatch.setattr(covariances, "SPREAD_MOVEMENT", 0.9)
    found = searched(plan.pairs, columns, 250)
    assert found["spreads"] > 1.05
    monkeypatch.setattr(plan.pairs, "movement", 0.9 * plan.pairs.movement)
    assert searched(plan.pairs, columns, 250)["covariances"] > 1.05


@pytest.mark.parametrize("name", BESIDE)
def test_a_movement_one_percent_too_small_is_caught_beside_answers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "ANSWERED_MOVEMENT", 1.98)
    assert is_caught(name)


def test_squares_that_weigh_more_than_costs_nothing_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: T2 at its whole weight, where a unit goes from the end of a column to a third of it."""
    monkeypatch.setattr(release, "ANSWERED_SQUARE", 1.0)
    case = beside(AGE)
    own = case.study.domain_of(case.study.owners[1])
    one, other = rows_at(own, 1, 1), rows_at(own, 1, 1)
    other.numeric[:] = 0.375
    moved = [release_of(case.study, table) for table in neighbours(own, random_rows(own, 0, 24), one, other)]
    assert moved_in_noise(*moved).laplace > 1.1 * promised(moved[0]).laplace


def test_no_two_units_move_a_number_by_more_than_two() -> None:
    """A search over a grid of pairs, which comes within a thousandth and catches a weight of .26."""
    t = np.linspace(-1, 1, 801)
    for weight, largest in ((release.ANSWERED_SQUARE, 2.0), (0.26, 2.0005)):
        squares = weight * (2 * t * t - 1)
        moved = np.abs(t[:, None] - t) + np.abs(squares[:, None] - squares)
        if weight == release.ANSWERED_SQUARE:
            assert 1.999 < moved.max() <= largest + 1e-12
        else:
            assert moved.max() > largest
