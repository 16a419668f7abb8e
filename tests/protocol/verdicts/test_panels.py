"""Nulls that are drawn, p-values in words and on their axis, and how fields of verdicts are shown."""

from typing import get_args

import numpy as np
import pytest
from pydantic import BaseModel

from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.procedures.two_sample.verdict import TwoSampleResult
from tacit_protocol.reporting.charts import PvaluePanel, chart_of
from tacit_protocol.reporting.svg import panel_svg
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.presentation import (
    Part,
    Shown,
    from_draws,
    pvalue_number,
    pvalue_words,
    shown_fields,
)


@pytest.mark.parametrize("level", [0.001, 0.01, 0.05, 0.3])
@pytest.mark.parametrize("count", [19, 99, 199, 999])
def test_beyond_the_critical_draw_and_nowhere_else_the_pvalue_rejects(level: float, count: int) -> None:
    draws = np.random.default_rng(count).normal(size=count)
    null = from_draws("w", draws, level)
    for statistic in (*draws[:40], *(draws[:40] + 1e-9), -9.0, 9.0):
        pvalue = (1 + np.count_nonzero(draws >= statistic)) / (count + 1)
        rejects = bool(null.criticals) and statistic > null.criticals[0].value
        assert rejects == (pvalue <= level + 1e-12)


def test_small_pvalues_are_written_with_powers_of_ten() -> None:
    found = {0.05: "0.05", 0.0001: "0.0001", 9.996e-5: "1 × 10⁻⁴", 5.19e-11: "5.19 × 10⁻¹¹", 1.0: "1"}
    assert {pvalue: pvalue_number(pvalue) for pvalue in found} == found
    assert (pvalue_words(0.0), pvalue_words(2e-7)) == ("p < 10⁻³⁰⁰", "p = 2 × 10⁻⁷")


@pytest.mark.parametrize("level", [0.05, 0.01, 1e-8, 0.3])
@pytest.mark.parametrize("pvalue", [1.0, 0.2, 0.06, 0.04, 1e-3, 1e-6, 1e-12, 5e-324])
def test_the_axis_of_a_pvalue_is_readable_and_says_where_it_ends(pvalue: float, level: float) -> None:
    chart = chart_of(PvaluePanel(pvalue, level))
    words = [written for _, written in chart.ticks]
    assert words[:2] == ["1", "0.1"]
    assert 5 <= len(words) <= 10
    assert not any("e" in written for written in words)
    marks = {rule.mark: rule for rule in chart.rules}
    assert chart.x[0] <= marks[True].at <= 0
    beyond = pvalue < 10.0 ** chart.x[0]
    assert ("further left" in marks[True].words, "beyond" in panel_svg(PvaluePanel(pvalue, level))) == (
        beyond,
        beyond or pvalue == 10.0 ** chart.x[0],
    )


def test_fields_are_shown_as_the_model_says_own_ones_first_each_with_its_interval() -> None:
    verdict = TwoSampleResult(
        method="m",
        reject=True,
        level=0.05,
        units={"north": 9},
        epsilon=1.0,
        delta=0.0,
        warnings=(),
        statistic=3.0,
        pvalue=2e-9,
        squared_mmd=0.0,
        squared_mmd_unbiased=-0.01,
        lower=0.0,
        upper=0.02,
    )
    shown = {field.name: field for field in shown_fields(verdict)}
    assert list(shown)[:4] == ["pvalue", "squared_mmd", "squared_mmd_unbiased", "statistic"]
    assert shown["squared_mmd"].interval == (0.0, 0.02)
    assert not {"lower", "upper", "reject", "warnings", "pairs"} & set(shown)
    assert [field.part for field in shown.values() if field.name in {"squared_mmd", "pvalue", "units"}] == [
        "test",
        "effects",
        "rest",
    ]


def every_verdict(kind: type[BaseVerdict] = BaseVerdict) -> set[type[BaseVerdict]]:
    return {kind}.union(*(every_verdict(below) for below in kind.__subclasses__()))


def test_every_field_of_every_verdict_has_words_of_people() -> None:
    assert {procedure.Verdict for procedure in PROCEDURES.values()} - {BaseVerdict} <= every_verdict()
    for kind in every_verdict():
        fields = kind.model_fields
        stated = {n: [m for m in info.metadata if isinstance(m, Shown)] for n, info in fields.items()}
        for name, (shown, *others) in ((n, found) for n, found in stated.items() if found):
            assert (others, shown.part in get_args(Part)) == ([], True), (kind, name)
            assert set(shown.ends or ()) <= set(fields), (kind, name)
        taken = {end for found in stated.values() if found for end in found[0].ends or ()}
        ends = {
            n for n in fields if n.endswith(("lower", "upper")) and n[:-6] not in fields and not stated[n]
        }
        assert ends <= taken, kind


class Odd(BaseModel, extra="allow"):
    """Fields of nobody."""


def test_fields_that_no_model_knows_are_shown_by_their_names() -> None:
    shown = shown_fields(Odd.model_validate({"b_c": 1, "a": [], "d": None}))
    assert [(field.label, field.value, field.part) for field in shown] == [("b c", 1, "rest")]
