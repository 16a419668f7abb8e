"""What results are drawn as, tests and releases: the same panels everywhere, and every number read back."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from local_noise import seeded_noise
from played_releases import BOUNDS, patients, played

from tacit import local
from tacit.plotting import figure_of
from tacit.results import Result, result_of
from tacit_protocol.numerics.noisy_tables import CellNoise
from tacit_protocol.reporting.charts import NullPanel, chart_of, panels_of
from tacit_protocol.verdicts.base import FORESTS_MAX, Effect, forest
from tacit_protocol.verdicts.presentation import BarsPanel, RatiosPanel, Row

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
    "curator": lambda: two_sample(setting="curator", release="mean-covariance"),
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


def test_ratios_lie_on_a_logarithmic_axis_that_says_them() -> None:
    rows = (Row("north", np.log(2.0), np.log(0.5), np.log(8.0), False),)
    chart = chart_of(RatiosPanel("odds", "odds ratio", rows))
    assert [(words, pytest.approx(float(words))) for _, words in chart.ticks] == [
        (words, np.exp(at)) for at, words in chart.ticks
    ]
    assert {"1", "2"} <= {words for _, words in chart.ticks}
    assert "north 2, interval 0.5 to 8" in chart.words
    narrow = chart_of(RatiosPanel("odds", "odds ratio", (Row("all", 0.02, 0.01, 0.03, True),)))
    assert len(narrow.ticks) > 1


def test_of_many_effects_the_first_are_drawn_and_the_last_says_how_many() -> None:
    effects = [
        Effect(column=f"c{place}", kind="mean difference", groups=("a", "b"), estimate=1.0, lower=0.0,
               upper=2.0, unit="units of c")
        for place in range(2 * FORESTS_MAX)
    ]  # fmt: skip
    drawn = forest(effects, 0.05)
    assert len(drawn) == FORESTS_MAX
    assert f"{FORESTS_MAX} of {2 * FORESTS_MAX}" in drawn[-1].title


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


def test_without_releases_what_needs_them_is_left_out(drawn: dict[str, Result]) -> None:
    shown = result_of(drawn["distance"].source.study, drawn["distance"].verdict)
    assert not any(isinstance(panel, NullPanel) for panel in shown.panels())
    assert "null" not in re.findall(r'class="chart (\w+)"', shown.to_svg())
    assert list(charts(shown.to_svg(), "pvalue"))
    known = result_of(drawn["max"].source.study, drawn["max"].verdict)
    assert known.to_svg() == drawn["max"].to_svg()


WARDS = {"ward": BOUNDS["ward"]}


def bars_of(result: Result) -> list[BarsPanel]:
    panels = panels_of(result.source.study, result.verdict, result.source.releases)
    assert all(isinstance(panel, BarsPanel) for panel in panels)
    return [panel for panel in panels if isinstance(panel, BarsPanel)]


@pytest.fixture(scope="module")
def counts() -> Result:
    samples = {name: patients(seed=seed) for seed, name in enumerate(("north", "south"))}
    return played("noisy_counts", samples, WARDS, epsilon=0.5, delta=0.0)


@pytest.fixture(scope="module")
def many() -> Result:
    rng = np.random.default_rng(2)
    levels = {"dose": [f"d{i}" for i in range(6)], "site": [f"s{i}" for i in range(30)]}
    sample = {name: rng.choice(listed, 2000) for name, listed in levels.items()}
    return played("noisy_counts", {"north": sample}, levels)


@pytest.fixture(scope="module")
def database() -> Result:
    return played("embedding_release", {"north": patients()}, n_points=40)


def test_every_noisy_count_is_a_bar_with_its_interval(counts: Result) -> None:
    north, south, together = bars_of(counts)
    assert [panel.title.removeprefix("Noisy counts of ") for panel in (north, south, together)] == [
        "north",
        "south",
        "all owners together",
    ]
    assert [bar.label for bar in north.bars] == ["a", "b", "c", "(other)", "(missing)"]
    half = counts.verdict["half_width"]
    assert half == pytest.approx(4 * np.log(20))  # Laplace noise of scale 2 / 0.5
    for panel in (north, south):
        require_bars(panel, counts.verdict["counts"][panel.title.split()[-1]], half)
    sums = np.sum(list(counts.verdict["counts"].values()), axis=0)
    wider = CellNoise("laplace", 4.0, summed=2).half_width(0.05)
    require_bars(together, sums, wider)


def require_bars(panel: BarsPanel, values: Iterable[float], half: float) -> None:
    drawn = [(bar.value, bar.lower, bar.upper) for bar in panel.bars]
    assert np.array(drawn) == pytest.approx(np.array([(v, v - half, v + half) for v in values]))


def test_where_the_noise_of_a_sum_is_unknown_no_sum_is_drawn(many: Result, counts: Result) -> None:
    for result in (many, counts):
        study = result.source.study
        owners = tuple(owner.model_copy(update={"reuses": "0" * 64}) for owner in study.owners)
        again = result_of(study.model_copy(update={"owners": owners}), result.verdict)
        half = result.verdict["half_width"]
        panels = bars_of(again)
        assert len(panels) == (1 if result is many else 2)  # no margins, and not all owners together
        for panel in panels:
            assert all(bar.upper == pytest.approx(bar.value + half) for bar in panel.bars)


@pytest.mark.long
def test_results_draw_and_report_them(counts: Result, database: Result, many: Result) -> None:
    for result in (counts, database, many):
        figure = figure_of(result.panels())
        assert len(figure.axes) == len(result.panels())
        figure.draw_without_rendering()
    assert len(counts.plot().axes) == len(bars_of(counts)) == counts.report_html().count("<figcaption>") == 3
    assert many.report_html().count("<figcaption>") == 2  # more would leave the page
