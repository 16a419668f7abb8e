"""Two-sample tests between releases, and against one's own table: level, power, refusals."""

from typing import Any

import numpy as np
import pytest
from played_releases import simulated_database, simulated_rows

from tacit.errors import InputError

RUNS = 12
ALPHA = 0.05
UNLIKELY = 6
"""Of 12 runs at level .05, 6 or more reject with probability 1e-5; the seeds are fixed. Levels as such are
measured by benchmarks/database_errors.py."""


@pytest.mark.parametrize("null", ["bound", "normal", "points"])
@pytest.mark.parametrize("mu", [0.25, 4.0])
def test_releases_of_one_population_are_rejected_no_more_often_than_the_level(null: Any, mu: float) -> None:
    """Where noise hides the records, and where their own spread is what counts; both releases' noise."""
    rng, rejected = np.random.default_rng(300), 0
    for _ in range(RUNS):
        first = simulated_database(simulated_rows(rng, 300), mu, rng)
        second = simulated_database(simulated_rows(rng, 600), mu, rng)
        rejected += first.two_sample_test(second, ALPHA, null=null).reject
    assert rejected < UNLIKELY


@pytest.mark.parametrize("null", ["bound", "normal"])
def test_proved_intervals_hold_the_distance_of_the_populations(null: Any) -> None:
    """A population of 20 000 rows stands for its own law: drawn with replacement, its mean is the truth."""
    rng = np.random.default_rng(14)
    populations = [simulated_rows(rng, 20_000, shift) for shift in (0.0, 0.1)]
    exact = [simulated_database(rows, 1e9, rng).embedding for rows in populations]
    truth = float(np.sum((exact[0] - exact[1]) ** 2))
    for mu, units in ((0.25, 200), (0.25, 2000), (4.0, 2000)):
        pair = [simulated_database(rows[rng.integers(0, len(rows), units)], mu, rng) for rows in populations]
        low, high = pair[0].two_sample_test(pair[1], 0.001, null=null).interval
        assert low <= truth <= high
        assert high < 2 or units == 200


@pytest.mark.parametrize("null", ["bound", "normal", "points"])
def test_populations_that_differ_are_told_apart(null: Any) -> None:
    rng = np.random.default_rng(9)
    first = simulated_database(simulated_rows(rng, 5000), 1.0, rng)
    second = simulated_database(simulated_rows(rng, 5000, shift=0.1), 1.0, rng)
    found = first.two_sample_test(second, null=null)
    statistic, pvalue = found
    assert found.reject
    assert pvalue < 1e-3
    assert statistic == pytest.approx(found.estimate, abs=0.05)
    assert found.interval[0] > 0
    assert "differ" in str(found)
    table = first.two_sample_test(simulated_rows(rng, 2000, shift=0.1))
    assert table.pvalue < 1e-3
    assert table.n == (5000, 2000)


def test_what_cannot_be_compared_is_refused() -> None:
    rng = np.random.default_rng(12)
    database = simulated_database(simulated_rows(rng, 500), 1.0, rng)
    other = simulated_database(simulated_rows(rng, 500), 1.0, rng, seed=2)
    with pytest.raises(InputError, match="same points"):
        database.two_sample_test(other)
    assert database.mmd(other) > 0
    with pytest.raises(InputError, match="rows"):
        database.two_sample_test(simulated_rows(rng, 5), null="points")
    assert database.two_sample_test(simulated_rows(rng, 5)).pvalue > 0.05
    with pytest.raises(InputError, match="transformed"):
        database.two_sample_test(database.transform(lambda c: c["x1"], (0, 1)))
    with pytest.raises(InputError, match="columns"):
        database.mmd(np.zeros((30, 5)))
