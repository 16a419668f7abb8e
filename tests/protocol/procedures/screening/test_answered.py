"""Screening by randomised answers: what new studies ask for, privacy at either owner, level, what is found.

The adversary knows everybody but one person. Of the receiver the odds of all tables at once are those of its
cuts times what the noise has to hide, worked out from what the procedure hands to its noise source.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from made_studies import made_study, rows_table
from scipy.special import log_softmax
from two_sample_cases import domain_of

from tacit.planning.simulation import SimulatedNoise
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.numerics.randomised_tables import AnsweredTable
from tacit_protocol.privacy.accounting import fits
from tacit_protocol.privacy.guarantee import RandomisedAnswers
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.privacy.randomised_response import mixing
from tacit_protocol.procedures.base import PublicRuleError, planned
from tacit_protocol.procedures.randomised_answers.answers import CUTS_PART
from tacit_protocol.procedures.relay import combined, cost_for, relay_of
from tacit_protocol.procedures.screening import Screening
from tacit_protocol.procedures.screening.answered import (
    LOOK_LEVEL,
    AnsweredScreening,
    CountedScreening,
    pair_test,
)
from tacit_protocol.procedures.screening.verdict import AnsweredScreeningVerdict

PROCEDURE = Screening()
UNITS, COLUMNS, EPSILON, SEED = 80, 3, 1.0, 5

Floats = np.typing.NDArray[np.float64]
Integers = np.typing.NDArray[np.int64]


def study_of(
    parameters: Mapping[str, Any] | None = None,
    x: int = COLUMNS,
    y: int = 1,
    *,
    epsilon: float = EPSILON,
    delta: float = 0.0,
    sizes: tuple[int, ...] = (),
    **given: Any,
) -> Study:
    """Owner a holds x columns, b y outcomes; or categories of ``sizes``, of which b holds the last."""
    domain = domain_of(0, sizes) if sizes else domain_of(x + y)
    names = [column.name for column in domain.columns]
    x = len(sizes) - 1 if sizes else x
    given = {"owners": ("a", "b"), "held": (names[:x], names[x:])} | given
    return made_study(PROCEDURE.name, domain, dict(parameters or {}), epsilon=epsilon, delta=delta, **given)


TWO = {"categories": 2}
GAUSSIAN: dict[str, Any] = {"x": 4, "delta": 1e-5}
"""So many columns, and a delta: the tables' noise is Gaussian."""


def table_of(study: Study, side: int, rows: Any) -> Any:
    return rows_table(study.domain_of(study.owners[side]), rows)


def sent(study: Study, rows: Any, source: Any) -> Release:
    """The answers of the outcomes' owner."""
    return PROCEDURE.privatise(study, PROCEDURE.summarise(study, table_of(study, 1, rows)), source)


def counted(study: Study, received: Release, rows: Any, source: Any) -> Release:
    """The tables beside them, of the columns' owner."""
    summary = combined(PROCEDURE, study, {"b": received}, table_of(study, 0, rows)).summary
    return PROCEDURE.privatise(study, summary, source)


def both(study: Study, x: Any, y: Any, source: Any) -> dict[str, Release]:
    answers = sent(study, y, source)
    return {"b": answers, "a": counted(study, answers, x, source)}


def verdict_of(study: Study, x: Any, y: Any, source: Any) -> AnsweredScreeningVerdict:
    releases = both(study, x, y, source)
    found = planned(PROCEDURE, study).conclude(releases, dict.fromkeys(releases, len(x)))
    assert isinstance(found, AnsweredScreeningVerdict)
    return found


# What new studies ask for.


@pytest.mark.parametrize(
    ("study", "noise"),
    [
        (study_of(), "laplace"),
        (study_of(delta=1e-5), "laplace"),
        (study_of(x=20), "laplace"),
        (study_of(x=20, delta=1e-5), "gaussian"),
        (study_of({"method": "one-round"}, x=20, delta=1e-5), "laplace"),
        (study_of({"outcome": "a"}, x=20, y=10, delta=1e-5), "gaussian"),
        (study_of({"outcome": "b"}, x=3, y=10, delta=1e-5), "laplace"),
    ],
)
def test_noise_is_chosen_by_public_numbers(study: Study, noise: str) -> None:
    PROCEDURE.check(study)
    plan = PROCEDURE.plan(study)
    assert isinstance(plan, AnsweredScreening)
    assert plan.noise == noise


def test_the_outcomes_owner_sends_and_either_spends_within_the_budget() -> None:
    study = study_of(TWO, **GAUSSIAN)
    relay = relay_of(PROCEDURE, study)
    assert relay is not None
    assert (relay.sender.name, relay.receiver.name, relay.sealed) == ("b", "a", False)
    assert "one randomised answer" in relay.sends
    costs = [cost_for(PROCEDURE, study, name) for name in ("a", "b")]
    assert len(costs[0].events) == 3
    assert len(costs[1].events) == 1
    assert all(fits(cost.events, study.budget) for cost in costs)


def test_too_few_units_for_the_columns_end_the_study_first() -> None:
    with pytest.raises(PublicRuleError, match="60 in all"):
        planned(PROCEDURE, study_of(TWO)).check_units({"a": 59})
    planned(PROCEDURE, study_of(TWO)).check_units({"a": 60})


# Exact odds.


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

    def gaussian(self, values: Integers, scale: float) -> Integers:
        self.noisy.append((values.copy(), scale))
        return values

    def uniform(self, count: int) -> np.typing.NDArray[np.uint64]:
        return np.zeros(count, dtype=np.uint64)


def cut_odds(one: Recorder, other: Recorder, cuts: int) -> float:
    return sum(
        abs(float(log_softmax(first)[cuts] - log_softmax(second)[cuts]))
        for first, second in zip(one.scores, other.scores, strict=True)
    )


def farthest(
    study: Study,
    received: Release,
    size: Callable[[Floats], float],
    odds: Callable[[Recorder, Recorder, int], float] = cut_odds,
) -> float:
    """Return the largest odds of cuts, plus the size of what moves in noise scales, over neighbours.

    The last unit is replaced, in all columns at once.
    """
    rng, found, width = np.random.default_rng(SEED), 0.0, len(study.domain_of(study.owners[0]).columns)
    for others in (rng.random((UNITS - 1, width)), np.full((UNITS - 1, width), 0.5)):
        for own, twin in ((0.0, 1.0), (0.25, 0.75), (0.5, 0.51)):
            for cuts in range(0, 127, 14):
                sources = Recorder(cuts), Recorder(cuts)
                for value, source in zip((own, twin), sources, strict=True):
                    counted(study, received, np.vstack([others, np.full(width, value)]), source)
                (first, scale), (second, _) = (source.noisy[0] for source in sources)
                found = max(found, odds(*sources, cuts) + size((first - second) / scale))
    return found


def received_of(study: Study, answer: str) -> Release:
    release = sent(study, np.random.default_rng(SEED).random((UNITS, 1)), OpenDPNoise())
    if answer == "drawn":
        return release
    ((name, own),) = release.answers.items()
    same = RandomisedAnswers.of(np.zeros(UNITS, dtype=np.int64), own.codes, own.retention)
    return release.model_copy(update={"answers": {name: same}})


def l1(moved: Floats) -> float:
    return float(np.sum(np.abs(moved)))


def l2(moved: Floats) -> float:
    return float(np.sqrt(np.sum(moved**2)))


@pytest.mark.parametrize("answer", ["drawn", "all the same"])
def test_all_tables_together_change_nobodys_odds_by_more_than_epsilon(answer: str) -> None:
    """A unit counts for one column's cuts, and in every column's table."""
    study = study_of(TWO)
    found = farthest(study, received_of(study, answer), l1)
    assert 0.9 * EPSILON < found <= EPSILON * (1 + 1e-9)


def test_gaussian_tables_move_by_no_more_than_their_noise_is_made_for() -> None:
    study = study_of(TWO, **GAUSSIAN)
    mu = 1 / cost_for(PROCEDURE, study, "a").events[0].noise_multiplier  # type: ignore[union-attr]
    found = farthest(study, received_of(study, "drawn"), l2, odds=lambda *_: 0.0)
    assert 0.99 * mu < found <= mu * (1 + 1e-9)
    cuts = farthest(study, received_of(study, "drawn"), lambda _: 0.0)
    assert cuts <= CUTS_PART * EPSILON * (1 + 1e-9)


def test_answers_of_outcomes_change_nobodys_odds_by_more_than_epsilon() -> None:
    study, left = study_of(TWO, y=2), (1 - CUTS_PART) * EPSILON
    release = sent(study, np.random.default_rng(SEED).random((UNITS, 2)), OpenDPNoise())
    assert sum(own.units for own in release.answers.values()) == UNITS
    for own in release.answers.values():
        law = mixing(own.codes, own.retention)
        assert math.log((law[:, :, None] / law[:, None, :]).max()) <= left * (1 + 1e-9)
        assert math.log(law.max() / law.min()) > 0.999 * left


def test_noise_for_one_table_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a unit is counted in three tables, and the noise is made for one."""
    monkeypatch.setattr(CountedScreening, "tables_of_unit", 1)
    study = study_of(TWO)
    assert farthest(study, received_of(study, "drawn"), l1) > 2 * EPSILON


def test_cuts_from_all_units_for_every_column_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: each of three columns buys its cuts from all units, at the price of one."""

    def everywhere(plan: CountedScreening, side: int, dealt: Integers) -> Any:
        return EveryColumn(len(dealt)) if side != plan.first else dealt

    class EveryColumn:
        def __init__(self, units: int) -> None:
            self.units = units

        def __eq__(self, other: object) -> Any:
            return np.ones(self.units, dtype=np.bool_)

        __hash__ = None  # type: ignore[assignment]

    monkeypatch.setattr(CountedScreening, "columns_of", everywhere)
    study = study_of(TWO)
    assert farthest(study, received_of(study, "drawn"), l1) > 1.05 * EPSILON


# What is refused.


# What is found.


def dependent(rng: np.random.Generator, units: int, columns: int) -> tuple[Floats, Floats]:
    """Columns that share a factor, of which the first and the second depend on the outcome."""
    y, factor = rng.random(units), rng.random(units)
    x = 0.5 * factor[:, None] + 0.5 * rng.random((units, columns))
    x[:, 0] = 0.8 * (1 - y) + 0.2 * factor
    x[:, 1] = 0.8 * (2 * y - 1) ** 2 + 0.2 * factor
    return x, y[:, None]


@pytest.mark.parametrize("delta", [0.0, 1e-5])
def test_dependent_columns_are_found_and_ranked(delta: float) -> None:
    """Of 6000 units at epsilon 4 the first two are dozens of standard deviations away."""
    x, y = dependent(np.random.default_rng(SEED), 6000, 6)
    verdict = verdict_of(
        study_of(x=6, epsilon=4.0, delta=delta),
        x,
        y,
        SimulatedNoise(np.random.default_rng(SEED)),
    )
    first, second, *others = verdict.pairs
    assert {first.column, second.column} == {"n0", "n1"}
    assert (first.reject, second.reject, any(pair.reject for pair in others)) == (True, True, False)
    signs = {pair.column: pair.sign for pair in (first, second)}
    assert signs["n0"] == -1
    for pair in (first, second):
        assert pair.interval is not None
        assert pair.distance_correlation is not None
        assert pair.interval[0] <= pair.distance_correlation <= pair.interval[1]
    assert "found" in str(verdict)


def test_one_round_finds_them_too_and_a_verdict_is_the_same_for_everyone() -> None:
    study = study_of({"method": "one-round", "permutations": 999}, x=2, epsilon=6.0)
    rng = np.random.default_rng(SEED)
    x, y = dependent(rng, 6000, 2)
    noise = SimulatedNoise(rng)
    releases = {
        "a": PROCEDURE.privatise(study, PROCEDURE.summarise(study, table_of(study, 0, x)), noise),
        "b": PROCEDURE.privatise(study, PROCEDURE.summarise(study, table_of(study, 1, y)), noise),
    }
    for release in releases.values():
        PROCEDURE.check_release(study, release)
    verdicts = [PROCEDURE.assemble(study, {name: releases[name] for name in order}) for order in ("ab", "ba")]
    assert verdicts[0] == verdicts[1]
    assert verdicts[0].reject


@pytest.mark.long
def test_the_share_of_false_discoveries_and_each_pairs_level_are_kept() -> None:
    """150 studies of six columns that share a factor, none of which depends on the outcome.

    Any finding is false: in 150 studies at level .2 more than 52 have probability 1e-6 at most. Of single
    p-values those up to .1 are a tenth of 900: their number in six equal studies has at most six times the
    binomial variance, and is below 90 + 5 sqrt(6 * 81).
    """
    noise = SimulatedNoise(np.random.default_rng(SEED))
    rejected, small = 0, 0
    for run in range(150):
        rng = np.random.default_rng([SEED, run])
        study = study_of({"permutations": 199, "control": "bh"}, x=6, level=0.2, seed=run)
        x, _ = dependent(rng, 400, 6)
        verdict = verdict_of(study, x, rng.random((400, 1)), noise)
        rejected += verdict.reject
        small += sum(pair.pvalue <= 0.1 for pair in verdict.pairs)
    assert rejected <= 52
    assert small <= 90 + 5 * math.sqrt(6 * 81)


def test_a_first_look_ends_where_it_says_enough_and_else_all_simulations_count() -> None:
    study = study_of(TWO)
    even = AnsweredTable(np.full((2, 2), 50.0), np.array([100, 100]), (0.4, 1.0), (True, True), 2.0)
    skewed = AnsweredTable(
        np.array([[90.0, 10.0], [10.0, 90.0]]), np.array([100, 100]), (0.4, 1.0), (True, True), 2.0
    )
    asked: list[float] = []
    assert pair_test(even, 5000, study, 0, asked.append).pvalue > LOOK_LEVEL
    assert len(pair_test(even, 5000, study, 0, asked.append).simulated) == 999
    certain = pair_test(skewed, 5000, study, 0, asked.append)
    assert certain.pvalue == pytest.approx(1 / 5001)
    assert len(certain.simulated) == 5000


def test_a_hopeless_study_says_so_and_one_with_units_does_not() -> None:
    plan = PROCEDURE.plan(study_of(x=20))
    assert isinstance(plan, CountedScreening)
    assert plan.signal(1000) < plan.signal(20_000)
    study = study_of(x=40)
    assert any("Hopeless" in words for words in PROCEDURE.warnings(study, {"a": 800, "b": 800}))
    assert PROCEDURE.warnings(study, {"a": 50_000, "b": 50_000}) == ()
