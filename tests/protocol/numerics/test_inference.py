"""Sidak without cancellation, and Holm against closed testing."""

import itertools

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit_protocol.numerics.inference import holm, sidak

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
