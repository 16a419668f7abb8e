"""The tester's pages in a real browser: counts and a database with charts, tables and report; and a plan."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Visitor, running_browser, visitor
from played_releases import BOUNDS, patients, played
from served import serving
from study_parties import Parties
from tester_federation import Federation
from window import Window

from tacit.results import Result
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import ReleaseMessage
from tacit_protocol.signing import RELEASE_TYPE, issue_token, sign_envelope
from tacit_services.tester.web import routes as planner

pytestmark = pytest.mark.long

URL = "http://tester.example"


@pytest.fixture
def federation(tmp_path: Path, parties: Parties, monkeypatch: pytest.MonkeyPatch) -> Iterator[Federation]:
    monkeypatch.setattr(planner, "PLAN_LIMIT_S", 600.0)  # a loaded machine is ten times slower
    # The browser comes without TLS, and the public URL says so.
    found = Federation(tmp_path, f"sqlite:///{tmp_path / 'tester.sqlite3'}", parties, URL)
    found.enrol_everyone()
    yield found
    found.engine.dispose()


@contextmanager
def signed_in(federation: Federation) -> Iterator[tuple[Visitor, str]]:
    """The analyst in a browser, and the tester's address."""
    analyst = federation.parties.analyst
    link = Window(federation.app, URL, lambda: issue_token(analyst, URL, int(federation.now))).link()
    with running_browser() as browser, serving(federation.app) as url, visitor(browser) as person:
        person.use_link(f"{url}{link}")
        yield person, url
        assert person.complaints == []


def completed(federation: Federation, played: Result, title: str) -> tuple[str, dict[str, Any]]:
    """Run a study that was played before through the tester; returns its digest and its verdict."""
    study, parties = played.source.study, federation.parties
    digest = federation.create(
        title=title,
        procedure=study.procedure,
        parameters=study.parameters,
        domain=study.domain,
        budget=study.budget,
        seed=study.seed,
        owners=tuple(parties.owner(owner.name) for owner in study.owners),
    )
    for owner in study.owners:
        message = ReleaseMessage(study=digest, party=owner.name, release=played.source.releases[owner.name])
        envelope = sign_envelope(encode(message), RELEASE_TYPE, parties.owners[owner.name])
        assert federation.release(digest, owner.name, envelope=envelope).status_code == 201
    while federation.work():
        pass
    return digest, dict(federation.verdict(digest).result or {})


def bars_of(chart: Any) -> list[list[float]]:
    return [
        [float(row.get_attribute(f"data-{part}")) for part in ("value", "lower", "upper")]
        for row in chart.locator(".row").all()
    ]


def require_tables(person: Visitor) -> None:
    """Every chart's numbers are in the table below it, in words that a screen reader has too."""
    charts, tables = person.page.locator("svg.chart").all(), person.page.locator("details").all()
    assert len(charts) == len(tables)
    for chart, table in zip(charts, tables, strict=True):
        table.locator("summary").click()
        rows = [
            [cell.inner_text() for cell in row.locator("td").all()] for row in table.locator("tbody tr").all()
        ]
        assert np.array(rows, dtype=float) == pytest.approx(np.array(bars_of(chart)), rel=1e-3, abs=1e-9)
        assert (
            person.page.get_by_role("img", name=chart.locator("> title").text_content(), exact=True).count()
            == 1
        )
    person.require_accessible()


def require_report(person: Visitor, charts: int, folder: Path) -> None:
    with person.page.expect_download() as download:
        person.page.get_by_role("link", name="Download the report").click()
    report = folder / "report.html"
    download.value.save_as(report)
    page = person.context.new_page()
    page.set_content(report.read_text("utf-8"))
    assert page.locator("figure figcaption").count() == charts
    Visitor(person.context, page, person.complaints).require_accessible()
    pdf = page.pdf(prefer_css_page_size=True)
    assert len(re.findall(rb"/Type\s*/Page\b", pdf)) == 1
    page.close()


def test_counts_and_a_database_are_drawn_with_their_numbers(federation: Federation, tmp_path: Path) -> None:
    wards = {"ward": BOUNDS["ward"]}
    samples = {name: patients(400, seed) for seed, name in enumerate(("north", "south"))}
    counted = played("noisy_counts", samples, wards, epsilon=0.5, delta=0.0)
    counts, counts_verdict = completed(federation, counted, "How many patients has each ward?")
    released = played("embedding_release", {"north": patients(2000)}, n_points=40)
    database, database_verdict = completed(federation, released, "What do the patients of north look like?")
    with signed_in(federation) as (person, url):
        person.page.goto(f"{url}/studies/{counts}")
        charts = person.page.locator("svg.bars").all()
        half = counts_verdict["half_width"]
        for chart, name in zip(charts[:2], ("north", "south"), strict=True):
            assert bars_of(chart) == [
                pytest.approx([v, v - half, v + half]) for v in counts_verdict["counts"][name]
            ]
        together = np.sum([counts_verdict["counts"][name] for name in ("north", "south")], axis=0)
        assert [bar[0] for bar in bars_of(charts[2])] == pytest.approx(together)
        person.require_accessible()
        person.picture("tester-counts")
        require_tables(person)
        require_report(person, 3, tmp_path)

        person.page.goto(f"{url}/studies/{database}")
        shares = database_verdict["histograms"]["north"]
        for kind, column in (("histogram", "age"), ("bars", "ward")):
            (chart,) = person.page.locator(f"svg.{kind}").all()
            assert [bar[0] for bar in bars_of(chart)] == shares[column]
        person.require_accessible()
        person.picture("tester-database")
        require_tables(person)
        require_report(person, 2, tmp_path)


WITHIN = {"sex": ["f", "m"], "age": (0, 100), "ill": ["no", "yes"]}


def mixed(units: int, seed: int) -> dict[str, Any]:
    """Return made-up columns: men are older, and fall ill more often and earlier."""
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], units)
    age = np.clip(rng.normal(50 + 10 * (sex == "m"), 12), 1, 99)
    ill = np.where(rng.random(units) < np.where(sex == "m", 0.5, 0.2), "yes", "no")
    return {"sex": sex, "age": age, "ill": ill}


@pytest.mark.parametrize(
    ("procedure", "columns", "delta", "parameters"),
    [
        ("group_comparison", ("sex", "age", "ill"), 1e-5, {"group": "sex"}),
        ("association", ("sex", "age"), 1e-5, {}),
        ("stratified_table", ("sex", "ill"), 0.0, {"group": "sex", "outcome": "ill"}),
        ("survival", ("sex", "age", "ill"), 0.0, {"group": "sex", "cuts": {"age": [40.0, 50.0, 60.0, 70.0]}}),
    ],
)
def test_effects_within_owners_are_read_off_their_forest_plots(
    federation: Federation,
    tmp_path: Path,
    procedure: str,
    columns: tuple[str, ...],
    delta: float,
    parameters: dict[str, Any],
) -> None:
    samples = {name: mixed(1500, seed) for seed, name in enumerate(("north", "south"))}
    bounds = {column: WITHIN[column] for column in columns}
    found = played(procedure, samples, bounds, epsilon=2.0, delta=delta, **parameters)
    digest, verdict = completed(federation, found, "Do men and women differ within hospitals?")
    with signed_in(federation) as (person, url):
        person.page.goto(f"{url}/studies/{digest}")
        drawn = [row for chart in person.page.locator("svg.rows").all() for row in bars_of(chart)]
        for effect in [*verdict["effects"], *verdict["effects_by_owner"]]:
            ends = [effect[part] for part in ("estimate", "lower", "upper")]
            absolute = effect["kind"].endswith(("difference", "correlation"))
            if None in ends or effect["kind"] in ("standard deviation ratio", "risk ratio"):
                continue
            if procedure == "group_comparison" and not absolute:
                continue  # its odds ratios stand in the table
            assert any(row == pytest.approx(ends if absolute else np.log(ends)) for row in drawn), effect
        # Answers first: what differs by how much is drawn above how sure it is.
        kinds = [chart.get_attribute("class") for chart in person.page.locator("svg.chart").all()]
        assert kinds.index("chart rows") < kinds.index("chart pvalue")
        person.require_accessible()
        read = person.page.locator("main").inner_text().lower()
        assert not re.search(r"pvalue|_|\bupper\b|\blower\b", read.replace(procedure, ""))
        with person.page.expect_download() as download:
            person.page.get_by_role("link", name="Download the report").click()
        download.value.save_as(tmp_path / "report.html")
        report = person.context.new_page()
        report.set_content((tmp_path / "report.html").read_text("utf-8"))
        assert len(re.findall(rb"/Type\s*/Page\b", report.pdf(prefer_css_page_size=True))) == 1
        assert report.locator("figcaption").count() == 1
        assert all(cell.inner_text().strip() for cell in report.locator("tbody th").all())


def test_a_plan_is_asked_for_and_read(federation: Federation) -> None:
    with signed_in(federation) as (person, url):
        person.page.get_by_role("link", name="Plan").click()
        person.page.get_by_role("heading", name="Plan a study").wait_for()
        person.require_accessible()
        plan(person, url)
        person.require_accessible()
        dots = [float(dot.get_attribute("data-value")) for dot in person.page.locator(".dot").all()]
        rows = [float(re.split(r"\s+", row.inner_text())[1]) for row in person.page.locator("tbody tr").all()]
        assert rows == pytest.approx(dots, rel=1e-2)
        assert dots == sorted(dots, reverse=True)
        assert person.page.get_by_label("number of cells").input_value() == "3"
        person.picture("tester-plan")


def plan(page: Visitor, url: str) -> None:
    page.page.goto(f"{url}/plan")
    page.page.get_by_label("Procedure").select_option("noisy_counts")
    page.page.get_by_label("Columns and their public bounds").fill("")
    page.page.get_by_label("number of cells").fill("3")
    page.page.get_by_label("Units of each owner", exact=True).fill("500")
    page.page.get_by_role("button", name="Simulate").click()
    page.page.locator("#words").wait_for(timeout=600_000)
