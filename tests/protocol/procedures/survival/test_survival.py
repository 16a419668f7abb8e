"""Survival from noisy counts: curves, log-rank tests, hazard ratios, and studies that cannot be asked."""

from typing import Any

import numpy as np
import pytest
from local_noise import seeded_noise

import tacit.local
from tacit.errors import InputError, StudyRefusedError
from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable
from tacit_protocol.procedures.survival import (
    Times,
    at_risk,
    curve,
    curves,
    hazard_ratio,
    log_rank,
    log_rank_test,
    person_time,
)

pd = pytest.importorskip("pandas")

M = 8


def exact_counts(rng: np.random.Generator, units: int, hazards: tuple[float, float], share: float) -> Any:
    """Return counts (2, M, 2) of exponential times, censored at rates that differ between the groups."""
    group = (rng.random(units) < share).astype(int)
    times = rng.exponential(1 / np.array(hazards)[group])
    censored = np.minimum(rng.exponential(1 / np.array([0.05, 0.1])[group]), M - 1e-9)
    counts = np.zeros((2, M, 2))
    np.add.at(counts, (group, np.minimum(times, censored).astype(int), (times > censored).astype(int)), 1)
    return counts


def owner(rng: np.random.Generator, units: int, hazards: tuple[float, float], share: float) -> Times:
    counts, noise = exact_counts(rng, units, hazards, share), CellNoise("laplace", 2.0)
    noisy = counts.ravel() + noise.draw(rng, (counts.size,))
    return Times(NoisyTable(noisy, units, (noise,)), np.arange(counts.size).reshape(1, *counts.shape))


def test_without_noise_curves_are_kaplan_and_meiers_and_the_statistic_is_the_log_rank() -> None:
    counts = np.array([[[3.0, 0.0], [2.0, 0.0], [1.0, 4.0]], [[1.0, 0.0], [2.0, 0.0], [3.0, 4.0]]])
    assert curve(counts[0]) == pytest.approx([7 / 10, 5 / 10, 4 / 10])
    risk, events = at_risk(counts), counts[..., 0]
    away = variance = 0.0
    for place in range(3):
        both, total = events[:, place].sum(), risk[:, place].sum()
        share = risk[1, place] / total
        away += (events[1, place] - both * share) * total**2 / (total**2 + 1)
        variance += both * share * (1 - share) * (total**2 / (total**2 + 1)) ** 2
    assert float(log_rank(counts[None], np.zeros(1))) == pytest.approx(away**2 / variance, rel=1e-6)


def test_the_level_is_kept_where_owners_and_censoring_differ() -> None:
    """200 studies at level .05: more than 23 rejections have probability below 1e-4."""
    rng, rejected = np.random.default_rng(1), 0
    for place in range(200):
        owners = [owner(rng, 500, (0.05, 0.05), 0.2), owner(rng, 500, (0.3, 0.3), 0.8)]
        rejected += log_rank_test(owners, 199, np.random.SeedSequence(place)).pvalue <= 0.05
    assert rejected <= 23


MONTHS = np.array([0.0, 3.0, 6.0, 9.0, 12.0, 18.0, 24.0])
LOST = {
    "one group after 4 months": lambda rng, group: np.where(
        group == 1, rng.exponential(4.0, len(group)), np.inf
    ),
    "half of one group in the first month": lambda rng, group: np.where(
        (group == 1) & (rng.random(len(group)) < 0.5), rng.uniform(0, 1, len(group)), np.inf
    ),
    "nobody": lambda _, group: np.full(len(group), np.inf),
}
"""When units are lost to follow-up: within intervals, unevenly, and in one group alone."""


def followed_up(
    rng: np.random.Generator,
    units: int,
    ratio: float,
    lost: str,
    *,
    epsilon: float = 1.0,
    edges: Any = MONTHS,
) -> Times:
    """Two groups with exponential times, of mean 10 in the first, by months."""
    group = rng.integers(0, 2, units)
    times, gone = rng.exponential(np.where(group == 1, 10 / ratio, 10)), LOST[lost](rng, group)
    seen = np.minimum(np.minimum(times, gone), edges[-1] - 1e-9)
    counts = np.zeros((2, len(edges) - 1, 2))
    ended = ~((times <= gone) & (times < edges[-1]))
    np.add.at(counts, (group, np.searchsorted(edges, seen, side="right") - 1, ended.astype(int)), 1)
    noise = CellNoise("laplace", 2 / epsilon)
    noisy = counts.ravel() + noise.draw(rng, (counts.size,))
    return Times(NoisyTable(noisy, units, (noise,)), np.arange(counts.size).reshape(1, *counts.shape))


@pytest.mark.parametrize(
    ("lost", "units"), [("one group after 4 months", 2000), ("half of one group in the first month", 5000)]
)
def test_the_level_is_kept_where_one_group_is_lost_within_coarse_intervals(lost: str, units: int) -> None:
    """200 studies at level .05: more than 23 rejections have probability below 1e-4.

    And fewer than 40 of 50 intervals at 95 % that hold the ratio.
    """
    rng, rejected, missed = np.random.default_rng(4), 0, 0
    for place in range(200):
        own = followed_up(rng, units, 1.0, lost)
        rejected += log_rank_test([own], 199, np.random.SeedSequence(place)).pvalue <= 0.05
        if place < 50:
            ratio = hazard_ratio(own.counts, own.variances, (1, 0), 0.05)
            missed += not (ratio.lower or 0) <= 1 <= (ratio.upper or np.inf)
    assert rejected <= 23
    assert missed <= 10


@pytest.mark.sweep(1)
@pytest.mark.parametrize(
    ("units", "epsilon", "edges"), [(5000, 3.0, MONTHS), (20_000, 1.0, np.arange(0.0, 25.0, 6.0))]
)
def test_hazard_ratios_are_covered_in_coarse_intervals(units: int, epsilon: float, edges: Any) -> None:
    """100 studies: fewer than 84 of intervals at 95 % have probability below 1e-4."""
    rng, held = np.random.default_rng(5), 0
    for _ in range(100):
        own = followed_up(rng, units, 2.0, "nobody", epsilon=epsilon, edges=edges)
        ratio = hazard_ratio(own.counts, own.variances, (1, 0), 0.05)
        held += (ratio.lower or 0) <= 2 <= (ratio.upper or np.inf)
    assert held >= 84


def test_person_time_is_that_of_a_constant_hazard() -> None:
    start, least = np.array([100.0, 100.0, 100.0, 100.0]), np.array([1.0])
    events = np.array([0.0, 1e-3, 50.0, 99.0])
    first, last = person_time(start, events, least)
    found = first * start + last * (start - events)
    assert found == pytest.approx([100.0, 100.0 - 5e-4, 50 / np.log(2), 99 / np.log(100)])
    step = 1e-4  # the slopes are those of the logarithmic mean
    moved = [(50 - step) / np.log(100 / (50 + step)), (50 + step) / np.log((100 + step) / 50)]
    assert [last[2], first[2]] == pytest.approx([(one - found[2]) / step for one in moved], rel=1e-3)


@pytest.mark.long
def test_hazard_ratios_and_curves_are_covered() -> None:
    """200 studies: fewer than 173 of intervals at 95 %, or of bands, have probability below 1e-4."""
    rng, held, inside, points, found = np.random.default_rng(2), 0, 0, 0.0, 0
    truth = np.exp(-0.15 * np.arange(1, M + 1))
    for place in range(200):
        owners = [owner(rng, 400, (0.15, 0.24), 0.5) for _ in range(2)]
        counts = np.concatenate([own.counts for own in owners])
        variances = np.concatenate([own.variances for own in owners])
        ratio = hazard_ratio(counts, variances, (1, 0), 0.05)
        held += (ratio.lower or 0) <= 1.6 <= (ratio.upper or np.inf)
        found += log_rank_test(owners, 199, np.random.SeedSequence(place)).pvalue <= 0.05
        one = curves(owners, np.arange(M + 1.0), 0.05, np.random.SeedSequence(place))[0]
        points += float(np.mean((one.lower <= truth) & (truth <= one.upper)))
        inside += bool(np.all((one.band_lower <= truth) & (truth <= one.band_upper)))
        assert np.all(np.diff(one.survival) <= 0)
    assert held >= 173
    assert inside >= 173
    assert points >= 173
    assert found >= 150


def test_intervals_that_forget_the_noise_do_not_cover() -> None:
    """The planted mistake is caught: noise variances of 0."""
    rng, held = np.random.default_rng(3), 0
    for _ in range(200):
        own = owner(rng, 150, (0.1, 0.1), 0.5)
        ratio = hazard_ratio(own.counts, np.zeros(1), (1, 0), 0.05)
        held += (ratio.lower or 0) <= 1 <= (ratio.upper or np.inf)
    assert held < 173


def people(rng: np.random.Generator, units: int) -> Any:
    arm = rng.choice(["a", "b"], units)
    times, censored = rng.exponential(np.where(arm == "b", 10, 4)), rng.uniform(0, 20, units)
    died = np.where((times <= censored) & (times < 10), "yes", "no")
    return pd.DataFrame({"t": np.minimum(np.minimum(times, censored), 10), "died": died, "arm": arm})


@pytest.mark.filterwarnings("ignore::tacit.errors.DataWarning")  # which says that times lie outside
@pytest.mark.parametrize(("column", "value"), [("died", "no"), ("arm", "a"), ("t", -5.0)])
def test_what_cannot_be_known_is_said_and_nothing_breaks(column: str, value: Any) -> None:
    """Nobody dies, all are of one group, all times are early."""
    table = people(np.random.default_rng(6), 300)
    table[column] = value
    asked: dict[str, Any] = {"time": "t", "event": "died", "group": "arm", "intervals": [0, 5, 10]}
    with seeded_noise(1):
        result = tacit.local.survival(
            table, bounds={"died": ["no", "yes"], "arm": ["a", "b"]}, epsilon=1, seed=1, **asked
        )
    assert not result.reject
    assert all(
        0 <= low <= high <= 1 for c in result.curves for low, high in zip(c.lower, c.upper, strict=True)
    )


def test_bad_arguments_are_refused() -> None:
    table = people(np.random.default_rng(7), 50)
    asked: dict[str, Any] = {"time": "t", "event": "died", "epsilon": 1, "bounds": {"died": ["no", "yes"]}}
    for intervals in ([0], [0, 10], [0, 5, 5, 10], [10, 5, 0], [0, float("nan"), 10]):
        with pytest.raises(InputError, match="intervals"):
            tacit.local.survival(table, intervals=intervals, **asked)
    with pytest.raises(InputError):
        tacit.local.survival(table, intervals=[0, 5, 10], **asked | {"time": "nothing"})
    with pytest.raises(StudyRefusedError):
        tacit.local.survival(table, intervals=[0, 5, 10], event_level="maybe", **asked)
