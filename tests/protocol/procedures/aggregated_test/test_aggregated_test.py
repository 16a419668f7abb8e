"""Known tests by blocks: what blocks compute, how they vote, what one unit moves, and what is refused."""

import math
from collections.abc import Callable, Iterator
from typing import Any, get_args

import numpy as np
import pytest
from made_studies import made_study, rows_table
from scipy import stats
from two_sample_cases import SeededNoise

from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures import aggregation
from tacit_protocol.procedures.aggregated_test import AggregatedTest, TestName
from tacit_protocol.procedures.aggregated_test.statistic import (
    TESTS,
    BlockTest,
    UnitBlock,
    log_rank_scores,
    require_regression,
    statistics_of,
)
from tacit_protocol.procedures.aggregation import BLOCK_PERMUTATIONS, Vote, VotesLaw, block_places
from tacit_protocol.procedures.base import (
    StudyError,
    planned,
)

Floats = np.typing.NDArray[np.float64]

PROCEDURE = AggregatedTest()

COLUMNS = {
    "groups": (("g", 2), "x"),
    "paired": ("x", "y"),
    "pair": ("x", "y"),
    "table": (("g", 2), ("o", 2)),
    "times": ("x", ("g", 2), ("o", 2)),
    "given": ("x", "y", "z", ("g", 3)),
}


def domain(test: str) -> Domain:
    made: list[Any] = []
    for column in COLUMNS[TESTS[test].takes]:
        if isinstance(column, str):
            made.append(NumericColumn(name=column, lower=0.0, upper=1.0))
        else:
            name, levels = column
            made.append(CategoricalColumn(name=name, levels=tuple("abcdefgh"[:levels])))
    return Domain(columns=tuple(made))


def study_of(test: str = "mann_whitney", parameters: dict[str, Any] | None = None, **given: Any) -> Study:
    asked = {"test": test} | (parameters or {})
    return made_study(PROCEDURE.name, domain(test), asked, **({"delta": 0.0} | given))


def block_of(test: str, units: int, rng: np.random.Generator, effect: float = 0.0) -> UnitBlock:
    """Units under the null hypothesis, or with an effect upwards; numbers have ties."""
    takes = TESTS[test].takes
    group = rng.integers(0, 3 if TESTS[test].groups[1] > 2 else 2, units).astype(np.float64)
    x = np.round(rng.standard_normal(units), 1)
    if takes in ("pair", "given"):
        y = np.round(effect * x + rng.standard_normal(units), 1)
        given = (rng.standard_normal((units, 1)), rng.integers(0, 3, (units, 1)).astype(np.int32))
        return UnitBlock(x, y, given=given if takes == "given" else None, categories=(3,))
    if takes == "paired":
        return UnitBlock(x, np.round(x + effect + rng.standard_normal(units), 1))
    if takes == "table":
        return UnitBlock((rng.random(units) < 0.3 + effect * 0.2 * group) * 1.0, group)
    if takes == "times":
        times = np.ceil(rng.exponential(4 / (1 + 2 * effect * group)))
        return UnitBlock(times, group, event=(rng.random(units) < 0.7) * 1.0)
    return UnitBlock(x + effect * group, group)


def second_first(block: UnitBlock) -> tuple[Floats, Floats]:
    return block.first[block.second == 1], block.first[block.second == 0]


def by_group(block: UnitBlock) -> list[Floats]:
    return [block.first[block.second == code] for code in np.unique(block.second)]


def jonckheere(block: UnitBlock) -> float:
    groups = by_group(block)
    pairs = [(a, b) for i, a in enumerate(groups) for b in groups[i + 1 :]]
    return sum(float(stats.mannwhitneyu(b, a).statistic) for a, b in pairs)


def observed_less_expected(block: UnitBlock) -> float:
    """The log-rank numerator of the second group, moment by moment."""
    assert block.event is not None
    total = 0.0
    for moment in np.unique(block.first):
        risk, happened = block.first >= moment, (block.first == moment) & (block.event == 1)
        total += np.sum(happened & (block.second == 1))
        total -= happened.sum() * np.sum(risk & (block.second == 1)) / risk.sum()
    return total


def table(block: UnitBlock) -> Floats:
    return np.array([[np.sum((block.first == o) & (block.second == g)) for g in range(3)] for o in (0, 1)])


SCIPY: dict[str, Callable[[UnitBlock], float]] = {
    "t": lambda b: stats.ttest_ind(*second_first(b)).statistic,
    "welch": lambda b: stats.ttest_ind(*second_first(b), equal_var=False).statistic,
    "mann_whitney": lambda b: stats.mannwhitneyu(*second_first(b)).statistic,
    "brunner_munzel": lambda b: stats.brunnermunzel(*second_first(b)[::-1]).statistic,
    "kolmogorov_smirnov": lambda b: stats.ks_2samp(*second_first(b)).statistic,
    "anova": lambda b: stats.f_oneway(*by_group(b)).statistic,
    "kruskal_wallis": lambda b: stats.kruskal(*by_group(b)).statistic,
    "jonckheere": jonckheere,
    "pearson": lambda b: stats.pearsonr(b.first, b.second).statistic,
    "spearman": lambda b: stats.spearmanr(b.first, b.second).statistic,
    "kendall": lambda b: stats.kendalltau(b.first, b.second).statistic,
    "fisher": lambda b: table(b)[1, 1],
    "cochran_armitage": lambda b: table(b)[1] @ [0, 1, 2] / np.sum(b.first) - b.second.mean(),
    "chi_squared": lambda b: stats.chi2_contingency(table(b), correction=False).statistic,
    "log_rank": observed_less_expected,
    "paired_t": lambda b: stats.ttest_rel(b.second, b.first).statistic,
    "wilcoxon": lambda b: stats.wilcoxon(b.second - b.first, alternative="greater").statistic,
    "sign": lambda b: np.sum(b.second > b.first) - np.sum(b.second < b.first),
}


@pytest.mark.parametrize("test", SCIPY)
def test_blocks_order_permutations_as_scipys_statistic_does(test: str) -> None:
    """The same permutations or signs, drawn again from the same seed; ties are ties in both."""
    block = block_of(test, 30, np.random.default_rng(3))
    ours = statistics_of(TESTS[test], block, np.random.default_rng(4))
    rng = np.random.default_rng(4)
    made = []
    if TESTS[test].takes == "paired":
        signs = rng.choice([-1.0, 1.0], (BLOCK_PERMUTATIONS + 1, 30))
        signs[0] = 1
        moved = block.second - block.first
        made = [UnitBlock(np.zeros(30), one * moved) for one in signs]
    else:
        others = np.tile(block.second, (BLOCK_PERMUTATIONS + 1, 1))
        if test == "kolmogorov_smirnov":  # which permutes them in the order of the outcome
            order = np.argsort(block.first, kind="stable")
            block = UnitBlock(block.first[order], block.second[order])
            others = np.tile(block.second, (BLOCK_PERMUTATIONS + 1, 1))
        if test == "jonckheere":
            order = np.argsort(block.first, kind="stable")
            block = UnitBlock(block.first[order], block.second[order])
            others = np.tile(block.second, (BLOCK_PERMUTATIONS + 1, 1))
        rng.permuted(others[1:], axis=1, out=others[1:])
        made = [UnitBlock(block.first, other, block.event) for other in others]
    theirs = np.array([SCIPY[test](one) for one in made], dtype=np.float64)
    assert len(np.unique(theirs.round(9))) > 5
    assert np.array_equal(stats.rankdata(ours.round(9)), stats.rankdata(theirs.round(9)))


def test_every_test_is_checked_and_named() -> None:
    assert set(SCIPY) | {"conditional_independence"} == set(TESTS) == set(get_args(TestName))


def test_log_rank_scores_add_up_to_nothing() -> None:
    block = block_of("log_rank", 50, np.random.default_rng(1))
    assert block.event is not None
    assert log_rank_scores(block.first, block.event).sum() == pytest.approx(0, abs=1e-12)


def votes_of(test: BlockTest, blocks: list[UnitBlock], seed: int = 7, level: float = 0.3) -> Floats:
    vote, rng = Vote(level, test.directed), np.random.default_rng(seed)
    return np.array([vote.of(statistics_of(test, block, rng), rng.random()) for block in blocks])


def away(votes: Floats, side: int, probability: float) -> float:
    """How many standard deviations the number of votes is away from the expected."""
    spread = math.sqrt(len(votes) * probability * (1 - probability))
    return float((np.sum(votes == side) - len(votes) * probability) / spread)


@pytest.mark.parametrize("level", [0.3, 0.5])
@pytest.mark.parametrize("test", TESTS)
def test_blocks_vote_as_often_as_stated_where_there_is_nothing(test: str, level: float) -> None:
    """Of 300 blocks with ties; 6 standard deviations: each fails with probability below 1e-8 (the generalised
    covariance measure's products of residuals of normal numbers are symmetric, so that it is exact here)."""
    rng = np.random.default_rng(5)
    blocks = [block_of(test, 40 if TESTS[test].takes == "given" else 12, rng) for _ in range(300)]
    votes = votes_of(TESTS[test], blocks, level=level)
    for side in (1, -1) if TESTS[test].directed else (1,):
        assert abs(away(votes, side, level)) < 6


@pytest.mark.parametrize("test", TESTS)
def test_blocks_vote_for_the_effect_and_for_its_side(test: str) -> None:
    """Seeded: of 20 blocks nearly all."""
    rng = np.random.default_rng(6)
    up = votes_of(TESTS[test], [block_of(test, 60, rng, 1.0) for _ in range(20)])
    assert up.sum() >= 15
    if TESTS[test].directed and TESTS[test].takes != "times":
        down = votes_of(TESTS[test], [block_of(test, 60, rng, -1.0) for _ in range(20)])
        assert down.sum() <= -9


def explodes(block: UnitBlock, rng: np.random.Generator) -> Floats:
    raise MemoryError("secret")


def warns(block: UnitBlock, rng: np.random.Generator) -> Floats:
    return np.log(-np.ones(BLOCK_PERMUTATIONS + 1))


def loses_one(block: UnitBlock, rng: np.random.Generator) -> Floats:
    return np.ones(BLOCK_PERMUTATIONS)


NOTHING = UnitBlock(np.zeros(0), np.zeros(0))
FAILING: dict[str, tuple[BlockTest, UnitBlock]] = {
    "raises": (BlockTest("", "groups", explodes, "", ""), NOTHING),
    "not a number": (BlockTest("", "groups", warns, "", ""), NOTHING),
    "of another shape": (BlockTest("", "groups", loses_one, "", ""), NOTHING),
    **{f"{test}, no unit": (TESTS[test], NOTHING) for test in TESTS},
    **{
        f"{test}, {name}": (TESTS[test], block)
        for name, block in (
            ("one group", UnitBlock(np.arange(12.0), np.zeros(12))),
            ("constant", UnitBlock(np.zeros(12), np.arange(12) % 2.0)),
        )
        for test in TESTS
        if TESTS[test].takes != "paired"  # whose differences say something in either
    },
    "no difference": (TESTS["wilcoxon"], UnitBlock(np.ones(12), np.ones(12))),
    "a given column that says all": (
        TESTS["conditional_independence"],
        UnitBlock(
            np.arange(12.0), np.arange(12) % 5.0, given=(np.arange(12.0)[:, None], np.zeros((12, 0), "i4"))
        ),
    ),
}


@pytest.mark.parametrize("name", FAILING)
def test_a_block_whose_test_fails_votes_by_lot(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    """No error, no warning, and the probabilities of the null hypothesis (6 standard deviations of 2000)."""
    test, block = FAILING[name]
    statistics = statistics_of(test, block, np.random.default_rng(1))
    lots = np.random.default_rng(2).random(2000)
    votes = np.array([Vote(0.3, True).of(statistics, lot) for lot in lots])
    assert all(abs(away(votes, side, 0.3)) < 6 for side in (1, -1))
    assert capfd.readouterr() == ("", "")


INFINITE = ("welch", "brunner_munzel")
"""Tests whose statistic is infinite where groups are apart and nothing varies within them."""


@pytest.mark.parametrize("values", [(0.3, 0.7), (0.0, 1.0), (0.1, 0.1 + 2.0**-50)])
@pytest.mark.parametrize("test", [name for name in TESTS if TESTS[name].takes == "groups"])
def test_a_block_that_is_wholly_apart_is_the_strongest_evidence(
    test: str, values: tuple[float, float]
) -> None:
    """Two constant groups: of the permutations, next to none is as far apart."""
    group = np.arange(30) % 2.0
    statistics = statistics_of(
        TESTS[test], UnitBlock(np.where(group == 1, values[1], values[0]), group), np.random.default_rng(1)
    )
    assert np.isinf(statistics[0]) or test != "brunner_munzel"
    assert np.sum(statistics[1:] >= statistics[0]) == 0
    assert all(Vote(0.05, TESTS[test].directed).of(statistics, lot) == 1 for lot in (0.0, 0.999))
    down = UnitBlock(np.where(group == 1, values[0], values[1]), group)
    if TESTS[test].directed:
        found = statistics_of(TESTS[test], down, np.random.default_rng(1))
        assert Vote(0.05, True).of(found, 0.5) == -1


@pytest.mark.parametrize("test", INFINITE)
def test_a_group_of_one_unit_is_compared(test: str) -> None:
    """Its spread is counted as none, where a variance of one value would be undefined."""
    values = np.append(np.linspace(0, 0.1, 11), 0.9)
    statistics = statistics_of(TESTS[test], UnitBlock(values, np.eye(12)[11]), np.random.default_rng(1))
    assert np.sum(statistics >= statistics[0]) < 30
    assert len(np.unique(statistics)) > 5


SIZES = (1.0, 3.0, 6.0, 20.0)


def heights(test: str, size: float) -> Floats:
    """Votes of 40 blocks of 20 units whose effect is so large, in standard deviations, without any ties."""
    rng, takes = np.random.default_rng(8), TESTS[test].takes
    blocks = []
    for _ in range(40):
        group = np.arange(40 if takes == "given" else 20) % (3.0 if TESTS[test].groups[1] > 2 else 2.0)
        noise = rng.standard_normal(len(group))
        x = rng.standard_normal(len(group))
        if takes == "groups":
            blocks.append(UnitBlock(size * group + noise, group))
        elif takes == "paired":
            blocks.append(UnitBlock(x, x + size + noise))
        elif takes in ("pair", "given"):
            given = (rng.standard_normal((len(group), 1)), np.zeros((len(group), 0), np.int32))
            blocks.append(UnitBlock(x, size * x + noise, given=given))
        elif takes == "table":
            blocks.append(
                UnitBlock((rng.random(len(group)) < np.minimum(0.3 * size * group, 1)) * 1.0, group)
            )
        else:
            times = rng.exponential(1.0, len(group)) / (1 + size * group) ** 2
            blocks.append(UnitBlock(times, group, event=np.ones(len(group))))
    return votes_of(TESTS[test], blocks)


@pytest.mark.parametrize("test", TESTS)
def test_power_never_falls_as_the_effect_grows(test: str) -> None:
    """Seeded, the same draws at every size: at last all blocks vote for it, up to complete separation."""
    found = [float(heights(test, size).mean()) for size in SIZES]
    assert np.all(np.diff(found) >= -0.05)
    assert found[-1] >= 0.95


def test_power_is_kept_where_an_effect_parts_all_blocks() -> None:
    """300 units, epsilon 2: of 30 studies of an effect of 6 standard deviations all reject, as at 3."""
    study = study_of("brunner_munzel", epsilon=2.0)
    for effect in (3.0, 6.0):
        assert sum(played(study, seed, effect=effect)[0].reject for seed in range(30)) == 30


def rows(study: Study, units: int, seed: int, effect: float = 0.0) -> tuple[Floats, Any]:
    """Encoded rows of any study: numbers rise with the group, and with each other."""
    rng = np.random.default_rng(seed)
    codes = np.stack([rng.integers(0, 2, units) for _ in study.domain.categorical] or [np.zeros(units)], 1)
    base = rng.standard_normal(units)
    numbers = np.stack([0.8 * effect * base + rng.standard_normal(units) for _ in study.domain.numeric], 1)
    numbers = 0.5 + 0.12 * (numbers + effect * codes[:, :1])
    return numbers, codes[:, : len(study.domain.categorical)].astype(np.int32)


def summed(study: Study, numbers: Floats, codes: Any, order: int) -> int:
    table = rows_table(study.domain, numbers, codes=codes)
    return PROCEDURE.plan(study).summarise(table, np.random.default_rng(order)).votes


def largest_move(study: Study, tries: int, enough: float = math.inf) -> int:
    """Replace a unit in its place of the secret order, by corners and random rows: the largest move.

    The search ends at a move that is ``enough``.
    """
    rng, moved = np.random.default_rng(3), 0
    for order in range(tries):
        numbers, codes = rows(study, 60, order, 0.3)
        before = summed(study, numbers, codes, order)
        for _ in range(8):
            other, group, place = numbers.copy(), codes.copy(), rng.integers(60)
            other[place] = rng.integers(0, 2, other.shape[1]) if rng.random() < 0.7 else rng.random()
            group[place] = rng.integers(0, 3, group.shape[1])  # the last of them stands for no level
            moved = max(moved, abs(summed(study, other, group, order) - before))
        if moved >= enough:
            break
    return moved


def overlapping(units: int, blocks: int) -> Iterator[slice]:
    """Plant: every block reaches into the next, so that a unit is in two."""
    for place in block_places(units, blocks):
        yield slice(place.start, min(units, place.stop + units // blocks))


@pytest.mark.parametrize(("test", "bound"), [("mann_whitney", 2), ("paired_t", 2), ("kruskal_wallis", 1)])
def test_one_unit_moves_one_vote_and_a_unit_in_two_blocks_is_caught(
    test: str, bound: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_of(test, {"blocks": 6, "block_level": 0.5})
    assert PROCEDURE.plan(study).vote.sensitivity == bound
    assert largest_move(study, 25) == bound, "the bound holds, and is reached"
    monkeypatch.setattr(aggregation, "block_places", overlapping)
    assert largest_move(study, 25, bound + 1) > bound


def test_the_law_of_votes_with_a_direction_is_exact() -> None:
    """Beside every sum of 7 votes, one by one, and noise on a grid."""
    law, ratio = VotesLaw(7, 1, 2.0, 2.0**-24, Vote(0.3, True)), math.exp(-(2.0**-25))
    weights = {0: 1.0}
    for _ in range(7):
        step: dict[int, float] = {}
        for total, weight in weights.items():
            for side, each in ((1, 0.3), (0, 0.4), (-1, 0.3)):
                step[total + side] = step.get(total + side, 0.0) + weight * each
        weights = step
    for value in (-2.5, 0.0, 3.25, 9.0, 30.0):
        exact = 0.0
        for total, weight in weights.items():
            steps = round((value - total) * 2**24)
            upper = ratio**steps if steps > 0 else 1 + ratio - ratio ** (1 - steps)
            exact += weight * upper / (1 + ratio)
        assert exact <= law.tail(value) <= exact * (1 + 1e-6)
    assert law.pvalue(5.0) == pytest.approx(2 * law.tail(5.0))
    assert law.pvalue(law.critical(0.05)) <= 0.05 < law.pvalue(law.critical(0.05) - 0.02)


def test_many_blocks_law_is_worked_out_and_never_zero() -> None:
    law = VotesLaw(20_000, 40, 2.0, 2.0**-24, Vote(0.3, True))
    sums, weights, left_out = law.votes
    assert weights.sum() == pytest.approx(1, abs=1e-9)
    assert weights @ sums**2 == pytest.approx(0.6 * 20_000, rel=1e-9)
    assert law.tail(0) == pytest.approx(0.5, abs=0.01)
    assert 0 < left_out < 1e-24
    assert 0 < law.pvalue(1e9) < 1e-23


def played(study: Study, seed: int, units: int = 300, effect: float = 0.0, noise: Any = None) -> Any:
    releases = {}
    for place, owner in enumerate(study.owners):
        numbers, codes = rows(study, units, 100 * seed + place, effect)
        order = np.random.default_rng(100 * seed + place)
        summary = planned(PROCEDURE, study).summarise(rows_table(study.domain, numbers, codes=codes), order)
        releases[owner.name] = PROCEDURE.privatise(study, summary, noise or SeededNoise(100 * seed + place))
    return PROCEDURE.assemble(study, releases), releases


@pytest.mark.parametrize("test", ["mann_whitney", "kruskal_wallis"])
def test_the_level_is_kept(test: str) -> None:
    """100 studies of two owners of 60 units at level .05, epsilon .5: more than 20 rejections have
    probability below 1e-7 for a level of .05."""
    study = study_of(test, owners=2, epsilon=0.5)
    rejected = sum(played(study, seed, 60)[0].reject for seed in range(100))
    assert rejected <= 20


def test_owners_votes_add_up_and_say_which_way() -> None:
    """Seeded: four owners of 300 units, a difference of .6 standard deviations, epsilon 1."""
    study = study_of(owners=4)
    up, down = played(study, 1, effect=0.6)[0], played(study, 1, effect=-0.6)[0]
    assert (up.reject, up.direction, down.direction) == (True, "up", "down")
    assert up.finding == "x is larger in b than in a"
    assert down.finding == "x is smaller in b than in a"
    assert up.votes == pytest.approx(sum(up.votes_by_owner.values()))
    assert (up.statistic, down.statistic) == (abs(up.votes), abs(down.votes))
    assert up.blocks == 4 * 30
    nothing = played(study, 1)[0]
    assert nothing.direction is None
    assert not nothing.reject


def test_which_columns_play_which_part() -> None:
    """The event's column, the group's and the level that is one may be named."""
    asked = {"group": "o", "event": "g", "event_level": "a"}
    roles = PROCEDURE.plan(study_of("log_rank", asked)).roles
    assert (roles.second.name, roles.event and roles.event.name, roles.event_code) == ("o", "g", 0)
    default = PROCEDURE.plan(study_of("log_rank")).roles
    assert (default.second.name, default.event and default.event.name, default.event_code) == ("g", "o", 1)


def test_few_units_are_hopeless() -> None:
    assert PROCEDURE.warnings(study_of(), {"owner-0": 10})[0].startswith("Hopeless")
    assert PROCEDURE.warnings(study_of(), {"owner-0": 300}) == ()


def test_forests_are_fitted_where_scikit_learn_is_installed_and_refused_where_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = study_of("conditional_independence", {"regression": "forest", "blocks": 2})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    numbers, codes = rows(study, 80, 1)
    with pytest.raises(StudyError, match="needs scikit-learn"):
        PROCEDURE.summarise(study, rows_table(study.domain, numbers, codes=codes))
    require_regression("polynomial")


@pytest.mark.sweep(2)
@pytest.mark.parametrize("regression", ["linear", "polynomial", "forest", "boosting"])
def test_what_given_columns_explain_is_no_dependence(regression: str) -> None:
    """Seeded: x and y both follow z, up to noise; 6 blocks of 150 units vote for no side but by chance."""
    rng, blocks, linked = np.random.default_rng(8), [], []
    for _ in range(6):
        z = rng.standard_normal((150, 1))
        x, y = (z[:, 0] + rng.standard_normal(150) for _ in range(2))
        given = (z, np.zeros((150, 0), dtype=np.int32))
        blocks.append(UnitBlock(x, y, given=given, regression=regression))
        linked.append(UnitBlock(x, y + 0.8 * (x - z[:, 0]), given=given, regression=regression))
    test = TESTS["conditional_independence"]
    assert abs(votes_of(test, blocks).sum()) < 6
    assert votes_of(test, linked).sum() >= 5
