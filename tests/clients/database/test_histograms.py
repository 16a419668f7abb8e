"""A database whose points were drawn from its own histograms: weights match both parts of the release."""

from functools import cache

import numpy as np
import polars as pl
import pytest

from tacit.database.released import ReleasedDatabase
from tacit.local.database import release_database

UNITS = 20_000
LEVELS = ["a", "b", "c"]


@cache
def frame() -> pl.DataFrame:
    rng = np.random.default_rng(1)
    x = np.clip(rng.normal(0.25, 0.08, UNITS), 0, 1)
    kind = np.where(rng.random(UNITS) < 0.3 + x, "a", "b")
    return pl.DataFrame({"x": x, "y": np.clip(1 - 2 * x + rng.normal(0, 0.1, UNITS), 0, 1), "kind": kind})


@cache
def released() -> ReleasedDatabase:
    bounds = {"x": (0, 1), "y": (0, 1), "kind": LEVELS}
    return release_database(frame(), epsilon=4, delta=1e-6, bounds=bounds, n_points=80, seed=1)


def test_shares_of_one_column_are_as_near_as_the_histograms() -> None:
    """Noise of a share: sqrt(6/.25)/(mu n) = .0003. The bounds are thirty times that and more."""
    database, data = released(), frame()
    share = np.mean((data["kind"] == "a").to_numpy())
    assert database.probability_level("kind", "a") == pytest.approx(share, abs=0.01)
    assert database.probability_level("kind", "c") < 0.01
    for low in (0.1, 0.2, 0.3):
        between = np.mean(data["x"].is_between(low, low + 0.1).to_numpy())
        assert database.probability_between("x", low, low + 0.1) == pytest.approx(between, abs=0.02)


@cache
def grades() -> dict[str, ReleasedDatabase]:
    """Years of school, half of them 10: as integers, and as numbers of which nothing is known."""
    numbers = np.random.default_rng(4).choice([8, 9, 10, 12, 16], UNITS, p=[0.1, 0.2, 0.5, 0.1, 0.1])
    asked = {"epsilon": 4, "delta": 1e-6, "bounds": (1, 16), "n_points": 100, "seed": 1}
    return {
        kind: release_database(pl.DataFrame({"grade": numbers.astype(kind)}), **asked)
        for kind in ("int64", "float64")
    }


def test_whole_numbers_are_told_apart() -> None:
    """Noise of a share is .0002: an error of .01 has no probability to speak of."""
    database = grades()["int64"]
    assert np.all(database.points["grade"] % 1 == 0)
    for low, high, truth in ((1, 10, 0.8), (1, 9, 0.3), (10, 10, 0.5), (11, 16, 0.2)):
        found = database.probability_between("grade", low, high)
        assert found == pytest.approx(truth, abs=0.02)
        assert found.resolution == 0.0


def test_an_event_that_cuts_bins_says_so() -> None:
    """Bins are .75 wide: [10, 10.75) holds half of the units, and "at most 10" cuts it."""
    database = grades()["float64"]
    for low, high, truth in ((1, 10, 0.8), (10, 10, 0.5), (10.1, 12, 0.1)):
        found = database.probability_between("grade", low, high)
        assert abs(found - truth) <= 1.96 * found.error
        assert found.resolution is not None
        assert found.resolution > 0.2
    between = database.probability_between("grade", 10.0, 10.75)
    assert between.resolution == pytest.approx(0, abs=1e-6)
    given = database.probability(database.points["grade"] <= 10)
    assert given.resolution is None, "nothing is known of an event that is no function"
    doubled = database.transform(lambda c: 2 * c["grade"], (2, 32)).probability(lambda c: c["y"] <= 20)
    assert doubled.resolution == pytest.approx(
        database.probability(lambda c: c["grade"] <= 10).resolution, abs=1e-9
    )
