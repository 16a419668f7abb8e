"""What results are drawn as: the same panels in SVG and with matplotlib, and every number read back."""

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from local_noise import seeded_noise

from tacit import local
from tacit.errors import PlottingError
from tacit.results import PeerOutcome, Result, result_of
from tacit_protocol.reporting.panels import NullPanel, Panel, PvaluePanel

SPEND: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-5}
SVG = "{http://www.w3.org/2000/svg}"
RNG = np.random.default_rng(1)
NORTH, SOUTH = RNG.normal(50, 10, (1200, 2)), RNG.normal(54, 10, (1200, 2))
DOSE = RNG.random(4000)
EFFECT = np.clip(DOSE + RNG.normal(0, 0.2, 4000), 0, 1)
SEX, WARD = RNG.choice(["F", "M"], 800), RNG.choice(["a", "b", "c"], 800)


def two_sample(**choice: Any) -> Result:
    result: Result = local.kernel_two_sample(NORTH, SOUTH, bounds=(0, 120), seed=1, **SPEND, **choice)
    return result


def identity(**choice: Any) -> Result:
    return local.identity([90, 60, 50], [0.3, 0.3, 0.4], seed=1, **choice)


DRAWN: dict[str, Callable[[], Result]] = {
    "max": two_sample,
    "mmd": lambda: two_sample(features="me", statistic="mmd", n_features=5),
    "noise-aware": lambda: two_sample(features="me", statistic="noise-aware", n_features=3, replicates=199),
    "curated mmd": lambda: two_sample(features="me", statistic="mmd", n_features=5, setting="curator"),
    "ridge": lambda: two_sample(setting="curator", release="statistic"),
    "curator": lambda: two_sample(setting="curator"),
    "mcgof": lambda: identity(epsilon=1.0),
    "zcdp": lambda: identity(method="zcdp-gof", **SPEND),
    "privit": lambda: identity(epsilon=1.0, method="privit-laplace"),
    "P0's weighted": lambda: two_sample(features="me", null="weighted", n_features=3),
    "P0's chi-squared": lambda: two_sample(features="me", null="asymptotic", n_features=3),
    "homogeneity": lambda: local.homogeneity(SEX[:400], SEX[400:], epsilon=1.0, bounds=["F", "M"], seed=1),
    "independence": lambda: local.independence_table(
        SEX, WARD, epsilon=1.0, bounds=[["F", "M"], ["a", "b", "c"]], seed=1
    ),
    "distance": lambda: local.distance_correlation(DOSE, EFFECT, bounds=(0, 1), seed=1, **SPEND),
}
"""Results that have a statistic, a p-value, and a null distribution that can be drawn."""


@pytest.fixture(scope="module")
def drawn() -> dict[str, Result]:
    """The same results every time: a picture draws the first of a verdict's simulations, and by chance these
    put a p-value that is just at the level on the other side of it."""
    with seeded_noise(1):
        return {name: make() for name, make in DRAWN.items()}


def charts(svg: str, kind: str) -> Iterator[ET.Element]:
    return (e for e in ET.fromstring(svg).iter(f"{SVG}svg") if e.get("class") == f"chart {kind}")  # noqa: S314


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", DRAWN)
def test_the_null_distribution_and_the_critical_value_agree_with_the_verdict(
    drawn: dict[str, Result], name: str
) -> None:
    result = drawn[name]
    (panel,) = (panel for panel in result.panels() if isinstance(panel, NullPanel))
    verdict, null = result.verdict, panel.null
    # What is drawn has the p-value as its tail, to the width of a strip or a bar.
    area = np.trapezoid(null.density, null.t)
    beyond = np.linspace(panel.statistic, max(panel.statistic, null.t[-1]), 4001)
    tail = np.trapezoid(np.interp(beyond, null.t, null.density, right=0.0), beyond)
    assert area == pytest.approx(1.0, abs=0.03)
    if len(null.criticals) == 1:
        widest = float(np.max(np.diff(null.t) * null.density[:-1]))  # of a bar, which is all or nothing
        assert tail == pytest.approx(verdict["pvalue"], abs=0.03 + widest)
        (critical,) = null.criticals
        assert result.reject == (panel.statistic > critical.value)
    else:  # each family of coordinates has its own part of the level
        assert panel.statistic > min(c.value for c in null.criticals) or not result.reject
        assert panel.statistic < max(c.value for c in null.criticals) or result.reject


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", DRAWN)
def test_numbers_are_read_back_from_the_svg(drawn: dict[str, Result], name: str) -> None:
    result = drawn[name]
    svg, verdict = result.to_svg(), result.verdict
    (null,), (pvalue,) = list(charts(svg, "null")), list(charts(svg, "pvalue"))
    assert float(str(null.get("data-statistic"))) == verdict["statistic"]
    assert float(str(pvalue.get("data-pvalue"))) == verdict["pvalue"]
    ticks = [
        (float(str(tick.get("data-at"))), float(str(tick.get("data-value"))))
        for tick in null.iter(f"{SVG}text")
        if tick.get("class") == "x-tick"
    ]
    at, values = np.array(ticks).T
    slope, start = np.polyfit(at, values, 1)
    (mark,) = (line for line in null.iter(f"{SVG}line") if line.get("class") == "mark")
    assert start + slope * float(str(mark.get("x1"))) == pytest.approx(
        verdict["statistic"], abs=2e-3 * (ticks[-1][1] - ticks[0][1])
    )
    for row in (element for element in ET.fromstring(svg).iter(f"{SVG}g") if element.get("class") == "row"):  # noqa: S314
        assert np.isfinite(float(str(row.get("data-value"))))
        assert row.find(f"{SVG}title") is not None


def test_without_matplotlib_drawing_says_what_to_install(
    drawn: dict[str, Result], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PlottingError, match="pip install matplotlib; or use to_svg"):
        drawn["max"].plot()


@pytest.mark.parametrize("name", ["homogeneity", "independence"])
def test_tables_that_a_verdict_shows_draw_the_same_null_without_releases(
    drawn: dict[str, Result], name: str
) -> None:
    whole = drawn[name]
    shown = result_of(whole.source.study, whole.verdict)
    assert shown.source.releases == {}
    nulls = [p.null for r in (whole, shown) for p in r.panels() if isinstance(p, NullPanel)]
    # A verdict's counts are rounded to three digits, which hardly moves anything.
    assert nulls[1].criticals[0].value == pytest.approx(nulls[0].criticals[0].value, rel=0.02)
    assert nulls[0].words == nulls[1].words


def test_without_releases_what_needs_them_is_left_out(drawn: dict[str, Result]) -> None:
    shown = result_of(drawn["distance"].source.study, drawn["distance"].verdict)
    assert not any(isinstance(panel, NullPanel) for panel in shown.panels())
    assert "null" not in re.findall(r'class="chart (\w+)"', shown.to_svg())
    assert list(charts(shown.to_svg(), "pvalue"))
    known = result_of(drawn["max"].source.study, drawn["max"].verdict)
    assert known.to_svg() == drawn["max"].to_svg()


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", DRAWN)
def test_whatever_is_drawn_is_reported(drawn: dict[str, Result], name: str) -> None:
    html = drawn[name].report_html(question="Alike?")
    assert html.count("<svg") == min(2, len([p for p in drawn[name].panels() if not_pvalue(p)]))
    assert "The null distribution is" in html


def not_pvalue(panel: Panel) -> bool:
    return not isinstance(panel, PvaluePanel)


def test_what_stays_with_its_receiver_and_what_tests_nothing_are_reported_as_that() -> None:
    outcome = local.distance_correlation(DOSE, EFFECT, bounds=(0, 1), mode="peer", method="pnc", **SPEND)
    assert isinstance(outcome, PeerOutcome)
    assert "nothing was tested in public" in outcome.stated.report_html()
    assert outcome.to_svg() == outcome.finding.to_svg()
    table = local.noisy_counts(SEX, epsilon=1.0, bounds=["F", "M"])
    assert "They test nothing by themselves" in table.report_html()
    curated = local.distance_correlation(DOSE[:500], EFFECT[:500], bounds=(0, 1), mode="curator", **SPEND)
    assert "private decision at level 0.05" in curated.report_html()
    assert list(charts(curated.to_svg(), "rows"))
