"""The audit of releases would catch the mistakes that an association's two vectors invite.

The bound is a sum over coordinates, which no unit reaches in all of them: nine tenths of it are found, so
that a constant must be wrong by more than a tenth to be caught.
"""

from itertools import combinations

import numpy as np
import pytest
from association_cases import CASES
from audited_studies import neighbours, rows_at
from long_runs import LONG
from release_audit import largest_move

from tacit_protocol.domain import Domain
from tacit_protocol.privacy.laplace_mechanism import laplace_sum_guarantee
from tacit_protocol.procedures.association import plan, release
from tacit_protocol.procedures.association.plan import (
    GaussianAssociation,
    LaplaceAssociation,
    MaskedAssociation,
)
from tacit_protocol.procedures.association.release import (
    PAIR_WEIGHTS,
    ScorePairs,
    absolute_movement,
    squared_movement,
    squared_movement_of_signs,
)
from tacit_protocol.procedures.base import planned
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.within_owners.covariances import PAIR_SHARES


def is_caught(name: str) -> bool:
    moved, allowed = largest_move(CASES[name])
    return moved.gaussian > allowed.gaussian * (1 + 1e-9) or moved.laplace > allowed.laplace * (1 + 1e-9)


def test_without_a_mistake_nothing_is_caught() -> None:
    assert not any(is_caught(name) for name in CASES)


def test_a_sensitivity_a_fifth_too_small_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "squared_movement", lambda columns: 0.8**2 * squared_movement(columns))
    assert is_caught("two numbers")


def test_products_that_are_forgotten_in_the_sensitivity_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: as if t t' and r r' moved by 1, as they do where one of both columns stays in the middle."""
    forgotten = 3 * (PAIR_WEIGHTS[0] + PAIR_WEIGHTS[1])
    monkeypatch.setattr(plan, "squared_movement", lambda columns: squared_movement(columns) - forgotten)
    assert is_caught("two numbers")


def test_histograms_and_scores_that_both_take_the_whole_budget_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: each vector's noise as if the other did not leave."""
    parts = GaussianAssociation.parts

    def whole(self: GaussianAssociation, *given: object, **named: object) -> object:
        return tuple(
            type(part)(part.name, part.sums, part.exponent, part.sensitivity, 1.0)
            for part in parts(self, *given, **named)  # type: ignore[arg-type]
        )

    monkeypatch.setattr(GaussianAssociation, "parts", whole)
    assert is_caught("two numbers")


def test_a_movement_of_two_levels_a_tenth_too_small_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    moved = squared_movement_of_signs
    monkeypatch.setattr(plan, "squared_movement_of_signs", lambda columns: 0.9**2 * moved(columns))
    assert is_caught("two levels")


PURE = ("pure, two numbers", "pure, two numbers, few units")


@pytest.mark.parametrize("name", [*PURE, "pure, two levels"])
def test_a_movement_in_l1_a_tenth_too_small_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "absolute_movement", lambda *given: 0.9 * absolute_movement(*given))
    assert is_caught(name)


@pytest.mark.parametrize("name", PURE)
def test_squares_that_weigh_more_than_costs_nothing_are_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: q at its whole weight, as if it moved only with r."""
    monkeypatch.setattr(release, "CONVEX_WEIGHT", 1.0)
    assert is_caught(name)


def test_products_that_are_forgotten_in_l1_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: every column's own movement, and none of the pair's."""
    monkeypatch.setattr(plan, "absolute_movement", lambda columns, weights: 2 * columns * weights.rank)
    assert is_caught(PURE[0])


def test_histograms_and_sums_of_ranks_that_both_take_all_of_epsilon_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events = LaplaceAssociation.events
    monkeypatch.setattr(
        LaplaceAssociation,
        "events",
        lambda self, units: (laplace_sum_guarantee(self.guarantee.budget),) * len(events(self, units)),
    )
    assert is_caught(PURE[0])
    assert not is_caught(PURE[1])


@pytest.mark.parametrize("weights", [release.ADAPTED, release.PUBLIC])
@pytest.mark.parametrize("columns", [2, 3, 6])
def test_the_movement_in_l1_is_a_bound_and_is_come_near(columns: int, weights: release.RankWeights) -> None:
    """The largest of a search over both units' grades, by the scores' own weights."""
    rng = np.random.default_rng(1)
    r = rng.choice(np.linspace(-1, 1, 17), (200_000, 2, columns))
    r[::2, 0] = 1.0
    r[::2, 1] = rng.choice(np.linspace(-1, 1, 81), (100_000, 1))  # all alike, where the bound is reached
    q = (3 * r * r - 1) / 2
    moved = weights.rank * np.abs(r[:, 0] - r[:, 1]).sum(axis=-1)
    moved += release.CONVEX_WEIGHT * np.abs(q[:, 0] - q[:, 1]).sum(axis=-1)
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
        for weight, own in zip(release.COLUMN_WEIGHTS, columns, strict=True)
    )
    moved = moved + sum(
        weight * (own[:, 0] - own[:, 1]) ** 2 for weight, own in zip(PAIR_WEIGHTS, pairs, strict=False)
    )
    assert 0.75 * squared_movement(2) <= moved.max() <= squared_movement(2)


def searched(pairs: ScorePairs, columns: Domain, trials: int) -> dict[str, float]:
    """How near neighbours come to the sensitivity of each part of a masked release, 1 at most.

    Tables of one other unit to some thousand, most of whose values are at either end of their column, in any
    shares; the replaced unit is at ends, at the others' mean or anywhere, before and afterwards.
    """
    rng, found = np.random.default_rng(8), dict.fromkeys(PAIR_SHARES, 0.0)
    for _ in range(trials):
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
        one, other = (pairs.parts(pairs.sum(own)) for own in neighbours(columns, others, *units))
        for part, twin in zip(one, other, strict=True):
            moved = float(np.linalg.norm((part.sums - twin.sums).astype(float))) * 2.0**part.exponent
            found[part.name] = max(found[part.name], moved / part.sensitivity)
    return found


TRIALS = 20_000 if LONG else 600


@pytest.mark.parametrize(
    "name",
    ["masked, two numbers", pytest.param("masked, numbers and categories", marks=pytest.mark.long)],
)
def test_no_neighbour_moves_a_masked_part_by_more_than_is_stated(name: str) -> None:
    masked = planned(procedure_named("association"), CASES[name].study)
    assert isinstance(masked, MaskedAssociation)
    found = searched(masked.pairs, CASES[name].study.domain, TRIALS)
    assert max(found.values()) <= 1
    assert min(found.values()) > 0.9, "the search is too weak to say anything"


def test_masked_movements_a_tenth_too_small_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = CASES["masked, two numbers"].study.domain
    for constant in ("PRODUCT_MOVEMENT", "PRODUCT_VARIANCE_MOVEMENT", "SQUARE_MOVEMENT"):
        monkeypatch.setattr(release, constant, 0.9 * getattr(release, constant))
    found = searched(release.ScorePairs(columns), columns, 300)
    assert min(found.values()) > 1.05


def test_masked_covariances_that_move_as_if_means_were_in_the_middle_are_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Planted: 2, how far a product of numbers in [-1, 1] moves."""
    monkeypatch.setattr(release, "PRODUCT_MOVEMENT", 2.0)
    columns = CASES["masked, two numbers"].study.domain
    assert searched(release.ScorePairs(columns), columns, 300)["covariances"] > 1.5
