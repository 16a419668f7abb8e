"""Screening by randomised answers: what new studies ask for, level, what is found."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from made_studies import made_study, rows_table
from two_sample_cases import domain_of

from tacit.planning.simulation import SimulatedNoise
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.numerics.randomised_tables import AnsweredTable
from tacit_protocol.privacy.accounting import fits
from tacit_protocol.procedures.base import planned
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
