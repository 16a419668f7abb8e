"""The clipped statistic: its sensitivity for all data, its null, and what it sees."""

import math

import numpy as np
import pytest

from tacit_protocol.procedures.identity.privit import ClippedIdentity

DISTRIBUTIONS = {
    "uniform": np.full(6, 1 / 6),
    "skewed": np.array([0.6, 0.2, 0.1, 0.06, 0.03, 0.01]),
    "sparse": np.array([0.9, 0.09, 0.005, 0.005, 0.0, 0.0]),
}


def clipped(
    q: np.ndarray, units: int = 300, filtered: bool = False, multiplier: float | None = None
) -> ClippedIdentity:
    return ClippedIdentity(q, units, 0.1, 4.0 if filtered else None, multiplier)


def largest_move(found: ClippedIdentity, units: int) -> float:
    """The largest change of the statistic by one unit, between counts anywhere: also far out of bounds."""
    rng, cells, worst = np.random.default_rng(3), len(found.probabilities), 0.0
    ends = np.concatenate([found.expected - found.bounds, found.expected + found.bounds, found.expected])
    starts = [rng.multinomial(units, rng.dirichlet(np.full(cells, 0.3))).astype(float) for _ in range(60)]
    for cell in found.cells:
        for end in ends[np.isfinite(ends)]:
            counts = np.round(found.units * found.probabilities)
            counts[cell] = min(max(0.0, round(end)), units)
            starts.append(counts)
    for counts in starts:
        for one in range(cells):
            for other in range(cells):
                if one == other or counts[one] < 1:
                    continue
                for part in (1.0, 0.37):
                    twin = counts.copy()
                    twin[one] -= part
                    twin[other] += part
                    worst = max(worst, abs(float(found.statistic(twin) - found.statistic(counts))) / part)
    return worst


@pytest.mark.sweep(4)
@pytest.mark.parametrize("multiplier", [None, 1.0, 100.0])
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_no_unit_moves_the_statistic_by_more_than_its_sensitivity(
    name: str, filtered: bool, multiplier: float | None
) -> None:
    found = clipped(DISTRIBUTIONS[name], filtered=filtered, multiplier=multiplier)
    worst = largest_move(found, 300)
    assert worst <= found.sensitivity
    assert worst > found.sensitivity / 3, "the search is too weak to say anything"


def test_without_clipping_the_sensitivity_is_broken() -> None:
    """What is claimed for counts that pass the filter does not hold for all counts."""
    found = clipped(DISTRIBUTIONS["skewed"])
    wide = clipped(DISTRIBUTIONS["skewed"])
    wide.__dict__["bounds"] = np.full(len(found.cells), np.inf)
    assert largest_move(wide, 300) > 2 * found.sensitivity


def test_a_sensitivity_that_leaves_the_weights_out_is_caught() -> None:
    """The planted mistake: weights of one instance, with the sensitivity of another that caps more."""
    found, planted = clipped(DISTRIBUTIONS["sparse"]), clipped(DISTRIBUTIONS["sparse"], multiplier=100.0)
    assert largest_move(found, 300) > 2 * planted.sensitivity


def test_rare_cells_no_longer_decide_the_noise() -> None:
    """One heavy cell in 50: the published weights let a unit in a light one move the statistic the most."""
    q = np.concatenate([np.full(2, 0.45), np.full(98, 0.1 / 98)])
    published, balanced = clipped(q, 5000), clipped(q, 5000, multiplier=10.0)
    assert balanced.sensitivity < published.sensitivity / 4
    assert np.all(balanced.weights <= published.weights)
    assert np.array_equal(balanced.weights[:2], published.weights[:2])


def test_rounding_is_paid_for() -> None:
    """Two orders of summation of 20 000 cells at their bounds differ by less than the allowance, and by more
    than a billionth of what a unit moves: an allowance relative to that alone would be too small."""
    cells = 20_000
    found = clipped(np.full(cells, 1 / cells), 10**9)
    counts = np.floor(found.expected + found.bounds * np.random.default_rng(2).uniform(0.9, 1, cells))
    x = np.clip(counts - found.expected, -found.bounds, found.bounds)
    parts = (x**2 - x - found.expected) * found.weights
    one, other = float(found.statistic(counts)), float(np.cumsum(parts)[-1])
    assert 0 < abs(one - other) < found.rounding
    assert abs(other - math.fsum(parts.tolist())) > 1e-9 * (found.sensitivity - found.rounding)


def test_where_nothing_is_clipped_the_statistic_is_the_published_one() -> None:
    q = DISTRIBUTIONS["uniform"]
    counts = np.array([52.0, 48, 45, 55, 50, 50])
    expected = np.sum(((counts - 50) ** 2 - counts) / 50)
    assert clipped(q).statistic(counts) == pytest.approx(expected)


def test_the_largest_value_is_a_bound() -> None:
    for filtered in (False, True):
        found = clipped(DISTRIBUTIONS["skewed"], filtered=filtered)
        for cell in range(6):
            counts = np.zeros(6)
            counts[cell] = 300
            assert abs(found.statistic(counts)) <= found.largest


def test_the_filter_stops_what_is_far_off_and_little_else() -> None:
    """With probability 0.9 no noise is beyond T; 2000 draws, 6 standard errors."""
    found = clipped(DISTRIBUTIONS["uniform"], 6000, filtered=True)
    rng = np.random.default_rng(8)
    counts = rng.multinomial(6000, found.probabilities, size=2000)
    stopped = found.stopped(counts + rng.laplace(0, 4.0, counts.shape)).mean()
    assert stopped < 0.1 + 6 * math.sqrt(0.09 / 2000)
    far = np.array([3000.0, 600, 600, 600, 600, 600])
    assert found.stopped(far)
    assert found.scores(1.0, far) == np.inf
    assert found.scores(1.0, None) == 1.0


@pytest.mark.sweep(1)
@pytest.mark.parametrize("multiplier", [None, 1.0])
@pytest.mark.parametrize("filtered", [False, True])
def test_pvalues_of_simulated_scores_are_uniform_at_worst(filtered: bool, multiplier: float | None) -> None:
    """400 p-values of 99 simulations at level 0.1: 40 expected; 76 or more has probability below 1e-7."""
    found = clipped(DISTRIBUTIONS["sparse"], filtered=filtered, multiplier=multiplier)
    scale = found.sensitivity
    seeds = np.random.SeedSequence(5).spawn(400)
    rejected = 0
    for seed in seeds:
        data, null = seed.spawn(2)
        score = float(found.simulate(np.random.default_rng(data), scale, 1)[0])
        rejected += found.pvalue(score, scale, 99, null) <= 0.1
    assert rejected < 76
    assert found.pvalue(np.inf, scale, 99, seeds[0]) >= 0.01
