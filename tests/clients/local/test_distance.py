"""Distance correlation in one process: two owners, aligned, in peer mode, at a curator; mistakes told."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from local_noise import seeded_noise

import tacit.local
from tacit.command.study_view import print_result, result_fields
from tacit.errors import InputError
from tacit.local import (
    CuratedDistanceCorrelationResult,
    DistanceCorrelationResult,
    distance_correlation,
    screening,
)
from tacit.results import PeerOutcome

ROWS = 3000
X = np.random.default_rng(1).random((ROWS, 2))
COMMON: dict[str, Any] = {"epsilon": 20, "delta": 1e-5, "bounds": (0, 1), "seed": 1}


def test_a_copy_is_seen_and_the_result_unpacks() -> None:
    """At epsilon 20 the statistic lies dozens of standard deviations above its null.

    The noise has a seed: one interval in some ten thousand ends more than .05 below 1.
    """
    with seeded_noise(1):
        result = distance_correlation(
            X[:, 0], X[:, 0], epsilon=20, delta=1e-5, method="sketch", bounds=(0, 1), seed=1
        )
    assert isinstance(result, DistanceCorrelationResult)
    statistic, pvalue = result
    assert (result.reject, pvalue) == (True, 0.001)
    assert statistic > 5
    assert result.interval[0] <= 1 <= result.interval[1] + 0.05
    assert dict(result.n) == {"x-owner": ROWS, "y-owner": ROWS}
    assert "dependent" in str(result)


MISSING = np.where(np.arange(ROWS) == 7, np.nan, X[:, 0])


@pytest.mark.parametrize(
    ("x", "y", "changed", "message"),
    [
        (X[:, 0], X[:9, 0], {}, "y has 9 rows and x has 3000"),
        (X, X.reshape(3, -1, 2), {}, "y has 3 dimensions"),
        (X, X + 1j, {}, "y holds complex numbers"),
        (MISSING, X, {}, "column 'x' is missing"),
        (X, X[:, 0], {"bounds": [(0, 1), None]}, "y has no bounds"),
        (pd.DataFrame({"a": X[:, 0]}), pd.DataFrame({"a": X[:, 1]}), {}, "x and y both have a column"),
        (X, X, {"mode": "agent"}, 'mode must be "tester", "peer" or "curator"'),
        (np.zeros((ROWS, 1001)), X, {}, "1003 columns, where a study takes 1000 at most"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_the_callers_words(
    x: Any, y: Any, changed: dict[str, Any], message: str
) -> None:
    options: dict[str, Any] = {"epsilon": 1, "delta": 1e-5, "bounds": (0, 1)} | changed
    with pytest.raises(InputError, match=re.escape(message)):
        distance_correlation(x, y, **options)


UNITS = 2000
RNG = np.random.default_rng(1)
PLACED = RNG.random(UNITS)
IDS = np.array([f"p{index:04d}" for index in range(UNITS)])
ORDER = RNG.permutation(UNITS)
SHUFFLED = PLACED[ORDER]


def test_a_shuffled_copy_is_seen_by_its_ids_alone() -> None:
    """At epsilon 20 the statistic of equal columns lies dozens of standard deviations above its null."""
    aligned = distance_correlation(PLACED, SHUFFLED, units=(IDS, IDS[ORDER]), method="sketch", **COMMON)
    assert (aligned.aligned, aligned.pvalue) == (True, 0.001)
    assert "aligned units" in aligned.method
    assert aligned.covariance_interval is not None
    low, high = aligned.covariance_interval
    assert low < aligned.distance_covariance_sqr < high
    assert not any("nothing has checked" in warning for warning in aligned.warnings)
    by_order = distance_correlation(PLACED, SHUFFLED, method="sketch", **COMMON)
    assert not by_order.aligned
    assert any("nothing has checked" in warning for warning in by_order.warnings)
    # Rows in a wrong order are rows of independent columns: the correlation is far below that of copies.
    assert by_order.distance_covariance_sqr < aligned.distance_covariance_sqr / 2


def test_peer_mode_and_screening_take_ids_too() -> None:
    pair = (list(IDS), pd.Series(IDS[ORDER]))
    peer = distance_correlation(PLACED, SHUFFLED, units=pair, mode="peer", method="pnc", **COMMON)
    assert isinstance(peer, PeerOutcome)
    assert (peer.finding.aligned, peer.finding.reject) == (True, True)
    found = screening(PLACED, SHUFFLED, units=pair, **COMMON)
    assert (found.aligned, found.reject) == (True, True)
    assert not screening(PLACED, SHUFFLED, **COMMON).aligned


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ((IDS, IDS[:-1]), "units of y: 1999 ids for 2000 rows"),
        (
            (IDS, np.append(IDS[1:], "q")),
            "1 of x's 2000 ids are not among y's, and 1 of y's 2000 not among x's",
        ),
        ((IDS, [*IDS[:-1], None]), "units of y: every row needs an id"),
        (([*range(UNITS - 1), np.nan], IDS), "units of x: every row needs an id"),
        ((np.arange(UNITS) + 0.5, IDS), "text, whole numbers or dates"),
        ((2.0**60 * np.ones(UNITS), IDS), "text, whole numbers or dates"),
        ((IDS, 5), "pass an array or a column of ids"),
        ((IDS, IDS, IDS), "units must name one unit for each"),
    ],
)
def test_ids_that_do_not_match_are_told(units: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        distance_correlation(PLACED, SHUFFLED, units=units, **COMMON)


N = 3000
LINE = RNG.random(N)
Y = (2 * LINE - 1) ** 2
TRUTH = 0.4887
"""Of a uniform column and its square about the middle; the units' own is within .02 of it."""


def correlated(**options: object) -> CuratedDistanceCorrelationResult:
    chosen: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5, "bounds": (0, 1), "mode": "curator", "seed": 1}
    return tacit.local.distance_correlation(LINE, Y, **(chosen | options))


def test_the_estimate_is_near_the_truth_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The noise's standard deviation on the correlation is below .01: .1 is ten of them."""
    result = correlated()
    assert result.reject
    assert result.distance_correlation == pytest.approx(TRUTH, abs=0.1)
    assert result.interval[0] < result.held_interval[0] < result.held_interval[1] < result.interval[1]
    assert dict(result.n) == {"owner": N}
    assert "dependent at level 0.05" in str(result)
    fields = result_fields(result)
    assert fields["distance_correlation"] == result.distance_correlation
    assert fields["held_interval"] == result.held_interval
    print_result(result)
    shown = capsys.readouterr().out
    assert "depend on each other" in shown
    assert "the decision has no p-value" in shown


def outcome(**options: object) -> PeerOutcome:
    x = np.random.default_rng(1).random(500)
    found = tacit.local.distance_correlation(
        x, x, epsilon=20, delta=1e-5, bounds=(0, 1), mode="peer", seed=1, **{"method": "pnc", **options}
    )
    assert isinstance(found, PeerOutcome)
    return found


def test_the_finding_is_the_receivers_and_nothing_is_stated() -> None:
    found = outcome()
    statistic, pvalue = found
    assert (statistic, pvalue) == (found.finding.statistic, found.finding.pvalue)
    assert found.finding.reject
    assert found.stated.receiver == "y-owner"
    assert found.stated.distance_covariance_sqr is None
    assert found.stated.spent == {"x-owner": 20.0, "y-owner": 0.0}
    assert not found.stated.reject
    assert "stays with y-owner" in str(found.stated)
    assert str(found) == f"the receiver: {found.finding}; everybody: {found.stated}"
