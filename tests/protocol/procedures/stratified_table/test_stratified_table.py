"""Stratified tables: level, power, effects and their intervals, what is read again, and bad studies."""

import itertools

import numpy as np
import pytest

import tacit.local
from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable
from tacit_protocol.procedures.counts.stratified import (
    SCORES,
    Strata,
    fourfold,
    heterogeneity,
    statistics,
    stratified_test,
)

CELLS = np.arange(4).reshape(1, 2, 2)


def owner(rng: np.random.Generator, units: int, share: float, risks: tuple[float, float], scale: float):
    """Return a noisy table of two groups: ``share`` of the units are in the second."""
    first, second = (1 - share, share)
    cells = [first * (1 - risks[0]), first * risks[0], second * (1 - risks[1]), second * risks[1]]
    noise = CellNoise("laplace", scale)
    counts = rng.multinomial(units, cells) + noise.draw(rng, (4,))
    return Strata(NoisyTable(counts, units, (noise,)), CELLS)


def test_without_noise_it_is_the_statistic_of_cochran_mantel_and_haenszel() -> None:
    """With n in the place of n - 1 in each stratum's variance, as for a multinomial table."""
    counts = np.array([[[400.0, 100.0], [300.0, 200.0]], [[90.0, 10.0], [75.0, 25.0]]])
    above = total = 0.0
    for table in counts:
        size, rows, columns = table.sum(), table.sum(axis=1), table.sum(axis=0)
        above += table[0, 0] - rows[0] * columns[0] / size
        total += rows.prod() * columns.prod() / size**3
    assert float(statistics(counts, np.zeros(2))) == pytest.approx(above**2 / total, rel=1e-6)


def test_the_level_is_kept_where_an_unstratified_test_always_rejects() -> None:
    """200 studies of two owners who differ in risks and groups, at level .05.

    More than 22 rejections have probability below 1e-4 for a level of .05.
    """
    rng, rejected, unstratified = np.random.default_rng(1), 0, 0
    for place in range(200):
        owners = [owner(rng, 1000, 0.2, (0.2, 0.2), 2.0), owner(rng, 1000, 0.8, (0.7, 0.7), 2.0)]
        rejected += stratified_test(owners, 199, np.random.SeedSequence(place)).pvalue <= 0.05
        added = Strata(
            NoisyTable(sum(own.table.counts for own in owners), 2000, (CellNoise("laplace", 2.0, 2),)), CELLS
        )
        if place < 10:
            unstratified += stratified_test([added], 199, np.random.SeedSequence(place)).pvalue <= 0.05
    assert rejected <= 22
    assert unstratified == 10


@pytest.mark.long
@pytest.mark.sweep(1)
@pytest.mark.parametrize("kind", sorted(SCORES))
@pytest.mark.parametrize(("risks", "scale"), [((0.3, 0.3), 2.0), ((0.1, 0.4), 2.0), ((0.05, 0.05), 0.5)])
def test_intervals_cover(kind: str, risks: tuple[float, float], scale: float) -> None:
    """400 studies of three owners: under 361 covered has probability below 1e-4 at 95 %."""
    rng = np.random.default_rng(2)
    first, second = risks
    odds = (second / (1 - second)) / (first / (1 - first))
    truth = {"odds ratio": odds, "risk ratio": second / first, "risk difference": second - first}[kind]
    covered = 0
    for _ in range(400):
        owners = [
            owner(rng, units, share, risks, scale) for units, share in ((300, 0.3), (900, 0.5), (600, 0.2))
        ]
        counts = np.concatenate([own.counts for own in owners])
        tables, noise = fourfold(counts, np.concatenate([own.variances for own in owners]), (1, 0), 1)
        found = SCORES[kind].estimate(tables, noise, 0.05)
        low = -np.inf if found.lower is None else found.lower
        high = np.inf if found.upper is None else found.upper
        covered += low <= truth <= high
    assert covered >= 361


def test_an_interval_that_forgets_the_noise_does_not_cover() -> None:
    """The same search catches a planted mistake: noise variances of 0 cover far less than 95 %."""
    rng, covered = np.random.default_rng(3), 0
    for _ in range(200):
        own = owner(rng, 300, 0.5, (0.3, 0.3), 8.0)
        tables, noise = fourfold(own.counts, np.zeros(1), (1, 0), 1)
        found = SCORES["risk difference"].estimate(tables, noise, 0.05)
        covered += found.lower <= 0 <= found.upper
    assert covered < 180


def test_scores_have_mean_zero_at_the_truth_however_large_the_noise() -> None:
    """Noise far above the counts: the mean of 40 000 scores is within 4.5 of its standard errors."""
    rng = np.random.default_rng(4)
    cells = np.array([30.0, 70.0, 10.0, 90.0])
    noisy = cells + rng.laplace(0, 50, (40_000, 1, 4))
    for kind, truth in (("odds ratio", 30 * 90 / (70 * 10)), ("risk difference", 0.2), ("risk ratio", 3.0)):
        score = SCORES[kind]
        form = score.top - truth * score.bottom
        values = np.einsum("nsi,ij,nsj->n", noisy, form, noisy) / 2
        assert abs(values.mean()) < 4.5 * values.std() / 200


def test_owners_who_differ_in_their_odds_ratios_are_told_from_those_who_do_not() -> None:
    """100 studies: more than 14 rejections of one odds ratio have probability below 1e-3 at level .05."""
    rng, alike, apart = np.random.default_rng(5), (0.1, 0.206), (0.5, 0.3)
    rejected = {alike: 0, apart: 0}
    for place, risks in itertools.product(range(100), (alike, apart)):
        owners = [owner(rng, 800, 0.5, (0.3, 0.5), 2.0), owner(rng, 800, 0.4, risks, 2.0)]
        pvalue = heterogeneity(owners, 199, np.random.SeedSequence(place))
        rejected[risks] += pvalue <= 0.05
    assert rejected[alike] <= 14
    assert rejected[apart] >= 95


def test_nothing_that_could_be_known_is_said_of_empty_groups() -> None:
    """Nobody in one group, a constant outcome: nothing breaks, or is stated that counts cannot tell."""
    for counts in ([[500, 500], [0, 0]], [[500, 0], [500, 0]], [[0, 0], [0, 1]]):
        result = tacit.local.stratified_table(counts, epsilon=1, seed=1)
        odds = result.effects[2]
        assert odds.estimate is not None or (odds.lower, odds.upper) == (None, None)
        low, high = result.effects[0].interval or (np.nan, np.nan)
        assert -1 <= low <= high <= 1
