"""Mistakes planted in the curator's releases, and what the audits say to them."""

import numpy as np
import pytest
from curated_two_sample_cases import CASES
from release_audit import largest_move

from tacit_protocol.features.moments import sum_sensitivity
from tacit_protocol.procedures.curated_two_sample import release
from tacit_protocol.procedures.curated_two_sample.permuted_means import PermutedFeatures
from tacit_protocol.procedures.curated_two_sample.release import ridge_sensitivity

TOO_SMALL = 0.9


@pytest.mark.parametrize("name", ["columns, 1 : 30, units of 4 rows", "columns, 1 number"])
def test_a_difference_whose_unit_moves_more_than_stated_is_caught(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(release, "sum_sensitivity", lambda *given: TOO_SMALL * sum_sensitivity(*given))
    moved, allowed = largest_move(CASES[name])
    assert moved.gaussian > 1.05 * allowed.gaussian


def test_a_bound_on_the_statistic_a_tenth_too_small_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "ridge_sensitivity", lambda *given: TOO_SMALL * ridge_sensitivity(*given))
    moved, allowed = largest_move(CASES["statistic"])
    assert moved.gaussian > 1.05 * allowed.gaussian


def test_a_bound_on_distances_a_tenth_too_small_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    stated = PermutedFeatures.sensitivity
    monkeypatch.setattr(PermutedFeatures, "sensitivity", lambda self, units: TOO_SMALL * stated(self, units))
    moved, allowed = largest_move(CASES["permutation, 1 : 3"])
    assert moved.laplace > 1.05 * allowed.laplace


def test_pairs_in_the_order_of_the_tables_would_break_the_promise() -> None:
    """Tables ordered by units' names: the first unit is replaced by one whose name comes last."""
    values = np.arange(200) % 2
    moved = np.append(values[1:], 0)
    before, after = values - values, moved - values
    assert np.count_nonzero(np.sort(values) != np.sort(moved)) <= 1, "one unit was replaced"
    assert abs(np.sum(before**2) - np.sum(after**2)) > 190, "one pair moves this by at most 1"
