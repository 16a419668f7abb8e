"""Nulls that are drawn: areas, tails and critical values against laws that are known."""

import numpy as np
import pytest

from tacit_protocol.verdicts.presentation import from_draws


@pytest.mark.parametrize("level", [0.001, 0.01, 0.05, 0.3])
@pytest.mark.parametrize("count", [19, 99, 199, 999])
def test_beyond_the_critical_draw_and_nowhere_else_the_pvalue_rejects(level: float, count: int) -> None:
    draws = np.random.default_rng(count).normal(size=count)
    null = from_draws("w", draws, level)
    for statistic in (*draws[:40], *(draws[:40] + 1e-9), -9.0, 9.0):
        pvalue = (1 + np.count_nonzero(draws >= statistic)) / (count + 1)
        rejects = bool(null.criticals) and statistic > null.criticals[0].value
        assert rejects == (pvalue <= level + 1e-12)
