"""Peer mode in one process, and its results as people see them."""

import numpy as np
import pytest

import tacit.local
from tacit.command.result_view import print_result, result_fields
from tacit.errors import StudyRefusedError
from tacit.results import PeerOutcome


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
