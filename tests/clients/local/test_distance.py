"""Distance correlation in one process: two owners, aligned, in peer mode, at a curator; mistakes told."""

import datetime
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from local_noise import seeded_noise

import tacit.local
from tacit.command.study_view import print_result, result_fields
from tacit.errors import InputError, StudyRefusedError
from tacit.local import (
    CuratedDistanceCorrelationResult,
    DistanceCorrelationResult,
    distance_correlation,
    screening,
)
from tacit.local.two_owners import read_two_owners
from tacit.results import DecisionResult, PeerOutcome

ROWS = 3000
X = np.random.default_rng(1).random((ROWS, 2))
COMMON: dict[str, Any] = {"epsilon": 20, "delta": 1e-5, "bounds": (0, 1), "seed": 1}


def test_a_copy_is_seen_and_the_result_unpacks() -> None:
    """At epsilon 20 the statistic lies dozens of standard deviations above its null.

    The noise has a seed: one interval in some ten thousand ends more than .05 below 1.
    """
    with seeded_noise(1):
        result = distance_correlation(X[:, 0], X[:, 0], epsilon=20, delta=1e-5, bounds=(0, 1), seed=1)
    assert isinstance(result, DistanceCorrelationResult)
    statistic, pvalue = result
    assert (result.reject, pvalue) == (True, 0.001)
    assert statistic > 5
    assert result.interval is not None
    assert result.interval[0] <= 1 <= result.interval[1] + 0.05
    assert dict(result.n) == {"x-owner": ROWS, "y-owner": ROWS}
    assert "dependent" in str(result)


def test_a_table_and_a_group_are_two_owners_columns() -> None:
    group = np.where(X[:, 0] > 0.5, "high", "low")
    table = pd.DataFrame({"age": 100 * X[:, 0], "dose": X[:, 1]})
    result = distance_correlation(
        table, group, epsilon=20, delta=1e-5, bounds={"age": (0, 100), "dose": (0, 1), "y": ["high", "low"]}
    )
    assert result.reject


MISSING = np.where(np.arange(ROWS) == 7, np.nan, X[:, 0])


@pytest.mark.parametrize(
    ("x", "y", "changed", "message"),
    [
        (X[:, 0], X[:9, 0], {}, "y has 9 rows and x has 3000"),
        (X.reshape(3, -1, 2), X, {}, "x has 3 dimensions"),
        (X, X.reshape(3, -1, 2), {}, "y has 3 dimensions"),
        (X, X[:0], {}, "y is empty"),
        (X, X + 1j, {}, "y holds complex numbers"),
        (X, [[1.0, 2.0], [3.0]], {}, "y has rows of several lengths"),
        (X, np.arange(ROWS).astype("datetime64[s]"), {}, "y holds dates or times"),
        (None, X, {}, "x is a NoneType"),
        (MISSING, X, {}, "x holds missing values"),
        (X, np.full(ROWS, np.inf), {}, "y holds missing values"),
        (X, X[:, 0], {"bounds": [(0, 1), None]}, "y has no bounds"),
        (X, X[:, 0], {"bounds": [(0, 1), (1, 0)]}, "bounds of 'y': lower must be less than upper"),
        (X, X[:, 0], {"bounds": {"x.1": (0, 1), "y": (0, 1)}}, "no bounds for 'x.2'"),
        (X, np.where(X[:, 0] > 0.5, "a", "b"), {}, "column 'y' holds values that are not numbers"),
        (pd.DataFrame({"a": X[:, 0]}), pd.DataFrame({"a": X[:, 1]}), {}, "x and y both have a column"),
        (X, X, {"epsilon": 0}, "epsilon must lie between"),
        (X, X, {"epsilon": None}, "epsilon and delta must be numbers"),
        (X, X, {"delta": -1e-5}, "delta must be at least 0"),
        (X, X, {"alpha": 0.7}, "alpha: Input should be less than 0.5"),
        (X, X, {"mode": "agent"}, 'mode must be "tester", "peer" or "curator"'),
        (X, X, {"missing": "drop"}, "missing must be"),
        (np.zeros((ROWS, 1001)), X, {}, "1003 columns, where a study takes 1000 at most"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_the_callers_words(
    x: Any, y: Any, changed: dict[str, Any], message: str
) -> None:
    options: dict[str, Any] = {"epsilon": 1, "delta": 1e-5, "bounds": (0, 1)} | changed
    with pytest.raises(InputError, match=re.escape(message)):
        distance_correlation(x, y, **options)


@pytest.mark.parametrize(
    ("rows", "changed", "message"),
    [
        (ROWS, {"delta": 0}, "delta above 0"),
        (31, {}, "at least 32"),
        (ROWS, {"n_permutations": 0}, "n_permutations: Input should be greater than or equal to 99"),
        (ROWS, {"n_permutations": 10**9}, "n_permutations: Input should be less than or equal to 9999"),
        (ROWS, {"n_projections": 10**6}, "n_projections: Input should be less than or equal to 1024"),
        (ROWS, {"n_features": 65}, "n_features: Input should be less than or equal to 64"),
        (ROWS, {"method": "exact"}, "parameter method"),
        (ROWS, {"bogus": 1}, "unknown parameter"),
    ],
)
def test_what_the_procedure_does_not_take_is_refused(
    rows: int, changed: dict[str, Any], message: str
) -> None:
    options: dict[str, Any] = {"epsilon": 1, "delta": 1e-5, "bounds": (0, 1)} | changed
    with pytest.raises(StudyRefusedError, match=message):
        distance_correlation(X[:rows], X[:rows, 0], **options)


@pytest.mark.parametrize("constant", [0.0, 0.5, 7.0])
def test_a_constant_column_is_taken(constant: float) -> None:
    """Outside of its bounds it is clipped; its own variance is 0, or what noise makes of it."""
    result = distance_correlation(np.full(ROWS, constant), X[:, 0], **COMMON)
    assert 0 < result.pvalue <= 1
    unknown = result.distance_correlation is None
    assert (result.interval is None) == unknown
    assert any("variance is zero, or lost" in warning for warning in result.warnings) == unknown


def test_a_level_that_permutations_cannot_reach_is_told() -> None:
    few = distance_correlation(X[:, 0], X[:, 0], alpha=1e-4, **COMMON)
    assert not few.reject
    assert any("at least 9999 permutations" in warning for warning in few.warnings)
    enough = distance_correlation(X[:, 0], X[:, 0], alpha=1e-3, **COMMON)
    assert enough.reject
    assert not any("permutations" in warning for warning in enough.warnings)


UNITS = 2000
RNG = np.random.default_rng(1)
PLACED = RNG.random(UNITS)
IDS = np.array([f"p{index:04d}" for index in range(UNITS)])
ORDER = RNG.permutation(UNITS)
SHUFFLED = PLACED[ORDER]


def test_a_shuffled_copy_is_seen_by_its_ids_alone() -> None:
    """At epsilon 20 the statistic of equal columns lies dozens of standard deviations above its null."""
    aligned = distance_correlation(PLACED, SHUFFLED, units=(IDS, IDS[ORDER]), **COMMON)
    assert (aligned.aligned, aligned.pvalue) == (True, 0.001)
    assert "aligned units" in aligned.method
    assert aligned.covariance_interval is not None
    low, high = aligned.covariance_interval
    assert low < aligned.distance_covariance_sqr < high
    assert not any("nothing has checked" in warning for warning in aligned.warnings)
    by_order = distance_correlation(PLACED, SHUFFLED, **COMMON)
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


def test_sides_may_have_other_numbers_of_rows() -> None:
    """One side has each unit twice, a little above and a little below its value."""
    twice = np.repeat(PLACED, 2) + np.tile([0.001, -0.001], UNITS)
    result = distance_correlation(
        np.clip(twice, 0, 1), SHUFFLED, units=(np.repeat(IDS, 2), IDS[ORDER]), **COMMON
    )
    assert dict(result.n) == {"x-owner": UNITS, "y-owner": UNITS}
    assert result.reject


def test_both_tables_come_in_the_order_of_the_keyed_ids() -> None:
    held = read_two_owners(PLACED, SHUFFLED, (0, 1), "refuse", (IDS, IDS[ORDER]))
    assert held.aligned is not None
    orders = [np.argsort(np.asarray(units)) for units in held.units]
    np.testing.assert_array_equal(PLACED[orders[0]], SHUFFLED[orders[1]])
    again = read_two_owners(PLACED, SHUFFLED, (0, 1), "refuse", (IDS, IDS[ORDER]))
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
    held = read_two_owners(PLACED[:40], PLACED[:40], (0, 1), "refuse", (np.arange(40), spelled))
    assert np.array_equal(np.asarray(held.units[0]), np.asarray(held.units[1]))


def test_dates_are_ids_and_a_column_may_be_called_unit() -> None:
    days = [datetime.date(2020, 1, 1) + datetime.timedelta(index) for index in range(40)]
    table = pd.DataFrame({"unit": PLACED[:40], "unit_": PLACED[:40]})
    held = read_two_owners(table, PLACED[:40], (0, 1), "refuse", (days, [day.isoformat() for day in days]))
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
        distance_correlation(PLACED, SHUFFLED, units=units, **COMMON)


def test_one_party_has_one_array_of_units() -> None:
    with pytest.raises(InputError, match="one party holds both"):
        distance_correlation(PLACED, PLACED, units=(IDS, IDS), mode="curator", **COMMON)


N = 3000
LINE = RNG.random(N)
Y = (2 * LINE - 1) ** 2
TRUTH = 0.4887
"""Of a uniform column and its square about the middle; the units' own is within .02 of it."""


def correlated(**options: object) -> CuratedDistanceCorrelationResult:
    return tacit.local.distance_correlation(
        LINE,
        Y,
        epsilon=4.0,
        delta=1e-5,
        bounds=(0, 1),
        mode="curator",
        seed=1,
        **options,
    )


def test_the_estimate_is_near_the_truth_and_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """The noise's standard deviation on the correlation is below .01: .1 is ten of them."""
    result = correlated()
    assert result.reject
    assert result.distance_correlation == pytest.approx(TRUTH, abs=0.1)
    assert result.interval is not None
    assert result.held_interval is not None
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


@pytest.mark.parametrize("option", [{"method": "pnc"}, {"n_projections": 4}, {"n_features": 4}])
def test_what_the_curator_does_not_take_is_refused(option: dict[str, object]) -> None:
    with pytest.raises(InputError, match="leave out"):
        correlated(**option)


def test_parameters_of_the_curator_are_refused_without_one() -> None:
    with pytest.raises(StudyRefusedError, match="unknown parameter"):
        tacit.local.distance_correlation(LINE, Y, epsilon=1.0, delta=1e-5, bounds=(0, 1), test=False)


def test_joint_independence_with_distances() -> None:
    """The statistic lies 40 scales of noise above every permuted one."""
    result = tacit.local.joint_independence(
        LINE[:1000],
        Y[:1000],
        epsilon=5.0,
        bounds=(0, 1),
        kernel="distance",
        n_permutations=99,
        seed=1,
    )
    assert isinstance(result, DecisionResult)
    assert result.reject
    assert "distance kernel" in result.method
    for wrong in ({"bandwidth": 0.1}, {"category_similarity": 0.5}):
        with pytest.raises(StudyRefusedError, match="neither bandwidth"):
            tacit.local.joint_independence(LINE, Y, epsilon=5.0, bounds=(0, 1), kernel="distance", **wrong)


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


def test_what_is_published_has_an_interval(capsys: pytest.CaptureFixture[str]) -> None:
    found = outcome(publish=True, receiver="x-owner", method="pnc-disjoint")
    value, interval = found.stated.distance_covariance_sqr, found.stated.interval
    assert value is not None
    assert interval is not None
    assert interval[0] < value < interval[1]
    assert found.stated.spent == {"x-owner": 20.0, "y-owner": 20.0}
    print_result(found.stated)
    printed = capsys.readouterr().out
    assert "published by x-owner" in printed
    assert "squared distance covariance" in printed
    assert "every owner spent" not in printed
    assert result_fields(found.stated)["receiver"] == "x-owner"


def test_the_receiver_is_one_of_the_two() -> None:
    with pytest.raises(StudyRefusedError, match="parameter receiver"):
        outcome(receiver="somebody")
