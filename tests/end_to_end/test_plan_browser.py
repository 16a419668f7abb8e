"""The page of plans in a real browser: accessible, in light and dark, on a phone, and it plans."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Visitor, running_browser, serving, visitor
from study_parties import Parties
from tester_federation import URL, Federation
from window import Window

from tacit_protocol.signing.tokens import issue_token
from tacit_services.tester import pages as planner

pytestmark = pytest.mark.long


@pytest.fixture
def federation(tmp_path: Path, parties: Parties, monkeypatch: pytest.MonkeyPatch) -> Iterator[Federation]:
    monkeypatch.setattr(planner, "LIMIT_S", 600.0)  # a loaded machine is ten times slower
    found = Federation(tmp_path, f"sqlite:///{tmp_path / 'tester.sqlite3'}", parties)
    found.enrol_everyone()
    yield found
    found.engine.dispose()


def link_of(federation: Federation, parties: Parties) -> str:
    window = Window(federation.app, URL, lambda: issue_token(parties.analyst, URL, int(federation.now)))
    return window.link()


def plan(page: Visitor, url: str) -> None:
    page.page.goto(f"{url}/plan")
    page.page.get_by_label("Procedure").select_option("noisy_counts")
    page.page.get_by_label("Columns and their public bounds").fill("")
    page.page.get_by_label("number of cells").fill("3")
    page.page.get_by_label("Units of each owner", exact=True).fill("500")
    page.page.get_by_role("button", name="Simulate").click()
    page.page.locator("#words").wait_for(timeout=600_000)


def test_a_plan_is_asked_for_and_read(federation: Federation, parties: Parties) -> None:
    link = link_of(federation, parties)
    with running_browser() as browser, serving(federation.app) as url, visitor(browser) as person:
        person.use_link(f"{url}{link}")
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
        assert person.complaints == []
