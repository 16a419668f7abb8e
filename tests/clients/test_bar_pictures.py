"""Pictures of what tests nothing: noisy counts and databases as bars, and every number read back."""

import re
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from played_releases import BOUNDS, patients, played
from scipy.stats import norm

from tacit.results import DatabaseResult, NoisyCountsResult, Result, result_of
from tacit.results.rendering import figure_of
from tacit_protocol.numerics.noisy_tables import CellNoise
from tacit_protocol.reporting.panels import panels_of
from tacit_protocol.reporting.svg import panel_svg, stacked_svg
from tacit_protocol.verdicts.panels import BarsPanel

SVG = "{http://www.w3.org/2000/svg}"
WARDS = {"ward": BOUNDS["ward"]}
HOSTILE = "<script>&\"'\u202e"


def bars_of(result: Result) -> list[BarsPanel]:
    panels = panels_of(result.source.study, result.verdict, result.source.releases)
    assert all(isinstance(panel, BarsPanel) for panel in panels)
    return [panel for panel in panels if isinstance(panel, BarsPanel)]


def numbers_of(element: ET.Element, *names: str) -> list[float]:
    return [float(str(element.get(name))) for name in names]


def drawn_numbers(svg: str) -> list[list[float]]:
    """Read the value and the interval's ends of every bar, and check where its rectangle ends."""
    root = ET.fromstring(svg)  # noqa: S314
    across = "bars" in str(root.get("class"))
    ticks = [
        numbers_of(e, "data-at", "data-value")
        for e in root.iter()
        if e.get("class") == "xy"[not across] + "-tick"
    ]
    slope, start = np.polyfit(*np.array(ticks).T, 1)
    found, tolerance = [], 2e-3 * abs(slope) * 400
    for row in (e for e in root.iter(f"{SVG}g") if e.get("class") == "row"):
        (drawn,) = row.iter(f"{SVG}rect")
        side = ("x", "width") if across else ("y", "height")
        first, length = numbers_of(drawn, *side)
        value = float(str(row.get("data-value")))
        ends = sorted([start + slope * first, start + slope * (first + length)])
        assert ends == pytest.approx(sorted([0.0, value]), abs=tolerance)
        if row.get("data-lower") is None:
            found.append([value])
            continue
        lower, upper = numbers_of(row, "data-lower", "data-upper")
        path = str(next(e for e in row.iter(f"{SVG}path") if e.get("class") == "whisker").get("d"))
        places = [float(number) for number in re.findall(r"-?[\d.]+(?:e-?\d+)?", path)]
        stroke = (places[0], places[2]) if across else (places[1], places[2])
        assert [start + slope * place for place in stroke] == pytest.approx([lower, upper], abs=tolerance)
        found.append([value, lower, upper])
    return found


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
        shown = counts.verdict["counts"][panel.title.split()[-1]]
        expected = [[v, v - half, v + half] for v in shown]
        assert drawn_numbers(panel_svg(panel)) == pytest.approx(np.array(expected))
    sums = np.sum(list(counts.verdict["counts"].values()), axis=0)
    wider = CellNoise("laplace", 4.0, summed=2).half_width(0.05)
    assert drawn_numbers(panel_svg(together)) == pytest.approx(
        np.array([[v, v - wider, v + wider] for v in sums])
    )


def test_of_a_large_table_margins_and_the_largest_cells_are_drawn(many: Result) -> None:
    assert isinstance(many, NoisyCountsResult)
    dose, site, cells = bars_of(many)
    table = np.array(many.verdict["counts"]["north"]).reshape(8, 32)
    half = CellNoise("laplace", 2.0, summed=32).half_width(0.05)
    margin = table.sum(axis=1)
    expected = [[v, v - half, v + half] for v in margin]
    assert drawn_numbers(panel_svg(dose)) == pytest.approx(np.array(expected))
    assert "adds up 32 noisy counts" in dose.note
    assert site.title == "site: noisy counts of north, the 20 largest of 32"
    assert [bar.value for bar in site.bars] == pytest.approx(np.sort(table.sum(axis=0))[::-1][:20])
    assert cells.title == "The 20 largest of 256 cells: north"
    assert [bar.value for bar in cells.bars] == np.sort(table.ravel())[::-1][:20].tolist()
    assert {bar.label for bar in cells.bars} <= {
        f"{d}, {s}" for d in dose_labels(many) for s in site_labels(many)
    }
    assert f"within {many.half_width_all:.4g}" in cells.note


def dose_labels(result: NoisyCountsResult) -> tuple[str, ...]:
    return tuple(result.tables.labels[0])


def site_labels(result: NoisyCountsResult) -> tuple[str, ...]:
    return tuple(result.tables.labels[1])


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


def test_the_noisy_histograms_of_a_database_are_drawn_as_they_were_released(database: Result) -> None:
    age, ward = bars_of(database)
    shares = database.verdict["histograms"]["north"]
    half = norm.ppf(0.975) * database.verdict["histogram_noise"]["north"]
    for panel in (age, ward):
        expected = np.array([[v, v - half, v + half] for v in shares[panel.title]])
        assert drawn_numbers(panel_svg(panel)) == pytest.approx(expected)
    assert age.edges == tuple(np.linspace(0, 120, 21))
    assert [bar.label for bar in age.bars[20:]] == ["≤ 0", "≥ 120", "missing"]
    assert age.bars[20].value == pytest.approx(0.1, abs=0.05)  # a tenth lies below; the noise is 0.003
    assert [bar.label for bar in ward.bars] == ["a", "b", "c", "(other)", "(missing)"]


@pytest.mark.parametrize(
    "parameters",
    [
        {"placement": "uniform", "n_points": 60},
        {"method": "exponential", "n_points": 6, "candidate_rows": 3},
    ],
)
def test_weighted_points_are_those_of_the_database(parameters: dict[str, Any]) -> None:
    result = played("embedding_release", {"north": patients()}, **parameters)
    assert isinstance(result, DatabaseResult)
    mine = result.database()
    age, ward = bars_of(result)
    heights, edges = np.histogram(mine.points["age"], len(age.bars), (0, 120), weights=mine.weights)
    assert age.edges == pytest.approx(edges)
    assert [bar.value for bar in age.bars] == pytest.approx(heights, abs=1e-6)
    for bar, level in zip(ward.bars, ["a", "b", "c", "(other)", None], strict=True):
        assert bar.value == pytest.approx(mine.weights[mine.points["ward"] == level].sum(), abs=1e-6)
        assert bar.lower is None
    assert drawn_numbers(panel_svg(age)) == [[bar.value] for bar in age.bars]


def test_names_and_levels_of_others_are_escaped() -> None:
    bounds = {"age": (0, 120), HOSTILE: [HOSTILE, "b"]}
    sample = {"age": np.full(100, 50.0), HOSTILE: np.array([HOSTILE, "b"] * 50)}
    for procedure, held in (("noisy_counts", {HOSTILE: bounds[HOSTILE]}), ("embedding_release", bounds)):
        found = played(procedure, {"north": sample}, held)
        svg = stacked_svg(found.panels())
        ET.fromstring(svg)  # noqa: S314
        assert "<script" not in svg
        assert "&lt;script&gt;" in svg
        assert "\u202e" not in svg


def test_a_verdict_of_another_version_draws_nothing_and_stops_nothing(
    counts: Result, database: Result
) -> None:
    for result, field in ((counts, "counts"), (counts, "half_width_all"), (database, "histogram_noise")):
        for wrong in (None, {}, {"north": [1.0]}):
            assert panels_of(result.source.study, dict(result.verdict) | {field: wrong}, {}) == ()


def test_results_draw_and_report_them(counts: Result, database: Result, many: Result) -> None:
    drawn = ET.fromstring(counts.to_svg())  # noqa: S314
    assert [e.text for e in drawn.iter(f"{SVG}text") if "Noisy counts of" in str(e.text)] == [
        panel.title for panel in bars_of(counts)
    ]
    for result in (counts, database, many):
        figure = figure_of(result.panels())
        assert len(figure.axes) == len(result.panels())
        figure.draw_without_rendering()
    assert len(counts.plot().axes) == 3
    html = counts.report_html()
    assert html.count("<figcaption>") == 3
    assert "noise of one count within" in html
    assert len(many.panels()) == 3
    assert many.report_html().count("<figcaption>") == 2  # more would leave the page
