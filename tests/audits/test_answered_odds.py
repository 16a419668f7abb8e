"""Releases by randomised answers change nobody's odds by more than epsilon: exactly, at every owner.

The adversary knows everybody but one person. Given the cuts, all other units' answers have one law on both
neighbours, so that the odds of a whole release are those of its cuts times those of one answer; the odds of
tables are those of their cuts times what the noise has to hide. Both are worked out from what the procedure
hands to its noise source, for lists of cuts and every answer.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from made_studies import domain_of, made_study, rows_table
from scipy.special import log_softmax

from tacit_protocol.features import private_cells
from tacit_protocol.features.private_cells import ColumnCells, cut_losses
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy import randomised_response
from tacit_protocol.privacy.guarantee import RandomisedAnswers
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.privacy.randomised_response import mixing
from tacit_protocol.procedures import mutual_independence
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.mutual_independence import MutualPlan
from tacit_protocol.procedures.randomised_answers import answers
from tacit_protocol.procedures.randomised_answers.answers import CUTS_PART
from tacit_protocol.procedures.relay import combined, cost_for, relay_of
from tacit_protocol.procedures.screening.answered import CountedScreening

Floats = np.typing.NDArray[np.float64]
Integers = np.typing.NDArray[np.int64]
Patch = pytest.MonkeyPatch

UNITS = {"distance_correlation": 40, "mutual_independence": 60, "screening": 80}
EPSILON, SEED = 1.0, 5
SLACK = 1 + 1e-9


def study_of(
    procedure: str, parameters: Mapping[str, Any], held: tuple[int, ...] = (1, 1), delta: float = 0.0
) -> Study:
    """Owners a, b, c, ... hold so many numbers each."""
    domain = domain_of(sum(held))
    ends = np.cumsum([0, *held])
    names = [[column.name for column in domain.columns[start:stop]] for start, stop in pairwise(ends)]
    parties = tuple("abc"[: len(held)])
    return made_study(procedure, domain, parameters, owners=parties, held=names, epsilon=EPSILON, delta=delta)


TWO = {"method": "two-round", "categories": 2}
PAIR = study_of("distance_correlation", TWO)
THREE = study_of("mutual_independence", TWO, (1, 1, 1))
HALVED = study_of("mutual_independence", {}, (1, 1, 1))
SCREENED = study_of("screening", {"categories": 2}, (3, 1))
GAUSSIAN = study_of("screening", {"categories": 2}, (4, 1), 1e-5)


@dataclass
class Recorder:
    """Adds nothing; draws the list of cuts that it is told to; keeps what it was asked."""

    cuts: int
    scores: list[Floats] = field(default_factory=list)
    noisy: list[tuple[Integers, float]] = field(default_factory=list)

    def choose(self, scores: Integers, scale: float) -> int:
        self.scores.append(scores / scale)
        return self.cuts

    def laplace(self, values: Integers, scale: float) -> Integers:
        self.noisy.append((values.copy(), scale))
        return values

    gaussian = laplace

    def uniform(self, count: int) -> np.typing.NDArray[np.uint64]:
        return np.zeros(count, dtype=np.uint64)  # every unit keeps its own cell


def released(study: Study, side: int, rows: Floats, source: Any, received: Mapping[str, Release]) -> Release:
    """What the owner at that place releases, beside what it has received."""
    procedure = procedure_named(study.procedure)
    table = rows_table(study.domain_of(study.owners[side]), rows)
    summary = (
        combined(procedure, study, received, table).summary if received else procedure.summarise(study, table)
    )
    return procedure.privatise(study, summary, source)


def received_by(study: Study, side: int, answer: str) -> dict[str, Release]:
    """What the other owners send first, if it is they who do.

    Answers are drawn by the mechanism, or all the same: a sender may send anything of that form.
    """
    relay = relay_of(procedure_named(study.procedure), study)
    if relay is None or relay.is_sender(study.owners[side].name):
        return {}
    rng, found = np.random.default_rng(SEED), {}
    for place, owner in enumerate(study.owners):
        if relay.is_sender(owner.name):
            rows = rng.random((UNITS[study.procedure], len(study.domain_of(owner).columns)))
            found[owner.name] = made = released(study, place, rows, OpenDPNoise(), {})
            if answer == "all the same":
                same = {
                    name: RandomisedAnswers.of(np.zeros(own.units, dtype=np.int64), own.codes, own.retention)
                    for name, own in made.answers.items()
                }
                found[owner.name] = made.model_copy(update={"answers": same})
    return found


def neighbours(units: int, width: int, place: int) -> Iterator[tuple[Floats, Floats]]:
    """Rows of which one is replaced: the others spread out, or stand at one or two places."""
    rng, shape = np.random.default_rng(SEED), (units - 1, width)
    for others in (rng.random(shape), np.full(shape, 0.5), rng.integers(0, 2, shape) * 0.99):
        for own, twin in ((0.0, 1.0), (0.5, 0.51), (0.25, 0.75)):
            yield np.insert(others, place, own, axis=0), np.insert(others, place, twin, axis=0)


def l1(moved: Floats) -> float:
    return float(np.sum(np.abs(moved)))


def cut_odds(one: Recorder, other: Recorder) -> float:
    """The log of the odds of the lists of cuts on two neighbours."""
    return sum(
        abs(float(log_softmax(first)[one.cuts] - log_softmax(second)[one.cuts]))
        for first, second in zip(one.scores, other.scores, strict=True)
    )


def largest(
    study: Study,
    side: int,
    answer: str = "drawn",
    place: int | None = None,
    size: Callable[[Floats], float] = l1,
    of_cuts: Callable[[Recorder, Recorder], float] = cut_odds,
    lists: Any = range(0, 127, 14),
) -> float:
    """The largest log-odds of a release of the owner at ``side``; the neighbours differ in one unit."""
    received, found, units = received_by(study, side, answer), 0.0, UNITS[study.procedure]
    width = len(study.domain_of(study.owners[side]).columns)
    for pair in neighbours(units, width, units - 1 if place is None else place):
        for cuts in lists:
            sources = Recorder(int(cuts)), Recorder(int(cuts))
            one, two = (released(study, side, own, s, received) for own, s in zip(pair, sources, strict=True))
            if one.cuts != two.cuts:
                return math.inf  # cuts that nothing has drawn tell the neighbours apart for certain
            odds = of_cuts(*sources)
            for name, own in one.answers.items():
                law = mixing(own.codes, own.retention)
                first, second = own.values(), two.answers[name].values()
                assert int(np.sum(first != second)) <= 1
                odds += max(
                    float(np.max(np.abs(np.log(law[:, cell] / law[:, twin]))))
                    for cell, twin in zip(first, second, strict=True)
                )
            for (values, scale), (moved, _) in zip(sources[0].noisy, sources[1].noisy, strict=True):
                odds += size((values - moved) / scale)
            found = max(found, odds)
    return found


CASES: dict[str, tuple[Study, int, float]] = {
    "two-round, sender": (PAIR, 0, 0.97),
    "two-round, receiver": (PAIR, 1, 0.97),
    "one-round": (study_of("distance_correlation", {"method": "one-round", "categories": 2}), 0, 0.97),
    "two-round, even cuts": (study_of("distance_correlation", TWO | {"cuts": "even"}), 0, 1 - 1e-9),
    "one-round, even cuts": (
        study_of("distance_correlation", {"method": "one-round", "categories": 4, "cuts": "even"}),
        0,
        1 - 1e-9,
    ),
    "of three, first": (THREE, 0, 0.9),
    "of three, second": (THREE, 1, 0.9),
    "of three, last": (THREE, 2, 0.9),
    "screening, all tables together": (SCREENED, 0, 0.9),
}
"""Studies, places of the owner that is audited, and how near to epsilon its odds come at least."""


@pytest.mark.parametrize("name", CASES)
def test_no_release_changes_anybodys_odds_by_more_than_epsilon(name: str) -> None:
    study, side, reached = CASES[name]
    for answer in ("drawn", "all the same") if received_by(study, side, "drawn") else ("drawn",):
        assert reached * EPSILON < largest(study, side, answer) <= EPSILON * SLACK


@pytest.mark.parametrize("side", [0, 1])
def test_nor_where_cuts_take_a_part_that_fits_the_number_of_units(side: int, monkeypatch: Patch) -> None:
    """The part is smaller the more units there are, as if these few were thousands."""
    assert [answers.fitted_part(units, 1.0) for units in (20, 1000, 10**6)] == [0.15, 0.1, 0.03]
    monkeypatch.setattr(answers, "CUTS_SPENT", 0.05 * UNITS[PAIR.procedure] * EPSILON)
    assert 0.97 * EPSILON < largest(PAIR, side) <= EPSILON * SLACK


@pytest.mark.long
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("categories", [3, 4])
def test_nor_with_more_cells(categories: int, side: int) -> None:
    lists = math.comb(private_cells.GRIDS[categories] - 1, categories - 1)
    study = study_of("distance_correlation", TWO | {"categories": categories})
    drawn = np.random.default_rng(SEED).integers(0, lists, 20)
    assert largest(study, side, lists=drawn) <= EPSILON * SLACK


def test_gaussian_tables_move_by_no_more_than_their_noise_is_made_for() -> None:
    mu = 1 / cost_for(procedure_named("screening"), GAUSSIAN, "a").events[0].noise_multiplier  # type: ignore[union-attr]
    found = largest(GAUSSIAN, 0, size=lambda moved: float(np.linalg.norm(moved)), of_cuts=lambda *_: 0.0)
    assert 0.99 * mu < found <= mu * SLACK
    assert largest(GAUSSIAN, 0, size=lambda _: 0.0) <= CUTS_PART * EPSILON * SLACK


def test_a_unit_answers_for_one_of_several_outcomes_within_what_cuts_leave() -> None:
    study, left = study_of("screening", {"categories": 2}, (3, 2)), (1 - CUTS_PART) * EPSILON
    release = received_by(study, 0, "drawn")["b"]
    assert sum(own.units for own in release.answers.values()) == UNITS["screening"]
    for own in release.answers.values():
        law = mixing(own.codes, own.retention)
        assert 0.999 * left < math.log((law[:, :, None] / law[:, None, :]).max()) <= left * SLACK


@pytest.fixture
def small_halves(monkeypatch: Patch) -> None:
    """Units are dealt into halves however few they are."""
    for name in ("HALVES_SPENT", "HALVES_SIGNAL", "SIGNAL_MIN", "SIGNAL_AMPLE"):
        monkeypatch.setattr(mutual_independence, name, 0.0)


def dealt(study: Study) -> list[Any]:
    plan = procedure_named(study.procedure).plan(study)
    assert isinstance(plan, MutualPlan)
    return plan.deal(UNITS[study.procedure])


@pytest.mark.parametrize("side", [0, 2])
def test_a_dealt_unit_places_cuts_or_answers_at_the_whole_of_epsilon(side: int) -> None:
    ((_, answering, placing),) = dealt(THREE)
    assert sorted([*answering, *placing]) == list(range(60))
    assert len(placing) == mutual_independence.dealt_units(60, EPSILON, 1)
    # A unit that moves from one end to another changes a list's loss by 1, so that the odds of cuts are below
    # epsilon by what the other lists do; those of answers and counts reach it.
    for places, reached in ((answering, 0.99), (placing, 0.4)):
        assert reached * EPSILON < largest(THREE, side, place=int(places[0])) <= EPSILON * SLACK


@pytest.mark.usefixtures("small_halves")
@pytest.mark.parametrize("side", [0, 2])
def test_a_unit_of_either_half_does_too(side: int) -> None:
    halves = dealt(HALVED)
    assert [part.cells[side].cells for part, _, _ in halves] == [3, 2]
    assert sorted(np.concatenate([places for _, *both in halves for places in both])) == list(range(60))
    for _, answering, placing in halves:
        for places, reached in ((answering, 0.99), (placing, 0.2)):
            assert reached * EPSILON < largest(HALVED, side, place=int(places[0])) <= EPSILON * SLACK


# Planted mistakes.


def retention_for_one_cell_fewer(patch: Patch) -> None:
    """k - 1 in the place of k in (e^epsilon - 1)/(e^epsilon - 1 + k)."""
    genuine = randomised_response.retention
    patch.setattr(randomised_response, "retention", lambda epsilon, codes: genuine(epsilon, codes - 1))


def cuts_from_raw_data(patch: Patch) -> None:
    """The quantiles themselves."""

    def quantiles(cells: ColumnCells, values: Floats, epsilon: float, source: Any) -> tuple[int, ...]:
        lists = private_cells.cut_lists(cells.grid, cells.cells)
        return tuple(lists[np.argmin(cut_losses(values, cells.grid, cells.cells))].tolist())

    patch.setattr(ColumnCells, "draw_cuts", quantiles)


def cuts_that_are_not_paid_for(patch: Patch) -> None:
    """Answers and table take the whole of epsilon, and the cuts their part besides."""

    def whole(plan: Any, units: int, *, bought: bool) -> int:
        return int(plan.study.budget.epsilon_micro)

    patch.setattr(answers.PairedAnswers, "_rest_micro", whole)


def table_of_half_the_noise(patch: Patch) -> None:
    """A replaced unit moves one count, not two."""
    genuine = answers.laplace_multiplier
    patch.setattr(answers, "laplace_multiplier", lambda epsilon: genuine(epsilon) / 2)
    patch.setattr(mutual_independence, "L1_SENSITIVITY", 1.0)


def units_that_place_cuts_and_answer_too(patch: Patch) -> None:
    """All units place the cuts, and those that answer do so at the whole of epsilon."""
    right = MutualPlan.deal
    patch.setattr(
        MutualPlan, "deal", lambda plan, n: [(part, own, np.arange(n)) for part, own, _ in right(plan, n)]
    )


def units_that_are_in_both_halves(patch: Patch) -> None:
    """The second half begins before the first ends."""
    right = MutualPlan.deal

    def overlapping(plan: MutualPlan, n: int) -> list[Any]:
        (first, own, placing), (second, others, its) = right(plan, n)
        return [(first, own, placing), (second, np.sort(np.append(others[1:], own[0])), its)]

    patch.setattr(MutualPlan, "deal", overlapping)


def noise_for_one_table(patch: Patch) -> None:
    """A unit is counted in three tables, and the noise is made for one."""
    patch.setattr(CountedScreening, "tables_of_unit", 1)


class EveryColumn:
    """Of units that are dealt columns: each has every column."""

    def __init__(self, units: int) -> None:
        self.units = units

    def __eq__(self, other: object) -> Any:
        return np.ones(self.units, dtype=np.bool_)

    __hash__ = None  # type: ignore[assignment]


def cuts_from_all_units_for_every_column(patch: Patch) -> None:
    """Each of three columns buys its cuts from all units, at the price of one."""

    def everywhere(plan: CountedScreening, side: int, own: Integers) -> Any:
        return EveryColumn(len(own)) if side != plan.first else own

    patch.setattr(CountedScreening, "columns_of", everywhere)


MISTAKES: list[tuple[Callable[[Patch], None], Study, int, float]] = [
    (retention_for_one_cell_fewer, PAIR, 0, 1.1),
    (cuts_from_raw_data, PAIR, 0, 1e9),
    (cuts_that_are_not_paid_for, PAIR, 0, 1.1),
    (cuts_that_are_not_paid_for, PAIR, 1, 1.1),
    (table_of_half_the_noise, PAIR, 1, 1.5),
    (table_of_half_the_noise, THREE, 2, 1.5),
    (units_that_place_cuts_and_answer_too, THREE, 0, 1.2),
    (units_that_place_cuts_and_answer_too, THREE, 2, 1.2),
    (units_that_are_in_both_halves, HALVED, 0, 1.8),
    (units_that_are_in_both_halves, HALVED, 2, 1.8),
    (noise_for_one_table, SCREENED, 0, 2.0),
    (cuts_from_all_units_for_every_column, SCREENED, 0, 1.05),
]
"""Each with a study and an owner whose odds it changes, and by how many epsilon at least."""


@pytest.mark.parametrize(("plant", "study", "side", "beyond"), MISTAKES)
def test_a_planted_mistake_is_caught(
    plant: Callable[[Patch], None],
    study: Study,
    side: int,
    beyond: float,
    monkeypatch: Patch,
    request: pytest.FixtureRequest,
) -> None:
    if study is HALVED:
        request.getfixturevalue("small_halves")
    plant(monkeypatch)
    place = int(dealt(study)[0][1][0]) if study in (THREE, HALVED) else None
    assert largest(study, side, place=place) > beyond * EPSILON
