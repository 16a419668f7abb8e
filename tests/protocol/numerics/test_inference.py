"""Sidak without cancellation, Holm against closed testing, and scores of which three values tell all."""

import itertools

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit_protocol.numerics.inference import FixedScore, Score, holm, products, sidak

pvalues = st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=6)


def closed_testing(p: list[float]) -> list[float]:
    """The largest Bonferroni p-value of any intersection that contains hypothesis i."""
    adjusted = [0.0] * len(p)
    for size in range(1, len(p) + 1):
        for subset in itertools.combinations(range(len(p)), size):
            joint = min(1.0, size * min(p[i] for i in subset))
            for i in subset:
                adjusted[i] = max(adjusted[i], joint)
    return adjusted


@settings(max_examples=200, deadline=None)
@given(pvalues)
def test_holm_is_closed_testing_with_bonferroni(p: list[float]) -> None:
    np.testing.assert_allclose(holm(np.array(p)), closed_testing(p), rtol=1e-14)


@pytest.mark.parametrize("smallest", [1e-300, 1e-20, 1e-9, 0.001, 0.3, 0.999])
@pytest.mark.parametrize("comparisons", [1, 2, 200, 50_000])
def test_sidak_to_the_last_digits(smallest: float, comparisons: int) -> None:
    with mpmath.workdps(350):
        exact = 1 - (1 - mpmath.mpf(smallest)) ** comparisons
        assert abs(sidak(smallest, comparisons) / exact - 1) < 1e-12


def test_a_score_whose_cells_no_effect_changes_is_told_by_three_of_its_values() -> None:
    """Of hazard ratios, whose ends are those of all values one by one."""
    rng, strata = np.random.default_rng(5), 3
    top, bottom = (products(4, (one, 3, 1.0), (1, 2, 0.5)) for one in (0, 1))
    cells = rng.uniform(20, 80, (strata, 4))
    counts, variances = cells + rng.normal(0, 3, cells.shape), np.full(cells.shape, 9.0)
    one, all_of_them = (
        kind(top, bottom, lambda counts, _: np.broadcast_to(cells, counts.shape), ratio=True)
        for kind in (FixedScore, Score)
    )
    theta = np.exp(np.linspace(-5, 5, 41))
    np.testing.assert_allclose(
        one.excess(counts, variances, 1.96)(theta), all_of_them.excess(counts, variances, 1.96)(theta), 1e-11
    )
    found, expected = (score.estimate(counts, variances, 0.05) for score in (one, all_of_them))
    assert (found.value, found.lower, found.upper) == pytest.approx(
        (expected.value, expected.lower, expected.upper), rel=1e-9
    )
    assert found.lower is not None
    assert found.upper is not None
