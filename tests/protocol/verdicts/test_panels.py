"""Nulls that are drawn: areas, tails and critical values against laws that are known."""

import numpy as np
import pytest
from scipy.stats import chi2

from tacit_protocol.numerics.quadratic_forms import QuadraticLaw
from tacit_protocol.reporting.charts import NullPanel
from tacit_protocol.reporting.svg import panel_svg
from tacit_protocol.verdicts.panels import chi_square, from_draws, quadratic


@pytest.mark.parametrize("statistic", [0.0, 3.0, 500.0])
def test_a_chi_squared_law_by_its_density_and_by_its_tails(statistic: float) -> None:
    direct = chi_square(4, statistic, 0.05)
    by_tails = quadratic("w", (QuadraticLaw(np.ones(4)),), statistic, 0.05)
    for null in (direct, by_tails):
        assert null.criticals[0].value == pytest.approx(chi2(4).isf(0.05), rel=1e-6)
        assert null.t[-1] > max(statistic, null.criticals[0].value)
        assert np.trapezoid(null.density, null.t) == pytest.approx(1.0, abs=0.02)
    t = np.linspace(0.5, 12, 50)
    assert np.interp(t, by_tails.t, by_tails.density) == pytest.approx(chi2(4).pdf(t), abs=2e-3)


@pytest.mark.parametrize("level", [0.001, 0.01, 0.05, 0.3])
@pytest.mark.parametrize("count", [19, 99, 199, 999])
def test_beyond_the_critical_draw_and_nowhere_else_the_pvalue_rejects(level: float, count: int) -> None:
    draws = np.random.default_rng(count).normal(size=count)
    null = from_draws("w", draws, level)
    assert null is not None
    for statistic in (*draws[:40], *(draws[:40] + 1e-9), -9.0, 9.0):
        pvalue = (1 + np.count_nonzero(draws >= statistic)) / (count + 1)
        rejects = bool(null.criticals) and statistic > null.criticals[0].value
        assert rejects == (pvalue <= level + 1e-12)


def test_draws_that_are_infinite_or_all_the_same_do_not_break_the_picture() -> None:
    assert from_draws("w", np.ones(99), 0.05) is None
    assert from_draws("w", np.full(99, np.inf), 0.05) is None
    some = from_draws("w", np.concatenate([np.full(20, np.inf), np.arange(79.0)]), 0.05)
    assert some is not None
    assert some.criticals == ()  # a tenth of the draws is infinite: nothing finite is rejected
    assert "<svg" in panel_svg(NullPanel(some, 5.0))
