"""How far units within owners move what leaves: bounds by search, and the parts of masked releases."""

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from audited_procedures import CASES
from audited_studies import neighbours, random_rows, rows_at
from group_comparison_cases import AGE, beside
from long_runs import LONG
from release_audit import moved_in_noise, promised
from release_audit import release as release_of

from tacit.testing.neighbour_search import EncodedRows as Rows
from tacit_protocol.domain import Domain
from tacit_protocol.procedures.association import release as pair_release
from tacit_protocol.procedures.association.release import (
    PAIR_WEIGHTS,
    ScorePairs,
    absolute_movement,
    squared_movement,
)
from tacit_protocol.procedures.base import planned
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.group_comparison import release
from tacit_protocol.procedures.within_owners import covariances
from tacit_protocol.procedures.within_owners.covariances import PAIR_SHARES


@pytest.mark.parametrize("weights", [pair_release.ADAPTED, pair_release.PUBLIC])
@pytest.mark.parametrize("columns", [2, 3, 6])
def test_the_movement_in_l1_is_a_bound_and_is_come_near(
    columns: int, weights: pair_release.RankWeights
) -> None:
    """The largest of a search over both units' grades, by the scores' own weights."""
    rng = np.random.default_rng(1)
    r = rng.choice(np.linspace(-1, 1, 17), (200_000, 2, columns))
    r[::2, 0] = 1.0
    r[::2, 1] = rng.choice(np.linspace(-1, 1, 81), (100_000, 1))  # all alike, where the bound is reached
    q = (3 * r * r - 1) / 2
    moved = weights.rank * np.abs(r[:, 0] - r[:, 1]).sum(axis=-1)
    moved += pair_release.CONVEX_WEIGHT * np.abs(q[:, 0] - q[:, 1]).sum(axis=-1)
    curves = np.zeros(len(moved))
    for a, b in combinations(range(columns), 2):
        products, both = r[..., a] * r[..., b], q[..., a] * q[..., b]
        moved += np.abs(products[:, 0] - products[:, 1])
        curves += weights.curve * np.abs(both[:, 0] - both[:, 1])
    own = (weights.rank + columns) ** 2 / 2
    assert 0.999 * own <= moved.max() <= own + 1e-9
    bound = absolute_movement(columns, weights)
    assert 0.85 * bound <= (moved + curves).max() <= bound + 1e-9


def test_the_squared_movement_is_a_bound_and_two_columns_come_near_it() -> None:
    """The largest of a search over both units of two columns, by the scores' own formula, t and r apart."""
    rng = np.random.default_rng(1)
    ends = np.array([-1.0, -0.5, 0.0, 0.5, 1.0])
    t, r = rng.choice(ends, (2, 200_000, 2, 2))  # (pairs of units, unit, column)
    columns = [t, t * t, r, (3 * r * r - 1) / 2]
    q = columns[3]
    pairs = [
        t[..., 0] * t[..., 1],
        r[..., 0] * r[..., 1],
        r[..., 0] * q[..., 1],
        q[..., 0] * r[..., 1],
        q[..., 0] * q[..., 1],
    ]
    moved = sum(
        weight * ((own[:, 0] - own[:, 1]) ** 2).sum(axis=-1)
        for weight, own in zip(pair_release.COLUMN_WEIGHTS, columns, strict=True)
    )
    moved = moved + sum(
        weight * (own[:, 0] - own[:, 1]) ** 2 for weight, own in zip(PAIR_WEIGHTS, pairs, strict=False)
    )
    assert 0.75 * squared_movement(2) <= moved.max() <= squared_movement(2)


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


def test_squares_that_weigh_more_than_costs_nothing_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: T2 at its whole weight, where a unit goes from the end of a column to a third of it."""
    monkeypatch.setattr(release, "ANSWERED_SQUARE", 1.0)
    case = beside(AGE)
    own = case.study.domain_of(case.study.owners[1])
    one, other = rows_at(own, 1, 1), rows_at(own, 1, 1)
    other.numeric[:] = 0.375
    moved = [release_of(case.study, table) for table in neighbours(own, random_rows(own, 0, 24), one, other)]
    assert moved_in_noise(*moved).laplace > 1.1 * promised(moved[0]).laplace


# Masked releases.


Drawn = tuple[Rows, list[Rows]]


def of_pairs(columns: Domain, rng: np.random.Generator) -> Drawn:
    """One other unit to some thousand, most of whose values are at either end of their column, in any shares.

    The replaced unit is at ends, at the others' mean or anywhere, before and afterwards.
    """
    count = int(rng.choice([1, 2, 3, 5, 20, 100, 3000]))
    others = rows_at(columns, 0, count)
    units = [rows_at(columns, 0, 1) for _ in range(2)]
    for kind in ("numeric", "categorical"):
        held = getattr(others, kind)
        for place in range(held.shape[1]):
            held[:, place] = rng.random(count) < rng.choice([0.0, 0.0, 0.1, 0.5, 1.0, 1.0])
            if kind == "numeric" and rng.random() < 0.2:
                held[:, place] = rng.random(count)
            for unit in units:
                value = rng.choice([0.0, 0.0, 1.0, 1.0, float(held[:, place].mean()), rng.random()])
                getattr(unit, kind)[:, place] = value if kind == "numeric" else rng.integers(3)
    return others, units


def of_groups(columns: Domain, rng: np.random.Generator) -> Drawn:
    """One other unit to some thousand, most at the ends of columns, in groups of any sizes.

    The replaced unit is of either group or none, before and afterwards.
    """
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
    return others, units


DRAW: dict[str, tuple[Callable[[Domain, np.random.Generator], Drawn], int]] = {
    "association": (of_pairs, 8),
    "group_comparison": (of_groups, 5),
}
"""How a procedure's tables are drawn, and the seed."""

TWO_NUMBERS, A_NUMBER = "association: masked, two numbers", "group_comparison: masked, a number"


def searched(case: str, trials: int, pairs: Any = None) -> dict[str, float]:
    """How near neighbours come to the sensitivity of each part of a masked release, 1 at most."""
    study = CASES[case].study
    pairs = pairs or planned(procedure_named(study.procedure), study).pairs  # type: ignore[attr-defined]
    draw, seed = DRAW[study.procedure]
    rng, found = np.random.default_rng(seed), dict.fromkeys(PAIR_SHARES, 0.0)
    for _ in range(trials):
        others, units = draw(study.domain, rng)
        one, other = (pairs.parts(pairs.sum(own)) for own in neighbours(study.domain, others, *units))
        for part, twin in zip(one, other, strict=True):
            moved = float(np.linalg.norm((part.sums - twin.sums).astype(float))) * 2.0**part.exponent
            found[part.name] = max(found[part.name], moved / part.sensitivity)
    return found


@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("case", "reached"),
    [
        (TWO_NUMBERS, 0.9),
        (A_NUMBER, 0.85),
        ("association: masked, numbers and categories", 0.9),
        ("group_comparison: masked, a category", 0.9),
    ],
)
def test_no_neighbour_moves_a_masked_part_by_more_than_is_stated(case: str, reached: float) -> None:
    found = searched(case, 20_000 if LONG else 600)
    assert max(found.values()) <= 1
    assert min(found.values()) > reached, "the search is too weak to say anything"


def test_masked_movements_of_pairs_a_tenth_too_small_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    for constant in ("PRODUCT_MOVEMENT", "PRODUCT_VARIANCE_MOVEMENT", "SQUARE_MOVEMENT"):
        monkeypatch.setattr(pair_release, constant, 0.9 * getattr(pair_release, constant))
    assert min(searched(TWO_NUMBERS, 300, ScorePairs(CASES[TWO_NUMBERS].study.domain)).values()) > 1.05


def test_masked_covariances_that_move_as_if_means_were_in_the_middle_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: 2, how far a product of numbers in [-1, 1] moves."""
    monkeypatch.setattr(pair_release, "PRODUCT_MOVEMENT", 2.0)
    found = searched(TWO_NUMBERS, 300, ScorePairs(CASES[TWO_NUMBERS].study.domain))
    assert found["covariances"] > 1.5


def test_masked_movements_of_groups_that_are_too_small_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: half of the constant of M, a spread and a diameter that are a tenth too small."""
    study = CASES[A_NUMBER].study
    pairs = planned(procedure_named(study.procedure), study).pairs  # type: ignore[attr-defined]
    monkeypatch.setattr(covariances, "VARIANCE_MOVEMENT", 0.5)
    monkeypatch.setattr(covariances, "SPREAD_MOVEMENT", 0.9)
    monkeypatch.setattr(pairs, "movement", 0.9 * pairs.movement)
    found = searched(A_NUMBER, 250, pairs)
    assert found["variances"] > 1.3
    assert found["spreads"] > 1.05
    assert found["covariances"] > 1.05
