"""A database whose points were drawn from its own histograms: weights match both parts of the release."""

from functools import cache

import numpy as np
import polars as pl
import pytest

from tacit.database.released import ReleasedDatabase
from tacit.database.weights import Histograms, WeightProblem
from tacit.local.synthetic import release_database

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
        assert found.resolution > 0.2
    between = database.probability_between("grade", 10.0, 10.75)
    assert between.resolution == pytest.approx(0, abs=1e-6)
    given = database.probability(database.points["grade"] <= 10)
    assert given.resolution is None, "nothing is known of an event that is no function"
    doubled = database.transform(lambda c: 2 * c["grade"], (2, 32)).probability(lambda c: c["y"] <= 20)
    assert doubled.resolution == pytest.approx(
        database.probability(lambda c: c["grade"] <= 10).resolution, abs=1e-9
    )


def test_raw_weights_state_their_noise_exactly() -> None:
    """Linear in both parts: their map, times the noise of each, is what an expectation's error is."""
    rng = np.random.default_rng(3)
    features, codes = rng.normal(size=(30, 30)) / 5, rng.integers(0, 6, 30)
    means, shares = rng.normal(size=30) / 30, np.full(6, 1 / 6)
    indicators = np.eye(6)[codes]

    known = Histograms(indicators, shares, 0.01)
    centre = WeightProblem.of(
        features, means, 0.03, law="gaussian", weighting="raw", l1_max=1.0, histograms=known
    )
    # A share's noise of .01 counts like the mean's of .03: shares were stretched by 3.
    drawn = np.hstack([0.03 * rng.normal(size=(400, 30)), 3 * 0.01 * rng.normal(size=(400, 6))])
    values, linear = rng.random(30), centre.linear_map()
    errors = values @ (linear @ (centre.target + drawn).T - centre.weights()[:, None])
    stated = np.linalg.norm(values @ centre.noise_map())
    assert np.sqrt(np.mean(np.square(errors))) == pytest.approx(stated, rel=0.15)
    assert centre.noise_error == pytest.approx(0.03 * np.sqrt(36)), "a share's noise counts like the mean's"
    assert np.array_equal(centre.features, features)
