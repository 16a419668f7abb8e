"""Two owners' rows matched by ids in one process: any order, any number of rows, the same units or none."""

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tacit.errors import InputError
from tacit.local import distance_correlation, screening
from tacit.local.two_owners import read_two_owners
from tacit.results import PeerOutcome

UNITS = 2000
RNG = np.random.default_rng(1)
X = RNG.random(UNITS)
IDS = np.array([f"p{index:04d}" for index in range(UNITS)])
ORDER = RNG.permutation(UNITS)
SHUFFLED = X[ORDER]
COMMON: dict[str, Any] = {"epsilon": 20, "delta": 1e-5, "bounds": (0, 1), "seed": 1}


def test_a_shuffled_copy_is_seen_by_its_ids_alone() -> None:
    """At epsilon 20 the statistic of equal columns lies dozens of standard deviations above its null."""
    aligned = distance_correlation(X, SHUFFLED, units=(IDS, IDS[ORDER]), **COMMON)
    assert (aligned.aligned, aligned.pvalue) == (True, 0.001)
    assert "aligned units" in aligned.method
    assert aligned.covariance_interval is not None
    low, high = aligned.covariance_interval
    assert low < aligned.distance_covariance_sqr < high
    assert not any("nothing has checked" in warning for warning in aligned.warnings)
    by_order = distance_correlation(X, SHUFFLED, **COMMON)
    assert not by_order.aligned
    assert any("nothing has checked" in warning for warning in by_order.warnings)
    # Rows in a wrong order are rows of independent columns: the correlation is far below that of copies.
    assert by_order.distance_covariance_sqr < aligned.distance_covariance_sqr / 2


def test_peer_mode_and_screening_take_ids_too() -> None:
    pair = (list(IDS), pd.Series(IDS[ORDER]))
    peer = distance_correlation(X, SHUFFLED, units=pair, mode="peer", method="pnc", **COMMON)
    assert isinstance(peer, PeerOutcome)
    assert (peer.finding.aligned, peer.finding.reject) == (True, True)
    found = screening(X, SHUFFLED, units=pair, **COMMON)
    assert (found.aligned, found.reject) == (True, True)
    assert not screening(X, SHUFFLED, **COMMON).aligned


def test_sides_may_have_other_numbers_of_rows() -> None:
    """One side has each unit twice, a little above and a little below its value."""
    twice = np.repeat(X, 2) + np.tile([0.001, -0.001], UNITS)
    result = distance_correlation(
        np.clip(twice, 0, 1), SHUFFLED, units=(np.repeat(IDS, 2), IDS[ORDER]), **COMMON
    )
    assert dict(result.n) == {"x-owner": UNITS, "y-owner": UNITS}
    assert result.reject


def test_both_tables_come_in_the_order_of_the_keyed_ids() -> None:
    held = read_two_owners(X, SHUFFLED, (0, 1), "refuse", (IDS, IDS[ORDER]))
    assert held.aligned is not None
    orders = [np.argsort(np.asarray(units)) for units in held.units]
    np.testing.assert_array_equal(X[orders[0]], SHUFFLED[orders[1]])
    again = read_two_owners(X, SHUFFLED, (0, 1), "refuse", (IDS, IDS[ORDER]))
    assert again.aligned is not None
    assert again.aligned.digest != held.aligned.digest  # another key


@pytest.mark.parametrize(
    "spelled",
    [
        [str(number) for number in range(40)],
        [f" {number} " for number in range(40)],
        np.arange(40.0),
        np.arange(40, dtype=np.uint8),
        [Decimal(number) for number in range(40)],
        pl.Series(range(40)),
        pd.Series(np.arange(40), dtype="Int64"),
    ],
)
def test_one_id_may_be_spelled_in_several_ways(spelled: Any) -> None:
    """As docs/how-to/align-two-owners.md says of agents."""
    held = read_two_owners(X[:40], X[:40], (0, 1), "refuse", (np.arange(40), spelled))
    assert np.array_equal(np.asarray(held.units[0]), np.asarray(held.units[1]))


def test_dates_are_ids_and_a_column_may_be_called_unit() -> None:
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(index) for index in range(40)]
    table = pd.DataFrame({"unit": X[:40], "unit_": X[:40]})
    held = read_two_owners(table, X[:40], (0, 1), "refuse", (days, [day.isoformat() for day in days]))
    assert held.aligned is not None
    assert held.aligned.unit_column == "unit__"


@pytest.mark.parametrize(
    ("units", "message"),
    [
        ((IDS, IDS[:-1]), "units of y: 1999 ids for 2000 rows"),
        (
            (IDS, np.append(IDS[1:], "q")),
            "1 of x's 2000 ids are not among y's, and 1 of y's 2000 not among x's",
        ),
        ((IDS, np.append(IDS[:-1], IDS[0])), "1 of x's 2000 ids are not among y's, and 0 of y's 1999"),
        ((IDS, [*IDS[:-1], None]), "units of y: every row needs an id"),
        ((IDS, [*IDS[:-1], " "]), "units of y: every row needs an id"),
        (([*range(UNITS - 1), np.nan], IDS), "units of x: every row needs an id"),
        ((np.arange(UNITS) + 0.5, IDS), "text, whole numbers or dates"),
        (([True, *range(UNITS - 1)], IDS), "text, whole numbers or dates"),
        (([b"a"] * UNITS, IDS), "text, whole numbers or dates"),
        ((2.0**60 * np.ones(UNITS), IDS), "text, whole numbers or dates"),
        ((["i" * 300] * UNITS, IDS), "more than 256 characters"),
        ((IDS.reshape(-1, 1), IDS), "pass a flat array"),
        ((IDS, 5), "pass an array or a column of ids"),
        ((IDS, None), "pass an array or a column of ids"),
        ((IDS, IDS, IDS), "units must name one unit for each"),
        ([IDS, IDS[:5], IDS], "units must name one unit for each"),
    ],
)
def test_ids_that_do_not_match_are_told(units: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        distance_correlation(X, SHUFFLED, units=units, **COMMON)


def test_one_party_has_one_array_of_units() -> None:
    with pytest.raises(InputError, match="one party holds both"):
        distance_correlation(X, X, units=(IDS, IDS), mode="curator", **COMMON)
